"""A store that is not as its server left it is refused by name, and one that is never is."""

import shutil
from pathlib import Path

import pytest

from mombroker import store
from mombroker.core.batch import Batch, InRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.store.mark import Mark, read
from tests.store.samples import T0, message, topology
from tests.store.test_kill import kill_while_it_works

ACCEPT = "or run `mom store accept`, and the next start goes on with what there is"


def refusal(folder: Path) -> str:
    with pytest.raises(StoreError) as refused:
        store.open(folder, topology(), "paris")
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a process leaves that is killed in the midst of its work; it had a token."""
    folder = tmp_path / "paris"
    store.token(folder)
    (folder / "token").rename(tmp_path / "token")  # a server makes it when there is a store
    kill_while_it_works(folder, 20)
    (tmp_path / "token").rename(folder / "token")
    return folder


@pytest.mark.parametrize("how", ["lost", "emptied", "cut", "garbled"])
def test_a_lost_or_cut_log_is_refused_and_stays_as_it_is(killed: Path, how: str) -> None:
    wal = killed / "store.sqlite-wal"
    (killed / "store.sqlite-shm").unlink()
    whole = wal.read_bytes()
    if how == "lost":
        wal.unlink()
    else:
        wal.write_bytes(
            {"emptied": b"", "cut": whole[: len(whole) * 2 // 3]}.get(
                how, whole[: len(whole) // 2] + bytes(len(whole) // 2)
            )
        )
    for _ in range(2):
        assert "ends at" in refusal(killed) or "is without tables" in refusal(killed)
        assert "store.sqlite-wal" in refusal(killed) and refusal(killed).endswith(ACCEPT)
    wal.write_bytes(whole)
    store.open(killed, topology(), "paris").close()


@pytest.mark.parametrize("marked", [True, False])
def test_a_store_that_is_gone_or_empty_is_refused_beside_what_is_left_of_its_server(killed: Path, marked: bool) -> None:
    if not marked:
        (killed / "mark").unlink()  # an older program made none
    for file in killed.glob("store.sqlite*"):
        file.unlink()
    assert "is not there, and its server had one here" in refusal(killed)
    assert refusal(killed).endswith(ACCEPT)
    (killed / "store.sqlite").touch()
    assert "is empty, and its server had one here" in refusal(killed)
    assert store.accept(killed).startswith("the next start makes a new store")
    store.open(killed, topology(), "paris").close()


def test_an_old_copy_or_another_store_in_its_place_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "paris"
    made = store.open(folder, topology(), "paris")
    made.commit(Batch(meta={"now": T0}))
    made.close()
    shutil.copy(folder / "store.sqlite", tmp_path / "old.sqlite")
    again = store.open(folder, topology(), "paris")
    again.commit(Batch(meta={"now": T0 + 5_000_000_000}, queue_in={1: InRow(1, "paris/a", message(1, "paris/a"))}))
    again.close()
    shutil.copy(tmp_path / "old.sqlite", folder / "store.sqlite")
    assert refusal(folder) == (
        f"{folder / 'store.sqlite'} ends at 2023-11-14T22:13:20.000Z, and its server wrote to it until "
        f"2023-11-14T22:13:25.000Z: bring back the true one with its write-ahead log (store.sqlite-wal); {ACCEPT}"
    )
    assert store.verify(folder) == [
        "the store ends at 2023-11-14T22:13:20.000Z, and its server wrote to it until 2023-11-14T22:13:25.000Z"
    ]
    assert store.accept(folder).startswith("the next start goes on with")
    store.open(folder, topology(), "paris").close()
    other = store.open(tmp_path / "other", topology(), "paris")
    other.close()
    shutil.copy(tmp_path / "other" / "store.sqlite", folder / "store.sqlite")
    assert "is not the store that its server had here" in refusal(folder)


def test_a_mark_that_is_gone_garbled_or_old_is_no_reason_to_refuse(killed: Path) -> None:
    """A power failure may leave any of that."""
    at_once = (killed / "mark").read_bytes()
    store.open(killed, topology(), "paris").close()
    for left in (at_once, b"", b"garbled", at_once[:-3], at_once.replace(b" ", b"  ")):
        (killed / "mark").write_bytes(left)
        told = [fault for fault in store.verify(killed) if "cannot be read: whether the store ends" in fault]
        assert len(told) == (left != at_once)
        store.open(killed, topology(), "paris").close()
    (killed / "mark").unlink()
    store.open(killed, topology(), "paris").close()


def test_the_mark_is_exact_after_each_commit_and_never_ahead(tmp_path: Path) -> None:
    opened = store.open(tmp_path, topology(), "paris")
    for now in range(T0, T0 + 50):
        opened.begin(Batch(meta={"now": now}))
        assert int((tmp_path / "mark").read_text().split()[1]) == (now - 1 if now > T0 else 0)
        opened.finish()
        assert int((tmp_path / "mark").read_text().split()[1]) == now
    opened.close()


def test_a_mark_is_written_in_place_by_its_changing_part_alone(tmp_path: Path) -> None:
    mark = Mark(tmp_path, "0123456789abcdef", 7)
    first = (tmp_path / "mark").read_bytes()
    for now in (8, T0, (1 << 63) - 1):
        mark.at(now)
        line = (tmp_path / "mark").read_bytes()
        assert read(tmp_path) == ("0123456789abcdef", now)
        assert len(line) == len(first) and line[:17] == first[:17]
    mark.close()


@pytest.mark.parametrize("frames", [1, 2])
def test_a_log_that_lacks_only_its_last_frames_is_refused(killed: Path, frames: int) -> None:
    """What was told to be durable a moment before the kill is missed, too."""
    store.open(killed, topology(), "paris").close()
    kill_while_it_works(killed, 3)
    before = read(killed)
    reader = store.read(killed)
    unmarked = reader.meta()["now"] - before[1]  # 1 if it was killed between a commit and its mark
    reader.close()
    wal = killed / "store.sqlite-wal"
    (killed / "store.sqlite-shm").unlink()
    whole, frame, page = wal.read_bytes(), 24, int.from_bytes(wal.read_bytes()[8:12])
    valid = [at for at in range(32, len(whole), frame + page) if whole[at + 8 : at + 16] == whole[16:24]]
    ends = [at for at in valid if any(whole[at + 4 : at + 8])]  # the last frames of commits
    last = ends[-1 - unmarked] + frame + page
    wal.write_bytes(whole[: last - frames * (frame + page)])
    assert "ends at" in refusal(killed) and read(killed) == before


@pytest.mark.parametrize("mark", ["gone", "garbled", "whole"])
def test_a_store_without_tables_is_refused_beside_what_is_left_of_its_server(tmp_path: Path, mark: str) -> None:
    """A process that is killed early leaves all it wrote in the log alone."""
    folder = tmp_path / "paris"
    kill_while_it_works(folder, 2)
    if mark == "gone":
        store.token(folder)
        (folder / "mark").unlink()
    elif mark == "garbled":
        (folder / "mark").write_bytes(b"garbled")
    for beside in ("wal", "shm"):
        (folder / f"store.sqlite-{beside}").unlink()
    assert (folder / "store.sqlite").stat().st_size == 4096
    assert "is without tables, and its server had one here" in refusal(folder)
    assert refusal(folder).endswith(ACCEPT) and "store.sqlite-wal" in refusal(folder)
    assert store.accept(folder).startswith("the next start makes a new store")
    store.open(folder, topology(), "paris").close()


def test_what_is_in_use_is_not_accepted(tmp_path: Path) -> None:
    opened = store.open(tmp_path, topology(), "paris")
    with pytest.raises(StoreError, match="is in use by process"):
        store.accept(tmp_path)
    opened.close()


def test_a_mark_that_cannot_be_written_ends_the_store_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be too old for the commits that follow."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    opened = store.open(tmp_path, topology(), "paris")
    monkeypatch.setattr("os.pwrite", full)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="^cannot write mark beside .* No space left"):
            opened.commit(Batch(meta={"now": T0}))
    monkeypatch.undo()
    opened.close()
