"""What an audit found, joined with the log: in which domain, under which back end and over which link it went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mombroker.admin.analysis.cost import schema
from mombroker.core.ids import home_of
from mombroker.core.topology import RoutingTable, Topology

if TYPE_CHECKING:
    from mombroker.admin.audit.bus import Findings

KEY = ("finding", "agent", "origin", "number", "before_origin", "before_number")
FOUND = "finding string, agent string, origin string, number bigint, before_origin string, before_number bigint"
LINK = "domain string, ordering string, peer string, server string"
WAYS = "origin string, agent string, at int, domain string, peer string, server string"


@schema(f"{FOUND}, {LINK}")
def located(log: DataFrame, found: Findings, topology: Topology) -> DataFrame:
    """One row a finding: a violation, duplicate or unsent message, or a cast that is wrong in its view, with the link,
    from `peer` to `server`, by which its last copy came in; a lost one with the last link that a server has stamped it
    for. What crossed none has nulls."""
    spark = log.sparkSession
    rows: list[tuple[object, ...]] = [("violation", agent, *late, *before) for agent, late, before in found.violations]
    for finding, pairs in (("duplicate", found.duplicates), ("unsent", found.unsent), ("lost", found.lost)):
        rows += [(finding, agent, *id, None, None) for agent, id in pairs]
    rows += [("view", agent, *id, None, None) for agent, _, _, id, _ in found.views]
    findings = F.broadcast(spark.createDataFrame(rows, FOUND))
    told = log.join(F.broadcast(findings.select("origin", "number").distinct()), ["origin", "number"])
    by = F.struct("domain", "ordering", "peer", "server").alias("by")
    came = told.where("kind = 'react' AND domain <> ''").select("origin", "number", "agent", F.expr("seq AS at"), by)
    stamped = told.select("origin", "number", F.col("server").alias("peer"), F.explode("out").alias("out")).select(
        "origin", "number", "peer", F.col("out.domain").alias("domain"), F.col("out.ordering").alias("ordering")
    )
    ways = F.broadcast(spark.createDataFrame(_ways(found, topology), WAYS))
    left = stamped.join(ways, ["origin", "domain", "peer"]).select("origin", "number", "agent", "at", by)
    lost = findings.finding == "lost"
    parts = [
        findings.where(mine).join(places, ["origin", "number", "agent"], "left")
        for mine, places in ((~lost, came), (lost, left))
    ]
    return parts[0].unionByName(parts[1]).groupBy(*KEY).agg(F.max_by("by", "at").alias("by")).select(*KEY, "by.*")


@schema(
    f"finding string, {LINK}, count bigint, agent string, origin string, number bigint, before_origin string, "
    "before_number bigint"
)
def by_link(places: DataFrame) -> DataFrame:
    """From `located`: how many of each link, and one of them; `before` is the message that overtook it."""
    one = F.min(F.struct("agent", "origin", "number", "before_origin", "before_number")).alias("one")
    grouped = places.groupBy("finding", "domain", "ordering", "peer", "server").agg(F.count("*").alias("count"), one)
    return grouped.select("finding", "domain", "ordering", "peer", "server", "count", "one.*")


def _ways(found: Findings, topology: Topology) -> list[tuple[str, str, int, str, str, str]]:
    """The links, one after another, on the way of each lost message."""
    ways = []
    for origin, agent in {(id[0], agent) for agent, id in found.lost}:
        here = origin
        path = RoutingTable(topology, origin).path(home_of(agent)) if home_of(agent) != origin else []
        for at, (domain, peer) in enumerate(path):
            ways.append((origin, agent, at, domain, here, peer))
            here = peer
    return ways
