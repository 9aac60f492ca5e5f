"""What operators may ask about the topology that the bus goes by, and how they change it."""

from __future__ import annotations

from mombroker.core import revision
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
        return {"revisions": revision.listed(self.truth.tx.reader.meta())}

    @changes
    def apply_topology(self, ticket: int, text: str, revision: int) -> None:
        """Have the bus go by another topology, given as text, in place of a revision."""
        self.truth.apply(revision, text, ticket)
