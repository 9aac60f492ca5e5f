"""Where the time of a message goes: functions from a DataFrame to a DataFrame, each with its schema, as in cost.py.

A packet is on its way through stations: it is stamped, waits for the commit that it is part of (`store`), travels
(`link`, with all that it waits for a connection or for credit), waits for its causes (`hold`); at the end the message
waits for its agent (`queue`). Parts that the log does not know are null. Times are ns.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mombroker.admin.analysis.cost import NO_ID, SUM, TOOK, near, packets, quantiles, schema, total

NO_CLOCKS: Mapping[str, int] = {}
PARTS = ("store", "link", "hold")
LINK = ("domain", "server", "peer")
DELAYS = ", ".join(f"{part} {SUM}, {part}_count bigint, {part}_ns array<bigint>" for part in PARTS)


@schema("hop bigint, domain string, server string, peer string")
def links(took: DataFrame) -> DataFrame:
    """From `taken`: the links that something came over, with their `hop`."""
    return took.where("peer <> ''").select(_hop("server", "peer"), "domain", "server", "peer").distinct()


@schema(
    "hop bigint, origin bigint, number bigint, payload bigint, received bigint, store bigint, link bigint, hold bigint"
)
def hops(log: DataFrame, small: bool = True) -> DataFrame:
    """One row per message and link that it has crossed. `hop` is a hash of the link (`links` has the names), `origin`
    one of the name of the message's server: with names, all this would take twice as long.

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
    none, origin = F.lit(None).cast("bigint"), F.xxhash64("origin").alias("origin")
    left = out.select(
        _hop("peer", "server"), origin, "number", "stamped", "durable", none.alias("received"),
        none.alias("delivered"), none.alias("payload"),
    )  # fmt: skip
    came = _took(log).select(
        _hop("server", "peer"), origin, "number", none.alias("stamped"), none.alias("durable"),
        F.expr("nullif(received, 0)").alias("received"), "delivered", "payload",
    )  # fmt: skip
    key, values = ("hop", "origin", "number"), ("stamped", "durable", "received", "delivered", "payload")
    # Brought together before anything is summed up: each task has a key once. A relay may send one message twice over
    # a link; the first one counts.
    grouped = left.unionByName(came).repartition(*key).groupBy(*key)
    rows = grouped.agg(*[F.min(name).alias(name) for name in values]).where("delivered is not null")
    return rows.select(
        *key, "payload", "received", (F.col("durable") - F.col("stamped")).alias("store"),
        (F.col("received") - F.col("durable")).alias("link"), (F.col("delivered") - F.col("received")).alias("hold"),
    )  # fmt: skip


def put_right(crossed: DataFrame, named: DataFrame, ahead: Mapping[str, int]) -> DataFrame:
    """From `hops` and `links`: the same, without what the clocks of servers are `ahead` by, ns."""
    shift = named.select(F.col("hop").alias("of"), (ahead_of("server", ahead) - ahead_of("peer", ahead)).alias("shift"))
    rows = crossed.join(F.broadcast(shift), crossed.hop == shift.of)
    return rows.withColumn("link", F.col("link") - F.col("shift")).select(crossed.columns)


def ahead_of(server: str, ahead: Mapping[str, int]) -> Column:
    """Of the server that this column names."""
    none = F.lit(0).cast("bigint")
    if not ahead:
        return none
    pairs = [F.lit(each).cast("bigint") if isinstance(each, int) else F.lit(each) for one in ahead.items()
             for each in one]  # fmt: skip
    return F.coalesce(F.element_at(F.create_map(*pairs), F.col(server)), none)


def _hop(server: str, peer: str) -> Column:
    return F.xxhash64("domain", server, peer).alias("hop")


def _took(log: DataFrame) -> DataFrame:
    return log.where(F.col("kind").isin(*TOOK) & (F.col("peer") != "") & (F.col("origin") != NO_ID))


@schema(
    "domain string, server string, peer string, part string, about bigint, messages bigint, payload bigint, "
    f"held bigint, time {SUM}, least bigint"
)
def spread(crossed: DataFrame, named: DataFrame, start: int = 0, length: int = 1 << 62) -> DataFrame:
    """From `hops` and `links`, all that is told of delays, as histograms: how many messages needed `about` so many ns
    for a part of their way over a link, their `time` in all, and the least of them on the link.

    The part `slot` has what was held as time went on, in slots of `length` ns from `start`. This is the one pass over
    all crossings; what it gives is small.
    """
    names = [f"about_{part}" for part in (*PARTS, "slot")]
    abouts = [*(near(F.col(part)) for part in PARTS), F.floor((F.col("received") - start) / length)]
    rows = crossed.select(
        "hop", "payload", *PARTS, *[about.alias(name) for about, name in zip(abouts, names, strict=True)]
    )
    rows = rows.groupingSets([["hop", name] for name in names], "hop", *names).agg(
        F.count("*").alias("messages"), F.sum("payload").alias("payload"),
        F.count(F.when(F.col("hold") > 0, 1)).alias("held"), F.min("link").alias("least"),
        *[total(F.greatest(F.col(part), F.lit(0))).alias(part) for part in PARTS],
        *[F.grouping(name).alias(f"not_{name}") for name in names],
    )  # fmt: skip

    def by_part(column: Callable[[str], Column]) -> Column:
        found = column("slot")
        for part in PARTS:
            found = F.when(F.col(f"not_about_{part}") == 0, column(part)).otherwise(found)
        return found

    return rows.join(F.broadcast(named), "hop").select(
        *LINK, by_part(F.lit).alias("part"), by_part(lambda part: F.col(f"about_{part}")).alias("about"),
        "messages", "payload", "held", by_part(lambda part: F.col("hold" if part == "slot" else part)).alias("time"),
        "least",
    )  # fmt: skip


