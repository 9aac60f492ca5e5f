"""The whole analysis of a log: every figure in one dict, as `mom analyze -o json` prints it and the page shows it.

Figures of a server or domain are of all that the log holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql import functions as F

from mombroker.admin.analysis import clocks, cost, findings, timeline, times, traffic
from mombroker.admin.analysis.figures import Figures, figures
from mombroker.admin.topology.costs import SAMPLE, Load
from mombroker.core.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mombroker.admin.audit.bus import Findings

BROADCAST = 1_000_000  # commits, at most, that are told to every task
MOST = 1000  # rows of a result that would grow with agents or clients


def analyse(
    log: DataFrame, topology: Topology | None = None, found: Findings | None = None, messages: int = SAMPLE
) -> tuple[Figures, Load]:
    """All figures, and the traffic as the advice wants it, with so many messages to be played. `topology` names members
    and servers that the log does not; what an audit `found` is told by the link that it came over, if there is one.

    Columns of `log` are those of schema.py. Every result is collected: their sizes follow the number of links and pairs
    of servers; of agents, destinations and clients the MOST largest are told, and of agents those first whose messages
    do not add up; of the sets of servers that messages go to, ten times as many.
    """
    machines = _collected(cost.commits(log))
    small = sum(row.waits for row in machines) <= BROADCAST
    flowing, took = cost.flows(log).persist(), cost.taken(log).persist()
    talking, serving = cost.agents(flowing).persist(), cost.servers(flowing).persist()
    targeted, given = cost.targets(talking, took), F.col("sent") + F.col("given")
    amiss = F.col("agent").isNull() | (F.col("wanted") != F.col("became"))  # these first
    odd = F.when(amiss, F.lit(1 << 62)).otherwise(F.col("wanted"))
    through, named = F.col("agent") == "", cost.together(took).where("agent <> ''")
    whole = {
        "agents": talking, "destinations": cost.destinations(talking), "clients": cost.clients(log, flowing),
    }  # fmt: skip
    start, length = span(machines)
    spreads, delays, off = _spread(log, small, took, start, length // timeline.SLOTS + 1)
    ahead = _ahead(off)
    try:
        parts = {
            "stamped": cost.stamped(log), "agents": cost.top(whole["agents"], "messages", MOST),
            **_sent(serving),
            "taken": cost.together(took).where(through).unionByName(cost.top(named, "records", MOST)),
            "targets": cost.top(targeted, odd, MOST),
            "destinations": cost.top(whole["destinations"], given, MOST),
            "clients": cost.top(whole["clients"], given, MOST),
            "holds": times.holds(spreads),
            "arrivals": times.arrivals(log, ahead), "waiting": times.waiting(times.waits(log)),
            "meters": cost.meters(log), "times": timeline.slots(log, start, length // timeline.SLOTS + 1, ahead),
        }  # fmt: skip
        if found and topology and not found.clean:
            parts["findings"] = findings.by_link(findings.located(log, found, topology))
        rows = {name: _collected(part) for name, part in parts.items()}
        counted = whole | {"ended": named, "odd": targeted.where(amiss & F.col("agent").isNotNull())}
        left_out = _left_out(rows, counted)
    finally:
        for each in (flowing, took, talking, serving, spreads):
            each.unpersist()
    rows |= {
        "machines": machines,
        "delays": delays,
        "clocks": [Row(server=server, **clock._asdict()) for server, clock in sorted(off.items())],
    }
    return figures(rows, topology, start, length) | {"left_out": left_out}, traffic.load(log, rows, messages)


def _left_out(rows: Mapping[str, Sequence[Row]], whole: Mapping[str, DataFrame]) -> dict[str, int]:
    """How many rows of `whole` are not told: nobody counts them where fewer than MOST are."""
    told = {name: len(rows[name]) for name in ("agents", "destinations", "clients")}
    told["ended"] = sum(1 for row in rows["taken"] if row.agent)
    told["odd"] = sum(1 for row in rows["targets"] if row.agent is not None and row.wanted != row.became)
    left = {name: whole[name].count() - count if count >= MOST - 1 else 0 for name, count in told.items()}
    return {name: left[name] for name in list(told)[:3]} | {"anomalies": left["ended"] + left["odd"]}


def _sent(serving: DataFrame) -> dict[str, DataFrame]:
    """From `cost.servers` what is told of it: of sets of servers that messages go to, there may be very many."""
    top = cost.top(serving, "messages", MOST * 10)
    return {"servers": top, "sources": cost.sources(serving), "pairs": cost.pairs(serving)}


def _spread(
    log: DataFrame, small: bool, took: DataFrame, start: int = 0, length: int = 1 << 62
) -> tuple[DataFrame, list[Row], dict[str, clocks.Clock]]:
    """`times.spread`, kept until it is unpersisted, `times.delays`, and what clocks are off: both are without it."""
    crossed, named = times.hops(log, small), times.links(took)
    spreads = times.spread(crossed, named, start, length).persist()
    delays = _collected(times.delays(spreads))
    off = clocks.ahead(clocks.least(delays))
    if off:
        spreads.unpersist()
        spreads = times.spread(times.put_right(crossed, named, _ahead(off)), named, start, length).persist()
        delays = _told(_collected(times.delays(spreads)), delays)
    return spreads, delays, off


def _ahead(off: Mapping[str, clocks.Clock]) -> dict[str, int]:
    return {server: clock.ahead for server, clock in off.items()}


def _told(right: Sequence[Row], raw: Sequence[Row]) -> list[Row]:
    """Delays that are put right, with what the clocks themselves have told."""
    said = {(row.domain, row.server, row.peer): row for row in raw}
    found = []
    for row in right:
        told = said[row.domain, row.server, row.peer]
        found.append(Row(**{**row.asDict(), "early": told.early, "ahead": told.ahead, "least": told.least}))
    return found


def _collected(part: DataFrame) -> list[Row]:
    """In an order of its own: that of Spark's tasks is another one each time."""
    rows = part.collect()
    if wide := [field.name for field in part.schema.fields if field.dataType.typeName() == "decimal"]:
        rows = [Row(**{**row.asDict(), **{name: _whole(row[name]) for name in wide}}) for row in rows]
    return sorted(rows, key=repr)


def _whole(value: Decimal | None) -> int | None:
    return None if value is None else int(value)


def load(log: DataFrame, messages: int = SAMPLE) -> Load:
    """The traffic alone, with the delays that were measured, and so many messages to be played."""
    spreads, delays, off = _spread(log, False, cost.taken(log))
    spreads.unpersist()
    parts = {
        **_sent(cost.servers(cost.flows(log))), "stamped": cost.stamped(log), "meters": cost.meters(log),
        "arrivals": times.arrivals(log, _ahead(off)),
    }  # fmt: skip
    return traffic.load(log, {name: _collected(part) for name, part in parts.items()} | {"delays": delays}, messages)


def span(machines: Sequence[Row]) -> tuple[int, int]:
    """When the log begins, and how long it goes on, in ns."""
    start = min((row["first"] for row in machines), default=0)
    return start, max((row["last"] for row in machines), default=0) - start
