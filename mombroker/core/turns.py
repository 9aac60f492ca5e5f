"""Turns: when native agents send what they have to say, and how much work is left in the turn of their server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mombroker.core.transaction import Transaction


class Flushed(Protocol):
    id: str

    def flush(self) -> None: ...
    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None: ...  # of itself and others of its kind


class Turns:
    """1. A touched agent is flushed when the reactions at hand are done, at the latest when the batch closes.
    2. One with more work than fits into a turn is touched in the next turn; one that waits for a commit makes it due.
    3. One that is forgotten is not flushed any more.

    agents   those that are in memory, by id
    touched  those that the next `flush` is for, once for all that happens until then; if only a part of one has to be
             flushed, this is its value
    late     those that the next commit touches: they wait for rows that are not durable yet
    soon     those that the next turn touches: they have more to do
    work     what is left of `turn_work` in this turn; see core/limits.py
    """

    __slots__ = ("tx", "agents", "work", "touched", "late", "soon", "_count")

    def __init__(self, tx: Transaction, agents: Mapping[str, Flushed]):
        self.tx, self.agents = tx, agents
        self.work = tx.limits.turn_work
        self.touched: dict[Flushed, Any] = {}
        self.late: dict[Flushed, None] = {}
        self.soon: dict[Flushed, None] = {}
        self._count = 0

    # -- for native agents ---------------------------------------------------------------------------------------

    def go_on(self, native: Flushed) -> None:
        """It has more to do: in this turn if there is work left, else in the next one, when others had theirs."""
        (self.touched if self.work > 0 else self.soon)[native] = None

    def armed(self, native: Flushed) -> bool:
        """It will be flushed, without anything coming from outside."""
        return native in self.touched or native in self.soon or native in self.late

    # -- for the core --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A turn begins for which some wait: they take turns in being the first."""
        self._count += 1
        waiting = [*self.soon]
        first = self._count % len(waiting)
        self.touched.update(dict.fromkeys(waiting[first:] + waiting[:first]))
        self.soon = {}

    def flush(self) -> None:
        """Flush the touched ones. Those of which a part is enough are flushed together where they follow each other."""
        touched, self.touched = self.touched, {}
        agents, parts = self.agents, list[tuple[Flushed, Any]]()
        for native, part in touched.items():
            if agents.get(native.id) is not native:
                continue
            if part is not None:
                parts.append((native, part))
                continue
            if parts:
                self._flush_parts(parts)
                parts = []
                if agents.get(native.id) is not native:
                    continue
            native.flush()
        if parts:
            self._flush_parts(parts)

    def _flush_parts(self, parts: list[tuple[Flushed, Any]]) -> None:
        parts[0][0].flush_parts(parts)

    def forget(self, native: Flushed) -> None:
        """It was removed."""
        for those in (self.touched, self.late, self.soon):
            those.pop(native, None)

    def committed(self) -> None:
        """A batch is durable."""
        self.touched.update(self.late)
        self.late = {}
