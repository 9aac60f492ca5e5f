"""No step of the analysis is done by one task, and no result grows with clients."""

import json
import re
from datetime import UTC, datetime

import pytest

from mombroker.admin.analysis import schema

pytestmark = pytest.mark.spark

BEGIN = 1_700_000_000 * 10**9
DEFAULTS = {"string": "''", "bigint": "0L", "array<string>": "array()", "timestamp": "timestamp '2023-11-14 22:13:20'"}
SECOND = datetime(2023, 11, 14, 22, 14, tzinfo=UTC)


def rows(spark, count, **columns):
    """So many records with these columns, expressions of `id`; the others have their defaults."""
    found = []
    for column in schema.COLUMNS:
        value = columns.get(column.name, DEFAULTS.get(column.type, f"cast(array() as {column.type})"))
        found.append(f"cast({value} as {column.type}) as `{column.name}`")
    return spark.range(count).selectExpr(*found)


def crowd(spark, count):
    """Each of so many connections logs in, sends one message to one of five queues, and gets one."""
    conn = "concat('hub/conn:', id)"
    queue = "concat('lab/queue:q', id % 5)"
    user = """concat('{"user": "u', id % 7, '", "client_id": "till-', id % 3, '"}')"""
    same = {"server": "'hub'", "incarnation": "'i'", "sent": f"{BEGIN}L + id"}
    login = rows(spark, count, **same, kind="'client'", agent=conn, done=f"{BEGIN}L + id", detail=user)
    more = {**same, "kind": "'send'", "origin": "'hub'", "done": f"{BEGIN}L + id", "payload": "10"}
    sent = rows(spark, count, **more, number="id", agent=conn, dests=f"array({queue})")
    given = rows(spark, count, **more, number=f"id + {count}", agent=queue, dests=f"array({conn})")
    took = {**same, "kind": "'react'", "origin": "'hub'", "done": f"{BEGIN}L + id + 5", "delivered": f"{BEGIN}L + id"}
    came = rows(spark, count, **took, number=f"id + {count}", agent=conn)
    queued = rows(spark, count, **{**took, "server": "'lab'"}, number="id", agent=queue)
    return login.unionByName(sent).unionByName(given).unionByName(came).unionByName(queued)


