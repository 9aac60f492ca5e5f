"""The report as one page that needs nothing beside it: no script, no font, no picture from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from mombroker.admin.analysis import maps, pictures
from mombroker.admin.analysis.figures import TIMES
from mombroker.core.topology import Topology

Figures = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #222; --soft: #5a6270; --line: #d5d9de; --head: #234;
  --bar: #4a7fb5; --good: #e6f4e6; --note: #f6f0dc; --one: #2a6fb0; --two: #c8641e }
@media (prefers-color-scheme: dark) { :root { --ground: #15181c; --ink: #e4e6e8; --soft: #9aa4b0; --line: #363c44;
  --head: #b8cbe0; --bar: #6ea3d8; --good: #1d3322; --note: #3a331a; --one: #6db2f2; --two: #f0944c } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 100em; padding: 0 1em;
  color: var(--ink); background: var(--ground) }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em } h2, th { color: var(--head) }
p, ul { max-width: 60em } dt { font-weight: 600 } dd { margin: 0 0 .4em 1.2em; color: var(--soft); max-width: 60em }
table { border-collapse: collapse; margin: .5em 0; display: block; overflow-x: auto }
th, td { padding: .15em .6em; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
td.n { text-align: right; font-variant-numeric: tabular-nums } th[title] { text-decoration: underline dotted }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25em), 1fr)); gap: 1.5em }
figure { margin: 0; min-width: 0 } figcaption, .facts div { color: var(--soft) }
.facts { display: flex; flex-wrap: wrap; gap: .8em 2.2em; margin: 1em 0 }
.facts b { display: block; font-size: 1.3em; font-weight: 600; color: var(--ink); font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto; font-size: 12px }
svg text { fill: var(--ink); paint-order: stroke; stroke: var(--ground); stroke-width: 3px }
svg text.soft { fill: var(--soft) } .dot { fill: var(--soft) } .bar { fill: var(--bar) }
@media (max-width: 40em) { svg.map { font-size: 18px } svg.map .screen { display: none } } .key { white-space: nowrap }
.grid { stroke: var(--line) } .empty { fill: none; stroke: var(--line) } .curve { stroke-width: 1.5 }
.c0 { fill: var(--one); color: var(--one) } .c1 { fill: var(--two); color: var(--two) }
.curve.c0 { stroke: var(--one) } .curve.c1 { stroke: var(--two) }
.good { background: var(--good) } .note { background: var(--note) }
.good, .note { padding: .6em 1em; border-radius: .3em }
"""
ROWS = 200  # of a table, the first

WORDS = {  # of columns, and of what is told by them
    "messages": "sends, each to one agent or to many; a copy is what one of them gets",
    "packets": "what one server puts on one link for a message; routers and relays make more of them",
    "payload bytes": "what clients and agents have sent; on a link each message once",
    "control bytes": "all of a packet but the message: what causal order costs on a link",
    "control ints": "the same in integers of the papers (4 bytes before they are packed)",
    "formula ints": "what the papers' formula gives for a domain of that size: its typical traffic, and at worst",
    "control pct": "control bytes as a share of control and payload bytes; of wire: of all that sockets sent",
    "wire bytes": "bytes that the links' sockets have sent, frames and acknowledgements included",
    "wal bytes": "bytes of the stores' write-ahead logs; disk bytes: all that servers wrote to disk",
    "value bytes": "bytes of the values that commits put into tables; rows: how many",
    "hops": "links that a copy has crossed; 1 in one domain for all",
    "store": "ms from the stamp to when the commit that it is part of is durable",
    "link": "ms from there until it comes in at the other side; within: what that may be off by, where a clock was off",
    "hold": "ms that it waits there for its causes",
    "queue": "ms from then until its agent has reacted",
    "rest": "what the sums of the four leave of all (below the table)",
    "held": "over time: messages that wait for their causes, in the mean; in tables: how many have waited",
    "rows": "of an advice: rows of out-queues and clocks that a message makes servers write",
    "price": "of wire bytes, in your currency; of an advice: control bytes, and each packet at what it weighs beside "
    "these: the bytes on all links",
    "topology": "of an advice: flat is one domain for all; bus √n domains of √n servers, joined by one more",
    "busiest": "of an advice: the router that passes on most, and its share of all copies",
    "fit": "of an advice: how much cheaper than the same domains with servers dealt at random",
    "p50, p95, p99": "half, 95 and 99 of a hundred take no longer; off by 0.4 % at most",
}


