"""The export: every record once, whatever happens to it on the way."""

import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.analysis import files, schema
from mombroker.admin.bench import logs
from mombroker.admin.cli.main import cli
from mombroker.admin.reset import adopt
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError
from mombroker.core.ids import home_of
from mombroker.core.meta import NOW
from mombroker.core.topology import Domain
from mombroker.core.trace import FIELDS
from mombroker.net import config
from mombroker.store import columns, folder
from mombroker.store.sqlite import register_export
from tests.admin import processes
from tests.store import samples

DAY = 86_400 * 10**9

pytestmark = pytest.mark.usefixtures("arrow")


@pytest.fixture
def stores(played):
    return {server: store.read(played.topology.servers[server].data) for server in played.written}


def run(stores, target, **more):
    from mombroker.admin.analysis.export import export

    return {each.server: each for each in export(stores, target, **more)}


def table(target: Path, names=("server", "incarnation", "seq")):
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for file in files.chosen(target):
        part = pq.ParquetFile(file.path).read([name for name in names if name != "server"])
        if "server" in names:
            part = part.append_column("server", pa.array([file.server] * len(part)))
        parts.append(part.select(names))
    return pa.concat_tables(parts)


def keys(target: Path):
    return sorted(tuple(row.values()) for row in table(target).to_pylist())


def expected(stores):
    return sorted(
        (server, reader.meta()["incarnation"], seq)
        for server, reader in stores.items()
        for seq, _ in reader.log(0, 1 << 30)
    )


class Upto:
    """A store as it was when its log ended at a commit near this share of it."""

    def __init__(self, reader, share: float):
        self.reader, self.end = reader, reader.log_end()
        for self.end in reader.log_cuts(0, max(1, int(reader.log_end() * share)), 1 << 30):
            pass

    def __getattr__(self, name: str):
        return getattr(self.reader, name)

    def log_end(self) -> int:
        return self.end

    def commits(self, after: int, upto: int, limit: int):
        return self.reader.commits(after, min(upto, self.end), limit)


def test_a_row_says_what_the_record_said(stores, tmp_path, played):
    run(stores, tmp_path)
    rows = {(row["server"], row["seq"]): row for row in table(tmp_path, schema.NAMES).to_pylist()}
    backends = {name: domain.backend for name, domain in played.topology.domains.items()}
    count = 0
    for server, reader in stores.items():
        for seq, record in reader.log(0, 1 << 30):
            row = rows[server, seq]
            plain = dict(zip(FIELDS, record, strict=True))
            plain["dests"] = list(plain["dests"])
            plain["out"] = [
                {"domain": domain, "ordering": backends[domain], "peer": peer, "bytes": size, "ints": ints}
                for domain, peer, size, ints in plain["out"]
            ]
            plain["missing"] = [{"member": member, "sequence": sequence} for member, sequence in plain["missing"]]
            assert {name: row[name] for name in FIELDS} == plain
            assert row["ordering"] == backends.get(record.domain, "")
            at = record.done or record.delivered or record.received or record.sent
            assert int(row["time"].timestamp() * 10**6 + 0.5) == at // 1000
            count += 1
    assert count == len(rows) > 4000


