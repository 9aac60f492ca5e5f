"""The conformance kit: what every ordering back end must stand, for the authors of back ends.

    conform(MyOrdering, range(100), random.Random)

runs one random schedule a seed: members of one domain that send and react, links with delays, members that restart
from their rows, packets that come twice. Then everything arrives, and an outsider that knows only who sent and who
delivered what says whether the execution was causal and complete. Of a back end that claims to be `prompt` no packet
may wait that causal order lets be delivered. Then a second domain, of which each member restarts
after every step, must do what one does whose members never restart. `caught` is for controls: broken back ends that
must not pass.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, Protocol, TypeVar

from mombroker.core import causality
from mombroker.ordering.base import Ordering, Packet, Rows, Step
from mombroker.ordering.explore import free
from mombroker.ordering.holdback import Key, Need
from mombroker.ordering.matrix import Matrix

T = TypeVar("T")
Event = tuple[Any, ...]  # ("send", member, message, dests) or ("deliver", member, message)
Options = Callable[[int], Mapping[str, Any]]  # size of the domain -> options of `__init__`
Judge = Callable[[list[Event]], causality.Verdict]
SIZES = range(3, 18)
TWINS = 4  # one seed in so many is also one of twins
SENDS = 25  # of twins


class Chance(Protocol):
    """A seeded generator such as `random.Random`; the caller brings it, since this package knows no chance."""

    def random(self) -> float: ...
    def randrange(self, stop: int) -> int: ...
    def choice(self, seq: Sequence[T]) -> T: ...
    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


class Nonconforming(AssertionError):
    """The back end failed; the seed and the size that show it are in the text."""


def conform(
    backend: type[Ordering],
    seeds: Iterable[int],
    chance: Callable[[int], Chance],
    *,
    sizes: Sequence[int] = SIZES,
    options: Options = lambda size: {},
    judge: Judge = causality.check,
) -> None:
    """Raises Nonconforming with the first seed whose schedule the back end does not stand."""
    for seed in seeds:
        run(backend, seed, chance, sizes=sizes, options=options, judge=judge)
        if seed % TWINS == 0:
            twins(backend, seed, chance, sizes=sizes, options=options)


def caught(backend: type[Ordering], seeds: Iterable[int], chance: Callable[[int], Chance], **kind: Any) -> int:
    """The first seed that shows that a broken back end is broken. Raises AssertionError if none does."""
    for seed in seeds:
        try:
            conform(backend, (seed,), chance, **kind)
        except Nonconforming:
            return seed
    raise AssertionError(f"{backend.__name__} is broken, and no schedule showed it")


def run(
    backend: type[Ordering],
    seed: int,
    chance: Callable[[int], Chance],
    *,
    sizes: Sequence[int] = SIZES,
    options: Options = lambda size: {},
    judge: Judge = causality.check,
) -> list[Event]:
    """One schedule; its events. The same seed gives the same ones."""
    lots = chance(seed)
    size = lots.choice(sizes)
    domain = Domain(backend, size, dict(options(size)), lots)
    with _told(f"{backend.__name__}, seed {seed}, {size} members"):
        domain.disturb()
        domain.heal()
    verdict = judge(domain.events)
    if not verdict.safe or verdict.lost:
        raise Nonconforming(f"{backend.__name__}, seed {seed}, {size} members: {verdict}")
    if backend.total and (circle := unordered(domain.events)):
        raise Nonconforming(f"{backend.__name__}, seed {seed}, {size} members: no one order of messages {circle}")
    return domain.events


def unordered(events: list[Event]) -> list[Any]:
    """Messages that no order has in which each member delivered what it got, and causes come before their effects; none
    if there is one for all."""
    before: dict[Any, set[Any]] = {}  # message -> those that some member delivered just before it, or its sender sent
    delivered: dict[int, Any] = {}  # by member: the last one
    sent: dict[int, Any] = {}
    for kind, member, message, *_ in events:
        former = [delivered, sent] if kind == "send" else [delivered]
        before.setdefault(message, set()).update(last[member] for last in former if member in last)
        (sent if kind == "send" else delivered)[member] = message
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def twins(
    backend: type[Ordering],
    seed: int,
    chance: Callable[[int], Chance],
    *,
    sizes: Sequence[int] = SIZES,
    options: Options = lambda size: {},
    more: Callable[[Packet], Any] = lambda packet: None,
) -> None:
    """Two domains under one schedule: in one every core is restored from its rows after each step, in the other none
    is. Raises Nonconforming unless both do the same. `more` is what else to compare of each packet that they send."""
    lots = chance(seed)
    size = lots.choice(sizes)
    with _told(f"{backend.__name__}, twins of seed {seed}, {size} members"):
        Twins(backend, size, dict(options(size)), lots, more).play()


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Whatever a back end raises, its author wants the seed."""
    try:
        yield
    except Exception as error:
        raise Nonconforming(f"{where}: {error!r}") from error


