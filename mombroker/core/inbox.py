"""Inboxes: the messages that wait for each agent, the oldest in memory, the rest on disk, always in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from mombroker.core.batch import InRow, PayloadRow
from mombroker.core.errors import MomError, NoProgram, PeerError
from mombroker.core.message import Message, decode
from mombroker.core.transaction import COMMIT, Transaction

PAGE = 256
SHARED, ALONE = 16 << 10, 256  # bytes that copies of a payload must take to be one, and that each of them may take


def _messages(rows: Iterable[bytes]) -> Iterator[Message]:
    for data in rows:
        with suppress(PeerError):
            yield decode(data)


class Entry:
    """One message in one agent's inbox."""

    __slots__ = (
        "id", "message", "attempts", "trying", "stored", "done", "domain", "peer", "received", "delivered", "payload",
    )  # fmt: skip

    def __init__(
        self, id: int, message: Message, domain: str, peer: str, received: int, delivered: int, payload: int = 0
    ):
        self.id, self.message = id, message
        self.payload = payload  # the row that holds what it shares with others of its multicast, 0 = it has its own
        self.domain, self.peer, self.received, self.delivered = domain, peer, received, delivered
        self.attempts = self.trying = 0
        self.stored = False  # it has a row in queue_in, open batch included
        self.done = False


class Inbox:
    """1. `queue` is a contiguous run of the agent's messages, its oldest ones.
    2. Ids above `cursor`, up to `last`, are only on disk."""

    __slots__ = ("agent", "queue", "cursor", "last", "late", "runnable", "until", "name", "stuck", "suspects")

    def __init__(self, agent: str, cursor: int):
        self.agent = agent
        self.queue: deque[Entry] = deque()
        self.cursor = self.last = cursor
        self.late: deque[int] | None = None  # of those on disk the last ones, not all of which are durable
        self.runnable = False
        self.until = 0  # retry time of its first message, 0 = not waiting for one
        self.name = ""  # the name that its first message's reaction waits for
        self.stuck: NoProgram | None = None  # why its agent cannot be loaded
        self.suspects = 0  # so many of its first messages may be tried once that is durable; see poison.py

    def on_disk(self) -> bool:
        return self.last > self.cursor

    def blocked(self) -> bool:
        return bool(self.until or self.name or self.stuck)


