"""What operators may ask about the replicas of a server."""

from __future__ import annotations

from typing import Protocol

from mombroker.core.errors import MomError
from mombroker.core.requests import Reply, changes, reads


class Group(Protocol):
    def rows(self) -> Reply: ...
    def transfer(self, to: str) -> str: ...
    def change(self, old: str, new: str) -> tuple[str, str]: ...


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

    @changes
    def change_replicas(self, old: str = "", new: str = "") -> Reply:
        """Let a replica leave, or another one join, or both: the ids of their stores. It is under way then."""
        if not (old or new):
            raise MomError("who is to leave, or to join?")
        leaves, joins = self.group.change(old, new)
        return {"server": self.group.rows()["server"], "old": leaves, "new": joins}
