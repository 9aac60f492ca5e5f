"""What operators may ask about the replicas of a server."""

from __future__ import annotations

from typing import Protocol

from mombroker.core.requests import Reply, changes, reads


class Group(Protocol):
    def rows(self) -> Reply: ...
    def transfer(self, to: str) -> str: ...


class ReplicaVerbs:
    """Of the one that leads, and, as far as it can, of any other one."""

    def __init__(self, group: Group):
        self.group = group

    @reads
    def replicas(self) -> Reply:
        """The replicas of this server: who leads, and how far the others have come."""
        return self.group.rows()

    @changes
    def transfer_lead(self, to: str = "") -> Reply:
        """Let another replica lead, the one named or the one that has come furthest, once what is open is durable."""
        return {"server": self.group.rows()["server"], "to": self.group.transfer(to)}
