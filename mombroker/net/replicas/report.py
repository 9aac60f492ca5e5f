"""What operators see of the replicas of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from mombroker.core.raft.messages import Members
from mombroker.core.raft.replica import CLOSE, LEADER
from mombroker.core.topology import Server
from mombroker.core.words import many
from mombroker.net.replicas.consensus import Consensus
from mombroker.net.replicas.membership import Membership, name_of


class Reported(Protocol):
    """A replica, as far as it is told of (net/replicas/node.py)."""

    name: str
    at: Server
    consensus: Consensus
    membership: Membership

    @property
    def leader(self) -> str: ...
    @property
    def leads(self) -> bool: ...  # and its server works
    def ids(self) -> dict[str, str]: ...
    def up(self, id: str) -> bool: ...


class Report:
    def __init__(self, node: Reported):
        self.node = node

    def rows(self) -> dict[str, Any]:
        """Of each replica its place, and, where this one leads, how far it has come."""
        replica, me, found = self.node.consensus.replica, self.node.at.replica, []
        ids = self.node.ids() | {me: replica.id}
        members = replica.members
        for place in self.node.at.replicas:
            id = ids.get(place.name, "")
            row: dict[str, Any] = {"replica": place.name, "id": id, "listen": place.listen}
            row["role"] = _role(members, id, self.node.leader == place.name)
            if replica.role == LEADER:
                match = replica.log.stable if id == replica.id else 0
                if id in replica.others:
                    match = replica.others[id].match
                row |= {"behind": replica.log.last - match, "up": place.name == me or self.node.up(id)}
            found.append(row)
        return {
            "server": self.node.name, "replica": me, "leads": self.node.leads, "leader": self.node.leader,
            "term": replica.term, "voters": list(members.voters), "learners": list(members.learners),
            "changing": self.node.membership.says(), "replicas": found,
        }  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """For `/metrics` of a replica that does not lead. What was decided since it has heard of a leader it does not
        know of."""
        replica, now = self.node.consensus.replica, self.node.consensus.now()
        behind = replica.log.commit - self.node.consensus.store.taken()
        found = self.rows()
        role = next(row["role"] for row in found["replicas"] if row["replica"] == found["replica"])
        return {
            "term": replica.term, "leads": False, "heard_ns": max(0, now - replica.heard),
            "replicas": [{"replica": found["replica"], "role": role, "behind": behind, "up": True}],
        }  # fmt: skip

    def complete(self, status: dict[str, Any]) -> None:
        """What `mom status` tells of the replicas."""
        found = self.rows()
        status["replicas"], status["term"] = found["replicas"], found["term"]
        status["leads"], status["heard_ns"] = True, 0
        status["problems"] += [sentence for _, sentence in self._behind(found)]

    def explain(self, why: dict[str, Any]) -> None:
        """What `mom why` tells of them: who is behind, and so what waits for the others."""
        why["waits"] += [
            {"kind": "replica", "replica": row["replica"], "behind": row["behind"], "reason": sentence}
            for row, sentence in self._behind(self.rows())
        ]

    def _behind(self, found: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
        """Replicas that could not take over now, each with a sentence."""
        members = [row for row in found["replicas"] if row["role"] in ("leader", "follower", "witness")]
        good = sum(row["up"] and row["behind"] <= CLOSE for row in members)
        voters = self.node.consensus.replica.members.voters
        known = {row["id"] for row in members}
        for id in voters:
            if id not in known:  # its disk is lost, or it has never been met since
                members.append({"replica": name_of(id), "up": False, "behind": 0, "role": "lost"})
        for row in members:
            name, behind = row["replica"], row["behind"]
            if row["role"] == "lost":
                what = f"{name} was not met, or has lost its disk: then `mom replica replace {name}` makes it anew"
            elif not row["up"]:
                what = f"{name} does not answer, and is {many(behind, 'entry', 'entries')} behind"
            elif behind > CLOSE:
                what = f"{name} is {many(behind, 'entry', 'entries')} behind"
            else:
                continue
            yield row, f"{good} of {len(voters)} replicas {'is' if good == 1 else 'are'} up to date: {what}"


def _role(members: Members, id: str, leads: bool) -> str:
    if leads:
        return "leader"
    if id in members.witnesses:
        return "witness"
    if id in members.voters:
        return "follower"
    return "learner" if id in members.learners else "no member"
