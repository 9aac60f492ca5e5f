"""What operators may ask about groups of agents."""

from __future__ import annotations

from typing import Any

from mombroker.broker.groups.group import Group
from mombroker.broker.names import name_of
from mombroker.broker.session.service import Sessions
from mombroker.core.errors import MomError, short
from mombroker.core.requests import Reply, changes, reads


class GroupVerbs:
    def __init__(self, sessions: Sessions):
        self.sessions, self.natives, self.tx = sessions, sessions.natives, sessions.natives.tx
        self.names = sessions.natives.names

    @reads
    def groups(self, empty: bool = False) -> Reply:
        """The groups of agents whose home is this server: of each its view, whom the next one waits for, and how many
        casts in total order were `placed` since it was made; with `empty` those, too, that all have left and nobody is
        about to join."""
        there = [each for each in self.natives.agents.values() if isinstance(each, Group)]
        found = [each for each in there if empty or each.home.members or each.home.change or each.home.wishes]
        return {"groups": [_row(each) for each in sorted(found, key=lambda each: each.name)]}

    @reads
    def group(self, group: str) -> Reply:
        """A group whose home is this server: its view, its members, and who holds up the next view."""
        found = self._find(group)
        home, change = found.home, found.home.change
        lives = self.names.homes.home
        members = [
            {"agent": agent, "server": lives(agent), "waits_for_state_of": home.lacking.get(agent, "")}
            for agent in home.members
        ]
        return {
            **_row(found), "members": members, "joining": list(change.joined) if change else [],
            "leaving": [agent for agent in home.members if change and agent not in change.members],
            "wishes": [{"agent": agent, "wants": what} for what, agent, _ in home.wishes],
            "copies_here": self.sessions.members.copies.of_group(found.name),
        }  # fmt: skip

    @reads
    def group_states(self, group: str) -> Reply:
        """How far new members of a group are with the state that they begin with: `coming` of those that live here, how
        many pages have come, whether that is all, and how many are still to become rows of their tables; `given` by
        members here, how many pages were sent and how many the new member has."""
        states = self.sessions.members.states
        return {
            "coming": [
                {"agent": each.key[0], "view": each.key[2], "pages": each.pages, "whole": each.whole,
                 "left": len(each.rows) if each.begun and not each.filled else 0}
                for each in states.comings.of.values() if each.key[1] == group
            ],
            "given": [
                {"agent": agent, "by": give.agent, "view": give.number, "pages": give.pages, "has": pages}
                for give in states.gives.of.values() if give.group == group
                for agent, pages in give.got.items() if agent in give.to
            ],
        }  # fmt: skip

    @changes
    def exclude_member(self, group: str, agent: str) -> Reply:
        """Make the next view of a group without a member, which nobody waits for any more; it may join again."""
        found = self._find(group)
        id = agent if "/" in agent else self.names.id_of(agent)
        change = found.home.change
        if id not in found.home.members and id not in (change.joined if change else ()):
            raise MomError(f"{agent} is no member of group {group}: see `mom group show {group}`")
        found.exclude(id)
        return {"excluded": id, "group": group}

    @changes
    def remove_group(self, group: str) -> Reply:
        """Have all members of a group leave it; then it is no more. Whoever joins later makes a new one."""
        found = self._find(group)
        members = list(found.home.members)
        found.end()
        return {"removed": group, "members": members}

    def _find(self, group: str) -> Group:
        name = name_of(f"group:{group}")
        id = self.names.known.get(name) or f"{self.tx.name}/{name}"
        found = self.natives.agents.get(id)
        if isinstance(found, Group):
            return found
        home = id[: id.index("/")]
        if home != self.tx.name:
            raise MomError(f"the home of group {group} is {home}: ask there")
        raise MomError(f"there is no group {short(group)}: see `mom group list`")


def _row(group: Group) -> dict[str, Any]:
    home = group.home
    return {
        "group": group.name, "home": group.tx.name, "view": home.number, "size": len(home.members),
        "changes": bool(home.change), "waits_for": list(home.change.waits) if home.change else [],
        "placed": group.placed,
    }  # fmt: skip
