"""The listener for clients of all protocols: their connections, logins, and the replies of the agent server."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet import defer, protocol

from mombroker.broker.commands import Login, Reply
from mombroker.core.errors import MomError
from mombroker.core.strangers import Complaints, Newcomers
from mombroker.core.times import SECOND
from mombroker.core.topology import is_loopback
from mombroker.gateway import tls as secure
from mombroker.gateway.connection import Client
from mombroker.gateway.parts import PartedClient
from mombroker.gateway.ports import Address, Files, Ports
from mombroker.gateway.room import Room
from mombroker.gateway.session import Sessions
from mombroker.gateway.times import Times
from mombroker.gateway.users import Logins

MAX_LOGINS = 1_000  # connections without a login; the oldest goes
MAX_REMARKS = 100  # that are logged, each once
NOBODY = "access refused: log in as a user of this bus, whom `mom user add` makes"


class Connected(Protocol):
    """A connection of whatever protocol."""

    transport: Any
    tls: bool


class Gateway:
    """All client connections of one agent server.

    post       takes events for it
    now        wall clock in ns
    anonymous  clients of this host need no user
    client_ca  of those who sign certificates of clients; `is_user` tells whether a name is a user's
    """

    def __init__(
        self,
        reactor: Any,
        name: str,
        post: Callable[[Any], None],
        log: Callable[[str], None],
        logins: Logins,
        now: Callable[[], int],
        anonymous: bool = False,
        times: Times | None = None,
        max_unfinished: int = 64 << 20,
        files: Files | None = None,
        max_transactions: int = 256 << 20,
        client_ca: str = "",
        is_user: Callable[[str], bool] = lambda name: False,
    ):
        self.client_ca, self.is_user = client_ca, is_user
        self.reactor, self.name, self.post, self.log, self.logins, self.now = reactor, name, post, log, logins, now
        self.anonymous = anonymous
        self.times = times or Times()
        self.boot = os.urandom(4).hex()
        self.clients: dict[int, Client] = {}
        self.client_ids: Counter[str] = Counter()  # of open connections
        self.total = self.refusals = 0
        self._numbers = itertools.count(1)  # of connections and parts of such
        self._parts: dict[int, tuple[PartedClient, int]] = {}
        self._complaints = Complaints(log, reactor.seconds)
        self.room = Room(reactor, self.clients, self.say, max_unfinished, max_transactions)
        self._ports = Ports(reactor, name, self.say, files)
        self.ports = self._ports.numbers  # setting -> the port that listens
        self._certified: secure.Certified | None = None
        self._new: Newcomers[Client] = Newcomers()  # without a login yet
        self._remarks: set[str] = set()
        self._stopped: defer.Deferred[None] | None = None

    # -- listening ---------------------------------------------------------------------------------------------------

    def listen(
        self,
        sessions: Sessions,
        plain: Address | None,
        tls: Address | None = None,
        certificate: str = "",
        key: str = "",
    ) -> None:
        """Open the ports of a protocol. Raises MomError."""
        self.open(
            sessions.setting, sessions.name, lambda tls: _Accepting(self, sessions, tls), plain, tls, certificate, key
        )  # fmt: skip

    def open(
        self,
        setting: str,
        name: str,
        accepting: Callable[[bool], Any],
        plain: Address | None,
        tls: Address | None,
        certificate: str = "",
        key: str = "",
    ) -> None:
        """Listen for connections that a factory makes, which `accepting` is told whether they use TLS; all that do have
        one certificate. Raises MomError."""
        if plain is not None:
            self._ports.listen(setting, plain, name, accepting(False))
        if tls is not None:
            if self._certified is None:
                self._certified = secure.Certified(certificate, key, self.client_ca)
            factory = secure.secured(accepting(True), self._certified, self.reactor)
            self._ports.listen(f"{setting}_tls", tls, name, factory)

    def accepted(self, sessions: Sessions, host: str, tls: bool) -> Client | None:
        if self.stopping:
            return None
        while len(self._new) >= MAX_LOGINS:
            surplus = self._new.surplus()
            self._new.discard(surplus.host, surplus)
            self.say(surplus.host, f"too many clients connect without logging in: the oldest of {surplus.host} go")
            surplus.abort()
        self.total += 1
        number = next(self._numbers)
        session: Any = sessions.session(f"{self.name}/{self.boot}-{number}")
        kind = PartedClient if sessions.parted else Client
        client = self.clients[number] = kind(self, number, session, sessions.setting, host, tls)
        self._new.add(host, client)
        return client

    # -- logins ------------------------------------------------------------------------------------------------------

    def check(self, client: Client, login: Login) -> None:
        """Let the client in, or not."""
        self._new.discard(client.host, client)
        user = login.user
        if (shown := self.shown(client)) is not None:
            if wrong := self.mistaken(user, shown):
                self._refuse(client, wrong)
            else:
                client.admitted(shown)
            return
        if self.free(client.host) and self.logins.stored(user) is None:
            client.admitted("")
            return
        try:
            client.login = self.logins.check(
                user, login.passcode, lambda right: self._checked(client, user, right), client.host
            )
        except MomError as error:
            self._refuse(client, str(error))

    def shown(self, conn: Connected) -> str | None:
        """The user that the certificate of a connection names; None if it has shown none."""
        return secure.user_of(conn.transport) if self.client_ca and conn.tls else None

    def mistaken(self, user: str, shown: str) -> str:
        """Why somebody who says that it is this user (empty: nobody) is not the one of the certificate that it has
        shown; empty if it is."""
        if user not in ("", shown):
            return f"the certificate is of user {shown[:80]!r}, not of {user[:80]!r}: leave the login out"
        return "" if self.is_user(shown) else f"access refused for user {shown[:80]!r}"

    def free(self, host: str) -> bool:
        """Whether clients of this host need no user."""
        return self.anonymous and is_loopback(host)

    def _checked(self, client: Client, user: str, right: bool) -> None:
        if client.lost:
            return
        if right:
            client.admitted(user)
        else:
            self._refuse(client, f"access refused for user {user[:80]!r}" if user else NOBODY)

    def _refuse(self, client: Client, reason: str) -> None:
        self.refusals += 1
        client.end(reason)

    def end(self, numbers: list[int], reason: str) -> None:
        """End the connections with these numbers."""
        for number in numbers:
            if number in self.clients:
                self.clients[number].end(reason)

    def reload(self, certificate: str, key: str) -> None:
        """Read the certificate anew, for connections from now on. Raises MomError; then the old one stays."""
        if self._certified is not None:
            self._certified.load(certificate, key)

    # -- the driver's side -------------------------------------------------------------------------------------------

    def reply(self, number: int, replies: list[Reply]) -> None:
        """To be called once per client and commit. Replies for a client that is gone are dropped."""
        client = self.clients.get(number)
        if client is not None:
            client.said(replies)
        elif number in self._parts:
            of, part = self._parts[number]
            of.said_to(part, replies)

    def enroll(self, client: PartedClient, part: int) -> int:
        number = next(self._numbers)
        self._parts[number] = client, part
        return number

    def parts_of(self, number: int) -> list[int]:
        """The numbers of what a connection consists of, beside itself."""
        return [part for part, (client, _) in self._parts.items() if client.number == number]

    def strike(self, number: int) -> None:
        del self._parts[number]

    def closed(self, client: Client) -> None:
        del self.clients[client.number]
        self._new.discard(client.host, client)
        if self._stopped is not None and not self.clients and not self._stopped.called:
            self._stopped.callback(None)

    def say(self, host: str, line: str) -> None:
        """Log a line that a client causes, at a bounded rate."""
        self._complaints.say(host, line)

    def remark(self, host: str, who: str, what: str) -> None:
        """Log what is worth saying once, whoever does it."""
        if what not in self._remarks and len(self._remarks) < MAX_REMARKS:
            self._remarks.add(what)
            self.say(host, f"{who}: {what}")

    @property
    def stopping(self) -> bool:
        return self._stopped is not None

    def status(self) -> dict[str, Any]:
        return {
            "clients": len(self.clients), "total": self.total, "refused": self.refusals, "ports": dict(self.ports),
            "unfinished_bytes": self.room.unfinished.total, "transaction_bytes": self.room.booked,
        }  # fmt: skip

    @property
    def expires(self) -> int:
        """When the certificate ends, in s since 1970; 0: there is none."""
        return self._certified.expires if self._certified is not None else 0

    def problems(self) -> list[str]:
        """One sentence for each thing that an operator should act on."""
        ending = ""
        if self._certified is not None:
            ending = secure.ending(self._certified.file, self._certified.expires, self.now() // SECOND)
        return self._ports.problems() + self.room.problems() + ([ending] if ending else [])

    def connections(self) -> list[dict[str, Any]]:
        return [client.status() for client in self.clients.values()]

    # -- the end -----------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """New clients wait until `let_in`, in the system's queue."""
        self._ports.hold()

    def let_in(self) -> None:
        self._ports.let_in()

    def deaf(self) -> None:
        """Take no new clients."""
        self._ports.close()

    def stop(self) -> defer.Deferred[None]:
        """Send the clients away; fires when they are gone."""
        if self._stopped is None:
            self._stopped = defer.Deferred()
            self.room.stop()
            self.deaf()
            for client in list(self.clients.values()):
                client.end(f"server {self.name} is stopping: connect again")
            if not self.clients:
                self._stopped.callback(None)
        return self._stopped

    def abort(self) -> None:
        """Nothing more leaves."""
        self.deaf()
        for client in list(self.clients.values()):
            client.abort()


class _Accepting(protocol.Factory):
    noisy = False

    def __init__(self, gateway: Gateway, sessions: Sessions, tls: bool):
        self.gateway, self.sessions, self.tls = gateway, sessions, tls

    def buildProtocol(self, addr: Any) -> Any:
        return self.gateway.accepted(self.sessions, addr.host, self.tls)
