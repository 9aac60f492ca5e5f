"""The files of an export: those that are gone, damaged, of another version or of another time."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.analysis import files, schema
from mombroker.admin.bench import logs
from mombroker.admin.cli.main import cli
from mombroker.core.errors import MomError
from mombroker.core.ids import home_of
from mombroker.net import config
from mombroker.store import columns
from tests.admin.analysis.exports import DAY, Upto, expected, keys, older, run

pytestmark = pytest.mark.usefixtures("arrow")


def gone(target, server, *which):
    """Remove some of the files of a server; the records that these had."""
    parts = [file for file in files.every(target) if file.server == server]
    for file in (chosen := [parts[at] for at in which]):
        file.path.unlink()
    return files.ranges([(file.lo, file.hi) for file in chosen])


@pytest.mark.parametrize(
    "which",
    [(0,), (-1,), (1, 2), (0, 1, 2, 3), *(pytest.param(each, marks=pytest.mark.long) for each in ((2,), (0, -1)))],
    ids=str,
)
def test_records_that_were_exported_and_are_gone_are_named_and_the_export_is_not_clean(which, stores, tmp_path, played):
    for share in (0.2, 0.4, 0.7, 1.0):
        run({server: Upto(reader, share) for server, reader in stores.items()}, tmp_path)
    command = ["check", str(played.file), "--log", str(tmp_path), "--at-rest", "-o", "json"]
    assert files.holes(tmp_path) == [] and json.loads(CliRunner().invoke(cli, command).stdout)["holes"] == []
    lost = gone(tmp_path, "s03", *which)
    told = [f"the records {lo} to {hi} of s03 are in no file of {tmp_path}" for lo, hi in lost]
    assert [each.partition(": ")[0] for each in files.holes(tmp_path)] == told
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 4 and all(f"mom: {each}" in done.stderr for each in told)
    assert len(json.loads(done.stdout)["holes"]) == len(told)
    run(stores, tmp_path)  # what is gone at the end is exported again, and what is gone within is not forgotten
    assert len(files.holes(tmp_path)) == len(lost) - (-1 in which or len(which) == 4)


def test_a_hole_between_files_is_named_where_nothing_tells_what_was_exported(stores, tmp_path):
    for share in (0.3, 0.6, 1.0):
        run({"s03": Upto(stores["s03"], share)}, tmp_path)
    shutil.rmtree(tmp_path / files.KNOWN)
    assert files.holes(tmp_path) == []
    ((lo, hi),) = gone(tmp_path, "s03", 1)
    (said,) = files.holes(tmp_path)
    assert f"the records {lo} to {hi} of s03 are in no file" in said


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[:-1]])
def test_a_file_that_was_emptied_or_cut_off_is_named_before_anything_is_told(damage, stores, tmp_path):
    for share in (0.5, 1.0):
        run({"s03": Upto(stores["s03"], share)}, tmp_path)
    file = files.every(tmp_path)[0]
    file.path.write_bytes(damage(file.path.read_bytes()))
    with pytest.raises(MomError, match=f"{file.path} is damaged"):
        files.holes(tmp_path)


def flipped(file, at):
    """One bit of a file is another one."""
    data = bytearray(file.path.read_bytes())
    data[at] ^= 1
    file.path.write_bytes(data)


def test_a_bit_that_has_changed_is_named_and_nothing_told_of_what_it_makes(stores, tmp_path):
    """Pages have sums; without them about half of all such bits would be read as other records."""
    run({"s03": stores["s03"]}, tmp_path)
    file = files.every(tmp_path)[0]
    whole = file.path.read_bytes()
    with files.reading(file) as part:
        group = part.metadata.row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
    for column in columns:  # in the last bytes of its last page
        end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
        flipped(file, end - 6)
        with pytest.raises(MomError, match=f"{file.path} is damaged"):
            files.verify(file)
        file.path.write_bytes(whole)
    files.verify(file)


@pytest.mark.spark
def test_an_analysis_of_an_export_with_a_hole_tells_it_and_fails(spark, stores, tmp_path):
    for share in (0.3, 0.6, 1.0):
        run({"s03": Upto(stores["s03"], share)}, tmp_path / "out")
    page = tmp_path / "report.html"
    command = ["analyze", str(tmp_path / "out"), "-o", "json", "--html", str(page)]
    assert CliRunner().invoke(cli, command).exit_code == 0
    ((lo, hi),) = gone(tmp_path / "out", "s03", 1)
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 5 and done.stderr.endswith("Error: the export lacks records: this is not all\n")
    for told in (done.stderr, *json.loads(done.stdout)["holes"], page.read_text()):
        assert f"the records {lo} to {hi} of s03 are in no file" in told
    file = files.every(tmp_path / "out")[0]
    file.path.write_bytes(b"")
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1 and f"{file.path} is damaged" in done.stderr


def test_a_column_that_a_file_is_too_old_to_have_is_null(stores, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    from mombroker.admin.analysis.export import _widened

    run(stores, tmp_path)
    old = pq.ParquetFile(files.every(tmp_path)[0].path).read().drop_columns(["commit_bytes", "detail"])
    (batch, *_) = (_widened(each) for each in old.to_batches())
    assert batch.column("commit_bytes").null_count == batch.num_rows > 0
    assert batch.schema.names == [name for name in schema.NAMES if name != "server"]


def test_an_export_of_an_earlier_version_is_added_to_and_judged(stores, tmp_path, played):
    import pyarrow.parquet as pq

    run({server: Upto(reader, 0.5) for server, reader in stores.items()}, tmp_path)
    for file in files.every(tmp_path):
        assert pq.ParquetFile(file.path).schema_arrow.metadata[schema.VERSION_KEY] == str(schema.VERSION).encode()
        older(file)
    run(stores, tmp_path)
    assert keys(tmp_path) == expected(stores)
    command = ["check", str(played.file), "--log", str(tmp_path), "--at-rest", "-o", "json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0 and '"clean": true' in done.output, done.output


@pytest.mark.parametrize("damage", [lambda old: old[: len(old) // 2], lambda old: b"", lambda old: b"x" * len(old)])
def test_a_damaged_file_is_named_with_what_to_do(damage, stores, tmp_path, played):
    run({"s03": stores["s03"]}, tmp_path)
    (file,) = files.every(tmp_path)
    file.path.write_bytes(damage(file.path.read_bytes()))
    command = ["check", str(played.file), "--log", str(tmp_path), "--at-rest"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1 and f"{file.path} is damaged" in done.output
    with pytest.raises(MomError, match="is damaged"):
        run({"s03": stores["s03"]}, tmp_path)


@pytest.mark.spark
def test_a_damaged_file_is_named_by_what_runs_on_spark_too(spark, stores, tmp_path):
    run({"s03": stores["s03"]}, tmp_path)
    (file,) = files.every(tmp_path)
    old = file.path.read_bytes()
    file.path.write_bytes(old[:4] + bytes(byte ^ 255 for byte in old[4:5000]) + old[5000:])
    done = CliRunner().invoke(cli, ["analyze", str(tmp_path)])
    assert done.exit_code == 1 and done.stderr.startswith(f"Error: {file.path} is damaged"), done.output


@pytest.mark.parametrize("short", [False, True])
def test_another_file_under_the_name_of_an_exported_one_is_named_with_what_to_do(short, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    topology, written = logs.play(tmp_path / "bus", 60)
    logs.write(topology, written, 2, pause=DAY)
    (tmp_path / "bus.toml").write_text(config.dumps(topology, tmp_path))
    target = tmp_path / "out"
    for share in (0.2, 1.0):
        run({"s04": Upto(store.read(topology.servers["s04"].data), share)}, target)
    file = files.every(target)[0]
    whole = pq.ParquetFile(file.path).read()
    other = whole.slice(1) if short else pa.table({"a": range(file.records)})
    pq.write_table(other, file.path)
    why = f"it has {file.records - 1} records, and by its name {file.records}" if short else "it has no column incarn"
    for command in (["log", "compact", target], ["check", tmp_path / "bus.toml", "--log", target, "--at-rest"]):
        done = CliRunner().invoke(cli, [*map(str, command)])
        assert done.exit_code == 1 and f"{file.path} is damaged ({why}" in done.output, done.output
        assert "delete it and the later files of s04, and export again" in done.output


def test_two_exports_of_a_store_in_one_folder_are_refused_by_all_readers(stores, played, tmp_path):
    from mombroker.admin.analysis.export import compact
    from mombroker.admin.audit.export import audit

    server = next(iter(stores))
    run({server: Upto(stores[server], 0.5)}, tmp_path / "one")
    run({server: Upto(stores[server], 0.3)}, tmp_path / "two")
    run({server: stores[server]}, tmp_path / "two")
    shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
    before = files.every(tmp_path / "two")
    _, long, late = before  # and one that is all in the long one
    assert long.lo < late.lo <= long.hi < late.hi
    readers = (
        files.chosen,  # the data frame
        lambda folder: audit(played.topology, folder, {}),
        lambda folder: list(compact(folder)),
    )
    for read in readers:
        with pytest.raises(MomError, match="as parts of two exports: keep the files of one of them") as refused:
            read(tmp_path / "two")
        assert str(refused.value).startswith(
            f"{long.path} and {late.path} both hold the records {late.lo} to {long.hi} "
        )
    assert files.every(tmp_path / "two") == before


def test_names_of_files_come_back():
    file = files.place(Path("x"), "a.b-c", "00ff", 5, 12, "2026-01-02")
    assert files.NAME.fullmatch(file.path.name) and home_of("a.b-c/agent") == file.server
    assert file.records == 8


def test_files_of_another_time_are_passed_over(played, arrow, tmp_path, monkeypatch):
    """But not one that tells of a message of then, and one that does not say so is read."""
    from mombroker.admin.analysis import export, files, stores

    target = tmp_path / "exported"
    list(export.export(stores.read(played.folder), target))
    every = files.chosen(target)
    records = [r for each in played.written.values() for commit in each for r in commit.records]
    begin, end = min(r.sent for r in records if r.sent), max(map(columns.time, records))
    hour = int(files.LATE_SECONDS * 1e9)
    assert files.of_time(every, None, None)[0] == files.of_time(every, begin, end)[0] == every
    assert files.of_time(every, end + hour + 10**9, None)[0] == []
    assert files.of_time(every, None, begin - hour - 10**9)[0] == []
    file = every[0]
    server = [r for commit in played.written[file.server] for r in commit.records]
    with files.reading(file) as part:
        said = int(part.metadata.metadata[files.FIRST_SENT.encode()])
        table = part.read()
    assert said == min(r.sent for r in server if r.sent)
    early = min(map(columns.time, server)) - hour  # nothing was written then
    assert file not in files.of_time([file], None, early - 10**9)[0]
    import pyarrow.parquet as pq

    pq.write_table(table.replace_schema_metadata({}), file.path)  # of an older version
    assert files.of_time([file], None, early - 10**9) == ([file], True)
