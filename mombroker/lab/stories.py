"""What happened in a domain or on a bus, as a diagram shows it: packets, moments, what waited for what."""

import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice

from mombroker import ordering
from mombroker.core.topology import Topology
from mombroker.core.trace import Record
from mombroker.core.words import many
from mombroker.lab.domain import Domain, Observer, cores, number_of
from mombroker.lab.domain_workloads import Poisson, multicasts
from mombroker.lab.networks import Exponential
from mombroker.ordering import Packet, Step
from mombroker.sim.world import MS, World

MOST = 50  # events: more is not readable
BYTES = 32  # of a stamp that are shown
BY_LINK = ("matrix", "rst", "daisy")  # their sequences count the packets of a link; others', the sends of a member


@dataclass(slots=True)
class Arrow:
    """A packet of a message from one process to another. `delivered`: when it was in order there, 0 for what is not put
    in order there (a member passes it on) or is a duplicate; `waited_for` is the message that set it free; `passed`: it
    was for others than this process; `bare`: it had no body, and was only to be counted there; `latest`: it may have
    come before `came`; `onward`: `frm` has passed it on, and another sent it; `twins`: the messages of packets with the
    same ends and times, which are not drawn; `stamp`: what is known of its control information.
    """

    message: str
    frm: str
    to: str
    left: int  # ns
    came: int
    delivered: int = 0
    waited_for: str = ""
    passed: bool = False
    bare: bool = False
    latest: bool = False
    onward: bool = False
    twins: tuple[str, ...] = ()
    stamp: str = ""

    @property
    def held(self) -> bool:
        return self.delivered > self.came

    @property
    def events(self) -> int:
        return 3 if self.held else 2

    @property
    def look(self) -> "Look":
        """What is the same where two would lie upon each other."""
        return self.frm, self.to, self.left, self.came, self.delivered, self.passed, self.bare


Look = tuple[str, str, int, int, int, bool, bool]


@dataclass(slots=True)
class Mark:
    """Something that happens at a process alone: it comes into a view (`line`), or a message gets its place."""

    process: str
    at: int  # ns
    text: str
    line: bool = False


@dataclass(slots=True)
class Story:
    """What happened, of so many processes. A message is sent at its first arrow's left end."""

    processes: Sequence[str]
    arrows: list[Arrow]
    marks: list[Mark] = field(default_factory=list)
    parents: Mapping[str, str] = field(default_factory=dict)  # by message: what its client did, as a traceparent

    def around(self, message: str, most: int = MOST) -> "Story":
        """A message, where it waited for others first, its other ways, what waited for it, then what is near in time;
        only processes that take part. With what waited comes what it waited for, and with what was passed on how it
        came there, however far that went; if all this is too much, it is left out, but of the first as much is there as
        may be. Of packets with the same ends and times, as those of one commit are, one stands for all but those that
        others are drawn with.

        An arrow is two events, or three where it is held.
        """
        own = sorted((a for a in self.arrows if a.message == message), key=lambda a: (not a.held, a.left))
        assert own, f"there is no message {message}"
        begin, end = min(a.left for a in own), max(max(a.came, a.delivered) for a in own)
        ways = {(a.message, a.to): a for a in reversed(self.arrows)}

        def distance(arrow: Arrow) -> int:
            return max(begin - arrow.left, arrow.came - end, 0)

        order = [*own]
        order += sorted((a for a in self.arrows if a.waited_for == message), key=distance)
        order += sorted((a for a in self.arrows if any(a.message == own_.waited_for for own_ in own)), key=distance)
        order += sorted(self.arrows, key=distance)
        chosen: dict[int, Arrow] = {}
        looks: set[Look] = set()
        events = 0
        for arrow in order:
            if arrow.look in looks and arrow.message != message:
                continue
            new: dict[int, Arrow] = {}
            due = [arrow]
            for each in due:
                if id(each) not in new and id(each) not in chosen and len(new) < most:
                    new[id(each)] = each
                    before = [(each.message, each.frm)] * each.onward + [(each.waited_for, each.to)]
                    due += [ways[way] for way in before if way in ways]
            if not chosen:
                ends = accumulate(each.events for each in new.values())
                new = dict(islice(new.items(), max(sum(end <= most for end in ends), 1)))
            more = sum(each.events for each in new.values())
            if not chosen or events + more <= most:
                chosen |= new
                looks.update(each.look for each in new.values())
                events += more
            if events + 2 > most:
                break
        alike: dict[Look, list[str]] = {}
        for each in self.arrows:
            if each.look in looks and id(each) not in chosen:
                alike.setdefault(each.look, []).append(each.message)
        arrows = [replace(arrow, twins=tuple(alike.pop(arrow.look, ()))) for arrow in chosen.values()]
        arrows.sort(key=lambda arrow: (arrow.left, arrow.came))
        names = {name for arrow in arrows for name in (arrow.frm, arrow.to)}
        last = max(max(arrow.came, arrow.delivered) for arrow in arrows)
        marks = [mark for mark in self.marks if arrows[0].left <= mark.at <= last and mark.process in names]
        return Story([name for name in self.processes if name in names], arrows, marks)


