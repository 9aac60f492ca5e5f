"""Doubts: casts that have come to members, of which the next view says whether they belong to the one at hand.

Whoever comes to one waits. Else it would react to what was sent behind such a cast before it has the cast itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgpack

from mombroker.broker.groups.notes import Told
from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.errors import UnknownName
from mombroker.core.groups.bus import waits_for
from mombroker.core.transaction import COMMIT, Transaction

DOUBTS = "doubts"


class Doubt:
    """row      where it is kept
    number   of the view
    casts    of each sender in it: so many belong to it
    decided  and no others
    """

    __slots__ = ("row", "number", "casts", "decided")

    def __init__(self, row: int, number: int, casts: dict[str, int], decided: bool = False):
        self.row, self.number, self.casts, self.decided = row, number, casts, decided


class Doubts:
    """1. Each has its row, until its agent has come to a later view.

    of     by agent and group; of the view that it is in, and of former ones that it has not reacted to yet
    wake   whoever waits for this goes on
    """

    __slots__ = ("tx", "id", "of", "wake")

    wake: Callable[[str], None]

    def __init__(self, tx: Transaction, id: str):
        self.tx, self.id = tx, id
        self.of: dict[tuple[str, str], list[Doubt]] = {}

    def load(self, row: ItemRow) -> None:
        agent, group, *values = msgpack.unpackb(row.head)
        self.of.setdefault((agent, group), []).append(Doubt(row.id, *values))

    def _row(self, agent: str, group: str, doubt: Doubt) -> ItemRow:
        head: bytes = pack([agent, group, doubt.number, doubt.casts, doubt.decided])
        return ItemRow(doubt.row, self.id, DOUBTS, 0, head, b"")

    def _write(self, agent: str, group: str, doubt: Doubt, there: bool = True) -> None:
        self.tx.rows.items[doubt.row] = self._row(agent, group, doubt) if there else None
        self.tx.urgency = COMMIT

    def begin(self, agent: str, group: str, number: int, sender: str, count: int) -> None:
        """A cast of this view is doubtful, which comes behind so many of its sender that are not."""
        those = self.of.setdefault((agent, group), [])
        doubt = next((each for each in those if each.number == number and not each.decided), None)
        if doubt is None:
            doubt = Doubt(self.tx.new_id(), number, {})
            those.append(doubt)
        if sender not in doubt.casts:
            doubt.casts[sender] = count
            self._write(agent, group, doubt)

    def decide(self, agent: str, group: str, number: int, cut: Mapping[str, int]) -> None:
        """A view follows on what was before; of the one right before it so many casts of each member belong to it."""
        for doubt in self.of.get((agent, group), ()):
            if not doubt.decided:
                doubt.decided = True
                if doubt.number == number - 1:
                    doubt.casts |= {sender: cut[sender] for sender in doubt.casts if sender in cut}
                self._write(agent, group, doubt)
                for sender in doubt.casts:
                    self.wake(waits_for(sender))

    def belongs(self, agent: str, note: Told) -> bool:
        """A cast in its turn: is it of its view? Raises UnknownName until that is decided."""
        for doubt in self.of.get((agent, note.group), ()):
            if doubt.number == note.number and note.seq > doubt.casts.get(note.sender, note.seq):
                if not doubt.decided:
                    raise UnknownName(waits_for(note.sender))
                return False
        return True

    def passed(self, agent: str, group: str, number: int) -> None:
        """It has come to a view: what is of former ones is behind it."""
        those = self.of.get((agent, group), [])
        for doubt in [each for each in those if each.number < number]:
            those.remove(doubt)
            self._write(agent, group, doubt, there=False)
        if not those:
            self.of.pop((agent, group), None)

    def gone(self, agent: str) -> None:
        """It was deleted."""
        for key in [key for key in self.of if key[0] == agent]:
            self.passed(*key, 1 << 62)

    def check(self) -> None:
        for (agent, group), those in self.of.items():
            for doubt in those:
                row = self._row(agent, group, doubt)
                assert self.tx.written("items", doubt.row) == row, "1: a doubt has another row"
