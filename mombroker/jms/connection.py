"""A connection that contexts share: the machine, its transport, and threads that wait for answers. Safe for threads."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from mombroker.jms.destinations import Temporary, TemporaryQueue
from mombroker.jms.errors import ConnectionLost, IllegalState, JmsError, TimedOut
from mombroker.jms.machine import FAIL, Call, Headers, Machine, Part, Subscription

if TYPE_CHECKING:
    from mombroker.jms.context import Context

WINDOW_BYTES = 8 << 20  # asked and not answered; then whoever asks for more waits
PATIENCE_S = 60.0  # for an answer, beside the time in which a lost connection may come back

log = logging.getLogger("mombroker.jms")


class Carrier(Protocol):
    """What the machine's output goes to, and its input comes from. `now`: not after what the server's clock says, in
    seconds since 1970."""

    def flush(self) -> None: ...
    def end(self) -> None: ...
    def now(self) -> float: ...


class Lock(Protocol):
    """A threading.Condition, or what stands for one."""

    def __enter__(self) -> object: ...
    def __exit__(self, *error: Any) -> None: ...
    def notify_all(self) -> None: ...
    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object: ...


def log_fault(error: JmsError) -> None:
    log.warning("%s", error)


class Connection:
    """All under `lock`, which is notified whenever something has changed.

    name       of this client for ever: repeats of what it sends are known by it
    patience   seconds for an answer, where the caller does not say how long it waits
    on_error   called for what goes wrong while nobody waits for it; it must be quick
    contexts   that are not closed; `started`: they hand out messages
    deleted    names of temporary destinations
    """

    def __init__(
        self,
        machine: Machine,
        on_error: Callable[[JmsError], None] = log_fault,
        patience: float = PATIENCE_S,
        lock: Lock | None = None,
    ):
        self.machine, self.on_error, self.patience = machine, on_error, patience
        self.lock: Lock = lock or threading.Condition()
        self.carrier: Carrier
        self.name = uuid.uuid4().hex
        self.contexts: list[Context] = []
        self.started = True
        self.deleted: set[str] = set()
        self.closing = False
        self._numbers: dict[str, int] = {}  # destination -> of the last message sent there
        self._ids = 0

    @property
    def session(self) -> str:
        """As the server calls it, in the names of temporary destinations."""
        return self.machine.session

    def number(self) -> int:
        """Of something on this connection: unique, and rising."""
        with self.lock:
            self._ids += 1
            return self._ids

    def dedup_id(self, destination: str) -> str:
        """The name of the next message to a destination: there, a repeat is known by it."""
        with self.lock:
            number = self._numbers.get(destination, 0) + 1
            self._numbers[destination] = number
            return f"{self.name}:{number}"

    def ask(self, parts: list[Part], loss: str = FAIL, timeout: float | None = None) -> Call:
        """Ask for something; waits for room if too much is unanswered."""
        with self.lock:
            machine = self.machine
            self.until(lambda: machine.size < WINDOW_BYTES or machine.state == "over", timeout)
            self._check()
            call = machine.ask(parts, loss)
            self.flush()
            return call

    def tell(self, command: str, headers: Headers, epoch: int) -> None:
        with self.lock:
            self.machine.tell(command, headers, epoch)
            self.flush()

    def subscribe(self, sub: Subscription) -> Call:
        with self.lock:
            self._check()
            call = self.machine.subscribe(sub)
            self.flush()
            return call

    def unsubscribe(self, sub: Subscription) -> None:
        """After this nothing more comes; what nobody has seen may be given back."""
        with self.lock:
            call = self.machine.unsubscribe(sub)
            self.flush()
            if call is not None:
                self.until(lambda: call.done)

    def delete(self, temporary: Temporary) -> None:
        """Raises IllegalState as long as somebody consumes from it."""
        with self.lock:
            self._check()
            used = {sub.headers["destination"] for sub in self.machine.subs.values()}
            for context in self.contexts:
                used |= context.unsettled_of()
            if temporary.wire in used:
                raise IllegalState(
                    f"{temporary} has a consumer, or messages to be acknowledged: close, and settle first"
                )
            self.deleted.add(temporary.name)
            call = self.machine.delete_temporary(temporary) if isinstance(temporary, TemporaryQueue) else None
            self.flush()
            if call is not None:
                self.until(lambda: call.done)

    def start(self) -> None:
        with self.lock:
            self.started = True
            self.lock.notify_all()

    def stop(self) -> None:
        """Hand out nothing until `start`; returns when no listener runs, unless a listener says it."""
        with self.lock:
            self.started = False
            if not any(context.is_listener() for context in self.contexts):
                for context in list(self.contexts):
                    context.await_listener()

    def flush(self) -> None:
        self.carrier.flush()
        self._complain()

    def changed(self) -> None:
        """Something has come, or the connection has."""
        self.lock.notify_all()
        self._complain()

    def _complain(self) -> None:
        faults = self.machine.faults
        while faults:
            error = faults.pop(0)
            try:
                self.on_error(error)
            except Exception:  # it is not ours, and whoever is here has other work
                log.exception("on_error failed with %r", error)

    def wait(self, call: Call, timeout: float | None = None) -> Call:
        """Until it is answered. Raises the answer if it is an error, or TimedOut."""
        with self.lock:
            try:
                self.until(lambda: call.done, timeout)
            except TimedOut:
                call.watched = False
                raise
            if call.error is not None:
                raise type(call.error)(str(call.error))
            return call

    def wait_for(self, done: Callable[[], object], timeout: float | None) -> object:
        """Wait under the lock, for ever if `timeout` is None or more than a lock can wait; what `done` says then."""
        return self.lock.wait_for(done, None if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def until(self, done: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait under the lock. Raises TimedOut."""
        timeout = self.patience if timeout is None else timeout
        if not self.wait_for(done, timeout):
            raise TimedOut(f"no answer within {timeout:g} s: what was asked may still happen")

    def settle_all(self, timeout: float | None = None) -> None:
        """Wait until all that was asked is answered. Raises TimedOut; ConnectionLost if there will be no answers."""
        with self.lock:
            self.until(lambda: not self.machine.calls, timeout)
            if self.machine.final is not None and not self.closing:
                raise ConnectionLost(str(self.machine.final))

    def _check(self) -> None:
        if self.closing:
            raise IllegalState("the connection is closed: connect again")
        if self.machine.final is not None:
            raise ConnectionLost(str(self.machine.final))

    def close(self, timeout: float) -> None:
        """Leave, when all that was asked is answered. Raises TimedOut if it was not, and closes nevertheless."""
        with self.lock:
            if self.closing:
                return
            self.closing = True
            try:
                self.until(lambda: not self.machine.calls or self.machine.state == "over", timeout)
            finally:
                if self.machine.state != "over":
                    call = self.machine.leave()
                    self.flush()
                    self.wait_for(lambda: call.done, timeout)
                self.carrier.end()
