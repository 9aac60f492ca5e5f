"""What the servers' logs say that ordering costs: functions from a DataFrame to a DataFrame, each with its schema.

`log` is a DataFrame with the columns of schema.py, from Parquet or from the data source. Times are ns. Nothing here
starts a job; report.py does, and puts the small results together. Where the time goes is told in times.py.
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
BITS = 8  # that are kept of a time in a percentile: it is known to 1/256
MS = 1e6  # ns
SUM = "decimal(38,0)"  # of times, ns
HALF = 31  # bits
SHORT_LIVED = "(/(?:conn|temp-queue|temp-topic)):.*$"
CONNECTION = "/conn:"
DESTINATION = "/(queue|topic|sub|share|temp-queue|temp-topic):"
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
    "server string, kind string, domain string, ordering string, peer string, packets bigint, control_bytes bigint, "
    "control_ints bigint, messages bigint, payload bigint"
)
def stamped(log: DataFrame) -> DataFrame:
    """What each server has put on its links: its own messages (`send`), those that it routes (`forward`), and what it
    passes on for others within a domain (`relay`). `messages` counts a message at the first of its packets in a domain
    alone, so that a sum over a domain's peers tells how many there were."""
    rows = log.where(F.size("out") > 0).select(
        "server", "kind", "payload", F.col("out.domain").alias("domains"), F.posexplode("out").alias("at", "out")
    )
    first = F.array_position("domains", F.col("out.domain")) == F.col("at") + 1
    payload = F.coalesce(F.sum(F.when(first, F.col("payload"))), F.lit(0))
    return rows.groupBy("server", "kind", "out.domain", "out.ordering", "out.peer").agg(
        F.count("*").alias("packets"), F.sum("out.bytes").alias("control_bytes"),
        F.sum("out.ints").alias("control_ints"), F.count(F.when(first, 1)).alias("messages"), payload.alias("payload"),
    )  # fmt: skip


# -- who talks to whom -------------------------------------------------------------------------------------------------


@schema("server string, agent string, dests array<string>, messages bigint, payload bigint, first bigint, last bigint")
def flows(log: DataFrame) -> DataFrame:
    """Messages by source and destinations, as agents; when the first and the last of them were sent."""
    return log.where("kind = 'send'").groupBy("server", "agent", "dests").agg(
        F.count("*").alias("messages"), F.sum("payload").alias("payload"), F.min("sent").alias("first"),
        F.max("sent").alias("last"),
    )  # fmt: skip


def of_many(agent: str) -> Column:
    """The name of an agent, where connections of clients, and what they have for a time, are one for each server."""
    return F.regexp_replace(F.col(agent), SHORT_LIVED, "$1:*")


@schema("source string, target string, messages bigint, payload bigint")
def agents(flowing: DataFrame) -> DataFrame:
    """From `flows`: the traffic matrix of agents, a row for each copy's pair; those of `of_many` together."""
    rows = flowing.select(of_many("agent").alias("source"), F.explode("dests").alias("to"), "messages", "payload")
    return rows.groupBy("source", of_many("to").alias("target")).agg(
        F.sum("messages").alias("messages"), F.sum("payload").alias("payload")
    )


@schema("agent string, wanted bigint, became bigint, agents bigint")
def targets(talking: DataFrame, took: DataFrame) -> DataFrame:
    """From `agents` and `taken`: how many messages each agent is to get, and how many of them came to an end there; and
    of all that are to get any, which has no name: how many `agents` they are."""
    wanted = talking.groupBy(F.col("target").alias("agent")).agg(F.sum("messages").alias("wanted"))
    ended = took.where(F.col("kind").isin(*ENDS)).groupBy("agent").agg(F.sum("records").alias("became"))
    rows = wanted.join(ended, "agent", "full_outer")
    none = F.lit(0)
    sums = [F.coalesce(F.sum(name), none).cast("bigint").alias(name) for name in ("wanted", "became")]
    return rows.groupingSets([[], ["agent"]], "agent").agg(*sums, F.count("wanted").alias("agents"))


