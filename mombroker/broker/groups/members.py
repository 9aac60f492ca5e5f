"""Members: the agents of a server that are members of groups, and what they cast.

It says of each cast and each view that comes for an agent whether the agent has it now; so what an agent reacts to is
in the order of the protocol, whatever else waits in its inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgpack

from mombroker.broker.groups.group import SERVERS, Group
from mombroker.broker.groups.notes import (
    GROUP_CHARS,
    Busy,
    Flush,
    Join,
    Leave,
    Place,
    Placed,
    Prepare,
    Restored,
    State,
    Told,
    Viewed,
)
from mombroker.broker.groups.outbox import OUTBOX, Entry, Outboxes
from mombroker.broker.names import name_of
from mombroker.broker.native import Native
from mombroker.broker.wire import Note, note_of, pack
from mombroker.core import times
from mombroker.core.batch import ItemRow
from mombroker.core.errors import MomError, UnknownName, UnknownNotification
from mombroker.core.groups.bus import CASTS, JOIN, PUT, SEND, waits_for
from mombroker.core.groups.member import Member
from mombroker.core.groups.view import Cast, View
from mombroker.core.message import BOUNCE, Message, decode, new_message
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

# Collections: memberships; what waits; pages of states; where agents begin.
MEMBERS, HELD, STATE, VOID = "members", "held", "state", "void"
LAST = (1 << 62) - 1
AGAIN = times.of_seconds(0.5)


@dataclass(slots=True, eq=False)
class Brought:
    """A message for a member that has not got it. `row`: of it, 0 while it has none."""

    message: Message
    row: int = 0


@dataclass(slots=True, eq=False)
class Membership:
    """What is kept of one.

    place     of its row
    home      the agent of the group
    lacks     the view that it begins with, while it waits for the state of then; 0: it waits for none
    again     it has given that up, and joins once more when it has left
    gone      the agent was deleted
    prepared  a view that is to be flushed for, and is not yet: number, attempt, who is out
    """

    group: str
    home: str
    member: Member
    place: int
    lacks: int = 0
    again: bool = False
    gone: bool = False
    prepared: list[Any] | None = None

    def row(self, id: str) -> ItemRow:
        values = [self.group, self.home, self.lacks, self.again, self.gone, self.prepared, self.member.values()]
        return ItemRow(self.place, id, MEMBERS, 0, bytes(pack(values)), b"")

    @classmethod
    def of(cls, row: ItemRow) -> Membership:
        group, home, lacks, again, gone, prepared, values = msgpack.unpackb(row.head)
        member = Member(values[0])
        member.load(values)
        return cls(group, home, member, row.id, lacks, again, gone, prepared)


class Members(Native):
    """1. Each membership has its row when the batch closes.
    2. Who has lost or left all of a group has no membership of it.

    of        memberships, by group and agent
    changed   those whose rows are to be written
    outboxes  what agents wait to send
    states    pages of states that have come, by agent and group
    voids     by agent and group the view that the agent begins with: what is of before it is nothing to it; and a row
    busy      what the servers of members are to be told: they wait for somebody who waits
    """

    __slots__ = (
        "of",
        "changed",
        "ready",
        "outboxes",
        "states",
        "voids",
        "busy",
        "sends",
        "hand_over",
        "wake",
        "moving",
    )

    sends: Callable[[str, Any], None]  # what an agent sends to a destination, or a topic
    hand_over: Callable[[Message, str], None]  # puts a message into an agent's inbox
    wake: Callable[[str], None]  # whoever waits for this goes on
    moving: Callable[[str], bool]  # is the agent on its way to another server?

    def __init__(self, natives: Natives, sends: Callable[[str, Any], None]):
        super().__init__(natives, f"{natives.tx.name}/{SERVERS}")
        self.sends = sends
        self.of: dict[str, dict[str, Membership]] = {}
        self.changed: dict[Membership, None] = {}
        self.ready: dict[str, None] = {}  # agents whose outboxes may go on
        self.outboxes = Outboxes(self.tx, self.id)
        self.states: dict[tuple[str, str], list[ItemRow]] = {}
        self.voids: dict[tuple[str, str], tuple[int, int]] = {}
        self.busy: list[tuple[str, Busy]] = []
        natives.agents[self.id] = self
        types = natives.types
        types.entering[Told.wire] = self._cast_comes
        types.entering[Viewed.wire] = self._view_comes
        types.obey(Prepare.wire, note_of, self._prepares, at_once=False)
        types.obey(Placed.wire, note_of, self._placed, at_once=False)
        types.obey(State.wire, note_of, self._state_comes, at_once=False)
        types.obey(Busy.wire, note_of, self._gives_up, at_once=False)

    def recover(self) -> None:
        """Take up what the store holds."""
        for row in self._rows(MEMBERS):
            mine = Membership.of(row)
            self.of.setdefault(mine.group, {})[mine.member.agent] = mine
        places = {mine.place: mine for mine in self._all()}
        for row in self._rows(HELD):
            if row.key in places:
                places[row.key].member.held.append(_item(decode(row.body), row.id))
        for row in self._rows(OUTBOX):
            self.outboxes.load(row)
        for row in self._rows(STATE):
            agent, group, *_ = msgpack.unpackb(row.head)
            self.states.setdefault((agent, group), []).append(row)
        for row in self._rows(VOID):
            agent, group, number = msgpack.unpackb(row.head)
            self.voids[agent, group] = number, row.id
        if any(mine.again for mine in self._all()):
            self.alarm_at(times.after(self.tx.now, AGAIN))

    def _rows(self, collection: str) -> Iterable[ItemRow]:
        after = None
        while rows := self.tx.reader.items(self.id, collection, after, 100):
            yield from rows
            after = (rows[-1].key, rows[-1].id)

    def _all(self) -> list[Membership]:
        return [mine for those in self.of.values() for mine in those.values()]

    def _of(self, group: str, agent: str) -> Membership | None:
        return self.of.get(group, {}).get(agent)

    # -- what agents do ----------------------------------------------------------------------------------------------

    def home(self, group: str, make: bool) -> str:
        """The agent of a group, which is made if need be. Raises UnknownName until it is there, MomError."""
        if not group or len(group) > GROUP_CHARS or not group.isprintable():
            raise MomError(f"a group has a name of up to {GROUP_CHARS} printable characters, not {group[:80]!r}")
        name = name_of(f"group:{group}")
        id = self.natives.names.known.get(name)
        if id is None and make:
            self.natives.names.declare(name, Group.path, b"")
            id = self.natives.names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            raise UnknownName(name)
        return id

    def may_join(self, agent: str) -> None:
        """Raises MomError."""
        if self.moving(agent):
            raise MomError(f"{agent} is moving to another server, and joins no group before it is there")

    def waits(self, agent: str) -> bool:
        """Has it something to send that is not sent yet?"""
        return agent in self.outboxes.of

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
            return self._cast(agent, group, home, wire, payload, total, asked)
        if asked:
            return False
        if kind == SEND:
            self.natives.send(value)
        elif kind == PUT:
            self.sends(agent, value)
        elif kind == JOIN:
            self._join(agent, *value)
        else:
            self._leave(agent, *value)
        return True

    def _join(self, agent: str, group: str, home: str, needs: bool) -> None:
        mine = self._of(group, agent)
        if mine is not None:
            mine.again = mine.again and mine.member.inside
        else:
            mine = Membership(group, home, Member(agent), self.tx.new_id())
            self.of.setdefault(group, {})[agent] = mine
        self._change(mine)
        self._say(agent, (home,), Join(needs))

    def _leave(self, agent: str, group: str, home: str) -> None:
        self._say(agent, (home,), Leave())
        mine = self._of(group, agent)
        if mine is not None and mine.again:
            mine.again = False
            self._change(mine)
            if not mine.member.inside:
                self._forget(mine)

    def _forget(self, mine: Membership) -> None:
        del self.of[mine.group][mine.member.agent]
        if not self.of[mine.group]:
            del self.of[mine.group]

    def _cast(
        self, agent: str, group: str, home: str, wire: str, payload: bytes, total: bool, asked: int
    ) -> bool | None:
        mine = self._of(group, agent)
        if total or mine is None or not mine.member.inside:
            if asked and self.outboxes.of[agent][asked - 1].value[1] != home:
                return False
            self._say(agent, (home,), Place(wire, payload))
            return None
        if asked or mine.member.inhibited:
            return False
        cast = mine.member.cast()
        self._change(mine)
        note = Told(group, cast.number, agent, wire, payload, cast.seq, cast.after)
        self._say(agent, tuple(mine.member.members), note, 0)
        return True

    def _say(self, agent: str, to: tuple[str, ...], note: Note, flags: int = BOUNCE) -> None:
        self.natives.send(new_message(self.tx, agent, to, note.wire, note.pack(), flags=flags))

    def give(self, agent: str, group: str, number: int, to: list[str], state: bytes) -> None:
        """A member gives its state, in pages."""
        size = max(1, self.tx.limits.max_message // 2)
        pages = [state[at : at + size] for at in range(0, max(1, len(state)), size)]
        servers = dict.fromkeys(self.natives.names.homes.home(each) for each in to)
        dests = tuple(f"{server}/{SERVERS}" for server in servers if server in self.tx.topology.servers)
        for at, page in enumerate(pages):
            if dests:
                self._say(agent, dests, State(group, number, to, page, at, at == len(pages) - 1))

    def meets(self, agent: str, message: Message) -> bool:
        """A cast or view in its turn. False if it is of before the view that the agent begins with. Raises UnknownName
        for a view that the agent needs a state for, until that is there."""
        try:
            note = note_of(message)
        except UnknownNotification:  # the agent will say so
            return True
        key = agent, note.group
        if key in self.voids:
            if note.number < self.voids[key][0]:
                return False
            self._forget_void(*key)
        mine = self._of(note.group, agent)
        begins = type(note) is Viewed and mine is not None and mine.lacks == note.number
        if begins and self.state(agent, note.group, note.number) is None:
            raise UnknownName(_awaited(note.group))
        return True

    def state(self, agent: str, group: str, number: int) -> bytes | None:
        """The state that has come for a member, as of the beginning of this view."""
        pages: list[bytes] = []
        for row in self.states.get((agent, group), ()):
            _, _, of, at, last = msgpack.unpackb(row.head)
            if of == number and at == len(pages):
                pages.append(row.body)
                if last:
                    return b"".join(pages)
        return None

    def restored(self, agent: str, group: str) -> None:
        """It has its state."""
        mine = self._of(group, agent)
        if mine is not None and mine.lacks:
            mine.lacks = 0
            self._change(mine)
            self._say(agent, (mine.home,), Restored())
        self._forget_state(agent, group)

    def _forget_state(self, agent: str, group: str) -> None:
        for row in self.states.pop((agent, group), ()):
            self.tx.rows.items[row.id] = None
            self.tx.urgency = COMMIT

    def gone(self, agent: str) -> None:
        """It was deleted: it leaves all that it is in."""
        self.outboxes.forget(agent)
        for mine in self._all():
            if mine.member.agent == agent and not mine.gone:
                mine.gone, mine.again = True, False
                self._change(mine)
                self._say(agent, (mine.home,), Leave(gone=True))

    def has(self, agent: str) -> list[str]:
        """The groups that it is in, or is to be."""
        return [group for group, those in self.of.items() if agent in those]

    # -- what comes for members --------------------------------------------------------------------------------------

    def _cast_comes(self, message: Message, agent: str) -> bool:
        try:
            note: Told = note_of(message)
        except UnknownNotification:  # the agent will say so
            return True
        if not note.seq and note.sender == agent:
            self.outboxes.placed(agent)
            self._go_on(agent)
        return self._offer(message, agent, note.group)

    def _view_comes(self, message: Message, agent: str) -> bool:
        try:
            note: Viewed = note_of(message)
        except UnknownNotification:
            return True
        mine = self._of(note.group, agent)
        if mine is None and agent not in note.members:
            self._drop(message, agent)
            return False
        if mine is None:
            mine = Membership(note.group, message.source, Member(agent), self.tx.new_id())
            self.of.setdefault(note.group, {})[agent] = mine
        return self._offer(message, agent, note.group)

    def _offer(self, message: Message, agent: str, group: str) -> bool:
        """A cast or view has come for a member. True if it has it now, and nothing else."""
        mine = self._of(group, agent)
        if mine is None:
            self._drop(message, agent)
            return False
        self._change(mine)
        item = _item(message, 0)
        done, refused = mine.member.offer(item)
        for each in [*done, *refused]:
            if each.of.row:
                self.tx.rows.items[each.of.row] = None
        for each in refused:
            self._drop(each.of.message, agent)
        alone = done == [item] and not mine.gone
        for each in done:
            if not alone:
                self._hand_over(mine, each)
            if type(each) is View:
                self._begins(mine, each)
        if item in mine.member.held:
            data = message.copy_for(agent) + message.payload
            item.of.row = self.tx.new_id()
            self.tx.rows.items[item.of.row] = ItemRow(item.of.row, self.id, HELD, mine.place, b"", data)
        elif not done and not refused:
            self._drop(message, agent)
        return alone

    def _hand_over(self, mine: Membership, item: Cast | View) -> None:
        if mine.gone:
            self._drop(item.of.message, mine.member.agent)
        else:
            self.hand_over(item.of.message, mine.member.agent)

    def _begins(self, mine: Membership, view: View) -> None:
        """A view has come into a member's inbox."""
        agent = mine.member.agent
        if agent not in view.members:
            if mine.lacks and not mine.again:
                self._void(agent, mine.group, view.number)
            self._forget(mine)
            if mine.again:  # it has left, and joins after a while
                new = Membership(mine.group, mine.home, Member(agent), self.tx.new_id(), again=True)
                self.of.setdefault(mine.group, {})[agent] = new
                self._change(new)
                self.alarm_at(times.after(self.tx.now, AGAIN))
        else:
            if (agent in view.joined and self._begin(agent, mine.group) == LAST) or (
                mine.lacks and agent in view.lacking and not mine.again  # what it has waited for does not come
            ):
                self._void(agent, mine.group, view.number)
            if agent in view.lacking:
                mine.lacks = view.number if view.giver not in ("", agent) else 0
            if view.giver == agent and any(each.lacks for each in self._all() if each.member.agent == agent):
                self.busy += [(each, Busy(mine.group, view.number, [each])) for each in view.lacking if each > agent]
        self._flush_for(mine.group)
        self._go_on(agent)

    # -- who waits for a state -----------------------------------------------------------------------------------------

    def _begin(self, agent: str, group: str) -> int:
        """The view that it begins with; 0: it has begun."""
        return self.voids.get((agent, group), (0, 0))[0]

    def _void(self, agent: str, group: str, number: int) -> None:
        """All that is of before this view is nothing to it."""
        _, place = self.voids.get((agent, group), (0, 0))
        place = place or self.tx.new_id()
        self.voids[agent, group] = number, place
        self.tx.rows.items[place] = ItemRow(place, self.id, VOID, 0, bytes(pack([agent, group, number])), b"")
        self._forget_state(agent, group)
        self.wake(_awaited(group))

    def _forget_void(self, agent: str, group: str) -> None:
        _, place = self.voids.pop((agent, group))
        self.tx.rows.items[place] = None

    def _gives_up(self, message: Message) -> None:
        """Waits in a circle would never end: one that waits for another one that waits does so only in the order of
        their ids, and else tries again."""
        note: Busy = note_of(message)
        for agent in note.to:
            mine = self._of(note.group, agent)
            if mine is not None and mine.lacks == note.number and not mine.again and not mine.gone:
                mine.again = True
                self._change(mine)
                self._void(agent, note.group, LAST)
                self._say(agent, (mine.home,), Leave())

    def alarm(self) -> None:
        for mine in self._all():
            if mine.again and not mine.member.inside:
                mine.again = False
                self._change(mine)
                self._say(mine.member.agent, (mine.home,), Join(True))

    def _drop(self, message: Message, agent: str) -> None:
        tx = self.tx
        tx.record(
            "drop", origin=message.origin, number=message.number, agent=agent, payload=message.size,
            sent=message.sent, done=tx.now, detail="not of its view",
        )  # fmt: skip

    # -- what the home asks for --------------------------------------------------------------------------------------

    def _prepares(self, message: Message) -> None:
        note: Prepare = note_of(message)
        for mine in self._all():
            if mine.home == message.source:
                mine.prepared = [note.number, note.attempt, note.out]
                self._change(mine)
        self._flush(message.source, note.number, note.attempt, note.out)

    def _flush_for(self, group: str) -> None:
        """A view that was waited for before a FLUSH is there."""
        for mine in list(self.of.get(group, {}).values()):
            if mine.prepared is not None:
                self._flush(mine.home, *mine.prepared)

    def _flush(self, home: str, number: int, attempt: int, out: list[str]) -> None:
        """Tell the home, once all members here are where they must be."""
        ours = [
            each for each in self._all() if each.home == home and each.member.inside and each.member.agent not in out
        ]
        casts: dict[str, int] = {}
        for mine in ours:
            told = mine.member.prepare(number, out)
            if told is None:
                return
            for agent, count in told.items():
                casts[agent] = max(count, casts.get(agent, 0))
        for mine in ours:
            mine.prepared = None
            self._change(mine)
        self.natives.post(self.id, home, Flush(number, attempt, casts))

    def _placed(self, message: Message) -> None:
        note: Placed = note_of(message)
        self.outboxes.placed(note.agent)
        self._go_on(note.agent)

    def _state_comes(self, message: Message) -> None:
        note: State = note_of(message)
        for agent in note.to:
            mine = self._of(note.group, agent)
            if mine is None or mine.gone or mine.again or mine.lacks != note.number:
                continue
            head: bytes = pack([agent, note.group, note.number, note.at, note.last])
            row = ItemRow(self.tx.new_id(), self.id, STATE, 0, head, note.page)
            self.states.setdefault((agent, note.group), []).append(row)
            self.tx.rows.items[row.id] = row
            self.tx.rows.bytes += len(note.page)
            self.tx.urgency = COMMIT
            if note.last:
                self.wake(_awaited(note.group))

    # -- the end of a turn -------------------------------------------------------------------------------------------

    def _go_on(self, agent: str) -> None:
        """Its outbox goes on, when the reactions at hand are done."""
        if agent in self.outboxes.of:
            self.ready[agent] = None
            self.touch()

    def _change(self, mine: Membership) -> None:
        self.changed[mine] = None
        self.touch()

    def flush(self) -> None:
        ready, self.ready = self.ready, {}
        busy, self.busy = self.busy, []
        for agent, note in busy:
            self.natives.post(self.id, f"{self.natives.names.homes.home(agent)}/{SERVERS}", note)
        for agent in ready:
            if agent in self.outboxes.of and self.outboxes.run(agent, self._do):
                self.wake(waits_for(agent))
        for mine in self.changed:
            there = self._of(mine.group, mine.member.agent) is mine
            self.tx.rows.items[mine.place] = mine.row(self.id) if there else None
        if self.changed or ready:
            self.tx.urgency = COMMIT
        self.changed.clear()

    def check(self) -> None:
        self.outboxes.check(self.ready)
        for mine in self._all():
            mine.member.check()
            if mine not in self.changed:
                assert self.tx.written("items", mine.place) == mine.row(self.id), "1: a membership has another row"


def _awaited(group: str) -> str:
    return f"state of group {group}"


def _item(message: Message, row: int) -> Cast | View:
    """Raises UnknownNotification."""
    note = note_of(message)
    of = Brought(message, row)
    if type(note) is Told:
        return Cast(note.number, note.sender, note.seq, note.after, of)
    assert type(note) is Viewed, "only casts and views are for members"
    return View(note.number, note.members, note.joined, note.left, note.giver, note.lacking, note.cut, of)
