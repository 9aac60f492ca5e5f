"""The whole analysis of a log: every figure in one dict, as `mom analyze -o json` prints it and the page shows it.

Times in the dict are ms. Figures of a server or domain are of all that the log holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from mombroker import __version__, ordering
from mombroker.admin.analysis import clocks, cost, findings, timeline
from mombroker.admin.topology.costs import SAMPLE, Load
from mombroker.core.topology import Topology
from mombroker.lab.bus_workloads import Send
from mombroker.lab.replay import Delays
from mombroker.ordering.base import INTEGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mombroker.admin.audit.bus import Findings

Figures = dict[str, Any]

MS = 1e6
SLOTS = timeline.SLOTS
HELD = 0.12  # of the log's time, in all: what is held for less in the last third does not grow
PARTS = 24  # parts of the log's time from each of which a sample of its messages has its share
GROWTH = 3.0  # times what was held in the first third: holds grow
SILENT = 0.25  # of the log's time: a server that has been quiet for so long at the end is silent, but not before
PAUSE = 1e9  # ns
SKEW = 3.0  # times the mean load: a server, or destination, is hot
BROADCAST = 1_000_000  # commits, at most, that are told to every task

MOST = 1000  # rows of a result that would grow with agents or clients

TIMES = (  # what the table of a copy's time is of
    "store, link and hold: of crossings of links, each once; queue and all: of copies, all from send to reaction. "
    "rest: what the sums leave of all: the time before the last relay in domains whose back end relays (daisy, "
    "overlay), and what copies that share a crossing, or that have not been reacted to, make different."
)


def analyse(
    log: DataFrame, topology: Topology | None = None, found: Findings | None = None, messages: int = SAMPLE
) -> tuple[Figures, Load]:
    """All figures, and the traffic as the advice wants it, with so many messages to be played. `topology` names members
    and servers that the log does not; what an audit `found` is told by the link that it came over, if there is one.

    Columns of `log` are those of schema.py. Every result is collected: their sizes follow the number of links and pairs
    of servers; of agents, destinations and clients the MOST largest are told, and of agents those first whose messages
    do not add up.
    """
    machines = _collected(cost.commits(log))
    small = sum(row.waits for row in machines) <= BROADCAST
    flowing, took = cost.flows(log).persist(), cost.taken(log).persist()
    talking = cost.agents(flowing).persist()
    targeted, given = cost.targets(talking, took), F.col("sent") + F.col("given")
    odd = F.when(F.col("wanted") == F.col("became"), F.col("wanted")).otherwise(F.lit(1 << 62))  # these first
    start, span = _span(machines)
    spreads, delays, ahead = _spread(log, small, took, start, span // SLOTS + 1)
    try:
        parts = {
            "stamped": cost.stamped(log), "agents": cost.top(talking, "messages", MOST),
            "servers": cost.servers(flowing),
            "taken": cost.top(cost.together(took), "records", MOST * 10), "targets": cost.top(targeted, odd, MOST),
            "destinations": cost.top(cost.destinations(talking), given, MOST),
            "clients": cost.top(cost.clients(log, flowing), given, MOST),
            "holds": cost.holds(spreads),
            "arrivals": cost.arrivals(log, ahead), "waiting": cost.waiting(cost.waits(log)),
            "meters": cost.meters(log), "times": timeline.slots(log, start, span // SLOTS + 1, ahead),
        }  # fmt: skip
        if found and topology and not found.clean:
            parts["findings"] = findings.by_link(findings.located(log, found, topology))
        rows = {name: _collected(part) for name, part in parts.items()}
    finally:
        for each in (flowing, took, talking, spreads):
            each.unpersist()
    rows |= {"machines": machines, "delays": delays, "clocks": [Row(**each) for each in _clocks(ahead)]}
    return _figures(rows, topology, start, span), _load(log, rows, messages)


def _spread(
    log: DataFrame, small: bool, took: DataFrame, start: int = 0, length: int = 1 << 62
) -> tuple[DataFrame, list[Row], dict[str, int]]:
    """`cost.spread`, kept until it is unpersisted, `cost.delays`, and by what clocks are ahead: both are without it."""
    crossed, named = cost.hops(log, small), cost.links(took)
    spreads = cost.spread(crossed, named, start, length).persist()
    delays = _collected(cost.delays(spreads))
    ahead = clocks.ahead(clocks.least(delays))
    if ahead:
        spreads.unpersist()
        spreads = cost.spread(cost.put_right(crossed, named, ahead), named, start, length).persist()
        delays = _told(_collected(cost.delays(spreads)), delays)
    return spreads, delays, ahead


def _told(right: Sequence[Row], raw: Sequence[Row]) -> list[Row]:
    """Delays that are put right, with what the clocks themselves have told."""
    said = {(row.domain, row.server, row.peer): row for row in raw}
    found = []
    for row in right:
        told = said[row.domain, row.server, row.peer]
        found.append(Row(**{**row.asDict(), "early": told.early, "ahead": told.ahead, "least": told.least}))
    return found


def _clocks(ahead: Mapping[str, int]) -> list[Figures]:
    """Those that are off, by what delays were put right."""
    return [{"server": server, "ahead_ms": round(ns / MS, 3)} for server, ns in sorted(ahead.items())]


def _collected(part: DataFrame) -> list[Row]:
    """In an order of its own: that of Spark's tasks is another one each time."""
    return sorted(part.collect(), key=repr)