def test_a_record_names_the_back_end_that_it_was_written_under(tmp_path):
    """One domain, whose back end is changed and adopted between two halves of the log."""
    from mombroker.admin.analysis.rows import batches

    topology, written = logs.play(tmp_path / "bus", 60)
    half = {server: commits[: len(commits) // 2] for server, commits in written.items()}
    logs.write(topology, half)
    before = {server: store.read(topology.servers[server].data).log_end() for server in written}
    east = Domain("east", topology.domains["east"].members, "matrix")
    topology = replace(topology, domains={**topology.domains, "east": east})
    with contextlib.ExitStack() as stack:
        opened = {
            server: stack.enter_context(contextlib.closing(store.open(each.data, topology, server, adopt=True)))
            for server, each in topology.servers.items()
        }
        adopt(topology, opened)
    conn = {server: sqlite3.connect(tmp_path / "bus" / server / "store.sqlite") for server in ("s05", "s06")}
    for server, each in conn.items():  # the same records again
        names = "count, first, last, offset, version, columns, commits, rows, bytes"
        each.execute(f"INSERT INTO log (id, {names}) SELECT id + ?, {names} FROM log", [before[server]])
        each.commit()
        each.close()
    stores = {server: store.read(tmp_path / "bus" / server) for server in conn}
    run(stores, tmp_path / "out")
    rows = [row for row in table(tmp_path / "out", schema.NAMES).to_pylist() if row["domain"] == "east"]
    assert {(row["seq"] > before[row["server"]], row["ordering"]) for row in rows} == {(False, "ks"), (True, "matrix")}
    stamped = {
        (row["seq"] > before[row["server"]], out["ordering"])
        for row in table(tmp_path / "out", schema.NAMES).to_pylist() for out in row["out"] if out["domain"] == "east"
    }  # fmt: skip
    assert stamped == {(False, "ks"), (True, "matrix")}
    for server, reader in stores.items():
        live = [
            row
            for batch in batches(reader, 0, reader.log_end(), ("seq", "domain", "ordering"))
            for row in batch.to_pylist()
        ]
        assert [row["ordering"] for row in live if row["domain"] == "east"] == [
            row["ordering"] for row in rows if row["server"] == server
        ]


def test_the_figures_of_a_commit_stand_on_each_of_its_records(stores, tmp_path, played):
    run(stores, tmp_path)
    rows = table(tmp_path, schema.NAMES).to_pylist()
    for server, written in played.written.items():
        mine = [row for row in rows if row["server"] == server]
        firsts = [row for row in mine if row["seq"] == row["commit"]]
        assert [row["commit_records"] for row in firsts] == [len(each.records) for each in written]
        assert [row["commits"] for row in firsts] == [each.commits for each in written]
        assert [row["commit_rows"] for row in firsts] == [each.rows + 1 for each in written]
        assert sum(1 for row in mine if row["commit"] == firsts[1]["commit"]) == firsts[1]["commit_records"]


def test_an_export_goes_on_where_the_last_one_stopped(stores, tmp_path):
    shares = (0.3, 0.31, 0.8, 1.0, 1.0)
    made = [
        sum(each.records for each in run({s: Upto(r, share) for s, r in stores.items()}, tmp_path).values())
        for share in shares
    ]
    assert keys(tmp_path) == expected(stores)
    assert sum(made) == len(expected(stores)) and made[-1] == 0 and all(made[:1] + made[2:4])
    assert not list(tmp_path.rglob(f"*{files.DRAFT}"))


def test_a_run_that_is_cut_off_anywhere_loses_and_doubles_nothing(stores, tmp_path, monkeypatch):
    """It is cut off before and after each file gets its name; what the next one finds is whole."""
    wanted = expected(stores)
    publish = files.publish
    for cut in (1, 2, 9):
        for late in (False, True):
            target = tmp_path / f"{cut}{late}"
            left = [cut]

            def dying(draft, file, left=left, late=late):
                left[0] -= 1
                if late:
                    publish(draft, file)
                if not left[0]:
                    raise KeyboardInterrupt
                if not late:
                    publish(draft, file)

            monkeypatch.setattr(files, "publish", dying)
            with pytest.raises(KeyboardInterrupt):
                run(stores, target)
            monkeypatch.setattr(files, "publish", publish)
            before = keys(target) if list(target.rglob("*.parquet")) else []
            assert len(before) == len(set(before)) and set(before) <= set(wanted)
            run(stores, target)
            assert keys(target) == wanted


KILLED = """
import sys
from pathlib import Path
from mombroker.admin.analysis import export, files, stores

def publish(draft, file, publish=files.publish):
    print(stage, flush=True)
    publish(draft, file)

files.publish = publish
stage, export.FILE_RECORDS, export.RECORDS = "export", 50, 50
for _ in export.export(stores.read(Path(sys.argv[1])), Path(sys.argv[2])): pass
stage, export.FILE_RECORDS = "compact", 1000
for _ in export.compact(Path(sys.argv[2]), 0): pass
"""


@pytest.mark.long
def test_an_export_is_killed_at_twenty_random_points(tmp_path):
    """With days that pass meanwhile and their compaction: in the end rows in Parquet equal rows in the stores.

    It says when it is about to give a file its name, and dies some files later, up to two files' time after that.
    """
    chance = random.Random(6)
    topology, written = logs.play(tmp_path / "bus", 1000)
    logs.write(topology, written, 3, pause=DAY)
    stores = {server: store.read(topology.servers[server].data) for server in written}
    target, wanted = tmp_path / "out", expected(stores)
    killed = Counter()
    env = {**os.environ, "PYTHONPATH": str(processes.ROOT)}
    for _ in range(60):
        command = [sys.executable, "-c", KILLED, tmp_path / "bus", target]
        stage, most = chance.choice([("export", 100), ("compact", 20)])
        last, said = chance.randrange(1, most), []
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                said.append((line.strip(), time.monotonic()))
                if [name for name, _ in said].count(stage) == last:
                    time.sleep(chance.random() * 2 * (said[-1][1] - said[0][1]) / len(said))
                    process.kill()
                    break
        if process.returncode == -signal.SIGKILL:
            killed[stage] += 1
        else:
            assert process.returncode == 0
        found = keys(target) if files.is_export(target) and files.every(target) else []
        assert len(found) == len(set(found)) and set(found) <= set(wanted)
        if process.returncode == 0:
            assert found == wanted
            if killed.total() >= 20:
                break
            shutil.rmtree(target)
    assert killed.total() >= 20 and len(killed) == 2, killed
    assert keys(target) == wanted


def gone(target, server, *which):
    """Remove some of the files of a server; the records that these had."""
    parts = [file for file in files.every(target) if file.server == server]
    for file in (chosen := [parts[at] for at in which]):
        file.path.unlink()
    return files.ranges([(file.lo, file.hi) for file in chosen])


@pytest.mark.parametrize("which", [(0,), (2,), (-1,), (0, -1), (1, 2), (0, 1, 2, 3)], ids=str)
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


def test_the_small_files_of_many_exports_are_joined_as_it_goes_on(stores, tmp_path, monkeypatch):
    """Their parts stay for an hour for those who read them, and no record is written more than a few times."""
    from mombroker.admin.analysis import export

    joined = []
    monkeypatch.setattr(export, "_join", lambda *args, join=export._join, **more: joined.append(join(*args, **more)))
    reader = {"s03": stores["s03"]}
    for share in range(1, 101):
        run({"s03": Upto(stores["s03"], share / 100)}, tmp_path)
    chosen, spare = files.cover(files.every(tmp_path))
    assert len(chosen) < 25 and len(spare) >= 40 and keys(tmp_path) == expected(reader)
    assert sum(file.records for file in joined) < 4 * stores["s03"].log_end()
    for file in chosen:
        os.utime(file.path, (0, 0))
    run(reader, tmp_path)
    assert files.every(tmp_path) == chosen and keys(tmp_path) == expected(reader) and files.holes(tmp_path) == []


@pytest.fixture
def days(tmp_path):
    """An export of a store with several small files on two days that are over; the same store."""
    topology, written = logs.play(tmp_path / "bus", 200)
    logs.write(topology, written, 3, pause=DAY)
    stores, target = {"s04": store.read(topology.servers["s04"].data)}, tmp_path / "out"
    for share in (0.1, 0.2, 0.3, 0.5, 0.6, 1.0):
        run({"s04": Upto(stores["s04"], share)}, target)
    return target, stores


def test_days_that_are_over_become_one_file_a_server(tmp_path, played):
    from mombroker.admin.analysis.export import compact

    folder = tmp_path / "bus"
    topology, written = logs.play(folder, 100)
    logs.write(topology, written, 3, pause=DAY)
    stores = {server: store.read(topology.servers[server].data) for server in written}
    target = tmp_path / "out"
    for share in (0.2, 0.4, 0.6, 0.9, 1.0):
        run({server: Upto(reader, share) for server, reader in stores.items()}, target)
    before = table(target, schema.NAMES).sort_by([("server", "ascending"), ("seq", "ascending")])
    done = list(compact(target))
    assert done and all(each.after == 1 for each in done)
    newest = max(file.day for file in files.every(target))
    assert all(each.day < newest for each in done)
    after = table(target, schema.NAMES).sort_by([("server", "ascending"), ("seq", "ascending")])
    assert after.equals(before)
    assert list(compact(target)) == []
    chosen, spare = files.cover(files.every(target))
    assert sum(each.before for each in done) == len(spare)
    command = ["log", "compact", str(target), "--now", "-o", "json"]
    assert json.loads(CliRunner().invoke(cli, command).stdout) == [] and files.every(target) == chosen


def stepping(patch, step):
    """Call `step` before and after all that a compaction does to the disk."""
    import pyarrow.parquet as pq

    def around(owner, name):
        own = getattr(owner, name)

        def stepped(*args, **more):
            step(name)
            try:
                return own(*args, **more)
            finally:
                step(name)

        patch(owner, name, stepped)

    for owner, names in (
        (pq.ParquetWriter, ("__init__", "write_table", "close")), (os, ("fsync",)), (folder, ("sync",)),
        (Path, ("rename", "replace", "unlink")),
    ):  # fmt: skip
        for name in names:
            around(owner, name)


def dying(target, at):
    """A compaction that is killed at a step; its exit code is 0 where it has less. For a process of its own."""
    from mombroker.admin.analysis.export import compact

    steps = iter(range(at))
    stepping(setattr, lambda _: next(steps, None) is None and os.kill(os.getpid(), signal.SIGKILL))
    list(compact(target, 0.0))


def test_a_compaction_that_is_killed_at_any_step_shows_every_record_once(days, tmp_path):
    target, stores = days
    wanted, small = expected(stores), len(files.every(target))
    forking, seen = multiprocessing.get_context("forkserver"), set()
    forking.set_forkserver_preload(["tests.admin.analysis.test_export", "mombroker.admin.analysis.export"])
    for at in range(1000):
        copied = tmp_path / f"{at}"
        shutil.copytree(target, copied)
        process = forking.Process(target=dying, args=(copied, at))
        process.start()
        process.join()
        chosen, spare = files.cover(files.every(copied))
        seen.add((len(chosen), len(spare)))
        assert keys(copied) == wanted and files.holes(copied) == []
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        run(stores, copied)  # whatever comes next finds nothing to mourn
        assert keys(copied) == wanted and not list(copied.rglob(f"*{files.DRAFT}"))
        shutil.rmtree(copied)
    assert at > 20 and spare == [] and (small, 0) in seen and len(seen) > 5, (at, seen)


def test_who_reads_while_a_compaction_is_under_way_has_every_record_once(days, monkeypatch):
    """Whichever files he has chosen, at whatever step, they are there to the end."""
    import pyarrow.parquet as pq

    from mombroker.admin.analysis.export import compact

    target, stores = days
    readers = {}
    with monkeypatch.context() as patch:
        stepping(patch.setattr, lambda _: readers.setdefault(tuple(files.chosen(target))))
        list(compact(target))
    assert len(readers) == 3
    for chosen in readers:
        read = [seq for file in chosen for seq in pq.ParquetFile(file.path).read(["seq"])["seq"].to_pylist()]
        assert sorted(read) == [seq for *_, seq in expected(stores)]


def test_a_listing_that_a_compaction_overtakes_has_every_record_once(days, monkeypatch):
    """A folder is read entry by entry: of files that came and went meanwhile it may have neither."""
    from mombroker.admin.analysis.export import compact

    target, stores = days
    own, todo = Path.glob, [lambda: list(compact(target, 0.0))]

    def slow(path, pattern):
        found = list(own(path, pattern))
        yield from found[: len(found) // 2]
        if todo and "parquet" in pattern:
            todo.pop()()
        yield from (each for each in found[len(found) // 2 :] if each.exists())

    monkeypatch.setattr(Path, "glob", slow)
    chosen = files.chosen(target)
    assert not todo and keys(target) == expected(stores) and files.every(target) == chosen


def test_a_column_that_a_file_is_too_old_to_have_is_null(stores, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    from mombroker.admin.analysis.export import _widened

    run(stores, tmp_path)
    old = pq.ParquetFile(files.every(tmp_path)[0].path).read().drop_columns(["commit_bytes", "detail"])
    (batch, *_) = (_widened(each) for each in old.to_batches())
    assert batch.column("commit_bytes").null_count == batch.num_rows > 0
    assert batch.schema.names == [name for name in schema.NAMES if name != "server"]


def test_records_that_went_unexported_are_counted(tmp_path, stores, played):
    (server, reader), *_ = stores.items()
    shutil.copytree(played.topology.servers[server].data, tmp_path / "store")
    conn = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    cut = conn.execute("SELECT id FROM log ORDER BY id LIMIT 1 OFFSET 5").fetchone()[0]
    conn.execute("DELETE FROM log WHERE id < ?", [cut])
    conn.execute("INSERT INTO meta (key, value) VALUES ('log_lost', ?)", [cut - 1])
    conn.commit()
    conn.close()
    (done,) = run({server: store.read(tmp_path / "store")}, tmp_path / "out").values()
    assert (done.gap, done.lost, done.mark) == (cut - 1, cut - 1, reader.log_end())
    assert [file.lo for file in files.every(tmp_path / "out")] == [cut]


def test_a_restored_store_is_refused(stores, tmp_path):
    run(stores, tmp_path)
    (server, reader), *_ = stores.items()
    with pytest.raises(MomError, match=f"the store of {server} ends at record .* restored from a backup"):
        run({server: Upto(reader, 0.3)}, tmp_path)


def test_a_restored_store_that_has_grown_past_what_was_exported_is_refused(tmp_path, played):
    """Since the backup it has written other records under the same numbers."""
    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    reader, target = store.read(tmp_path / "s03"), tmp_path / "out"
    old = Upto(reader, 0.5)
    run({"s03": old}, target)
    conn = sqlite3.connect(tmp_path / "s03" / "store.sqlite")
    samples.written_anew(conn, Upto(reader, 0.3).end)
    conn.commit()
    conn.close()
    with pytest.raises(MomError, match=f"record {old.end}, which is exported, is not in it: it was restored"):
        run({"s03": reader}, target)
    assert reader.log_end() > old.end == max(file.hi for file in files.every(target))
    run({"s03": reader}, tmp_path / "new")


def test_a_commit_that_is_later_than_its_last_record_is_no_restored_store(tmp_path):
    """Its row says the time of its last event, which may have had no record."""
    made = store.open(tmp_path / "paris", samples.topology(), "paris")
    for number in (1, 2, 3):
        record = samples.record(number)
        made.commit(Batch(number=number, log=[record], meta={NOW: columns.time(record) + 10**9}))
        (done,) = run({"paris": store.read(tmp_path / "paris")}, tmp_path / "out").values()
        assert (done.records, done.mark) == (1, number)
    made.close()


def test_a_restored_store_does_not_keep_those_after_it_from_their_export(tmp_path, played):
    shutil.copytree(played.folder, tmp_path / "bus")
    command = ["log", "export", str(tmp_path / "bus" / "bus.toml"), "--to", str(tmp_path / "out")]
    conn = sqlite3.connect(tmp_path / "bus" / "s03" / "store.sqlite")
    late = Upto(store.read(tmp_path / "bus" / "s03"), 0.5).end
    kept = conn.execute("SELECT * FROM log WHERE id > ?", [late]).fetchall()
    assert CliRunner().invoke(cli, [*command, "--server", "s03"]).exit_code == 0
    conn.execute("DELETE FROM log WHERE id > ?", [late])
    conn.commit()
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 5 and done.stderr.count("it was restored from a backup; export to a new folder") == 1
    assert {file.server for file in files.every(tmp_path / "out")} == {*played.written}
    shown = {line.split()[0] for line in done.stdout.splitlines()}
    assert {*played.written} - shown == {"s03"}  # and what was exported is told
    conn.executemany(f"INSERT INTO log VALUES ({','.join('?' * len(kept[0]))})", kept)
    conn.commit()
    conn.close()
    assert CliRunner().invoke(cli, command).exit_code == 0


def exported(tmp_path, *more):
    return CliRunner().invoke(cli, ["log", "export", str(tmp_path / "bus"), "--to", str(tmp_path / "out"), *more])


def garbled(folder: Path) -> None:
    """SQLite opens it, and finds no page of its log."""
    path = folder / "store.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'log'").fetchone()
        (size,) = conn.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"x" * size)


def emptied(folder: Path) -> None:
    (folder / "store.sqlite").write_bytes(b"")


def overwritten(folder: Path) -> None:
    (folder / "store.sqlite").write_bytes(b"x" * 9999)


def a_folder(folder: Path) -> None:
    (folder / "store.sqlite").unlink()
    (folder / "store.sqlite").mkdir()


@pytest.mark.parametrize(
    "source, damage",
    [("bus", garbled), ("bus", emptied), ("bus", overwritten), ("bus/bus.toml", garbled), ("bus/bus.toml", a_folder)],
)
def test_a_damaged_store_does_not_keep_the_others_from_their_export(source, damage, tmp_path, played):
    shutil.copytree(played.folder, tmp_path / "bus")
    for rest in (tmp_path / "bus" / "s03").glob("store.sqlite-*"):
        rest.unlink()
    damage(tmp_path / "bus" / "s03")
    command = ["log", "export", str(tmp_path / source), "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, command)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("log records")]
    assert done.exit_code == 5 and line.startswith("mom: ") and str(tmp_path / "bus" / "s03") in line, done.output
    assert {file.server for file in files.every(tmp_path / "out")} == {*played.written} - {"s03"}
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {*played.written} - {"s03"}
    done = CliRunner().invoke(cli, [*command, "--server", "s03"])
    assert done.exit_code in (1, 5) and line in done.stderr, done.output


@pytest.mark.parametrize("blob", ["c1", "05", "dc0010" + "9105" * 16, "dc0010" + "c0" * 13 + "919105" + "c0c0"])
def test_a_log_row_that_is_no_records_is_named_and_the_others_are_exported(blob, tmp_path, played):
    shutil.copytree(played.folder, tmp_path / "bus")
    with contextlib.closing(sqlite3.connect(tmp_path / "bus" / "s03" / "store.sqlite")) as conn:
        conn.execute(f"UPDATE log SET columns = x'{blob}'")
        conn.commit()
    done = exported(tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("log records")]
    assert done.exit_code == 5 and line.startswith(("mom: record 1 of ", "mom: one of the records 1 to ")), done.output
    assert f"of the store of s03 is damaged ({tmp_path / 'bus' / 's03'}" in line
    assert {file.server for file in files.every(tmp_path / "out")} == {*played.written} - {"s03"}
    assert not list((tmp_path / "out").rglob(f"*{files.DRAFT}"))


@pytest.mark.parametrize(
    "damage, fault",
    [
        ("last = NULL", "last is NULL"),
        ("last = 'noon'", "last is str"),
        ("count = 'few'", "count is str"),
        ("count = 0", "count is 0"),
        ("count = 1.5", "count is float"),
        ("version = x'01'", "version is bytes"),
        ("columns = 'none'", "columns is str"),
        ("rows = 'many'", "rows is str"),
        ("bytes = NULL", "one of commits, rows and bytes is NULL"),
    ],
)
def test_a_log_row_with_a_wrong_column_is_named_and_the_others_are_exported(damage, fault, tmp_path, played):
    """Wherever it is in the log: here it is the last one."""
    for name in ("s03", "s04"):
        shutil.copytree(played.topology.servers[name].data, tmp_path / "bus" / name)
    with contextlib.closing(sqlite3.connect(tmp_path / "bus" / "s03" / "store.sqlite")) as conn:
        conn.execute(f"UPDATE log SET {damage} WHERE id = (SELECT max(id) FROM log)")
        (last,) = conn.execute("SELECT max(id) FROM log").fetchone()
        conn.commit()
    done = exported(tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("log records")]
    path = tmp_path / "bus" / "s03" / "store.sqlite"
    wanted = f"mom: record {last} of the store of s03 is damaged ({path}: {fault} in its row of the log); restore it"
    assert done.exit_code == 5 and line.startswith(wanted), done.output
    assert "s04" in {file.server for file in files.every(tmp_path / "out")}
    done = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "bus" / "s03"), "--to", str(tmp_path / "more")])
    assert done.exit_code == 5 and line in done.stderr


@pytest.mark.parametrize("target", ["bus", "bus/s03"])
def test_an_export_does_not_take_the_place_of_the_stores(target, tmp_path, played):
    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "bus" / "s03")
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "bus"), "--to", str(tmp_path / target)])
    assert done.exit_code == 1 and f"there are stores in {tmp_path / target}, " in done.stderr, done.output
    assert not files.is_export(tmp_path / target)
    assert {path for path in tmp_path.rglob("*") if path not in before} <= {*tmp_path.rglob("store.sqlite-*")}
    done = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "bus"), "--to", str(tmp_path / "bus" / "exported")])
    assert done.exit_code == 0, done.output