class Watch(Observer):
    """Notes the arrows of a domain in the laboratory; member k is called `names[k]`, message m `m<number>`, and what a
    member tells all at the end of a batch `o<number>`."""

    def __init__(self, names: Sequence[str]):
        super().__init__()
        self.story = Story(names, [])
        self._flying: dict[tuple[int, int], deque[Arrow | None]] = {}  # by link, which keeps the order of leaving
        self._waiting: dict[tuple[int, int], Arrow] = {}  # (member, number)
        self._told = 0

    def announced(self, me: int, packets: Sequence[Packet]) -> None:
        self._told += 1
        for packet in packets:
            self._leave(me, packet, f"o{self._told}")

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        for packet in packets:
            self._leave(me, packet, f"m{number}")

    def _leave(self, me: int, packet: Packet, message: str) -> None:
        """No arrow for what is of no message: members tell each other what they have."""
        names, now = self.story.processes, self.domain.world.now
        arrow = Arrow(message, names[me], names[packet.to], now, 0, bare=not packet.body) if message else None
        if arrow:
            core = self.domain.members[me]
            arrow.onward = packet.origin != me
            arrow.stamp = stamped(core.encode(packet).removesuffix(packet.body), core.control_ints(packet))
        self._flying.setdefault((me, packet.to), deque()).append(arrow)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now, arrow = self.domain.world.now, self._flying[packet.frm, me].popleft()
        if arrow:
            arrow.came = now
            self.story.arrows.append(arrow)
            arrow.passed = me not in packet.dests
            if packet in step.deliver:
                arrow.delivered = now
            elif packet.body and self.domain.members[me].missing(packet) is not None:
                self._waiting[me, number_of(packet)] = arrow
        for done in step.deliver:
            waiting = self._waiting.pop((me, number_of(done)), None)
            if waiting:
                waiting.delivered = now
                waiting.waited_for = arrow.message if arrow else ""
        for each in step.send:
            self._leave(me, each, f"m{number_of(each)}" if each.body else "")


def stamped(data: bytes, ints: int) -> str:
    """The control information of a packet: how much it is, and its first bytes."""
    rest = " ..." * (len(data) > BYTES)
    return f"{_sizes(len(data), ints)}, {data[:BYTES].hex(' ')}{rest}"


def _sizes(size: int, ints: int) -> str:
    return f"{many(size, 'byte')}, {many(ints, 'integer')}"


def logged(logs: Mapping[str, Iterable[Record]], topology: Topology, cut: Collection[str] = ()) -> Story:
    """What the logs of a bus say, those that are there; a message is `server#number`. `cut`: servers whose old records
    are gone.

    Of the messages that one was missing when it came, that which was last in order is what it has waited for.
    """
    noted = _Noted(topology, cut)
    for server, records in logs.items():
        for record in records:
            noted.take(server, record)
    arrows = noted.arrows()
    senders = (arrow.frm for arrow in arrows)  # some have no log, and some are no longer in the topology
    return Story([*dict.fromkeys([*logs, *topology.servers, *senders])], arrows, [*noted.views.values()], noted.parents)


