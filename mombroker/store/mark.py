"""The mark beside a store: whose it is, and the time of its last durable commit.

It tells a store whose write-ahead log was lost or cut, that was emptied, deleted or replaced by an old copy, from one
that is as it was left. It is written after a commit, at most every 20 ms, and synced now and then: it is exact after a
clean stop, up to 20 ms older than the store after a kill, older still after a power failure, and never newer.
"""

import os
from pathlib import Path
from time import gmtime, strftime
from zlib import crc32

from mombroker.store import folder

MARK = "mark"
EVERY_NS = 20_000_000


def read(home: Path) -> tuple[str, int] | None:
    """Incarnation and time (ns) of the last commit; None if there is no mark, or it cannot be read."""
    try:
        line = (home / MARK).read_text(errors="replace")
        text, _, sum = line.rstrip("\n").rpartition(" ")
        incarnation, now = text.split(" ")
        return (incarnation, int(now)) if int(sum, 16) == crc32(text.encode()) else None
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise folder.unusable(home / MARK, error) from None


def said(now: int) -> str:
    """A time in words."""
    seconds, rest = divmod(now, 1_000_000_000)
    return strftime(f"%Y-%m-%dT%H:%M:%S.{rest // 1_000_000:03}Z", gmtime(seconds))


class Mark:
    """Written by the one process that has the store."""

    def __init__(self, home: Path, incarnation: str, now: int):
        self._incarnation = incarnation
        folder.write(home / MARK, self._line(now).decode())
        self._fd = os.open(home / MARK, os.O_WRONLY)
        self._written = self._now = now

    def _line(self, now: int) -> bytes:
        text = b"%s %020d" % (self._incarnation.encode(), now)
        return b"%s %08x\n" % (text, crc32(text))

    def at(self, now: int) -> None:
        """A commit of this time is durable."""
        self._now = now
        if now - self._written >= EVERY_NS:
            self._write()

    def _write(self) -> None:
        os.pwrite(self._fd, self._line(self._now), 0)
        self._written = self._now

    def sync(self) -> None:
        self._write()
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
        if store.exists() and store.stat().st_size:
            return f"the next start goes on with {store} as it is; what it lacks is lost"
        (home / folder.TOKEN).unlink(missing_ok=True)
        return f"the next start makes a new store in {home}; what the old one held is lost"
    except OSError as error:
        raise folder.unusable(home, error) from None
    finally:
        lock.release()
