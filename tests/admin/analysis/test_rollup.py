"""Roll-ups add up to what the records say, of new files alone; two periods differ by what was changed."""

import errno
import json
import shutil
from collections import Counter
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.core.errors import MomError

pa = pytest.importorskip("pyarrow", reason="this needs the extra spark")

import pyarrow.parquet as pq  # noqa: E402

from mombroker.admin.analysis import compare, export, files, rollup, stores  # noqa: E402


@pytest.fixture(scope="module")
def exported(played, tmp_path_factory):
    target = tmp_path_factory.mktemp("rolled") / "exported"
    list(export.export(stores.read(played.folder), target))
    return target


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "exported", ignore=shutil.ignore_patterns(rollup.FOLDER))


def sums(target):
    table = rollup.read(target).group_by("figure").aggregate([("count", "sum"), ("total", "sum")])
    return {row["figure"]: (row["count_sum"], row["total_sum"]) for row in table.to_pylist()}


def test_figures_are_those_of_the_records(played, exported):
    rollup.update(exported)
    found = sums(exported)
    assert found.keys() <= rollup.FIGURES.keys()
    commits = [commit for each in played.written.values() for commit in each]
    records = [record for commit in commits for record in commit.records]
    kinds = Counter(record.kind for record in records)
    assert found["records"] == (len(records), 0)
    assert found["sends"] == (kinds["send"], sum(r.payload for r in records if r.kind == "send"))
    assert [found[kind][0] for kind in ("react", "forwards")] == [kinds["react"], kinds["forward"]]
    packets = [packet for record in records for packet in record.out]
    assert found["packets"] == (len(packets), sum(packet[2] for packet in packets))
    assert found["ints"] == (len(packets), sum(packet[3] for packet in packets))
    came = [r for r in records if r.kind in (*rollup.ENDS, "forward") and r.peer and r.origin and r.received]
    assert found["hold"] == (len(came), sum(r.delivered - r.received for r in came)) and found["hold"][1] > 0
    reactions = [r for r in records if r.kind == "react"]
    assert found["hops"][1] == sum(r.hops for r in reactions)
    assert found["whole"][1] == sum(max(0, r.done - r.sent) for r in reactions if r.sent)
    assert found["commits"] == (sum(c.commits for c in commits), sum(c.rows + 1 for c in commits))


def test_only_new_files_are_read_and_days_that_are_deleted_keep_theirs(copied):
    whole = files.chosen(copied)
    first = whole[0]
    away = copied.parent / "away.parquet"
    first.path.rename(away)
    assert rollup.update(copied) == len(whole) - 1
    away.rename(first.path)
    assert rollup.update(copied) == 1
    there = sums(copied)
    assert rollup.update(copied) == 0
    rebuilt = shutil.copytree(copied, copied.parent / "again")
    shutil.rmtree(rebuilt / rollup.FOLDER)
    rollup.update(rebuilt)
    assert sums(rebuilt) == there
    for day in copied.glob("day=*"):
        shutil.rmtree(day)
    assert rollup.update(copied) == 0 and sums(copied) == there


def test_a_file_that_was_joined_since_is_not_counted_twice(played, tmp_path):
    target = tmp_path / "exported"
    readers = stores.read(played.folder)
    list(export.export(readers, target))
    rollup.update(target)
    before = sums(target)
    file = files.chosen(target)[0]
    spare = export._Draft(target, *file.log, file.lo, file.day)  # another file of the same records, whole
    with files.reading(file) as part:
        for batch in part.iter_batches():
            spare.put(batch)
    file.path.unlink()
    spare.close(file.hi)
    assert rollup.update(target) == 0 and sums(target) == before


