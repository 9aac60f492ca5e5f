"""The data source: what Spark reads is what the stores and the export hold, once each."""

import datetime
import shutil

import pytest

from mombroker import store
from mombroker.admin.bench import logs

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


@pytest.mark.long
def test_stores_and_export_give_the_same_rows(spark, played, exported):
    from mombroker.admin.analysis import source

    wanted, found = live(spark, played, partition="700"), source.read(spark, exported)
    assert wanted.schema == found.schema
    assert (wanted.count(), found.count()) == (total(played), total(played))
    assert wanted.rdd.getNumPartitions() > len(played.written)
    assert wanted.exceptAll(found).isEmpty()


def test_filters_leave_whole_stores_commits_and_kinds_unread(spark, played):
    """Each is handed over, and Spark looks again: the answer is that of the records, told by another way."""
    from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThanOrEqual

    from mombroker.admin.analysis.source import Logs

    rows = [(row["server"], row["seq"], row["time"], row["kind"]) for row in live(spark, played).collect()]
    middle = sorted(row[2] for row in rows)[len(rows) // 2]
    frame = live(spark, played, partition="500")
    assert frame.where("server = 's04' and seq > 100 and seq <= 300").count() == 200
    assert frame.where(frame.time >= middle).count() == sum(row[2] >= middle for row in rows)
    assert frame.where("kind in ('send', 'hold')").count() == sum(row[3] in ("send", "hold") for row in rows)

    def plan(*filters):
        reader = Logs({"path": str(played.file), "partition": "500"}).reader(spark.range(0).schema[:0])
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return reader.partitions()

    everything = plan()
    mine = [part for part in everything if part.path.endswith("s04")]
    assert plan(EqualTo(("server",), "s04")) == mine
    assert plan(In(("server",), ("s04", "s05")), EqualTo(("server",), "s05"), EqualTo(("server",), "s04")) == []
    assert [part.kinds for part in plan(EqualTo(("kind",), "send"))] == [("send",)] * len(everything)
    late = plan(GreaterThan(("seq",), 300), EqualTo(("server",), "s04"))
    assert late[0].after <= 300 and late[0].after > 250 and late[-1].upto == mine[-1].upto
    assert plan(EqualTo(("server",), "s04"), LessThanOrEqual(("seq",), 3))[-1].upto < 100
    young = plan(GreaterThanOrEqual(("time",), middle.replace(tzinfo=datetime.UTC)), EqualTo(("server",), "s04"))
    assert young[0].after > 0


def test_only_the_columns_that_are_asked_for_are_read(spark, played):
    frame = spark.read.format("mombroker").schema("payload long, kind string").load(str(played.file))
    assert frame.columns == ["payload", "kind"]
    sends = [record for each in played.written.values() for commit in each for record in commit.records]
    assert frame.where("kind = 'send'").agg({"payload": "sum"}).collect()[0][0] == sum(
        record[5] for record in sends if record[0] == "send"
    )


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({}, "kind int", "the column kind int cannot be read; it is of type string"),
        ({}, "colour string", "the column colour string cannot be read; it is not among server, incarnation"),
        ({"servers": "s00,nobody"}, "kind string", "there is no store of nobody"),
        ({"partition": "few"}, "kind string", "partition = 'few' is no number of records"),
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


def test_a_stream_that_lost_records_says_so(spark, played, tmp_path):
    from mombroker.admin.analysis.source import Logs
    from mombroker.core.errors import MomError

    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    import sqlite3

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
