"""How replicas that have nothing yet become a group, and how one that was away for its beginning learns of that."""

from __future__ import annotations

from mombroker.core.raft.messages import Members
from mombroker.core.topology import Server
from mombroker.net.replicas.ways import Ways
from mombroker.net.replicas.wire import Told
from mombroker.store import packed
from mombroker.store.replica import ReplicaStore


class Founding:
    """The first replica of the file founds the group, when all others are there and none has anything: an empty folder
    among some that are not is of a disk that was lost, and no member."""

    def __init__(self, at: Server, store: ReplicaStore, ways: Ways):
        self.at, self.store, self.ways = at, store, ways

    def tell(self, leads: bool, stopping: bool) -> Told:
        """What the others are told of us."""
        cut, founded = self.store.cut(), self.store.founded
        first = cut.members.pack() if founded and not cut.index else b""
        return Told(
            self.at.name, self.at.replica, self.store.id, founded, packed.VERSION, first, stopping, leads
        )  # fmt: skip

    def members(self) -> Members | None:
        """Who they are at first, as one that knows has told, or as we decide now; None: nobody can say yet."""
        others = self.ways.told()
        for told in others:
            if told.members and self.store.id in (first := told.first()).all:
                return first
        if self.at.replicas[0].name != self.at.replica or len(others) < len(self.ways.ways):
            return None
        if any(other.founded for other in others):
            return None
        ids = {other.replica: other.id for other in others} | {self.at.replica: self.store.id}
        voters = tuple(ids[place.name] for place in self.at.replicas)
        return Members(voters, (), tuple(ids[place.name] for place in self.at.replicas if place.witness))
