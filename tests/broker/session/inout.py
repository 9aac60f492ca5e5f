"""Two queues of a client that takes from the one and sends to the other, for tests."""

from mombroker.broker.commands import Send
from tests.broker.bench import Broker

Q, R = "queue:in", "queue:out"


def send(destination: str, text: str) -> Send:
    return Send(destination, text.encode(), shown=destination)


def waiting(b: Broker) -> dict[str, int]:
    return {name: b.queue(name).messages.count for name in (Q, R)}
