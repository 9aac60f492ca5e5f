"""The traffic of a log as the advice wants it: who sends to whom, how long links take, and messages to be played."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Row, Window
from pyspark.sql import functions as F

from mombroker.admin.analysis import cost
from mombroker.admin.topology.costs import Load
from mombroker.lab.bus_workloads import Send
from mombroker.lab.replay import Delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED = 1000  # packets, at least, before what they weigh is told: to connect takes bytes, too
PARTS = 24  # parts of the log's time from each of which a sample of its messages has its share


def load(log: DataFrame, rows: Mapping[str, Sequence[Row]], most: int) -> Load:
    """Who sends to whom, with the delays that were measured. Of a server whose sets of servers that messages go to are
    not all told, the other messages are dealt to the servers that it sends to, by its copies."""
    used, leaving = [row for row in rows["servers"] if row.targets], [row for row in rows["sources"] if row.leaving]
    flows = {(row.source, tuple(row.targets)): float(row.messages) for row in used}
    untold, copies = {row.source: row.leaving for row in leaving}, defaultdict[str, int](int)
    for row in used:
        untold[row.source] -= row.messages
    for row in rows["pairs"]:
        copies[row.source] += row.messages
    for row in rows["pairs"]:
        if rest := untold[row.source]:
            way = row.source, (row.target,)
            flows[way] = flows.get(way, 0.0) + rest * row.messages / copies[row.source]
    known = [row for row in rows["delays"] if row.server and row.link_count]
    took = {(row.peer, row.server): (row.store + row.link) // row.link_count for row in known}
    count = sum(row.link_count for row in known)
    mean = sum(row.store + row.link for row in known) // count if count else Delays().mean
    times = min((row.first for row in leaving), default=0), max((row.last for row in leaving), default=0)
    sent = sends(log, times, most) if used and most else []
    weight = packet(rows.get("meters", ()), metered(log).collect()) if sent else 0.0
    return Load(flows, sent, Delays(max(mean, 1), took), _seen(rows, sum(flows.values())), weight)


def metered(log: DataFrame) -> DataFrame:
    """`cost.stamped`, of the time in which a server has counted what it writes to its links: that ends before its log
    does, and may begin after it."""
    counted = log.where("kind = 'meter'").groupBy("server").agg(
        F.min("sent").alias("counts_from"), F.max("done").alias("counts_to")
    )  # fmt: skip
    return cost.stamped(log.join(F.broadcast(counted), "server").where("done between counts_from and counts_to"))


def packet(meters: Sequence[Row], stamped: Sequence[Row]) -> float:
    """Bytes of a packet on the wire beside its control bytes, on links that have counted; 0: they have counted few."""
    wire: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in meters:
        if row.figure == "wire_bytes":
            wire[row.domain, row.server, row.peer] += row.amount
    known = [row for row in stamped if (row.domain, row.server, row.peer) in wire]
    rest, packets = sum(wire.values()) - sum(row.control_bytes for row in known), sum(row.packets for row in known)
    return max(rest, 0) / packets if packets >= COUNTED else 0.0


def _seen(rows: Mapping[str, Sequence[Row]], messages: float) -> dict[str, float]:
    """What the log says of what the model says, too: of messages that leave their server."""
    remote = [row for row in rows["arrivals"] if row.server is not None and row.hops]
    found: dict[str, float] = {}
    copies = sum(row.copies for row in remote)
    if messages:
        found["control_bytes"] = sum(row.control_bytes for row in rows["stamped"]) / messages
        found["packets"] = sum(row.packets for row in rows["stamped"]) / messages
    if copies:
        found["hops"] = sum(row.copies * row.hops for row in remote) / copies
        found["delay_ms"] = sum(row.total - row.queue for row in remote) / copies / cost.MS
    return found


def sends(log: DataFrame, times: tuple[int, int], most: int) -> list[Send]:
    """Messages of the log that leave their servers, in order of time: all, or where there are more than `most` a sample
    of half as many: from each of PARTS parts of the log's time its share, the first ones. `times`: when the first and
    the last of them were sent."""
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
