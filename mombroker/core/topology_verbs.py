"""What operators may ask about the topology that the bus goes by, and how they change it."""

from __future__ import annotations

from mombroker.core import revision
from mombroker.core.coordinator import Coordinator
from mombroker.core.meta import HISTORY
from mombroker.core.reconfiguration import Reconfiguration
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.truth import Truth


class TopologyVerbs:
    def __init__(self, truth: Truth):
        self.truth = truth

    @reads
    def topology(self) -> Reply:
        """The topology that is in force on the server, as text, and its revision."""
        truth = self.truth
        return {"revision": truth.number, "digest": revision.digest_of(truth.text), "text": truth.text}

    @reads
    def topology_history(self) -> Reply:
        """The last revisions of the topology, the newest first: since when each is in force, and what it changed."""
        return {"revisions": revision.listed(self.truth.tx.reader.meta(HISTORY))}

    @reads
    def judge_topology(self, text: str, revision: int) -> Reply:
        """What kind of change another topology would be, given as text, in place of a revision; refused like that."""
        return {"kind": self.truth.judge(revision, text).kind.value}

    @changes
    def apply_topology(self, ticket: int, text: str, revision: int) -> None:
        """Have the bus go by another topology, given as text, in place of a revision."""
        self.truth.apply(revision, text, ticket)


class ChangeVerbs:
    """What operators may ask about a change of the domains that is under way."""

    def __init__(self, change: Reconfiguration, coordinator: Coordinator):
        self.change, self.coordinator = change, coordinator

    @reads
    def topology_status(self) -> Reply:
        """How far a change of the domains is on the server, and what it waits for; on the registry that of all."""
        return {**self.change.status(), "bus": self.coordinator.status()}

    @changes
    def topology_abort(self) -> Reply:
        """Give a change of the domains up that has not begun. Only the registry can."""
        return {"change": self.coordinator.abort()}