class _Noted:
    """What logs say, most of it by message and server."""

    def __init__(self, topology: Topology, cut: Collection[str]):
        self.topology, self.cut = topology, cut
        self.left: dict[tuple[str, str, str], int] = {}  # (message, from, to): when it left
        self.stamps: dict[tuple[str, str, str], str] = {}  # likewise: how large its stamp was
        self.came: dict[tuple[str, str], Arrow] = {}  # of one that is for agents here, and others, one packet
        self.into: dict[tuple[str, str], str] = {}  # in the order of coming: in which domain
        self.missing: dict[tuple[str, str], list[tuple[str, int]]] = {}  # of whom it waited for what when it came
        self.first: dict[tuple[str, str], int] = {}  # when it came, of what waited
        self.parents: dict[str, str] = {}
        self.views: dict[tuple[str, str, int], Mark] = {}  # by server, group and number
        self.homes: set[tuple[str, str]] = set()  # it is for agents there
        self.rank: dict[tuple[str, str, str], int] = {}  # (message, from, to): its place among all that were stamped
        self.stamped: dict[tuple[str, str, str], list[str]] = {}  # in `_line`: what has the number 1, 2, ...

    def take(self, server: str, record: Record) -> None:
        kind, message, domain, peer = record.kind, f"{record.origin}#{record.number}", record.domain, record.peer
        if kind in ("send", "forward", "relay") and record.origin:
            for _, to, size, ints in record.out:
                self.left.setdefault((message, server, to), record.sent if kind == "send" else record.done)
                self.stamps.setdefault((message, server, to), _sizes(size, ints))
                self.rank.setdefault((message, server, to), len(self.rank))
            for key in dict.fromkeys(self._line(server, into, to) for into, to, _, _ in record.out):
                if key[2] or kind != "relay":
                    self.stamped.setdefault(key, []).append(message)
        if kind == "parent":
            self.parents[message] = record.detail
        elif kind == "view":
            self._view(server, record)
        if kind in ("send", "forward"):
            self.homes.update((message, agent.partition("/")[0]) for agent in record.dests)
        if kind == "hold" and domain in self.topology.domains:
            self.into[message, server] = domain
            self.first[message, server] = record.received
            members = self.topology.domains[domain].members
            self.missing[message, server] = [(members[who], n) for who, n in record.missing if who < len(members)]
        elif domain and record.origin and kind in ("react", "forward", "relay", "dead", "drop", "expire"):
            passed = kind in ("forward", "relay")
            if peer == record.origin and record.sent:
                self.left.setdefault((message, peer, server), record.sent)
            known = self.came.setdefault(
                (message, server), Arrow(message, peer, server, 0, record.received, passed=passed)
            )
            known.passed = known.passed and passed
            known.onward = peer != record.origin
            if kind != "relay":
                known.delivered = known.delivered or record.delivered or record.done
            self.into.setdefault((message, server), domain)

    def _view(self, server: str, record: Record) -> None:
        view = json.loads(record.detail)
        text = f"{view['group']} view {view['number']}: {' '.join(view['members']) or 'nobody'}"
        self.views.setdefault((server, view["group"], view["number"]), Mark(server, record.done, text, line=True))

    def _line(self, server: str, domain: str, to: str) -> tuple[str, str, str]:
        """Among which packets of a server that to a neighbour has its number: those of the link, or all."""
        known = self.topology.domains.get(domain)
        return server, domain, to if known and known.backend in BY_LINK else ""

    def _rank(self, arrow: Arrow) -> int:
        return self.rank.get((arrow.message, arrow.frm, arrow.to), -1)

    def arrows(self) -> list[Arrow]:
        found, senders = [], dict[tuple[str, str], list[str]]()
        for message, frm, to in self.left:
            senders.setdefault((message, to), []).append(frm)
        for (message, server), arrow in self.came.items():
            frms = senders.get((message, server), [])
            if arrow.frm not in frms and len(frms) == 1:  # it was passed on when something of another link had come
                arrow.frm, arrow.latest = frms[0], True
                arrow.onward = arrow.frm != message.partition("#")[0]
            if arrow.frm not in frms:
                continue  # its beginning is not in the logs
            if not arrow.came:  # its server has died while it waited, and has forgotten when it came
                arrow.came = self.first.get((message, server), arrow.delivered)
            arrow.left = min(self.left[message, arrow.frm, server], arrow.came)
            arrow.stamp = self.stamps.get((message, arrow.frm, server), "")
            if (message, server) not in self.missing and arrow.delivered:
                arrow.delivered = arrow.came
            found.append(arrow)
        found.sort(key=lambda each: (each.left, each.came, self._rank(each)))
        at_once: dict[tuple[str, str, int], list[Arrow]] = {}  # by server and domain: what was in order at one moment
        for arrow in found:
            key = arrow.to, self.into[arrow.message, arrow.to], arrow.delivered or arrow.came
            at_once.setdefault(key, []).append(arrow)
        counted: dict[tuple[str, str], Arrow] = {}
        for here in at_once.values():
            causes = self._causes(here) if any(arrow.held for arrow in here) else {}
            for arrow in here:
                if not arrow.held:
                    continue
                cause = causes.get(arrow.message) or self._earlier(arrow) or self._only(arrow, here)
                arrow.waited_for = cause.message if cause else ""
                if cause and (cause.message, cause.to) not in self.came.keys() | self.homes:
                    counted.setdefault((cause.message, cause.to), cause)
        return sorted([*found, *counted.values()], key=lambda arrow: (arrow.left, arrow.came))

    def _missed(self, message: str, to: str, domain: str) -> list[tuple[str, int, str]]:
        """What it waited for when it came, as far as the logs can name it: sender, number, message."""
        return [
            (who, n, sent[n - 1])
            for who, n in self.missing.get((message, to), ())
            if who not in self.cut and n <= len(sent := self.stamped.get(self._line(who, domain, to), []))
        ]

    def _causes(self, here: Sequence[Arrow]) -> dict[str, Arrow]:
        """Of what was in order at one moment, for each that waited: which of those that it waited for was the last.

        These are packets that came over one link, in its order, and what each of them set free. That has the order that
        a core gives it (ordering/holdback.py), since all of it has one time in the logs. What was not for this server
        has no record here, but may have been among them.
        """
        domain, to, moment = self.into[here[0].message, here[0].to], here[0].to, here[0].delivered or here[0].came
        row = {name: at for at, name in enumerate(self.topology.domains[domain].members)}
        late = ordering.backend(self.topology.domains[domain].backend).relays  # the record may be of when it went on
        group, needs, frees = [*here], {each.message: set[str]() for each in here}, dict[str, list[Arrow]]()
        for arrow in group:
            for who, n, name in self._missed(arrow.message, to, domain):
                known = self.came.get((name, to))
                if name not in needs and (not known or late and known.came > moment):
                    unseen = self._unseen(name, who, n, arrow, domain, moment)
                    if unseen:
                        group.append(unseen)
                        needs[name] = set()
                if name in needs and name != arrow.message:
                    needs[arrow.message].add(name)
                    frees.setdefault(name, []).append(arrow)
        link = next((each.frm for each in here if (each.message, to) not in self.missing), "")
        causes: dict[str, Arrow] = {}
        roots = [arrow for arrow in group if not needs[arrow.message]]
        roots.sort(key=lambda each: (each.came, each.frm == link, each.left, self._rank(each)))
        for root in roots:
            risen = [root]
            for cause in risen:
                for arrow in sorted(
                    frees.get(cause.message, ()), key=lambda each: (row.get(each.frm, 0), self._rank(each))
                ):
                    needs[arrow.message].discard(cause.message)
                    if not needs[arrow.message]:
                        causes[arrow.message] = cause
                        risen.append(arrow)
        return causes

    def _unseen(self, message: str, who: str, n: int, missing: Arrow, domain: str, moment: int) -> Arrow | None:
        """A packet with no record where it went, though `missing` missed it there. It came at `moment`, when that was
        in order, or before, and before the next of its link of which there is a record."""
        line = self.stamped[self._line(who, domain, missing.to)]
        after = ((line[at], missing.to) for at in range(n, len(line)))
        noted = next((self.came[each].came for each in after if each in self.came), moment)
        left = self.left.get((message, who, missing.to), -1)  # -1: the domain had another back end then
        if left < 0 or not missing.latest and noted < missing.came:
            return None  # the latter: it had come, too, and what was missed is another, since numbers began anew
        came = min(noted, moment)
        arrow = Arrow(message, who, missing.to, min(left, came), came, passed=True, latest=True)
        arrow.bare, arrow.onward = self.topology.domains[domain].backend == "vector", who != message.partition("#")[0]
        return arrow

    def _earlier(self, arrow: Arrow) -> Arrow | None:
        """The last of what `arrow` missed that was in order while it waited, by times that are not quite the same."""
        missed = self._missed(arrow.message, arrow.to, self.into[arrow.message, arrow.to])
        noted = [self.came[name, arrow.to] for _, _, name in missed if (name, arrow.to) in self.came]
        able = [each for each in noted if arrow.came < each.delivered and each.came <= arrow.delivered]
        return max(able, key=lambda each: each.delivered, default=None)

    def _only(self, arrow: Arrow, here: Sequence[Arrow]) -> Arrow | None:
        """Where the logs do not tell the number of a packet: the only one that can have set `arrow` free, if there is
        just one. Where members pass messages on, it may have come from anybody; where they give them to some that they
        are not for, it may have left no record."""
        backend = ordering.backend(self.topology.domains[self.into[arrow.message, arrow.to]].backend)
        whose = {who for who, _ in self.missing[arrow.message, arrow.to]}
        at = here.index(arrow)
        able = [
            other
            for place, other in enumerate(here)
            if place != at and (backend.relays or other.frm in whose) and not (other.frm == arrow.frm and place > at)
        ]
        return able[0] if len(able) == 1 and not backend.spreads else None


def played(backend: str, servers: int, sends: int, ratio: float, seed: int) -> Story:
    """What happens in one domain with packets of 50 ms in the mean, and 100 ms between two sends of a server."""
    world = World(seed)
    watch = Watch([f"s{at + 1}" for at in range(servers)])
    domain = Domain(world, cores(backend, servers), Exponential(world, 50 * MS), [watch])
    Poisson(seed, 100 * MS, multicasts(ratio), sends).start(domain)
    domain.finish()
    return watch.story
