"""The gate: what enters some domains from outside waits in one queue while these are changed (protocols §8.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mombroker.core.collection import Collections
from mombroker.core.message import Message
from mombroker.core.transaction import COMMIT, Transaction

GATE, WAITING = "_gate", "waiting"  # what waits is in the collection WAITING of the agent <server>/GATE
PAGE = 100


class Gate:
    """Closed, or draining: then what waits enters in its order, and everything else behind it.

    1. What waits here is one entry a message, in the order in which it came.
    2. Nothing enters one of `behind` while there is an entry; with no gate there is none.
    3. `own` counts entries with copies for agents of this server, which a back end is to order.

    closed   by whom it is closed, before which domains, and whether what waits may be let in
    behind   the domains that it is before, by name, and who has closed it there; empty: there is no gate
    several  not all of them are closed by the same
    draining   entries leave: they are let in, or have nowhere to go
    waiting  the entries
    """

    __slots__ = ("tx", "closed", "behind", "several", "draining", "waiting", "own")

    def __init__(self, tx: Transaction, collections: Collections):
        self.tx = tx
        self.closed: dict[str, tuple[frozenset[str], bool]] = {}
        self.behind: dict[str, str] = {}
        self.several = False
        self.draining = False
        self.waiting = collections.open(f"{tx.name}/{GATE}", WAITING)
        self.own = self._count()

    def __len__(self) -> int:
        return len(self.waiting)

    def close(self, who: str, domains: Iterable[str], draining: bool) -> None:
        """Somebody closes it before these domains, or opens it again with none; entries leave once nobody minds."""
        self.closed[who] = (frozenset(domains), draining)
        if not self.closed[who][0] and not draining:
            del self.closed[who]
        self.behind = {domain: who for who, (behind, _) in self.closed.items() for domain in behind}
        self.several = len({*self.behind.values()}) > 1
        self.draining = bool(self.closed) and all(draining for _, draining in self.closed.values())

    def before(self, into: str, domain: str) -> bool:
        """Is what comes from one domain, or from here (empty), to wait before it enters another one?"""
        who = self.behind.get(into)
        return who is not None and who != self.behind.get(domain)

    def put(self, message: Message, agents: Sequence[str]) -> None:
        """The copies of a message for these agents wait."""
        self.waiting.add(0, "\n".join(agents).encode(), message.encode())
        self.waiting.accept()
        self.own += self._is_own(agents)
        self.tx.urgency = COMMIT

    def entries(self) -> Iterator[tuple[int, bytes, list[str]]]:
        """What waits, in order: the row, the message's data, and the agents that it is for."""
        after = None
        while rows := self.waiting.scan(after, PAGE):
            after = rows[-1].key, rows[-1].id
            for row in rows:
                yield row.id, row.body, row.head.decode(errors="replace").split("\n")

    def take(self, id: int, agents: Sequence[str]) -> None:
        """An entry has left."""
        self.waiting.remove(id)
        self.waiting.accept()
        self.own -= self._is_own(agents)

    def lost(self, id: int) -> None:
        """An entry is damaged, and is set aside."""
        self.waiting.lost(id)
        self.own = self._count()

    def _count(self) -> int:
        return sum(self._is_own(agents) for _, _, agents in self.entries())

    def _is_own(self, agents: Sequence[str]) -> bool:
        return any(agent.startswith(f"{self.tx.name}/") for agent in agents)

    def check(self) -> None:
        assert self.behind or self.draining or not len(self), "2: entries wait at no gate"
        assert self.own == self._count(), "3: own copies are miscounted"
