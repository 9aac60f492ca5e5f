"""The data folder: private, used by one process, with one token."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from mombroker import store
from mombroker.core.errors import StoreError
from mombroker.store import folder
from tests.store.samples import topology


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_for_this_user_alone(tmp_path):
    place = tmp_path / "var" / "paris"
    opened = store.open(place, topology(), "paris")
    store.token(place)
    assert {mode(tmp_path / "var"), mode(place)} == {0o700}
    files = sorted(path.name for path in place.iterdir())
    assert files == ["lock", "mark", "store.sqlite", "store.sqlite-shm", "store.sqlite-wal", "token"]
    assert {mode(path) for path in place.iterdir()} == {0o600}
    opened.close()


@pytest.mark.parametrize("text", ["", "\n", "short\n", "a" * 31])
def test_a_token_that_anybody_could_guess_is_refused(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(StoreError, match="remove that file, and the server makes a new one at its next start"):
        store.token(tmp_path)
    (tmp_path / "token").unlink()
    assert len(store.token(tmp_path)) >= folder.TOKEN_LEAST


def test_a_small_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    for call in ("fsync", "link", "replace"):
        real = getattr(os, call)
        monkeypatch.setattr(folder.os, call, lambda *args, real=real, call=call: (done.append(call), real(*args))[1])
    folder.write(tmp_path / "one", "text", over=False)
    assert done == ["fsync", "link", "fsync"]  # the file, then its folder
    folder.write(tmp_path / "one", "other", over=False)
    assert (tmp_path / "one").read_text() == "text"
    folder.write(tmp_path / "one", "other")
    assert (tmp_path / "one").read_text() == "other" and mode(tmp_path / "one") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_token_is_made_once(tmp_path):
    first = store.token(tmp_path / "paris")
    assert first == store.token(tmp_path / "paris") != store.token(tmp_path / "lyon")
    assert len(first) >= 32
    assert [path.name for path in (tmp_path / "paris").iterdir()] == ["token"]


def test_a_store_is_used_by_one_process_which_is_named(tmp_path):
    first = store.open(tmp_path, topology(), "paris")
    with pytest.raises(StoreError) as refused:
        store.open(tmp_path, topology(), "paris")
    assert str(refused.value) == (
        f"{tmp_path} is in use by process {os.getpid()}; stop it, or give this server its own folder"
    )
    first.close()
    store.open(tmp_path, topology(), "paris").close()


def test_a_refused_store_is_not_left_locked(tmp_path):
    store.open(tmp_path, topology(), "paris").close()
    with pytest.raises(StoreError, match="is the store of server paris"):
        store.open(tmp_path, topology(), "lyon")
    store.open(tmp_path, topology(), "paris").close()


HOLDER = """
import sys
from mombroker import store
from tests.store.samples import topology
opened = store.open(sys.argv[1], topology(), "paris")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_no_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"in use by process {holder.pid};"):
            store.open(tmp_path, topology(), "paris")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    store.open(tmp_path, topology(), "paris").close()


# -- folders and files that cannot be used ---------------------------------------------------------------------------


PERMIT = "set `data` to a folder that this user can write, with room left"


@pytest.fixture
def unprivileged_later(tmp_path):
    """From the call on the rights of the files hold for us, also where the tests run as root."""
    root = os.geteuid() == 0

    def drop():
        if root:
            for parent in (tmp_path, *tmp_path.parents):
                parent.chmod(parent.stat().st_mode | 0o011)
            os.seteuid(65534)

    yield drop
    if root:
        os.seteuid(0)


def refusal(path):
    with pytest.raises(StoreError) as refused:
        store.open(path, topology(), "paris")
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def closed(tmp_path, unprivileged_later):
    """A folder that may be read, not written."""
    path = tmp_path / "closed"
    path.mkdir(0o555)
    unprivileged_later()
    return path


def test_a_folder_that_cannot_be_made(closed):
    assert refusal(closed / "paris") == f"cannot use {closed / 'paris'}: Permission denied; {PERMIT}"


def test_a_folder_that_cannot_be_written(closed):
    assert refusal(closed) == f"cannot use {closed / 'lock'}: Permission denied; {PERMIT}"


@pytest.fixture
def made(tmp_path):
    """A store in a folder that anybody may write."""
    store.open(tmp_path, topology(), "paris").close()
    tmp_path.chmod(0o777)
    (tmp_path / "lock").chmod(0o666)
    (tmp_path / "mark").chmod(0o666)
    return tmp_path / "store.sqlite"


def test_a_file_that_cannot_be_read(made, unprivileged_later):
    made.chmod(0)
    unprivileged_later()
    sentence = f"cannot use {made}: unable to open database file"
    assert refusal(made.parent).startswith(sentence)
    assert store.verify(made)[0].startswith(sentence)


def test_a_file_that_cannot_be_written(made, unprivileged_later):
    made.chmod(0o444)
    unprivileged_later()
    assert refusal(made.parent) == (
        f"cannot use {made}: attempt to write a readonly database; "
        "see that this user can write its folder and the disk has room"
    )


def test_what_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(file) == f"{file} is not a directory; set `data` to a folder"
    assert refusal(file / "paris") == f"{file / 'paris'} is not in a directory; set `data` to a folder"


def test_a_folder_on_a_read_only_file_system(tmp_path, monkeypatch):
    def read_only(*_):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(folder.os, "open", read_only)
    assert refusal(tmp_path).startswith(f"cannot use {tmp_path / 'lock'}: Read-only file system; set `data`")
