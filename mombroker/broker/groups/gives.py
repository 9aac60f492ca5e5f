"""Gives: tables of our agents on their way to new members of groups, a page at a time, as of the beginning of a view.

The agent goes on meanwhile: a row that it changes before that was given is kept as it was, until it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from mombroker.broker.groups.notes import ALL, State
from mombroker.broker.wire import Note, pack
from mombroker.core.batch import ItemRow
from mombroker.core.errors import MomError
from mombroker.core.natives import Natives
from mombroker.core.table import LAST, Table
from mombroker.core.transaction import COMMIT

GIVES = "gives"
PAGE_BYTES = 64 << 10  # of a page, but for a row that is larger; its rows: state_rows in core/limits.py
WINDOW = 4  # pages that a taker may not have yet
GONE, THERE = b"\0", b"\1"  # what a kept row begins with: there was none, or this


class Give:
    """id      of its row
    to      who still takes it; nobody: it is over, and what was kept for it goes
    tables  those that are not given whole, the one at hand first
    cursor  its rows before this key are given
    pages   that were sent
    got     by taker: pages that it has
    """

    __slots__ = ("id", "agent", "group", "number", "to", "tables", "cursor", "pages", "got", "watches")

    def __init__(
        self, id: int, agent: str, group: str, number: int, to: list[str], tables: list[str], cursor: str, pages: int,
        got: dict[str, int],
    ):  # fmt: skip
        self.id, self.agent, self.group, self.number = id, agent, group, number
        self.to, self.tables, self.cursor, self.pages, self.got = to, tables, cursor, pages, got
        self.watches: dict[str, _Watch] = {}

    def row(self, id: str) -> ItemRow:
        values = [self.agent, self.group, self.number, self.to, self.tables, self.cursor, self.pages, self.got]
        head: bytes = pack(values)
        return ItemRow(self.id, id, GIVES, 0, head, b"")

    def waits(self) -> bool:
        """Has somebody enough to do with what was sent?"""
        return self.pages - min(self.got[each] for each in self.to) >= WINDOW


class _Watch:
    """Keeps what rows of a table were."""

    __slots__ = ("give", "name", "kept")

    def __init__(self, give: Give, name: str, kept: Table):
        self.give, self.name, self.kept = give, name, kept

    def before(self, key: str, row: ItemRow | None) -> None:
        give = self.give
        if (give.tables[0] == self.name and key < give.cursor) or self.kept.get(key) is not None:
            return
        self.kept.put(key, GONE if row is None else THERE + row.body)
        self.kept.accept()


class Gives:
    """1. Each that is under way has its row, and watches its tables that are not given whole.
    2. No taker has more than a window of pages before it.

    home   that of a group that an agent is in
    rows   a table of an agent; None: it has none of this name; raises MomError
    """

    __slots__ = ("natives", "tx", "id", "say", "servers", "home", "of", "rows")

    rows: Callable[[str, str], Table | None]

    def __init__(
        self, natives: Natives, id: str, say: Callable[[str, tuple[str, ...], Note], None],
        servers: Callable[[Iterable[str]], tuple[str, ...]], home: Callable[[str, str], str],
    ):  # fmt: skip
        self.natives, self.tx, self.id, self.say, self.servers = natives, natives.tx, id, say, servers
        self.home = home
        self.of: dict[int, Give] = {}

    def load(self, row: ItemRow) -> None:
        agent, group, number, to, tables, cursor, pages, got = msgpack.unpackb(row.head)
        self._add(Give(row.id, agent, group, number, to, tables, cursor, pages, got))

    def begin(self, agent: str, group: str, number: int, to: list[str], tables: list[str], pages: int) -> int:
        """Behind so many pages, which were sent. The number by which takers name it."""
        give = Give(self.tx.new_id(), agent, group, number, list(to), tables, "", pages, dict.fromkeys(to, pages))
        self._add(give)
        self._write(give)
        return give.id

    def _add(self, give: Give) -> None:
        self.of[give.id] = give
        for name in give.tables:
            give.watches[name] = watch = _Watch(give, name, self.natives.table(self.id, f"{give.id}.{name}"))
            if give.to:
                self.natives.watch(give.agent, name, watch)

    def _write(self, give: Give | None, id: int = 0) -> None:
        self.tx.rows.items[give.id if give else id] = give.row(self.id) if give else None
        self.tx.urgency = COMMIT

    # -- who takes it ------------------------------------------------------------------------------------------------

    def got(self, id: int, agent: str, pages: int) -> None:
        """A taker has so many."""
        give = self.of.get(id)
        if give is None or agent not in give.to:
            return
        if pages == ALL:
            self._without(give, [agent])
        else:
            give.got[agent] = max(pages, give.got[agent])
            self._write(give)

    def viewed(self, agent: str, group: str, number: int, members: list[str], lacking: list[str]) -> None:
        """A later view has come to a giver: who is out of it, or is to get a later state, takes this one no more."""
        for give in list(self.of.values()):
            if (give.agent, give.group) == (agent, group) and give.number < number:
                gone = [each for each in give.to if each not in members or each in lacking]
                self._without(give, gone if agent in members else give.to)

    def ended(self, agent: str, group: str = "") -> None:
        """An agent gives nothing any more, in one group or in all."""
        for give in list(self.of.values()):
            if give.agent == agent and group in ("", give.group):
                self._without(give, give.to)

    def _without(self, give: Give, takers: list[str]) -> None:
        if not takers:
            return
        give.to = [each for each in give.to if each not in takers]
        if not give.to:
            for name in give.tables:
                self.natives.unwatch(give.agent, name, give.watches[name])
        self._write(give)

    # -- its pages ---------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """A page of each that has room for one. True if there is more to do at once."""
        more = False
        for give in list(self.of.values()):
            if not give.to:
                self._clear(give)
                more = True
            elif not give.waits():
                more |= self._page(give)
        return more

    def _page(self, give: Give) -> bool:
        name, kept = give.tables[0], give.watches[give.tables[0]].kept
        try:
            table = self.rows(give.agent, name)
        except MomError:  # its class is missing: with a program that has it the server begins anew
            return False
        most = self.tx.limits.state_rows
        there = table.range(give.cursor, LAST, most) if table is not None else []
        old = kept.range(give.cursor, LAST, most)
        found = {key: row.body for key, row in there}
        for key, row in old:
            if row.body[:1] == THERE:
                found[key] = row.body[1:]
            else:
                found.pop(key, None)
        upto = min((rows[-1][0] for rows in (there, old) if len(rows) == most), default="")
        page: list[list[Any]] = []
        size = 0
        for key in sorted(found):
            size += len(key) + len(found[key])
            if upto and key > upto:
                break
            if page and size > PAGE_BYTES:
                upto = page[-1][0]
                break
            page.append([key, found[key]])
        for key, _ in old:
            if not upto or key <= upto:
                kept.remove(key)
        kept.accept()
        if upto:
            give.cursor = upto + "\0"
        else:
            self.natives.unwatch(give.agent, name, give.watches[name])
            give.tables, give.cursor = give.tables[1:], ""
        note = State(
            give.group, give.number, list(give.to), pack(page), give.pages, not give.tables, give.id, name, upto,
            self.home(give.agent, give.group),
        )  # fmt: skip
        give.pages += 1
        if not give.tables:
            del self.of[give.id]
        self._write(give if give.tables else None, give.id)
        self.say(give.agent, self.servers(give.to), note)
        return bool(give.tables)

    def _clear(self, give: Give) -> None:
        """What was kept for it goes, some in each turn."""
        for watch in give.watches.values():
            if rows := watch.kept.range("", LAST, self.tx.limits.state_rows):
                for key, _ in rows:
                    watch.kept.remove(key)
                watch.kept.accept()
                return
        del self.of[give.id]
        self._write(None, give.id)

    def check(self) -> None:
        for give in self.of.values():
            assert self.tx.written("items", give.id) == give.row(self.id), "1: what is given has another row"
            assert not give.to or give.pages <= WINDOW + max(give.got.values()), "2: a taker has got too much"