def test_a_damaged_roll_up_is_made_anew(copied):
    rollup.update(copied)
    there = sums(copied)
    path = next((copied / rollup.FOLDER).rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(MomError, match="delete it, and it is made anew"):
        rollup.read(copied)
    assert rollup.update(copied) == 1 and sums(copied) == there


def test_roll_ups_that_cannot_be_written_are_named(copied, monkeypatch):
    """On a full disk it was said that the output could not be written."""

    def full(_table, place, **_):
        place.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")

    monkeypatch.setattr(rollup.pq, "write_table", full)
    with pytest.raises(MomError, match=r"rollup/day=\S+, where roll-ups are kept: No space left on device$"):
        rollup.update(copied)
    assert not [path for path in (copied / rollup.FOLDER).rglob("*") if path.is_file()]
    (copied / rollup.FOLDER / "day=2023-11-14").rmdir()
    (copied / rollup.FOLDER / "day=2023-11-14").write_text("")
    with pytest.raises(MomError, match="where roll-ups are kept: File exists$"):
        rollup.update(copied)


def test_hours_and_their_bounds(exported):
    rollup.update(exported)
    hours = sorted(set(rollup.read(exported)["hour"].to_pylist()))
    begin = datetime.fromtimestamp(hours[0] * 3600, UTC)
    assert rollup.read(exported, begin).num_rows == rollup.read(exported).num_rows
    with pytest.raises(MomError, match="no records of this time"):
        rollup.read(exported, None, begin)
    with pytest.raises(MomError, match="no full hour"):
        rollup.read(exported, begin.replace(minute=30))
    ages = [datetime(year, 1, 1, tzinfo=UTC) for year in (1, 999, 1969, 9999)]  # before and after all logs
    for early in ages[:3]:
        assert rollup.read(exported, early, ages[3]).num_rows == rollup.read(exported).num_rows
        with pytest.raises(MomError, match="no records of this time"):
            rollup.read(exported, None, early)
    with pytest.raises(MomError, match="no records of this time"):
        rollup.read(exported, ages[3])


def test_quantiles_of_near_times_are_those_that_spark_makes(exported):
    import numpy as np

    times = np.array([0, 1, 255, 256, 257, 1_000_003, 123_456_789_012, 2**62])
    near = np.asarray(rollup.near(times))
    assert near[:3].tolist() == [0, 1, 255] and np.all(abs(near - times) <= times / 256)


def periods():
    """An hour each: domain core between a and b, and edge between b and c, later d."""
    sends = {("", "a", "", "sends"): (100, 1000)}
    a = {**sends, ("core", "a", "b", "packets"): (100, 1000), ("edge", "b", "c", "packets"): (50, 500)}
    b = {**sends, ("core", "a", "b", "packets"): (100, 3000), ("edge", "b", "d", "packets"): (100, 1000)}
    return (pa.Table.from_pylist([
        {**dict(zip(("domain", "server", "peer", "figure"), key, strict=True)), "hour": 1, "ordering": "matrix",
         "about": 0, "count": count, "total": total} for key, (count, total) in rows.items()
    ], schema=rollup.SCHEMA) for rows in (a, b))  # fmt: skip


def test_a_change_is_told_by_the_places_that_it_comes_from():
    found = compare.compare(*periods())
    figures = {row["figure"]: (row["a"], row["b"], row["change_pct"]) for row in found["figures"]}
    assert figures["control_per_message"] == (15, 40, 166.7) and figures["packets_per_message"] == (1.5, 2, 33.3)
    why = [row for row in found["why"] if row["figure"] == "control_per_message"]
    # core: the stamps are three times as large; edge: twice as many packets.
    assert [(row["domain"], row["effect"], row["by_count"], row["by_size"]) for row in why] == [
        ("core", 20, 0, 20), ("edge", 5, 5, 0),
    ]  # fmt: skip
    assert sum(row["effect"] for row in why) == 40 - 15
    assert found["topology"] == [{"domain": "edge", "text": "with d; without c"}]
    assert "30 bytes a packet in place of 10 (+20)" in why[0]["text"]


def test_many_places_that_have_changed_a_little_are_one_row_and_effects_add_up():
    rows = [
        [{"hour": 1, "server": f"s{at}", "domain": f"d{at:02}", "ordering": "", "peer": "", "figure": figure,
          "about": 0, "count": 10, "total": total} for at in range(40) for figure in ("packets", "sends")]
        for total in (100, 130)
    ]  # fmt: skip
    found = compare.compare(*[pa.Table.from_pylist(each, schema=rollup.SCHEMA) for each in rows])
    (why,) = (row for row in found["why"] if row["figure"] == "control_per_message")
    assert (why["domain"], why["effect"], why["text"]) == (None, 3, "40 domains that changed less")
    rows[1][0]["total"] = 1300
    found = compare.compare(*[pa.Table.from_pylist(each, schema=rollup.SCHEMA) for each in rows])
    one, rest = (row for row in found["why"] if row["figure"] == "control_per_message")
    assert one["domain"] == "d00" and rest["text"] == "39 domains that changed less"
    assert one["effect"] + rest["effect"] == pytest.approx((39 * 30 + 1200) / 400)


def test_times_add_up_beyond_64_bits_and_roll_ups_of_before_are_read(tmp_path):
    """400,000 messages to a server that was down for a night."""
    night = 8 * 3600 * 10**9
    row = {"hour": 1, "server": "a", "domain": "", "ordering": "", "peer": "", "figure": "whole", "about": night,
           "count": 100_000, "total": 100_000 * night}  # fmt: skip
    narrow = rollup.SCHEMA.set(rollup.SCHEMA.get_field_index("total"), pa.field("total", pa.int64()))
    old = tmp_path / rollup.FOLDER / "day=1970-01-01" / "server=a.parquet"
    old.parent.mkdir(parents=True)
    table = pa.Table.from_pylist([row] * 4, schema=narrow)
    pq.write_table(table.replace_schema_metadata({rollup.PARTS_KEY: b"{}"}), old)
    whole = rollup._summed(rollup.read(tmp_path))
    assert [int(each) for each in whole["total"].to_pylist()] == [400_000 * night] and 400_000 * night > 1 << 63
    figures = {each["figure"]: each["b"] for each in compare.compare(whole, whole)["figures"]}
    assert figures["delay_ms"] == figures["delay_p50_ms"] == night / 1e6


def test_places_have_their_figures_and_their_price():
    rows = [
        ("core", "a", "b", "packets", 10, 100), ("core", "a", "b", "wire_bytes", 1, 2 * 10**9),
        ("core", "b", "a", "hold", 4, 8_000_000), ("", "a", "", "sends", 5, 50),
    ]  # fmt: skip
    table = pa.Table.from_pylist([
        {"hour": 24, "server": server, "domain": domain, "ordering": "", "peer": peer, "figure": figure, "about": 0,
         "count": count, "total": total} for domain, server, peer, figure, count, total in rows
    ], schema=rollup.SCHEMA)  # fmt: skip
    (link,) = compare.trend(table, 24, "link", 0.05)
    assert (link["start"], link["from"], link["to"]) == ("1970-01-02T00:00Z", "a", "b")
    # What came to b over that link is told by b.
    assert (link["packets"], link["wire_bytes"], link["price"], link["hold_ms"]) == (10, 2 * 10**9, 0.1, 2)
    (domain,) = compare.trend(table, 24, "domain")
    assert domain["price"] is None and compare.trend(table, 24, "domain", 0.0)[0]["price"] == 0
    assert (domain["domain"], domain["control_pct_of_wire"], domain["wire_per_packet"]) == ("core", 0.0, 2e8)
    (whole,) = compare.trend(table, 24)
    assert (whole["messages"], whole["packets_per_message"], whole["disk_bytes"]) == (5, 2, None)


def test_a_period_is_an_export_or_a_time_of_it():
    whole, day, hour, week = (
        compare.Period.of(text) for text in ("x", "x@2026-03-01", "x@2026-03-01T05:00", "x@2026-03-01..2026-03-08")
    )
    assert (whole.since, whole.until) == (None, None)
    assert [(each.until - each.since).total_seconds() / 3600 for each in (day, hour, week)] == [24, 1, 168]
    assert compare.Period.of("x@9999-12-31").until is None
    for wrong in ("x@", "x@noon", "x@2026-03-01..later"):
        with pytest.raises(MomError):
            compare.Period.of(wrong)


def test_alerts():
    rows = compare.compare(*periods())["figures"]
    rules = ["control_per_message+20%", "control_per_message+200%", "control_per_message>39", "messages<100",
             "packets_per_message-10%"]  # fmt: skip
    found = compare.raised([compare.Alert.of(rule) for rule in rules], rows)
    assert [row["alert"] for row in found] == ["control_per_message+20%", "control_per_message>39"]
    for wrong in ("hold", "hold_ms=5", "cost>5"):
        with pytest.raises(MomError):
            compare.Alert.of(wrong)


def test_the_commands(copied):
    run = CliRunner().invoke(cli, ["analyze", "trend", str(copied), "--by", "hour", "-o", "json"])
    assert run.exit_code == 0, run.output
    (row, *_) = json.loads(run.stdout)
    assert row["messages"] > 0 and row["start"].endswith("Z")
    run = CliRunner().invoke(cli, ["analyze", "trend", str(copied), "--of", "link", "--price-per-gb", "2"])
    assert run.exit_code == 0 and run.stdout.split()[:4] == ["start", "domain", "from", "to"], run.output
    assert "s04" in run.stdout
    run = CliRunner().invoke(cli, ["analyze", "compare", str(copied), str(copied), "-o", "json"])
    assert run.exit_code == 0 and {each["change_pct"] for each in json.loads(run.stdout)["figures"]} <= {0, None}
    run = CliRunner().invoke(cli, ["analyze", "compare", str(copied), str(copied), "--alert", "messages>1"])
    assert run.exit_code == 4 and "alert: messages>1" in run.output
    run = CliRunner().invoke(cli, ["analyze", "compare", str(copied), str(copied), "--alert", "price>1"])
    assert run.exit_code == 2 and "an alert on the price needs one: name it by --price-per-gb" in run.output
