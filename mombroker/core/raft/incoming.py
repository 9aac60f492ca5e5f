"""A snapshot that comes in, chunk by chunk."""

from __future__ import annotations

from zlib import crc32

from mombroker.core.raft.messages import InstallSnapshot, Snapshot


class Incoming:
    """How far it has come.

    next    the offset that is wanted
    whole   all of it is here, and is what was sent
    """

    __slots__ = ("snapshot", "next", "whole", "_sum")

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot
        self._begin()

    def _begin(self) -> None:
        self.next, self._sum, self.whole = 0, 0, False

    def takes(self, message: InstallSnapshot) -> bool:
        """Is this the chunk that is wanted? It is here then."""
        if message.offset != self.next or self.whole:
            return False
        self.next += len(message.data)
        self._sum = crc32(message.data, self._sum)
        if self.next >= self.snapshot.size:
            if (self.next, self._sum) == (self.snapshot.size, self.snapshot.sum):
                self.whole = True
            else:
                self._begin()  # it is not what was sent
        return True
