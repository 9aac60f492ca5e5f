"""What came and how long it took as time went on: the time axis of the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from mombroker.admin.analysis.cost import SUM, near, quantiles, schema, total
from mombroker.admin.analysis.times import NO_CLOCKS, ahead_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOTS = 48  # parts of the log's time


@schema(f"slot bigint, messages bigint, payload bigint, copies bigint, total {SUM}, total_ns array<bigint>")
def slots(log: DataFrame, start: int, length: int, ahead: Mapping[str, int] = NO_CLOCKS) -> DataFrame:
    """In slots of `length` ns from `start`: messages by when they were sent, and copies by when their agents reacted,
    with the times from send to reaction."""
    sent, whole = F.col("kind") == "send", F.col("done") - ahead_of("server", ahead) - F.col("sent")
    took = F.greatest(whole + ahead_of("origin", ahead), F.lit(0))
    rows = log.where("kind in ('send', 'react')").select(
        F.floor((F.when(sent, F.col("sent")).otherwise(F.col("done")) - start) / length).alias("slot"),
        F.when(sent, F.lit(1)).otherwise(F.lit(0)).alias("message"), F.when(sent, F.col("payload")).alias("payload"),
        F.when(~sent, took).alias("total"), F.when(~sent, near(took)).alias("about"),
    )  # fmt: skip
    rows = rows.groupBy("slot", "about").agg(
        F.sum("message").alias("messages"), F.sum("payload").alias("payload"), F.count("total").alias("copies"),
        total(F.col("total")).alias("total"),
    )  # fmt: skip
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("messages", "payload", "copies")]
    sums.append(F.coalesce(F.sum("total"), F.lit(0)).cast(SUM).alias("total"))
    return rows.groupBy("slot").agg(*sums, quantiles("about", "copies").alias("total_ns"))


def figures(rows: Sequence[Row], holds: Sequence[Row], start: int, span: int) -> list[dict[str, Any]]:
    """Of each slot: messages and payload by second, mean and p95 of a copy's time, and how many messages were held at a
    time, in the mean. Slots in which nothing happened have zeros, and no times."""
    length = span // SLOTS + 1
    known = {row.slot: row for row in rows}
    held: dict[int, int] = defaultdict(int)
    for each in holds:
        held[each.slot] += each.hold or 0
    found = []
    for at in range(SLOTS if span else 0):
        row = known.get(at)
        begin = datetime.fromtimestamp((start + at * length) / 1e9, UTC)
        found.append({
            "time": f"{begin:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "messages_s": round(row.messages * 1e9 / length, 3) if row else 0.0,
            "payload_bytes_s": round(row.payload * 1e9 / length, 1) if row else 0.0,
            "mean_ms": round(row.total / row.copies / 1e6, 3) if row and row.copies else None,
            "p95_ms": round(row.total_ns[1] / 1e6, 3) if row and row.copies else None,
            "held": round(held[at] / length, 3),
        })  # fmt: skip
    return found
