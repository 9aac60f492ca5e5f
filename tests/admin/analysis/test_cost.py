"""What Spark makes of a log is what an outsider has counted at the wire, at the disk, and in the agents."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from mombroker.admin.cli.main import cli
from mombroker.core import layouts
from mombroker.core.errors import MomError
from mombroker.lab.bus_workloads import Send
from mombroker.lab.communities import communities
from mombroker.lab.recording import Truth, mixed, paced, record
from mombroker.net import config
from mombroker.sim.world import EPOCH, MS

pytestmark = pytest.mark.spark


class Recorded(NamedTuple):
    truth: Truth
    topology: Any
    folder: Any
    log: Any


SIZES = (  # servers, messages, messages a second
    pytest.param((12, 400, 4000), id="small"),
    pytest.param((16, 202_000, 20_000), id="large", marks=pytest.mark.long),
)


@pytest.fixture(scope="module", params=SIZES)
def recorded(spark, arrow, tmp_path_factory, request) -> Recorded:
    from mombroker.admin.analysis import export, source, stores

    folder = tmp_path_factory.mktemp("recorded")
    servers, messages, rate = request.param
    traffic = communities(1, servers)
    topology = mixed(traffic, ("matrix", "ks", "daisy", "vector"))
    truth = record(topology, paced(traffic.sends(messages), rate), folder / "bus")
    (folder / "bus.toml").write_text(config.dumps(topology))
    list(export.export(stores.read(folder / "bus"), folder / "exported"))
    return Recorded(truth, topology, folder, source.read(spark, folder / "exported"))


def analyze(recorded, *more):
    file, exported = (str(recorded.folder / name) for name in ("bus.toml", "exported"))
    run = CliRunner().invoke(cli, ["analyze", exported, "--file", file, "-o", "json", *more])
    assert run.exit_code == 0, run.output
    return run.stdout if "table" in more else json.loads(run.stdout)


@pytest.fixture(scope="module")
def figures(recorded):
    """What `mom analyze -o json` says; the page is there, too."""
    return analyze(recorded, "--html", str(recorded.folder / "report.html"), "--advise")


def test_links_carry_what_was_on_the_wire(recorded, figures):
    found = {
        (row["domain"], row["from"], row["to"]): (row["packets"], row["control_bytes"]) for row in figures["links"]
    }
    passages = recorded.truth.passages
    assert found == {hop: (len(each), sum(one.control for one in each)) for hop, each in passages.items() if each}


def test_each_part_of_each_hop_is_the_true_one(recorded):
    from pyspark.sql import functions as F

    from mombroker.admin.analysis import cost, times

    true = {
        (*one.id, domain, to, frm): (one.durable - one.stamped, one.arrived - one.durable, one.ordered - one.arrived)
        for (domain, frm, to), each in recorded.truth.passages.items()
        for one in each
        if one.ordered
    }
    links = times.links(cost.taken(recorded.log))
    names = recorded.log.select(F.xxhash64("origin").alias("origin"), F.col("origin").alias("name")).distinct()
    rows = times.hops(recorded.log).join(links, "hop").join(names, "origin")
    found = {
        (row["name"], row.number, row.domain, row.server, row.peer): (row.store, row.link, row.hold)
        for row in rows.collect()
    }
    assert found == true
    assert min(min(parts) for parts in found.values()) >= 0 and max(parts[2] for parts in found.values()) > 0


def test_the_whole_report_adds_up(recorded, figures):
    truth = recorded.truth
    totals = figures["totals"]
    wire = truth.domains().values()
    assert (totals["messages"], totals["payload_bytes"]) == (truth.messages, truth.payload)
    assert (totals["packets"], totals["control_bytes"]) == tuple(
        sum(row[name] for row in wire) for name in ("packets", "control_bytes")
    )
    assert totals["packets"] == sum(link["packets"] for link in figures["links"])
    assert sum(row["control_bytes"] for row in figures["orderings"]) == totals["control_bytes"]
    queued = sum(heard - handed for handed, heard in truth.heard.values())
    passages = [one for each in truth.passages.values() for one in each if one.ordered]
    parts = {row["part"]: row["seconds"] for row in figures["latency"]["parts"]}
    assert parts == {
        "store": round(sum(one.durable - one.stamped for one in passages) / 1e9, 3),
        "link": round(sum(one.arrived - one.durable for one in passages) / 1e9, 3),
        "hold": round(sum(one.ordered - one.arrived for one in passages) / 1e9, 3),
        "queue": round(queued / 1e9, 3),
    }
    assert not [
        row for row in figures["anomalies"] if row["kind"] in ("undelivered", "duplicates", "clocks", "short log")
    ]


@pytest.mark.parametrize(
    "backend", ["daisy", *(pytest.param(each, marks=pytest.mark.long) for each in ("overlay", "rst"))]
)
def test_the_parts_and_the_rest_are_the_whole_and_the_rest_is_the_time_before_the_last_relay(
    spark, arrow, tmp_path, backend
):
    from mombroker.admin.analysis import cost, export, figures, report, source, stores, times

    names = [f"s{at}" for at in range(1, 8)]
    topology = layouts.build({"d1": names}, ordering=backend)
    sends = [Send(EPOCH + at * 3 * MS, names[at % 7], (names[(at * 5 + 2) % 7],), 10) for at in range(70)]
    truth = record(topology, [send for send in sends if send.origin not in send.dests], tmp_path / "bus")
    list(export.export(stores.read(tmp_path / "bus"), tmp_path / "exported"))
    log = source.read(spark, tmp_path / "exported")
    delays = times.delays(times.spread(times.hops(log), times.links(cost.taken(log))))
    latency = figures.latency({"arrivals": report._collected(times.arrivals(log)), "delays": report._collected(delays)})

    passages = [one for each in truth.passages.values() for one in each]
    firsts = {}
    for one in passages:
        firsts[one.id] = min(one.stamped, firsts.get(one.id, one.stamped))
    before = sum(one.stamped - firsts[one.id] for one in passages if one.ordered)
    assert (before == 0) == (backend == "rst")
    rest, whole = latency["whole"]
    assert (rest["part"], rest["seconds"], rest["p50_ms"]) == ("rest", round(before / 1e9, 3), None)
    every = sum(row["mean_ms"] * row["copies"] for row in latency["by_hops"]) / 1e3
    assert whole["part"] == "all" and whole["p50_ms"] <= whole["p95_ms"] <= whole["p99_ms"]
    assert whole["seconds"] == pytest.approx(every, abs=0.002)
    assert sum(row["seconds"] for row in latency["parts"]) + rest["seconds"] == pytest.approx(every, abs=0.005)


def test_percentiles_are_within_half_a_percent(recorded, figures):
    """Of the times themselves, which the outsider has seen; the rank of each is exact."""
    import numpy as np

    for link in figures["links"]:
        passages = [one for one in recorded.truth.passages[link["domain"], link["from"], link["to"]] if one.ordered]
        if not passages:
            continue
        for part, times in (
            ("store", [one.durable - one.stamped for one in passages]),
            ("link", [one.arrived - one.durable for one in passages]),
            ("hold", [one.ordered - one.arrived for one in passages]),
        ):
            for name, true in zip(("p50", "p95", "p99"), np.percentile(times, (50, 95, 99)), strict=True):
                # JSON has whole us.
                assert link[f"{part}_{name}_ms"] == pytest.approx(true / 1e6, rel=0.005, abs=0.001), (link, part)


def test_percentiles_of_the_queue_and_of_all_parts_are_within_half_a_percent(recorded, figures):
    import numpy as np

    passages = [one for each in recorded.truth.passages.values() for one in each if one.ordered]
    times = {
        "queue": [heard - handed for handed, heard in recorded.truth.heard.values()],
        "hold": [one.ordered - one.arrived for one in passages],
    }
    parts = {row["part"]: row for row in figures["latency"]["parts"]}
    for part, each in times.items():
        for name, true in zip(("p50", "p95", "p99"), np.percentile(each, (50, 95, 99)), strict=True):
            assert parts[part][f"{name}_ms"] == pytest.approx(true / 1e6, rel=0.005, abs=0.001), (part, name)
    hops = figures["latency"]["by_hops"]
    assert sum(row["copies"] for row in hops) == figures["totals"]["copies"]
    assert all(row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] for row in hops)
    assert all(row["p50_ms"] > 0 for row in hops if row["hops"])


def test_the_model_says_what_the_log_says(recorded, figures):
    """And of the way exactly."""
    rows = {row["figure"]: row for row in figures["advice"]["model"]}
    assert rows.keys() == {"control_bytes", "packets", "hops", "delay_ms"}
    passages = [one for each in recorded.truth.passages.values() for one in each]
    left = {one.id for one in passages if one.id[0]}  # others stay on their server, or are no messages
    assert rows["packets"]["log"] == round(len(passages) / len(left), 2)
    assert rows["control_bytes"]["log"] == round(sum(one.control for one in passages) / len(left), 2)
    assert rows["hops"]["error_pct"] == 0 and abs(rows["control_bytes"]["error_pct"]) <= 15


def test_delays_are_the_true_ones_though_clocks_are_off(recorded, figures):
    """Two servers, one 120 ms behind and one 40 ahead: both are named, and what they spoil is put right."""
    from pyspark.sql import functions as F

    from mombroker.admin.analysis import report

    names = sorted(recorded.topology.servers)
    off = {names[2]: -120 * MS, names[7]: 40 * MS}

    def shift(server):
        found = F.lit(0)
        for name, ns in off.items():
            found = F.when(F.col(server) == name, F.lit(ns)).otherwise(found)
        return found

    log = recorded.log
    for station in ("received", "delivered", "done"):
        log = log.withColumn(station, F.when(F.col(station) > 0, F.col(station) + shift("server")).otherwise(0))
    by = F.when(F.col("origin") == "", shift("server")).otherwise(shift("origin"))
    log = log.withColumn("sent", F.when(F.col("sent") > 0, F.col("sent") + by).otherwise(0))
    found, _ = report.analyse(log, recorded.topology, messages=0)
    many = recorded.truth.messages > 100_000  # else the quickest packets of a link are not that quick
    assert {row["server"] for row in found["clocks"]} == off.keys()
    for row in found["clocks"]:
        assert abs(row["ahead_ms"] - off[row["server"]] / MS) <= row["within_ms"] < (5 if many else 16)
    assert {row["kind"] for row in found["anomalies"]} >= {"clocks"} and not figures["clocks"]
    exact = 0.05 if many else 0.15
    for part in ("parts", "whole"):
        for row, true in zip(found["latency"][part], figures["latency"][part], strict=True):
            if row["part"] != "rest":
                assert row["seconds"] == pytest.approx(true["seconds"], rel=exact), row["part"]
                assert row["p95_ms"] == pytest.approx(true["p95_ms"], rel=exact, abs=1), row["part"]
    for row, true in zip(found["links"], figures["links"], strict=True):
        assert (row["link_within_ms"] is None) == off.keys().isdisjoint((row["from"], row["to"]))
        assert true["link_within_ms"] is None
        if true["messages"]:
            assert row["link_ms"] == pytest.approx(true["link_ms"], abs=(row["link_within_ms"] or 0) + 0.002), row


def test_the_page_needs_nothing_beside_it(recorded, figures):
    text = (recorded.folder / "report.html").read_text()
    assert (
        text.count("<svg") in (11, 12)
        and "<h2>Over time</h2>" in text
        and "<h2>Advice</h2>" in text
        and "http" not in text
        and "<script" not in text
    )
    assert "<h2>Time of a copy</h2>" in text and "before the last relay" in text
    assert all(f">{name}<" in text for name in recorded.topology.servers)


def test_a_report_stands_where_no_advice_can_be_had(recorded, figures, monkeypatch):
    """Of a log in which each message stays on its server, say."""
    from mombroker.admin.analysis import report
    from mombroker.admin.analysis.figures import TIMES
    from mombroker.admin.topology.costs import Load

    sentence = "no message in this log has left its server: there is nothing to go by"
    rest = {name: value for name, value in figures.items() if name != "advice"}
    monkeypatch.setattr(report, "analyse", lambda *_, **__: (dict(rest), Load({}, [])))
    page = recorded.folder / "unadvised.html"
    found = analyze(recorded, "--advise", "--html", str(page))
    assert found["advice"]["verdict"] == sentence and {**found, "advice": None} == {**rest, "advice": None}
    assert f'<p class="note">{sentence}</p>' in page.read_text()
    shown = analyze(recorded, "--advise", "-o", "table")
    tables = {name: [line.split() for line in rest] for name, *rest in map(str.splitlines, shown.split("\n\n"))}
    assert tables["time of a copy"][0] == ["part", "seconds", "pct", "p50_ms", "p95_ms", "p99_ms"]
    assert [line[0] for line in tables["time of a copy"][1:7]] == ["store", "link", "hold", "queue", "rest", "all"]
    assert tables["time of a copy"][7] == TIMES.split()
    assert [float(line[3]) for line in tables["time of a copy"][1:5]] == [
        part["p50_ms"] for part in rest["latency"]["parts"]
    ]
    assert tables["time by domain"][0] == ["domain", "part", "mean_ms", "p50_ms", "p95_ms", "p99_ms"]
    first = rest["domains"][0]
    assert tables["time by domain"][1][:2] == [first["domain"], "store"]
    assert [float(each) for each in tables["time by domain"][1][2:]] == [
        first[f"store_{each}"] for each in ("ms", "p50_ms", "p95_ms", "p99_ms")
    ]
    assert len(tables["time by domain"]) == 1 + 3 * len(rest["domains"]) + 1
    assert "p95_ms" in tables["time by hops"][0]
    assert shown.endswith(f"\nadvice\n{sentence}\n") and "\ndomains\n" in shown


@pytest.fixture(scope="module")
def halves(recorded):
    """The log of what was sent before a time, and of what was sent from then on."""
    from mombroker.admin.analysis import windows

    sent = sorted(row.sent for row in recorded.log.where("kind = 'send'").select("sent").collect())
    cut = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=sent[len(sent) // 2] // 1000)
    assert windows.within(recorded.log, cut, cut).isEmpty()
    return windows.within(recorded.log, None, cut), windows.within(recorded.log, cut, None)


def test_several_exports_are_read_as_one_log(recorded, halves, tmp_path):
    from mombroker.admin.analysis import export, stores
    from mombroker.admin.cli.analyze import records

    for folder in ("some", "rest"):
        readers = sorted(stores.read(recorded.folder / "bus").items())
        list(export.export(dict(readers[:3] if folder == "some" else readers[3:]), tmp_path / folder))
    both = [tmp_path / "some", tmp_path / "rest"]
    begun = halves[1].where("kind = 'send'").agg({"sent": "min"}).first()[0] // 1000
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=begun)
    for time, expected in ((None, recorded.log), (since, halves[1])):
        with records(both, "", "1g", time, None) as log:
            assert log.count() == expected.count()
            assert log.where("kind = 'send'").count() == expected.where("kind = 'send'").count()
    with pytest.raises(MomError, match="both have records of the same store of"):
        with records([both[0], recorded.folder / "exported"], "", "1g", None, None):
            pass


def test_a_report_stands_where_a_bus_of_one_server_is_advised(recorded, figures, monkeypatch):
    from mombroker.admin.analysis import report
    from mombroker.admin.topology.costs import Load

    rest = {name: value for name, value in figures.items() if name != "advice"}
    monkeypatch.setattr(report, "analyse", lambda *_, **__: (dict(rest), Load({}, [])))
    file = recorded.folder / "one.toml"
    file.write_text(config.dumps(layouts.build(layouts.flat(["s1"]), servers=["s1"])))
    found = analyze(recorded, "--advise", "--file", str(file))
    assert found["advice"]["verdict"].startswith("nothing is to be gained: a bus of one server")
    assert not found["advice"]["options"] and {**found, "advice": None} == {**rest, "advice": None}


def test_a_message_is_in_one_part_of_the_time_with_all_of_its_records(recorded, halves):
    """Wherever its records were written, and those who relay it with it: what two parts add up to is the whole."""

    def messages(log):
        rows = log.where("origin != ''").groupBy("origin", "number", "kind").count().collect()
        return {(row.origin, row.number, row.kind): row["count"] for row in rows}

    first, second = map(messages, halves)
    assert any(kind == "relay" for _, _, kind in first) and any(kind == "relay" for _, _, kind in second)
    assert not {key[:2] for key in first} & {key[:2] for key in second}
    assert first | second == messages(recorded.log)
    others = [log.where("origin = '' and kind != 'commit'").count() for log in (*halves, recorded.log)]
    assert others[0] + others[1] == others[2]


@pytest.mark.parametrize("relays", [True, False])
def test_what_is_read_of_a_time_has_all_that_is_of_its_messages(relays, recorded, played, tmp_path, monkeypatch):
    """Even if what is read besides is but a second; where no file has a relay, nothing is."""
    from mombroker.admin.analysis import export, files, source, stores, windows

    monkeypatch.setattr(files, "LATE_SECONDS", 1.0)
    spark, exported = recorded.log.sparkSession, recorded.folder / "exported" if relays else tmp_path
    if not relays:
        list(export.export(stores.read(played.folder), exported))
    log = source.read(spark, exported)
    assert any(files.times(file).relays for file in files.chosen(exported)) is relays
    sent = sorted(row.sent for row in log.where("kind = 'send'").select("sent").collect())
    late, early = (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=sent[at] // 1000) for at in (len(sent) // 2, 50)
    )
    for times in ((early, late), (late, None), (None, early)):
        found, true = (
            {tuple(row) for row in rows.select("server", "seq").collect()}
            for rows in (windows.read(spark, exported, *times), windows.within(log, *times))
        )
        assert found == true and found


def test_a_part_of_the_time_has_all_times_of_its_messages(recorded, halves):
    """Those of commits after its end, too, and of packets that were relayed: none came that its log has not."""
    from mombroker.admin.analysis import times

    first, second, whole = ({tuple(row) for row in times.hops(log).collect()} for log in (*halves, recorded.log))
    assert first and second and not first & second and first | second == whole
    ended = halves[0].where("kind = 'commit'")
    assert ended.count() == ended.distinct().count() < recorded.log.where("kind = 'commit'").count()


@pytest.mark.parametrize("command", ["analyze {exported}", "topology advise {file} --log {exported}"])
@pytest.mark.parametrize("time", ["--since 2999-01-01T12:00:00", "--until 1999-12-31T23:00:00+01:00"])
def test_a_time_of_which_the_log_has_nothing_is_refused(command, time, recorded):
    file, exported = (str(recorded.folder / name) for name in ("bus.toml", "exported"))
    run = CliRunner().invoke(cli, [*command.format(file=file, exported=exported).split(), *time.split()])
    assert run.exit_code == 1 and "the log has nothing that was sent in this time" in run.output


def test_what_is_no_time_is_refused_and_so_is_a_check_of_a_part(recorded):
    run = CliRunner().invoke(cli, ["analyze", "exported", "--since", "noon"])
    assert run.exit_code == 2 and "'noon' is no time like 2026-03-01T12:00:00" in run.output
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-02:00"):  # no years in UTC
        for command in (["analyze", "exported"], ["topology", "advise", "bus.toml"]):
            run = CliRunner().invoke(cli, [*command, "--since", time])
            assert run.exit_code == 2 and f"'{time}' is no time like 2026-03-01T12:00:00" in run.output
    file = str(recorded.folder / "bus.toml")
    run = CliRunner().invoke(cli, ["analyze", file, "--check", "--since", "2026-03-01"])
    assert run.exit_code == 2 and "a check needs the whole log" in run.output


@pytest.mark.long
def test_the_command_advises(recorded):
    file, exported = (str(recorded.folder / name) for name in ("bus.toml", "exported"))
    out = recorded.folder / "better.toml"
    args = ["topology", "advise", file, "--log", exported, "--replay", "--messages", "300", "--out", str(out)]
    args += ["--html", str(recorded.folder / "advice.html")]
    run = CliRunner().invoke(cli, [*args, "-o", "json"])
    assert run.exit_code == 0, run.output
    advice = json.loads(run.stdout)
    assert [row["topology"] for row in advice["options"]] == ["current", "flat", "bus", "proposed"]
    assert all(row["replayed_bytes"] > 0 for row in advice["options"] + advice["front"])
    assert [row["times"] for row in advice["forecast"]][:2] == [1, 2] and advice["packet_bytes"] > 0
    assert "<h2>Advice</h2>" in (recorded.folder / "advice.html").read_text()
    assert {name: list(domain.members) for name, domain in config.load(out).domains.items()} == {
        name: domain["servers"] for name, domain in advice["proposed"].items()
    }
