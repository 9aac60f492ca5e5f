"""A part of a log's time: the messages that were sent then, with all that became of them whenever it was written."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from mombroker.admin.analysis import cost, files, remote, schema, source
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, path: str | Path, since: datetime | None, until: datetime | None) -> DataFrame:
    """Of an export what `within` keeps; files, and parts of files, of other times are not read.

    A message says in all of its records when it was sent, but for relays: of these what was written from a minute
    before `since` to a minute after `until`. Raises MomError.
    """
    begin, end = (source.nanoseconds(source.utc(time)) if time else None for time in (since, until))
    if isinstance(path, str):  # to look into its files is Spark's
        chosen, relays = files.since_day(remote.chosen(spark, path), begin), True
    else:
        chosen, relays = files.of_time(files.chosen(path), begin, end)
    if not chosen:
        raise MomError("the log has nothing that was sent in this time; see --since and --until")
    found, late = source.parquet(spark, path, chosen), timedelta(seconds=files.LATE_SECONDS)
    sent, time, kind = found["sent"], found["time"], found["kind"]
    # A relay is in it by its send, so sends of around are read, too.
    near = kind.isin("relay", "send") if relays else F.lit(False)
    if since and begin is not None:
        own = (sent >= begin) | ((sent == 0) & (time >= source.utc(since)))
        found = found.where(own | (near & (time >= source.utc(since) - late)))
    if until and end is not None:
        own = ((sent > 0) & (sent < end)) | ((sent == 0) & (time < source.utc(until)))
        found = found.where(own | ((near | (kind == "commit")) & (time <= source.utc(until) + late)))
    return within(found.select(*schema.NAMES), since, until, relays)


def within(log: DataFrame, since: datetime | None, until: datetime | None, relays: bool = True) -> DataFrame:
    """The records of messages that were sent at `since` or later and before `until`, whenever they were written: a
    message is in it with all of them, or with none. A `relay` does not say when its message was sent: the `send` does,
    and where the log has none, it goes by its own time, as does what is about no message. Commits do, too; a later one
    is in it if it tells when a packet that is in it was durable. `relays`: the log may have some."""
    if not since and not until:
        return log
    own, rows = F.col("time"), log.withColumn("begun", F.col("sent"))
    if relays:
        relay = (F.col("kind") == "relay") & (F.col("origin") != cost.NO_ID)
        sends = log.where("kind = 'send'").groupBy("origin", "number").agg(F.min("sent").alias("begun"))
        rows = rows.where(~relay).unionByName(log.where(relay).join(sends, ["origin", "number"], "left"))
    at = F.when(F.col("begun") > 0, F.timestamp_micros(F.floor(F.col("begun") / 1000))).otherwise(own)
    rows = rows.where(at >= since) if since else rows
    if not until:
        return rows.select(log.columns)
    found = rows.where(at < until).select(log.columns)
    after = cost.packets(found).select("server", "incarnation", F.col("next").alias("commit"))
    late = rows.where((F.col("kind") == "commit") & (at >= until)).select(log.columns)
    return found.unionByName(late.join(after, ["server", "incarnation", "commit"], "left_semi"))
