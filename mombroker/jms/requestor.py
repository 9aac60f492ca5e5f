"""Request and reply: one temporary queue for the answers of a context; each is told by its correlation id."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from mombroker.jms import checks
from mombroker.jms.destinations import Destination, TemporaryQueue
from mombroker.jms.errors import ConnectionLost, JmsError, MessageFormat, TimedOut
from mombroker.jms.machine import Subscription
from mombroker.jms.messages import Message
from mombroker.stomp.frames import Frame

if TYPE_CHECKING:
    from mombroker.jms.context import Context


class Requestor:
    """`answers`: of the requests that somebody waits for; None as long as there is none. Safe for threads."""

    def __init__(self, context: Context):
        self.context, self.connection = context, context.connection
        self.answers: dict[str, Message | None] = {}
        self.queue = TemporaryQueue(f"t{self.connection.number()}", self.connection)
        name = f"s{self.connection.number()}"
        headers = {"id": name, "destination": self.queue.wire, "ack": "client-individual"}
        self._failed: JmsError | None = None
        self._sub = Subscription(name, headers, self._take, lambda: None, self._end)
        self.connection.wait(self.connection.subscribe(self._sub))

    def _take(self, frame: Frame) -> None:
        message = Message(frame, self.connection.machine.epoch)
        self.context.tell("ACK", message)
        if message.correlation_id in self.answers:
            self.answers[message.correlation_id] = message

    def _end(self, error: JmsError) -> None:
        self._failed = error

    def request(self, to: Destination | str, body: Any, timeout: float, options: dict[str, Any]) -> Message:
        name = options.pop("correlation_id", "") or uuid.uuid4().hex
        checks.text("correlation_id", name, MessageFormat)
        options.setdefault("ttl", max(timeout, 0.001))  # nobody waits for an answer after that
        if "reply_to" in options:
            raise MessageFormat("a request has a queue of its own for its answer: send with reply_to= asks for another")
        with self.connection.lock:
            self.answers[name], epoch = None, self.connection.machine.epoch
        try:
            self.context.send(to, body, reply_to=self.queue, correlation_id=name, timeout=timeout, **options)
            with self.connection.lock:
                machine = self.connection.machine
                if not self.connection.wait_for(
                    lambda: self.answers[name] is not None or machine.epoch != epoch or self._failed, timeout
                ):
                    raise TimedOut(f"no answer from {to} within {timeout:g} s")
                answer = self.answers[name]
                if answer is None:
                    raise ConnectionLost("the connection was lost before the answer came: ask again")
                return answer
        finally:
            with self.connection.lock:
                del self.answers[name]

    def close(self) -> None:
        self.connection.unsubscribe(self._sub)
        self.queue.delete()
