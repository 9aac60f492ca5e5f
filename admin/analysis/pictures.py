"""Pictures of the page, as SVG: bars, a heat map, lines over time; `maps` has more. They take their colours from the
page's style, so that they are right in the dark, too; what a colour means is the same on every page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, log10
from typing import Any

Figures = Mapping[str, Any]

BARS = 24  # in a chart, the longest
NAME = 14  # characters of a name in a picture
CELLS = 40  # servers of a heat map, the busiest
CALM, WARM, HOT = (106, 156, 200), (214, 160, 50), (205, 50, 40)
SHARE = (0.0, 50.0, 100.0)  # %: the colours of CALM, WARM and HOT
HOLD = (1.0, 30.0, 1000.0)  # ms, and between them in the logarithm


def short(name: str) -> str:
    return escape(name if len(name) <= NAME else f"{name[: NAME - 1]}…")


def number(value: float) -> str:
    """As short as it can be read."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def svg(wide: int, high: int, lines: Iterable[str], caption: str, kind: str = "chart") -> str:
    return (
        f'<figure><svg width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" class="{kind}" role="img">'
        f"{''.join(lines)}</svg><figcaption>{caption}</figcaption></figure>"
    )


# -- colours -----------------------------------------------------------------------------------------------------------


def colour(value: float, steps: tuple[float, float, float]) -> str:
    """Of a share in %, or, where the first step is not 0, of a figure by its logarithm."""
    low, middle, high = steps
    if low:
        value, low, middle, high = (log10(max(each, low)) for each in (value, low, middle, high))
    value = min(max(value, low), high)
    a, b, share = (
        (CALM, WARM, (value - low) / (middle - low))
        if value <= middle
        else (WARM, HOT, (value - middle) / (high - middle))
    )
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in zip(a, b, strict=True))


def key(steps: tuple[float, float, float], unit: str) -> str:
    return " ".join(_mark(f'style="color:{colour(each, steps)}"', f"{each:g}{unit}") for each in steps)


def _mark(drawn: str, name: str) -> str:
    """A square and what it stands for, on one line."""
    return f'<span class="key"><span {drawn}>&#9632;</span> {escape(name)}</span>'


# -- charts ------------------------------------------------------------------------------------------------------------


def bars(caption: str, rows: Sequence[Figures], label: str, value: str) -> str:
    known = [(str(row[label]), row[value]) for row in rows if row.get(value) is not None]
    drawn = sorted(known, key=lambda bar: -bar[1])[:BARS]
    most = max((each for _, each in drawn), default=0) or 1
    lines = []
    for at, (name, each) in enumerate(drawn):
        y, long = 18 * at, 200 * max(each, 0) / most
        lines.append(
            f'<text x="100" y="{y + 13}" text-anchor="end"><title>{escape(name)}</title>{short(name)}</text>'
            f'<rect x="106" y="{y + 3}" width="{long:.1f}" height="12" class="bar"/>'
            f'<text x="{110 + long:.1f}" y="{y + 13}">{each:,}</text>'
        )
    if len(known) > len(drawn):
        caption += f"; the {len(drawn)} longest of {len(known)}"
    return svg(380, 18 * len(drawn) + 4, lines, escape(caption))


