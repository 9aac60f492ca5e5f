"""Groups that are broken on purpose: each must be caught by what the simulator's agents have seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mombroker.broker.groups import gives
from mombroker.broker.groups.comings import Comings
from mombroker.broker.groups.copies import Copies
from mombroker.broker.groups.deeds import Deeds
from mombroker.broker.groups.doubts import Doubts
from mombroker.broker.groups.group import Group
from mombroker.broker.groups.lookout import Lookout
from mombroker.broker.groups.membership import Membership
from mombroker.broker.groups.notes import Got
from mombroker.broker.groups.outbox import Outboxes
from mombroker.broker.groups.states import States
from mombroker.broker.shapes import LAST
from mombroker.broker.wire import note_of
from mombroker.core.groups.home import LEAVE, Home
from mombroker.core.groups.member import Member
from mombroker.core.groups.view import Cast, View
from mombroker.core.names import Names


def no_flush(home: Home) -> None:
    """The home installs a view at once."""
    home._install()


def no_wait(cast: Any) -> Any:
    """A member sends on before the home has placed its cast."""

    def casts(deeds: Deeds, *args: Any) -> bool | None:
        done: bool | None = cast(deeds, *args)
        return True if done is None else done

    return casts


def keeps_home(sets: Any) -> Any:
    """Who has asked to join keeps the home that it has asked first, when the group is made again elsewhere, too."""

    def set_once(mine: Membership, name: str, value: Any) -> None:
        if name != "home" or not hasattr(mine, "home"):
            sets(mine, name, value)

    return set_once


def not_inhibited(prepare: Any) -> Any:
    """A member that has flushed casts on."""

    def prepares(member: Member, *args: Any) -> Any:
        told = prepare(member, *args)
        member.inhibited = False
        return told

    return prepares


def no_wait_for_state(states: States, agent: str, message: Any) -> bool:
    """A new member begins before it has the state of others."""
    return True


def patient(states: States, message: Any) -> None:
    """Members wait for each other's states, whoever waits already."""


def unmoved(states: States, agent: str, message: Any) -> None:
    """Whoever waits for a state waits for a giver, too, that has failed to give it."""


def takes_another(states: States, mine: Any, view: Any) -> bool:
    """Who has a state waits for the next giver's, if its home has not heard that it has one."""
    return False


def of_any_view(restored: Any) -> Any:
    """A member that has got a state lacks none, though it has left and joined again meanwhile."""
    return lambda home, agent, number: restored(home, agent, 0)


def gives_yet(home: Home, agent: str, gives: bool = True) -> None:
    """Who has given up, or was deleted, is to give its state before it is out."""
    home.wish(LEAVE, agent)


def unnumbered(placed: Any) -> Any:
    """The home's word that something has its place stands for whatever was asked for first."""
    return lambda outboxes, agent, number: placed(outboxes, agent, LAST)


def as_it_is_now(watch: Any, key: str, row: Any) -> None:
    """What a giver changes while it gives is given as it is then, so that casts of after the view count twice."""


def begins_at_once(comings: Comings, key: Any) -> bool:
    """A new member begins when the pages are there, before they are rows of its tables."""
    coming = comings.of.get(key)
    if coming is not None and coming.whole:
        coming.filled = True
        return True
    return False


def rows_of_before(fill: Any) -> Any:
    """Rows that a new member had before stay among those that it is given."""

    def fills(comings: Comings, coming: Any) -> bool:
        rows = comings.rows

        class Blind:
            def __init__(self, table: Any):
                self.put, self.accept = table.put, table.accept

            def range(self, *args: Any) -> list[Any]:
                return []

        comings.rows = lambda agent, name: Blind(rows(agent, name))  # type: ignore[assignment,return-value]
        try:
            more: bool = fill(comings, coming)
            return more
        finally:
            comings.rows = rows

    return fills


def pages_of_any_view(states: States, message: Any) -> None:
    """A page is taken for the state that a member waits for, whichever view it is of: two states may be mixed."""
    note = note_of(message)
    for agent in note.to:
        mine = states.members.find(note.group, agent)
        if mine is not None and mine.lacks:
            coming = states.comings.of.get((agent, note.group, mine.lacks))
            at = coming.pages if note.at and coming is not None and coming.pages else note.at
            states.comings.page(agent, replace(note, number=mine.lacks, at=at))
            for server in states.members.servers([message.source]) if note.give else ():
                states.natives.post(states.members.id, server, Got(note.give, agent, note.at + 1))


def not_barred(prepare: Any) -> Any:
    """What comes of a member that is out is delivered on, behind the FLUSH that has counted it."""

    def prepares(member: Member, number: int, out: list[str]) -> Any:
        told = prepare(member, number, out)
        member.barred = []
        return told

    return prepares


def held_back(due: Any) -> Any:
    """What comes of a member that is out waits for the next view, and what was sent behind it does not."""

    def is_due(member: Member, item: Any) -> bool:
        if type(item) is Cast and item.sender in member.barred and not any(type(each) is View for each in member.held):
            return False
        found: bool = due(member, item)
        return found

    return is_due


def all_belong(doubts: Doubts, agent: str, note: Any) -> bool:
    """A member has what is doubtful at once."""
    return True


