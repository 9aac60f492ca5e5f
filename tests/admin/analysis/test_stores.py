"""The stores of an export: what was restored, damaged, renamed or copied is named, and keeps no other from its own."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.analysis import files
from mombroker.admin.cli.main import cli
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError
from mombroker.core.meta import NOW
from mombroker.store import columns
from tests.admin.analysis.exports import Upto, run
from tests.store import samples

pytestmark = pytest.mark.usefixtures("arrow")


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
