"""Exports that lie on a file system of Spark's: s3a://bucket/exported, hdfs://host/exported, abfss://..., gs://....

The names of files tell all (files.py), so a listing is enough; Spark reads them, on its executors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mombroker.admin.analysis import files
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PATTERN = re.compile(r"([\\*?\[\]{}])")


def is_remote(path: str | Path) -> bool:
    return isinstance(path, str) and bool(ADDRESS.match(path))


def literal(path: str) -> str:
    """A path as Spark is to be told it, that takes some letters for patterns."""
    return PATTERN.sub(r"\\\1", path)


def chosen(spark: SparkSession, address: str) -> list[files.File]:
    """The files that hold each record once, as `files.chosen`. Raises MomError."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise MomError(f"by Spark Connect {address} cannot be listed: let a session with a Java of its own read it")
    from py4j.protocol import Py4JJavaError

    path = jvm.org.apache.hadoop.fs.Path
    try:
        system = path(address).getFileSystem(spark._jsc.hadoopConfiguration())
        there = system.globStatus(path(f"{literal(address.rstrip('/'))}/day=*/server=*/*.parquet")) or ()
        found = [files.named(str(each.getPath().toString())) for each in there]
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage()).partition("\n")[0]
        raise MomError(
            f"{address} cannot be listed: {said}; Spark needs the connector of that file system "
            "(spark.jars.packages in the spark-defaults.conf of SPARK_CONF_DIR) and what it asks for to log in"
        ) from None
    whole, _ = files.cover(file for file in found if file)
    if not whole:
        raise MomError(f"there are no exported records in {address}; copy an export there")
    return whole
