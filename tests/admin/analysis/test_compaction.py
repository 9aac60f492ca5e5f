"""The small files of an export become few: every record is there once at each step, for whoever reads meanwhile too."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.analysis import files, schema
from mombroker.admin.bench import logs
from mombroker.admin.cli.main import cli
from mombroker.store import folder
from tests.admin.analysis.exports import DAY, Upto, expected, keys, older, run, table

pytestmark = pytest.mark.usefixtures("arrow")


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
    """A compaction that is killed at a step, in a process of its own."""
    from mombroker.admin.analysis.export import compact

    steps = iter(range(at))
    stepping(setattr, lambda _: next(steps, None) is None and os.kill(os.getpid(), signal.SIGKILL))
    list(compact(target, 0.0))


def content(target):
    return {path.relative_to(target): path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()}


def test_a_compaction_that_is_killed_at_any_step_shows_every_record_once(days, tmp_path, monkeypatch):
    """What one that is killed leaves is what the disk has at that step: of each state a copy is judged once."""
    from mombroker.admin.analysis.export import compact

    target, stores = days
    wanted, small, begun = expected(stores), len(files.every(target)), tmp_path / "begun"
    shutil.copytree(target, begun)
    steps, copies = [], []  # what the disk has at each step; a copy of each that is new

    def kept(_):
        if (now := content(target)) not in steps:
            copies.append(tmp_path / f"{len(steps)}")
            shutil.copytree(target, copies[-1])
        steps.append(now)

    with monkeypatch.context() as patch:
        stepping(patch.setattr, kept)
        list(compact(target, 0.0))
    kept("ended")
    seen = set()
    for copied in copies:
        chosen, spare = files.cover(files.every(copied))
        seen.add((len(chosen), len(spare)))
        assert keys(copied) == wanted and files.holes(copied) == []
        run(stores, copied)  # whatever comes next finds nothing to mourn
        assert keys(copied) == wanted and not list(copied.rglob(f"*{files.DRAFT}"))
    assert len(steps) > 20 and spare == [] and (small, 0) in seen and len(seen) > 5, (len(steps), seen)
    killed(begun, steps, tmp_path)


def killed(begun, steps, tmp_path):
    """Some processes are killed indeed, and leave what the copies of those steps have."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(["tests.admin.analysis.test_compaction", "mombroker.admin.analysis.export"])
    for at in range(5, len(steps), len(steps) // 4):
        copied = tmp_path / f"killed-{at}"
        shutil.copytree(begun, copied)
        process = forking.Process(target=dying, args=(copied, at))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL and content(copied) == steps[at]


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


def test_a_folder_that_is_no_export_is_not_compacted(tmp_path):
    done = CliRunner().invoke(cli, ["log", "compact", str(tmp_path)])
    assert done.exit_code == 1 and f"there are no exported records in {tmp_path}" in done.output
    assert list(tmp_path.iterdir()) == []
