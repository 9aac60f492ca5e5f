"""The message: what travels from an agent to one or many agents, encoded once at the send and never again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError
from typing import Any, Protocol, TypeVar

from mombroker.core.errors import PeerError
from mombroker.core.ids import ID_CHARS, SERVER_NAME, address_at
from mombroker.core.transaction import Transaction

BOUNCE = 1  # this message tells of a failure: its own failure is not told to anybody
VOLATILE = 2  # the row at the destination may be spared


class Note(Protocol):
    """What destinations and sessions send each other: an object on one server, packed between servers."""

    @property
    def wire(self) -> str: ...
    @property
    def size(self) -> int: ...
    def pack(self) -> bytes: ...


@dataclass(slots=True)
class Message:
    """One send. `data` is its wire form, the same bytes on every hop.

    origin, number  the id: the server of the send and its counter
    source, dests   agent ids; a multicast names all its agents
    type, payload   the notification's wire name and its packed fields
    sent, expires   wall-clock nanoseconds; 0 = never expires
    flags           BOUNCE, VOLATILE
    note            the notification itself while it stays on this server, where destinations and sessions talk to
                    each other: packed only if it leaves or must wait on disk
    size            bytes of the packed fields (of what counts of them, in a note)
    """

    origin: str
    number: int
    source: str
    dests: tuple[str, ...]
    type: str
    payload: bytes
    sent: int = 0
    expires: int = 0
    flags: int = 0
    data: bytes = b""
    note: Any = None
    size: int = 0

    def encode(self) -> bytes:
        """Fixed numbers, the head as lines of text (origin, source, type, dests), then the payload."""
        if not self.data:
            key = (self.origin, self.source, self.type, self.dests)
            head = _HEADS.get(key)
            if head is None:
                head = "\n".join((self.origin, self.source, self.type, *self.dests)).encode()
                if len(head) <= _MAX_HEAD:
                    _remember(_HEADS, key, head)
            start = self._fixed(head)
            if self.note is not None:
                self.payload = self.note.pack()
            self.data = start + self.payload
        return self.data

    def _fixed(self, head: bytes) -> bytes:
        return _FIXED.pack(len(head), self.number, self.sent, self.expires, self.flags) + head

    def copy_for(self, agent: str) -> bytes:
        """The wire form of one agent's copy of a multicast, which names no other agent, up to its payload."""
        if self.note is not None and not self.data:
            self.payload = self.note.pack()
        return self._fixed("\n".join((self.origin, self.source, self.type, agent)).encode())


def new_message(
    tx: Transaction, source: str, dests: tuple[str, ...], type: str, payload: bytes, expires: int = 0, flags: int = 0
) -> Message:
    """A message of this server, not sent yet."""
    return Message(
        tx.name, tx.new_id(), source, dests, type, payload, tx.now, expires, flags, b"", None, len(payload)
    )  # fmt: skip


def addressed(message: Message, moved: Mapping[str, str]) -> Message:
    """A message with the addresses of those of its agents that have moved."""
    dests = tuple(address_at(moved[each], each) if each in moved else each for each in message.dests)
    return message if dests == message.dests else replace(message, dests=dests, data=b"")


TYPE_CHARS = 256  # of the name of a type
_FIXED = Struct(">IQQQB")  # bytes of the head, number, sent, expires, flags
_START = _FIXED.size

# The same few heads come again and again; text is made of them once.
_HEADS: dict[tuple[str, str, str, tuple[str, ...]], bytes] = {}
_KNOWN: dict[bytes, tuple[str, str, str, tuple[str, ...]]] = {}
_MAX_KNOWN, _MAX_HEAD = 4_096, 1_024

Key = TypeVar("Key")
Value = TypeVar("Value")


def _remember(known: dict[Key, Value], key: Key, value: Value) -> None:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value


def decode(data: bytes) -> Message:
    """Decode a message from its wire form. Raises PeerError if `data` is not one."""
    try:
        length, number, sent, expires, flags = _FIXED.unpack_from(data)
    except StructError:
        raise PeerError("not a message: cut short") from None
    if (number | sent | expires) >> 63:
        raise PeerError("not a message: a number that no row can hold")
    end = _START + length
    head = data[_START:end]
    known = _KNOWN.get(head)
    if known is None:
        if end > len(data):
            raise PeerError("not a message: cut short")
        known = _head(head)
        if length <= _MAX_HEAD:
            _remember(_KNOWN, head, known)
    origin, source, type_, dests = known
    return Message(
        origin, number, source, dests, type_, data[end:], sent, expires, flags, data, None, len(data) - end
    )  # fmt: skip


def ident(data: bytes) -> tuple[str, int]:
    """Origin and number of a wire form that has been decoded before; little more is read."""
    length, number, *_ = _FIXED.unpack_from(data)
    return data[_START : _START + length].split(b"\n", 1)[0].decode(), number


def _head(head: bytes) -> tuple[str, str, str, tuple[str, ...]]:
    try:
        origin, source, type_, *dests = head.decode().split("\n")
    except ValueError as error:
        raise PeerError(f"not a message: {error}") from None
    if not dests or not all("/" in agent for agent in (source, *dests)):
        raise PeerError("not a message: it names no agent")
    if not SERVER_NAME.fullmatch(origin) or len(type_) > TYPE_CHARS or not type_.isprintable():
        raise PeerError(f"not a message: {type_[:64]!r} from {origin[:64]!r}")
    if len(max(source, *dests, key=len)) > ID_CHARS:
        raise PeerError(f"not a message: the id of an agent has at most {ID_CHARS} characters")
    return origin, source, type_, tuple(dests)
