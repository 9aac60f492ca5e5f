"""A client's message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Self

from mombroker.broker import heads, older
from mombroker.broker.properties import FIELDS, Packed, named
from mombroker.broker.shapes import LOCAL, Count, Time, Within, getter
from mombroker.broker.texts import plain
from mombroker.broker.wire import SHAPES, Note, array, pack

# Annotations that the broker alone says. From this one list follows: a SEND's header of such a name is dropped, and
# MESSAGE tells no stored property that is called so; selectors and `Message.properties` of mombroker.jms read the
# annotation, always as text; properties that were received are sent on without it.
USER = "JMSXUserID"  # who had logged in on the connection that the message came by
BROKERS_OWN = frozenset((USER,))


class Alike:
    """Messages of one sender that came in a row and differ in their bodies alone: what is the same of all is made once.
    Who changes one of them takes it from among these, or a copy.

    size   of one with an empty body, and if they are `own`, an empty form
    own    they differ in `message` and `form`, too
    """

    __slots__ = ("size", "own", "_values", "_packed", "_parts")

    def __init__(self, first: ClientMessage, own: bool = False):
        self._values = values = list(SHAPE.values(first))
        self.own, self.size = own, first.size - len(first.body) - (len(first.form) if own else 0)
        self._packed: tuple[bytes, bytes] | None = None
        if own:
            parts = values[:MESSAGE], values[MESSAGE + 1 : FORM], values[FORM + 1 : BODY], values[BODY + 1 :]
            self._parts = [b"".join(map(pack, part)) for part in parts]

    def message(self, body: bytes) -> ClientMessage:
        values = self._values
        values[BODY] = body
        made = ClientMessage(*values)
        made.alike = self
        return made

    def headed(self, head: tuple[str, bytes], body: bytes) -> ClientMessage:
        """One that has its own `message` and `form`."""
        values = self._values
        values[MESSAGE], values[FORM] = head
        values[BODY] = body
        made = ClientMessage(*values)
        made.alike = self
        return made

    def packed(self, message: ClientMessage, form: bytes) -> tuple[bytes, ...]:
        """The fields of one of them before the body, in parts, and at last those behind it. `form`: its own, or whole
        (heads.py), which is asked of those that are `own`."""
        if self.own:
            before, between, behind_form, behind = self._parts
            return before, pack(message.message), between, pack(form), behind_form, behind
        if self._packed is None:
            values = self._values
            self._packed = b"".join(map(pack, values[:BODY])), b"".join(map(pack, values[BODY + 1 :]))
        return self._packed


@dataclass(slots=True)
class ClientMessage(Note):
    """A client's message. Times are wall-clock ns, 0 = none.

    This list of fields is all that the bus and the rows of queues know of a message: one that is added at its end, with
    a default, travels and is stored like the others.

    shown     the destination as its sender wrote it
    kind      of the body: "text", "bytes" or what the sender calls it
    producer, counter   name this message for ever, whatever connection repeats it
    sender    the client id, or connection, that it came by: for no-local
    message   its id; empty: that of the bus message
    content_type, type, correlation, reply_to   what the sender has said, or nothing; `type` is JMSType
    properties   the sender's: packed (properties.py)
    typed     its sender gives no types: texts that look like numbers or booleans are taken for such
    form      for the protocol that brought it: what the fields do not tell of how they were written
    annotations   what the broker adds: dead-letter reason, origin, the sender's login, ...
    """

    wire = "q.put"
    destination: str
    shown: str
    priority: Annotated[int, Within(0, 9)] = 4
    timestamp: Count = 0
    expires: Time = 0
    due: Time = 0  # not to be delivered before
    persistent: bool = True
    kind: str = "bytes"
    group: str = ""
    group_seq: int = 0
    producer: str = ""
    counter: Count = 0
    sender: str = ""
    message: str = ""
    content_type: str = ""
    type: str = ""
    correlation: str = ""
    reply_to: str = ""
    properties: Packed = b""
    typed: bool = False
    form: bytes = b""
    annotations: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reserved: bool = field(default=False, init=False, metadata=LOCAL)  # the queue expects it
    alike: Alike | None = field(default=None, init=False, repr=False, compare=False, metadata=LOCAL)  # if it has such

    @property
    def size(self) -> int:
        """What it counts in a queue: the same when it comes and when it goes, also if it came to an older program."""
        if self.alike is not None:
            size = self.alike.size + len(self.body)
            return size + len(self.form) if self.alike.own else size
        form = self.form
        if form and form[:1] == older.LINES:
            return len(form) - 1 + len(self.body)
        texts = self.content_type + self.type + self.correlation + self.reply_to
        return len(texts) + len(self.properties) + len(form) + len(self.body)

    def values(self) -> Sequence[Any]:
        """As other servers have them."""
        values = SHAPE.values(self)
        if self.form[:1] != heads.SHARED:
            return values
        return *values[:FORM], heads.whole(self.form, self.message), *values[FORM + 1 :]

    def pack(self) -> bytes:
        if self.alike is None:
            return Note.pack(self)
        *before, behind = self.alike.packed(self, heads.whole(self.form, self.message))
        return b"".join((WIRE, *before, pack(self.body), behind))

    def copy(self) -> ClientMessage:
        return ClientMessage(*SHAPE.values(self))

    def told(self) -> dict[str, Any]:
        """For an operator: what JSON has, so all but the body. `headers` are the sender's, standard fields too, and
        `properties` what the broker has added."""
        fields = plain(dict(zip(TOLD, _told(self), strict=True)))
        return {"destination": self.shown, **fields, "headers": plain(named(self)), "properties": self.annotations}

    @classmethod
    def of(cls, values: Any) -> Self:
        try:
            return cls(*SHAPE.read(values))
        except ValueError:  # it is an older one, or wrong
            if not older.is_one(values):
                raise
        return cls(*SHAPE.read(older.converted(values)))

    @classmethod
    def of_row(cls, values: list[Any], body: bytes) -> Self:
        """Older rows leave out the last fields, newer ones may have more. Raises ValueError."""
        at = older.BODY if older.is_one(values) else BODY
        return cls.of([*values[:at], body, *values[at:]])


SHAPE = SHAPES[ClientMessage]
PUT = SHAPE.names
DESTINATION, SHOWN, BODY, MESSAGE, FORM = map(PUT.index, ("destination", "shown", "body", "message", "form"))
WIRE = array(len(PUT))


def maker(source: type[Any], *given: str) -> Callable[..., ClientMessage]:
    """Code that makes a message of a source, with fields of the same names, and of what is `given`; any other field has
    its default."""
    unknown = set(given) - set(PUT)
    assert not unknown, f"a message has no {unknown}"
    has, values, by_place = {each.name for each in fields(source)}, list[str](), True
    for name in PUT:
        if name in given or name in has:
            value = name if name in given else f"source.{name}"
            values.append(value if by_place else f"{name}={value}")
        else:
            by_place = False
    made: Callable[..., ClientMessage] = eval(
        f"lambda source, {', '.join(given)}: ClientMessage({', '.join(values)})", {"ClientMessage": ClientMessage}
    )
    return made


def in_turn(
    model: ClientMessage, places: Iterable[tuple[str, str]], bodies: Iterable[bytes]
) -> Iterator[ClientMessage]:
    """Messages like this one, each with its own destination, `shown` and body."""
    values = list(SHAPE.values(model))
    for (values[DESTINATION], values[SHOWN]), values[BODY] in zip(places, bodies, strict=True):
        yield ClientMessage(*values)


@dataclass(slots=True, eq=False)
class MessageRun:
    """Messages alike that go in one piece to all who take them, each with its id.

    size    bytes of their bodies
    frames  of them, for a protocol: by what else these depend on, each made once for all who get the same
    """

    messages: list[ClientMessage]
    ids: list[str]
    size: int
    frames: dict[tuple[Any, ...], bytes] = field(default_factory=dict)


row_of = getter(*(name for name in PUT if name != "body"))  # that has its own place
# What `told` has by this name; not the body, nor what is about this way alone, and other names for the rest.
_OTHERWISE = {"destination", "shown", "message", "properties", *FIELDS.values(), "form", "annotations", "body"}
TOLD = [name for name in PUT if name not in _OTHERWISE]
_told = getter(*TOLD)
