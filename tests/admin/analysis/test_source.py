"""The data source: what Spark reads is what the stores and the export hold, once each."""

import contextlib
import datetime
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.analysis import schema
from mombroker.admin.bench import logs
from mombroker.admin.cli.main import cli
from mombroker.core.errors import MomError
from mombroker.store import columns
from tests.store import samples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def total(played):
    return sum(len(each.records) for written in played.written.values() for each in written)


@pytest.fixture(scope="module")
def exported(played, tmp_path_factory):
    from mombroker.admin.analysis import export, stores

    target = tmp_path_factory.mktemp("exported")
    list(export.export(stores.read(played.file), target))
    return target


def live(spark, played, **options):
    return spark.read.format("mombroker").options(**options).load(str(played.file))


def middle(played, server):
    """A time that half of this server's log is before."""
    written = played.written[server]
    ms = columns.time(written[len(written) // 2].records[-1]) // 10**6
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


@pytest.mark.long
def test_stores_and_export_give_the_same_rows(spark, played, exported):
    from mombroker.admin.analysis import source

    wanted, found = live(spark, played, partition="700"), source.read(spark, exported)
    assert wanted.schema == found.schema
    assert (wanted.count(), found.count()) == (total(played), total(played))
    assert wanted.rdd.getNumPartitions() > len(played.written)
    assert wanted.exceptAll(found).isEmpty()


SHAPES = (  # of queries that scan one frame more than once, with other filters each time
    "WITH few AS (SELECT * FROM log WHERE kind = 'send') "
    "SELECT b.server, count(*) FROM few a JOIN log b ON a.origin = b.origin AND a.number = b.number "
    "WHERE b.kind = 'react' GROUP BY 1 UNION ALL SELECT kind, count(*) FROM log WHERE kind = 'hold' GROUP BY 1",
    "WITH few AS (SELECT * FROM log WHERE seq < 40) SELECT a.kind, b.kind, count(*) FROM few a JOIN few b "
    "ON a.server = b.server AND a.seq = b.seq + 1 WHERE a.kind <> 'send' GROUP BY 1, 2",
    "SELECT server, count(*) FROM log WHERE kind = 'react' AND number > (SELECT avg(number) FROM log "
    "WHERE kind = 'send') AND origin IN (SELECT origin FROM log WHERE kind = 'hold') GROUP BY 1",
)


@pytest.mark.parametrize("query", [SHAPES[0], *(pytest.param(each, marks=pytest.mark.long) for each in SHAPES[1:])])
def test_scans_of_one_frame_do_not_read_what_another_asks_for(query, spark, played):
    """Also where filters are pushed down to whoever takes them. SQLite answers the same questions of the records."""
    loading = spark.read.format("mombroker").option("servers", "s03,s04")
    frame = loading.schema("server string, seq long, kind string, origin string, number long").load(str(played.file))
    plain = sqlite3.connect(":memory:")
    plain.execute("CREATE TABLE log (server, seq, kind, origin, number)")
    for server in ("s03", "s04"):
        records = [record for each in played.written[server] for record in each.records]
        plain.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", [
            (server, seq, kind, origin, number) for seq, (kind, origin, number, *_) in enumerate(records, 1)
        ])  # fmt: skip
    frame.createOrReplaceTempView("log")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = sorted(tuple(row) for row in spark.sql(query).collect())
        assert found == sorted(plain.execute(query)) and len(found) > 1
        assert frame.count() == plain.execute("SELECT count(*) FROM log").fetchone()[0]  # filters do not stay
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_options_leave_whole_stores_commits_and_kinds_unread(played):
    from mombroker.admin.analysis.source import Logs

    since = middle(played, "s04")

    def read(**options):
        source = Logs({"path": str(played.file), "servers": "s04", **options})
        reader = source.reader(schema.spark())
        parts = reader.partitions()
        batches = [batch for part in parts for batch in reader.read(part)]
        return parts, [row for batch in batches for row in batch.to_pylist()]

    parts, rows = read(partition="500")
    assert len(parts) > 1 and len(rows) == parts[-1].upto == sum(len(each.records) for each in played.written["s04"])
    assert read(kinds="send, hold")[1] == [row for row in rows if row["kind"] in ("send", "hold")]
    late, found = read(since=since.isoformat(), kinds="react")
    assert found == [row for row in rows if row["time"] >= since and row["kind"] == "react"] and late[0].after > 100
    assert len(read(servers="")[0]) == len(played.written)


