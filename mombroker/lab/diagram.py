"""Space-time diagrams as SVG: processes as lines, messages as arrows, what waits as bars, deliveries as dots."""

import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
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
LEFT, TOP, RIGHT, APART = 92, 34, 40, 24  # pixels; the last above and below the line of a process
NAME, BAR, CHAR, GAP = 13, 10, 8, 4  # pixels of a lane of names, of one of bars, of a letter, between two in a lane
AXIS = 34  # pixels of the axis of time
STEP, STRETCH = 24, 46  # pixels between two moments at least, and at most as many more
SPOT = 10  # pixels between messages at one moment of a process
BYTES = 32  # of a stamp that are shown
TICK = 70  # pixels between two times at the axis, at least
LISTED = 12  # of the messages that an arrow stands for, so many are named
BY_LINK = ("matrix", "rst", "daisy")  # their sequences count the packets of a link; others', the sends of a member
COLOURS = ("#1558a6", "#b3261e", "#1b7f3b", "#8a4baf", "#b26a00", "#00788a", "#a3195b", "#5b6b00", "#44515f", "#6d4c41")


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


# -- drawing -----------------------------------------------------------------------------------------------------------


def svg(story: Story, title: str, middle: str = "", clock: bool = False) -> str:
    """A picture of its own; hovering tells times and stamps, and what waited links to what it waited for, if that is
    drawn. The message in the middle is drawn bold, and in front of the others. `clock`: times are those of clocks."""
    left = max(LEFT, 20 + CHAR * max(map(len, story.processes), default=0))
    across = _Across(story, left)
    begins, ends, freed = across.begins, across.ends, across.freed
    first: dict[str, Arrow] = {}  # it has the name
    for a in sorted(story.arrows, key=lambda a: (a.onward, a.left)):
        first.setdefault(a.message, a)
    called = {a.message: _called(a) for a in first.values()}
    held = [arrow for arrow in story.arrows if arrow.held]
    bars = lanes([(a.to, ends(a), freed(a)) for a in held])
    under = [_only_up(story, a) and all(each.to != a.frm for each in held) for a in first.values()]
    names = lanes([
        (f"{a.frm}{' under' if low else ''}", begins(a), begins(a) + CHAR * len(called[a.message]))
        for a, low in zip(first.values(), under, strict=True)
    ])  # fmt: skip
    placed = lanes([
        (mark.process, across.xs[mark.at], across.xs[mark.at] + CHAR * len(mark.text)) for mark in story.marks
    ])  # fmt: skip
    ys, marked_at, y = {}, dict[str, int](), TOP
    for process in story.processes:  # names above its line, bars below, or the names of what only goes up
        mine = [(low, lane + 1) for a, low, lane in zip(first.values(), under, names, strict=True) if a.frm == process]
        above, below = (max((lanes for at, lanes in mine if at == low), default=0) for low in (False, True))
        waits = max((lane + 1 for a, lane in zip(held, bars, strict=True) if a.to == process), default=0)
        ys[process] = y + NAME * above + APART
        marked = [lane + 1 for mark, lane in zip(story.marks, placed, strict=True) if mark.process == process]
        y = marked_at[process] = ys[process] + BAR * waits + NAME * below + 4
        y += NAME * max(marked, default=0) + APART - 4
    ends_of_names = [begins(a) + CHAR * len(called[a.message]) for a in first.values()]
    ends_of_names += [across.xs[mark.at] + CHAR * len(mark.text) for mark in story.marks]
    width = max(across.end, left + 480, *ends_of_names) + RIGHT  # at least that of the legend
    legend = ["arrow: a packet   dot: delivery   ring: for others, or a duplicate   bar: waits for an earlier message"]
    legend += ["dashed: without the body, to be counted"] * any(arrow.bare for arrow in story.arrows)
    legend += ["line across: a view   #: place in its total order, which what has a # for a name tells"] * bool(
        story.marks
    )
    axis = y
    height = axis + AXIS + 18 + 16 * len(legend)
    colours = {message: COLOURS[at % len(COLOURS)] for at, message in enumerate(first)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="22" font-size="14" font-weight="600">{escape(title)}</text>',
    ]
    begin, drawn = min((a.left for a in story.arrows), default=0), {(arrow.message, arrow.to) for arrow in story.arrows}
    parts += _axis(across.xs, begin, (left, width - RIGHT // 2), axis, clock)
    for process, y in ys.items():
        parts.append(f'<text x="12" y="{y + 4}" fill="#1d2733">{escape(process)}</text>')
        parts.append(f'<line x1="{left}" y1="{y}" x2="{width - RIGHT // 2}" y2="{y}" stroke="#b9c2cc"/>')
    for mark, lane in zip(story.marks, placed, strict=True):
        parts += _mark(mark, across.xs[mark.at], ys[mark.process], marked_at[mark.process] + NAME * (lane + 1))
    came_at = {(a.message, a.to): a for a in story.arrows}
    lane_of = {id(a): lane for a, lane in zip(held, bars, strict=True)}
    for a in sorted(story.arrows, key=lambda a: a.message == middle):
        wide = 2.6 if a.message == middle else 1.4
        place = begins(a), ys[a.frm], ends(a), ys[a.to]
        until, linked = freed(a) if a.held else 0, (a.waited_for, a.to) in drawn
        if a.held and linked:
            cause = came_at[a.waited_for, a.to]
            parts.append(_link(ends(cause), until, ys[a.to], lane_of[id(a)], colours[a.waited_for]))
        parts += _arrow(a, place, until, lane_of.get(id(a)), colours[a.message], wide, begin, linked)
    for a, low, lane in zip(first.values(), under, names, strict=True):  # in front of all lines
        y = ys[a.frm] + (16 + NAME * lane if low else -9 - NAME * lane)
        at = f'x="{begins(a) - 4}" y="{y}"' + ' font-weight="700"' * (a.message == middle)
        name = escape(called[a.message])
        parts.append(f'<text {at} stroke="#fff" stroke-width="3">{name}</text>')
        parts.append(f'<text id="{escape(a.message)}" {at} fill="{colours[a.message]}">{name}</text>')
    for row, line in enumerate(reversed(legend)):
        y = height - 12 - 16 * row
        parts.append(f'<text x="12" y="{y}" fill="#5b6875" xml:space="preserve">{line}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axis(xs: Mapping[int, int], begin: int, ends: tuple[int, int], y: int, clock: bool) -> list[str]:
    """Times of what is drawn, in ms after the first, as far as they have room; between two it is not to scale."""
    after = (
        f" after {datetime.fromtimestamp(begin // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{begin // 1000 % 10**6:06d}Z" * clock
    )
    text = f"ms{after or ' after the first packet left'}; between two times not to scale"
    parts = [
        f'<line x1="{ends[0]}" y1="{y}" x2="{ends[1]}" y2="{y}" stroke="#5b6875"/>',
        f'<text x="{ends[0]}" y="{y + 32}" fill="#5b6875" font-size="11">{text}</text>',
    ]
    last = -TICK
    for moment, x in xs.items():
        if x - last >= TICK:
            last = x
            parts.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{y + 4}" stroke="#edf0f3"/>')
            time = f"{(moment - begin) / 1e6:,.2f}"
            parts.append(f'<text x="{x}" y="{y + 17}" fill="#5b6875" font-size="11" text-anchor="middle">{time}</text>')
    return parts


def _mark(mark: Mark, x: int, y: int, below: int) -> list[str]:
    """Its text stands below all that waits."""
    parts = [f'<text x="{x + 3}" y="{below}" fill="#5b6875" font-size="11">{escape(mark.text)}</text>']
    if mark.line:
        line = f'x1="{x}" y1="{y - 12}" x2="{x}" y2="{below}" stroke="#44515f" stroke-width="2"'
        parts.append(f"<line {line}/>")
    return parts


def _link(x: int, until: int, y: int, lane: int, colour: str) -> str:
    """From where the cause came to the end of the bar of what waited for it."""
    line = f'x1="{x}" y1="{y}" x2="{until}" y2="{y + BAR * (lane + 1)}"'
    return f'<line {line} stroke="{colour}" stroke-opacity="0.6"/>'


class _Across:
    """Where from left to right arrows begin and end: by time, and beside each other what does so at one moment at one
    process."""

    def __init__(self, story: Story, left: int):
        times = {at for a in story.arrows for at in (a.left, a.came, a.delivered) if at}
        moments = sorted(times.union(mark.at for mark in story.marks))
        self.spots: dict[tuple[str, int], list[str]] = {}  # messages that begin or end there
        for a in story.arrows:
            for spot in (a.frm, a.left), (a.to, a.came):
                if a.message not in self.spots.setdefault(spot, []):
                    self.spots[spot].append(a.message)
        room = dict.fromkeys(moments, 0)
        for (_, moment), messages in self.spots.items():
            room[moment] = max(room[moment], SPOT * (len(messages) - 1))
        self.xs = places(moments, room, left)
        self.end = self.xs[moments[-1]] + room[moments[-1]] if moments else left

    def begins(self, arrow: Arrow) -> int:
        return self._at(arrow.frm, arrow.left, arrow.message)

    def ends(self, arrow: Arrow) -> int:
        return self._at(arrow.to, arrow.came, arrow.message)

    def freed(self, arrow: Arrow) -> int:
        return self._at(arrow.to, arrow.delivered, arrow.message)

    def _at(self, process: str, moment: int, message: str) -> int:
        there = self.spots.get((process, moment), [])
        return self.xs[moment] + SPOT * (there.index(message) if message in there else 0)


def _called(first: Arrow) -> str:
    """What is written where a message begins in the picture."""
    name = first.message + ", passed on" * first.onward
    return f"{name} and {len(first.twins)} more" if first.twins else name


def _only_up(story: Story, first: Arrow) -> bool:
    """Whether all arrows that begin where a message does go to processes above."""
    row = story.processes.index
    return all(
        row(arrow.to) < row(first.frm)
        for arrow in story.arrows
        if (arrow.message, arrow.frm) == (first.message, first.frm)
    )  # fmt: skip


Span = tuple[str, int, int]  # of a process, from x to x


def lanes(spans: Sequence[Span]) -> list[int]:
    """For each the lowest lane of its process in which it covers no other."""
    ends: dict[str, list[int]] = {}
    found = [0] * len(spans)
    for number in sorted(range(len(spans)), key=lambda number: spans[number][1:]):
        process, begin, end = spans[number]
        taken = ends.setdefault(process, [])
        lane = next((at for at, last in enumerate(taken) if last + GAP <= begin), len(taken))
        taken[lane : lane + 1] = [end]
        found[number] = lane
    return found


def places(moments: Sequence[int], room: Mapping[int, int] | None = None, left: int = LEFT) -> dict[int, int]:
    """x of each moment: in order, far apart where much time is between, but never too near nor too far to be read.
    `room`: what a moment takes itself."""
    if not moments:
        return {}
    gaps = [b - a for a, b in zip(moments, moments[1:], strict=False)]
    largest = max(gaps, default=0) or 1
    x, found = left + STEP, {}
    for moment, gap in zip(moments, [*gaps, 0], strict=True):
        found[moment] = x
        x += STEP + round(STRETCH * (gap / largest) ** 0.5) + (room or {}).get(moment, 0)
    return found


def _arrow(
    arrow: Arrow, place: tuple[int, int, int, int], until: int, lane: int | None, colour: str, wide: float, begin: int,
    linked: bool,
) -> list[str]:  # fmt: skip
    x1, y1, x2, y2 = place
    said = f"{arrow.message}: {arrow.frm} to {arrow.to}, sent at {(arrow.left - begin) / 1e6:.2f} ms, "
    said += f"came after {'at most ' * arrow.latest}{(arrow.came - arrow.left) / 1e6:.2f} ms"
    said += ", without its body" * arrow.bare
    said += f", stamp of {arrow.stamp}" * bool(arrow.stamp)
    if arrow.held:
        said += f", waited {(arrow.delivered - arrow.came) / 1e6:.2f} ms"
        said += f" for {arrow.waited_for or 'an earlier message that the logs do not name'}"
    if arrow.twins:
        rest = ", ..." * (len(arrow.twins) > LISTED)
        said += f"; with it went {len(arrow.twins)} more: {', '.join(arrow.twins[:LISTED])}{rest}"
    parts = [f'<g stroke="{colour}" fill="{colour}"><title>{escape(said)}</title>']
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    tip = x2 - 5 * dx, y2 - 5 * dy
    wings = [(tip[0] - 8 * dx + side * 3.5 * dy, tip[1] - 8 * dy - side * 3.5 * dx) for side in (1, -1)]
    dashed = ' stroke-dasharray="5 3"' * arrow.bare
    parts.append(f'<line x1="{x1}" y1="{y1}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}" stroke-width="{wide}"{dashed}/>')
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, *wings))
    parts.append(f'<polygon points="{head}" stroke="none"/>')
    fill = "" if arrow.delivered and not arrow.passed else ' fill="#fff"'
    if lane is not None:
        below = y2 + BAR * (lane + 1)
        bar = (
            f'<rect x="{x2}" y="{below - 3}" width="{until - x2}" height="6" rx="3" stroke="none" fill-opacity="0.35"/>'
        )
        parts.append(f'<line x1="{x2}" y1="{y2}" x2="{x2}" y2="{below}" stroke-opacity="0.35"/>')
        parts.append(f'<a href="#{escape(arrow.waited_for)}">{bar}</a>' if linked else bar)
        parts.append(f'<circle cx="{until}" cy="{below}" r="4"{fill}/>')
    else:
        parts.append(f'<circle cx="{x2}" cy="{y2}" r="4.5"{fill}/>')
    parts.append("</g>")
    return parts


# -- a domain in the laboratory ----------------------------------------------------------------------------------------


def played(backend: str, servers: int, sends: int, ratio: float, seed: int) -> Story:
    """What happens in one domain with packets of 50 ms in the mean, and 100 ms between two sends of a server."""
    world = World(seed)
    watch = Watch([f"s{at + 1}" for at in range(servers)])
    domain = Domain(world, cores(backend, servers), Exponential(world, 50 * MS), [watch])
    Poisson(seed, 100 * MS, multicasts(ratio), sends).start(domain)
    domain.finish()
    return watch.story
