"""Time at a connection: how long things may take, timers by name, heart-beats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mombroker.gateway.output import Output


@dataclass(slots=True)
class Times:
    """Seconds."""

    login: float = 10.0  # from the connection to its login
    close: float = 2.0  # for a client to read the last frame
    leave: float = 10.0  # for the broker's session to answer all frames before the end
    tolerance: float = 2.5  # times the agreed interval: a client that is silent for longer is gone
    eagerness: float = 0.8  # times the agreed interval: our own beats


class Timers:
    """Calls to come, one of each name."""

    __slots__ = ("_later", "_calls")

    def __init__(self, later: Callable[..., Any]):
        self._later = later
        self._calls: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, name: str) -> bool:
        return name in self._calls

    def set(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        def ring() -> None:
            del self._calls[name]
            call()

        self.unset(name)
        self._calls[name] = self._later(seconds, ring)

    def unset(self, name: str) -> None:
        if name in self._calls:
            self._calls.pop(name).cancel()

    def clear(self) -> None:
        for name in list(self._calls):
            self.unset(name)


class Beating(Protocol):
    """A connection. `paused`: it is not read, so it cannot be heard."""

    paused: bool

    def end(self, reason: str) -> None: ...


class Beats:
    """Heart-beats as agreed: ours leave when nothing else did, and a client that was silent for too long is ended.

    heard   when the last byte came in
    """

    __slots__ = ("heard", "_conn", "_output", "_seconds", "_times", "_timers", "_doubted")

    def __init__(self, conn: Beating, output: Output, seconds: Callable[[], float], times: Times, timers: Timers):
        self.heard = 0.0
        self._conn, self._output, self._seconds, self._times, self._timers = conn, output, seconds, times, timers
        self._doubted = False

    def start(self, expect_every: int, send_every: int, beat: bytes) -> None:
        """From now on; intervals in ms, 0 = none."""
        self.heard = self._output.said = self._seconds()
        if expect_every:
            self._look_in(expect_every / 1000, expect_every / 1000)
        if send_every:
            every = send_every / 1000 * self._times.eagerness
            self._beat_in(every, every, beat)

    def _look_in(self, seconds: float, every: float) -> None:
        self._timers.set("expect", seconds, lambda: self._look(every))

    def _beat_in(self, seconds: float, every: float, beat: bytes) -> None:
        self._timers.set("beat", seconds, lambda: self._beat(every, beat))

    def _look(self, every: float) -> None:
        """Look whether the client still is there."""
        now = self._seconds()
        left = self.heard + every * self._times.tolerance - now
        if self._conn.paused or left > 0:
            self._doubted = False
            self._look_in(max(left, every / 4), every)
        elif not self._doubted:  # we may have been held up ourselves: read what lies there first
            self._doubted = True
            self._look_in(min(every / 4, 1.0), every)
        else:
            self._conn.end(f"no heart-beat or other byte for {now - self.heard:.0f} s, where {every:g} s were agreed")

    def _beat(self, every: float, beat: bytes) -> None:
        left = self._output.said + every - self._seconds()
        if left <= 0.001 and not self._output.busy:
            self._output.beat(beat)
        self._beat_in(left if left > 0.001 else every, every, beat)
