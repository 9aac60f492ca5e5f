"""What the servers' logs say that ordering costs: functions from a DataFrame to a DataFrame, each with its schema.

`log` is a DataFrame with the columns of schema.py, from Parquet or from the data source. Times are ns. Nothing here
starts a job; report.py does, and puts the small results together.

A packet is on its way through stations: it is stamped, waits for the commit that it is part of (`store`), travels
(`link`, with all that it waits for a connection or for credit), waits for its causes (`hold`); at the end the message
waits for its agent (`queue`). Parts that the log does not know are null.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

ENDS = ("react", "expire", "dead", "drop")  # what can become of a message at an agent
TOOK = (*ENDS, "forward")  # records of a packet that was in order, where it came from in `peer`
QUANTILES = (0.5, 0.95, 0.99)
ACCURACY = 200  # of percentiles: half a percent of the ranks
NO_ID = ""  # the origin of a record that is about no message

Step = Callable[..., DataFrame]


def schema(ddl: str) -> Callable[[Step], Step]:
    """The function returns exactly these columns."""

    def decorate(step: Step) -> Step:
        @wraps(step)
        def checked(*args: Any, **kwargs: Any) -> DataFrame:
            made = step(*args, **kwargs)
            wanted, found = StructType.fromDDL(ddl).simpleString(), made.schema.simpleString()
            assert found == wanted, f"{step.__name__} makes {found}, not {wanted}"
            return made

        checked.__doc__ = f"{step.__doc__}\n\n    {ddl}\n"
        return checked

    return decorate


# -- what is on the wire -----------------------------------------------------------------------------------------------


@schema(
    "server string, incarnation string, kind string, origin string, number bigint, stamped bigint, next bigint, "
    "domain string, ordering string, peer string, control bigint, ints bigint"
)
def packets(log: DataFrame) -> DataFrame:
    """One row per packet that a server has stamped; `next` is the first record of the commit after its own."""
    rows = log.where(F.size("out") > 0).select(
        "server", "incarnation", "kind", "origin", "number", F.col("done").alias("stamped"),
        (F.col("commit") + F.col("commit_records")).alias("next"), F.explode("out").alias("out"),
    )  # fmt: skip
    return rows.select(
        "server", "incarnation", "kind", "origin", "number", "stamped", "next", "out.domain", "out.ordering",
        "out.peer", F.col("out.bytes").alias("control"), "out.ints",
    )  # fmt: skip


@schema(
    "domain string, ordering string, server string, peer string, packets bigint, control_bytes bigint, "
    "control_ints bigint, relayed bigint"
)
def links(log: DataFrame) -> DataFrame:
    """What each server has put on its links; of the packets `relayed` were passed on for others within the domain."""
    return packets(log).groupBy("domain", "ordering", "server", "peer").agg(
        F.count("*").alias("packets"), F.sum("control").alias("control_bytes"), F.sum("ints").alias("control_ints"),
        F.sum((F.col("kind") == "relay").cast("bigint")).alias("relayed"),
    )  # fmt: skip


@schema("server string, domain string, kind string, messages bigint, payload bigint")
def stamped(log: DataFrame) -> DataFrame:
    """Messages that a server has stamped for a domain: its own (`send`), and those that it routes (`forward`)."""
    rows = log.where((F.size("out") > 0) & F.col("kind").isin("send", "forward"))
    rows = rows.groupBy("server", "kind", F.array_distinct("out.domain").alias("domains")).agg(
        F.count("*").alias("messages"), F.sum("payload").alias("payload")
    )
    rows = rows.select("server", F.explode("domains").alias("domain"), "kind", "messages", "payload")
    return rows.groupBy("server", "domain", "kind").agg(
        F.sum("messages").alias("messages"), F.sum("payload").alias("payload")
    )


# -- who talks to whom -------------------------------------------------------------------------------------------------


@schema("server string, agent string, dests array<string>, messages bigint, payload bigint, first bigint, last bigint")
def flows(log: DataFrame) -> DataFrame:
    """Messages by source and destinations, as agents; when the first and the last of them were sent."""
    return log.where("kind = 'send'").groupBy("server", "agent", "dests").agg(
        F.count("*").alias("messages"), F.sum("payload").alias("payload"), F.min("sent").alias("first"),
        F.max("sent").alias("last"),
    )  # fmt: skip


@schema("source string, target string, messages bigint, payload bigint")
def agents(flowing: DataFrame) -> DataFrame:
    """From `flows`: the traffic matrix of agents, a row for each copy's pair."""
    rows = flowing.select(F.col("agent").alias("source"), F.explode("dests").alias("target"), "messages", "payload")
    return rows.groupBy("source", "target").agg(F.sum("messages").alias("messages"), F.sum("payload").alias("payload"))


