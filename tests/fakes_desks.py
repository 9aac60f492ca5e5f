"""What agents do at destinations, broken on purpose: the simulator must object."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.authors.consumers import AgentConsumers
from mombroker.broker.queue.messages import QueueMessages
from mombroker.core.destinations import ACCEPTED
from mombroker.core.engine import Engine
from mombroker.core.message import Message
from mombroker.core.reaction import Reaction
from mombroker.sim.world import MS

Old = Callable[..., Any]


def acknowledged_before(incoming: Old) -> Old:
    """A message is acknowledged when its reaction begins, whatever becomes of that."""

    def acknowledge(consumers: AgentConsumers, agent: str, message: Message) -> Any:
        found = incoming(consumers, agent, message)
        if found:
            consumers.settle(agent, message, ACCEPTED)
        return found

    return acknowledge


@contextmanager
def acknowledged_later() -> Iterator[None]:
    """A message is acknowledged in a later batch than that of its reaction."""
    waiting: list[tuple[AgentConsumers, str, Message, str]] = []

    def wait(consumers: AgentConsumers, agent: str, message: Message, outcome: str) -> None:
        waiting.append((consumers, agent, message, outcome))
        consumers.alarm_at(consumers.tx.now + 20 * MS)

    def alarm(consumers: AgentConsumers) -> None:
        for each in [each for each in waiting if each[0] is consumers]:
            waiting.remove(each)
            settle(*each)

    settle = AgentConsumers.settle
    with patch.object(AgentConsumers, "settle", wait), patch.object(AgentConsumers, "alarm", alarm):
        yield


def sent_at_once(put: Old) -> Old:
    """What a reaction puts and publishes leaves though the reaction fails."""

    def send(reaction: Reaction, kind: str, to: str, body: bytes, fields: Any) -> None:
        outgoing = reaction.destinations.outgoing(reaction.agent, kind, to, body, fields)
        reaction.destinations.send(reaction.agent, outgoing)

    return send


def given_again(remote: Old) -> Old:
    """A queue that starts again gives back what agents of its server have, as if these were connections."""
    return lambda queue, session: session != "" and not session.startswith(f"{queue.tx.name}/")


def not_given_back(give_back: Old) -> Old:
    """A failed reaction acknowledges."""

    def accept(engine: Engine, box: Any, entry: Any, outcome: str, reason: str) -> None:
        give_back(engine, box, entry, ACCEPTED, reason)

    return accept


def never_written(write: Old) -> Old:
    """What agents still have when the batch closes gets no row."""

    def forget(messages: QueueMessages) -> None:
        for item in messages.late.values():
            item.message = None
        messages.late = {}

    return forget


def overtaking(apply: Old) -> Old:
    """What a reaction has sent leaves in another order than it was sent in."""

    def turn(reaction: Reaction, *where: Any) -> None:
        reaction.ops.reverse()
        apply(reaction, *where)

    return turn
