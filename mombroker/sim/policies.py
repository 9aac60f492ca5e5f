"""Policies of a simulated bus's queues: drawn, on some seeds, and changed by an operator while messages wait."""

from __future__ import annotations

from random import Random
from typing import Any

from mombroker.broker.policy import policy
from mombroker.sim.cluster import Cluster

Settings = dict[str, tuple[Any, ...]]

# What each setting is drawn from. By these no message is lost.
SETTINGS: Settings = {
    "max_messages": (0, 1, 3, 10), "max_bytes": (0, 0, 300), "block_seconds": (0.03, 1.0, 5.0),
    "redelivery_delay": (0.0, 0.01, 0.1), "redelivery_delay_multiplier": (1.0, 2.0), "max_redelivery_delay": (0.1,),
    "max_redeliveries": (1000,), "max_pending": (100_000,),
}  # fmt: skip
# By these some come to nothing, or are dead letters: for queues of whose messages nobody says that they must be seen.
LOSSY: Settings = {
    "overflow": ("block", "reject", "drop-head"), "on_nack": ("redeliver", "dead-letter"),
    "max_redeliveries": (0, 2, 1000),
}  # fmt: skip


class QueuePolicies:
    """On a third of the seeds the queues have drawn policies, on most of these some queues are `lossy`, and an operator
    changes all of them at run time.

    queues   those that have drawn policies; none on the other seeds
    changes  how many are asked for
    """

    def __init__(self, dice: Random, queues: tuple[str, ...]):
        self.dice = dice
        self.queues = queues if dice.random() < 1 / 3 else ()
        self.lossy = {queue for queue in self.queues if dice.random() < 0.3}
        self.at_start = [self._drawn(queue) for queue in self.queues if dice.random() < 0.7]
        self.changes = dice.choice((0, 5, 30)) if self.queues else 0

    @property
    def dead_letters(self) -> list[str]:
        return [queue.replace("queue:", "queue:DLQ.") for queue in sorted(self.lossy)]

    def _drawn(self, queue: str) -> dict[str, Any]:
        settings = SETTINGS | (LOSSY if queue in self.lossy else {})
        drawn = {"match": queue, **{name: self.dice.choice(values) for name, values in settings.items()}}
        policy(drawn)  # raises MomError for one that a server would refuse
        return drawn

    def begin(self, cluster: Cluster, span: int) -> None:
        """Have the operator ask for changes; some come to nothing, since a server is down or away."""
        servers = list(cluster.nodes)
        for _ in range(self.changes):
            values = self._drawn(self.dice.choice(self.queues))
            match, server, at = values.pop("match"), self.dice.choice(servers), int(self.dice.random() * span)
            asked = {"match": match, "values": None if self.dice.random() < 0.1 else values}
            cluster.world.after(at, cluster.ask, server, "set_policy", asked)
