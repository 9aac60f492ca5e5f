"""What one member of a daisy that changes keeps of one group, and of its ways from group to group; it sends nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mombroker.lab.dynamic.views import EMPTY, Counts, Gid, Id, Key, Place, Said, State, View, name
from mombroker.ordering.base import Packet
from mombroker.ordering.groups import TOP

ENDLESS = 1 << 60  # more than any number
UP = -1  # names the way from a group to its parent among its ways; those to its children have their names


@dataclass(slots=True, eq=False)
class GroupState:
    """One group.

    beneath    the members whose home is the group or beneath it
    counts     broadcasts delivered, by seat; seats that are no more included
    seen       by origin: the number of its last message that the group has
    log        what is delivered and not stable, in the order of delivery
    got, done  what each seat has received, and what is stable beyond each way out, as acknowledged
    told       what this member has acknowledged
    inherited  messages of earlier groups of its members, which may lack in the parent
    young      it forked, and must not send upwards before the marker of its elder is delivered in the parent
    forks      the groups that forked from it
    marked     the groups whose markers were delivered here
    ready      it has the state of its view; left: it is no member any more, but others have yet to install the view
    fresh      members that may have no state yet: the last view was their first, for all that is known here
    views      told and not installed; flushed, states: by view, who has flushed, and what was told to new members
    early      messages of views to come, or, while halted, all
    """

    gid: Gid
    parent: Gid
    leaf: bool
    beneath: frozenset[int] = frozenset()
    seats: dict[Key, int | None] = field(default_factory=dict)
    view: int = 0
    ready: bool = False
    left: bool = False
    halted: bool = False
    young: bool = False
    counts: Counts = field(default_factory=dict)
    seen: Counts = field(default_factory=dict)
    log: dict[Place, Packet] = field(default_factory=dict)
    places: dict[Id, Place] = field(default_factory=dict)  # of what is in the log
    waiting: dict[Place, Packet] = field(default_factory=dict)
    got: dict[Key, Counts] = field(default_factory=dict)
    done: dict[Key, Counts] = field(default_factory=dict)
    told: tuple[Counts, dict[Key, Counts]] = field(default_factory=lambda: ({}, {}))
    marked: set[Gid] = field(default_factory=set)
    forks: set[Gid] = field(default_factory=set)
    inherited: list[Packet] = field(default_factory=list)
    fresh: frozenset[int] = frozenset()
    views: list[View] = field(default_factory=list)
    flushed: dict[int, set[int]] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    early: list[tuple[int, Packet]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        return self.ready and not self.left

    @property
    def open(self) -> bool:
        """True when this member may broadcast in the group."""
        return self.active and not self.views and not self.halted

    @property
    def members(self) -> list[int]:
        return [member for member in self.seats.values() if member is not None]

    def sit(self, seats: Mapping[Key, int | None]) -> None:
        self.seats = dict(seats)
        if self.leaf:
            self.beneath = frozenset(self.members)

    def key_of(self, me: int) -> Key:
        return next(key for key, member in self.seats.items() if member == me)

    def causes(self, said: Said) -> list[Place]:
        """The broadcasts that a message waits for."""
        key, number = said.place
        have = self.counts
        causes = [(each, n) for each, n in said.counts.items() if each != key and n > have.get(each, 0)]
        return [(key, number - 1), *causes] if number > have.get(key, 0) + 1 else causes

    # -- the log, and what is stable -----------------------------------------------------------------------------

    def record(self, packet: Packet) -> None:
        self.log[packet.stamp.place] = packet
        self.places[name(packet)] = packet.stamp.place

    def forget(self) -> None:
        """Drop what is stable."""
        stable = {key: self.stable(key) for key in {key for key, _ in self.log}}
        for place in [place for place in self.log if place[1] <= stable[place[0]]]:
            del self.places[name(self.log.pop(place))]

    def received(self) -> Counts:
        """By seat: all broadcasts up to this one are here."""
        got = dict(self.counts)
        for key in {key for key, _ in self.waiting}:
            got.setdefault(key, 0)
            while (key, got[key] + 1) in self.waiting:
                got[key] += 1
        return got

    def learn(self, got: dict[Key, Counts], done: dict[Key, Counts]) -> None:
        for mine, theirs in (self.got, got), (self.done, done):
            for key, counts in theirs.items():
                known = mine.setdefault(key, {})
                for each, number in counts.items():
                    known[each] = max(known.get(each, 0), number)

    def stored(self, key: Key) -> int:
        """Up to here every other seat has the broadcasts of a seat. A vacant seat has what its last member had, and
        will have more when it is filled (fakes_daisy: VacantIsStable)."""
        return min((self.got.get(each, EMPTY).get(key, 0) for each in self.seats if each != key), default=ENDLESS)

    def stable(self, key: Key, but: Key | None = None) -> int:
        """Up to here they are stored, and stable beyond every way out, save one."""
        ways = [] if self.leaf else [*self.seats]
        if self.parent != TOP:
            ways.append(UP)
        return min(self.stored(key), *(self.done.get(way, EMPTY).get(key, 0) for way in ways if way != but), ENDLESS)

    # -- views ---------------------------------------------------------------------------------------------------

    def is_flushed(self, view: View) -> bool:
        return bool(view.voters) and view.voters <= self.flushed.get(view.number, set())

    def unstable(self) -> Iterable[Packet]:
        """What others may lack."""
        return [*self.log.values(), *self.waiting.values(), *(packet for _, packet in self.early)]

    def afresh(self) -> "GroupState":
        """For a member that has left and comes back: the group as a new member has it. What has come already for the
        view to come is kept."""
        return GroupState(
            self.gid, self.parent, self.leaf, self.beneath,
            early=self.early, states=self.states, flushed=self.flushed, got=self.got, done=self.done,
        )  # fmt: skip

    def state(self) -> State:
        got, done = ({key: dict(each) for key, each in known.items()} for known in (self.got, self.done))
        return State(
            self.gid, self.view, dict(self.counts), dict(self.seen), got, done, set(self.marked), self.young,
            set(self.forks), [*self.log.values()], self.inherited[:],
        )  # fmt: skip

    def take_over(self, state: State) -> None:
        self.counts, self.seen = dict(state.counts), dict(state.seen)
        self.learn(state.got, state.done)
        self.marked, self.young, self.forks = set(state.marked), state.young, set(state.forks)
        for packet in state.log:
            self.record(packet)
        self.inherited = state.inherited[:]


@dataclass(slots=True, eq=False)
class Way:
    """From one group to another, if this member connects them; `outbox` is what it is to pass on, in this order, each
    with its place in the first group unless that is of no account."""

    frm: GroupState
    to: GroupState
    outbox: list[tuple[Place | None, Packet]] = field(default_factory=list)

    @property
    def up(self) -> bool:
        return self.frm.parent == self.to.gid

    @property
    def key(self) -> Key:
        return UP if self.up else self.to.gid

    def crosses(self, packet: Packet) -> bool:
        """True when a message of the first group has a destination beyond, and did not come from there."""
        return not self.came_over(packet) and self.leads(packet)

    def leads(self, packet: Packet) -> bool:
        if self.up:
            return not self.frm.beneath.issuperset(packet.dests)
        return not self.to.beneath.isdisjoint(packet.dests)

    def came_over(self, packet: Packet) -> bool:
        """From above, as it says itself (DA6); or from the child whose seat has broadcast it."""
        said: Said = packet.stamp
        return said.down if self.up else said.place[0] == self.to.gid and not said.down

    def is_settled(self, packet: Packet | None) -> bool:
        """True when a message is stable beyond, or has no business there."""
        if packet is None or not (self.crosses(packet) or self.came_over(packet)):
            return True
        if self.to.seen.get(packet.origin, 0) < packet.stamp.number:
            return False
        place = self.to.places.get(name(packet))
        return place is None or place[1] <= self.to.stable(place[0], but=self.frm.gid if self.up else UP)

    def done(self) -> Counts:
        """By seat of the first group: all up to this one is settled."""
        counts = dict(self.frm.done.get(self.key, EMPTY))
        for key, delivered in self.frm.counts.items():
            number = counts.get(key, 0)
            while number < delivered and self.is_settled(self.frm.log.get((key, number + 1))):
                number += 1
            counts[key] = number
        return counts

    def fill(self) -> None:
        """A new connector passes on what the other group may lack: down also what came from there, since a group that
        has died out and is filled again knows nothing."""
        known = [(None, packet) for packet in self.frm.inherited] + [*self.frm.log.items()]
        self.outbox = [each for each in known if self.leads(each[1]) and not (self.up and self.came_over(each[1]))]
