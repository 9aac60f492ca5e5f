"""A server's data folder: made private, locked by one process, with the operator's token in it."""

import errno
import fcntl
import os
import secrets
import sys
import time
from contextlib import suppress
from os import PathLike
from pathlib import Path

from mombroker.core.errors import StoreError, StoreFailed

STORE, LOCK, TOKEN = "store.sqlite", "lock", "token"
TOKEN_LEAST = 32  # characters
LOOKS, LOOK_S = 10, 0.02  # how often, and in which distance, a lock is looked at that seems taken


def full(path: Path) -> StoreFailed:
    return StoreFailed(f"the disk is full: nothing more can be written to {path}; make room, then start again")


def room(path: Path) -> int:
    """Bytes that are free on the disk of a file; very many if that is not known."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return sys.maxsize
    return disk.f_bavail * disk.f_frsize


def unusable(path: Path, error: OSError) -> StoreError | StoreFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(path)
    return StoreError(
        f"cannot use {path}: {error.strerror or error}; set `data` to a folder that this user can write, with room left"
    )


def make(path: str | PathLike[str]) -> Path:
    """The folder, made with its parents for this user alone, and on disk."""
    folder = Path(path)
    try:
        for step in reversed([folder, *folder.parents]):
            if not step.exists():
                step.mkdir(0o700, exist_ok=True)
                sync(step.parent)
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a directory; set `data` to a folder")
    except NotADirectoryError as error:
        raise StoreError(f"{error.filename} is not in a directory; set `data` to a folder") from None
    except OSError as error:
        raise unusable(folder, error) from None
    return folder


def sync(folder: Path) -> None:
    """What was made in the folder survives a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_claimed: dict[Path, int] = {}  # folder -> its lock, taken before its store is opened


def locked(path: Path) -> int:
    """Lock a file, with our process id in it; the open file holds the lock, and the system drops it with the process.

    Raises BlockingIOError with the id of the process that has it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for left in reversed(range(LOOKS)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(LOOK_S)  # somebody may only be looking who holds it
        else:
            try:
                os.ftruncate(file, 0)
                os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            except OSError:  # a full disk
                os.close(file)
                raise
            return file
    holder = os.pread(file, 20, 0).decode(errors="replace").strip()
    os.close(file)
    raise BlockingIOError(holder or "unknown")


def holder(path: Path) -> int:
    """The process that holds a lock file, 0 if none does."""
    try:
        file = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        for _ in range(LOOKS):
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if (text := os.pread(file, 20, 0).decode(errors="replace").strip()).isdecimal():
                    return int(text)
                time.sleep(LOOK_S)  # it has just been taken, and the id is not in it yet; or another one looks
            else:
                return 0
        return 0
    finally:
        os.close(file)


def claim(folder: Path) -> None:
    """Take the lock of a data folder that this process will open a store in, so that others see from now on that a
    server runs there. What cannot be had is refused when the store is opened, in words."""
    with suppress(OSError, StoreError, StoreFailed):
        _claimed[folder] = locked(make(folder) / LOCK)


class Lock:
    """One process per folder. The system drops it with the process, however that ends; the file stays."""

    def __init__(self, folder: Path):
        path = folder / LOCK
        try:
            self._fd = _claimed.pop(folder, -1)
            if self._fd < 0:
                self._fd = locked(path)
        except BlockingIOError as error:
            raise StoreError(
                f"{folder} is in use by process {error}; stop it, or give this server its own folder"
            ) from None
        except OSError as error:
            raise unusable(path, error) from None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def write(path: Path, text: str, *, over: bool = True) -> None:
    """A small file for this user alone, whole and on disk, or as it was. Unless `over`, one that is there stays."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    if over:
        draft.replace(path)
    else:
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    sync(path.parent)


def token(path: str | PathLike[str]) -> str:
    """The secret by which the operator of this machine is known to the server; made once, for this user alone.

    Raises StoreError for one that is too short to be a secret: a file that was cut short.
    """
    file = make(path) / TOKEN
    try:
        if not file.exists():
            write(file, secrets.token_hex() + "\n", over=False)
        text = file.read_text(errors="replace").strip()
    except OSError as error:
        raise unusable(file, error) from None
    if len(text) < TOKEN_LEAST:
        raise StoreError(
            f"the token in {file} has {len(text)} characters, and anybody could guess it: remove that file, and the "
            "server makes a new one at its next start"
        )
    return text


def readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o077)