def load(log: DataFrame, messages: int = SAMPLE) -> Load:
    """The traffic alone, with the delays that were measured, and so many messages to be played."""
    spreads, delays, ahead = _spread(log, False, cost.taken(log))
    spreads.unpersist()
    parts = {
        "servers": cost.servers(cost.flows(log)), "stamped": cost.stamped(log), "arrivals": cost.arrivals(log, ahead),
        "meters": cost.meters(log),
    }  # fmt: skip
    return _load(log, {name: _collected(part) for name, part in parts.items()} | {"delays": delays}, messages)


def _span(machines: Sequence[Row]) -> tuple[int, int]:
    """When the log begins, and how long it goes on, in ns."""
    start = min((row["first"] for row in machines), default=0)
    return start, max((row["last"] for row in machines), default=0) - start


def _load(log: DataFrame, rows: Mapping[str, Sequence[Row]], most: int) -> Load:
    """Who sends to whom, with the delays that were measured."""
    used = [row for row in rows["servers"] if row.targets]
    flows = {(row.source, tuple(row.targets)): float(row.messages) for row in used}
    known = [row for row in rows["delays"] if row.server and row.link_count]
    took = {(row.peer, row.server): (row.store + row.link) // row.link_count for row in known}
    count = sum(row.link_count for row in known)
    mean = sum(row.store + row.link for row in known) // count if count else Delays().mean
    times = min((row.first for row in used), default=0), max((row.last for row in used), default=0)
    sent = sends(log, times, most) if used and most else []
    return Load(flows, sent, Delays(max(mean, 1), took), _seen(rows, sum(flows.values())), _packet(rows))


def _packet(rows: Mapping[str, Sequence[Row]]) -> float:
    """Bytes of a packet on the wire beside its control bytes, on links that have counted; 0: none has."""
    wire: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows.get("meters", ()):
        if row.figure == "wire_bytes":
            wire[row.domain, row.server, row.peer] += row.amount
    known = [row for row in rows["stamped"] if (row.domain, row.server, row.peer) in wire]
    rest = sum(wire.values()) - sum(row.control_bytes for row in known)
    return max(rest, 0) / sum(row.packets for row in known) if known else 0.0


def _seen(rows: Mapping[str, Sequence[Row]], messages: float) -> Figures:
    """What the log says of what the model says, too: of messages that leave their server."""
    remote = [row for row in rows["arrivals"] if row.server is not None and row.hops]
    found, copies = {}, sum(row.copies for row in remote)
    if messages:
        found["control_bytes"] = sum(row.control_bytes for row in rows["stamped"]) / messages
        found["packets"] = sum(row.packets for row in rows["stamped"]) / messages
    if copies:
        found["hops"] = sum(row.copies * row.hops for row in remote) / copies
        found["delay_ms"] = sum(row.total - row.queue for row in remote) / copies / MS
    return found


def _figures(rows: Mapping[str, Sequence[Row]], topology: Topology | None, start: int, span: int) -> Figures:
    messages = sum(row.messages for row in rows["servers"])
    links = _links(rows)
    domains = _domains(rows, links, topology)
    arrivals = _pairs(rows)
    copies, remote = (sum(row.copies for row in some) for some in (arrivals, [row for row in arrivals if row.hops]))
    crossed = sum(row.copies * row.hops for row in arrivals)
    control, packets = sum(row["control_bytes"] for row in links), sum(row["packets"] for row in links)
    payload = sum(row.payload for row in rows["servers"])
    return {
        "log": {
            "records": sum(row.records for row in rows["machines"]), "start": _shown(start),
            "end": _shown(start + span), "seconds": round(span / 1e9, 3), "version": __version__,
        },
        "totals": {
            "messages": messages, "payload_bytes": payload, "packets": packets, "control_bytes": control,
            "control_ints": sum(row["control_ints"] for row in links), "copies": copies,
            **_metered(rows, ("wire_bytes", "wal_bytes", "disk_bytes")), **_written(rows["machines"]),
            "control_per_message": _ratio(control, messages), "packets_per_message": _ratio(packets, messages),
            "hops_per_remote_copy": _ratio(crossed, remote),
        },
        "domains": domains,
        "orderings": _orderings(domains, rows),
        "links": links,
        "servers": _servers(rows, links),
        "traffic": _traffic(rows),
        "agents": [
            {"source": row.source, "target": row.target, "messages": row.messages, "payload_bytes": row.payload}
            for row in _heaviest(rows["agents"], "messages")
        ],
        "destinations": [row.asDict() for row in rows.get("destinations", ())],
        "clients": [row.asDict() for row in rows.get("clients", ())],
        "latency": _latency(rows),
        "timeline": timeline.figures(rows.get("times", ()), rows["holds"], start, span),
        "waits": _waits(rows, topology),
        "hot": _hot(rows),
        "clocks": [row.asDict() for row in rows.get("clocks", ())],
        "anomalies": list(_anomalies(rows, topology, start, span)),
        "findings": [
            {
                "finding": row.finding, "domain": row.domain, "ordering": row.ordering, "from": row.peer,
                "to": row.server, "count": row["count"], "agent": row.agent, "message": f"{row.origin}#{row.number}",
                "before": None if row.before_origin is None else f"{row.before_origin}#{row.before_number}",
            }
            for row in _heaviest(rows.get("findings", ()), "count")
        ],
    }  # fmt: skip


def _links(rows: Mapping[str, Sequence[Row]]) -> list[Figures]:
    delays = {(row.domain, row.peer, row.server): row for row in rows["delays"] if row.server}
    stamped: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows["stamped"]:
        stamped[row.domain, row.server, row.peer].append(row)
    found = []
    for (domain, server, peer), mine in sorted(stamped.items()):
        seen = delays.get((domain, server, peer))
        payload, control = seen.payload if seen else 0, sum(row.control_bytes for row in mine)
        found.append({
            "domain": domain, "ordering": _either(row.ordering for row in mine), "from": server, "to": peer,
            "packets": sum(row.packets for row in mine),
            "relayed": sum(row.packets for row in mine if row.kind == "relay"),
            "messages": seen.messages if seen else 0, "payload_bytes": payload, "control_bytes": control,
            "control_ints": sum(row.control_ints for row in mine),
            "control_pct": _percent(control, control + payload),
            **_wire(rows, control, domain, server, peer), **_parts(seen),
        })  # fmt: skip
    return found


def _metered(rows: Mapping[str, Sequence[Row]], names: Sequence[str], **at: str) -> Figures:
    """What servers have counted themselves, there; null where they have not."""
    found: Figures = dict.fromkeys(names)
    for row in rows.get("meters", ()):
        if row.figure in found and all(row[name] == value for name, value in at.items()):
            found[row.figure] = (found[row.figure] or 0) + row.amount
    return found


def _wire(rows: Mapping[str, Sequence[Row]], control: int, domain: str, server: str, peer: str) -> Figures:
    wire = _metered(rows, ["wire_bytes"], domain=domain, server=server, peer=peer)["wire_bytes"]
    return {"wire_bytes": wire, "control_pct_of_wire": None if wire is None else _percent(control, wire)}


def _written(machines: Sequence[Row]) -> Figures:
    """What commits wrote, in all; null where no store has counted it."""
    known = [row for row in machines if row.counted]
    names = ("commits", "rows", "bytes")
    commits, count, size = (sum(row[name] for row in known) if known else None for name in names)
    return {"commits": commits, "rows": count, "value_bytes": size}


def _either(backends: Iterable[str]) -> str:
    """What has ordered a link or domain: "ks, matrix" where one has followed the other."""
    return ", ".join(sorted({each for backend in backends for each in backend.split(", ")}))


def _parts(row: Row | None) -> Figures:
    """Of each part of the time the mean and the percentiles, ms."""
    found: Figures = {"held": row.held if row else 0}
    for part in cost.PARTS:
        count = row[f"{part}_count"] if row else 0
        found[f"{part}_ms"] = _ms(row[part] / count) if row and count else None
        found |= _quantiles(part, row[f"{part}_ns"] if row else None)
    return found


def _quantiles(what: str, ns: Sequence[int] | None) -> Figures:
    return {f"{what}_{name}": value for name, value in _percentiles(ns).items()}


def _percentiles(ns: Sequence[int] | None) -> Figures:
    return {f"{name}_ms": _ms(value) for name, value in zip(("p50", "p95", "p99"), ns or (None,) * 3, strict=True)}


def _domains(rows: Mapping[str, Sequence[Row]], links: Sequence[Figures], topology: Topology | None) -> list[Figures]:
    delays = {row.domain: row for row in rows["delays"] if not row.server}
    stamped: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows["stamped"]:
        stamped[row.domain, row.kind] += row.messages
    members: dict[str, set[str]] = defaultdict(set)
    for link in links:
        members[link["domain"]] |= {link["from"], link["to"]}
    found = []
    for name in sorted(members):
        mine = [link for link in links if link["domain"] == name]
        packets, control = sum(link["packets"] for link in mine), sum(link["control_bytes"] for link in mine)
        ints, payload = sum(link["control_ints"] for link in mine), sum(link["payload_bytes"] for link in mine)
        known = topology.domains.get(name) if topology else None
        backend = _either(link["ordering"] for link in mine)
        servers = known.members if known else tuple(sorted(members[name]))
        formula = _formula(backend, servers, known.options if known and known.backend == backend else {})
        found.append({
            "domain": name, "ordering": backend, "members": len(servers), "sends": stamped[name, "send"],
            "forwards": stamped[name, "forward"], "packets": packets, "payload_bytes": payload,
            "control_bytes": control, "control_ints": ints, "control_pct": _percent(control, control + payload),
            "bytes_per_packet": _ratio(control, packets), "ints_per_packet": _ratio(ints, packets), **formula,
            **_parts(delays.get(name)),
        })  # fmt: skip
    return found


def _formula(backend: str, members: tuple[str, ...], options: Mapping[str, Any]) -> Figures:
    """The papers' control integers on a packet, typical and at worst; null where nobody has said."""
    try:
        said = ordering.backend(backend).describe(members, options)
    except Exception:  # a back end that is not installed here, or members that the log knows only in part
        said = {}
    typical, worst = said.get("control_bytes"), said.get("control_bytes_worst")
    return {
        "formula_ints": None if typical is None else round(typical / INTEGER, 1),
        "formula_worst_ints": None if worst is None else round(worst / INTEGER, 1),
    }


def _orderings(domains: Sequence[Figures], rows: Mapping[str, Sequence[Row]]) -> list[Figures]:
    found = []
    for backend in sorted({row["ordering"] for row in domains}):
        mine = [row for row in domains if row["ordering"] == backend]
        names = {row["domain"] for row in mine}
        delays = [row for row in rows["delays"] if row.domain in names and not row.server]
        sums = {
            name: sum(row[name] for row in mine)
            for name in ("sends", "forwards", "packets", "payload_bytes", "control_bytes", "control_ints")
        }
        control, packets = sums["control_bytes"], sums["packets"]
        found.append({
            "ordering": backend, "domains": len(mine), **sums,
            "control_pct": _percent(control, control + sums["payload_bytes"]),
            "bytes_per_packet": _ratio(control, packets), "ints_per_packet": _ratio(sums["control_ints"], packets),
            **{f"{part}_ms": _mean(delays, part) for part in cost.PARTS}, "held": sum(row["held"] for row in mine),
        })  # fmt: skip
    return found


def _mean(delays: Sequence[Row], part: str) -> float | None:
    count = sum(row[f"{part}_count"] for row in delays)
    return _ms(sum(row[part] for row in delays) / count) if count else None


def _servers(rows: Mapping[str, Sequence[Row]], links: Sequence[Figures]) -> list[Figures]:
    """Bytes and integers are those of what a server has put on its links."""
    sent: dict[str, int] = defaultdict(int)
    routed: dict[str, int] = defaultdict(int)
    for row in rows["servers"]:
        sent[row.source] += row.messages
    for row in rows["taken"]:
        if row.kind == "forward":
            routed[row.server] += row.records
    reacted: dict[str, int] = defaultdict(int)
    for row in _pairs(rows):
        reacted[row.server] += row.copies
    found = []
    for row in sorted(rows["machines"], key=lambda row: row.server):
        handled = sent[row.server] + routed[row.server] + reacted[row.server]
        known, mine = row.counted > 0, [link for link in links if link["from"] == row.server]
        payload, control = (sum(link[name] for link in mine) for name in ("payload_bytes", "control_bytes"))
        found.append({
            "server": row.server, "sent": sent[row.server], "forwarded": routed[row.server],
            "reactions": reacted[row.server], "payload_bytes": payload, "control_bytes": control,
            "control_ints": sum(link["control_ints"] for link in mine),
            "control_pct": _percent(control, control + payload), "records": row.records,
            "commits": row.commits if known else row.logged,
            "messages_per_commit": _ratio(handled, row.commits if known else row.logged),
            "rows_per_message": _ratio(row.rows, handled) if known else None,
            "bytes_per_message": _ratio(row.bytes, handled) if known else None,
            "commit_ms": _ms(row.wait / row.waits) if row.waits else None,
            **_quantiles("commit", row.wait_ns),
            **_metered(rows, ("wire_bytes", "wal_bytes", "wal_syncs", "disk_bytes"), server=row.server),
            "rows": row.rows if known else None, "value_bytes": row.bytes if known else None,
        })  # fmt: skip
    return found


def _traffic(rows: Mapping[str, Sequence[Row]]) -> list[Figures]:
    """Copies from server to server, those that stay at home not among them."""
    copies: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows["servers"]:
        for target in row.targets:
            copies[row.source, target][0] += row.messages
            copies[row.source, target][1] += row.payload
    return [
        {"from": a, "to": b, "messages": count, "payload_bytes": payload}
        for (a, b), (count, payload) in sorted(copies.items())
    ]


def _pairs(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Of `arrivals` the rows by servers."""
    return [row for row in rows["arrivals"] if row.server is not None]


def _latency(rows: Mapping[str, Sequence[Row]]) -> Figures:
    """Of a copy, by the links that it has crossed: from its send to its reaction, and in its agent's queue."""
    every = next((row for row in rows["arrivals"] if row.hops is None), None)
    crossed = next((row for row in rows["delays"] if row.domain is None), None)
    parts = {part: (crossed[part], crossed[f"{part}_ns"]) if crossed else (0, None) for part in cost.PARTS}
    parts["queue"] = (every.queue, every.queue_ns) if every else (0, None)
    total = sum(time for time, _ in parts.values())
    whole = every.total if every else 0
    slow = max(_pairs(rows), key=lambda row: (row.total_ns[1], row.origin, row.server), default=None)
    by_hops = [row for row in rows["arrivals"] if row.server is None and row.hops is not None]
    return {
        "parts": [
            {"part": part, "seconds": round(time / 1e9, 3), "pct": _percent(time, total), **_percentiles(ns)}
            for part, (time, ns) in parts.items()
        ],
        "whole": [
            {"part": part, "seconds": round(time / 1e9, 3), "pct": None, **_percentiles(ns)}
            for part, time, ns in (("rest", whole - total, None), ("all", whole, every.total_ns if every else None))
        ],
        "by_hops": [
            {
                "hops": row.hops, "copies": row.copies, "mean_ms": _ms(row.total / row.copies),
                **_percentiles(row.total_ns), "queue_ms": _ms(row.queue / row.copies),
                **_quantiles("queue", row.queue_ns),
            }
            for row in sorted(by_hops, key=lambda row: row.hops)
        ],
        "mean_ms": _ms(every.total / every.copies) if every and every.copies else None,
        "slowest": None if slow is None else {"from": slow.origin, "to": slow.server, **_percentiles(slow.total_ns)},
    }  # fmt: skip


def _waits(rows: Mapping[str, Sequence[Row]], topology: Topology | None) -> list[Figures]:
    """Who waits for whom: the heaviest first. Without a topology a member is its number in the domain."""
    found = []
    for row in _heaviest(rows["waiting"], "hold"):
        domain = topology.domains.get(row.domain) if topology else None
        named = domain.members[row.member] if domain and row.member < len(domain.members) else f"member {row.member}"
        found.append({
            "domain": row.domain, "server": row.server, "waits_for": named, "messages": row.messages,
            "seconds": round(row.hold / 1e9, 3), "longest_ms": _ms(row.longest),
        })  # fmt: skip
    return found


def _hot(rows: Mapping[str, Sequence[Row]]) -> list[Figures]:
    """Agents that get far more than the others do."""
    every = next((row for row in rows["targets"] if row.agent is None), None)
    mean = every.wanted / every.agents if every and every.agents else 0
    hot = [row for row in rows["targets"] if row.agent is not None and row.wanted and row.wanted >= SKEW * mean]
    return [
        {"agent": row.agent, "messages": row.wanted, "times_mean": round(row.wanted / mean, 1)}
        for row in sorted(hot, key=lambda row: (-row.wanted, row.agent))
    ]


def _anomalies(
    rows: Mapping[str, Sequence[Row]], topology: Topology | None, start: int, span: int
) -> Iterable[Figures]:
    held: dict[str, list[int]] = defaultdict(lambda: [0] * SLOTS)
    for row in rows["holds"]:
        if row.slot is not None and 0 <= row.slot < SLOTS:
            held[row.domain][row.slot] += row.hold or 0
    for domain, slots in sorted(held.items()):
        first, last = sum(slots[: SLOTS // 3]), sum(slots[-(SLOTS // 3) :])
        if last > GROWTH * first and last > span * HELD:
            text = f"{last / 1e9:.3f} s were held in the last third, {first / 1e9:.3f} s in the first"
            yield {"kind": "growing holds", "where": domain, "text": text}
    clocks, short = _behind(rows), _short(rows)
    firsts = {row.server: row["first"] + clocks[row.server] for row in rows["machines"]}
    lasts = {row.server: row["last"] + clocks[row.server] for row in rows["machines"]}
    end = max(lasts.values(), default=0)
    span = end - min(firsts.values(), default=0)
    for server in sorted({*lasts, *short, *(topology.servers if topology else ())}):
        if server not in lasts:
            yield {"kind": "silent server", "where": server, "text": "it has no record in this log"}
        elif server in short:
            text = (
                f"{short[server]} packets of it came that its log has not: it ends before the others, or begins later"
            )
            yield {"kind": "short log", "where": server, "text": text}
        elif end - lasts[server] > max(SILENT * span, PAUSE):
            text = f"its last record is {(end - lasts[server]) / 1e9:.1f} s before the end"
            yield {"kind": "silent server", "where": server, "text": text}
    ended: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows["taken"]:
        if row.kind in cost.ENDS and row.kind != "react":
            ended[row.agent, row.kind] += row.records
    for (agent, kind), count in sorted(ended.items()):
        yield {"kind": kind, "where": agent or "routers", "text": f"{count} messages ended so"}
    for row in sorted((row for row in rows["targets"] if row.agent and row.wanted), key=lambda row: str(row.agent)):
        server, lack = row.agent.partition("/")[0], row.wanted - row.became
        if lack > 0 and server in lasts and server not in short:
            text = f"{lack} of {row.wanted} messages have not arrived"
            yield {"kind": "undelivered", "where": row.agent, "text": text}
        elif lack < 0 and not short:
            text = f"{row.became} reactions to {row.wanted} messages: see `mom check`"
            yield {"kind": "duplicates", "where": row.agent, "text": text}
    for row in rows["delays"]:
        if row.server and row.early:
            text = f"{row.early} packets came before they left: the clocks differ by {row.ahead / MS:.3f} ms or more"
            yield {"kind": "clocks", "where": f"{row.peer} to {row.server}", "text": text}
    loads = {row["server"]: row["sent"] + row["forwarded"] + row["reactions"] for row in _servers(rows, ())}
    mean = sum(loads.values()) / len(loads) if loads else 0
    for server, count in sorted(loads.items()):
        if count > SKEW * mean:
            yield {"kind": "skew", "where": server, "text": f"it does {count / mean:.1f} times the mean"}


def _short(rows: Mapping[str, Sequence[Row]]) -> dict[str, int]:
    """Servers of whose packets more came than they have logged, and how many more. The logs are then no cut of one
    moment, so that a count at one end of a link says nothing about the other."""
    over: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows["delays"]:
        if row.server:
            over[row.domain, row.peer, row.server] += row.messages or 0  # each once, however often it came
    for row in rows["stamped"]:
        over[row.domain, row.server, row.peer] -= row.packets
    found: dict[str, int] = defaultdict(int)
    for (_, server, _), count in over.items():
        if count > 0:
            found[server] += count
    return found


def _behind(rows: Mapping[str, Sequence[Row]]) -> dict[str, int]:
    """How far each server's clock is behind the one that is most ahead, in ns, as far as packets tell: none comes
    before it leaves."""
    found = dict.fromkeys((row.server for row in rows["machines"]), 0)
    least = [(row.peer, row.server, row.least) for row in rows["delays"] if row.server and row.least is not None]
    for _ in found:  # as far as it goes round
        for peer, server, took in least:
            if peer in found and server in found:
                found[server] = max(found[server], found[peer] - took)
    return found


def _shown(ns: int) -> str | None:
    """UTC, as ISO 8601 has it; null where there is no record."""
    return f"{datetime.fromtimestamp(ns // 1000 / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}Z" if ns else None


def _heaviest(rows: Sequence[Row], name: str) -> list[Row]:
    """Those first."""
    return sorted(rows, key=lambda row: (-row[name], repr(row)))


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / MS, 3)


def _ratio(a: float, b: float) -> float | None:
    return round(a / b, 2) if b else None


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def sends(log: DataFrame, times: tuple[int, int], most: int) -> list[Send]:
    """Messages of the log that leave their servers, in order of time: all, or where there are more than `most` a sample
    of half as many: from each of PARTS parts of the log's time its share, the first ones. `times`: when the first and
    the last of them were sent."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    homes = F.array_distinct(F.transform("dests", lambda agent: F.split_part(agent, F.lit("/"), F.lit(1))))
    part = F.floor((F.col("sent") - times[0]) / ((times[1] - times[0]) // PARTS + 1)).cast("int")
    rows = log.where("kind = 'send'").select(
        "server", "sent", "payload", F.array_sort(F.array_remove(homes, F.col("server"))).alias("to"),
        part.alias("part"),
    )  # fmt: skip
    rows = rows.where(F.size("to") > 0)
    counts = {row["part"]: row["count"] for row in rows.groupBy("part").count().collect()}
    total = sum(counts.values())
    if total > most:
        shares = [F.lit(-(-counts.get(at, 0) * most // (2 * total))) for at in range(PARTS)]
        order = Window.partitionBy("part").orderBy("sent", "server", "to")
        rows = rows.withColumn("place", F.row_number().over(order))
        rows = rows.where(F.col("place") <= F.element_at(F.array(*shares), F.col("part") + 1))
    return sorted(Send(row.sent, row.server, tuple(row.to), row.payload) for row in rows.collect())
