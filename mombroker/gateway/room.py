"""What all clients of a server together may hold of its memory before it has obeyed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mombroker.gateway.unfinished import Unfinished

TICK_S = 1.0  # between two looks at what is short


class Guest(Protocol):
    """A client; `held`, bytes of an unfinished frame, and `booked`, of open transactions, are this module's."""

    origin: str
    held: int
    booked: int
    opened: bool

    def pace(self) -> None: ...
    def read_at_once(self, short: bool) -> None: ...
    def end(self, reason: str) -> None: ...


class Room:
    """Two bounds: for frames that are not whole yet, and for open transactions.

    clients   all, by number
    say       logs a line about a host
    """

    def __init__(
        self,
        reactor: Any,
        clients: Mapping[int, Guest],
        say: Callable[[str, str], None],
        max_unfinished: int,
        max_transactions: int,
    ):
        self.reactor, self.clients, self.say = reactor, clients, say
        self.unfinished = Unfinished(max_unfinished)
        self.max_transactions, self.booked = max_transactions, 0
        self._tick: Any = None
        self._stopped = False

    def hold(self, client: Guest, size: int) -> None:
        """So many bytes of a client's frame wait for its rest."""
        unfinished = self.unfinished
        if size == client.held:
            return
        was = unfinished.short
        unfinished.count(client, size)
        if unfinished.short != was:
            self._read_at_once()
        if unfinished.short and self._tick is None:
            text = "the frames of clients that are not whole yet hold more than max_unfinished: their clients wait"
            self.say("", text)
            self._tick = self.reactor.callLater(TICK_S, self._look)

    def _look(self) -> None:
        self._tick = None
        self.unfinished.tick()
        if self.unfinished.short and not self._stopped:
            self._tick = self.reactor.callLater(TICK_S, self._look)
        else:
            self._read_at_once()

    def _read_at_once(self) -> None:
        for client in self.clients.values():
            if client.opened:
                client.read_at_once(self.unfinished.short)

    def book(self, client: Guest, size: int) -> None:
        """So many bytes are in the open transactions of a client. Beyond the bound for all, the largest of the address
        that has most is ended: its transactions are aborted."""
        grown, client.booked = size - client.booked, size
        self.booked += grown
        while grown > 0 and self.booked > self.max_transactions:
            sums: Counter[str] = Counter()
            for each in self.clients.values():
                sums[each.origin] += each.booked
            most = sums.most_common(1)[0][0]
            largest = max((each for each in self.clients.values() if each.origin == most), key=lambda each: each.booked)
            largest.end(
                f"the open transactions of all clients hold {self.booked} bytes of max_transactions = "
                f"{self.max_transactions}, and these most: COMMIT sooner, or raise max_transactions in [limits]"
            )

    def leave(self, client: Guest) -> None:
        self.hold(client, 0)
        self.book(client, 0)

    def stop(self) -> None:
        """The clients are sent away."""
        self._stopped = True

    def problems(self) -> list[str]:
        """One sentence for each thing that an operator should act on."""
        if not self.unfinished.short:
            return []
        return [
            f"the frames of clients that are not whole yet hold {self.unfinished.total} bytes of max_unfinished = "
            f"{self.unfinished.most}: large ones wait; raise it in [limits] if that lasts"
        ]
