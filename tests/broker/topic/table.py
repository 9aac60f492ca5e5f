"""What the servers of a bus know of subscriptions to topics, for tests."""

from tests.broker.bench import Broker

A, B = "topic:a", "topic:b"


def entries(b: Broker, server: str) -> list[str]:
    return sorted(pattern for table in b.servers[server].clients.topics.table.values() for pattern in table.values())
