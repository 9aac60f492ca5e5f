"""Wrote tests/data/store-v2-queue.sqlite, with the program of schema 2, which kept held messages among the others.

Of six messages "a" was settled, "b" backs off, "c", "d" and "e" are with a consumer, "f" waits. An author's agent has a
collection that is called as that of held messages was.
"""

import sys
import tempfile

from mombroker import store
from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.broker.commands import MODIFIED, Delivery, Disposition, Send, Subscribe
from mombroker.core.batch import Batch, ItemRow
from mombroker.core.events import ClientCommands, ClientOpened
from mombroker.core.server import AgentServer
from mombroker.core.times import SECOND
from mombroker.core.topology import Server, Topology
from tests.store.samples import T0
from tests.store.saved import DATA

FILE = DATA / "store-v2-queue.sqlite"
QUEUE = "queue:orders"


def topology() -> Topology:
    """One server, whose queues offer again after a minute what was given back."""
    policies = [{"match": "queue:*", "redelivery_delay": 60.0}]
    return Topology("test", {"paris": Server("paris", "127.0.0.1", 16300)}, {}, registry="paris", policies=policies)


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

        go(ClientOpened(1, ""))
        go(ClientCommands(1, [Send(QUEUE, text.encode(), shown=QUEUE) for text in ("a", "b", "c", "d", "e", "f")]))
        go(ClientCommands(1, [Subscribe("s", (QUEUE,), ack="individual", prefetch=3)]))
        go(ClientCommands(1, [Disposition(told[1].tag, MODIFIED), Disposition(told[0].tag)]))
        row = ItemRow(server.tx.new_id(), "paris/author", "h", 7, b"head", b"body")
        made.commit(Batch(items={row.id: row}, agents={"paris/author": ("sample:A", b"")}))
        made.close()
        store.backup(folder, target)


if __name__ == "__main__":
    main(*sys.argv[1:] or [str(FILE)])
