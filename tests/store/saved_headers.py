"""Wrote tests/data/store-v5-headers.sqlite, with the program of schema 5, which kept the headers of clients as text.

Of the messages of a queue the first is a dead letter, two are with a consumer, the last waits; others are delayed, or
of a durable subscription.
"""

import sys
import tempfile

from mombroker import store
from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Nack, Send, Subscribe
from mombroker.core.events import ClientCommands, ClientOpened
from mombroker.core.server import AgentServer
from mombroker.core.times import SECOND
from mombroker.core.topology import Server, Topology
from tests.store.samples import T0
from tests.store.saved import DATA

FILE = DATA / "store-v5-headers.sqlite"
QUEUE = "queue:orders"
# What clients sent, and is typed or not.
SENT = {
    b"1": (b"color:a\\cb\\n\ncorrelation-id:c-1\nsize:007\n", True),
    b"2": (b"type:t\nsize:5\nrate:2.50\nnew:true\nproperty-types:size=int,rate=float,new=bool\n", False),
    b"3": (b"", False),
    b"4": (b"reply-to:/queue/answers\ncontent-type:text/plain\ncolor:red\n", False),
}


def topology() -> Topology:
    return Topology("test", {"paris": Server("paris", "127.0.0.1", 16300)}, {}, registry="paris")


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = store.open(folder, topology(), "paris")
        server = AgentServer(topology(), "paris", made, program(topology()), attach, T0)
        told: list[Delivery] = []

        def go(event: object) -> None:
            server.step(event, T0 + SECOND)
            while server.busy:
                server.turn(T0 + SECOND)
                ready = server.ready(T0 + SECOND)
                made.commit(ready.batch)
                server.committed(ready, T0 + SECOND)
                told.extend(reply for _, some in ready.clients for reply in some if isinstance(reply, Delivery))

        def send(destination: str, **more: int) -> None:
            go(ClientCommands(1, [
                Send(destination, body, headers, typed=typed, shown=f"/{destination.replace(':', '/')}", **more)
                for body, (headers, typed) in SENT.items()
            ]))  # fmt: skip

        go(ClientOpened(1, "me"))
        go(ClientCommands(1, [Subscribe("d", ("topic:t",), durable="d", ack="individual", prefetch=1)]))
        send(QUEUE)
        go(ClientCommands(1, [Subscribe("s", (QUEUE,), ack="individual", prefetch=2)]))
        go(ClientCommands(1, [Nack(told[0].tag, False)]))  # "2" and "3" are with the consumer, "4" waits
        send("queue:late", delay=SECOND)
        send("topic:t")
        made.close()
        store.backup(folder, target)


if __name__ == "__main__":
    main(*sys.argv[1:] or [str(FILE)])