def test_stores_and_export_take_the_same_options(spark, played, exported):
    from mombroker.admin.analysis import source

    asked = {"servers": ("s04", "s09"), "kinds": ("react", "send"), "since": middle(played, "s04")}
    found, wanted = (source.read(spark, path, **asked) for path in (played.file, exported))
    found, wanted = (sorted((row.server, row.seq) for row in each.collect()) for each in (found, wanted))
    assert found == wanted and 100 < len(found) < 500


def test_to_be_told_of_the_source_again_does_no_harm(spark, played):
    from mombroker.admin.analysis import source

    wanted = sum(len(each.records) for each in played.written["s03"])
    other = spark.newSession()
    assert source.read(other, played.file, servers=["s03"]).count() == wanted  # it tells by itself
    for session in (spark, other, spark):
        source.register(session)
        assert live(session, played, servers="s03").count() == wanted


def test_an_export_of_an_earlier_version_is_read_with_nulls(spark, played, tmp_path):
    from mombroker.admin.analysis import export, files, source
    from tests.admin.analysis.exports import Upto, older

    reader = store.read(played.topology.servers["s03"].data)
    old = Upto(reader, 0.5)
    list(export.export({"s03": old}, tmp_path))
    older(*files.every(tmp_path))
    list(export.export({"s03": reader}, tmp_path))
    rows = source.read(spark, tmp_path).select("seq", "kind", "commit_bytes").collect()
    assert sorted((row.seq, row.kind) for row in rows) == [(seq, record.kind) for seq, record in reader.log(0, 1 << 30)]
    assert {(row.seq > old.end, row.commit_bytes is None) for row in rows} == {(False, True), (True, False)}


