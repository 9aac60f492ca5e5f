"""How many partitions the queries of a session have: as many as the log needs, unless the user has said."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHUFFLE, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"
SIZED = "mombroker.sized."  # and one of these: what we have set it to, where the user has not
TASK_RECORDS = 500_000  # of the log, for which a shuffle has a partition


def note(spark: "SparkSession") -> None:
    """Note which settings the user has not made."""
    given = spark.sparkContext.getConf()
    for name in (SHUFFLE, ADAPTIVE):
        if not given.contains(name):
            spark.conf.set(SIZED + name, str(spark.conf.get(name)))
    sized(spark, 0)


def sized(spark: "SparkSession", records: int) -> None:
    """Let queries of so many records have as many partitions as they need; what the user sets stays as it is.

    A log of one partition is not worth plans that adapt themselves as they go: that costs more than the query.
    """
    ours = [name for name in (SHUFFLE, ADAPTIVE) if spark.conf.get(SIZED + name, None) == spark.conf.get(name)]
    if not ours:
        return
    count = -(-records // TASK_RECORDS) or 1
    if count > 1:
        count = max(count, spark.sparkContext.defaultParallelism)
    for name, value in ((SHUFFLE, str(count)), (ADAPTIVE, str(count > 1).lower())):
        if name in ours:
            spark.conf.set(name, value)
            spark.conf.set(SIZED + name, value)


def kept(spark: "SparkSession", log: "DataFrame", records: int) -> "DataFrame":
    """A part of a log, which is persisted, as many queries are to read it: of records for one task it is one partition,
    so that none of them has to bring anything together."""
    sized(spark, records)
    if records > TASK_RECORDS:
        return log
    one = log.coalesce(1).persist()
    one.count()
    log.unpersist()
    return one