@schema("domain string, server string, peer string, agent string, kind string, records bigint")
def together(took: DataFrame) -> DataFrame:
    """From `taken`: agents are named only where a message ended otherwise than by a reaction."""
    agent = F.when(F.col("kind").isin("react", "forward"), F.lit("")).otherwise(F.col("agent"))
    return took.groupBy("domain", "server", "peer", agent.alias("agent"), "kind").agg(F.sum("records").alias("records"))


@schema("destination string, sent bigint, sent_bytes bigint, given bigint, given_bytes bigint")
def destinations(talking: DataFrame) -> DataFrame:
    """From `agents`, by queue, topic and subscription: messages that were sent to it, and that it has given."""
    pairs = (("target", "sent"), ("source", "given"))
    parts = []
    for side, name in pairs:
        figures = [F.col("messages") if each == name else F.lit(0) for _, each in pairs]
        sizes = [F.col("payload") if each == name else F.lit(0) for _, each in pairs]
        names = [figure for _, each in pairs for figure in (each, f"{each}_bytes")]
        values = [value for pair in zip(figures, sizes, strict=True) for value in pair]
        columns = [value.cast("bigint").alias(each) for value, each in zip(values, names, strict=True)]
        parts.append(talking.where(F.col(side).rlike(DESTINATION)).select(F.col(side).alias("destination"), *columns))
    return (
        parts[0]
        .unionByName(parts[1])
        .groupBy("destination")
        .agg(*[F.sum(name).alias(name) for name in ("sent", "sent_bytes", "given", "given_bytes")])
    )


@schema(
    "user string, client_id string, destination string, sent bigint, sent_bytes bigint, given bigint, "
    "given_bytes bigint, connections bigint"
)
def clients(log: DataFrame, flowing: DataFrame) -> DataFrame:
    """From the log and `flows`, by user, client id and destination: what connections of clients have sent there, and
    what they were given from it. Of connections whose beginning the log has not, user and client id are null."""
    known = log.where("kind = 'client'").select(
        F.col("agent").alias("conn"), F.get_json_object("detail", "$.user").alias("user"),
        F.get_json_object("detail", "$.client_id").alias("client_id"),
    )  # fmt: skip
    none = F.lit(0).cast("bigint")
    pairs = flowing.select(F.col("agent").alias("source"), F.explode("dests").alias("target"), "messages", "payload")
    sent = pairs.where(F.col("source").rlike(CONNECTION)).select(
        F.col("source").alias("conn"), F.col("target").alias("destination"), F.col("messages").alias("sent"),
        F.col("payload").alias("sent_bytes"), none.alias("given"), none.alias("given_bytes"),
    )  # fmt: skip
    given = pairs.where(F.col("target").rlike(CONNECTION)).select(
        F.col("target").alias("conn"), F.col("source").alias("destination"), none.alias("sent"),
        none.alias("sent_bytes"), F.col("messages").alias("given"), F.col("payload").alias("given_bytes"),
    )  # fmt: skip
    rows = sent.unionByName(given).where(~F.col("destination").rlike(CONNECTION)).join(known, "conn", "left")
    sums = [F.sum(name).alias(name) for name in ("sent", "sent_bytes", "given", "given_bytes")]
    return rows.groupBy("user", "client_id", of_many("destination").alias("destination")).agg(
        *sums, F.count_distinct("conn").alias("connections")
    )


def top(rows: DataFrame, by: Column | str, most: int) -> DataFrame:
    """The rows that have most of this; which of equal ones is not left to chance."""
    rest = [F.col(name) for name in rows.columns]
    by = F.col(by) if isinstance(by, str) else by
    return rows.orderBy(by.desc(), *rest).limit(most)


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


