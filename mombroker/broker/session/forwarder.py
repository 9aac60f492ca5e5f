"""Messages to a queue, or a topic in total order, whose name is not decided yet."""

from __future__ import annotations

from mombroker.broker.message import ClientMessage
from mombroker.broker.names import name_of
from mombroker.broker.native import Native
from mombroker.broker.queue.queue import Queue
from mombroker.broker.topic.topic import Topic
from mombroker.core.message import Message


class Forwarder(Native):
    """They wait in its inbox until the registry has decided."""

    def forward(self, client_message: ClientMessage, message: Message) -> None:
        names, name = self.natives.names, name_of(client_message.destination)
        made = Topic if client_message.destination.startswith("topic:") else Queue
        names.declare(name, made.path, b"")
        self.post(names.resolve(name), client_message)


Forwarder.handlers = {ClientMessage.wire: Forwarder.forward}