@schema("source string, targets array<string>, messages bigint, payload bigint, first bigint, last bigint")
def servers(flowing: DataFrame) -> DataFrame:
    """From `flows`: messages by server and other servers that they go to; those that stay at home have none."""
    homes = F.array_sort(
        F.array_distinct(F.transform("dests", lambda agent: F.split_part(agent, F.lit("/"), F.lit(1))))
    )
    rows = flowing.select(
        F.col("server").alias("source"), F.array_remove(homes, F.col("server")).alias("targets"), "messages", "payload",
        "first", "last",
    )  # fmt: skip
    return rows.groupBy("source", "targets").agg(
        F.sum("messages").alias("messages"), F.sum("payload").alias("payload"), F.min("first").alias("first"),
        F.max("last").alias("last"),
    )  # fmt: skip


@schema("agent string, kind string, records bigint")
def ends(log: DataFrame) -> DataFrame:
    """What became of messages, by the agent that they were for; an empty agent: of the copies beyond a router."""
    return log.where(F.col("kind").isin(*ENDS)).groupBy("agent", "kind").agg(F.count("*").alias("records"))


# -- what it costs the disk --------------------------------------------------------------------------------------------


@schema(
    "server string, records bigint, logged bigint, commits bigint, rows bigint, bytes bigint, counted bigint, "
    "waits bigint, wait bigint, wait_ns array<bigint>, first bigint, last bigint"
)
def commits(log: DataFrame) -> DataFrame:
    """Of each server: log records; commits with records (`logged`); where the store has counted them (`counted` of
    those), all commits, and what they wrote; how long commits took, in sum and in QUANTILES; and the time that the log
    spans."""
    head, commit = F.col("seq") == F.col("commit"), F.col("kind") == "commit"
    took, at = F.when(commit, F.col("done") - F.col("sent")), F.greatest("done", "delivered", "received", "sent")

    def of_head(name: str) -> Column:
        return F.coalesce(F.sum(F.when(head, F.col(name))), F.lit(0)).alias(name.removeprefix("commit_"))

    return log.groupBy("server").agg(
        F.count("*").alias("records"), F.sum(head.cast("bigint")).alias("logged"), of_head("commits"),
        of_head("commit_rows"), of_head("commit_bytes"), F.count(F.when(head, F.col("commits"))).alias("counted"),
        F.count(took).alias("waits"), F.coalesce(F.sum(took), F.lit(0)).alias("wait"),
        _quantiles(took, "wait_ns"), F.min(at).alias("first"), F.max(at).alias("last"),
    )  # fmt: skip


# -- where the time goes -----------------------------------------------------------------------------------------------


@schema(
    "origin string, number bigint, domain string, server string, peer string, payload bigint, received bigint, "
    "store bigint, link bigint, hold bigint"
)
def hops(log: DataFrame, small: bool = True) -> DataFrame:
    """One row per message and link that it has crossed, `peer` to `server`.

    `small`: the commits are few enough to be told to every task, which is quicker than to bring them together. A
    negative `link` is the difference of two servers' clocks.
    """
    durable = log.where("kind = 'commit'").select(
        F.col("server").alias("by"), F.col("incarnation").alias("of"), F.col("commit").alias("at"),
        F.col("done").alias("durable"),
    )  # fmt: skip
    out = packets(log).where(F.col("origin") != NO_ID)
    same = (out.server == durable.by) & (out.incarnation == durable.of) & (out.next == durable.at)
    out = out.join(F.broadcast(durable) if small else durable, same, "left")
    none = F.lit(None).cast("bigint")
    left = out.select(
        "origin", "number", "domain", F.col("peer").alias("server"), F.col("server").alias("peer"), "stamped",
        "durable", none.alias("received"), none.alias("delivered"), none.alias("payload"),
    )  # fmt: skip
    came = _took(log).select(
        "origin", "number", "domain", "server", "peer", none.alias("stamped"), none.alias("durable"),
        F.expr("nullif(received, 0)").alias("received"), "delivered", "payload",
    )  # fmt: skip
    names = ("stamped", "durable", "received", "delivered", "payload")
    rows = left.unionByName(came).groupBy("origin", "number", "domain", "server", "peer")
    # A relay may send one message twice over a link; the first one counts.
    rows = rows.agg(*[F.min(name).alias(name) for name in names]).where("delivered is not null")
    return rows.select(
        "origin", "number", "domain", "server", "peer", "payload", "received",
        (F.col("durable") - F.col("stamped")).alias("store"), (F.col("received") - F.col("durable")).alias("link"),
        (F.col("delivered") - F.col("received")).alias("hold"),
    )  # fmt: skip