def page(figures: Figures, topology: Topology | None, advice: Figures | None = None) -> str:
    """HTML of what report.analyse returned, and of Advice.as_dict."""
    totals, log = figures["totals"], figures["log"]
    title = f"What ordering costs: {topology.name}" if topology else "What ordering costs"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{_window(log)}</p>"]
    parts += [f"<p>{escape(hole)}.</p>" for hole in figures.get("holes", ())]
    parts.append(_facts(totals))
    if len(rows := figures["timeline"]) > 1:
        parts += ["<h2>Over time</h2>", _side(_times(rows))]
    caption = "Control bytes, % of control and payload bytes"
    shown = (
        maps.links(figures["links"], "control_pct", caption, " %", pictures.SHARE),
        maps.links(figures["links"], "hold_ms", "Mean time that its messages are held", " ms", pictures.HOLD),
        pictures.heat(figures["traffic"], _by_domain(figures["links"])),
    )
    parts += ["<h2>Links and traffic</h2>", _side(shown)]
    if advice is not None:
        parts += _advice(advice)
    charts = (
        ("Control bytes on a packet, by domain", "domains", "domain", "bytes_per_packet"),
        ("Where the time goes, seconds (without the rest: see below)", "latency.parts", "part", "seconds"),
        ("Mean time of a commit, ms", "servers", "server", "commit_ms"),
    )
    parts += ["<h2>At a glance</h2>"]
    parts.append(_side(pictures.bars(name, _at(figures, where), *columns) for name, where, *columns in charts))
    times = [*_at(figures, "latency.parts"), *_at(figures, "latency.whole")]
    parts += ["<h2>Time of a copy</h2>", _table(times), f"<p>{escape(TIMES)}</p>"]
    tables = (
        ("Domains", "domains"), ("Back ends", "orderings"), ("Servers", "servers"),
        ("Delay by hops", "latency.by_hops"), ("Who waits for whom", "waits"), ("Anomalies", "anomalies"),
        ("Clocks that were put right", "clocks"),
        ("What the audit found", "findings"),
        ("Hot destinations", "hot"), ("Destinations", "destinations"), ("Clients", "clients"),
        ("Traffic, server to server", "traffic"), ("Traffic, agent to agent", "agents"), ("Every link", "links"),
    )  # fmt: skip
    for name, where in tables:
        rows = _at(figures, where)
        flat = [{column: value for column, value in row.items() if column != "causes"} for row in rows]
        parts += [f"<h2>{name}</h2>", _table(flat) if rows else "<p>None.</p>"]
        if where == "findings" and rows:
            parts.append("<ul>" + "".join(f"<li>{escape(sentence(row))}</li>" for row in rows[:ROWS]) + "</ul>")
    words = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in WORDS.items())
    parts += [
        "<h2>Words and units</h2>",
        "<p>Times in columns that end in ms are milliseconds.</p>",
        f"<dl>{words}</dl>",
    ]
    return _whole(title, parts)


def advised(advice: Figures, name: str) -> str:
    """HTML of an advice alone."""
    title = f"Advice: {name}"
    return _whole(title, [f"<h1>{escape(title)}</h1>", *_advice(advice)])