@schema(
    f"domain string, server string, peer string, messages bigint, payload bigint, held bigint, {DELAYS}, "
    "early bigint, ahead bigint, least bigint"
)
def delays(spreads: DataFrame) -> DataFrame:
    """From `spread`: of each link the messages that it brought, and of each part of their time, where it is known, the
    sum and QUANTILES; the same of each domain, without a server and peer, and of all, without a domain. `early` packets
    came before they left: one clock is `ahead` of the other, by so much at least. `least`: the shortest `link`."""

    def of(part: str, column: Column) -> Column:
        return F.when((F.col("part") == part) & F.col("about").isNotNull(), column)

    def summed(column: Column) -> Column:
        return F.coalesce(F.sum(column), F.lit(0))

    found = [
        F.sum(F.when(F.col("part") == "hold", F.col(name))).alias(name) for name in ("messages", "payload", "held")
    ]
    for part in PARTS:
        found.append(summed(of(part, F.col("time"))).cast(SUM).alias(part))
        found.append(summed(of(part, F.col("messages"))).alias(f"{part}_count"))
        found.append(quantiles(of(part, F.greatest(F.col("about"), F.lit(0))), "messages").alias(f"{part}_ns"))
    early = (F.col("part") == "link") & (F.col("about") < 0)
    found.append(summed(F.when(early, F.col("messages"))).alias("early"))
    found.append(F.coalesce(-F.min(F.when(early, F.col("least"))), F.lit(0)).alias("ahead"))
    found.append(F.min(of("link", F.col("least"))).alias("least"))
    return spreads.where("part <> 'slot'").groupingSets([[], ["domain"], LINK], *LINK).agg(*found)


@schema(f"domain string, slot bigint, messages bigint, hold {SUM}")
def holds(spreads: DataFrame) -> DataFrame:
    """From `spread`: what was held in each domain as time went on."""
    rows = spreads.where("part = 'slot' and about is not null").groupBy("domain", F.col("about").alias("slot"))
    return rows.agg(F.sum("messages").alias("messages"), F.sum("time").cast(SUM).alias("hold"))


@schema(
    f"server string, origin string, hops bigint, copies bigint, queue {SUM}, total {SUM}, queue_ns array<bigint>, "
    "total_ns array<bigint>"
)
def arrivals(log: DataFrame, ahead: Mapping[str, int] = NO_CLOCKS) -> DataFrame:
    """Reactions by where they were, where the message came from, and over how many links: how long the message waited
    for its agent, and from its send to the reaction, by two clocks, of which some may be `ahead`. The same by `hops`
    alone, and of all, which have no server."""
    whole = F.col("done") - ahead_of("server", ahead) - F.col("sent") + ahead_of("origin", ahead)
    times = {"queue": F.col("done") - F.col("delivered"), "total": F.greatest(whole, F.lit(0))}
    key = ("server", "origin", "hops")
    rows = log.where("kind = 'react'").select(
        *key, *[time.alias(name) for name, time in times.items()],
        *[near(time).alias(f"{name}_about") for name, time in times.items()],
    )  # fmt: skip
    abouts = [f"{name}_about" for name in times]
    # Two histograms: a row tells of one of them, and the other's column is null.
    rows = rows.groupingSets([[*key, about] for about in abouts], *key, *abouts).agg(
        F.count("*").alias("copies"), *[total(F.col(name)).alias(name) for name in times]
    )
    own = F.col("total_about").isNotNull()
    return rows.groupingSets([[], ["hops"], list(key)], *key).agg(
        F.coalesce(F.sum(F.when(own, F.col("copies"))), F.lit(0)).alias("copies"),
        *[F.coalesce(F.sum(F.when(own, F.col(name))), F.lit(0)).cast(SUM).alias(name) for name in times],
        *[quantiles(about, "copies").alias(about.replace("about", "ns")) for about in abouts],
    )


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


@schema(f"domain string, server string, member bigint, messages bigint, hold {SUM}, longest bigint")
def waiting(waited: DataFrame) -> DataFrame:
    """From `waits`: whom each server waits for, how often, and for how long in all; a message that lacks several
    causes waits for each of their members."""
    rows = waited.groupBy("domain", "server", "member", "origin", "number").agg(F.max("hold").alias("hold"))
    return rows.groupBy("domain", "server", "member").agg(
        F.count("*").alias("messages"), F.coalesce(total(F.col("hold")), F.lit(0)).cast(SUM).alias("hold"),
        F.coalesce(F.max("hold"), F.lit(0)).alias("longest"),
    )  # fmt: skip