def test_only_the_columns_that_are_asked_for_are_read(spark, played):
    frame = spark.read.format("mombroker").schema("payload long, kind string").load(str(played.file))
    assert frame.columns == ["payload", "kind"]
    sends = [record for each in played.written.values() for commit in each for record in commit.records]
    assert frame.where("kind = 'send'").agg({"payload": "sum"}).collect()[0][0] == sum(
        record.payload for record in sends if record.kind == "send"
    )


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({}, "kind int", "the column kind int cannot be read; it is of type string"),
        ({}, "colour string", "the column colour string cannot be read; it is not among server, incarnation"),
        ({"servers": "s00,nobody"}, "kind string", "there is no store of nobody"),
        ({"partition": "few"}, "kind string", "partition = 'few' is no number of records"),
        ({"since": "noon"}, "kind string", "since = 'noon' is no time like 2026-03-01T12:00:00"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(spark, played, options, schema, sentence):
    with pytest.raises(Exception, match=sentence):
        spark.read.format("mombroker").schema(schema).options(**options).load(str(played.file)).count()


@pytest.mark.long
def test_a_stream_goes_on_where_it_stopped_and_reads_each_record_once(spark, tmp_path):
    """Its sink is Parquet; the servers write between its runs, and one gets a new store."""
    topology, written = logs.play(tmp_path / "bus", 300)
    half = {server: commits[: len(commits) // 2] for server, commits in written.items()}
    logs.write(topology, half)

    def run():
        query = (
            spark.readStream.format("mombroker").schema("server string, incarnation string, seq long")
            .option("maxRecords", "60").load(str(tmp_path / "bus"))
            .writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        return len(rows), len(set(rows))

    first = sum(len(each.records) for commits in half.values() for each in commits)
    assert run() == (first, first)
    shutil.rmtree(tmp_path / "bus" / "s03")
    logs.write(topology, {"s03": half["s03"]})
    more = store.read(tmp_path / "bus" / "s03").log_end()
    assert run() == (first + more, first + more)
    assert run() == (first + more, first + more)


STREAM = """
import json, sys
from pathlib import Path
from mombroker.admin.analysis.session import session
bus, folder = sys.argv[1], Path(sys.argv[2])
spark = session("local[2]")
source = spark.readStream.format("mombroker").options(servers="s03,s04,s09,s12", maxRecords=40)
stream = source.schema("server string, seq long, kind string, number long, dests array<string>").load(bus)
sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
sink.option("path", f"{folder}/out").trigger(availableNow=True).start().awaitTermination()
rows = [[row.server, row.seq, row.kind, row.number, row.dests] for row in spark.read.parquet(f"{folder}/out").collect()]
(folder / "rows.json").write_text(json.dumps(rows))
"""


@pytest.mark.long
@pytest.mark.parametrize("piece", range(4))
def test_a_stream_is_killed_at_five_random_points(piece, played, tmp_path):
    """With its JVM. It is started again until it ends, and the sink then has each record of the stores, once."""
    chance = random.Random(piece)
    command = [sys.executable, "-c", STREAM, str(played.file), str(tmp_path)]
    offsets, kills = tmp_path / "checkpoint" / "offsets", 0

    def planned():
        return sum(file.name.isdigit() for file in offsets.iterdir()) if offsets.exists() else 0

    for _ in range(12):
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            due = planned() + chance.randrange(1, 3)  # micro-batches planned, before it dies
            deadline = time.monotonic() + 120
            while process.poll() is None and planned() < due and time.monotonic() < deadline:
                time.sleep(0.01)
            if kills < 5:
                time.sleep(chance.random())
                kills += process.poll() is None
            elif process.wait(180) == 0:
                break
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = sorted(json.loads((tmp_path / "rows.json").read_text()))
    assert kills == 5 and found == [
        [server, seq, kind, number, list(dests)]
        for server in ("s03", "s04", "s09", "s12")
        for seq, (kind, _, number, _, dests, *_) in store.read(played.topology.servers[server].data).log(0, 1 << 30)
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kinds": "send,sends"}, "there are no records of kind sends; there are send, react"),
        ({"partition": "²"}, "partition = '²' is no number of records"),
        ({"maxRecords": "9" * 5000}, "9' is no number of records"),
        ({"failOnDataLoss": "maybe"}, "failondataloss = 'maybe' is neither true nor false"),
        ({"server": "s00"}, "there is no option server; there are servers, kinds"),
    ],
)
def test_an_option_that_is_misspelled_is_refused(played, options, sentence):
    from pyspark.sql.datasource import CaseInsensitiveDict

    from mombroker.admin.analysis.source import Logs
    from mombroker.core.errors import MomError

    Logs(CaseInsensitiveDict({"path": str(played.file), "failOnDataLoss": "False"}))
    with pytest.raises(MomError, match=sentence):
        Logs(CaseInsensitiveDict({"path": str(played.file), **options}))


def test_a_view_is_made_by_sql_and_a_list_of_folders_loaded(spark, played):
    from mombroker.admin.analysis import source

    source.register(spark)
    options = f"USING mombroker OPTIONS (path '{played.file}')"
    spark.sql(f"CREATE TABLE table_of_a_bus USING mombroker OPTIONS (path '{played.file}', servers 's03, s09')")
    try:
        table = spark.table("table_of_a_bus")
        kept = {row.server: row["count"] for row in table.groupBy("server").count().collect()}
        described = {row.col_name: row.comment for row in spark.sql("DESCRIBE table_of_a_bus").collect()}
    finally:
        spark.sql("DROP TABLE table_of_a_bus")
    assert described["kind"].startswith("send, react") and all(described[name] for name in schema.NAMES)
    spark.sql(f"CREATE TEMPORARY VIEW logs_of_a_bus {options}")
    counts = {row.server: row["count"] for row in spark.table("logs_of_a_bus").groupBy("server").count().collect()}
    spark.catalog.dropTempView("logs_of_a_bus")
    assert len(counts) == logs.SERVERS
    two = spark.read.format("mombroker").load([str(played.folder / name) for name in ("s03", "s09")])
    assert (
        {row.server: row["count"] for row in two.groupBy("server").count().collect()}
        == {name: counts[name] for name in ("s03", "s09")}
        == kept
    )


def test_columns_and_several_exports_can_be_asked_for(spark, played, exported, tmp_path):
    from mombroker.admin.analysis import source

    whole = source.read(spark, exported, columns=("kind", "number"))
    assert whole.columns == ["kind", "number"] == source.read(spark, played.file, columns=("kind", "number")).columns
    parts = [shutil.copytree(exported, tmp_path / name) for name in ("one", "two")]
    for part, kept in zip(parts, ("s0[0-7]", "s0[89]|s1"), strict=True):
        for folder in part.glob("day=*/server=*"):
            if not re.match(kept, folder.name.removeprefix("server=")):
                shutil.rmtree(folder)
    assert source.read(spark, parts, columns=["seq"]).count() == whole.count() > 0
    with pytest.raises(MomError, match="both have records of the same store of s"):
        source.read(spark, [exported, parts[0]])
    with pytest.raises(MomError, match="there is no column colour; there are"):
        source.read(spark, exported, columns=["colour"])


def test_what_is_told_has_times_nulls_and_names(spark, played, exported):
    from mombroker.admin.analysis import source

    told = source.told(source.read(spark, exported), played.topology)
    send = told.where("kind = 'send'").first()
    assert send.received is None is send.received_at and send.sent_at.timestamp() * 10**6 == send.sent // 1000
    held = told.where("kind = 'hold'").first()
    members = played.topology.domains[held.domain].members
    assert held.waits_for == [f"{members[member]}#{sequence}" for member, sequence in held.missing]


def test_an_export_refuses_what_stores_refuse(spark, exported):
    from mombroker.admin.analysis import source
    from mombroker.core.errors import MomError

    with pytest.raises(MomError, match="there are no records of server zz; there are s00, s01"):
        source.read(spark, exported, servers=["s00", "zz"])
    with pytest.raises(MomError, match="there are no records of kind foo; there are send, react"):
        source.read(spark, exported, kinds=["foo"])


def test_a_log_row_without_its_time_is_named(played, tmp_path):
    from mombroker.admin.analysis.source import Logs
    from mombroker.core.errors import MomError

    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    with contextlib.closing(sqlite3.connect(tmp_path / "s03" / "store.sqlite")) as conn:
        conn.execute("UPDATE log SET last = NULL")
        conn.commit()
    with pytest.raises(MomError, match="of the store of s03 is damaged"):
        Logs({"path": str(tmp_path), "since": "2026-01-01"}).reader(schema.spark()).partitions()
    with pytest.raises(MomError, match="of the store of s03 is damaged .*: last is NULL"):
        Logs({"path": str(tmp_path)}).streamReader(schema.spark()).reportLatestOffset()


def test_a_stream_does_not_go_on_with_a_store_that_was_restored(played, tmp_path):
    """Neither with one that ends before what it has read, nor with one that has written other records since."""
    from mombroker.admin.analysis.source import Logs
    from mombroker.core.errors import MomError

    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    stream = Logs({"path": str(tmp_path), "maxrecords": "200"}).streamReader(schema.spark())
    first = stream.latestOffset({}, stream.getDefaultReadLimit())
    second = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert 0 < first["s03"]["seq"] < second["s03"]["seq"] and stream.partitions(first, second)
    with sqlite3.connect(tmp_path / "s03" / "store.sqlite") as conn:
        conn.execute("DELETE FROM log WHERE id > ?", [second["s03"]["seq"]])
        samples.written_anew(conn, first["s03"]["seq"])
    stream.latestOffset(first, stream.getDefaultReadLimit())
    for _ in range(2):
        for go_on in (
            lambda: stream.latestOffset(second, stream.getDefaultReadLimit()),
            lambda: stream.partitions(first, second),
        ):
            with pytest.raises(MomError, match="which was read, is not in its store: it was restored from a backup"):
                go_on()
        with sqlite3.connect(tmp_path / "s03" / "store.sqlite") as conn:
            conn.execute("DELETE FROM log WHERE id > ?", [first["s03"]["seq"]])


def test_a_stream_that_lost_records_says_so(spark, played, tmp_path):
    from mombroker.admin.analysis.source import Logs
    from mombroker.core.errors import MomError

    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    conn = sqlite3.connect(tmp_path / "s03" / "store.sqlite")
    conn.execute("DELETE FROM log WHERE id < 100")
    conn.commit()
    conn.close()
    end = store.read(tmp_path / "s03").log_end()
    incarnation = store.read(tmp_path / "s03").meta()["incarnation"]

    def plan(seq, **options):
        stream = Logs({"path": str(tmp_path), **options}).streamReader(spark.range(0).schema[:0])
        start = {"s03": {"incarnation": incarnation, "seq": seq}} if seq else {}
        return stream.partitions(start, {"s03": {"incarnation": incarnation, "seq": end}})

    with pytest.raises(MomError, match="records of s03 went by the rules of .log. before this query read them"):
        plan(7)
    (part,) = plan(7, failondataloss="false")
    assert part.after >= 99 and plan(0) == [part]


ODD = "it's {a,b} [x] *? #%41 ö"  # letters that Spark takes for patterns, and addresses for something else


def test_a_folder_may_have_any_letter_in_its_name(spark, exported, tmp_path):
    from mombroker.admin.analysis import source

    (tmp_path / ODD).symlink_to(exported)
    count = source.read(spark, exported, servers=["s03"]).count()
    assert count and source.read(spark, tmp_path / ODD, servers=["s03"]).count() == count
    assert source.read(spark, f"file://{tmp_path}/{ODD}", servers=["s03"]).count() == count
    for begin in ("", "file:", "file://"):  # of a table Spark makes an address
        assert source.Logs({"path": f"{begin}/var/{ODD}"}).request.paths == (f"/var/{ODD}",)


def test_an_export_on_a_file_system_of_sparks_is_read_by_its_address(spark, played, exported):
    from mombroker.admin.analysis import source, windows

    address, since = f"file://{exported}/", middle(played, "s09")
    here, there = source.read(spark, exported), source.read(spark, address)
    assert there.schema == here.schema and there.count() == here.count() and there.exceptAll(here).isEmpty()
    for times in ((since, None), (None, since)):
        a, b = (windows.read(spark, each, *times).select("server", "seq") for each in (exported, address))
        assert 0 < a.count() == b.count() and a.exceptAll(b).isEmpty()
    with pytest.raises(MomError, match="both have records of the same store"):
        source.read(spark, [exported, address])
    with pytest.raises(MomError, match="there are no exported records in file:///nowhere"):
        source.read(spark, "file:///nowhere")
    for words in (
        ["analyze", "nobody://bucket/exported"],
        ["topology", "advise", str(played.file), "--log", "nobody://x"],
    ):
        run = CliRunner().invoke(cli, words)
        assert run.exit_code == 1 and "cannot be listed: No FileSystem for scheme" in run.output
    run = CliRunner().invoke(cli, ["analyze", address, "--file", str(played.file), "--check"])
    assert run.exit_code == 2 and "a check needs an export on this machine" in run.output


def test_a_time_before_or_after_all_logs_is_the_first_or_the_last_that_a_log_can_have():
    """Their nanoseconds are numbers of 64 bits, also a day before and after."""
    pytest.importorskip("pyspark")
    from mombroker.admin.analysis import source

    times = [source.utc(datetime.datetime(year, 1, 1)) for year in (1, 1969, 2026, 9999)]
    assert times == [source.EPOCH, source.EPOCH, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), source.LAST]
    assert source.nanoseconds(source.LAST + datetime.timedelta(days=1)) < 1 << 63