def tells_again(alarm: Any) -> Any:
    """Who is down is told whenever the home looks."""

    def alarms(lookout: Lookout, *args: Any) -> None:
        lookout.down.clear()
        lookout.known.clear()
        alarm(lookout, *args)

    return alarms


def tells_one(lookout: Lookout, note: Any, agents: list[str]) -> None:
    """One member is told who is down, and not all that want to know."""
    lookout.home.tell_members(agents[:1], note)


def tells_who_is_down(lookout: Lookout) -> list[str]:
    """Who is down is told what others are, too."""
    return [agent for agent, (_, told) in lookout.wants.items() if told]


def tells_no_return(answers: Any) -> Any:
    """Nobody is told who is up again."""

    def answered(lookout: Lookout, server: str) -> None:
        lookout.asked.pop(server, None)
        lookout.down.pop(server, None)
        lookout.known.pop(server, None)
        lookout.home.change()

    return answered


def tells_late(tell: Any) -> Any:
    """What is to be told is told with what comes next."""

    def tells(lookout: Lookout, *word: Any) -> None:
        last, LAST_OF[id(lookout)] = LAST_OF.get(id(lookout)), word
        if last is not None:
            tell(lookout, *last)

    return tells


LAST_OF: dict[int, Any] = {}


def impatient(alarm: Any) -> Any:
    """The others go on without whoever is down."""

    def alarms(lookout: Lookout, keeps: Any) -> None:
        right = lookout.wants
        lookout.wants = {agent: (patience or 1, told) for agent, (patience, told) in right.items()}
        alarm(lookout, keeps)
        lookout.wants = {agent: right[agent] for agent in lookout.wants}

    return alarms


def patient_for_ever(alarm: Any) -> Any:
    """The others wait for whoever is down, for however long."""

    def alarms(lookout: Lookout, keeps: Any) -> None:
        right = lookout.wants
        lookout.wants = {agent: (0, told) for agent, (_, told) in right.items()}
        alarm(lookout, keeps)
        lookout.wants = {agent: right[agent] for agent in lookout.wants}

    return alarms


def without_copies(copies: Copies, group: str, sender: str, seq: int, payload: bytes) -> None:
    """A server keeps none of what its members cast: who is out of a view gets nothing back."""


def asked_once(ask: Any) -> Any:
    """When one more is out while a view is made, the others' FLUSHes of before count: what they had of this one by then
    was not asked for."""

    def asks(home: Home) -> None:
        change = home.change
        if change is None or not change.attempt:
            ask(home)
            return
        change.waits = [server for server in change.waits if any(
            home.where(agent) == server for agent in home.members if agent not in change.out
        )]  # fmt: skip
        if not change.waits:
            home._install()

    return asks


def never_told_again(names: Names, name: str, id: str, server: str) -> None:
    """Who has not heard that a name is free, since that was lost with a server, sends there for ever."""


CONTROLS: dict[str, tuple[type, str, Any]] = {
    "no flush": (Home, "_ask", no_flush),
    "no wait": (Deeds, "_cast", no_wait(Deeds._cast)),
    "not inhibited": (Member, "prepare", not_inhibited(Member.prepare)),
    "no wait for a state": (States, "meets", no_wait_for_state),
    "asks nobody anew": (Group, "recovered", lambda group: None),
    "former home": (Membership, "__setattr__", keeps_home(Membership.__setattr__)),
    "waits in a circle": (States, "gives_up", patient),
    "waits for who has failed": (States, "failed", unmoved),
    "a state of any view": (Home, "restored", of_any_view(Home.restored)),
    "gives when it has given up": (Home, "leave", gives_yet),
    "another state": (States, "_keeps", takes_another),
    "a place without a number": (Outboxes, "placed", unnumbered(Outboxes.placed)),
    "install without copies": (Copies, "add", without_copies),
    "asked once": (Home, "_ask", asked_once(Home._ask)),
    "rows as they are now": (gives._Watch, "before", as_it_is_now),
    "filled at once": (Comings, "begins", begins_at_once),
    "rows of before": (Comings, "_fill", rows_of_before(Comings._fill)),
    "two states mixed": (States, "comes", pages_of_any_view),
    "not barred": (Member, "prepare", not_barred(Member.prepare)),
    "held back": (Member, "_is_due", held_back(Member._is_due)),
    "all belong": (Doubts, "belongs", all_belong),
    "told again": (Lookout, "alarm", tells_again(Lookout.alarm)),
    "one is told": (Lookout, "_tell", tells_one),
    "told while down": (Lookout, "_listeners", tells_who_is_down),
    "no return": (Lookout, "answers", tells_no_return(Lookout.answers)),
    "told late": (Lookout, "_tell", tells_late(Lookout._tell)),
    "impatient": (Lookout, "alarm", impatient(Lookout.alarm)),
    "a name that is free": (Names, "outdated", never_told_again),
    "patient for ever": (Lookout, "alarm", patient_for_ever(Lookout.alarm)),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    cls, method, variant = CONTROLS[name]
    right = getattr(cls, method)
    setattr(cls, method, variant)
    try:
        yield
    finally:
        setattr(cls, method, right)
