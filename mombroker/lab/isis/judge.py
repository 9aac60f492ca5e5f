"""The outsider: judges a group by what its processes have sent, delivered and seen, and by nothing else."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mombroker.core.causality import Event, check
from mombroker.lab.isis.messages import ABCAST

Stay = tuple[int, tuple[int, ...], list[int]]  # in a view: its number, its members, what was delivered in it


class Log:
    """Of each process, in its order: what it asked to be sent, what it delivered, the views that it came into."""

    def __init__(self, members: tuple[int, ...]):
        self.of: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self.kinds: dict[int, str] = {}
        self.dests: dict[int, tuple[int, ...]] = {}  # the members of the view in which it was sent
        self.views: dict[int, int] = {}  # of a message: the view of its sender when it left it
        self.senders: dict[int, int] = {}
        for me in members:
            self.viewed(me, 1, members)

    def asked(self, me: int, body: int) -> None:
        self.of[me].append(("send", body))

    def sent(self, me: int, body: int, kind: str) -> None:
        self.kinds[body], self.senders[body] = kind, me
        _, self.views[body], self.dests[body] = next(entry for entry in reversed(self.of[me]) if entry[0] == "view")

    def delivered(self, me: int, body: int) -> None:
        self.of[me].append(("deliver", body))

    def viewed(self, me: int, number: int, members: tuple[int, ...]) -> None:
        self.of[me].append(("view", number, members))

    # -- what must be true ---------------------------------------------------------------------------------------------

    def faults(self, live: Collection[int]) -> list[str]:
        """Each begins with a word for its kind. `live`: who has not crashed."""
        stays = {me: [*self._stays(me)] for me in self.of}
        return [
            *self._views(stays), *self._late(stays), *self._synchrony(stays, live), *self._orders(stays, live),
            *self._causal(), *self._lost(stays, live),
        ]  # fmt: skip

    def _stays(self, me: int) -> Iterator[Stay]:
        found: Stay | None = None
        for kind, what, *more in self.of[me]:
            if kind == "view":
                if found:
                    yield found
                found = what, more[0], []
            elif kind == "deliver":
                if found is None:
                    found = 0, (), []
                found[2].append(what)
        if found:
            yield found

    def _views(self, stays: dict[int, list[Stay]]) -> Iterator[str]:
        """All have the same views, one after the other."""
        members: dict[int, tuple[int, ...]] = {}
        for me, those in stays.items():
            numbers = [number for number, _, _ in those]
            if numbers != [*range(min(numbers, default=0), min(numbers, default=0) + len(numbers))]:
                yield f"views: {me} has gone through {numbers}"
            for number, who, _ in those:
                if members.setdefault(number, who) != who:
                    yield f"views: view {number} has the members {who} and {members[number]}"

    def _late(self, stays: dict[int, list[Stay]]) -> Iterator[str]:
        """What is sent in a view is delivered in it."""
        for me, those in stays.items():
            for number, _, got in those:
                wrong = [body for body in got if self.views.get(body) != number]
                if wrong:
                    yield f"late: {me} has delivered {wrong[0]} of view {self.views.get(wrong[0])} in view {number}"

    def _synchrony(self, stays: dict[int, list[Stay]], live: Collection[int]) -> Iterator[str]:
        """All that go on from a view have delivered the same in it."""
        for number, ended in self._ended(stays, live).items():
            sets = {me: {*got} for me, got in ended.items()}
            common = set.intersection(*sets.values())
            for me, got in sets.items():
                if got != common:
                    yield f"differ: in view {number} {me} has {sorted(got - common)[:3]}, and another has not"
                    break

    def _orders(self, stays: dict[int, list[Stay]], live: Collection[int]) -> Iterator[str]:
        """What is in total order is in one order at all that go on."""
        for number, ended in self._ended(stays, live).items():
            orders = [[body for body in got if self.kinds.get(body) == ABCAST] for got in ended.values()]
            if _differ(orders):
                yield f"orders: there are two in view {number}"

    def _ended(self, stays: dict[int, list[Stay]], live: Collection[int]) -> dict[int, dict[int, list[int]]]:
        """By view: who went on from it, and what each had delivered in it. Whoever fails takes along what nobody else
        has got: it has gone on for the others if they have delivered something that it sent in a later view."""
        heard: dict[int, int] = {}  # by process: the last view in which others have heard it
        for me, entries in self.of.items():
            for kind, what, *_ in entries:
                if kind == "deliver" and me in live and (sender := self.senders.get(what, me)) != me:
                    heard[sender] = max(heard.get(sender, 0), self.views[what])
        found: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        for me, those in stays.items():
            for number, who, got in those:
                if me in who and (me in live or number < heard.get(me, 0)):
                    found[number][me] = got
        return found

    def _causal(self) -> Iterator[str]:
        """Nothing is delivered before what it depends on, or without it."""
        events: list[Event] = []
        for me, entries in self.of.items():
            for kind, what, *_ in entries:
                if kind == "send" and what in self.dests:
                    events.append(("send", me, what, self.dests[what]))
                elif kind == "deliver":
                    events.append(("deliver", me, what))
        verdict = check(events)
        for kind in ("violations", "duplicates", "unsent"):
            if wrong := getattr(verdict, kind):
                yield f"causal: {len(wrong)} {kind}, as {wrong[0]}"

    def _lost(self, stays: dict[int, list[Stay]], live: Collection[int]) -> Iterator[str]:
        """What a member has sent that goes on, it has delivered itself, and so have all others that do."""
        for number, ended in self._ended(stays, live).items():
            for me, got in ended.items():
                mine = {body for body, sender in self.senders.items() if sender == me and self.views[body] == number}
                if mine - {*got}:
                    yield f"lost: {sorted(mine - {*got})[0]} of {me} in view {number}"


def _differ(orders: Sequence[list[int]]) -> bool:
    """Are two things in one order here and in another one there?"""
    first = orders[0]
    return any(
        [each for each in other if each in {*first}] != [each for each in first if each in {*other}]
        for other in orders[1:]
    )
