"""The export: every record once, whatever happens to it on the way."""

import contextlib
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
from mombroker.core.topology import Domain
from mombroker.core.trace import FIELDS
from mombroker.store import folder
from mombroker.store.sqlite import register_export
from tests.admin import processes
from tests.admin.analysis.exports import DAY, Upto, expected, keys, run, table
from tests.store import samples

pytestmark = pytest.mark.usefixtures("arrow")


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
