"""Recovery: a starting server takes up its queues and subscriptions from its store, and what clients had of them."""

from __future__ import annotations

from typing import Any

import msgpack

from mombroker.broker.groups.group import Group
from mombroker.broker.protocol import Gone
from mombroker.broker.queue.arrival import BEHIND
from mombroker.broker.queue.dedup import PRODUCERS
from mombroker.broker.queue.messages import LANES
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.schedule import DELAYED, EXPIRING
from mombroker.broker.topic.routing import Topics
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.core.natives import Natives

NATIVES: dict[str, type[Queue] | type[Topic] | type[Group]] = {
    cls.path: cls for cls in (Queue, Subscription, Topic, Group)
}
OWNED = ("queue:", "sub:", "share:", "topic:", "group:")
KEPT = {*LANES, DELAYED, EXPIRING, PRODUCERS, BEHIND}  # the collections of a queue
PAGE = 256  # of held messages read at once


def recover(service: Any, topics: Topics) -> None:
    """Take up queues, topics and subscriptions; end the connections of the last process. `service` is what all of them
    ask of the broker around them."""
    natives, me = service.natives, service.natives.tx.name
    for kind in OWNED:
        for id, path in _stored(natives, f"{me}/{kind}"):
            if id not in natives.agents and path in NATIVES:
                natives.add(NATIVES[path](service, id, _state(natives, id)))
    _regain(natives)
    _strays(natives)
    for native in list(natives.agents.values()):
        if isinstance(native, Queue | Topic):
            native.recovered()
    topics.recover()
    for id, _ in _stored(natives, f"{me}/conn:"):
        _connection_lost(natives, id)


def _stored(natives: Natives, prefix: str) -> list[tuple[str, str]]:
    """Ids and classes of the agents of the store whose ids begin so."""
    found: list[tuple[str, str]] = []
    after = prefix
    while rows := natives.tx.reader.agents(after, 1_000):
        mine = [row for row in rows if row[0].startswith(prefix)]
        found += mine
        if len(mine) < len(rows):
            break
        after = rows[-1][0]
    return found


def _state(natives: Natives, id: str) -> bytes:
    row = natives.tx.reader.agent(id)
    assert row is not None, "a row that was just read"
    return row[1]


def _regain(natives: Natives) -> None:
    """Give the queues back what somebody had when the server stopped."""
    after = 0
    while rows := natives.tx.reader.held(after, PAGE):
        for row in rows:
            queue = natives.agents.get(row.agent)
            if isinstance(queue, Queue):
                queue.regain(row)
        after = rows[-1].id


def _strays(natives: Natives) -> None:
    """Read the items that no queue will: the store names those that are damaged in whose they are."""
    reader, agents = natives.tx.reader, natives.agents
    for agent, collection in reader.places():
        if agent in agents and collection in KEPT:
            continue
        after = None
        while (agent in agents or reader.agent(agent) is None) and (
            rows := reader.items(agent, collection, after, PAGE)
        ):
            after = (rows[-1].key, rows[-1].id)


def _connection_lost(natives: Natives, id: str) -> None:
    """The connection of a stored session was lost with the last process of this server."""
    for home in msgpack.unpackb(_state(natives, id)):
        natives.post(id, home, Gone())
    natives.remove(id)
