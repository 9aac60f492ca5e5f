"""Messages to a queue whose name is not decided yet."""

from __future__ import annotations

from typing import Any, ClassVar

from mombroker.broker.message import ClientMessage
from mombroker.broker.names import name_of
from mombroker.broker.native import Native
from mombroker.broker.queue.queue import Queue
from mombroker.core.message import BOUNCE, Message


class Forwarder(Native):
    """They wait in its inbox until the registry has decided."""

    def put(self, put: ClientMessage, message: Message) -> None:
        names, name = self.server.names, name_of(put.destination)
        names.declare(name, Queue.path, b"")
        self.server.send(self.server.note_to(self.id, (names.resolve(name),), put, 0, BOUNCE))

    handlers: ClassVar[Any] = {ClientMessage.wire: put}
