"""The thread in which the listeners of one context run, one message at a time, in the order in which they came.

What is to be called when a message was sent runs there, too, one by one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mombroker.jms.errors import JmsError
from mombroker.jms.messages import Message

if TYPE_CHECKING:
    from mombroker.jms.consumer import Consumer
    from mombroker.jms.context import Context

log = logging.getLogger("mombroker.jms")


class Listeners:
    """running    whose listener has a message now, or what is called instead
    awaited    calls that are still to come, of them `finished` those that can be made
    """

    def __init__(self, context: Context):
        self.context, self.lock = context, context.connection.lock
        self.running: object = None
        self.awaited = 0
        self.finished: deque[Callable[[], object]] = deque()
        self.thread = threading.Thread(target=self._run, name="mombroker-jms-listeners", daemon=True)
        self.thread.start()

    def wait(self, consumer: Consumer | None) -> None:
        """Until no listener runs, or this one does not. Under the lock; a listener does not wait for itself."""
        if threading.current_thread() is not self.thread:
            self.lock.wait_for(lambda: self.running is None or consumer not in (None, self.running))

    def await_call(self) -> Callable[[Callable[[], object]], None]:
        """To be given what is to be called, once it can be. Under the lock."""
        self.awaited += 1
        return self._call_soon

    def _call_soon(self, call: Callable[[], object]) -> None:
        self.finished.append(call)
        self.lock.notify_all()

    def _over(self) -> bool:
        return (self.context.closed or self.context.connection.closing) and not self.awaited

    def _next(self) -> Consumer | None:
        waiting = [(at, each) for each in self.context.consumers if (at := each.next_for_listener()) is not None]
        return min(waiting, key=lambda pair: pair[0])[1] if waiting else None

    def _run(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.finished or self._over() or self._next() is not None)
                call = self._called() if self.finished else self._heard()
            if call is None:
                return
            call()

    def _called(self) -> Callable[[], object]:
        """What runs one of those that are finished."""
        call = self.running = self.finished.popleft()

        def run() -> None:
            self._run_theirs(call, "a function failed that was to be called when a message was sent")
            with self.lock:
                self.running = None
                self.awaited -= 1
                self.lock.notify_all()

        return run

    def _heard(self) -> Callable[[], object] | None:
        """What gives the next message to its listener; None at the end."""
        context, consumer = self.context, self._next()
        if context.closed or consumer is None or consumer.listener is None:
            return None
        listener = consumer.listener
        try:
            consumer.check_room()
        except JmsError as error:  # its transaction is too long: that is a failure of who should have committed
            context.connection.on_error(error)
            context.rollback()
            return lambda: None
        self.running, message = consumer, consumer.pop()
        if context.ack not in ("auto", "dups-ok"):
            context.received(message, consumer)

        def run() -> None:
            good = self._run_theirs(lambda: listener(message), f"a listener failed with {message!r}")
            with self.lock:
                self.running = None
                if not context.closed:
                    self._settle(message, consumer, not good)
                self.lock.notify_all()

        return run

    def _run_theirs(self, call: Callable[[], object], failed: str) -> bool:
        try:
            call()
        except BaseException:  # it is not ours; even if it wants to end its thread, that has others to run
            log.exception("%s", failed)
            return False
        return True

    def _settle(self, message: Message, consumer: Consumer, failed: bool) -> None:
        try:
            if failed:
                self.context.failed(message, consumer)
            elif self.context.ack in ("auto", "dups-ok"):
                consumer.settle(message)
        except JmsError as error:
            self.context.connection.on_error(error)
