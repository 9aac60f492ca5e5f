"""The Spark data source `mombroker`: the servers' logs, read from their stores while they run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let this session read `spark.read.format("mombroker")`."""
