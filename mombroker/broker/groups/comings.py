"""Comings: states that come for new members. All of one is on disk before anything of it is an agent's: whoever does
not get the rest has what it had. Then its tables are filled, some rows in each turn, while the agent waits."""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from mombroker.broker.groups.notes import State
from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.collection import Collection
from mombroker.core.errors import MomError
from mombroker.core.groups.bus import awaited
from mombroker.core.natives import Natives
from mombroker.core.table import LAST, Table
from mombroker.core.transaction import COMMIT

STATE = "state"
PAGES = 32  # that go in a turn
Key = tuple[str, str, int]  # agent, group, number of the view
END = (1 << 63) - 1


class Coming:
    """place    of its row
    first    pages that are of the snapshot, and not of a table
    pages    that have come
    whole    all have
    begun    the agent's tables change
    filled   and have all of it
    over     it is of no use any more
    table    the one at hand, and its rows before the key `cursor` are what they are to be
    """

    __slots__ = ("key", "place", "first", "pages", "whole", "begun", "filled", "over", "table", "cursor", "rows")

    def __init__(self, key: Key, place: int, rows: Collection):
        self.key, self.place, self.rows = key, place, rows
        self.first = self.pages = 0
        self.whole = self.begun = self.filled = self.over = False
        self.table = self.cursor = ""

    @property
    def ready(self) -> bool:
        return self.whole and (self.filled or self.pages == self.first)

    def row(self, id: str) -> ItemRow:
        flags = [self.whole, self.begun, self.filled, self.over]
        head: bytes = pack([*self.key, self.first, self.pages, *flags, self.table, self.cursor])
        return ItemRow(self.place, id, STATE, 0, head, b"")


class Comings:
    """1. Each that is of use has its row, which says how far it is.

    of     by agent, group and view
    over   those that are of no use
    wake   whoever waits for a state of a group goes on
    rows   a table of an agent; None: it has none of this name; raises MomError
    """

    __slots__ = ("natives", "tx", "id", "of", "over", "wake", "rows")

    wake: Callable[[str], None]
    rows: Callable[[str, str], Table | None]

    def __init__(self, natives: Natives, id: str):
        self.natives, self.tx, self.id = natives, natives.tx, id
        self.of: dict[Key, Coming] = {}
        self.over: list[Coming] = []

    def load(self, row: ItemRow) -> None:
        agent, group, number, *values = msgpack.unpackb(row.head)
        coming = self._new((agent, group, number), row.id)
        coming.first, coming.pages, coming.whole, coming.begun, coming.filled, coming.over = values[:6]
        coming.table, coming.cursor = values[6:8]
        if coming.over:
            self.over.append(coming)
        else:
            self.of[coming.key] = coming

    def _new(self, key: Key, place: int) -> Coming:
        return Coming(key, place, self.natives.collection(self.id, f"page {place}"))

    def _write(self, coming: Coming | None, place: int = 0) -> None:
        self.tx.rows.items[coming.place if coming else place] = coming.row(self.id) if coming else None
        self.tx.urgency = COMMIT

    # -- pages -------------------------------------------------------------------------------------------------------

    def page(self, agent: str, note: State) -> None:
        """One more page has come. One that is not the next is of something else."""
        key = agent, note.group, note.number
        known = self.of.get(key)
        if note.at != (known.pages if known else 0) or (known is not None and known.whole):
            return
        coming = self.of[key] = known or self._new(key, self.tx.new_id())
        head: bytes = pack([note.table, note.upto])
        coming.rows.add(note.at, head, note.page)
        coming.rows.accept()
        coming.pages += 1
        coming.first += not note.table
        coming.whole = note.last
        self._write(coming)
        if coming.whole:
            self.wake(awaited(note.group))

    def state(self, key: Key) -> bytes | None:
        """The snapshot, once all is there."""
        coming = self.of.get(key)
        if coming is None or not coming.ready:
            return None
        return b"".join(row.body for row in coming.rows.scan(None, coming.first))

    def begins(self, key: Key) -> bool:
        """The agent is to have it now. False while it is not whole, or not in the agent's tables."""
        coming = self.of.get(key)
        if coming is None or not coming.whole:
            return False
        if not coming.ready and not coming.begun:
            coming.begun = True
            self._write(coming)
        return coming.ready

    def is_begun(self, key: Key) -> bool:
        """Is it too late to do without it?"""
        coming = self.of.get(key)
        return coming is not None and coming.begun

    def forget(self, agent: str, group: str = "", number: int = -1) -> None:
        """It has it, or does without: those of one group, or of all; of one view, or of all that are not begun."""
        for key, coming in list(self.of.items()):
            if key[0] == agent and group in ("", key[1]) and (key[2] == number or (number < 0 and not coming.begun)):
                del self.of[key]
                coming.over = True
                self.over.append(coming)
                self._write(coming)

    # -- in each turn --------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """True if there is more to do at once."""
        more = False
        for coming in list(self.of.values()):
            if coming.begun and not coming.filled:
                more |= self._fill(coming)
        for coming in self.over[:1]:
            self._clear(coming)
            more = True
        return more

    def _fill(self, coming: Coming) -> bool:
        """A page becomes rows of the agent's table; what else it had there, up to the end of the page, goes first."""
        row = next(iter(coming.rows.scan((coming.first - 1, END), 1)), None)
        if row is None:
            coming.filled = True
            self._write(coming)
            self.wake(awaited(coming.key[1]))
            return False
        name, upto = msgpack.unpackb(row.head)
        try:
            table = self.rows(coming.key[0], name)
        except MomError:  # its class is missing: with a program that has it the server begins anew
            return False
        if name != coming.table:
            coming.table, coming.cursor = name, ""
        if table is not None:
            most = self.tx.limits.state_rows
            page: dict[str, bytes] = dict(msgpack.unpackb(row.body))
            old = table.range(coming.cursor, upto + "\0" if upto else LAST, most)
            for key, _ in old:
                if key not in page:
                    table.remove(key)
            if len(old) == most:
                coming.cursor = old[-1][0] + "\0"
                table.accept()
                self._write(coming)
                return True
            for key, body in page.items():
                table.put(key, body)
            table.accept()
        coming.rows.remove(row.id)
        coming.rows.accept()
        coming.cursor = upto + "\0"
        self._write(coming)
        return True

    def _clear(self, coming: Coming) -> None:
        for row in coming.rows.scan(None, PAGES):
            coming.rows.remove(row.id)
        coming.rows.accept()
        if not len(coming.rows):
            self.over.remove(coming)
            self._write(None, coming.place)

    def check(self) -> None:
        for coming in [*self.of.values(), *self.over]:
            assert self.tx.written("items", coming.place) == coming.row(self.id), "1: a state has another row"
