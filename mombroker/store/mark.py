"""The mark beside a store: whose it is, and the time of its last durable commit.

It tells a store whose write-ahead log was lost or cut, that was emptied, deleted or replaced by an old copy, from one
that is as it was left. It is written after each commit and synced now and then: it is exact after a kill, may be older
than the store after a power failure, and is never newer.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from time import gmtime, strftime
from zlib import crc32

from mombroker.store import folder
from mombroker.store.reader import connect

MARK = "mark"
UNREADABLE = ("", 0)


def read(home: Path) -> tuple[str, int] | None:
    """Incarnation and time (ns) of the last commit, or UNREADABLE; None if there is no mark."""
    try:
        line = (home / MARK).read_text(errors="replace")
        text, _, sum = line.rstrip("\n").rpartition(" ")
        incarnation, now = text.split(" ")
        return (incarnation, int(now)) if int(sum, 16) == crc32(text.encode()) else UNREADABLE
    except FileNotFoundError:
        return None
    except ValueError:
        return UNREADABLE
    except OSError as error:
        raise folder.unusable(home / MARK, error) from None


def said(now: int) -> str:
    """A time in words."""
    seconds, rest = divmod(now, 1_000_000_000)
    return strftime(f"%Y-%m-%dT%H:%M:%S.{rest // 1_000_000:03}Z", gmtime(seconds))


class Mark:
    """Written by the one process that has the store. Only the digits and the checksum of its line ever change."""

    def __init__(self, home: Path, incarnation: str, now: int):
        name = f"{incarnation} ".encode()
        self._at, self._sum = len(name), crc32(name)
        folder.write(home / MARK, (name + self._rest(now)).decode())
        self._fd, self._now = os.open(home / MARK, os.O_WRONLY), now

    def _rest(self, now: int) -> bytes:
        digits = b"%020d" % now
        return b"%b %08x\n" % (digits, crc32(digits, self._sum))

    def at(self, now: int) -> None:
        """A commit of this time is durable. That of replicas may be of no later one: its rows are still to come."""
        if now != self._now:
            os.pwrite(self._fd, self._rest(now), self._at)
            self._now = now

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
        self._fd = -1


def accept(home: Path) -> str:
    """Let the next start go on with the store as it is. Returns what that will be. Raises StoreError: in use."""
    lock = folder.Lock(home)
    try:
        (home / MARK).unlink(missing_ok=True)
        store = home / folder.STORE
        if store.exists() and _has_tables(store):
            return f"the next start goes on with {store} as it is; what it lacks is lost"
        (home / folder.TOKEN).unlink(missing_ok=True)
        return f"the next start makes a new store in {home}; what the old one held is lost"
    except OSError as error:
        raise folder.unusable(home, error) from None
    finally:
        lock.release()


def _has_tables(store: Path) -> bool:
    try:
        with contextlib.closing(connect(store, "ro")) as conn:
            return conn.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    except sqlite3.Error:
        return True  # damaged: the next start says how