class Inboxes:
    """1. Every entry that is not done has its row when the batch closes.
    2. `run` has the inboxes that are runnable, each once, in their turn.
    3. `in_memory` counts the entries in memory.

    unreadable   what is told of a row that is no message: its bytes, the agent, the error
    """

    __slots__ = ("tx", "unreadable", "boxes", "run", "in_memory", "new", "payloads")

    def __init__(self, tx: Transaction, unreadable: Callable[[bytes, str, MomError], None]):
        self.tx, self.unreadable = tx, unreadable
        self.boxes: dict[str, Inbox] = {}
        self.run: deque[Inbox] = deque()
        self.in_memory = 0
        self.new: list[tuple[str, Entry]] = []  # entries of the open batch
        self.payloads: dict[int, int] = {}  # shared ones of the open batch without a row: id -> id of the last entry

    def recover(self) -> None:
        for agent, lowest, _ in self.tx.reader.inboxes():
            box = self.boxes[agent] = Inbox(agent, lowest - 1)
            box.last = self.tx.durable_id
            self.wake(box)

    def add(
        self, message: Message, agent: str, domain: str, peer: str, received: int, payload: int, attempts: int = 0
    ) -> None:
        """A message for an agent, behind all that it has. `payload`: see `share`."""
        tx = self.tx
        id = tx.new_id()
        box = self.boxes.get(agent)
        if box is None:
            # Rows of an earlier inbox may be consumed and still be on disk: what counts comes after them.
            box = self.boxes[agent] = Inbox(agent, id - 1)
        entry = Entry(id, message, domain, peer, received, tx.now, payload)
        entry.attempts = attempts
        if box.last > box.cursor or self.in_memory >= tx.limits.max_inbox:
            self.write(agent, entry)
            box.last = id
            late = box.late = deque() if box.late is None else box.late
            while late and late[0] <= tx.durable_id:
                late.popleft()
            late.append(id)
        else:
            box.queue.append(entry)
            box.cursor = box.last = id
            self.in_memory += 1
            self.new.append((agent, entry))
        self.wake(box)

    def share(self, message: Message, copies: int) -> int:
        """The id of the row for what the next so many entries have in common; 0 if each had better have its own."""
        size = len(message.payload)
        if size <= ALONE or (copies - 1) * size <= SHARED:
            return 0
        id = self.tx.new_id()
        self.payloads[id] = id + copies
        return id

    def wake(self, box: Inbox) -> None:
        """Give it its turn, if it has something to react to."""
        if not (box.runnable or box.until or box.name or box.stuck) and (box.queue or box.last > box.cursor):
            box.runnable = True
            self.run.append(box)

    def forget(self, box: Inbox) -> None:
        """It is empty."""
        self.boxes.pop(box.agent, None)

    def count(self, box: Inbox) -> int:
        """Its messages; of those that are only on disk, what was committed."""
        return len(box.queue) + (self.tx.reader.queue_in_count(box.agent, box.cursor) if box.on_disk() else 0)

    def waiting(self, agent: str) -> Iterator[Message]:
        """What an agent has still to react to, the first one first, durable or not. Rows that are no messages are left
        out."""
        box, tx = self.boxes.get(agent), self.tx
        if box is None:
            return
        yield from [entry.message for entry in box.queue]
        if not box.on_disk():
            return
        after, upto = box.cursor, min(box.last, tx.durable_id)
        while rows := tx.reader.queue_in(agent, after, upto, PAGE):
            yield from _messages(row.data for row in rows)
            after = rows[-1].id
        yield from _messages(map(self._late, [id for id in box.late or () if id > max(after, tx.durable_id)]))

    def _late(self, id: int) -> bytes:
        """Of a row that is not durable."""
        row: InRow = self.tx.written("queue_in", id)
        shared = self.tx.written("payloads", row.payload).data if row.payload else b""
        return row.data + bytes(shared)

    def write(self, agent: str, entry: Entry) -> None:
        """Put the row of an entry."""
        entry.stored = True
        message, rows = entry.message, self.tx.rows
        if len(message.dests) == 1 and not entry.payload:
            data = message.encode()
        else:
            data = message.copy_for(agent)
            if not entry.payload:
                data += message.payload
            elif last := self.payloads.pop(entry.payload, 0):
                rows.payloads[entry.payload] = PayloadRow(entry.payload, last, message.payload)
                rows.bytes += len(message.payload)
        info = (entry.domain, entry.peer, entry.received, entry.delivered)
        rows.queue_in[entry.id] = InRow(entry.id, agent, data, entry.attempts, entry.trying, info, entry.payload)
        rows.bytes += len(data)

    def _delete(self, id: int, payload: int) -> None:
        self.tx.rows.queue_in[id] = None
        if payload:
            self.tx.rows.spent.add(payload)

    def refill(self, box: Inbox, tried: bool) -> bool:
        """Read the next page of an inbox; False while its rows are not durable yet. `tried`: does it still count at how
        many unclean stops they were tried?"""
        tx = self.tx
        rows = tx.reader.queue_in(box.agent, box.cursor, min(box.last, tx.durable_id), PAGE)
        for row in rows:
            box.cursor = row.id
            try:
                message = decode(row.data)
            except PeerError as error:  # it was stored before this was checked, or is damaged
                self.unreadable(row.data, box.agent, error)
                self._delete(row.id, row.payload)
                continue
            entry = Entry(row.id, message, *row.info, row.payload)
            entry.attempts, entry.trying, entry.stored = row.attempts, row.trying if tried else 0, True
            box.queue.append(entry)
            self.in_memory += 1
        if len(rows) < PAGE and box.last <= tx.durable_id:
            box.cursor = box.last
        return bool(rows) or not box.on_disk()

    def finish(self, box: Inbox, entry: Entry) -> None:
        """The first entry leaves the inbox: consumed, parked or dropped."""
        box.queue.popleft()
        self.in_memory -= 1
        entry.done = True
        if box.suspects:
            box.suspects -= 1
        if entry.stored:
            self._delete(entry.id, entry.payload)
            self.tx.urgency = COMMIT

    def close(self) -> None:
        """The open batch closes: what is left gets its row."""
        if self.in_memory:
            for agent, entry in self.new:
                if not entry.done and not entry.stored:
                    self.write(agent, entry)
        self.new, self.payloads = [], {}

    def check(self) -> None:
        assert self.in_memory == sum(len(box.queue) for box in self.boxes.values()), "entries miscounted"
        for box in self.boxes.values():
            assert all(not entry.done for entry in box.queue), f"{box.agent} keeps a consumed message"
            assert box.runnable == (box in self.run), box.agent
            assert box.suspects <= len(box.queue), f"{box.agent} suspects messages that are gone"
            ids = [entry.id for entry in box.queue]
            assert ids == sorted(ids) and (not ids or ids[-1] <= box.cursor), box.agent
