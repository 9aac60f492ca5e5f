"""What agents do with groups: they join, leave and cast, and give each other their states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mombroker.broker.groups.group import NOBODY, Group, send_cast
from mombroker.broker.groups.members import Members
from mombroker.broker.groups.notes import GROUP_CHARS, Join, Leave, Place, Returned, Told
from mombroker.broker.groups.outbox import Entry
from mombroker.broker.names import name_of
from mombroker.broker.topic.order import Order
from mombroker.core.errors import MomError, UnknownName
from mombroker.core.groups.bus import CASTS, JOIN, PLACE, PUT, SEND
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.table import Table


class Deeds:
    """1. What an agent sends behind a cast that waits waits, too.

    sends     what an agent sends to a destination, or a topic
    moving    is the agent on its way to another server?
    """

    moving: Callable[[str], bool]

    def __init__(self, natives: Natives, members: Members, sends: Callable[[str, Any], None], order: Order):
        self.natives, self.tx, self.members, self.sends, self.order = natives, natives.tx, members, sends, order
        self.unnamed: dict[str, dict[str, None]] = {}  # agents, by the topic that they wait for
        self.outboxes, states = members.outboxes, members.states
        self.meets, self.state, self.restored, self.give = states.meets, states.state, states.restored, states.give
        self.failed = states.failed
        members.run = lambda agent: self.outboxes.run(agent, self._do)

    def bind(
        self, hand_over: Callable[[Message, str], None], wake: Callable[[str], None],
        rows: Callable[[str, str], Table | None], inbox: Callable[[str], Iterable[Message]],
    ) -> None:  # fmt: skip
        """`hand_over` puts a message into an agent's inbox; after `wake` whoever waits for this goes on; `rows` is a
        table of an agent; `inbox` what it is to react to."""
        self.members.hand_over, self.members.wake = hand_over, wake
        self.members.states.bind(wake, rows, inbox)

    def home(self, group: str, make: bool) -> str:
        """The agent of a group, which is made if need be. Raises UnknownName until it is there, MomError."""
        if type(group) is not str or not group or len(group) > GROUP_CHARS or not group.isprintable():
            raise MomError(f"a group has a name of up to {GROUP_CHARS} printable characters, not {str(group)[:80]!r}")
        name, names = name_of(f"group:{group}"), self.natives.names
        id = names.known.get(name)
        if id is None and make:
            names.declare(name, Group.path, b"")
            id = names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            raise UnknownName(name)
        return id

    def is_over(self, agent: str, group: str) -> bool:
        """Is it out of a group, and has not reacted to the View that says so?"""
        if self.members.find(group, agent) is not None:
            return False
        return any(agent not in note.members for _, note in self.members.states.ahead(agent, group))

    def may_join(self, agent: str) -> None:
        """Raises MomError."""
        if self.moving(agent):
            raise MomError(f"{agent} is moving to another server, and joins no group before it is there")

    def has(self, agent: str) -> list[str]:
        """The groups that it is in, or is to be."""
        return [group for group, those in self.members.of.items() if agent in those]

    def why(self) -> list[dict[str, Any]]:
        """The views that homes on this server wait with, and for whom; whose casts are still to come to whom; and who
        waits here since that is so."""
        homes = [each for each in self.natives.agents.values() if isinstance(each, Group)]
        views = [
            {"kind": "view", "group": each.name, "number": each.home.number + 1, "waits_for": list(change.waits)}
            for each in homes if (change := each.home.change)
        ]  # fmt: skip
        late = [
            {"kind": "casts", "group": each.name, "agent": agent, "waits_for": servers}
            for each in homes for agent, servers in each.late().items()
        ]  # fmt: skip
        full = [
            {"kind": "window", "group": entry.value[0], "agent": agent, "home": home_of(entry.value[1])}
            for agent, entry in self.outboxes.first()
            if entry.kind == CASTS and entry.value[1] and not (entry.asked or entry.value[4])
            and self._is_full(agent, entry.value[0])
        ]  # fmt: skip
        return [*views, *late, *full]

    def _is_full(self, agent: str, group: str) -> bool:
        """Is so much of its casts not with all members that it makes no more?"""
        return self.members.copies.count(group, agent) >= self.tx.limits.cast_window

    def reason(self, agent: str) -> str:
        """What one waits for that has something to send: it waits until this is so."""
        if placing := self.placing(agent):
            topic, home = placing
            return f"what it has published to {topic} has its place at {home}" if home else f"{topic} has a home"
        entries = self.outboxes.of.get(agent)
        if entries and entries[0].kind == CASTS:
            group, home, *_ = entries[0].value
            if entries[0].asked:
                return f"a cast of its own in group {group} has its place at {home_of(home)}"
            return f"a cast of its own in group {group} has gone" + (f", by {home_of(home)}" if home else "")
        return "what it has to send has gone"

    def placing(self, agent: str) -> tuple[str, str] | None:
        """The topic in total order that one waits for, and where that has its home, if it has one."""
        entries = self.outboxes.of.get(agent)
        if not entries or entries[0].kind != PLACE:
            return None
        home, message = entries[0].value
        return message.destination, home_of(home) if home else ""

    # -- what is sent ------------------------------------------------------------------------------------------------

    def waits(self, agent: str) -> bool:
        """Has it something to send that is not sent yet?"""
        return agent in self.outboxes.of

    def waiting(self) -> list[str]:
        """Agents of authors that wait for a cast of theirs, or for the place of what they have published."""
        natives = self.natives.agents
        return [
            agent for agent, entry in self.outboxes.first() if entry.kind in (CASTS, PLACE) and agent not in natives
        ]

    def act(self, agent: str, kind: str, value: Any) -> bool:
        """Send, put, join, leave or cast, behind all that the agent has waiting. True if something of it waits now."""
        self.outboxes.add(agent, kind, value)
        if self.outboxes.run(agent, self._do):
            return False
        self.outboxes.keep(agent)
        return True

    def _do(self, agent: str, entry: Entry, asked: int) -> bool | None:
        """See Outboxes.run."""
        kind, value = entry.kind, entry.value
        if kind == CASTS:
            group, home, wire, payload, total = value
            return self._cast(agent, entry, group, home, wire, payload, total, asked)
        if kind in (PUT, PLACE) and self.order.total(value[1].destination):
            entry.kind = PLACE  # its topic may have this order only now
            return self._place(agent, entry, asked)
        if asked:
            return False
        if kind == SEND:
            self.natives.send(value)
        elif kind in (PUT, PLACE):
            where, message = value  # which may live elsewhere by now
            self.sends(agent, (where and self.natives.names.known.get(name_of(message.destination), where), message))
        elif kind == JOIN:
            self._join(agent, *value)
        else:
            self._leave(agent, *value)
        return True

    def _place(self, agent: str, entry: Entry, asked: int) -> bool | None:
        """Publish in total order, behind nothing but what goes to the same topic."""
        message = entry.value[1]
        try:
            home = self.order.home(message.destination)
        except UnknownName as error:
            self.unnamed.setdefault(error.name, {})[agent] = None
            return False
        if asked and self.outboxes.of[agent][asked - 1].value[0] != home:
            return False
        submitted = self.order.submit(message, agent)
        assert submitted is not None, "its home is known"
        entry.value, entry.asked = (home, message), submitted.mark
        return None

    def named(self, name: str) -> None:
        """It is known now, or no longer."""
        for agent in self.unnamed.pop(name, ()):
            self.members.goes_on(agent)

    def placed(self, agent: str, number: int) -> bool:
        """What it has published, up to this number, has its place, or comes to nothing. False if it has no outbox."""
        if agent not in self.outboxes.of:
            return False
        while self.outboxes.placed(agent, number) is not None:
            self.members.goes_on(agent)
        return True

    def unplaced(self, servers: set[str]) -> dict[str, str]:
        """What was on its way to homes of topics on these servers may be lost: nobody waits for its place. Whose it
        was, with such a home."""
        found = dict[str, str]()
        for agent, entries in list(self.outboxes.of.items()):
            for entry in [each for each in entries if each.kind == PLACE and each.asked]:
                if home_of(entry.value[0]) in servers:
                    found[agent] = entry.value[0]
                    self.outboxes.remove(agent, entry)
                    self.members.goes_on(agent)
        return found

    def _join(self, agent: str, group: str, home: str, *wish: Any) -> None:
        mine = self.members.find(group, agent) or self.members.new(group, home, agent)
        if not mine.inside:
            mine.home = home  # the group may have been made again elsewhere
        mine.again, mine.asked, mine.last = mine.again and mine.inside, mine.inside, self.tx.new_id()
        self.members.change_of(mine)
        mine.wish = [*wish]
        if not self.members.states.waits_to_join(mine):
            self.members.say(agent, (home,), Join(*wish))

    def _leave(self, agent: str, group: str, home: str) -> None:
        self.members.say(agent, (home,), Leave())
        mine = self.members.find(group, agent)
        if mine is not None:
            if mine.again and not mine.inside:
                self.members.forget(mine)
            mine.again, mine.asked, mine.last = False, False, 0
            self.members.change_of(mine)

    def _cast(
        self, agent: str, entry: Entry, group: str, home: str, wire: str, payload: bytes, total: bool, asked: int
    ) -> bool | None:
        if not home:  # it was gone already
            self.members.say(self.members.id, (agent,), Returned(group, wire, payload, NOBODY))
            return True
        mine = self.members.find(group, agent)
        if total or mine is None or not mine.inside:
            if asked and self.outboxes.of[agent][asked - 1].value[1] != home:
                return False
            entry.asked = self.tx.new_id()
            self.members.say(agent, (home,), Place(wire, payload))
            return None
        member = mine.member
        if asked or member.inhibited or self._is_full(agent, group):
            return False
        cast = member.cast()
        self.members.change_of(mine)
        note = Told(group, cast.number, agent, wire, payload, cast.seq, cast.after, home=mine.home)
        send_cast(self.natives, agent, tuple(member.members), note, mine.home, 0)
        return True

    def gone(self, agent: str) -> None:
        """It was deleted: it leaves all that it is in."""
        self.outboxes.forget(agent)
        self.members.states.gone(agent)
        for mine in self.members.all():
            if mine.agent == agent and not mine.gone:
                mine.gone, mine.again = True, False
                self.members.change_of(mine)
                self.members.say(agent, (mine.home,), Leave(gone=True))
