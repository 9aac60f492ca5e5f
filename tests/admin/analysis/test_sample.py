"""The messages of a log that are played for advice: each part of the log's time has its share among them."""

from itertools import accumulate

import pytest

from mombroker.admin.analysis import cost, traffic

F = pytest.importorskip("pyspark.sql.functions")
pytestmark = pytest.mark.spark

SECOND = 1_000_000_000
OTHERS = ["s2/a", "s3/a", "s4/a"]


def sent(spark, *phases):
    """A log: for each phase so many messages to so many agents, at this gap (s); and one to its own server."""
    gaps = [(gap, dests) for count, gap, dests in phases for _ in range(count)]
    times = accumulate(int(gap * SECOND) for gap, _ in gaps)
    rows = [("send", "s1", at, 10, OTHERS[:dests]) for at, (_, dests) in zip(times, gaps, strict=True)]
    rows += [("send", "s1", 5, 10, ["s1/b"]), ("react", "s2", 5, 10, ["s2/a"])]
    log = spark.createDataFrame(rows, "kind string, server string, sent long, payload long, dests array<string>")
    return log.repartition(3), (rows[0][2], rows[-3][2])


def test_what_is_rare_and_slow_has_no_more_than_its_share(spark):
    log, times = sent(spark, (900, 0.001, 1), (100, 0.1, 3))
    found = traffic.sends(log, times, 200)
    assert sorted(set(map(len, (send.dests for send in found)))) == [1, 3] and found == sorted(found)
    assert 100 <= len(found) <= 100 + traffic.PARTS
    assert sum(len(send.dests) == 1 for send in found) == pytest.approx(90, abs=3)
    assert traffic.sends(log, times, 1000) == sorted(traffic.sends(log, times, 10**9))
    assert len(traffic.sends(log, times, 1000)) == 1000


def test_a_pause_costs_nothing_of_the_sample(spark):
    log, times = sent(spark, (300, 0.01, 1), (1, 20_000, 1), (300, 0.01, 2))
    found = traffic.sends(log, times, 200)
    assert [sum(len(send.dests) == count for send in found) for count in (1, 2)] == pytest.approx([50, 50], abs=2)
    assert len(traffic.sends(log, times, 2)) == 2  # one of each part that has any


def stamped(server, done, peer, control):
    return "send", server, done, 0, "", 20, [("d1", "matrix", peer, control, 1)]


def meter(server, sent, done, peer, amount):
    return "meter", server, done, sent, peer, amount, []


def test_a_packet_weighs_what_was_written_while_it_was_counted(spark):
    """Of s1 the last packets came after it had counted, and s3 counts nothing. Of few packets nothing is told."""
    rows = [stamped("s1", at, "s2", 10) for at in range(1500)] + [stamped("s3", at, "s2", 10) for at in range(500)]
    rows += [meter("s1", 0, 599, "s2", 6000 + 72_000), meter("s1", 599, 999, "s2", 4000 + 48_000)]
    log = spark.createDataFrame(
        rows,
        "kind string, server string, done long, sent long, peer string, payload long, "
        "out array<struct<domain string, ordering string, peer string, bytes long, ints long>>",
    )
    counted = log.withColumns({"domain": F.lit("d1"), "detail": F.lit("wire_bytes")})
    meters = cost.meters(counted).collect()
    assert traffic.packet(meters, traffic.metered(counted).collect()) == 120
    assert traffic.packet(meters, traffic.metered(counted.where("kind = 'meter' or done < 900")).collect()) == 0
