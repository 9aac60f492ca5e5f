"""Space-time diagrams as SVG: processes as lines, messages as arrows, what waits as bars, deliveries as dots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from mombroker.core.trace import Record
from mombroker.ordering import Packet, Step
from mombroker.sim.lab.domain import Domain, Observer, cores, number_of
from mombroker.sim.lab.networks import Exponential
from mombroker.sim.lab.workloads import Poisson, multicasts
from mombroker.sim.world import MS, World

MOST = 50  # events: more is not readable
LEFT, TOP, RIGHT, LINE = 92, 44, 40, 62  # pixels; the last between two processes
STEP, STRETCH = 24, 46  # pixels between two moments at least, and at most as many more
COLOURS = ("#1558a6", "#b3261e", "#1b7f3b", "#8a4baf", "#b26a00", "#00788a", "#a3195b", "#5b6b00", "#44515f", "#6d4c41")


@dataclass(slots=True)
class Arrow:
    """A packet of a message from one process to another. `delivered` is 0 for what only passes, or is a duplicate;
    `waited_for` is the message whose coming set it free."""

    message: str
    frm: str
    to: str
    left: int  # ns
    came: int
    delivered: int = 0
    waited_for: str = ""

    @property
    def held(self) -> bool:
        return self.delivered > self.came


@dataclass(slots=True)
class Story:
    """What happened, of so many processes. A message is sent at its first arrow's left end."""

    processes: Sequence[str]
    arrows: list[Arrow]

    def around(self, message: str, most: int = MOST) -> "Story":
        """A message, what it waited for, what waited for it, then what is near in time; only processes that take part.

        An arrow is two events, or three where it is held.
        """
        own = [arrow for arrow in self.arrows if arrow.message == message]
        assert own, f"there is no message {message}"
        begin, end = min(a.left for a in own), max(max(a.came, a.delivered) for a in own)
        linked = {a.waited_for for a in own} | {a.message for a in self.arrows if a.waited_for == message} | {message}

        def distance(arrow: Arrow) -> tuple[bool, int]:
            return arrow.message not in linked, max(begin - arrow.left, arrow.came - end, 0)

        chosen: list[Arrow] = []
        events = 0
        for arrow in sorted(own, key=lambda a: a.left) + sorted((a for a in self.arrows if a not in own), key=distance):
            events += 3 if arrow.held else 2
            if events > most and chosen:
                break
            chosen.append(arrow)
        names = {name for arrow in chosen for name in (arrow.frm, arrow.to)}
        chosen.sort(key=lambda arrow: (arrow.left, arrow.came))
        return Story([name for name in self.processes if name in names], chosen)


class Watch(Observer):
    """Notes the arrows of a domain in the laboratory; member k is called `names[k]`, message m `m<number>`."""

    def __init__(self, names: Sequence[str]):
        super().__init__()
        self.story = Story(names, [])
        self._flying: dict[tuple[int, int, int], list[Arrow]] = {}  # (from, to, number): in the order of leaving
        self._waiting: dict[tuple[int, int], Arrow] = {}  # (member, number)

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._leave(me, packets)

    def _leave(self, me: int, packets: Iterable[Packet]) -> None:
        names, now = self.story.processes, self.domain.world.now
        for packet in packets:
            if packet.body:
                number = number_of(packet)
                arrow = Arrow(f"m{number}", names[me], names[packet.to], now, 0)
                self._flying.setdefault((me, packet.to, number), []).append(arrow)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now = self.domain.world.now
        if packet.body:
            number = number_of(packet)
            arrow = self._flying[packet.frm, me, number].pop(0)
            arrow.came = now
            self.story.arrows.append(arrow)
            if packet in step.deliver:
                arrow.delivered = now
            elif self.domain.members[me].missing(packet) is not None:
                self._waiting[me, number] = arrow
        for done in step.deliver:
            waiting = self._waiting.pop((me, number_of(done)), None)
            if waiting:
                waiting.delivered = now
                waiting.waited_for = f"m{number_of(packet)}" if packet.body else ""
        self._leave(me, step.send)


def logged(logs: Mapping[str, Iterable[Record]]) -> Story:
    """What the logs of a bus say; a message is `server#number`. What came last before a delivery has set it free."""
    left: dict[tuple[str, str], int] = {}  # (message, server): when it left
    here: dict[str, list[Arrow]] = {}
    held: set[tuple[str, str]] = set()
    for server, records in logs.items():
        for record in records:
            kind, message = record[0], f"{record[1]}#{record[2]}"
            if kind == "send":
                left[message, server] = record[9]
            elif kind == "hold":
                held.add((message, server))
            elif record[6] and kind in ("react", "forward", "dead", "drop", "expire"):
                if kind == "forward":
                    left[message, server] = record[12]
                arrows = here.setdefault(server, [])
                arrows.append(Arrow(message, record[7], server, 0, record[10], record[11] or record[12]))
    arrows = []
    for server, each in here.items():
        first = {arrow.message: arrow for arrow in reversed(each)}  # forwarded, and for agents here: one packet
        order = sorted(first.values(), key=lambda arrow: arrow.came)
        for arrow in order:
            if (arrow.message, arrow.frm) not in left:
                continue  # its beginning is not in the logs
            arrow.left = min(left[arrow.message, arrow.frm], arrow.came)
            if (arrow.message, server) not in held:
                arrow.delivered = arrow.came
            elif before := [other for other in order if arrow.came < other.came <= arrow.delivered]:
                arrow.waited_for = before[-1].message
            arrows.append(arrow)
    return Story(list(logs), sorted(arrows, key=lambda arrow: (arrow.left, arrow.came)))


