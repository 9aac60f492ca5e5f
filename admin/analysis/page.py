"""The report as one page that needs nothing beside it: no script, no font, no picture from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from mombroker.admin.analysis import report
from mombroker.core.topology import Topology

Figures = Mapping[str, Any]

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em } h2, th { color: #345 }
table { border-collapse: collapse; margin: .5em 0; display: block; overflow-x: auto }
th, td { padding: .15em .6em; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.side { display: flex; flex-wrap: wrap; gap: 1.5em } figure { margin: 0 } figcaption { color: #555 }
.facts { display: flex; flex-wrap: wrap; gap: .8em 2.2em; margin: 1em 0 } .facts div { color: #555 }
.facts b { display: block; font-size: 1.3em; font-weight: 600; color: #222; font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto } svg text { paint-order: stroke; stroke: #fff; stroke-width: 3px }
.good { background: #e8f4e8 } .note { background: #f4f0e0 } .good, .note { padding: .6em 1em; border-radius: .3em }
"""
MOST = 400  # links in a picture, the heaviest
WIDE, HIGH = 560, 440
ROWS = 200  # of a table, the first
BARS = 24  # in a chart, the longest
NAME = 14  # characters of a name in a picture


def page(figures: Figures, topology: Topology | None, advice: Figures | None = None) -> str:
    """HTML of what report.analyse returned, and of Advice.as_dict."""
    totals, log = figures["totals"], figures["log"]
    title = f"What ordering costs: {topology.name}" if topology else "What ordering costs"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{_window(log)}</p>"]
    parts += [f"<p>{escape(hole)}.</p>" for hole in figures.get("holes", ())]
    parts += [_facts(totals), "<h2>Links</h2>", '<div class="side">']
    parts.append(_map(figures["links"], "control_pct", "control bytes, % of what the link carries", "%"))
    parts.append(_map(figures["links"], "hold_ms", "mean time that its messages are held, ms", " ms"))
    parts.append("</div>")
    if advice is not None:
        parts += _advice(advice)
    charts = (
        ("Control bytes on a packet, by domain", "domains", "domain", "bytes_per_packet"),
        ("Where the time goes, seconds (without the rest: see below)", "latency.parts", "part", "seconds"),
        ("Mean time of a commit, ms", "servers", "server", "commit_ms"),
    )
    parts += ["<h2>At a glance</h2>", '<div class="side">']
    for caption, where, label, value in charts:
        parts.append(_bars(caption, _at(figures, where), label, value))
    parts.append("</div>")
    times = [*_at(figures, "latency.parts"), *_at(figures, "latency.whole")]
    parts += ["<h2>Time of a copy</h2>", _table(times), f"<p>{escape(report.TIMES)}</p>"]
    tables = (
        ("Domains", "domains"), ("Back ends", "orderings"), ("Servers", "servers"),
        ("Delay by hops", "latency.by_hops"), ("Who waits for whom", "waits"), ("Anomalies", "anomalies"),
        ("What the audit found", "findings"),
        ("Hot destinations", "hot"),
        ("Traffic, server to server", "traffic"), ("Traffic, agent to agent", "agents"), ("Every link", "links"),
    )  # fmt: skip
    for name, where in tables:
        rows = _at(figures, where)
        parts += [f"<h2>{name}</h2>", _table(rows) if rows else "<p>None.</p>"]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _window(log: Figures) -> str:
    begin, end = ((log[name] or "?").replace("T", " ").partition(".")[0] for name in ("start", "end"))
    count, seconds = f"{log['records']:,}", f"{log['seconds']:,}"
    return f"{count} records from {begin} to {end} UTC, {seconds} s. Made by mombroker {escape(log['version'])}."


def _at(figures: Figures, where: str) -> Sequence[Figures]:
    found: Any = figures
    for name in where.split("."):
        found = found[name]
    return found  # type: ignore[no-any-return]


def _advice(advice: Figures) -> Iterable[str]:
    yield "<h2>Advice</h2>"
    yield f'<p class="{"good" if advice["worthwhile"] else "note"}">{escape(advice["verdict"])}</p>'
    if advice["options"]:  # else none could be had, for the reason that the verdict gives
        yield _table(advice["options"])
        if advice["model"]:
            yield "<p>The model of the current topology against the log:</p>"
            yield _table(advice["model"])
    if lines := [*advice["changes"], *advice["remarks"]]:
        yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _facts(record: Figures) -> str:
    return '<div class="facts">' + "".join(_fact(name, value) for name, value in record.items()) + "</div>"


