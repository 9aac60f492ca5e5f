"""The figures of a report, from the small results that Spark has collected.

`rows` has the result of each function of cost.py and times.py by its name, as report.py has it. Their times are ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row

from mombroker import __version__, ordering
from mombroker.admin.analysis import cost, timeline, times
from mombroker.admin.analysis.anomalies import SKEW, anomalies
from mombroker.core.topology import Topology
from mombroker.ordering.base import INTEGER

Figures = dict[str, Any]

TIMES = (  # what the table of a copy's time is of
    "store, link and hold: of crossings of links, each once; queue and all: of copies, all from send to reaction. "
    "rest: what the sums leave of all: the time before the last relay in domains whose back end relays (daisy, "
    "overlay), and what copies that share a crossing, or that have not been reacted to, make different."
)


def figures(rows: Mapping[str, Sequence[Row]], topology: Topology | None, start: int, span: int) -> Figures:
    """All of them; the log begins at `start` and goes on for `span` ns."""
    messages = sum(row.messages for row in rows["sources"])
    links = _links(rows)
    domains = _domains(rows, links, topology)
    servers, arrivals = _servers(rows, links), _pairs(rows)
    loads = {row["server"]: row["sent"] + row["forwarded"] + row["reactions"] for row in servers}
    copies, remote = (sum(row.copies for row in some) for some in (arrivals, [row for row in arrivals if row.hops]))
    crossed = sum(row.copies * row.hops for row in arrivals)
    control, packets = sum(row["control_bytes"] for row in links), sum(row["packets"] for row in links)
    payload = sum(row.payload for row in rows["sources"])
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
        "servers": servers,
        "traffic": _traffic(rows),
        "agents": [
            {"source": row.source, "target": row.target, "messages": row.messages, "payload_bytes": row.payload}
            for row in _heaviest(rows["agents"], "messages")
        ],
        "destinations": [row.asDict() for row in rows.get("destinations", ())],
        "clients": [row.asDict() for row in rows.get("clients", ())],
        "latency": latency(rows),
        "timeline": timeline.figures(rows.get("times", ()), rows["holds"], start, span),
        "waits": waits(rows, topology),
        "hot": _hot(rows),
        "clocks": [
            {"server": row.server, "ahead_ms": _ms(row.ahead), "within_ms": _ms(row.within)}
            for row in rows.get("clocks", ())
        ],
        "anomalies": list(anomalies(rows, topology, start, span, loads)),
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
    clocks = {row.server: row.within for row in rows.get("clocks", ())}
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
            "link_within_ms": _within(clocks, server, peer),
        })  # fmt: skip
    return found


def _within(clocks: Mapping[str, int | None], server: str, peer: str) -> float | None:
    """By how much `link_ms` may be off, as clocks of its ends were; null where none was, or nobody knows."""
    mine = [clocks[each] for each in (server, peer) if each in clocks]
    known = [each for each in mine if each is not None]
    return _ms(sum(known)) if known and len(known) == len(mine) else None


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
    for part in times.PARTS:
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
            **_metered(rows, ["wire_bytes"], domain=name), **_parts(delays.get(name)),
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
            **{f"{part}_ms": _mean(delays, part) for part in times.PARTS}, "held": sum(row["held"] for row in mine),
        })  # fmt: skip
    return found


def _mean(delays: Sequence[Row], part: str) -> float | None:
    count = sum(row[f"{part}_count"] for row in delays)
    return _ms(sum(row[part] for row in delays) / count) if count else None


def _servers(rows: Mapping[str, Sequence[Row]], links: Sequence[Figures]) -> list[Figures]:
    """Bytes and integers are those of what a server has put on its links."""
    sent = defaultdict(int, {row.source: row.messages for row in rows["sources"]})
    routed: dict[str, int] = defaultdict(int)
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
    return [
        {"from": row.source, "to": row.target, "messages": row.messages, "payload_bytes": row.payload}
        for row in sorted(rows["pairs"], key=lambda row: (row.source, row.target))
    ]


def _pairs(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Of `arrivals` the rows by servers."""
    return [row for row in rows["arrivals"] if row.server is not None]


def latency(rows: Mapping[str, Sequence[Row]]) -> Figures:
    """Of a copy, by the links that it has crossed: from its send to its reaction, and in its agent's queue."""
    every = next((row for row in rows["arrivals"] if row.hops is None), None)
    crossed = next((row for row in rows["delays"] if row.domain is None), None)
    parts = {part: (crossed[part], crossed[f"{part}_ns"]) if crossed else (0, None) for part in times.PARTS}
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


def waits(rows: Mapping[str, Sequence[Row]], topology: Topology | None) -> list[Figures]:
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


def _shown(ns: int) -> str | None:
    """UTC, as ISO 8601 has it; null where there is no record."""
    return f"{datetime.fromtimestamp(ns // 1000 / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}Z" if ns else None


def _heaviest(rows: Sequence[Row], name: str) -> list[Row]:
    """Those first."""
    return sorted(rows, key=lambda row: (-row[name], repr(row)))


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / cost.MS, 3)


def _ratio(a: float, b: float) -> float | None:
    return round(a / b, 2) if b else None


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 1) if whole else None