def test_two_data_folders_of_one_server_are_refused(tmp_path, played):
    """Which of them is the copy, nobody but the user knows."""
    from mombroker.admin.analysis.stores import find

    shutil.copytree(played.folder, tmp_path / "bus")
    shutil.copytree(tmp_path / "bus" / "s03", tmp_path / "bus" / "s03-backup")
    done = exported(tmp_path)
    wanted = f"{tmp_path / 'bus' / 's03'} and {tmp_path / 'bus' / 's03-backup'} are both the store of server s03"
    assert done.exit_code == 1 and wanted in done.output, done.output
    assert not (tmp_path / "out").exists()
    with pytest.raises(MomError, match="are both the store of server s03"):
        find(tmp_path / "bus")


def checkpoints(path: Path) -> Callable[[], None]:
    """Does what a server does at its work: it writes, and ends its write-ahead log. It must get through at once."""
    conn = sqlite3.connect(path / "store.sqlite", isolation_level=None, timeout=0)
    assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def write() -> None:
        conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('written', random())")
        busy, _, _ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy and (path / "store.sqlite-wal").stat().st_size == 0

    return write


def test_whoever_reads_a_log_holds_up_no_checkpoint(tmp_path, played, monkeypatch):
    from mombroker.admin.analysis import export, rows

    shutil.copytree(played.topology.servers["s04"].data, tmp_path / "s04")
    reader, count = store.read(tmp_path / "s04"), 0
    write = checkpoints(tmp_path / "s04")
    monkeypatch.setattr(export, "PAGE", 5)
    monkeypatch.setattr(rows, "PAGE", 5)
    monkeypatch.setattr(rows, "RECORDS", 50)

    def progress(done: int) -> None:
        nonlocal count
        count += 1
        write()

    run({"s04": reader}, tmp_path / "out", progress=progress)
    assert count > 5
    for _ in rows.batches(reader, 0, reader.log_end()):
        count += 1
        write()
    assert count > 10
    with reader.snapshot(), pytest.raises(AssertionError):  # one that stays would be seen here
        reader.meta()
        write()


