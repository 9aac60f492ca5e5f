"""What in a log is not as it should be, as counts tell: holds that grow, silent servers, what has not arrived.

`mom check` judges order message by message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Row

from mombroker.admin.analysis import cost
from mombroker.admin.analysis.timeline import SLOTS
from mombroker.core.topology import Topology
from mombroker.core.words import many

HELD = 0.12  # of the log's time, in all: what is held for less in the last third does not grow
GROWTH = 3.0  # times what was held in the first third: holds grow
SILENT = 0.25  # of the log's time: a server that has been quiet for so long at the end is silent, but not before
PAUSE = 1e9  # ns
SKEW = 3.0  # times the mean load: a server, or destination, is hot


def anomalies(
    rows: Mapping[str, Sequence[Row]], topology: Topology | None, start: int, span: int, loads: Mapping[str, int]
) -> Iterable[dict[str, Any]]:
    """`loads`: of each server the messages that it has sent, passed on or reacted to."""
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
            came = many(short[server], "packet")
            text = f"{came} of it came that its log has not: it ends before the others, or begins later"
            yield {"kind": "short log", "where": server, "text": text}
        elif end - lasts[server] > max(SILENT * span, PAUSE):
            text = f"its last record is {(end - lasts[server]) / 1e9:.1f} s before the end"
            yield {"kind": "silent server", "where": server, "text": text}
    ended: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows["taken"]:
        if row.kind in cost.ENDS and row.kind != "react":
            ended[row.agent, row.kind] += row.records
    for (agent, kind), count in sorted(ended.items()):
        yield {"kind": kind, "where": agent or "routers", "text": f"{many(count, 'message')} ended so"}
    for row in sorted((row for row in rows["targets"] if row.agent and row.wanted), key=lambda row: str(row.agent)):
        server, lack = row.agent.partition("/")[0], row.wanted - row.became
        if lack > 0 and server in lasts and server not in short:
            text = f"{lack} of {many(row.wanted, 'message')} {'has' if lack == 1 else 'have'} not arrived"
            yield {"kind": "undelivered", "where": row.agent, "text": text}
        elif lack < 0 and not short:
            text = f"{many(row.became, 'reaction')} to {many(row.wanted, 'message')}: see `mom check`"
            yield {"kind": "duplicates", "where": row.agent, "text": text}
    for row in rows["delays"]:
        if row.server and row.early:
            early = many(row.early, "packet came before it", "packets came before they")
            text = f"{early} left: the clocks differ by {row.ahead / cost.MS:.3f} ms or more"
            yield {"kind": "clocks", "where": f"{row.peer} to {row.server}", "text": text}
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
