"""One bound for the frames of all clients of a server that are not whole yet: who goes on, and who waits."""

from __future__ import annotations

from typing import Protocol

SMALL = 16 << 10  # bytes of an unfinished frame with which a client always goes on
PATIENCE = 5  # ticks in which one large frame must become whole while others wait


class Holder(Protocol):
    """A client; `held` is this module's."""

    origin: str
    held: int

    def pace(self) -> None:
        """Asks `waits` and reads on, or does not."""

    def end(self, reason: str) -> None: ...


class Unfinished:
    """Bytes of frames that are not whole yet.

    While there are more than `most`, the server is short: of the clients with a large unfinished frame one goes on, the
    oldest of the address that holds least, and each of the others waits as soon as more of its frame comes in.
    When no large frame becomes whole for PATIENCE ticks, the largest of the address that holds most is ended.

    1. `total` is the sum of what the clients hold.
    2. Nobody waits unless the server is short; then it is so until `total` is half of `most` or nobody waits.
    """

    def __init__(self, most: int):
        self.most = most
        self.total = 0
        self.short = False
        self._sums: dict[str, int] = {}  # by address
        self._large: dict[Holder, None] = {}  # in the order in which they began
        self._paused: dict[Holder, None] = {}
        self._first: Holder | None = None
        self._made = False  # a large frame became whole, or was given up, since the last tick
        self._idle = 0

    def waits(self, client: Holder) -> bool:
        return client in self._paused

    def count(self, client: Holder, size: int) -> None:
        """So many bytes of a client's frame are there now; 0 when it is whole, or the client has gone."""
        grown, large = size - client.held, client.held > SMALL
        client.held = size
        self.total += grown
        mine = self._sums[client.origin] = self._sums.get(client.origin, 0) + grown
        if not mine:
            del self._sums[client.origin]
        if size > SMALL:
            self._large[client] = None
        elif large:
            del self._large[client]
            self._paused.pop(client, None)
            self._made = True
        if grown < 0:
            self._relax()
        elif self.total > self.most and size > SMALL:
            self.short = True
            if client is not self._goes_on():
                self._paused[client] = None

    def _goes_on(self) -> Holder:
        if self._first not in self._large:
            self._choose()
        assert self._first is not None, "nobody has a large frame"
        return self._first

    def _choose(self) -> None:
        """Let the oldest of the address that holds least go on."""
        least = min({client.origin for client in self._large}, key=lambda each: self._sums[each])
        self._first = next(client for client in self._large if client.origin == least)
        self._resume([self._first])

    def _resume(self, clients: list[Holder]) -> None:
        for client in clients:
            if client in self._paused:
                del self._paused[client]
                client.pace()

    def _relax(self) -> None:
        if self.short and (self.total <= self.most // 2 or not self._large):
            self.short = False
            self._first, self._idle = None, 0
            self._resume(list(self._paused))
        elif self._paused and self._first not in self._large:
            self._choose()

    def tick(self) -> None:
        """To be called every second while it is `short`."""
        if not self._large:
            self._relax()
            return
        self._idle = 0 if self._made or not self._paused else self._idle + 1
        self._made = False
        self._choose()
        if self._idle > PATIENCE:
            self._idle = 0
            most = max({client.origin for client in self._large}, key=lambda each: self._sums[each])
            largest = max((each for each in self._large if each.origin == most), key=lambda each: each.held)
            largest.end(
                f"the frames that are not whole yet hold {self.total} bytes of max_unfinished = {self.most}, and none "
                "is completed: send this one again, or raise max_unfinished in [limits]"
            )

    def check(self) -> None:
        """Assert the invariants."""
        assert self.total == sum(self._sums.values()) and min(self._sums.values(), default=1) > 0, "wrong sums"
        assert self.short or not self._paused, "somebody waits for nothing"
        assert self._paused.keys() <= self._large.keys(), "a small frame waits"
