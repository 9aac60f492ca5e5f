"""States: what members give new ones, and what new ones wait for. Who waits for it reacts to nothing from its first
view on; members that would wait for each other in a circle give up, in the order of their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from mombroker.broker.groups.beginnings import NEVER, VOID, Beginnings
from mombroker.broker.groups.comings import STATE, Comings
from mombroker.broker.groups.doubts import DOUBTS, Doubts
from mombroker.broker.groups.gives import GIVES, Gives
from mombroker.broker.groups.membership import Membership
from mombroker.broker.groups.notes import ALL, Busy, Got, Join, Leave, Restored, State, Viewed
from mombroker.broker.wire import Note, note_of
from mombroker.core import times
from mombroker.core.batch import ItemRow
from mombroker.core.errors import UnknownName, UnknownNotification
from mombroker.core.groups.bus import awaited
from mombroker.core.groups.view import VIEW, View
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.table import Table

AGAIN = times.of_seconds(0.5)


class Around(Protocol):
    """What it needs of the members of its server."""

    id: str

    def all(self) -> list[Membership]: ...
    def find(self, group: str, agent: str) -> Membership | None: ...
    def change_of(self, mine: Membership) -> None: ...
    def say(self, agent: str, to: tuple[str, ...], note: Note) -> None: ...
    def servers(self, agents: Iterable[str]) -> tuple[str, ...]: ...
    def touch(self) -> None: ...
    def alarm_at(self, at: int) -> None: ...


class States:
    """beginnings  where new members begin
    gives       tables that our agents give to new members
    comings     states that come for ours
    doubts      casts that our agents wait with
    busy        what the servers of members are to be told: they wait for somebody who waits
    inbox       what an agent is still to react to
    """

    inbox: Callable[[str], Iterable[Message]]

    __slots__ = ("natives", "tx", "members", "beginnings", "gives", "comings", "doubts", "busy", "inbox")

    def __init__(self, natives: Natives, members: Around):
        self.natives, self.tx, self.members = natives, natives.tx, members
        self.gives = Gives(natives, members.id, members.say, members.servers, self._home)
        self.comings = Comings(natives, members.id)
        self.beginnings = Beginnings(self.tx, members.id, self.comings)
        self.doubts = Doubts(self.tx, members.id)
        self.busy: list[tuple[str, Busy]] = []
        for kind, obey in ((State, self.comes), (Got, self.got), (Busy, self.gives_up)):
            natives.types.obey(kind.wire, note_of, obey, at_once=False)

    def bind(
        self, wake: Callable[[str], None], rows: Callable[[str, str], Table | None],
        inbox: Callable[[str], Iterable[Message]],
    ) -> None:  # fmt: skip
        """After `wake` whoever waits for this goes on; `rows` is a table of an agent."""
        self.inbox = inbox
        self.beginnings.wake = self.comings.wake = self.doubts.wake = wake
        self.comings.rows = self.gives.rows = rows

    def loads(self) -> dict[str, Callable[[ItemRow], None]]:
        """What takes up the rows of a collection."""
        return {GIVES: self.gives.load, STATE: self.comings.load, VOID: self.beginnings.load, DOUBTS: self.doubts.load}

    def _home(self, agent: str, group: str) -> str:
        mine = self.members.find(group, agent)
        return mine.home if mine is not None else ""

    def recovered(self) -> None:
        if any(mine.again for mine in self.members.all()):
            self.members.alarm_at(times.after(self.tx.now, AGAIN))
        self.members.touch()

    # -- for agents --------------------------------------------------------------------------------------------------

    def meets(self, agent: str, message: Message) -> bool:
        """A cast or view in its turn. False if it is of before the view that the agent begins with, or a cast of none.
        Raises UnknownName for a view that the agent needs a state for, until that is there, and for a cast that is
        doubtful."""
        try:
            note = note_of(message)
        except UnknownNotification:  # the agent will say so
            return True
        if type(note) is Viewed:
            self.doubts.passed(agent, note.group, note.number)
        elif not self.doubts.belongs(agent, note):
            return False
        if self.beginnings.is_void(agent, note.group, note.number):
            return False
        mine = self.members.find(note.group, agent)
        lacks, key = mine is not None and mine.lacks == note.number, (agent, note.group, note.number)
        if type(note) is Viewed and (lacks or self.comings.is_begun(key)) and not self.comings.begins(key):
            self.members.touch()
            raise UnknownName(awaited(note.group))
        return True

    def ahead(self, agent: str, group: str) -> Iterator[tuple[str, Viewed]]:
        """The views of a group that an agent has not come to yet, each with who says so."""
        for message in self.inbox(agent):
            if message.type == VIEW:
                with suppress(UnknownNotification):  # the agent will say so
                    note: Viewed = note_of(message)
                    if note.group == group:
                        yield message.source, note

    def state(self, agent: str, group: str, number: int) -> bytes | None:
        """The state that has come for a member, as of the beginning of this view."""
        return self.comings.state((agent, group, number))

    def restored(self, agent: str, group: str, number: int) -> None:
        """It has its state."""
        mine = self.members.find(group, agent)
        if mine is not None and mine.lacks == number:
            mine.lacks, mine.settled = 0, True
            self.members.change_of(mine)
            self.members.say(agent, (mine.home,), Restored(number))
        self.comings.forget(agent, group, number)
        self.members.touch()

    def give(
        self, agent: str, group: str, number: int, to: list[str], state: bytes, tables: list[str]
    ) -> None:  # fmt: skip
        """A member gives its state, in pages. Those of tables follow when there is room for them."""
        mine = self.members.find(group, agent)
        if mine is None or not mine.inside:  # it is out of a later view
            return
        if mine.member.number > number:
            to = [each for each in to if each in mine.member.members]
        if not to:
            return
        size = max(1, self.tx.limits.max_message // 2)
        pages = [state[at : at + size] for at in range(0, max(1, len(state)), size)]
        give = self.gives.begin(agent, group, number, to, tables, len(pages)) if tables else 0
        for at, page in enumerate(pages):
            last = not give and at == len(pages) - 1
            note = State(group, number, to, page, at, last, give, home=mine.home)
            self.members.say(agent, self.members.servers(to), note)
        self.members.touch()

    def gone(self, agent: str) -> None:
        """It was deleted."""
        self.gives.ended(agent)
        self.comings.forget(agent)
        self.doubts.gone(agent)
        self.members.touch()

    # -- for its server ----------------------------------------------------------------------------------------------

    def viewed(self, mine: Membership, view: View) -> None:
        """A view that a member is in has come into its inbox."""
        agent, group = mine.agent, mine.group
        self.gives.viewed(agent, group, view.number, view.members, view.lacking)
        if agent in view.lacking and self._keeps(mine, view):
            self.members.say(agent, (mine.home,), Restored(view.number))
            return
        if (agent in view.joined and self.beginnings.waits(agent, group)) or (
            mine.lacks and agent in view.lacking and not mine.again  # what it has waited for does not come
        ):
            self.beginnings.begin(agent, group, mine.lacks or view.number, view.number)
        mine.again = mine.again and agent not in view.joined
        if agent in view.lacking:
            mine.lacks = view.number if view.giver not in ("", agent) else 0
        mine.settled = not mine.lacks
        if view.giver == agent and any(each.lacks for each in self.members.all() if each.agent == agent):
            self.busy += [(each, Busy(group, view.number, [each], mine.home)) for each in view.lacking if each > agent]

    def _keeps(self, mine: Membership, view: View) -> bool:
        """It has a state, or all of one, which its home has not heard, and another one is to give it the same: it goes
        on with its own. If it waited, and that one was out, too, it would miss the views that come meanwhile."""
        own = mine.settled or self.comings.is_begun((mine.agent, mine.group, mine.lacks))
        return own and not mine.gone and view.giver not in view.lacking

    def out(self, mine: Membership, number: int, ended: bool = False) -> None:
        """A member is none any more, from this view on. `ended`: the group is gone for it."""
        self.gives.ended(mine.agent, mine.group)
        if mine.lacks and (ended or not mine.again):
            self.beginnings.begin(mine.agent, mine.group, mine.lacks, number)

    def comes(self, message: Message) -> None:
        """A page of a state."""
        note: State = note_of(message)
        home = self.natives.names.homes.home
        for agent in note.to:
            if home(agent) != self.tx.name:
                continue
            mine = self.members.find(note.group, agent)
            wanted = (
                mine is not None and not (mine.gone or mine.again) and mine.lacks == note.number
                and note.home in ("", mine.home)
            )  # fmt: skip
            if wanted:
                self.comings.page(agent, note)
            if note.give:
                for server in self.members.servers([message.source]):
                    self.natives.post(self.members.id, server, Got(note.give, agent, note.at + 1 if wanted else ALL))

    def got(self, message: Message) -> None:
        note: Got = note_of(message)
        self.gives.got(note.give, note.agent, note.pages)
        self.members.touch()

    def gives_up(self, message: Message) -> None:
        """Waits in a circle would never end: one that waits for another one that waits does so only in the order of
        their ids, and else tries again."""
        note: Busy = note_of(message)
        for agent in note.to:
            mine = self.members.find(note.group, agent)
            if mine is None or self.comings.is_begun((agent, note.group, note.number)):
                continue
            if mine.lacks == note.number and note.home in ("", mine.home):
                self._gives_up(mine)

    def _gives_up(self, mine: Membership) -> None:
        """It comes to no view of this stay, and gives nothing in any."""
        if not mine.again and not mine.gone:
            mine.again, mine.tries = True, mine.tries + 1
            self.members.change_of(mine)
            self.beginnings.begin(mine.agent, mine.group, mine.lacks, NEVER)
            self.members.say(mine.agent, (mine.home,), Leave(gone=True))

    def failed(self, agent: str, message: Message) -> None:
        """A member's reaction to a view has come to nothing, and so has what it was to give in it, or to begin with:
        who waits for that tries again."""
        try:
            note = note_of(message)
        except UnknownNotification:
            return
        if type(note) is not Viewed:
            return
        if note.giver == agent:
            others = [each for each in note.lacking if each != agent]
            self.busy += [(each, Busy(note.group, note.number, [each], message.source)) for each in others]
        mine = self.members.find(note.group, agent)
        if mine is not None and mine.lacks == note.number:
            self.comings.forget(agent, note.group, note.number)
            self._gives_up(mine)
        self.members.touch()

    def waits_to_join(self, mine: Membership) -> bool:
        """It has asked to join while views of a former group of this name lie before it, which has lived elsewhere.
        Their numbers may be those of views of this one: it joins when it has come to them."""
        own = mine.home, self.members.id  # the latter says that it has asked in vain, or has left before that
        if mine.inside or all(source in own for source, _ in self.ahead(mine.agent, mine.group)):
            return False
        mine.again = True
        self.later(mine)
        return True

    def later(self, mine: Membership) -> None:
        """It has given up, or waits to join: it asks after a while, which doubles whenever it gives up."""
        mine.until = times.after(self.tx.now, AGAIN << min(mine.tries, 6))
        self.members.alarm_at(mine.until)

    def alarm(self) -> None:
        for mine in self.members.all():
            if mine.again and not mine.inside and mine.until <= self.tx.now and not self.waits_to_join(mine):
                mine.again, mine.last = False, self.tx.new_id()
                self.members.change_of(mine)
                self.members.say(mine.agent, (mine.home,), Join(*mine.wish))

    def step(self) -> bool:
        """At the end of a turn. True if there is more to do at once."""
        busy, self.busy = self.busy, []
        for agent, note in busy:
            for server in self.members.servers([agent]):
                self.natives.post(self.members.id, server, note)
        return self.gives.step() | self.comings.step()

    def check(self) -> None:
        self.doubts.check()
        self.gives.check()
        self.comings.check()
