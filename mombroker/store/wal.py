"""What SQLite writes to its write-ahead log: counted after each commit, in the header of the log's index."""

import os
import struct
from pathlib import Path

HEADER = struct.Struct("=I12xI")  # mxFrame and aSalt[0] of WalIndexHdr (www.sqlite.org/walformat.html)
OFFSET = 16
FRAME_BYTES, START_BYTES = 24, 32  # what a frame has before its page; what the log begins with
DESCRIPTORS = Path("/proc/self/fd")


class Wal:
    """Bytes and syncs of one write-ahead log since it was opened; `known` is False where this system does not tell.

    SQLite's own descriptor of the index is read: to open the file again, and close it, would give up SQLite's locks.
    """

    __slots__ = ("bytes", "syncs", "_fd", "_page", "_frames", "_salt")

    def __init__(self, store: Path, page: int):
        self.bytes = self.syncs = 0
        self._page = page + FRAME_BYTES
        self._fd = _descriptor(store.with_name(store.name + "-shm"))
        self._frames, self._salt = self._header() if self.known else (0, 0)

    @property
    def known(self) -> bool:
        return self._fd >= 0

    def committed(self) -> None:
        """A transaction that wrote something is durable. It cost one sync; one that begins the log anew, after all of
        it was copied to the file, comes with four: of the log and the file, when it was copied, and of its header."""
        if self._fd < 0:
            return
        frames, salt = self._header()
        if salt == self._salt and frames >= self._frames:
            self.bytes += (frames - self._frames) * self._page
            self.syncs += 1
        else:
            self.bytes += frames * self._page + START_BYTES
            self.syncs += 4
        self._frames, self._salt = frames, salt

    def _header(self) -> tuple[int, int]:
        frames, salt = HEADER.unpack(os.pread(self._fd, HEADER.size, OFFSET))
        return frames, salt

    def close(self) -> None:
        """Before SQLite closes the index."""
        self._fd = -1


def _descriptor(index: Path) -> int:
    """SQLite's own of this file; -1 if it cannot be found."""
    try:
        wanted = index.stat()
        for each in DESCRIPTORS.iterdir():
            try:
                found = os.fstat(int(each.name))
            except OSError:  # that of this list
                continue
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return int(each.name)
    except OSError:
        pass
    return -1
