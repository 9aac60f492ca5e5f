"""What agents are to send when a cast of theirs has gone, in their order: it waits in rows, and its agent with it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container
from itertools import takewhile
from typing import Any

import msgpack

from mombroker.broker.message import ClientMessage
from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.groups.bus import PLACE, PUT, SEND
from mombroker.core.message import decode
from mombroker.core.transaction import COMMIT, Transaction

OUTBOX = "outbox"


class Entry:
    """One thing to do. `asked`: its home was asked to place it, by a message with a number above this; 0 = not yet.
    `row`: 0 while it has none."""

    __slots__ = ("kind", "value", "asked", "row")

    def __init__(self, kind: str, value: Any, asked: int = 0, row: int = 0):
        self.kind, self.value, self.asked, self.row = kind, value, asked, row

    def pack(self) -> bytes:
        value = self.value
        if self.kind == SEND:
            value = value.encode()
        elif self.kind in (PUT, PLACE):
            where, message = value
            value = [where, message.pack()]
        packed: bytes = pack(value)
        return packed

    @classmethod
    def of(cls, row: ItemRow) -> tuple[str, Entry]:
        agent, kind, asked = msgpack.unpackb(row.head)
        value = msgpack.unpackb(row.body, strict_map_key=False)
        if kind == SEND:
            value = decode(value)
        elif kind in (PUT, PLACE):
            value = value[0], ClientMessage.unpack(value[1])
        return agent, Entry(kind, value, int(asked), row.id)


class Outboxes:
    """1. Whoever has something here waits for that, and what it has here has rows.
    2. What was asked for is in front of all else of its agent.

    of   by agent, the first one first
    """

    __slots__ = ("tx", "id", "of")

    def __init__(self, tx: Transaction, id: str):
        self.tx, self.id = tx, id
        self.of: dict[str, deque[Entry]] = {}

    def load(self, row: ItemRow) -> None:
        agent, entry = Entry.of(row)
        self.of.setdefault(agent, deque()).append(entry)

    def add(self, agent: str, kind: str, value: Any) -> None:
        """Behind all that it has; its row follows with `keep`."""
        self.of.setdefault(agent, deque()).append(Entry(kind, value))

    def run(self, agent: str, do: Callable[[str, Entry, int], bool | None]) -> bool:
        """Do what can be done, in its order: `do` gets the agent, an entry, and how much is asked for before it, and
        says whether it is done, or asked for (None). True if nothing is left."""
        entries = self.of.get(agent, deque())
        asked = bisect_left(entries, True, key=lambda entry: not entry.asked)  # by 2
        while len(entries) > asked:
            entry = entries[asked]
            done = do(agent, entry, asked)
            if done is None:
                asked += 1
                if entry.row:
                    self._write(agent, entry)
            elif done:
                del entries[asked]
                self._drop(entry)
            else:
                break
        return self._left(agent)

    def first(self) -> list[tuple[str, Entry]]:
        """What each agent waits for; not those who only have to be told that nothing is left."""
        return [(agent, entries[0]) for agent, entries in self.of.items() if entries]

    def placed(self, agent: str, number: int) -> Entry | None:
        """What was asked for by messages up to this number has its place: the first of it, which is done."""
        entries = self.of.get(agent)
        if not entries or not 0 < entries[0].asked < number:
            return None
        entry = entries.popleft()
        self._drop(entry)
        return entry

    def remove(self, agent: str, entry: Entry) -> None:
        """It is not to be done any more."""
        self.of[agent].remove(entry)
        self._drop(entry)

    def keep(self, agent: str) -> None:
        """What was added of it, and is left, gets its rows."""
        new = list(takewhile(lambda entry: not entry.row, reversed(self.of.get(agent, deque()))))
        for entry in reversed(new):
            entry.row = self.tx.new_id()
            self._write(agent, entry)

    def forget(self, agent: str) -> None:
        for entry in self.of.pop(agent, ()):
            self._drop(entry)

    def _left(self, agent: str) -> bool:
        if agent in self.of and not self.of[agent]:
            del self.of[agent]
        return agent not in self.of

    def _write(self, agent: str, entry: Entry) -> None:
        head: bytes = pack([agent, entry.kind, entry.asked])
        body = entry.pack()
        self.tx.rows.items[entry.row] = ItemRow(entry.row, self.id, OUTBOX, 0, head, body)
        self.tx.rows.bytes += len(body)
        self.tx.urgency = COMMIT

    def _drop(self, entry: Entry) -> None:
        if entry.row:
            self.tx.rows.items[entry.row] = None
            self.tx.urgency = COMMIT

    def check(self, ready: Container[str]) -> None:
        for agent, entries in self.of.items():
            assert (entries or agent in ready) and all(entry.row for entry in entries), (
                f"1: {agent} waits for nothing, or without rows"
            )
            asked = [entry.asked > 0 for entry in entries]
            assert asked == sorted(asked, reverse=True), "2: something is asked for behind what was not done"
