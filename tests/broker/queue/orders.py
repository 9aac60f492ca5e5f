"""The queue that tests of queues send to, what is in it, and its policy."""

from mombroker.core.topology import Topology
from tests.broker.bench import ALONE, Broker, Client
from tests.core.bus import topology

Q = "queue:orders"
SELF, OTHER = ("a", "a"), ("a", "b")  # servers of the queue and of its consumer
MIB = 1 << 20


def with_policy(base: Topology = ALONE, **values: object) -> Topology:
    names = {name: "".join(domain.members) for name, domain in base.domains.items()}
    return topology(names, policies=[{"match": "queue:*", **values}])


def filled(b: Broker, *texts: str, **more: object) -> Client:
    """A producer on the queue's home, which has sent."""
    return b.connect("a").send(Q, *texts, **more)


def large(number: int, size: int = MIB) -> str:
    return str(number).ljust(size)


def numbers(client: Client) -> list[int]:
    return [int(each.body[:4]) for each in client.got]
