"""Space-time diagrams as SVG: processes as lines, messages as arrows, what waits as bars, deliveries as dots."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from mombroker.lab.stories import Arrow, Mark, Story

LEFT, TOP, RIGHT, APART = 92, 34, 40, 24  # pixels; the last above and below the line of a process
NAME, BAR, CHAR, GAP = 13, 10, 8, 4  # pixels of a lane of names, of one of bars, of a letter, between two in a lane
AXIS = 34  # pixels of the axis of time
STEP, STRETCH = 24, 46  # pixels between two moments at least, and at most as many more
SPOT = 10  # pixels between messages at one moment of a process
TICK = 70  # pixels between two times at the axis, at least
LISTED = 12  # of the messages that an arrow stands for, so many are named
COLOURS = ("#1558a6", "#b3261e", "#1b7f3b", "#8a4baf", "#b26a00", "#00788a", "#a3195b", "#5b6b00", "#44515f", "#6d4c41")


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
