"""Members: the agents of a server that are members of groups, and what they cast.

It says of each cast and each view that comes for an agent whether the agent has it now; so what an agent reacts to is
in the order of the protocol, whatever else waits in its inbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from mombroker.broker.groups.copies import COPIES, Copies, acks_every
from mombroker.broker.groups.group import SERVERS
from mombroker.broker.groups.membership import MEMBERS, Membership, item_of
from mombroker.broker.groups.notes import (
    Ack,
    Ended,
    Flush,
    Here,
    Leave,
    Placed,
    Prepare,
    Probe,
    Returned,
    Stable,
    Told,
    Viewed,
)
from mombroker.broker.groups.outbox import OUTBOX, Outboxes
from mombroker.broker.groups.states import States
from mombroker.broker.names import name_of
from mombroker.broker.native import Native
from mombroker.broker.shapes import LAST
from mombroker.broker.wire import Note, note_of
from mombroker.core.batch import ItemRow
from mombroker.core.errors import UnknownNotification
from mombroker.core.groups.bus import CASTS, REFUSED, waits_for
from mombroker.core.groups.member import Member
from mombroker.core.groups.view import Cast, View
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, Message, decode, new_message
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

HELD = "held"  # the collection of what waits for its turn
LATE, LOST = (
    "its sender was out of the view: no member of the next one has it",
    "the home of the group is lost: who has it is unknown",
)


class Members(Native):
    """1. Each membership has its row when the batch closes.
    2. Casts of our agents in a group that goes beyond this server are in `copies` until they are stable.
    3. Who has come into a view, and waits for no state, is settled.

    of          memberships, by group and agent
    changed     those whose rows are to be written
    ready       agents whose outboxes may go on
    outboxes    what agents wait to send, and `run` does it
    states      what members give each other
    unacked     casts that have come since the home was told, by group; nothing: none were told since the start
    """

    __slots__ = (
        "of", "changed", "ready", "outboxes", "run", "states", "copies", "unacked", "hand_over", "wake",
        "emptied",
    )  # fmt: skip

    run: Callable[[str], bool]  # True if nothing is left of an agent's outbox
    hand_over: Callable[[Message, str], None]  # puts a message into an agent's inbox
    wake: Callable[[str], None]  # whoever waits for this goes on
    emptied: Callable[[str], None]  # called with who has nothing in its outbox any more

    def __init__(self, natives: Natives):
        super().__init__(natives, f"{natives.tx.name}/{SERVERS}")
        self.of: dict[str, dict[str, Membership]] = {}
        self.changed: dict[Membership, None] = {}
        self.ready: dict[str, None] = {}
        self.outboxes = Outboxes(self.tx, self.id)
        self.states = States(natives, self)
        self.copies = Copies(self.tx, self.id)
        self.unacked: dict[str, int] = {}
        natives.add(self)
        types = natives.types
        types.entering[Told.wire] = self._cast_comes
        types.entering[Viewed.wire] = self._view_comes
        for kind, obey in (
            (Prepare, self._prepares), (Placed, self._placed), (Probe, self._probed),
            (Stable, self._stable), (Ended, self._ended),
        ):  # fmt: skip
            types.obey(kind.wire, note_of, obey, at_once=False)

    def recover(self) -> None:
        """Take up what the store holds."""
        for row in self._rows(MEMBERS):
            mine = Membership.of(row)
            self.of.setdefault(mine.group, {})[mine.agent] = mine
        places = {mine.place: mine for mine in self.all()}
        for row in self._rows(HELD):
            if row.key in places:
                places[row.key].member.held.append(item_of(decode(row.body), row.id))
        loads = {OUTBOX: self.outboxes.load, COPIES: self.copies.load, **self.states.loads()}
        for name, load in loads.items():
            for row in self._rows(name):
                load(row)
        for mine in self.all():  # an older program has kept what is doubtful
            self._deliver(mine, *mine.member.go_on())
        for agent in self.outboxes.of:  # what they have waited for may have been in memory
            self.goes_on(agent)
        self.states.recovered()

    def _rows(self, collection: str) -> Iterable[ItemRow]:
        after = None
        while rows := self.tx.reader.items(self.id, collection, after, 100):
            yield from rows
            after = (rows[-1].key, rows[-1].id)

    def all(self) -> list[Membership]:
        return [mine for those in self.of.values() for mine in those.values()]

    def find(self, group: str, agent: str) -> Membership | None:
        return self.of.get(group, {}).get(agent)

    def add(self, mine: Membership) -> Membership:
        self.of.setdefault(mine.group, {})[mine.agent] = mine
        self.change_of(mine)
        return mine

    def new(self, group: str, home: str, agent: str) -> Membership:
        return self.add(Membership(group, home, Member(agent), self.tx.new_id()))

    def forget(self, mine: Membership) -> None:
        for item in mine.member.held:
            self.tx.rows.items[item.of.row] = None
            self._drop(item.of.message, mine.agent)
        del self.of[mine.group][mine.agent]
        if not self.of[mine.group]:
            del self.of[mine.group]
            self.unacked.pop(mine.group, None)
        self.change_of(mine)

    def change_of(self, mine: Membership) -> None:
        self.changed[mine] = None
        self.touch()

    def say(self, agent: str, to: tuple[str, ...], note: Note, flags: int = BOUNCE) -> None:
        """An agent sends a note."""
        if to:
            self.natives.send(new_message(self.tx, agent, to, note.wire, note.pack(), flags=flags))

    def servers(self, agents: Iterable[str]) -> tuple[str, ...]:
        """Who has the members of their servers."""
        home, there = self.natives.names.homes.home, self.tx.topology.servers
        found = dict.fromkeys(home(agent) for agent in agents)
        return tuple(f"{server}/{SERVERS}" for server in found if server in there)

    def goes_on(self, agent: str) -> None:
        """Its outbox goes on, when the reactions at hand are done."""
        if agent in self.outboxes.of:
            self.ready[agent] = None
            self.touch()

    def _emptied(self, agent: str) -> None:
        self.wake(waits_for(agent))
        self.emptied(agent)

    # -- what comes for members --------------------------------------------------------------------------------------

    def _cast_comes(self, message: Message, agent: str) -> bool:
        try:
            note: Told = note_of(message)
        except UnknownNotification:  # the agent will say so
            return True
        return self._offer(message, agent, note.group, note.home if note.seq else message.source)

    def _view_comes(self, message: Message, agent: str) -> bool:
        try:
            note: Viewed = note_of(message)
        except UnknownNotification:
            return True
        if message.source == self.id:  # the group has ended
            self.wake(name_of(f"group:{note.group}"))  # it may wait for a group that is no more
            return True
        mine = self.find(note.group, agent)
        if agent in note.joined and mine is not None and mine.inside:  # it was out, and has not been told
            self._end(mine)
            wish, mine = mine.wish, self.new(note.group, message.source, agent)
            mine.wish = wish
        if agent in note.joined and mine is not None:
            mine.home = message.source  # that of the former group of this name was perhaps another one
        if mine is None and agent in note.members:  # it has changed its mind more than once, is cut off, or is no more
            joins = agent in note.joined and self.tx.written("agents", agent) is not None
            if joins:
                self.new(note.group, message.source, agent)
            if not joins or home_of(message.source) not in self.tx.topology.servers:
                self.say(agent, (message.source,), Leave(gone=not joins))
        return self._offer(message, agent, note.group, message.source)

    def _offer(self, message: Message, agent: str, group: str, home: str) -> bool:
        """A cast or view has come for a member. True if it has it now, and nothing else. One of a former group of this
        name, which has lived elsewhere, may have the number of a view of this one."""
        mine, item = self.find(group, agent), item_of(message, 0)
        if mine is None or (mine.inside and home not in ("", mine.home)):
            self._has_place(agent, item)
            self._drop(message, agent)
            return False
        self.change_of(mine)
        done, refused = mine.member.offer(item)
        alone = done == [item] and not mine.gone
        self._deliver(mine, done, refused, alone)
        if item in mine.member.held:
            data = message.copy_for(agent) + message.payload
            item.of.row = self.tx.new_id()
            self.tx.rows.items[item.of.row] = ItemRow(item.of.row, self.id, HELD, mine.place, b"", data)
        elif not done and not refused:
            self._drop(message, agent)
        return alone

    def _deliver(
        self, mine: Membership, done: list[Cast | View], refused: list[Cast | View], alone: bool = False
    ) -> None:
        """`alone`: the agent gets it anyway."""
        for each in [*done, *refused]:
            if each.of.row:
                self.tx.rows.items[each.of.row] = None
            self._has_place(mine.agent, each)
        for each in refused:
            self._drop(each.of.message, mine.agent)
        doubts = self.states.doubts
        for each in done:
            if type(each) is Cast and each.behind >= 0:
                doubts.begin(mine.agent, mine.group, each.number, each.sender, each.behind)
            if not alone:
                self._hand_over(mine, each)
            if type(each) is View:
                doubts.decide(mine.agent, mine.group, each.number, each.cut)
                self._begins(mine, each)
            elif type(each) is Cast and each.seq:
                self._keep(mine, each)

    def _has_place(self, agent: str, item: Cast | View) -> None:
        """One of its own in total order is no longer under way. While it is held, that may be for what is lost."""
        if type(item) is Cast and not item.seq and item.sender == agent:
            self.outboxes.placed(agent, note_of(item.of.message).asked or LAST)
            self.goes_on(agent)

    def _hand_over(self, mine: Membership, item: Cast | View) -> None:
        if mine.gone:
            self._drop(item.of.message, mine.agent)
        else:
            self.hand_over(item.of.message, mine.agent)

    def _begins(self, mine: Membership, view: View) -> None:
        """A view has come into a member's inbox."""
        agent, group, message = mine.agent, mine.group, view.of.message
        shown = {"group": group, "number": view.number, "members": view.members}
        shown["home"] = "" if message.source == self.id else message.source
        self.tx.record(
            "view", origin=message.origin, number=message.number, agent=agent, sent=message.sent, done=self.tx.now,
            detail=json.dumps(shown),
        )  # fmt: skip
        if agent not in view.members:
            self.wake(name_of(f"group:{group}"))
            self._returns(mine, view)
            self.states.out(mine, view.number)
            self.forget(mine)
            if mine.hears_more(view):
                new = self.new(group, mine.home, agent)
                new.wish, new.last = mine.wish, mine.last
            if mine.again:  # it has left, and joins after a while
                new = Membership(group, mine.home, Member(agent), self.tx.new_id(), tries=mine.tries, again=True)
                new.wish = mine.wish
                self.add(new)
                self.states.later(new)
        else:
            self.states.viewed(mine, view)
        self.copies.forget(group, agent)
        self._flush_for(group)
        self.goes_on(agent)

    def _returns(self, mine: Membership, view: View) -> None:
        """It was out of the view, and has cast what nobody else has."""
        agent = mine.agent
        for payload in self.copies.behind(mine.group, agent, view.cut.get(agent, 0)):
            self.give_back(agent, payload, LATE)

    def give_back(self, agent: str, payload: bytes, reason: str) -> None:
        """Tell an agent that a cast of its own was not delivered."""
        note = Told.unpack(payload)
        self.say(self.id, (agent,), Returned(note.group, note.type, note.payload, reason))

    def _drop(self, message: Message, agent: str) -> None:
        tx = self.tx
        tx.record(
            "drop", origin=message.origin, number=message.number, agent=agent, payload=message.size,
            sent=message.sent, done=tx.now, detail=REFUSED,
        )  # fmt: skip

    # -- copies ------------------------------------------------------------------------------------------------------

    def _keep(self, mine: Membership, cast: Cast) -> None:
        """A cast is delivered of a group that goes beyond this server, or that somebody is put out of: its sender may
        get it back."""
        group, those = mine.group, self.of.get(mine.group, {})
        here = all(each in those for each in mine.member.members)
        if here and not any(each.member.barred for each in those.values()):
            return
        if mine.agent == cast.sender:
            self.copies.add(group, cast.sender, cast.seq, cast.of.message.payload)
        there = [each.member for each in those.values() if each.member.number == cast.number]
        if all(each.had.get(cast.sender, 0) >= cast.seq for each in there):  # all members of this server have it
            every = acks_every(self.tx)
            count = self.unacked[group] = self.unacked.get(group, every) + 1
            if count >= every:
                self._ack(mine)

    def _ack(self, mine: Membership) -> None:
        """Tell the home of a group how many casts of its members have come here."""
        self.unacked[mine.group] = 0
        number, those = mine.member.number, self.of[mine.group].values()
        there = [each.member for each in those if each.member.number == number]
        had = {each: min(one.had.get(each, 0) for one in there) for each in mine.member.members}
        self.natives.post(self.id, mine.home, Ack(number, had))

    def _stable(self, message: Message) -> None:
        note: Stable = note_of(message)
        view = message.source, note.number
        there = [mine for mine in self.of.get(note.group, {}).values() if (mine.home, mine.member.number) == view]
        if there and not note.casts:
            self._ack(there[0])
        for mine in there:
            self.copies.stable(note.group, mine.agent, note.casts.get(mine.agent, 0))
            self.goes_on(mine.agent)

    def lost(self, servers: set[str]) -> None:
        """What was under way between these servers and us may be lost: a group whose home is there is over for us. Of
        the others their homes know who is out."""
        for mine in self.all():
            if home_of(mine.home) in servers:
                self._end(mine)
        for agent, entries in list(self.outboxes.of.items()):
            for entry in list(entries):
                if entry.kind == CASTS and entry.value[1] and home_of(entry.value[1]) in servers:
                    group, _, wire, payload, _ = entry.value
                    self.say(self.id, (agent,), Returned(group, wire, payload, LOST))
                    self.outboxes.remove(agent, entry)
            self.goes_on(agent)

    def _end(self, mine: Membership) -> None:
        """The group of a member is gone: there is no view any more."""
        agent, member = mine.agent, mine.member
        for payload in self.copies.behind(mine.group, agent, 0):
            self.give_back(agent, payload, LOST)
        self.states.doubts.decide(agent, mine.group, member.number + 1, {})
        self.states.out(mine, member.number + 1, ended=True)
        self.forget(mine)
        self.copies.forget(mine.group, agent)
        if not mine.gone:
            self.say(self.id, (agent,), Viewed(mine.group, member.number + 1, [], [], member.members))
        self.goes_on(agent)

    def _ended(self, message: Message) -> None:
        """A group to which an agent has said something is not there."""
        note: Ended = note_of(message)
        for mine in self.all():
            if (mine.home, mine.agent) != (note.home, note.agent) or 0 < note.number < mine.last:
                continue  # it has asked to join since then, and will hear of that
            if not note.view or (mine.inside and mine.member.number <= note.view):
                self._end(mine)
        if note.asked and (entry := self.outboxes.placed(note.agent, note.number or LAST)) is not None:
            group, _, wire, payload, _ = entry.value
            self.say(self.id, (note.agent,), Returned(group, wire, payload, LOST))
            self.goes_on(note.agent)

    # -- what the home asks for --------------------------------------------------------------------------------------

    def _prepares(self, message: Message) -> None:
        note: Prepare = note_of(message)
        for mine in self.all():
            if mine.home == message.source:
                if mine.agent in self.ready and self.run(mine.agent):  # what has waited for this view goes first
                    self._emptied(mine.agent)
                mine.prepared = [note.number, note.attempt, note.out]
                self.change_of(mine)
        self._flush(message.source, note.number, note.attempt, note.out)

    def _flush_for(self, group: str) -> None:
        """A view that was waited for before a FLUSH is there."""
        for mine in list(self.of.get(group, {}).values()):
            if mine.prepared is not None:
                self._flush(mine.home, *mine.prepared)

    def _flush(self, home: str, number: int, attempt: int, out: list[str]) -> None:
        """Tell the home, once all members here are where they must be."""
        ours = [each for each in self.all() if each.home == home and each.inside and each.agent not in out]
        casts: dict[str, int] = {}
        for mine in ours:
            told = mine.member.prepare(number, out)
            if told is None:
                return
            for agent, count in told.items():
                casts[agent] = max(count, casts.get(agent, 0))
        for mine in ours:
            mine.prepared = None
            self.change_of(mine)
        self.natives.post(self.id, home, Flush(number, attempt, casts))

    def _probed(self, message: Message) -> None:
        self.natives.post(self.id, message.source, Here())

    def _placed(self, message: Message) -> None:
        note: Placed = note_of(message)
        self.outboxes.placed(note.agent, note.number or LAST)
        self.goes_on(note.agent)

    def alarm(self) -> None:
        self.states.alarm()

    # -- the end of a turn -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        ready, self.ready = self.ready, {}
        for agent in ready:
            if agent in self.outboxes.of and self.run(agent):
                self._emptied(agent)
        if self.states.step():
            self.turns.soon[self] = None
        for mine in self.changed:
            there = self.find(mine.group, mine.agent) is mine
            self.tx.rows.items[mine.place] = mine.row(self.id) if there else None
        if self.changed or ready:
            self.tx.urgency = COMMIT
        self.changed.clear()

    def check(self) -> None:
        self.outboxes.check(self.ready)
        self.copies.check()
        self.states.check()
        for mine in self.all():
            mine.member.check()
            assert mine.settled == (mine.member.number > 0 and not mine.lacks), "3: it is told otherwise who is settled"
            if mine not in self.changed:
                assert self.tx.written("items", mine.place) == mine.row(self.id), "1: a membership has another row"
