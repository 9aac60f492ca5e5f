"""Where new members begin: the views that are nothing to them."""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from mombroker.broker.groups.comings import Comings
from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.groups.bus import awaited
from mombroker.core.transaction import COMMIT, Transaction

VOID = "void"
NEVER = (1 << 62) - 1  # it has given up, and begins with a view that it is not told of yet


class Beginnings:
    """voids   by agent and group the views that are nothing to it, since it had no state in them, until it has come to
            what is behind them: from the first of each run to the one behind the last; and the row of this
    wake    whoever waits for a state of a group goes on
    """

    __slots__ = ("tx", "id", "comings", "voids", "wake")

    wake: Callable[[str], None]

    def __init__(self, tx: Transaction, id: str, comings: Comings):
        self.tx, self.id, self.comings = tx, id, comings
        self.voids: dict[tuple[str, str], tuple[list[list[int]], int]] = {}

    def load(self, row: ItemRow) -> None:
        agent, group, runs = msgpack.unpackb(row.head)
        self.voids[agent, group] = runs, row.id

    def waits(self, agent: str, group: str) -> bool:
        """It has given up, and not begun since."""
        runs, _ = self.voids.get((agent, group), ([], 0))
        return bool(runs) and runs[-1][1] == NEVER

    def begin(self, agent: str, group: str, first: int, number: int) -> None:
        """It begins with a view; what is from `first` on and before it is nothing to it, unless it has begun with that
        already."""
        if self.comings.is_begun((agent, group, first)):
            return
        runs, place = self.voids.get((agent, group), ([], 0))
        if runs and runs[-1][1] >= first:
            runs[-1][1] = number
        else:
            runs.append([first, number])
        place = place or self.tx.new_id()
        self.voids[agent, group] = runs, place
        self._write(agent, group)
        self.comings.forget(agent, group)
        self.wake(awaited(group))

    def _write(self, agent: str, group: str) -> None:
        runs, place = self.voids[agent, group]
        head: bytes = pack([agent, group, runs])
        self.tx.rows.items[place] = ItemRow(place, self.id, VOID, 0, head, b"") if runs else None
        self.tx.urgency = COMMIT

    def is_void(self, agent: str, group: str, number: int) -> bool:
        """It has come to what is of this view: is that nothing to it?"""
        key = agent, group
        if key not in self.voids:
            return False
        runs, _ = self.voids[key]
        if runs[0][1] <= number:
            runs[:] = [run for run in runs if run[1] > number]
            self._write(agent, group)
            if not runs:
                del self.voids[key]
        return any(first <= number < end for first, end in runs)
