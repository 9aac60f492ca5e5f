"""The loop around one agent server: events in, one durable batch after the other, outputs after their commit.

Everything logical happens in the reactor thread. While one batch is in COMMIT, the next one fills: the size of the
batches follows the load, without timers. The same loop with virtual time is sim/node.py.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.internet import defer

from mombroker.core import times
from mombroker.core.batch import Batch
from mombroker.core.clock import Clock
from mombroker.core.errors import PeerError, PeerRefused
from mombroker.core.events import LinkFrame, Metered, Ready, StoreSize, Tick
from mombroker.net.committer import Committer

LINGER_S = 0.003  # that a batch waits in which nothing is urgent
LONG_NS = 20_000_000  # of CPU time: nobody else is served meanwhile
BEGIN, LEAST = 1 / 4, 1 / 32  # of the reactions of a turn: the first of many, and however long these take
SHORT_NS = 2_000_000  # of a piece of work that is not worth a look at the CPU time, which takes a system call
SIZE_EVERY_NS = 1_000_000_000  # the server learns the size of its store so often, when it commits,
SIZE_EVERY_BYTES = 1 << 20  # and whenever so much was committed: a fast producer fills a small disk within a second
COMMIT_BYTES = 4096  # that a commit takes at least
METER_NS = 60 * times.SECOND  # what the process counts is logged so often
BELIEVE_NS = 60 * times.SECOND  # a wall clock that was set far ahead is believed when it has stayed so for so long
DAY_NS = 86_400 * times.SECOND
TIMER_MAX_S = 60.0  # a timer is looked at so often, since the wall clock may be set


class Open(Protocol):
    """The open batch of a server."""

    now: int
    full: bool

    @property
    def notes(self) -> list[str]: ...
    def filled(self) -> bool: ...


class Machine(Protocol):
    """The part of an agent server that the loop turns."""

    clock: Clock
    more: bool
    cut: bool
    share: float

    @property
    def tx(self) -> Open: ...
    @property
    def urgency(self) -> int: ...
    @property
    def busy(self) -> bool: ...
    def step(self, event: Any, now: int) -> None: ...
    def turn(self, now: int) -> None: ...
    def ready(self, now: int) -> Ready: ...
    def committed(self, ready: Ready, now: int) -> None: ...
    def stop(self) -> None: ...


class Disk(Protocol):
    def begin(self, batch: Batch) -> None: ...
    def finish(self) -> None: ...
    def size(self) -> int: ...


class Outputs(Protocol):
    """Where the wishes of a Ready go once its batch is durable."""

    def send(self, number: int, frames: list[LinkFrame]) -> None: ...
    def hang_up(self, number: int) -> None: ...
    def client(self, number: int, replies: list[Any]) -> None: ...
    def reply(self, ticket: int, result: dict[str, Any] | str) -> None: ...
    def run(self, id: int, function: str, payload: bytes) -> None: ...
    def dial(self, peer: str) -> None: ...
    def meet(self, peer: str) -> None: ...
    def note(self, line: str) -> None: ...


def _since_boot() -> int:
    """Goes on while the machine is suspended, where it can."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Driver:
    """Turns one agent server.

    1. At most one batch is in COMMIT.
    2. Nothing of a Ready leaves before its batch is durable; after a failed commit nothing is committed or sent.

    failed   called once, with the error, when the server cannot go on
    now      wall clock in ns; what the server sees of it never goes back, restarts included, and never stands still
    steady   a clock in ns that nobody can set
    cpu      the CPU time of this thread in ns
    meters   what is counted since the start: by figure and peer, see core/trace.py
    leased   of a server with replicas: calls back when no other one can lead yet, which what has no rows waits for
    """

    def __init__(
        self,
        reactor: Any,
        server: Machine,
        store: Disk,
        committer: Committer,
        outputs: Outputs,
        failed: Callable[[BaseException], None],
        now: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = _since_boot,
        cpu: Callable[[], int] = time.thread_time_ns,
        resources: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
        meters: Callable[[], dict[tuple[str, str], int]] = dict,
        leased: Callable[[Callable[[], None]], None] | None = None,
    ):
        self.reactor, self.server, self.store, self._clock = reactor, server, store, server.clock
        self.committer, self.outputs, self.failed = committer, outputs, failed
        self.dead, self._leased = False, leased
        self.commits = 0
        self.longest_ns, self.longest, self.long = 0, "", 0  # the longest piece of work, and how many were over LONG_NS
        self.wall, self._steady, self._cpu, self._resources = now, steady, cpu, resources
        self._cpu_then, self._cpu_at = cpu(), 0  # when it was last looked at, and at what time
        self._last_now = server.tx.now
        self._agreed = (now(), steady())  # a wall clock that was right, and the steady one
        self._ahead = (server.tx.now, self._agreed[1])  # the last time that we gave, and when by the steady clock
        self._doubted: int | None = None  # when, by the steady clock, the wall clock was found far ahead
        self._clock.ahead = max(0, server.tx.now - self._agreed[0])
        if (behind := self._agreed[0] - server.tx.now) > times.LONG:  # either was down for so long, or is set wrong
            self._clock.behind, self._agreed, self._doubted = behind, self._ahead, self._ahead[1]
        server.share = BEGIN
        self._flying: Ready | None = None
        self._turning: Any = None  # the call at the end of this loop turn
        self._at_end: Callable[..., Any] = getattr(reactor, "at_end", None) or partial(reactor.callLater, 0)
        self._linger: Any = None
        self._again: Any = None  # the next look at the resources, while they are short
        self._timer: Any = None
        self._timer_at = 0
        self._sized_at = 0
        self._unsized = 0  # bytes committed since then
        self._meters: Callable[[], dict[tuple[str, str], int]] = meters
        self._metered: dict[tuple[str, str], int] = {}
        self._metered_at = server.tx.now
        self._stopped: defer.Deferred[None] | None = None
        self._ending = False  # the last batch is on its way

    @property
    def committing(self) -> int:
        """The number of the commit under way, 0 if there is none; for a look from another thread."""
        return self.commits if self._flying is not None else 0

    def now(self) -> int:
        wall, last = self.wall(), self._last_now
        if last <= wall <= last + times.FAR and self._doubted is None:
            self._last_now = wall
            if self._clock.ahead:
                self._clock.ahead = 0
            return wall
        now = self._last_now = self._in_doubt(wall)
        self._clock.ahead = max(0, now - wall)
        self._clock.behind = 0 if self._doubted is None else max(0, wall - now)
        return now

    def _in_doubt(self, wall: int) -> int:
        """The wall clock was set, or nothing was to do for a while."""
        steady = self._steady()
        if wall < self._last_now:
            self._doubted = None
            return self._slowly(wall, steady)
        right, then = self._agreed
        expected = right + steady - then
        if wall - expected <= times.FAR or (self._doubted is not None and steady - self._doubted >= BELIEVE_NS):
            self._agreed, self._doubted = (wall, steady), None
            return wall
        if self._doubted is None:
            self._doubted = steady
            ahead = times.shown(wall - expected)
            self.server.tx.notes.append(
                f"the clock was set {ahead} ahead: it is believed once it has stayed so for a minute"
            )
        return max(self._last_now, expected)

    def _slowly(self, wall: int, steady: int) -> int:
        """The wall clock was set back: time goes on by the steady one, so that timers ring, but a little slower, so
        that the wall clock comes up with it again, unless that would take for ever."""
        last, then = self._ahead
        gone = steady - then if last == self._last_now else 0
        now = self._last_now + (gone * 7 // 8 if last - wall < DAY_NS else gone)
        self._ahead = (now, steady)
        return now

    def start(self) -> None:
        """Let what recovery found go on: reactions, deferred functions, timers, links."""
        self._measure()
        if not self.dead:
            self._guarded(self.server.turn, self.now())
        if not self.dead:
            self._commit()

    def post(self, event: Any) -> None:
        """An event of this loop turn. Raises PeerError, PeerRefused when the peer whose event it is has to go."""
        if self.dead or self._stopped is not None:
            return
        self._soon()
        now = self.now()
        try:
            self.server.step(event, now)
        except (PeerError, PeerRefused):
            raise
        except Exception as error:
            self.fail(error)
        if self.wall() - now > SHORT_NS:
            self._took(now, event)

    def _took(self, since: int, what: object) -> int:
        """A piece of work that held up everybody else is over: how long it took, ns. It took no more CPU time than the
        clock says, nor than this thread has had since that was last looked at."""
        cpu = self._cpu()
        took, self._cpu_then = min(self.wall() - since, cpu - self._cpu_then), cpu
        if took > self.longest_ns:
            name = getattr(what, "verb", "") or (what if isinstance(what, str) else type(what).__name__)
            self.longest_ns, self.longest = took, name
        self.long += took > LONG_NS
        return took

    def turns(self) -> dict[str, Any]:
        """For the operator: how long others had to wait at most since the start, for what, and how often too long."""
        return {"longest_ms": self.longest_ns / 1e6, "of": self.longest, "long": self.long}

    def _soon(self) -> None:
        if self._turning is None:
            self._turning = self._at_end(self._turn)

    def _turn(self) -> None:
        """The end of a loop turn: run the reactions, and commit if something waits for it."""
        self._turning = None
        server, now = self.server, self.now()
        if now - self._cpu_at > SHORT_NS:
            self._cpu_then, self._cpu_at = self._cpu(), now
        try:  # as `_guarded`, which takes as long as many a step
            server.turn(now)
        except BaseException as error:
            self.fail(error)
        took = self._took(now, "turn") if self.wall() - now > SHORT_NS else 0
        if self.dead:
            return
        if took or server.cut or server.share != BEGIN:
            self._pace(took)
        if notes := server.tx.notes:
            for line in notes:
                self.outputs.note(line)
            notes.clear()
        if server.more and (self._flying is None or not server.tx.filled()):
            self._soon()  # a full batch has to wait for the commit under way
        if self._flying is None:
            urgency = server.urgency
            if urgency > 1:
                self._commit()
            elif urgency and self._linger is None:
                self._linger = self.reactor.callLater(LINGER_S, self._lingered)

    def _pace(self, took: int) -> None:
        """How many reactions the next turn may have, by what this one has taken."""
        server = self.server
        most = 1.0 if server.cut else BEGIN
        server.share = min(most, max(LEAST, server.share * LONG_NS / max(took, LONG_NS // 2)))

    def _lingered(self) -> None:
        self._linger = None
        if self._flying is None:
            self._commit()

    def _commit(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        now = self.now()
        try:
            self._flying = ready = self.server.ready(now)
        except BaseException as error:
            self.fail(error)
            return
        if not ready.batch.empty():
            self.commits += 1
            self.committer.submit(self.store, ready.batch, self._durable)
        elif self._leased is None:
            self._guarded(self._leave, ready)
        else:
            self._leased(lambda: None if self.dead else self._guarded(self._leave, ready))
        if self.wall() - now > SHORT_NS:
            self._took(now, "commit")

    def _durable(self, error: Exception | None) -> None:
        if self.dead:
            return
        if error is not None:
            self.fail(error)
            return
        ready = self._flying
        assert ready is not None, "a batch is durable that was not submitted"
        since = self.wall()
        try:
            self._leave(ready)
        except BaseException as wrong:
            self.fail(wrong)
        if self.wall() - since > SHORT_NS:
            self._took(since, "outputs")
        now = self._last_now
        self._unsized += ready.batch.bytes + COMMIT_BYTES
        due = now - self._sized_at >= SIZE_EVERY_NS or self._unsized >= SIZE_EVERY_BYTES
        if due and self._stopped is None and not self.dead:
            self._sized_at, self._unsized = now, 0
            self._measure()

    def _measure(self) -> None:
        if self._last_now <= (wall := self.wall()) <= self._last_now + times.FAR and self._doubted is None:
            self._agreed = (wall, self._steady())
        size = self._guarded(self.store.size)
        if not self.dead:
            self.post(StoreSize(size, *self._resources()))
            if self._last_now - self._metered_at >= METER_NS:
                self._meter()
            if self.server.tx.full and self._stopped is None and not self.dead and self._again is None:
                self._again = self.reactor.callLater(SIZE_EVERY_NS / 1e9, self._look_again)

    def _meter(self) -> None:
        """What was counted since the last time goes into the log."""
        found = self._meters()
        amounts = [(*name, count - self._metered.get(name, 0)) for name, count in found.items()]
        event = Metered(self._metered_at, [each for each in amounts if each[-1] > 0])
        self._metered, self._metered_at = found, self._last_now
        if event.amounts:
            self.server.step(event, self._last_now)

    def _look_again(self) -> None:
        """Nobody may commit while no work is taken, and room be made by others."""
        self._again = None
        self._measure()

    def _leave(self, ready: Ready) -> None:
        """The batch is durable: its outputs leave."""
        outputs, now = self.outputs, self.now()
        for number, frames in ready.frames:
            outputs.send(number, frames)
        for number in ready.hang_up:
            outputs.hang_up(number)
        for number, replies in ready.clients:
            outputs.client(number, replies)
        for ticket, result in ready.replies:
            outputs.reply(ticket, result)
        if self._stopped is None:
            for id, function, payload in ready.tasks:
                outputs.run(id, function, payload)
            for peer in ready.meet:
                outputs.meet(peer)
            for peer in ready.dial:
                outputs.dial(peer)
            self._set_timer(ready.timer)
        self.server.committed(ready, now)
        self._flying = None
        if self._stopped is not None:
            self._end()
        elif self.server.busy:
            self._soon()

    def _guarded(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """An error of ours: what is in memory is no longer to be trusted, and the store has all that was promised."""
        try:
            return step(*arguments)
        except BaseException as error:  # the reactor would go on
            self.fail(error)

    # -- timer -----------------------------------------------------------------------------------------------------

    def _set_timer(self, at: int) -> None:
        if at == self._timer_at:
            return
        self._timer_at = at
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at:
            self._wait()

    def _wait(self) -> None:
        seconds = min(max(0, self._timer_at - self.now()) / 1e9, TIMER_MAX_S)
        self._timer = self.reactor.callLater(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._timer_at > self.now():
            self._wait()
        else:
            self._timer_at = 0
            self.post(Tick())

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self) -> "defer.Deferred[None]":
        """Take no more events, finish the commit under way, commit what is open, marked clean. Fires when the last
        outputs were written."""
        if self._stopped is None:
            self._stopped = defer.Deferred()
            self._cancel()
            if self.dead:
                self._stopped.callback(None)
            elif self._flying is None:
                self._end()
        return self._stopped

    def _end(self) -> None:
        assert self._stopped is not None, "the end without a stop"
        if self._ending:
            self._stopped.callback(None)
            return
        self._ending = True
        try:
            self._meter()
            self.server.stop()
        except Exception as error:
            self.fail(error)
        else:
            self._commit()

    def _cancel(self) -> None:
        for call in (self._turning, self._linger, self._timer, self._again):
            if call is not None:
                call.cancel()
        self._turning = self._linger = self._timer = self._again = None

    def fail(self, error: BaseException) -> None:
        if not self.dead:
            self.halt(partial(self.failed, error))

    def halt(self, told: Callable[[], None] = lambda: None) -> None:
        """Nothing is committed or sent any more."""
        self.dead = True
        self._cancel()
        told()
        if self._stopped is not None and not self._stopped.called:
            self._stopped.callback(None)