def _fact(name: str, value: object) -> str:
    shown = "–" if value is None else f"{value:,}"
    return f"<div><b>{shown}</b>{escape(name.replace('_', ' '))}</div>"


def _table(rows: Sequence[Figures]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join("<tr>" + "".join(_cell(row.get(name)) for name in names) + "</tr>\n" for row in rows[:ROWS])
    more = f"<p>And {len(rows) - ROWS:,} more.</p>" if len(rows) > ROWS else ""
    return f"<table><tr>{head}</tr>\n{body}</table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="n">{value:,}</td>'


def _bars(caption: str, rows: Sequence[Figures], label: str, value: str) -> str:
    known = [(str(row[label]), row[value]) for row in rows if row.get(value) is not None]
    drawn = sorted(known, key=lambda bar: -bar[1])[:BARS]
    most = max((each for _, each in drawn), default=0) or 1
    lines = []
    for at, (name, each) in enumerate(drawn):
        y = 18 * at
        lines.append(
            f'<text x="100" y="{y + 13}" text-anchor="end"><title>{escape(name)}</title>{_short(name)}</text>'
            f'<rect x="106" y="{y + 3}" width="{200 * each / most:.1f}" height="12" fill="#468"/>'
            f'<text x="{110 + 200 * each / most:.1f}" y="{y + 13}">{each:,}</text>'
        )
    if len(known) > len(drawn):
        caption += f"; the {len(drawn)} longest of {len(known)}"
    return _figure(380, 18 * len(drawn) + 4, lines, caption)


def _short(name: str) -> str:
    return escape(name if len(name) <= NAME else f"{name[: NAME - 1]}…")


def _figure(wide: int, high: int, lines: Sequence[str], caption: str) -> str:
    return (
        f'<figure><svg width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" font-size="12" role="img">'
        f"{''.join(lines)}</svg><figcaption>{caption}</figcaption></figure>"
    )


def _map(links: Sequence[Figures], value: str, caption: str, unit: str) -> str:
    """Servers and domains as they hang together; a link has the colour of the worse of its two directions."""
    import networkx as nx

    graph = nx.Graph()
    for link in links:
        graph.add_edge((link["domain"], True), (link["from"], False))
        graph.add_edge((link["domain"], True), (link["to"], False))
    if not graph:
        return ""
    spots = nx.spring_layout(graph, seed=1, iterations=80)
    place = {node: (30 + (x + 1) / 2 * (WIDE - 60), 24 + (y + 1) / 2 * (HIGH - 48)) for node, (x, y) in spots.items()}
    both: dict[tuple[str, str], tuple[float, int]] = {}
    for link in links:
        pair = min(link["from"], link["to"]), max(link["from"], link["to"])
        worst, packets = both.get(pair, (0.0, 0))
        both[pair] = max(worst, link[value] or 0.0), packets + link["packets"]
    most = max(worst for worst, _ in both.values()) or 1
    heavy = max(packets for _, packets in both.values()) or 1
    drawn = []
    for (a, b), (worst, packets) in sorted(both.items(), key=lambda one: -one[1][1])[:MOST]:
        (x1, y1), (x2, y2) = place[a, False], place[b, False]
        title = f"{a} – {b}: {worst:,}{unit}, {packets:,} packets"
        drawn.append(
            f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{_colour(worst / most)}" '
            f'stroke-width="{1 + 4 * packets / heavy:.1f}"><title>{escape(title)}</title></line>'
        )
    for (name, is_domain), (x, y) in place.items():
        if is_domain:
            drawn.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="#777">{_short(name)}</text>')
        else:
            drawn.append(
                f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="#345"/>'
                f'<text x="{x + 6:.0f}" y="{y - 5:.0f}">{_short(name)}</text>'
            )
    scale = f"{_key(0)} 0 to {_key(1)} {most:,}{unit}"
    return _figure(WIDE, HIGH, drawn, f"{caption}: {scale}; thick links carry many packets")


def _key(share: float) -> str:
    return f'<span style="color:{_colour(share)}">&#9632;</span>'


def _colour(share: float) -> str:
    """From a calm blue to red."""
    low, high = (120, 165, 205), (205, 40, 30)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(low, high, strict=True))
