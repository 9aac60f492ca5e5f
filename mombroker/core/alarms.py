"""Alarms: producers stop before disk or memory run out; consumers go on and make room."""

from __future__ import annotations

from mombroker.core.events import StoreSize
from mombroker.core.limits import Limits
from mombroker.core.words import many

FREE_PERCENT, FREE_MOST = 2, 1 << 30  # of the file system of the store, unless min_free is set
UNDER_WAY = 32 << 20  # bytes that a write-ahead log and the batches under way may take once the alarm is there
AGAIN = 1.25, 0.9  # of min_free and max_memory: from here on work is taken again


class Alarms:
    """last     what was measured last
    reasons  by resource, one sentence why no work is taken from outside; empty while there is enough
    gate     messages that wait while domains are changed
    """

    __slots__ = ("limits", "last", "reasons", "gate")

    def __init__(self, limits: Limits):
        self.limits = limits
        self.last = StoreSize(0)
        self.reasons: dict[str, str] = {}
        self.gate = 0

    def warnings(self) -> list[str]:
        """About limits that come too late."""
        least = self.limits.min_free
        if not 0 < least < UNDER_WAY:
            return []
        return [
            f"min_free is {least}: what is under way may take {UNDER_WAY} bytes, and the disk be full before; raise it"
        ]

    def full(self) -> bool:
        return self.last.bytes >= self.limits.max_store or self.gate >= self.limits.max_gate or bool(self.reasons)

    def why(self) -> list[str]:
        """Why no work is taken from outside, one sentence each."""
        most = self.limits.max_store
        store = [f"the store holds {self.last.bytes} bytes of max_store = {most}"] if self.last.bytes >= most else []
        wait = many(self.gate, "message waits", "messages wait")
        gate = f"{wait} until the domains have changed, max_gate is {self.limits.max_gate}"
        return store + ([gate] if self.gate >= self.limits.max_gate else []) + list(self.reasons.values())

    def measured(self, event: StoreSize) -> list[str]:
        """Returns what has changed, for the operator."""
        before, limits = dict(self.reasons), self.limits
        self.last, self.reasons = event, {}
        least = limits.min_free or min(event.disk * FREE_PERCENT // 100, FREE_MOST)
        if event.disk and event.free < least * (AGAIN[0] if "disk" in before else 1):
            self.reasons["disk"] = f"{event.free} bytes are free on the disk of the store, min_free is {least}"
        most = limits.max_memory
        if most and event.memory > most * (AGAIN[1] if "memory" in before else 1):
            self.reasons["memory"] = f"the process takes {event.memory} bytes of memory, max_memory is {most}"
        new = [f"no work is taken from outside: {self.reasons[what]}" for what in self.reasons.keys() - before.keys()]
        old = [f"no more {ENDED[what]}: work is taken again" for what in before.keys() - self.reasons.keys()]
        return new + old


ENDED = {"disk": "lack of free disk", "memory": "lack of memory"}