def test_the_records_of_runs_are_read_one_by_one(tmp_path):
    from mombroker.admin.analysis import rows

    made = store.open(tmp_path, samples.topology(), "paris")
    log = [samples.record(1), samples.run_of(*((number, 7) for number in range(2, 20))), samples.record(9)]
    made.commit(Batch(number=1, log=log))
    made.commit(Batch(number=2, log=log[1:2]))
    made.close()
    reader = store.read(tmp_path)
    (batch,) = rows.batches(reader, 0, reader.log_end())
    found = [record for _, record in reader.log(0, 99)]
    run = [number for number in range(2, 20) for _ in "ab"]
    assert [record.number for record in found] == [1, *run, 9, *run]
    for name in ("kind", "origin", "number", "agent", "dests", "payload", "sent", "received", "done", "detail"):
        values = [getattr(record, name) for record in found]
        assert batch.column(name).to_pylist() == [list(each) if isinstance(each, tuple) else each for each in values]


def older(file: files.File, version: int = schema.VERSION - 1) -> None:
    """Make this file one of an earlier program, that knew fewer columns, or with `version` one of a later program."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file.path).read()
    if version < schema.VERSION:
        table = table.drop_columns(["commits", "commit_rows", "commit_bytes"])
    pq.write_table(table.replace_schema_metadata({schema.VERSION_KEY: str(version)}), file.path)


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


def test_a_file_of_a_later_version_is_not_joined(tmp_path):
    """It has columns that would be lost."""
    from mombroker.admin.analysis.export import compact

    topology, written = logs.play(tmp_path / "bus", 200)
    logs.write(topology, written, 2, pause=DAY)
    reader, target = store.read(topology.servers["s04"].data), tmp_path / "out"
    for share in (0.05, 0.1, 0.15, 0.2, 0.25, 1.0):
        run({"s04": Upto(reader, share)}, target)
    first = [file for file in files.every(target) if file.day == files.every(target)[0].day]
    assert len(first) == 6
    older(first[2], schema.VERSION + 1)
    content = first[2].path.read_bytes()
    (done,) = compact(target, 0.0)
    after = [file for file in files.every(target) if file.day == first[0].day]
    assert done.after == 3 and [(file.lo, file.hi) for file in after] == [
        (first[0].lo, first[1].hi), (first[2].lo, first[2].hi), (first[3].lo, first[-1].hi),
    ]  # fmt: skip
    assert first[2].path.read_bytes() == content
    assert keys(target) == expected({"s04": reader})


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


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(stores, tmp_path):
    """No file may become longer than 4 kB, as if there were no room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(MomError, match=f"cannot write to {tmp_path}: .*; see to that, and run it again"):
            run({"s03": stores["s03"]}, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files.every(tmp_path) == [] and not list(tmp_path.rglob(f"*{files.DRAFT}"))
    run({"s03": stores["s03"]}, tmp_path)
    assert keys(tmp_path) == expected({"s03": stores["s03"]})


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


def test_a_folder_that_is_no_export_is_not_compacted(tmp_path):
    done = CliRunner().invoke(cli, ["log", "compact", str(tmp_path)])
    assert done.exit_code == 1 and f"there are no exported records in {tmp_path}" in done.output
    assert list(tmp_path.iterdir()) == []


def test_two_exports_at_a_time_are_refused(stores, tmp_path):
    from mombroker.admin.analysis.export import _alone

    with _alone(tmp_path), pytest.raises(MomError, match="another export or compaction is writing"):
        run(stores, tmp_path)


def test_the_command_tells_stopped_servers_what_is_exported(tmp_path, played):
    shutil.copytree(played.folder, tmp_path / "bus")
    done = CliRunner().invoke(
        cli, ["log", "export", str(tmp_path / "bus"), "--to", str(tmp_path / "out"), "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    for server in played.written:
        reader = store.read(tmp_path / "bus" / server)
        assert reader.meta()["exported"] == reader.log_end()
    command = ["check", str(played.file), "--log", str(tmp_path / "out"), "--at-rest", "-o", "json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0 and '"clean": true' in done.output, done.output


def test_a_server_that_cannot_be_told_does_not_keep_others_from_their_export(tmp_path, played):
    """Somebody else uses its folder."""
    shutil.copytree(played.folder, tmp_path / "bus")
    lock = folder.Lock(tmp_path / "bus" / "s01")
    command = ["log", "export", str(tmp_path / "bus" / "bus.toml"), "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, command)
    lock.release()
    assert done.exit_code == 1 and "s01 could not be told what is exported" in done.output
    assert f"mom: {tmp_path / 'bus' / 's01'} is in use by process {os.getpid()}" in done.output
    assert {file.server for file in files.every(tmp_path / "out")} == set(played.written)
    told = {server for server in played.written if "exported" in store.read(tmp_path / "bus" / server).meta()}
    assert told == set(played.written) - {"s01"}


def test_a_server_that_was_renamed_in_the_file_is_refused(tmp_path, played):
    """Its records would stand under one name and speak of another."""
    text = played.file.read_text().replace('data = "', f'data = "{played.folder}/')
    renamed = text.replace('"s03"', '"paris"').replace("[servers.s03]", "[servers.paris]")
    (tmp_path / "bus.toml").write_text(renamed)
    done = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "bus.toml"), "--to", str(tmp_path / "out")])
    assert done.exit_code == 1 and "is the store of server s03, not of paris" in done.output, done.output
    assert not (tmp_path / "out").exists()
    run({server: store.read(data) for server, data in _folders(played).items()}, tmp_path / "out")
    log = ["--log", str(tmp_path / "out"), "--at-rest"]
    for more, sentence in (([], "call it s03 in the topology file, or"), (log, "call s03 so again, if it was renamed")):
        done = CliRunner().invoke(cli, ["check", str(tmp_path / "bus.toml"), *more])
        assert done.exit_code == 1 and sentence in done.output, done.output


def _folders(played):
    return {server: played.topology.servers[server].data for server in played.written}


@pytest.mark.parametrize("command", [["analyze"], ["log", "export", "--to", "out"], ["topology", "advise", "--log"]])
def test_a_source_that_is_not_there_is_refused_with_all_that_it_may_be(command, tmp_path, played, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = [str(played.file)] if "advise" in command else []
    done = CliRunner().invoke(cli, [*command[:2], *file, *command[2:], "nope"])
    assert done.exit_code == 1 and "nope: no such file or folder: name a" in done.output, done.output
    assert "a topology file, a data folder, or a folder of data folders" in done.output


def test_a_mark_never_goes_back(tmp_path, played):
    shutil.copytree(played.topology.servers["s03"].data, tmp_path / "s03")
    for seq, mark in ((7, 7), (5, 7), (9, 9)):
        register_export(tmp_path / "s03", seq)
        assert store.read(tmp_path / "s03").meta()["exported"] == mark


HURRIED = """
import signal, sys
from mombroker.net import config, node, service, tidying
node.PRUNE_EVERY_S = 0.05
signal.signal(signal.SIGUSR1, lambda *_: setattr(tidying, "DAY_NS", 1))  # from then on all records are too old
sys.exit(service.serve(config.load(sys.argv[1]), "a"))
"""


def test_a_running_server_lets_go_what_is_exported_and_nothing_else(tmp_path):
    """By its own rule every record is too old; the mark of the export, which it is told over TCP, holds it back."""
    (port,) = processes.free_ports(1)
    (tmp_path / "clerks.py").write_text(processes.CLERKS)
    bus = processes.Processes(tmp_path / "bus.toml")
    bus.file.write_text(
        f'[bus]\nname = "one"\nallow = ["clerks"]\n[servers.a]\nlisten = "127.0.0.1:{port}"\ndata = "a"\n'
        '[[agents]]\nname = "ann"\nserver = "a"\nclass = "clerks:Clerk"\n'
    )
    target = tmp_path / "out"

    def exported():
        (only,) = bus.json("log", "export", str(bus.file), "--to", str(target))
        return only

    def send(count):
        for number in range(count):
            bus.mom("agent", "send", "ann", "clerks.Note", f"text=note {number}")

    env = {**os.environ, "PYTHONPATH": str(processes.ROOT)}
    server = subprocess.Popen([sys.executable, "-c", HURRIED, bus.file], cwd=tmp_path, env=env)
    try:
        patience(bus.all_up)
        reader = store.read(tmp_path / "a")
        send(3)
        mark = exported()["mark"]
        assert mark > 3 and reader.commit_before(1) == 0
        send(3)
        server.send_signal(signal.SIGUSR1)
        patience(lambda: send(1) or reader.commit_before(1) == mark)
        send(3)  # and after many more looks at its log
        assert reader.commit_before(1) == mark
        server.kill()
        server.wait()
        again = exported()
        assert (again["gap"], again["lost"]) == (0, 0) and again["mark"] == reader.log_end() > mark
    finally:
        server.kill()
        server.wait()
    assert [seq for _, _, seq in keys(target)] == list(range(1, again["mark"] + 1))


def patience(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