@pytest.mark.parametrize("count", [3000, pytest.param(400_000, marks=pytest.mark.long)])
def test_a_report_is_of_users_and_destinations_and_small_however_many_connect(spark, count):
    from mombroker.admin.analysis import report

    found, _ = report.analyse(crowd(spark, count), messages=0)
    assert len(json.dumps(found, indent=2)) < 1_000_000
    assert {(row["source"], row["target"]) for row in found["agents"]} == {
        pair for at in range(5) for pair in (("hub/conn:*", f"lab/queue:q{at}"), (f"lab/queue:q{at}", "hub/conn:*"))
    }
    clients = found["clients"]
    assert {(row["user"], row["client_id"], row["destination"]) for row in clients} == {
        (f"u{user}", f"till-{till}", f"lab/queue:q{queue}")
        for user in range(7) for till in range(3) for queue in range(5)
    }  # fmt: skip
    for figure in ("sent", "given", "connections"):
        assert sum(row[figure] for row in clients) == count
    assert sum(row["given_bytes"] for row in clients) == 10 * count
    assert {(row["destination"], row["sent"], row["given"]) for row in found["destinations"]} == {
        (f"lab/queue:q{at}", count // 5, count // 5) for at in range(5)
    }
    assert not [row for row in found["anomalies"] if row["kind"] in ("undelivered", "duplicates")]


@pytest.mark.long
def test_long_times_add_up_and_agents_that_have_moved_are_told_in_part(spark):
    """400,000 messages reach a server that was down for a night, 10^19 ns in all, and 600 agents have moved: so 1,200
    names got more or less than was sent to them, but all together the same."""
    from mombroker.admin.analysis import report

    night, late, moved = 8 * 3600 * 10**9, 400_000, 600
    out = "array(named_struct('domain', 'd', 'ordering', 'matrix', 'peer', 'lab', 'bytes', 10L, 'ints', 3L))"
    same = {"origin": "'hub'", "number": "id", "sent": f"{BEGIN}L", "payload": "10"}
    sent = {**same, "server": "'hub'", "incarnation": "'i'", "kind": "'send'", "agent": "'hub/x'", "done": f"{BEGIN}L"}
    took = {**same, "server": "'lab'", "incarnation": "'j'", "kind": "'react'", "done": f"{BEGIN + night}L"}
    over = {"peer": "'hub'", "domain": "'d'", "ordering": "'matrix'", "hops": "1", "received": f"{BEGIN}L + 1"}
    apart = {"number": f"id + {late}"}
    log = rows(spark, late, **sent, out=out, dests="array('lab/y')")
    log = log.unionByName(rows(spark, late, **took, **over, agent="'lab/y'", delivered=f"{BEGIN + night}L"))
    log = log.unionByName(rows(spark, moved, **{**sent, **apart}, dests="array(concat('lab/old', id))"))
    log = log.unionByName(rows(spark, moved, **{**took, **apart}, agent="concat('lab/new', id)", delivered="sent"))
    found, _ = report.analyse(log, messages=0)
    (every,) = (row for row in found["latency"]["whole"] if row["part"] == "all")
    assert every["seconds"] == (late + moved) * night / 1e9 and (late * night) > 1 << 63
    assert found["links"][0]["hold_ms"] == pytest.approx(night / 1e6)
    assert [row["agent"] for row in found["hot"]] == []  # lab/y is as it should be: those that are not go before it
    assert found["left_out"] == {"agents": 0, "destinations": 0, "clients": 0, "anomalies": 2 * moved - 999}
    assert len(json.dumps(found, indent=2, allow_nan=False)) < 1_000_000


def test_what_is_sent_to_ever_other_sets_of_servers_is_counted_in_whole_and_told_in_part(spark, monkeypatch):
    from mombroker.admin.analysis import report

    targets = "transform(filter(sequence(0, 5), at -> shiftright(id, at) % 2 = 1), at -> concat('s', at, '/x'))"
    same = {"incarnation": "'i'", "kind": "'send'", "sent": f"{BEGIN}L + id", "done": f"{BEGIN}L + id", "number": "id"}
    same["payload"] = "10"
    sent = [rows(spark, 640, server=f"'{name}'", origin=f"'{name}'", dests=targets, **same) for name in ("a", "b")]
    log = sent[0].unionByName(sent[1])
    whole, load = report.analyse(log, messages=0)
    monkeypatch.setattr(report, "MOST", 2)
    part, less = report.analyse(log, messages=0)
    assert len(load.flows) == 2 * 63 and len(less.flows) <= 20 + 2 * 6
    assert load.messages == pytest.approx(less.messages) == 2 * 630
    assert {source for source, _ in less.flows} == {"a", "b"}
    for name in ("totals", "traffic", "servers"):
        assert whole[name] == part[name]
    assert whole["traffic"] == [
        {"from": name, "to": f"s{at}", "messages": 320, "payload_bytes": 3200} for name in ("a", "b") for at in range(6)
    ]
    assert [(row["messages"], row["payload_bytes"]) for row in (whole["totals"],)] == [(1280, 12800)]


def analyses(log):
    """Every DataFrame that a report collects or keeps."""
    from pyspark.sql import functions as F

    from mombroker.admin.analysis import cost, times, windows

    flowing, took, crossed = cost.flows(log), cost.taken(log), times.hops(log)
    talking, spreads = cost.agents(flowing), times.spread(crossed, times.links(took))
    right = times.put_right(crossed, times.links(took), {"s01": 5})
    return {
        "commits": cost.commits(log), "stamped": cost.stamped(log), "flows": flowing, "taken": took,
        "agents": talking, "top": cost.top(talking, "messages", 10), "targets": cost.targets(talking, took),
        "together": cost.together(took), "destinations": cost.destinations(talking),
        "clients": cost.top(cost.clients(log, flowing), F.col("sent"), 10), "servers": cost.servers(flowing),
        "sources": cost.sources(cost.servers(flowing)), "pairs": cost.pairs(cost.servers(flowing)),
        "links": times.links(took), "hops": crossed, "all hops": times.hops(log, small=False), "right": right,
        "spread": spreads, "delays": times.delays(spreads), "holds": times.holds(spreads),
        "arrivals": times.arrivals(log, {"s01": 5}), "waits": times.waits(log),
        "waiting": times.waiting(times.waits(log)), "meters": cost.meters(log),
        "within": windows.within(log, SECOND, SECOND), "packets": cost.packets(log),
    }  # fmt: skip


def test_no_step_is_of_one_task_and_the_partitions_that_are_asked_for_are_there(spark, arrow, played, tmp_path):
    from mombroker.admin.analysis import export, partitions, source, stores

    list(export.export(stores.read(played.folder), tmp_path))
    before = spark.conf.get(partitions.SHUFFLE)
    spark.conf.set(partitions.SHUFFLE, "200")
    try:
        log = source.read(spark, tmp_path)
        assert spark.conf.get(partitions.SHUFFLE) == "200"
        shuffled = 0
        for name, analysis in analyses(log).items():
            plan = analysis._jdf.queryExecution().executedPlan().toString()
            assert "Exchange SinglePartition" not in plan, f"{name}\n{plan}"
            counts = re.findall(r"Exchange hashpartitioning\(.*, (\d+)\)", plan)
            assert set(counts) <= {"200"}, f"{name}\n{plan}"
            shuffled += bool(counts)
            assert "BatchEvalPython" not in plan and "PythonUDF" not in plan, name
        assert shuffled > 15
        control = log.groupBy().count()._jdf.queryExecution().executedPlan().toString()
        assert "Exchange SinglePartition" in control
    finally:
        spark.conf.set(partitions.SHUFFLE, before)
