"""What goes out to one client, in bounded pieces, and what of it the system has taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def straight(socket: Any, most: int) -> Callable[[bytes], int]:
    """Writes to a socket what it takes at once, so much at most, and returns how much that was: nothing where the
    system says why not, which the transport is told, too."""
    send: Callable[[bytes | memoryview], int] = socket.send

    def write(data: bytes) -> int:
        try:
            return send(data if len(data) <= most else memoryview(data)[:most])
        except OSError:
            return 0

    return write


class Output:
    """1. At most one write is with the transport; what comes meanwhile is one write afterwards.
    2. A delivery counts as written when the system has taken all its bytes.

    straight   writes to the socket what this takes at once, and returns how much; None: it cannot
    took       called when the system has taken a delivery straight away that counts as written
    taken      the highest tag that the system has
    waiting    bytes that no write has yet, and `bytes`, of all writes
    busy       a write is with the transport
    said       when the last bytes left
    """

    __slots__ = (
        "transport", "straight", "took", "seconds", "taken", "waiting", "bytes", "busy", "said", "_parts", "_tag",
        "_written",
    )  # fmt: skip

    def __init__(self, seconds: Callable[[], float], took: Callable[[], None]):
        self.transport: Any = None
        self.straight: Callable[[bytes], int] | None = None
        self.seconds, self.took = seconds, took
        self.taken = self.waiting = self.bytes = 0
        self.busy, self.said = False, 0.0
        self._parts: list[bytes] = []
        self._tag = self._written = 0  # the highest tag of all, and of what is with the transport

    def put(self, data: bytes, tag: int, last: bool) -> None:
        """Write it now, or behind what the transport has; what is the last, by `finish`. `tag`: the highest of a
        delivery that is settled by it."""
        self._tag = tag
        if not (self.busy or last or self._parts):
            self._write(data)
            return
        self._parts.append(data)
        self.waiting += len(data)
        if not self.busy and not last:
            self.flush()

    def flush(self) -> None:
        data = b"".join(self._parts)
        self.drop()
        self._write(data)

    def _write(self, data: bytes) -> None:
        self.bytes += len(data)
        self._written = self._tag
        self.said = self.seconds()
        if self.straight is not None:  # spares a turn of the loop and a visit to epoll
            sent = self.straight(data)
            if sent == len(data):
                if self.taken != self._written:
                    self.taken = self._written
                    self.took()
                return
            data = data[sent:]
        self.busy = True
        self.transport.write(data)

    def drained(self) -> None:
        """All that was written is with the system."""
        self.busy = False
        self.taken = self._written

    def beat(self, data: bytes) -> None:
        """Write a sign of life, while nothing is with the transport."""
        self.said = self.seconds()
        self.busy = True
        self.bytes += len(data)
        self.transport.write(data)

    def finish(self) -> None:
        """Give all to the transport: no more comes."""
        if self._parts:
            self.bytes += self.waiting
            self.transport.write(b"".join(self._parts))
            self.drop()

    def drop(self) -> None:
        """What waits does not leave."""
        self._parts.clear()
        self.waiting = 0
