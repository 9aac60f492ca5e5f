"""A change of the replicas that an operator asks for, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Set

from mombroker.core.errors import MomError
from mombroker.core.raft.messages import Members
from mombroker.core.raft.replica import NotNow, Replica


def name_of(id: str) -> str:
    """Of the replica whose store has this id."""
    return id.rpartition("-")[0]


class Membership:
    """Whoever joins learns first; then who is to go leaves, and then the new one votes. It is in memory of the leader
    alone: when that changes, the operator asks again, and it goes on from where it was.

    old, new   ids; empty: nobody leaves, or joins
    waits      why the next step is not taken yet
    """

    def __init__(self, replica: Callable[[], Replica], witness: Callable[[str], bool]):
        self.replica, self.witness = replica, witness
        self.old = self.new = self.waits = ""

    def begin(self, old: str, new: str, ids: dict[str, str]) -> tuple[str, str]:
        """Names of who leaves and who joins; `ids` are those that stores have now. Raises MomError."""
        members, mine = self.replica().members, self.replica().id
        joins = ids.get(new, "")
        if new and not joins:
            raise MomError(f"replica {new} was not met yet: start it, with the topology file of the others")
        leaves = next((id for id in members.all if old and name_of(id) == old and id != joins), "")
        if old and not leaves and not (joins and joins in members.all):
            raise MomError(f"{old} is no other replica of this server: see `mom replica status`")
        if old == new and not leaves and not self.busy and joins in members.voters:
            raise MomError(f"{old} has the disk that it had, and is a member: there is nothing to replace")
        if leaves == mine:
            raise MomError(f"{old} leads: let another one lead first, by `mom replica transfer`")
        if self.busy and (self.old, self.new) != (leaves, joins):
            raise MomError(f"another change is under way ({self.says()}): wait for its end")
        if leaves in members.voters and not joins and len(members.voters) == 1:
            raise MomError(f"{old} is the only one")
        self.old, self.new, self.waits = leaves, joins, ""
        self.go_on()
        return leaves, joins

    @property
    def busy(self) -> bool:
        return bool(self.old or self.new)

    def says(self) -> str:
        """What is under way, in words; empty if nothing is."""
        parts = [f"{self.new} joins"] * bool(self.new) + [f"{self.old} leaves"] * bool(self.old)
        return ", ".join(parts) + (f": {self.waits}" if self.waits else "")

    def end(self) -> None:
        self.old = self.new = self.waits = ""

    def go_on(self) -> bool:
        """Take the next step, if it can be taken now. True if something is to be sent."""
        replica = self.replica()
        wanted = self._next(replica.members, {*replica.members.voters})
        if wanted is None:
            if replica.log.changes[-1][0] <= replica.log.commit:
                self.end()
            return False
        try:
            replica.change(wanted)
        except NotNow as error:
            self.waits = str(error)
            return False
        self.waits = ""
        return True

    def _next(self, now: Members, voters: Set[str]) -> Members | None:
        """Who the members are to be after the next step; None if that was all."""
        old, new = self.old, self.new
        if new and new not in now.all:
            return Members(now.voters, (*now.learners, new), now.witnesses)
        if old in now.all:
            return Members(*(tuple(id for id in ids if id != old) for ids in now))
        if new and new not in voters:
            witnesses = (*now.witnesses, new) if self.witness(name_of(new)) else now.witnesses
            return Members((*now.voters, new), tuple(id for id in now.learners if id != new), witnesses)
        return None
