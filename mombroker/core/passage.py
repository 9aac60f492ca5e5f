"""What two servers tell each other of an agent that moves from one to the other (protocols §8.10).

OFFER      the former home asks the new one, which answers TAKEN
POLL       it asks all servers whether they are there; each answers HERE
PASSED     each says, behind all that it has sent to the former home, that it sends to the new one from now on
PAGE       a piece of the agent, in the transaction that deletes it at the former home; GOT is its receipt
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mombroker.core.batch import ItemRow
from mombroker.core.errors import PeerError, UnknownNotification
from mombroker.core.ids import is_id
from mombroker.core.message import BOUNCE, Message, decode, new_message
from mombroker.core.transaction import Transaction

AGENT = "_moves"
OFFER, TAKEN, POLL, HERE, PASSED, PAGE, GOT = "_offer", "_taken", "_poll", "_here", "_passed", "_page", "_got"
MOVING = "//moving"  # in place of the name that an inbox waits for
KEPT_IDS = "//ids"  # the collection that finds items by the ids that they had where they were made
LAST = (1 << 63) - 1

Chunk = tuple[bool, bytes]  # is it the end of a record?


class Page(NamedTuple):
    """Pieces of records, in order. `upto`: ids of the former home are below it. `end`: there is no more."""

    id: str
    upto: int
    chunks: list[Chunk]
    end: bool

    def pack(self) -> bytes:
        head = [self.id, self.upto, [[whole, len(data)] for whole, data in self.chunks], self.end]
        return b"\n".join((json.dumps(head, ensure_ascii=False).encode(), b"".join(data for _, data in self.chunks)))


def page_of(message: Message) -> Page:
    """Raises UnknownNotification."""
    head, _, rest = message.payload.partition(b"\n")
    match _json(message, head):
        case [str(id), int(upto), list(cuts), bool(end)] if is_id(id) and 0 < upto <= LAST:
            chunks, at = list[Chunk](), 0
            for cut in cuts:
                match cut:
                    case [bool(whole), int(size)] if size >= 0:
                        chunks.append((whole, rest[at : at + size]))
                        at += size
                    case _:
                        raise UnknownNotification(f"{message.type} came with what is no piece of an agent")
            if at == len(rest):
                return Page(id, upto, chunks, end)
    raise UnknownNotification(f"{message.type} came with what is no part of an agent")


def record(head: list[Any], body: bytes) -> bytes:
    """One thing of an agent: what it is, and its bytes."""
    return b"\n".join((json.dumps(head, ensure_ascii=False).encode(), body))


def read_record(message: Message, data: bytes) -> tuple[Any, bytes]:
    """Raises UnknownNotification."""
    head, _, body = data.partition(b"\n")
    return _json(message, head), body


def waiting(message: Message) -> Iterator[Message]:
    """The messages in a PAGE that waited for its agent. Raises UnknownNotification."""
    for whole, data in page_of(message).chunks:
        head, _, body = data.partition(b"\n")
        if whole and head.startswith(b'["in",'):
            try:
                yield decode(body)
            except PeerError:
                pass  # the end of one that has come in pieces


def shown(row: ItemRow) -> int:
    """The id of an item that its agent knows: of one that has moved the one that it was made with."""
    return int.from_bytes(row.head) if row.head else row.id


def texts(message: Message, count: int) -> list[str]:
    """The texts that it has, the first an id. Raises UnknownNotification."""
    found = _json(message, message.payload)
    if not isinstance(found, list) or len(found) != count or not all(isinstance(each, str) for each in found):
        raise UnknownNotification(f"{message.type} came without {count} texts")
    if not is_id(found[0]):
        raise UnknownNotification(f"{message.type} came without an agent's id")
    return found


def _json(message: Message, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None


def sender(tx: Transaction, send: Callable[[Message], None]) -> Callable[..., None]:
    """What tells servers something: `tell(servers, type, payload or texts)`."""

    def tell(servers: tuple[str, ...], type: str, said: bytes | list[str]) -> None:
        payload = said if isinstance(said, bytes) else json.dumps(said, ensure_ascii=False).encode()
        dests = tuple(f"{name}/{AGENT}" for name in servers)
        send(new_message(tx, f"{tx.name}/{AGENT}", dests, type, payload, flags=BOUNCE))

    return tell
