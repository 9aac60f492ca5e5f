"""One client's connection: bytes between its socket and its session, at a pace that both can bear."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from OpenSSL import SSL
from twisted.internet import tcp
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST

from mombroker.broker.commands import Login, Reply
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.core.strangers import origin
from mombroker.gateway import tls
from mombroker.gateway.output import Output, straight
from mombroker.gateway.room import Room
from mombroker.gateway.session import Session
from mombroker.gateway.times import Beats, Timers, Times
from mombroker.gateway.users import Waiter

# A batch is what was read at once, and larger ones cost less. More is written at once, or a client that takes all it is
# sent would fall behind one that sends, and what waits for it costs more.
READ_BYTES, WRITE_BYTES = 256 << 10, 1 << 20
MAX_WAITING = 16 << 20  # bytes for a client that does not read; beyond it we do not read it either
# Before the login so much is read at once, and no more while so much waits for it.
EARLY_BYTES = 16 << 10
SHORT_BYTES = 16 << 10  # read at once while unfinished frames are over their bound
KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Owner(Protocol):
    """The listener, as its connections see it."""

    reactor: Any
    times: Times
    post: Callable[[Any], None]
    room: Room
    client_ids: Counter[str]

    @property
    def name(self) -> str: ...
    @property
    def stopping(self) -> bool: ...

    def now(self) -> int: ...
    def check(self, client: Client, login: Login) -> None: ...
    def closed(self, client: Client) -> None: ...
    def say(self, host: str, line: str) -> None: ...
    def remark(self, host: str, who: str, what: str) -> None: ...

    def enroll(self, client: Any, part: int) -> int:
        """The number of a new part of such a client (parts.py), which no other connection or part ever has."""

    def strike(self, number: int) -> None:
        """Such a part is no more."""


class Client:
    """One connection: what Twisted calls a protocol, but of no class of its own, so that it can be compiled.

    1. The agent server hears of it once when it is open and once when it is gone, commands in between.
    2. It hears of what the system has taken before the client's next input, and before its end.
    3. No timer is left when the connection is lost.
    """

    def __init__(self, gateway: Owner, number: int, session: Session, setting: str, host: str, tls: bool):
        self.gateway, self.number, self.session, self.setting = gateway, number, session, setting
        self.host, self.tls = host, tls
        self.origin, self.held = origin(host), 0  # bytes of a frame that is not whole yet
        self.booked = 0  # bytes in open transactions
        self.user = ""
        self.client_id: str | None = None  # that it has while it is open
        self.since = gateway.now()
        self.opened = self.closing = self.lost = False
        self.login: Waiter | None = None
        self.bytes_in = 0
        self.paused = False  # not read
        self._seconds: Callable[[], float] = gateway.reactor.seconds
        self._output = Output(self._seconds, self._took)
        self._timers = Timers(gateway.reactor.callLater)
        self._beats = Beats(self, self._output, self._seconds, gateway.times, self._timers)
        self.transport: Any = None
        self._socket: Any = None  # the transport below TLS
        self._recv: Any = None
        self._checking = False
        self._told = 0  # the highest tag that the agent server knows to be written

    # -- Twisted's side --------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport
        self._socket = transport.transport if self.tls else transport
        self._socket.bufferSize, self._socket.SEND_LIMIT = EARLY_BYTES, WRITE_BYTES
        self._output.transport = transport
        if isinstance(transport, tcp.Connection):
            self._output.straight = straight(transport.getHandle(), WRITE_BYTES)
            self._recv = transport.getHandle().recv
            self.transport.doRead = self._read  # which it takes three calls for
        with suppress(OSError):  # it may be gone again already
            self._socket.setTcpNoDelay(True)
            self._socket.setTcpKeepAlive(True)
            handle = self._socket.getHandle()
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._socket.registerProducer(self, False)
        self._timers.set("login", self.gateway.times.login, self._no_login)

    def _read(self) -> Any:
        """Bytes have come, the end, or an error: the reactor closes the connection for what is returned."""
        try:
            data = self._recv(self._socket.bufferSize)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.dataReceived(data)
        return None

    def dataReceived(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._beats.heard = self._seconds()
        if not self.closing:
            if self._output.taken > self._told:  # what the client has read may be why it says this
                self._tell()
            session = self.session
            session.receive(data)
            self._act()
            if session.unfinished != self.held:
                self._hold()
            if session.uncommitted != self.booked:
                self.gateway.room.book(self, session.uncommitted)

    def _hold(self) -> None:
        """Tell how much of a frame waits for its rest."""
        self.gateway.room.hold(self, 0 if self.closing else self.session.unfinished)
        self.pace()

    def connectionLost(self, reason: Any = ConnectionDone) -> None:
        self.lost = True
        self._timers.clear()
        self._output.drop()
        self.gateway.room.leave(self)
        if self.login is not None:
            self.login.drop()
        if not self.bytes_in and self.tls and reason.check(SSL.Error):
            self.gateway.say(self.host, tls.failure(self.host, reason.value, self.setting))
        self._gone()
        self.session.forget()  # it may be here until the next collection
        self.gateway.closed(self)

    def resumeProducing(self) -> None:
        """All that was written is with the system."""
        if self._socket.disconnecting:  # TLS wants to close it, which waits for us
            self._socket.unregisterProducer()
            return
        self._output.drained()
        self._tell()
        if self._output.waiting and not self.lost:
            self._output.flush()
            self.pace()

    def pauseProducing(self) -> None: ...

    def stopProducing(self) -> None: ...

    # -- between socket and session ----------------------------------------------------------------------------------

    def _act(self) -> None:
        """Do what the session wants after bytes came in."""
        session, gateway = self.session, self.gateway
        if session.notes:
            for note in session.notes:
                gateway.remark(self.host, f"client {self.number} of {self.host}", note)
            session.notes.clear()
        if session.login is not None and not self._checking:
            self._checking = True
            self._timers.unset("login")
            gateway.check(self, session.login)
        if session.commands:
            commands, session.commands = session.commands, []
            gateway.post(ClientCommands(self.number, commands))
        if session.state == "leaving" and "leave" not in self._timers:
            self._timers.set("leave", gateway.times.leave, self._hurry)
        if session.output or session.closed:
            self._put_out()
        else:
            self.pace()

    def admitted(self, user: str) -> None:
        """The login is good."""
        session, gateway = self.session, self.gateway
        if self.closing or session.login is None:
            return
        login = session.login
        if refusal := self._claim(login.client_id, login.exclusive):
            self.end(refusal)
            return
        self.user, self.opened = user, True
        self.read_at_once(gateway.room.unfinished.short)
        gateway.post(ClientOpened(self.number, user, login.client_id, session.id))
        session.accept()
        self._beats.start(session.expect_every, session.send_every, session.beat)
        self._act()
        self._hold()

    def _claim(self, client_id: str, exclusive: bool) -> str:
        """Have a client id in place of the one that it has; or why not."""
        ids = self.gateway.client_ids
        if exclusive and ids.get(client_id):
            return f"client-id {client_id!r} is in use by another connection of {self.gateway.name}"
        self._free_client_id()
        ids[client_id] += 1
        self.client_id = client_id
        return ""

    def said(self, replies: list[Reply]) -> None:
        """What the agent server says; durable now."""
        if not self.closing:
            self.session.reply(replies)
            self._put_out()

    def end(self, reason: str) -> None:
        if not self.closing:
            self.session.end(reason)
            self._put_out()

    def _put_out(self) -> None:
        session = self.session
        closed = session.closed
        if session.output:
            data = b"".join(session.output)
            session.output.clear()
            self._output.put(data, session.written, closed)
        if closed:
            self._close()
        else:
            self.pace()

    def _took(self) -> None:
        if self._output.taken > self._told:
            self.gateway.reactor.callLater(0, self._tell)  # not while the agent server lets go of its outputs

    def _tell(self) -> None:
        """Tell the agent server what the system has taken."""
        taken = self._output.taken
        if taken > self._told and self.opened:
            self._told = taken
            self._told_written(taken)

    def _told_written(self, taken: int) -> None:
        self.gateway.post(ClientWrote(self.number, taken))

    def read_at_once(self, short: bool) -> None:
        self._socket.bufferSize = SHORT_BYTES if short else READ_BYTES

    def pace(self) -> None:
        """Read the client, or let it wait: while it asks for more than is answered, it does not read, much comes before
        its login, or there is no room for the rest of its frame. Meanwhile it cannot be heard, so its silence does
        not count."""
        session = self.session
        paused = session.full or self._output.waiting > MAX_WAITING or (self.held > 0 and self._held_back())
        if paused != self.paused and not self.closing:
            self.paused = paused
            if paused:
                self._socket.pauseProducing()
            else:
                self._beats.heard = self._seconds()
                self._socket.resumeProducing()

    def _held_back(self) -> bool:
        early = self.session.state == "login" and self.held >= EARLY_BYTES
        return early or self.gateway.room.unfinished.waits(self)

    def _no_login(self) -> None:
        self.end(f"no {self.session.first} within {self.gateway.times.login:g} s")

    def _hurry(self) -> None:
        self.session.hurry()
        self._put_out()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Let the last bytes leave and be read. A socket with unread input would be reset, so that goes nowhere."""
        if self.closing:
            return
        self.closing = True
        self._free_client_id()
        self._timers.clear()
        if self.session.fault and not self.gateway.stopping:
            who = f"client {self.number} ({self.user or 'anonymous'}) of {self.host}" if self.opened else self.host
            self.gateway.say(self.host, f"{who}: {self.session.fault}")
        self.session.forget()
        self.gateway.room.leave(self)
        self._socket.unregisterProducer()
        if self.paused:
            self._socket.resumeProducing()
        self._output.finish()
        if self.tls:
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()
        self._timers.set("close", self.gateway.times.close, self.abort)
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
            **session.counts(), "bytes_in": self.bytes_in, "bytes_out": self._output.bytes,
            "waiting_bytes": self._output.waiting, "paused": self.paused,
        }  # fmt: skip