@schema("source string, messages bigint, payload bigint, leaving bigint, first bigint, last bigint")
def sources(serving: DataFrame) -> DataFrame:
    """From `servers`: what each server has sent in all, and of those `leaving` it how many, the first and the last."""
    away = F.size("targets") > 0
    return serving.groupBy("source").agg(
        F.sum("messages").alias("messages"), F.sum("payload").alias("payload"),
        F.coalesce(F.sum(F.when(away, F.col("messages"))), F.lit(0)).alias("leaving"),
        F.min(F.when(away, F.col("first"))).alias("first"), F.max(F.when(away, F.col("last"))).alias("last"),
    )  # fmt: skip


@schema("source string, target string, messages bigint, payload bigint")
def pairs(serving: DataFrame) -> DataFrame:
    """From `servers`: copies from server to server."""
    rows = serving.select("source", F.explode("targets").alias("target"), "messages", "payload")
    return rows.groupBy("source", "target").agg(F.sum("messages").alias("messages"), F.sum("payload").alias("payload"))


@schema("domain string, server string, peer string, agent string, kind string, records bigint")
def taken(log: DataFrame) -> DataFrame:
    """What came in order, by the link that brought it (none: it is of the same server), and what became of it (`react`,
    `expire`, `dead`, `drop`) at the agent that it was for, or that it was passed on (`forward`)."""
    rows = log.where(F.col("kind").isin(*TOOK)).groupBy(
        "domain", "server", "peer", of_many("agent").alias("agent"), "kind"
    )
    return rows.agg(F.count("*").alias("records"))


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
    sums = {
        "records": F.count("*"), "logged": F.count(F.when(head, 1)), "commits": F.sum(F.when(head, F.col("commits"))),
        "rows": F.sum(F.when(head, F.col("commit_rows"))), "bytes": F.sum(F.when(head, F.col("commit_bytes"))),
        "counted": F.count(F.when(head, F.col("commits"))), "waits": F.count(took), "wait": F.sum(took),
    }  # fmt: skip
    rows = log.groupBy("server", near(took).alias("about")).agg(
        *[value.alias(name) for name, value in sums.items()], F.min(at).alias("first"), F.max(at).alias("last")
    )
    return rows.groupBy("server").agg(
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums],
        quantiles("about", "waits").alias("wait_ns"), F.min("first").alias("first"), F.max("last").alias("last"),
    )  # fmt: skip


@schema("server string, domain string, peer string, figure string, amount bigint")
def meters(log: DataFrame) -> DataFrame:
    """What servers have counted (core/trace.py, METERS): of each link `wire_bytes`, of each server the others."""
    rows = log.where("kind = 'meter'").groupBy("server", "domain", "peer", F.col("detail").alias("figure"))
    return rows.agg(F.sum("payload").alias("amount"))


# -- sums and histograms of times --------------------------------------------------------------------------------------


def total(time: Column) -> Column:
    """The sum of times. It may be beyond 64 bits: 400,000 messages to a server that was down for a night make 10^19 ns.
    So the upper and the lower halves are summed up."""
    upper, lower = F.sum(F.shiftright(time, HALF)), F.sum(time.bitwiseAND(F.lit((1 << HALF) - 1).cast("bigint")))
    return (upper.cast(SUM) * F.lit(1 << HALF) + lower).cast(SUM)


def near(time: Column) -> Column:
    """A time with its BITS first bits, in the middle of all that begin so; all before 0 are one.

    So there are few different ones, and percentiles can be exact: the same however the rows are dealt to tasks.
    """
    cut = F.greatest(F.floor(F.log2(F.greatest(time, F.lit(1)))) - (BITS - 1), F.lit(0)).cast("int")
    step = F.call_function("shiftleft", F.lit(1).cast("bigint"), cut)
    return F.when(time < 0, F.lit(-1)).otherwise(time - time % step + F.shiftright(step, 1)).cast("bigint")


def quantiles(time: Column | str, count: str) -> Column:
    """QUANTILES of a histogram."""
    return F.percentile(time, list(QUANTILES), F.col(count)).cast("array<bigint>")