def _whole(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
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


def _side(shown: Iterable[str]) -> str:
    return f'<div class="side">{"".join(shown)}</div>'


def _times(rows: Sequence[Figures]) -> Iterable[str]:
    yield pictures.times("Traffic", rows, {"messages_s": "messages sent"}, "by second")
    yield pictures.times("Time of a copy, from send to reaction", rows, {"mean_ms": "mean", "p95_ms": "p95"}, "ms")
    yield pictures.times("Held", rows, {"held": "messages that wait for their causes"}, "at a time")


def _by_domain(links: Sequence[Figures]) -> list[str]:
    """The servers, those of a domain side by side."""
    found: dict[str, None] = {}
    for link in sorted(links, key=lambda link: (link["domain"], link["from"], link["to"])):
        found |= {link["from"]: None, link["to"]: None}
    return list(found)


def sentence(row: Figures) -> str:
    """One of the findings of a link, as a sentence."""
    way = f", last from {row['from']} to {row['to']} in {row['domain']} ({row['ordering']})" if row["domain"] else ""
    message, agent, before = row["message"], row["agent"], row["before"]
    if row["finding"] == "violation" and before:
        told = f"{agent} reacted to {message} only after {before}, though {message} is a cause of it{way}"
        chain = row.get("causes", ())
        steps = [f"{each['agent']} sent {each['message']}" for each in chain[:1]]
        for one, other in pairwise(chain):
            had = "sent" if one["agent"] == other["agent"] else "got"
            steps.append(f"{other['agent']}, which had {had} that, sent {other['message']}")
        return told + (f": {'; '.join(steps)}" if steps else "")
    said = {"duplicate": "reacted twice to", "unsent": "reacted to what nobody sent:", "lost": "never got"}
    return f"{agent} {said.get(row['finding'], row['finding'])} {message}{way}"


def _advice(advice: Figures) -> Iterable[str]:
    yield "<h2>Advice</h2>"
    yield f'<p class="{"good" if advice["worthwhile"] else "note"}">{escape(advice["verdict"])}</p>'
    if lines := [*advice["changes"], *advice["remarks"]]:
        yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
    if not advice["options"]:  # none could be had, for the reason that the verdict gives
        return
    shown = [maps.topology(advice["current"], "The current topology")]
    if advice["changes"]:
        shown.append(maps.topology(advice["proposed"], "The proposed topology"))
    points = advice["front"]
    if not any(row["is"] == "current" for row in points):  # it is worse than one of them in all
        points = [*points, {**advice["options"][0], "number": "now", "is": "current"}]
    yield _side([*shown, pictures.front(points)])
    yield _table(advice["options"])
    titles = {
        "front": "The front: each is best in something, none in all.",
        "forecast": "By second, now and with more of the same traffic:",
        "model": "The model of the current topology against the log:",
    }
    for name, title in titles.items():
        if advice[name]:
            yield f"<p>{title}</p>"
            yield _table(advice[name])


def _facts(record: Figures) -> str:
    return '<div class="facts">' + "".join(_fact(name, value) for name, value in record.items()) + "</div>"


def _fact(name: str, value: object) -> str:
    shown = "–" if value is None else f"{value:,}"
    return f"<div><b>{shown}</b>{escape(name.replace('_', ' '))}</div>"


def _table(rows: Sequence[Figures]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(_head(name) for name in names)
    body = "".join("<tr>" + "".join(_cell(row.get(name)) for name in names) + "</tr>\n" for row in rows[:ROWS])
    more = f"<p>And {len(rows) - ROWS:,} more.</p>" if len(rows) > ROWS else ""
    return f"<table><tr>{head}</tr>\n{body}</table>{more}"


def _head(name: str) -> str:
    shown = (f"{name[:-2]} a second" if name.endswith("_s") else name).replace("_", " ")
    told = next((text for word, text in WORDS.items() if shown == word or shown.startswith(f"{word} ")), "")
    return f'<th title="{escape(told)}">{escape(shown)}</th>' if told else f"<th>{escape(shown)}</th>"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="n">{value:,}</td>'