class Seen(NamedTuple):
    """What the judge knows of a member: the messages that happened before its next event, those that it has delivered,
    and those of which a packet has come."""

    past: frozenset[int] = frozenset()
    delivered: frozenset[int] = frozenset()
    arrived: frozenset[int] = frozenset()


@dataclass(slots=True)
class Member:
    """A core, what its store holds, and the batch that is open: a restart loses the batch, all of it."""

    core: Ordering
    rows: Rows = field(default_factory=dict)
    given: dict[int, Packet] = field(default_factory=dict)  # by identity: what the core got and has not delivered
    held: list[tuple[Packet, list[tuple[int, int]]]] = field(default_factory=list)  # after the last step
    taken: list[tuple[int, Packet, bytes]] = field(default_factory=list)  # (neighbour, as sent, bytes) in this batch
    stored: list[tuple[int, Packet, bytes]] = field(default_factory=list)  # those of all batches before
    out: list[tuple[Packet, bytes]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    seen: Seen = Seen()
    kept: Seen = Seen()  # at the end of the batch before


class Domain:
    """One domain under a random schedule.

    A link keeps its packets, byte for byte, until they are committed at the receiver. In one batch with the rows of a
    core go the packets that it sent, those that it took, and its events: nothing leaves before.
    """

    def __init__(self, backend: type[Ordering], size: int, options: dict[str, Any], lots: Chance):
        self.backend, self.size, self.options, self.lots = backend, size, options, lots
        self.members = [Member(backend(me, size, **options)) for me in range(size)]
        self.links = {(a, b): list[tuple[Packet, bytes]]() for a in range(size) for b in range(size) if a != b}
        self.sent: list[tuple[int, tuple[int, ...], bytes]] = []  # by message: origin, destinations, body
        self.pasts: list[frozenset[int]] = []  # by message
        self.numbers: dict[int, int] = {}  # by identity: of which message a packet is that is under way
        self.events: list[Event] = []
        # First which faults there are at all, then when they strike.
        self.any_order = not backend.fifo and lots.random() < 0.5
        self.multicast = lots.choice((0.0, 0.2, 0.8))
        self.react = lots.choice((0.2, 0.6, 0.9))
        self.commit = lots.choice((0.1, 0.4, 1.0))
        self.restart = lots.choice((0.0, 0.02, 0.1))
        self.twice = lots.choice((0.0, 0.1, 0.3))
        self.garble = lots.choice((0.0, 0.05))
        self.slow = {link for link in self.links if lots.random() < 0.2}

    def disturb(self) -> None:
        lots = self.lots
        left = 20 + lots.randrange(2 * self.size)
        while left:
            if lots.random() < 0.3:
                self.send(lots.randrange(self.size))
                left -= 1
            else:
                came = self.pass_on()
                if came and came[1] and lots.random() < self.react:
                    self.send(came[0])
                    left -= 1
            me = lots.randrange(self.size)
            if lots.random() < self.twice:
                self.repeat(me)
            if lots.random() < self.garble:
                self.spoil(me)
            if lots.random() < self.restart:
                self.crash(me)
            for me in range(self.size):
                if lots.random() < self.commit:
                    self.store(me)

    def heal(self) -> None:
        """No faults any more: all that is on its way arrives, and nothing may be left."""
        for me in range(self.size):
            self.store(me)
        self.slow.clear()
        while came := self.pass_on():
            self.store(came[0])
        for me, member in enumerate(self.members):
            waiting = [*member.core.held(), *member.core.parked()]
            assert not waiting, f"member {me} still holds packets, and nothing is on its way"

    def send(self, me: int) -> None:
        """The application of `me` sends a message to one or to several."""
        lots = self.lots
        ways = [k for k in range(self.size) if k != me or self.backend.own]
        count = 1 + lots.randrange(len(ways)) if lots.random() < self.multicast else 1
        dests = tuple(lots.sample(ways, count))
        number = len(self.sent)
        body = b"%d:" % number + bytes(lots.randrange(8))
        self.sent.append((me, dests, body))
        member = self.members[me]
        member.events.append(("send", me, number, dests))
        self.pasts.append(member.seen.past)
        member.seen = member.seen._replace(past=member.seen.past | {number})
        self.post(me, member.core.send(dests, body), number)

    def post(self, me: int, packets: list[Packet], about: int) -> None:
        """`about`: of which message packets without a body are."""
        member = self.members[me]
        returned = [packet for packet in packets if packet.to == me and self.backend.own]
        for packet in packets:
            if packet in returned:
                continue
            assert (me, packet.to) in self.links, f"member {me} sent a packet to {packet.to}"
            data = member.core.encode(packet)
            assert isinstance(data, bytes)
            self.numbers[id(packet)] = int(packet.body.split(b":")[0] or about)
            member.out.append((packet, data))
        member.core.check()
        for packet in returned:  # in the same transaction
            number = len(member.events)
            self.receive(me, me, packet, about)
            delivered = ("deliver", me) in {event[:2] for event in member.events[number:]}
            assert delivered or member.core.missing(packet), "what returns is delivered or held at once"

    def pass_on(self) -> tuple[int, bool] | None:
        """The next packet of some link arrives, or any one where links may reorder. The member, and if it delivered."""
        lots = self.lots
        ways = [link for link, queue in self.links.items() if queue and (link not in self.slow or lots.random() < 0.1)]
        if not ways:
            return None
        frm, me = lots.choice(ways)
        queue = self.links[frm, me]
        sent, data = queue.pop(lots.randrange(len(queue)) if self.any_order else 0)
        member = self.members[me]
        member.taken.append((frm, sent, data))
        packet = member.core.decode(frm, data)
        same = packet.to == me and packet.frm == frm and packet.origin == sent.origin
        assert same and sorted(packet.dests) == sorted(sent.dests), f"{packet} was {sent}"
        assert me not in packet.dests or packet.body == sent.body, f"{packet} was {sent}"
        return me, self.receive(frm, me, packet, self.numbers[id(sent)])

    def receive(self, frm: int, me: int, packet: Packet, about: int) -> bool:
        member = self.members[me]
        member.seen = member.seen._replace(arrived=member.seen.arrived | {about})
        member.given[id(packet)] = packet
        step: Step = member.core.receive(frm, packet)
        assert self.backend.relays or not step.send, "only a back end that says so relays"
        before = {id(each) for each, _ in member.held}
        for done in step.deliver:
            assert member.given.pop(id(done), None) is done, "not the object that `receive` got"
            number = int(done.body.split(b":")[0])
            assert (done.origin, tuple(sorted(done.dests)), done.body) == (
                self.sent[number][0], tuple(sorted(self.sent[number][1])), self.sent[number][2],
            ), f"message {number} was delivered as {done}"  # fmt: skip
            member.events.append(("deliver", me, number))
            past, delivered, arrived = member.seen
            member.seen = Seen(past | self.pasts[number] | {number}, delivered | {number}, arrived)
        self.post(me, step.send, about)
        held = member.held = member.core.held()
        gone = before - {id(each) for each, _ in held} - {id(done) for done in step.deliver}
        assert gone == {id(each) for each in step.freed}, "what is not held any more is delivered or freed"
        for each, causes in held:
            assert member.given.get(id(each)) is each, "holds an object that `receive` did not get"
            assert causes and all(0 <= k < self.size for k, _ in causes), f"{each} is held for {causes}"
            assert member.core.missing(each) == causes, "`missing` and `held` differ"
        if all(packet is not each for each, _ in held):
            assert member.core.missing(packet) is None, "what is not held is missing something"
        if self.backend.prompt and not member.core.parked():
            for body in {packet.body for packet, _ in held if me in packet.dests}:
                number = int(body.split(b":")[0])
                waits = not free(self.backend, me, self.pasts[number], self.sent, *member.seen[1:])
                assert waits, f"message {number} is held, though nothing is missing that happened before"
        return bool(step.deliver)

    def repeat(self, me: int) -> None:
        """A packet comes once more: one that is held, the latest, or any."""
        member = self.members[me]
        came = member.stored + member.taken
        if not came:
            return
        held = {(packet.frm, packet.body) for packet, _ in member.core.held()}
        waiting = [each for each in came if (each[0], each[1].body) in held]
        frm, sent, data = self.lots.choice(self.lots.choice((waiting or came, came[-1:], came)))
        self.receive(frm, me, member.core.decode(frm, data), self.numbers[id(sent)])

    def spoil(self, me: int) -> None:
        """Bytes that no member sends are refused by ValueError, before anything changes, or taken for a packet. Then
        the order may be gone, but the core still works: nothing but ValueError comes of what arrives next, it can send,
        and its rows can be restored."""
        member, lots = self.members[me], self.lots
        ways = [(frm, queue) for (frm, _), queue in self.links.items() if queue and frm != me]
        under_way = [(frm, *lots.choice(queue)) for frm, queue in ways]  # also what is for others, or not next
        if not member.stored and not under_way:
            return
        frm, _, data = lots.choice(lots.choice((member.stored or under_way, under_way or member.stored)))
        at = lots.randrange(len(data))
        odd = bytes((lots.randrange(256),))
        other = lots.choice(under_way)[2] if under_way else data
        wrong = lots.choice((
            data, data[:at], data[:at] + odd + data[at + 1 :], data[:at] + odd + data[at:], odd * at,
            data[:at] + other[at:],
        ))  # fmt: skip
        rows = dict(member.rows)
        core = self.backend.restore(me, self.size, dict(rows), **self.options)
        for peer, each in [(frm, wrong), *((peer, data) for peer, _, data in member.taken), (frm, wrong)]:
            try:
                core.receive(peer, core.decode(peer, each))
            except ValueError:
                assert core.dirty() == ({}, set()), "a packet was refused, and something has changed"
            put, gone = core.dirty()
            rows = {key: blob for key, blob in (rows | put).items() if key not in gone}
        again = self.backend.restore(me, self.size, rows, **self.options)
        for packet in again.send((self.lots.choice([k for k in range(self.size) if k != me]),), b""):
            again.encode(packet)

    def crash(self, me: int) -> None:
        """The open batch is lost, the core is what its rows say; what it had taken comes again."""
        member = self.members[me]
        member.core = self.backend.restore(me, self.size, dict(member.rows), **self.options)
        member.core.check()
        member.held = member.core.held()
        member.given = {id(packet): packet for packet, _ in [*member.held, *member.core.parked()]}
        blank = self.backend(me, self.size, **self.options)
        blank.forgetful = True
        for frm, sent, data in member.taken:  # as when the store of a member is gone
            assert blank.decode(frm, data).origin == sent.origin, "a core without its rows cannot read a packet"
        for frm, sent, data in reversed(member.taken):
            self.links[frm, me].insert(0, (sent, data))
        del member.taken[:], member.out[:], member.events[:]
        member.seen = member.kept

    def store(self, me: int) -> None:
        member = self.members[me]
        self.post(me, member.core.announce(), -1)
        rows, gone = member.core.dirty()
        assert not rows.keys() & gone, "a row is put and deleted at once"
        member.rows.update(rows)
        for key in gone:
            del member.rows[key]
        assert member.core.dirty() == ({}, set()), "nothing has changed since, and there are rows"
        for packet, data in member.out:
            self.links[me, packet.to].append((packet, data))
        self.events += member.events
        member.stored += member.taken
        member.kept = member.seen
        del member.taken[:], member.out[:], member.events[:]


class Twins:
    """Each member twice: one core that never restarts, and one that does so at every step."""

    def __init__(
        self, backend: type[Ordering], size: int, options: dict[str, Any], lots: Chance, more: Callable[[Packet], Any]
    ):
        self.backend, self.size, self.options, self.lots, self.more = backend, size, options, lots, more
        self.steady = [backend(me, size, **options) for me in range(size)]
        self.shaken = [backend(me, size, **options) for me in range(size)]
        self.rows: list[Rows] = [{} for _ in range(size)]
        self.links: dict[tuple[int, int], list[bytes]] = {}
        self.any_order = not backend.fifo and lots.random() < 0.5

    def play(self) -> None:
        lots, links = self.lots, self.links
        for number in range(SENDS):
            me = lots.randrange(self.size)
            others = [k for k in range(self.size) if k != me or self.backend.own]
            dests = tuple(lots.sample(others, min(lots.choice((1, 2, len(others))), len(others))))
            body = b"%d" % number
            self.post(me, self.steady[me].send(dests, body), self.shaken[me].send(dests, body))
            slow = {link for link in links if lots.random() < 0.3}
            while ways := [link for link, queue in links.items() if queue and link not in slow]:
                frm, to = lots.choice(ways)
                queue = links[frm, to]
                self.arrive(frm, to, queue.pop(lots.randrange(len(queue)) if self.any_order else 0))
                if lots.random() < 0.1:
                    break
        while ways := [link for link, queue in links.items() if queue]:
            frm, to = lots.choice(ways)
            self.arrive(frm, to, links[frm, to].pop(0))
        assert not any(core.held() or core.parked() for core in self.steady + self.shaken)

    def arrive(self, frm: int, me: int, data: bytes) -> None:
        steady, shaken = self.steady[me], self.shaken[me]
        self.take(me, frm, steady.decode(frm, data), shaken.decode(frm, data))

    def take(self, me: int, frm: int, one: Packet, other: Packet) -> None:
        step, again = self.steady[me].receive(frm, one), self.shaken[me].receive(frm, other)
        bodies = [packet.body for packet in step.deliver], [packet.body for packet in again.deliver]
        assert bodies[0] == bodies[1], f"{bodies[1]} were delivered, and {bodies[0]} without restarts"
        self.post(me, step.send, again.send)

    def post(self, me: int, one: list[Packet], other: list[Packet]) -> None:
        """Both have done the same step; a restart follows. What the restarted one sends goes on its way."""
        sent, again = self.told(self.steady[me], one), self.told(self.shaken[me], other)
        assert again == sent, f"{again} were sent, and {sent} without restarts"
        for mine, packet in zip(one, other, strict=True):
            if packet.to == me and self.backend.own:  # in the same transaction
                self.take(me, me, mine, packet)
            else:
                self.links.setdefault((me, packet.to), []).append(self.shaken[me].encode(packet))
        self.announce(me)
        put, gone = self.shaken[me].dirty()
        self.rows[me] = {key: blob for key, blob in (self.rows[me] | put).items() if key not in gone}
        core = self.shaken[me] = self.backend.restore(me, self.size, dict(self.rows[me]), **self.options)
        core.check()
        assert core.dirty() == ({}, set()), "a core that comes from its rows has rows to put"
        for kind in "held", "parked":
            waits, still = (
                sorted((packet.body, sorted(causes)) for packet, causes in getattr(each, kind)())
                for each in (self.steady[me], core)
            )
            assert still == waits, f"{still} are {kind} after a restart, and {waits} without"

    def announce(self, me: int) -> None:
        one, other = self.steady[me].announce(), self.shaken[me].announce()
        assert self.told(self.shaken[me], other) == self.told(self.steady[me], one), "other words at the end of a batch"
        for packet in other:
            self.links.setdefault((me, packet.to), []).append(self.shaken[me].encode(packet))

    def told(self, core: Ordering, packets: list[Packet]) -> list[tuple[Any, ...]]:
        return [
            (each.to, sorted(each.dests), each.body, len(core.encode(each)), core.control_ints(each), self.more(each))
            for each in packets
        ]


class Eager(Matrix):
    """A control: FIFO links, and no regard for what others have sent. The kit must catch it."""

    fifo = True

    def check(self) -> None:
        """The judge shall see it, not the core."""

    def _need(self, key: Key, packet: Packet) -> Need | None:
        return None