def times(caption: str, rows: Sequence[Figures], values: Mapping[str, str], unit: str) -> str:
    """Lines over time; `values`: column -> what it is called. Where nothing is known a line has a gap."""
    wide, high, left, top, low = 460, 190, 52, 10, 160
    most = max((row[name] or 0 for row in rows for name in values), default=0) or 1
    step = 10.0 ** (ceil(log10(most)) - 1)
    most = ceil(most / step) * step
    across = (wide - left - 10) / max(len(rows) - 1, 1)
    begin, end = str(rows[0]["time"]), str(rows[-1]["time"])  # as short as tells them apart
    clock = slice(5, 16) if begin[:10] != end[:10] else slice(11, 22 if begin[11:16] == end[11:16] else 19)
    lines = []
    for share in (0, 0.5, 1):
        y = low - share * (low - top)
        lines.append(f'<line x1="{left}" y1="{y}" x2="{wide - 10}" y2="{y}" class="grid"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{number(share * most)}</text>')
    for at, anchor in ((0, "start"), (len(rows) // 2, "middle"), (len(rows) - 1, "end")):
        when = str(rows[at]["time"])[clock]
        lines.append(f'<text x="{left + at * across:.0f}" y="{high - 12}" text-anchor="{anchor}">{when}</text>')
    for place, name in enumerate(values):
        spots = [(left + at * across, row[name]) for at, row in enumerate(rows)]
        for (x, a), (x2, b) in pairwise(spots):
            if a is not None and b is not None:
                y, y2 = (low - each / most * (low - top) for each in (a, b))
                lines.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="curve c{place}"/>')
        for x, each in spots:
            if each is not None:
                y = low - each / most * (low - top)
                title = f"{number(each)} {unit}, {values[name]}"
                lines.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" class="c{place}"><title>{escape(title)}</title></circle>'
                )
    names = ", ".join(_mark(f'class="c{at}"', each) for at, each in enumerate(values.values()))
    return svg(wide, high, lines, f"{escape(caption)}, {escape(unit)}: {names}")


def heat(rows: Sequence[Figures], order: Sequence[str]) -> str:
    """Messages from server (row) to server (column), stronger by the logarithm; those of a domain are side by side."""
    load: dict[str, int] = {}
    for row in rows:
        for end in ("from", "to"):
            load[row[end]] = load.get(row[end], 0) + row["messages"]
    busiest = set(sorted(load, key=lambda name: (-load[name], name))[:CELLS])
    place = {name: at for at, name in enumerate(order)}
    names = sorted(busiest, key=lambda name: (place.get(name, len(place)), name))
    if not names:
        return ""
    most = max(row["messages"] for row in rows) or 1
    size, lines = max(9, min(22, 440 // len(names))), list[str]()
    left = top = 10 + 6 * min(NAME, max(map(len, names)))
    at = {name: number * size for number, name in enumerate(names)}
    for name, y in at.items():
        lines.append(f'<text x="{left - 4}" y="{top + y + size - 2}" text-anchor="end">{short(name)}</text>')
        turned = f"translate({left + y + size - 2},{top - 4}) rotate(-90)"
        lines.append(f'<text transform="{turned}">{short(name)}</text>')
    side = size * len(names)
    lines.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" class="empty"/>')
    for row in rows:
        if row["from"] in at and row["to"] in at and row["messages"]:
            share = 0.12 + 0.88 * (log10(row["messages"]) / log10(most) if most > 1 else 1)
            title = f"{row['from']} to {row['to']}: {row['messages']:,} messages, {row['payload_bytes']:,} bytes"
            lines.append(
                f'<rect x="{left + at[row["to"]]}" y="{top + at[row["from"]]}" width="{size - 1}" '
                f'height="{size - 1}" class="bar" opacity="{share:.2f}"><title>{escape(title)}</title></rect>'
            )
    few = f"; the {len(names)} busiest of {len(load)} servers" if len(load) > len(names) else ""
    caption = f"Messages from server (row) to server (column), 1 to {most:,}, stronger by the logarithm{few}"
    return svg(left + side + 4, top + side + 4, lines, caption)


def front(points: Sequence[Figures]) -> str:
    """Control bytes against packets: numbers as in the table."""
    wide, high, left, low, top = 460, 250, 52, 210, 16
    packets, control = ([row[name] for row in points] for name in ("packets", "control_bytes"))
    least, most, tall = min(packets), max(packets), max(control) or 1
    across = (wide - left - 60) / ((most - least) or 1)
    lines = [
        f'<line x1="{left}" y1="{low}" x2="{wide - 10}" y2="{low}" class="grid"/>',
        f'<line x1="{left}" y1="{top}" x2="{left}" y2="{low}" class="grid"/>',
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end">{number(tall)}</text>',
        f'<text x="{left - 6}" y="{low + 4}" text-anchor="end">0</text>',
        f'<text x="{left}" y="{low + 18}">{least:g}</text>',
        f'<text x="{wide - 10}" y="{low + 18}" text-anchor="end">{most:g}</text>',
    ]
    for row in points:
        x, y = left + 15 + (row["packets"] - least) * across, low - row["control_bytes"] / tall * (low - top)
        title = f"{row['control_bytes']:,} control bytes, {row['packets']:,} packets, {row['delay_ms']:,} ms"
        lines.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" class="{_which(row)}"><title>{title}</title></circle>')
        lines.append(f'<text x="{x + 8:.0f}" y="{y - 5:.0f}">{row["number"]}</text>')
    marks = " ".join(_mark(f'class="c{at}"', name) for at, name in enumerate(("current", "proposed")))
    return svg(wide, high, lines, f"The front: control bytes (up) and packets (across) of a message; {marks}")


def _which(row: Figures) -> str:
    return {"current": "c0", "proposed": "c1"}.get(row["is"], "dot")
