"""Replicated tables: decided by the registry server, told to all, applied at delivery, kept in `meta`.

1. A server asks the registry for a change.
2. The registry decides it, which puts the changes of all servers into one order, and tells all by one multicast.
3. Each server applies it at delivery: what is sent after a change finds it applied wherever it arrives.
4. Whoever asked is answered once its own server has applied it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.transaction import Transaction


class Replication(NamedTuple):
    """What a table needs of its server.

    answer   answers an operator (ticket, reply), unless that was done already
    handle   has messages of a type read, which raises UnknownNotification for what cannot be meant, and obeyed at their
             delivery, where they are sent before anything else happens: (type, read, obey)
    """

    tx: Transaction
    send: Callable[[Message], None]
    answer: Callable[[int, dict[str, Any] | str], None]
    handle: Callable[[str, Callable[[Message], object], Callable[[Message], None]], None]


class Replicated:
    """A table of this kind. Its handlers never fail, wait or retry.

    agent     who holds it on each server, `SERVER/AGENT`
    prefix    of its keys in `meta`
    tickets   operators here that wait for the decision about a key
    """

    agent: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, replication: Replication):
        self.tx, self._send, self._answer, self._handle = replication
        self.tickets: dict[str, list[int]] = {}

    # -- how a table is made ---------------------------------------------------------------------------------------

    def define(
        self,
        asked: str,
        read_asked: Callable[[Message], tuple[Any, ...]],
        decide: Callable[..., bytes | None],
        told: str,
        read_told: Callable[[Message], tuple[Any, ...]],
        apply: Callable[..., None],
    ) -> None:
        """One kind of change. What is read of a message `asked` goes to `decide` on the registry, behind the server
        that asks. What that returns is told to all, unless it is None; what is read of it goes to `apply` everywhere.
        """

        def decided(message: Message) -> None:
            payload = decide(message.source.partition("/")[0], *read_asked(message))
            if payload is not None:
                self._tell(self.tx.topology.servers, told, payload)

        self._handle(asked, read_asked, decided)
        self._handle(told, read_told, lambda message: apply(*read_told(message)))

    def refusal(self, type: str, read: Callable[[Message], tuple[Any, ...]], apply: Callable[..., None]) -> None:
        """What `refuse` tells whoever has asked."""
        self._handle(type, read, lambda message: apply(*read(message)))

    # -- where it is asked for, decided and applied ------------------------------------------------------------------

    def ask(self, type: str, payload: bytes) -> None:
        """Ask the registry for a change."""
        tx = self.tx
        registry = tx.topology.registry or tx.name
        source = f"{tx.name}/{self.agent}"
        self._send(new_message(tx, source, (f"{registry}/_registry",), type, payload, flags=BOUNCE))

    def refuse(self, asker: str, type: str, payload: bytes) -> None:
        """Tell the server that has asked for a change that there is none."""
        self._tell((asker,), type, payload)

    def _tell(self, servers: Any, type: str, payload: bytes) -> None:
        dests = tuple(f"{name}/{self.agent}" for name in servers)
        self._send(new_message(self.tx, f"{self.tx.name}/_registry", dests, type, payload, flags=BOUNCE))

    # -- what is kept, and who waits ---------------------------------------------------------------------------------

    def rows(self) -> dict[str, str]:
        """What the store has, by key."""
        at = len(self.prefix)
        return {key[at:]: str(row) for key, row in self.tx.reader.meta(self.prefix).items()}

    def keep(self, key: object, row: str | None) -> None:
        """Store a row, or delete it."""
        self.tx.rows.meta[f"{self.prefix}{key}"] = row

    def wait(self, key: str, ticket: int) -> None:
        """An operator here waits for the decision about a key."""
        self.tickets.setdefault(key, []).append(ticket)

    def settle(self, key: str, reply: dict[str, Any] | str) -> bool:
        """Answer whoever waits for a key; whether anybody did."""
        waiting = self.tickets.pop(key, [])
        for ticket in waiting:
            self._answer(ticket, reply)
        return bool(waiting)
