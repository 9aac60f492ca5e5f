"""A disk gives some rows of messages back other than they were written; see `Faults.damage`."""

import json
from collections import Counter
from collections.abc import Iterator

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Publish
from mombroker.broker.queue.messages import LANES
from mombroker.broker.queue.schedule import DELAYED
from mombroker.broker.wire import note_of
from mombroker.core.damage import DAMAGED
from mombroker.core.message import decode
from mombroker.sim.cluster import Cluster
from mombroker.sim.node import Node
from mombroker.store.memory import Disk

Row = tuple[str, int]  # of this table, with this id
Copy = tuple[tuple[str, int], str]  # of a message, for this agent
CARRIERS = (ClientMessage.wire, Publish.wire)


class Damages:
    """lost   copies that were on their way to a queue or a topic: these may have come to nothing"""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.done: dict[str, set[Row]] = {name: set() for name in cluster.topology.servers}
        self.lost: set[Copy] = set()

    def strike(self, node: Node, which: float) -> None:
        """Damage one of the rows of a node, if it has any. It may be down."""
        store = node.disk.store
        if rows := list(_carriers(store.disk)):
            table, id, body = rows[int(which * len(rows))]
            if table == "queue_in":
                row = store.disk.queue_in[id]
                message = decode(row.data)
                self.lost.add(((message.origin, message.number), row.agent))
            self.cluster.workload.damaged(body)
            self.done[node.name].add((table, id))
            store.damage(table, id, self.cluster.world.chance(0.5))

    def faults(self) -> list[str]:
        """What was set aside twice, or is not damaged; what is damaged, and neither set aside nor gone."""
        wrong = []
        for name, node in self.cluster.nodes.items():
            for (table, id), times in aside(node).items():
                if times > 1 or (table, id) not in self.done[name]:
                    wrong.append(f"row {id} of {table} of {name} was set aside {times} times")
            wrong += [
                f"damaged row {id} of {table} of {name} is where it was" for table, id in node.disk.store.disk.bad
            ]
        return wrong[:3]


def aside(node: Node) -> Counter[Row]:
    """The rows that a server has set aside."""
    kept = (row for row in node.disk.store.disk.items.values() if row.collection == DAMAGED)
    heads = (json.loads(row.head) for row in kept)
    return Counter((head["table"], head["id"]) for head in heads)


def _carriers(disk: Disk) -> Iterator[tuple[str, int, bytes]]:
    """The rows that are a client's message, whole, and its body."""
    for id, row in disk.queue_in.items():
        if not row.payload and ("queue_in", id) not in disk.bad and (message := decode(row.data)).type in CARRIERS:
            note = note_of(message)
            yield "queue_in", id, (note.message if isinstance(note, Publish) else note).body
    for id, item in disk.items.items():
        if (item.collection in LANES or item.collection == DELAYED) and ("message", id) not in disk.bad:
            yield "message", id, item.body
    for id, held in disk.held.items():
        if ("held", id) not in disk.bad:
            yield "held", id, held.body