def _took(log: DataFrame) -> DataFrame:
    return log.where(F.col("kind").isin(*TOOK) & (F.col("peer") != "") & (F.col("origin") != NO_ID))


PARTS = ("store", "link", "hold")
DELAYS = ", ".join(f"{part} bigint, {part}_ns array<bigint>" for part in PARTS)


@schema(f"domain string, server string, peer string, messages bigint, payload bigint, held bigint, {DELAYS}")
def delays(crossed: DataFrame) -> DataFrame:
    """From `hops`: of each link the messages that it brought, and of each part of their time the sum and QUANTILES."""
    return crossed.groupBy("domain", "server", "peer").agg(*_delays())


@schema(f"domain string, messages bigint, payload bigint, held bigint, {DELAYS}")
def domain_delays(crossed: DataFrame) -> DataFrame:
    """The same of each domain."""
    return crossed.groupBy("domain").agg(*_delays())


def _delays() -> list[Column]:
    found = [F.count("*").alias("messages"), F.sum("payload").alias("payload")]
    found.append(F.sum((F.coalesce("hold", F.lit(0)) > 0).cast("bigint")).alias("held"))
    for part in PARTS:
        known = F.greatest(F.col(part), F.lit(0))
        found += [F.coalesce(F.sum(known), F.lit(0)).alias(part), _quantiles(known, f"{part}_ns")]
    return found


def _quantiles(column: Column, name: str) -> Column:
    return F.percentile_approx(column, list(QUANTILES), ACCURACY).alias(name)


@schema("server string, peer string, ahead bigint, packets bigint")
def clocks(crossed: DataFrame) -> DataFrame:
    """From `hops`: links where packets came before they left, by so much at most: one clock is ahead of the other."""
    rows = crossed.where("link < 0").groupBy("server", "peer")
    return rows.agg((-F.min("link")).alias("ahead"), F.count("*").alias("packets"))


@schema("domain string, slot bigint, messages bigint, hold bigint")
def holds(crossed: DataFrame, start: int, length: int) -> DataFrame:
    """From `hops`: what was held in each domain as time went on, in slots of `length` ns from `start`."""
    slot = F.floor((F.col("received") - start) / length)
    rows = crossed.where("received is not null").groupBy("domain", slot.alias("slot"))
    return rows.agg(F.count("*").alias("messages"), F.sum("hold").alias("hold"))


@schema("server string, origin string, hops bigint, copies bigint, queue bigint, total bigint, total_ns array<bigint>")
def arrivals(log: DataFrame) -> DataFrame:
    """Reactions by where they were, where the message came from, and over how many links: how long the message waited
    for its agent, and from its send to the reaction (by two clocks)."""
    queue, total = F.col("done") - F.col("delivered"), F.greatest(F.col("done") - F.col("sent"), F.lit(0))
    return log.where("kind = 'react'").groupBy("server", "origin", "hops").agg(
        F.count("*").alias("copies"), F.sum(queue).alias("queue"),
        F.sum(total).alias("total"), _quantiles(total, "total_ns"),
    )  # fmt: skip


@schema(
    "domain string, server string, member bigint, sequence bigint, origin string, number bigint, peer string, "
    "hold bigint"
)
def waits(log: DataFrame) -> DataFrame:
    """One row for each message that was held and each cause that it lacked: message (origin, number) from `peer` was
    held on `server` for `hold` ns, since what `member` (its place in the domain) sent as `sequence` was not there."""
    held = log.where("kind = 'hold'").select("server", "domain", "origin", "number", "peer", "missing")
    came = _took(log).where("delivered > received and received > 0")
    came = came.groupBy("server", "domain", "origin", "number").agg(
        F.min(F.col("delivered") - F.col("received")).alias("hold")
    )
    rows = held.join(came, ["server", "domain", "origin", "number"], "left")
    rows = rows.withColumn("cause", F.explode("missing"))
    return rows.select(
        "domain", "server", F.col("cause.member").alias("member"), F.col("cause.sequence").alias("sequence"), "origin",
        "number", "peer", "hold",
    )  # fmt: skip


@schema("domain string, server string, member bigint, messages bigint, hold bigint, longest bigint")
def waiting(waited: DataFrame) -> DataFrame:
    """From `waits`: whom each server waits for, how often, and for how long in all; a message that lacks several
    causes waits for each of their members."""
    rows = waited.groupBy("domain", "server", "member", "origin", "number").agg(F.max("hold").alias("hold"))
    return rows.groupBy("domain", "server", "member").agg(
        F.count("*").alias("messages"), F.coalesce(F.sum("hold"), F.lit(0)).alias("hold"),
        F.coalesce(F.max("hold"), F.lit(0)).alias("longest"),
    )  # fmt: skip
