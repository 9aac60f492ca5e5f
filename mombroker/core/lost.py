"""Lost servers: decided by the registry, applied at delivery. What lived on one is gone; another may take its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from mombroker.core.errors import UnknownNotification
from mombroker.core.message import Message
from mombroker.core.meta import LOST_SERVER, NEXT, RESET, VIEWS
from mombroker.core.replicated import Replicated, Replication

DECLARE, DECLARED = "_lose", "_lost"
LAST = (1 << 62) - 1


def successor(now: int) -> dict[str, int]:
    """Rows of `meta` of a store that is made at that time (ns) in place of a lost one: what that one gave numbers to,
    messages and views, was less than one a microsecond, and none is given again."""
    return {RESET: now, NEXT: now // 1000, VIEWS: now // 1000}


class Lost(Replicated):
    """known     lost server -> the epoch that a successor begins under, and the server behind which it begins; that is
              empty as long as the registry has not decided it
    begun     has the domain that we share with a server begun anew under this epoch? It is told nothing before
    applied   called with a server that is lost, and whoever it begins behind
    """

    begun: Callable[[str, int], bool]

    agent, prefix = "_lost", LOST_SERVER

    def __init__(self, replication: Replication):
        super().__init__(replication)
        self.known: dict[str, tuple[int, str]] = {}
        for server, row in self.rows().items():
            epoch, sponsor = json.loads(row)
            self.known[server] = int(epoch), str(sponsor)
        self.applied: Callable[[str, str, int], None]
        self.define(DECLARE, self._read_asked, self._decide, DECLARED, self._read_told, self._declared)

    def fenced(self, server: str) -> int:
        """The epoch below which its store is of no use any more; 0 if it was never lost."""
        return self.known.get(server, (0, ""))[0]

    def decided(self, server: str) -> bool:
        """Has the registry decided that it is lost?"""
        return bool(self.known.get(server, (0, ""))[1])

    def fence(self, server: str, epoch: int) -> None:
        """Here, before it is decided."""
        if epoch > self.fenced(server):
            self._put(server, epoch, "")

    def declare(self) -> None:
        """Have the registry decide what it has not yet; what was asked before may have been lost on its way."""
        for server, (epoch, sponsor) in self.known.items():
            if not sponsor and self.begun(server, epoch):
                self.ask(DECLARE, json.dumps([server, epoch]).encode())

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all that is decided; see Newcomers.tables."""
        servers = self.tx.topology.servers
        for server, (epoch, sponsor) in self.known.items():
            if sponsor in servers and server in servers:
                payload = json.dumps([server, epoch, sponsor]).encode()
                yield self.tx.topology.registry or self.tx.name, DECLARED, payload

    def _put(self, server: str, epoch: int, sponsor: str) -> None:
        self.known[server] = epoch, sponsor
        self.keep(server, json.dumps([epoch, sponsor]))

    def _decide(self, asker: str, server: str, epoch: int) -> bytes | None:
        known, sponsor = self.known.get(server, (0, ""))
        if epoch < known or (epoch == known and sponsor):
            return None  # it is decided
        return json.dumps([server, epoch, asker]).encode()

    def _declared(self, server: str, epoch: int, sponsor: str) -> None:
        known, behind = self.known.get(server, (0, ""))
        if epoch < known or (epoch == known and behind):
            return
        self._put(server, epoch, sponsor)
        self.applied(server, sponsor, epoch)

    def _read_asked(self, message: Message) -> tuple[str, int]:
        match _values(message):
            case [str(server), int(epoch)] if server in self.tx.topology.servers and 0 < epoch <= LAST:
                return server, epoch
        raise UnknownNotification(f"{message.type} came with no server of this bus, or no epoch")

    def _read_told(self, message: Message) -> tuple[str, int, str]:
        match _values(message):
            case [str(server), int(epoch), str(sponsor)] if 0 < epoch <= LAST:
                if {server, sponsor} <= self.tx.topology.servers.keys():
                    return server, epoch, sponsor
        raise UnknownNotification(f"{message.type} came with no servers of this bus, or no epoch")


def _values(message: Message) -> object:
    try:
        return json.loads(message.payload)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None
