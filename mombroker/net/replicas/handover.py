"""How the lead goes to another replica: when an operator wants that, and when this one stops."""

from __future__ import annotations

from typing import Protocol

from mombroker.core.errors import MomError
from mombroker.core.raft.replica import LEADER
from mombroker.core.topology import Server
from mombroker.net.replicas.consensus import Consensus
from mombroker.net.replicas.ways import Ways


class Leading(Protocol):
    """A replica, as far as it hands over (net/replicas/node.py)."""

    at: Server
    consensus: Consensus
    ways: Ways

    def up(self, id: str) -> bool: ...  # it has answered of late


class Handover:
    def __init__(self, node: Leading):
        self.node = node

    def able(self) -> dict[str, str]:
        """Replicas that could lead, by name their ids."""
        replica, ways = self.node.consensus.replica, self.node.ways
        voters = set(replica.members.voters) - set(replica.members.witnesses) - {replica.id}
        return {
            told.replica: told.id for told in ways.told()
            if told.id in voters and not told.stopping and self.node.up(told.id)
        }  # fmt: skip

    def best(self) -> str:
        """Of those the id of the one that has come furthest; empty if there is none."""
        others = self.node.consensus.replica.others
        able = [id for id in self.able().values() if id in others]
        return max(able, key=lambda id: others[id].match, default="")

    def chosen(self, to: str) -> str:
        """The id of the one of this name, or of the best. Raises MomError."""
        able = self.able()
        if to and to not in able:
            known = ", ".join(able) or "none is"
            raise MomError(f"{to} is no other replica with rows that is up ({known}): see `mom replica status`")
        if not (id := able[to] if to else self.best()):
            raise MomError(f"no other replica of {self.node.at.name} is up: see `mom replica status`")
        return id

    def begin(self, id: str) -> None:
        """The server has ended here. Who was to lead (empty: whoever has come furthest) may be unable to by now: then
        it is another one, or whoever is elected."""
        consensus = self.node.consensus
        if not consensus.replica.leads:
            return
        if id not in self.able().values():
            id = self.best()
        if id:
            consensus.replica.transfer(id, consensus.now())
        else:
            consensus.replica.resign(consensus.now())
        consensus.pump()

    def parted(self) -> bool:
        """Nobody needs us for what is under way: a leader that stops, too, for its last batch."""
        replica, ways = self.node.consensus.replica, self.node.ways
        if replica.role == LEADER:
            return not replica.target
        leader = next((told for told in ways.told() if told.id == replica.leader), None)
        return leader is None or not leader.stopping or not ways.ways[leader.replica].up