# -- drawing -----------------------------------------------------------------------------------------------------------


def svg(story: Story, title: str) -> str:
    """A picture of its own; hovering tells times, and what waited links to what it waited for."""
    moments = sorted({at for a in story.arrows for at in (a.left, a.came, a.delivered) if at})
    xs = places(moments)
    ys = {name: TOP + LINE // 2 + LINE * at for at, name in enumerate(story.processes)}
    width = max((*xs.values(), LEFT + 320)) + RIGHT
    height = TOP + LINE * len(ys) + 34
    messages = list(dict.fromkeys(arrow.message for arrow in story.arrows))
    colours = {message: COLOURS[at % len(COLOURS)] for at, message in enumerate(messages)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="22" font-size="14" font-weight="600">{escape(title)}</text>',
    ]
    for name, y in ys.items():
        parts.append(f'<text x="12" y="{y + 4}" fill="#1d2733">{escape(name)}</text>')
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{width - RIGHT // 2}" y2="{y}" stroke="#b9c2cc"/>')
    begin = moments[0] if moments else 0
    named: set[str] = set()
    for arrow in story.arrows:
        parts += _arrow(arrow, xs, ys, colours, begin, arrow.message not in named)
        named.add(arrow.message)
    legend = "arrow: a packet   dot: delivery   ring: passed on, or a duplicate   bar: waits for an earlier message"
    parts.append(f'<text x="12" y="{height - 12}" fill="#5b6875" xml:space="preserve">{legend}</text>')
    return "\n".join([*parts, "</svg>", ""])


def places(moments: Sequence[int]) -> dict[int, int]:
    """x of each moment: in order, far apart where much time is between, but never too near nor too far to be read."""
    if not moments:
        return {}
    gaps = [b - a for a, b in zip(moments, moments[1:], strict=False)]
    largest = max(gaps, default=0) or 1
    x, found = LEFT + STEP, {moments[0]: LEFT + STEP}
    for moment, gap in zip(moments[1:], gaps, strict=True):
        x += STEP + round(STRETCH * (gap / largest) ** 0.5)
        found[moment] = x
    return found


def _arrow(
    arrow: Arrow, xs: dict[int, int], ys: dict[str, int], colours: dict[str, str], begin: int, first: bool
) -> list[str]:
    colour, x1, y1, x2, y2 = colours[arrow.message], xs[arrow.left], ys[arrow.frm], xs[arrow.came], ys[arrow.to]
    said = f"{arrow.message}: {arrow.frm} to {arrow.to}, sent at {(arrow.left - begin) / 1e6:.2f} ms, "
    said += f"came after {(arrow.came - arrow.left) / 1e6:.2f} ms"
    if arrow.held:
        said += f", waited {(arrow.delivered - arrow.came) / 1e6:.2f} ms"
        said += f" for {arrow.waited_for}" if arrow.waited_for else ""
    parts = [f'<g stroke="{colour}" fill="{colour}"><title>{escape(said)}</title>']
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    tip = x2 - 5 * dx, y2 - 5 * dy
    wings = [(tip[0] - 8 * dx + side * 3.5 * dy, tip[1] - 8 * dy - side * 3.5 * dx) for side in (1, -1)]
    parts.append(f'<line x1="{x1}" y1="{y1}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}" stroke-width="1.4"/>')
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, *wings))
    parts.append(f'<polygon points="{head}" stroke="none"/>')
    if arrow.held:
        x3 = xs[arrow.delivered]
        bar = f'<rect x="{x2}" y="{y2 - 5}" width="{x3 - x2}" height="10" rx="4" stroke="none" fill-opacity="0.3"/>'
        parts.append(f'<a href="#{arrow.waited_for}">{bar}</a>' if arrow.waited_for else bar)
        parts.append(f'<circle cx="{x3}" cy="{y2}" r="4.5"/>')
    else:
        fill = "" if arrow.delivered else ' fill="#fff"'
        parts.append(f'<circle cx="{x2}" cy="{y2}" r="4.5"{fill}/>')
    if first:
        at = f'x="{x1 - 4}" y="{y1 - 9}"'
        name = escape(arrow.message)
        parts.append(f'<text {at} stroke="#fff" stroke-width="3">{name}</text>')
        parts.append(f'<text id="{name}" {at} stroke="none">{name}</text>')
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
