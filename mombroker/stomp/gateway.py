"""The listener for STOMP clients: sockets, TLS, logins, heart-beats, and writes of bounded size.

What frames mean is in session.py; here bytes, time and the agent server's events meet.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL
from twisted.internet import defer, protocol, tcp
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer  # type: ignore[import-untyped]

from mombroker.broker.commands import Login, Reply
from mombroker.core.errors import MomError
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.core.strangers import Complaints, Newcomers, origin
from mombroker.core.topology import is_loopback
from mombroker.stomp.frames import BEFORE_LOGIN, Parser
from mombroker.stomp.session import Session, Settings
from mombroker.stomp.unfinished import Unfinished
from mombroker.stomp.users import Logins, Waiter

Address = tuple[str, int]

BACKLOG = 1_024
MAX_LOGINS = 1_000  # connections without a CONNECT; the oldest goes
# A batch is what was read at once, and larger ones cost less. More is written at once, or a client that takes all it is
# sent would fall behind one that sends, and what waits for it costs more.
READ_BYTES, WRITE_BYTES = 256 << 10, 1 << 20
MAX_WAITING = 16 << 20  # bytes for a client that does not read; beyond it we do not read it either
# Before the login so much is read at once, and no more while so much waits for it.
EARLY_BYTES = 16 << 10
SHORT_BYTES = 16 << 10  # read at once while unfinished frames are over their bound
MAX_REMARKS = 100  # that are logged, each once
TICK_S = 1.0  # between two looks at what is short
CIPHERS = b"ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all good
SHORT = (
    "{} is short of file descriptors (it has {}): new clients wait until others leave; raise the limit of open files "
    "(LimitNOFILE, ulimit -n)"
)
KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
PLAIN_ON_TLS = (
    "wrong version number",
    "http request",
    "https proxy request",
    "unknown protocol",
    "packet length too long",
    "record layer",
)


@dataclass(slots=True)
class Times:
    """Seconds."""

    login: float = 10.0  # from the connection to its CONNECT
    close: float = 2.0  # for a client to read the last frame
    leave: float = 10.0  # for the proxy to answer all frames before the end
    tolerance: float = 2.5  # times the agreed interval: a client that is silent for longer is gone
    eagerness: float = 0.8  # times the agreed interval: our own beats


class Client(protocol.Protocol):
    """One connection.

    1. The agent server hears of it once when it is open and once when it is gone, commands in between.
    2. At most one write is with the transport; what comes meanwhile is one write afterwards.
    3. A delivery counts as written when the system has taken all its bytes.
    4. No timer is left when the connection is lost.
    """

    transport: Any

    def __init__(self, gateway: Gateway, number: int, host: str, tls: bool):
        self.gateway, self.number, self.host, self.tls = gateway, number, host, tls
        self.origin, self.held = origin(host), 0  # bytes of a frame that is not whole yet
        self.booked = 0  # bytes in open transactions
        self.session = Session(f"{gateway.name}/{gateway.boot}-{number}", gateway.now, gateway.settings)
        self.user = ""
        self.client_id: str | None = None  # that it has while it is open
        self.since = gateway.now()
        self.opened = self.closing = self.lost = False
        self.login: Waiter | None = None
        self.bytes_in = self.bytes_out = 0
        self._socket: Any = None  # the transport below TLS
        self._straight: Callable[[bytes], Any] | None = None  # writes to the socket what this takes at once
        self._busy = self._paused = self._checking = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._written = self._taken = self._told = 0  # tags: the highest with the transport, with the system, and told
        self._heard = self._said = 0.0
        self._doubted = False
        self._timers: dict[str, Any] = {}

    # -- Twisted's side --------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        self._socket = self.transport.transport if self.tls else self.transport
        self._socket.bufferSize, self._socket.SEND_LIMIT = EARLY_BYTES, WRITE_BYTES
        self._straight = None if self.tls else getattr(self.transport, "writeSomeData", None)
        with suppress(OSError):  # it may be gone again already
            self._socket.setTcpNoDelay(True)
            self._socket.setTcpKeepAlive(True)
            handle = self._socket.getHandle()
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._socket.registerProducer(self, False)
        self._set("login", self.gateway.times.login, self._no_login)

    def dataReceived(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._heard = self.gateway.reactor.seconds()
        if not self.closing:
            self._tell()  # what the client has read may be why it says this
            self.session.receive(data)
            self._act()
            if self.session.parser.waiting != self.held:
                self._hold()
            if self.session.transactions.bytes != self.booked:
                self.gateway.book(self, self.session.transactions.bytes)

    def _hold(self) -> None:
        """Tell how much of a frame waits for its rest."""
        self.gateway.hold(self, 0 if self.closing else self.session.parser.waiting)
        self.pace()

    def connectionLost(self, reason: Any = ConnectionDone) -> None:
        self.lost = True
        for name in list(self._timers):
            self._unset(name)
        self._waiting.clear()
        self.gateway.hold(self, 0)
        self.gateway.book(self, 0)
        if self.login is not None:
            self.login.drop()
        if not self.bytes_in and self.tls and reason.check(SSL.Error):
            self.gateway.tls_failed(self.host, reason.value)
        self._gone()
        self.gateway.closed(self)

    def resumeProducing(self) -> None:
        """All that was written is with the system."""
        if self._socket.disconnecting:  # TLS wants to close it, which waits for us
            self._socket.unregisterProducer()
            return
        self._busy = False
        self._taken = self._written
        self._tell()
        if self._waiting and not self.lost:
            self._flush()

    def pauseProducing(self) -> None: ...

    def stopProducing(self) -> None: ...

    # -- between socket and session ----------------------------------------------------------------------------------

    def _act(self) -> None:
        """Do what the session wants after bytes came in."""
        session, gateway = self.session, self.gateway
        for note in session.notes:
            gateway.remark(self.host, f"client {self.number} of {self.host}", note)
        session.notes.clear()
        if session.login is not None and not self._checking:
            self._checking = True
            self._unset("login")
            gateway.check(self, session.login)
        if session.commands:
            commands, session.commands = session.commands, []
            gateway.post(ClientCommands(self.number, commands))
        if session.state == "leaving" and "leave" not in self._timers:
            self._set("leave", gateway.times.leave, self._hurry)
        self._put_out()

    def admitted(self, user: str) -> None:
        """The login is good."""
        if self.closing or self.session.login is None:
            return
        login, ids = self.session.login, self.gateway.client_ids
        if login.exclusive and ids.get(login.client_id):
            self.end(f"client-id {login.client_id!r} is in use by another connection of {self.gateway.name}")
            return
        ids[login.client_id] += 1
        self.user, self.opened, self.client_id = user, True, login.client_id
        self.read_at_once(self.gateway.unfinished.short)
        self.gateway.post(ClientOpened(self.number, user, login.client_id, self.session.id))
        self._heard = self._said = self.gateway.reactor.seconds()
        self.session.accept()
        if self.session.expect_every:
            self._set("expect", self.session.expect_every / 1000, self._listen)
        if self.session.send_every:
            self._set("beat", self.session.send_every / 1000 * self.gateway.times.eagerness, self._beat)
        self._act()
        self._hold()

    def said(self, replies: list[Reply]) -> None:
        """What the proxy says; durable now."""
        if not self.closing:
            self.session.reply(replies)
            self._put_out()

    def end(self, reason: str) -> None:
        if not self.closing:
            self.session.end(reason)
            self._put_out()

    def _put_out(self) -> None:
        session = self.session
        if session.output:
            data = b"".join(session.output)
            session.output.clear()
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        if session.closed:
            self._close()
        else:
            if self._waiting and not self._busy:
                self._flush()
            self.pace()

    def _flush(self) -> None:
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self.bytes_out += len(data)
        self._written = self.session.written
        self._said = self.gateway.reactor.seconds()
        if self._straight is not None:  # spares a turn of the loop and a visit to epoll
            sent = self._straight(data)
            if sent == len(data):
                self._taken = self._written
                if self._taken > self._told:
                    self.gateway.reactor.callLater(0, self._tell)  # not while the agent server lets go of its outputs
                self.pace()
                return
            if isinstance(sent, int):
                data = data[sent:]
        self._busy = True
        self.transport.write(data)
        self.pace()

    def _tell(self) -> None:
        """Tell the agent server what the system has taken: before the next input of the client, and before its end."""
        if self._taken > self._told and self.opened:
            self._told = self._taken
            self.gateway.post(ClientWrote(self.number, self._told))

    def read_at_once(self, short: bool) -> None:
        self._socket.bufferSize = SHORT_BYTES if short else READ_BYTES

    def pace(self) -> None:
        """Read the client, or let it wait: while it asks for more than is answered, it does not read, much comes behind
        its CONNECT, or there is no room for the rest of its frame. Meanwhile it cannot be heard, so its silence does
        not count."""
        session = self.session
        paused = session.full or self._waiting_bytes > MAX_WAITING or (self.held > 0 and self._held_back())
        if paused != self._paused and not self.closing:
            self._paused = paused
            if paused:
                self._socket.pauseProducing()
            else:
                self._heard = self.gateway.reactor.seconds()
                self._socket.resumeProducing()

    def _held_back(self) -> bool:
        early = self.session.state == "login" and self.held >= EARLY_BYTES
        return early or self.gateway.unfinished.waits(self)

    # -- time --------------------------------------------------------------------------------------------------------

    def _set(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        def ring() -> None:
            del self._timers[name]
            call()

        self._timers[name] = self.gateway.reactor.callLater(seconds, ring)

    def _unset(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _no_login(self) -> None:
        self.end(f"no CONNECT frame within {self.gateway.times.login:g} s")

    def _hurry(self) -> None:
        self.session.hurry()
        self._put_out()

    def _listen(self) -> None:
        """Look whether the client still is there."""
        now, every = self.gateway.reactor.seconds(), self.session.expect_every / 1000
        left = self._heard + every * self.gateway.times.tolerance - now
        if self._paused or left > 0:
            self._doubted = False
            self._set("expect", max(left, every / 4), self._listen)
        elif not self._doubted:  # we may have been held up ourselves: read what lies there first
            self._doubted = True
            self._set("expect", min(every / 4, 1.0), self._listen)
        else:
            self.end(f"no heart-beat or other byte for {now - self._heard:.0f} s, where {every:g} s were agreed")

    def _beat(self) -> None:
        now, every = self.gateway.reactor.seconds(), self.session.send_every / 1000 * self.gateway.times.eagerness
        left = self._said + every - now
        if left <= 0.001 and not self._busy:
            self._said = now
            self._busy = True
            self.bytes_out += 1
            self.transport.write(b"\n")
        self._set("beat", left if left > 0.001 else every, self._beat)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Let the last bytes leave and be read. A socket with unread input would be reset, so that goes nowhere."""
        if self.closing:
            return
        self.closing = True
        self._free_client_id()
        for name in list(self._timers):
            self._unset(name)
        if self.session.fault and not self.gateway.stopping:
            who = f"client {self.number} ({self.user or 'anonymous'}) of {self.host}" if self.opened else self.host
            self.gateway.say(self.host, f"{who}: {self.session.fault}")
        self.session.parser = Parser(BEFORE_LOGIN)  # what it holds is of no more use
        self.gateway.hold(self, 0)
        self.gateway.book(self, 0)
        self._socket.unregisterProducer()
        if self._paused:
            self._socket.resumeProducing()
        if self._waiting:
            self.bytes_out += self._waiting_bytes
            self.transport.write(b"".join(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0
        if self.tls:
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()
        self._set("close", self.gateway.times.close, self.abort)
        self.gateway.reactor.callLater(0, self._gone)  # not while the agent server lets go of its outputs

    def _free_client_id(self) -> None:
        """Others may have its client id."""
        ids = self.gateway.client_ids
        if self.client_id is not None:
            ids[self.client_id] -= 1
            if not ids[self.client_id]:
                del ids[self.client_id]
            self.client_id = None

    def _gone(self) -> None:
        self._free_client_id()
        if self.opened:
            self._tell()
            self.opened = False
            self.gateway.post(ClientClosed(self.number))

    def abort(self) -> None:
        """Close at once; what the transport holds does not leave."""
        if not self.lost:
            self.transport.abortConnection()

    def status(self) -> dict[str, Any]:
        session = self.session
        return {
            "number": self.number, "user": self.user, "client_id": session.client_id, "host": self.host,
            "tls": self.tls, "version": session.version, "state": session.state, "since": self.since,
            "subscriptions": len(session.subs), "unsettled": len(session.unsettled.given),
            "transactions": len(session.transactions.open), "bytes_in": self.bytes_in, "bytes_out": self.bytes_out,
            "waiting_bytes": self._waiting_bytes, "paused": self._paused,
        }  # fmt: skip


class Files(Protocol):
    """The process's file descriptors (net/files.py)."""

    limit: int
    reserve: int

    def crowded(self) -> bool: ...
    def eased(self) -> bool: ...


class Gateway:
    """All client connections of one agent server.

    post       takes events for it
    now        wall clock in ns
    anonymous  clients of this host need no user
    """

    def __init__(
        self,
        reactor: Any,
        name: str,
        post: Callable[[Any], None],
        log: Callable[[str], None],
        logins: Logins,
        now: Callable[[], int],
        settings: Settings | None = None,
        anonymous: bool = False,
        times: Times | None = None,
        max_unfinished: int = 64 << 20,
        files: Files | None = None,
        max_transactions: int = 256 << 20,
    ):
        self.reactor, self.name, self.post, self.log, self.logins, self.now = reactor, name, post, log, logins, now
        self.settings = settings or Settings()
        self.anonymous = anonymous
        self.times = times or Times()
        self.boot = os.urandom(4).hex()
        self.clients: dict[int, Client] = {}
        self.client_ids: Counter[str] = Counter()  # of open connections
        self.total = self.refusals = 0
        self.ports: dict[str, int] = {}  # what listens -> the port
        self._listening: list[Any] = []
        self.unfinished = Unfinished(max_unfinished)
        self.max_transactions, self.booked = max_transactions, 0
        self._certified: Certified | None = None
        self._new: Newcomers[Client] = Newcomers()  # without a CONNECT yet
        self._complaints = Complaints(log, reactor.seconds)
        self.files = files
        self._remarks: set[str] = set()
        self._tick: Any = None
        self._short: Any = None  # of file descriptors: the call that looks whether they suffice again
        self._stopped: defer.Deferred[None] | None = None

    # -- listening ---------------------------------------------------------------------------------------------------

    def listen(self, stomp: Address | None, tls: Address | None = None, certificate: str = "", key: str = "") -> None:
        """Open the ports. Raises MomError."""
        if stomp is not None:
            self._listen("stomp", stomp, _Accepting(self, tls=False))
        if tls is not None:
            self._certified = Certified(certificate, key)
            certified: Any = self._certified
            accepting: Any = _Accepting(self, tls=True)
            factory = TLSMemoryBIOFactory(certified, False, accepting)
            factory.protocol = (
                TLSMemoryBIOProtocol  # nothing to aggregate: our writes are joined, and we must know when they leave
            )
            self._listen("stomp_tls", tls, factory)

    def _listen(self, what: str, where: Address, factory: Any) -> None:
        host, port = where
        try:
            listening: Any = _Port(self, port, factory, host)
            listening.startListening()
        except CannotListenError as error:
            raise MomError(
                f"{self.name} cannot listen on {host}:{port} for STOMP: {error.socketError}; stop whoever uses "
                f"that address, or change `{what}`"
            ) from None
        self._listening.append(listening)
        self.ports[what] = listening.getHost().port

    def accepted(self, host: str, tls: bool) -> Client | None:
        if self.stopping:
            return None
        while len(self._new) >= MAX_LOGINS:
            surplus = self._new.surplus()
            self._new.discard(surplus.host, surplus)
            self.say(surplus.host, f"too many clients connect without logging in: the oldest of {surplus.host} go")
            surplus.abort()
        self.total += 1
        client = self.clients[self.total] = Client(self, self.total, host, tls)
        self._new.add(host, client)
        return client

    def no_room(self) -> bool:
        """Whether so few file descriptors are left that new clients must wait, in the system's queue."""
        if self.files is None or not self.files.crowded():
            return False
        for listening in self._listening:
            listening.stopReading()
        if self._short is None:
            self.say("", SHORT.format(self.name, self.files.limit))
            self._short = self.reactor.callLater(TICK_S, self._look_for_files)
        return True

    def _look_for_files(self) -> None:
        assert self.files is not None, "nobody looked for files"
        self._short = None
        if self.stopping:
            return
        if not self.files.crowded():
            for listening in self._listening:
                listening.startReading()
            if self.files.eased():
                self.say("", f"{self.name} has file descriptors again: new clients come in")
                return
        self._short = self.reactor.callLater(TICK_S, self._look_for_files)

    # -- logins ------------------------------------------------------------------------------------------------------

    def check(self, client: Client, login: Login) -> None:
        """Let the client in, or not."""
        self._new.discard(client.host, client)
        user = login.user
        if self.anonymous and is_loopback(client.host) and self.logins.stored(user) is None:
            client.admitted("")
            return
        try:
            client.login = self.logins.check(
                user, login.passcode, lambda right: self._checked(client, user, right), client.host
            )
        except MomError as error:
            self._refuse(client, str(error))

    def _checked(self, client: Client, user: str, right: bool) -> None:
        if client.lost:
            return
        if right:
            client.admitted(user)
        else:
            self._refuse(client, f"access refused for user {user[:80]!r}")

    def _refuse(self, client: Client, reason: str) -> None:
        self.refusals += 1
        client.end(reason)

    def tls_failed(self, host: str, error: Exception) -> None:
        text = "; ".join(str(part[-1]) for part in error.args[0]) if error.args and error.args[0] else "cut off"
        if any(sign in text.lower() for sign in PLAIN_ON_TLS):
            self.say(host, f"{host} speaks plain text on the TLS port: give it the port of `stomp`, or let it use TLS")
        else:
            self.say(host, f"no TLS with {host}: {text}")

    def withdraw(self, user: str, reason: str) -> None:
        """End the connections of a user."""
        for client in list(self.clients.values()):
            if client.opened and client.user == user:
                client.end(reason)

    def reload(self, certificate: str, key: str) -> None:
        """Read the certificate anew, for connections from now on. Raises MomError; then the old one stays."""
        if self._certified is not None:
            self._certified.load(certificate, key)

    # -- room --------------------------------------------------------------------------------------------------------

    def hold(self, client: Client, size: int) -> None:
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

    def book(self, client: Client, size: int) -> None:
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

    def _look(self) -> None:
        self._tick = None
        self.unfinished.tick()
        if self.unfinished.short and not self.stopping:
            self._tick = self.reactor.callLater(TICK_S, self._look)
        else:
            self._read_at_once()

    def _read_at_once(self) -> None:
        for client in self.clients.values():
            if client.opened:
                client.read_at_once(self.unfinished.short)

    # -- the driver's side -------------------------------------------------------------------------------------------

    def reply(self, number: int, replies: list[Reply]) -> None:
        """To be called once per client and commit. Replies for a client that is gone are dropped."""
        client = self.clients.get(number)
        if client is not None:
            client.said(replies)

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
            "unfinished_bytes": self.unfinished.total, "transaction_bytes": self.booked,
        }  # fmt: skip

    def problems(self) -> list[str]:
        """One sentence for each thing that an operator should act on."""
        found = []
        if self._short is not None and self.files is not None:
            found.append(SHORT.format(self.name, self.files.limit))
        if self.unfinished.short:
            found.append(
                f"the frames of clients that are not whole yet hold {self.unfinished.total} bytes of max_unfinished = "
                f"{self.unfinished.most}: large ones wait; raise it in [limits] if that lasts"
            )
        return found

    def connections(self) -> list[dict[str, Any]]:
        return [client.status() for client in self.clients.values()]

    # -- the end -----------------------------------------------------------------------------------------------------

    def deaf(self) -> None:
        """Take no new clients."""
        for listening in self._listening:
            listening.stopListening()
        self._listening.clear()

    def stop(self) -> defer.Deferred[None]:
        """Send the clients away; fires when they are gone."""
        if self._stopped is None:
            self._stopped = defer.Deferred()
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


class _Port(tcp.Port):
    """A listening socket that stops while there is no room, and takes few at once, so that it is known in time."""

    def __init__(self, gateway: Gateway, port: int, factory: Any, host: str):
        super().__init__(port, factory, BACKLOG, host, gateway.reactor)
        self.gateway = gateway

    def doRead(self) -> None:
        if not self.gateway.no_room():
            if self.gateway.files is not None:
                self.numberAccepts = min(self.numberAccepts, self.gateway.files.reserve // 2)
            super().doRead()  # type: ignore[no-untyped-call]


class _Accepting(protocol.Factory):
    noisy = False

    def __init__(self, gateway: Gateway, tls: bool):
        self.gateway, self.tls = gateway, tls

    def buildProtocol(self, addr: Any) -> Client | None:
        return self.gateway.accepted(addr.host, self.tls)


@implementer(IOpenSSLContextFactory)
class Certified:
    """TLS with the certificate (and its chain) in one PEM file and the private key in another, or in the same one.

    Raises MomError.
    """

    def __init__(self, certificate: str, key: str = ""):
        self.load(certificate, key)

    def load(self, certificate: str, key: str = "") -> None:
        """Read the files. What is not whole, as while somebody writes it, is refused, and nothing changes."""
        key = key or certificate
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_cipher_list(CIPHERS)
        try:
            x509.load_pem_x509_certificates(Path(certificate).read_bytes())
            serialization.load_pem_private_key(Path(key).read_bytes(), None)  # else OpenSSL asks for its passphrase
            context.use_certificate_chain_file(certificate)
            context.use_privatekey_file(key)
            context.check_privatekey()
        except OSError as error:
            text = f"cannot read {error.filename}: {error.strerror}; set `certificate` and `private_key`"
            raise MomError(text) from None
        except (ValueError, TypeError, SSL.Error):
            raise MomError(
                f"{certificate} and {key} are no certificate and its key: give PEM files, the server's own certificate "
                "before those that signed it, and a key without a passphrase"
            ) from None
        self.context = context

    def getContext(self) -> SSL.Context:
        return self.context
