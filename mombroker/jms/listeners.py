"""The thread in which the listeners of one context run, one message at a time, in the order in which they came."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from mombroker.jms.errors import JmsError
from mombroker.jms.messages import Message

if TYPE_CHECKING:
    from mombroker.jms.consumer import Consumer
    from mombroker.jms.context import Context

log = logging.getLogger("mombroker.jms")


class Listeners:
    """`running`: whose listener has a message now."""

    def __init__(self, context: Context):
        self.context, self.lock = context, context.connection.lock
        self.running: Consumer | None = None
        self.thread = threading.Thread(target=self._run, name="mombroker-jms-listeners", daemon=True)
        self.thread.start()

    def wait(self, consumer: Consumer | None) -> None:
        """Until no listener runs, or this one does not. Under the lock; a listener does not wait for itself."""
        if threading.current_thread() is not self.thread:
            self.lock.wait_for(lambda: self.running is None or consumer not in (None, self.running))

    def _next(self) -> Consumer | None:
        waiting = [(at, each) for each in self.context.consumers if (at := each.next_for_listener()) is not None]
        return min(waiting, key=lambda pair: pair[0])[1] if waiting else None

    def _run(self) -> None:
        context = self.context
        while True:
            with self.lock:
                self.lock.wait_for(lambda: context.closed or context.connection.closing or self._next() is not None)
                consumer = self._next()
                if context.closed or consumer is None or consumer.listener is None:
                    return
                self.running, listener = consumer, consumer.listener
                message = consumer.pop()
                if context.ack not in ("auto", "dups-ok"):
                    context.received(message, consumer)
            failed = True
            try:
                listener(message)
                failed = False
            except BaseException:  # it is not ours; even if it wants to end its thread, that has others to run
                log.exception("a listener failed with %r", message)
            finally:
                with self.lock:
                    self.running = None
                    if not context.closed:
                        self._settle(message, consumer, failed)
                    self.lock.notify_all()

    def _settle(self, message: Message, consumer: Consumer, failed: bool) -> None:
        try:
            if failed:
                self.context.failed(message, consumer)
            elif self.context.ack in ("auto", "dups-ok"):
                consumer.settle(message)
        except JmsError as error:
            self.context.connection.on_error(error)
