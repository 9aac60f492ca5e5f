"""One socket: login, then frames; heartbeats, and writes in bounded pieces. The only module that owns a socket."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from OpenSSL import SSL
from twisted.internet import protocol
from twisted.internet.error import ConnectionDone

from mombroker.core.errors import PeerError, PeerRefused
from mombroker.net import wire
from mombroker.net.handshake import Handshake, Login, Told, refusal
from mombroker.net.peertls import HELLO, PeerTls

BUFFER_BYTES = 128 * 1024  # read at once; and the transport gets no further data while it has more than this


@dataclass(slots=True)
class Times:
    """Seconds, and ticks of the sweep over all connections."""

    connect: float = 5.0
    login: float = 5.0  # from the first byte to the welcome
    tick: float = 3.0  # a heartbeat leaves when nothing else did in two ticks
    silent_ticks: int = 5  # a peer that sends nothing for so long is closed
    idle_ticks: int = 20  # a link without data for so long is closed
    retry_first: float = 0.1
    retry_last: float = 10.0
    retry_refused: float = 60.0
    close: float = 2.0  # for the last bytes to leave


class Owner(Protocol):
    """Who is told what happens on a connection after the login."""

    def opened(self, conn: "Connection", login: Login) -> None: ...  # may raise PeerRefused
    def received(self, conn: "Connection", frames: list[Any]) -> None: ...  # may raise PeerError
    def closed(self, conn: "Connection") -> None: ...


class Connection(protocol.Protocol):
    """Bytes of one TCP connection.

    `urgent` frames (acknowledgements, heartbeats) go to the transport at once; data goes there only while the
    transport holds less than BUFFER_BYTES, so an urgent frame never queues behind more than that and one frame. The
    socket is read whatever waits to be written.

    number     never reused
    peer       the server at the other end, once it has proved that it belongs to the bus (or wanted, where we dialled)
    handshake  to be set before the connection is made
    owner_of   called with (connection, login); whom the connection belongs to from then on
    failed     called with (connection, error) for what a peer did wrong, before it is closed
    lost       called when the socket is closed, with or without a login
    tls        what it is behind; None: nothing
    """

    transport: Any

    def __init__(
        self,
        reactor: Any,
        number: int,
        times: Times,
        owner_of: Callable[["Connection", Login], Owner],
        failed: Callable[["Connection", Exception], None],
        lost: Callable[["Connection"], None],
        peer: str,
        where: str,
        dialled: bool,
        tls: PeerTls | None = None,
    ):
        self.tls = tls
        self.reactor = reactor
        self.number = number
        self.times = times
        self.peer = peer
        self.where = where
        self.dialled = dialled
        self.refused = False  # for a reason that a new attempt does not change
        self.handshake: Handshake | None = None
        self.owner: Owner | None = None
        self.closing = self.heard = False
        self.quiet = 0  # ticks since something came in
        self.silent = 0  # ticks since something went out
        self.idle = 0  # ticks since data went either way
        self.ticks = 0  # since the login
        self._owner_of, self._failed, self._lost = owner_of, failed, lost
        self._decoder = wire.Decoder()
        self._waiting: deque[bytes] = deque()  # encoded data frames; bounded by the peer's credit
        self._full = False
        self._deadline: Any = None
        self._handed = True  # to the transport, which may not have written all of it yet
        self.written = 0  # bytes that the transport, or the socket, was given

    # -- Twisted's side ------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        (self.transport if self.tls is None else self.transport.transport).bufferSize = BUFFER_BYTES
        self.transport.registerProducer(self, True)
        self._deadline = self.reactor.callLater(self.times.login, self._late)
        self._guarded(self._advance, None)

    def dataReceived(self, data: bytes) -> None:
        self.quiet = 0
        if self.handshake is not None and not self.heard:
            self._guarded(self._begin, data)
        self.heard = True
        if not self.closing:
            self._guarded(self._receive, data)

    def _begin(self, data: bytes) -> None:
        """The first that is heard. Where we have dialled, it is known by now whose certificate that is; who dials us
        has still to say who he is."""
        if self.tls is None:
            if data.startswith(HELLO):
                raise PeerRefused(f"{self.peer or self.where} speaks TLS, and we do not: set [bus] ca here, too")
        elif self.dialled:
            self.tls.check(self.transport, self.peer)

    def connectionLost(self, reason: Any = ConnectionDone) -> None:
        if self.tls is not None and self.owner is None and reason.check(SSL.Error) and not self.closing:
            self._failed(self, self.tls.failure(self.peer or self.where, self.transport, reason.value))
        self._gone()
        self._cancel_deadline()
        self._lost(self)

    def pauseProducing(self) -> None:
        self._full = True

    def resumeProducing(self) -> None:
        self._full = False
        self._pump()

    def stopProducing(self) -> None:
        self._waiting.clear()

    # -- in --------------------------------------------------------------------------------------------------------

    def _guarded(self, step: Callable[[Any], None], argument: Any) -> None:
        """A peer's fault or refusal closes this connection and nothing else."""
        try:
            step(argument)
        except (PeerError, PeerRefused) as error:
            if not self.closing:
                self._failed(self, error)
                self.close(None if isinstance(error, Told) or self.owner is not None else refusal(error, self.peer))

    def _receive(self, data: bytes) -> None:
        frames = []
        for frame in self._decoder.feed(data):
            if self.handshake is not None:
                self._advance(frame)
            elif frame is not None:
                frames.append(frame)
            if self.closing:
                return
        if frames:
            assert self.owner is not None, "frames before the login"
            self.owner.received(self, frames)

    def _advance(self, frame: Any) -> None:
        """One step of the handshake."""
        assert self.handshake is not None, "the login is over"
        try:
            out = self.handshake.send(frame)
        except StopIteration as stop:
            login: Login = stop.value
        else:
            self._write([wire.encode(each) for each in out])
            return
        self.handshake = None
        self._cancel_deadline()
        self._decoder.limit = wire.LINK_LIMIT
        self._write([wire.encode(each) for each in login.last])
        self.owner = self._owner_of(self, login)
        self.owner.opened(self, login)

    def _late(self) -> None:
        self._deadline = None
        self._guarded(self._no_login, None)

    def _no_login(self, _: None) -> None:
        raise PeerError(f"no login within {self.times.login:g} s")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- out -------------------------------------------------------------------------------------------------------

    def send(self, urgent: list[bytes], data: list[bytes]) -> None:
        """Encoded frames: `urgent` ones leave before any data that still waits here."""
        if self.closing:
            return
        if data:
            self.idle = 0
            self._waiting.extend(data)
        if self._full:
            self._write(urgent)
        else:
            self._pump(urgent)

    def _pump(self, out: list[bytes] | None = None) -> None:
        out = out or []
        waiting = self._waiting
        while True:
            size = 0
            while waiting and size < BUFFER_BYTES:
                frame = waiting.popleft()
                size += len(frame)
                out.append(frame)
            self._write(out)  # may call pauseProducing
            if not waiting or self._full:
                return
            out = []

    def _write(self, out: list[bytes]) -> None:
        if out:
            self.silent, self._handed = 0, True
            data = out[0] if len(out) == 1 else b"".join(out)
            self.written += len(data)
            self.transport.write(data)

    def send_now(self, frame: bytes) -> None:
        """Encoded data that leaves now, as far as the socket takes it, and not once all else that is at hand is done;
        behind TLS it waits for that."""
        if self._handed or self.closing or self.tls is not None:
            self.send([], [frame])
            if self.tls is None and not self.closing:
                self.transport.doWrite()
                self._handed = bool(self.transport.dataBuffer)
            return
        self.idle = self.silent = 0  # straight to the socket: spares two visits to epoll
        sent = self.transport.writeSomeData(frame)
        if isinstance(sent, int):
            self.written += sent
            frame = frame[sent:]
        if frame:
            self._write([frame])

    # -- life ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called every `times.tick` seconds after the login. It counts ticks, not seconds: when this process was held
        up, that is no silence of the peer."""
        self.ticks += 1
        self.quiet += 1
        self.silent += 1
        if self.quiet > self.times.silent_ticks:
            self._guarded(self._no_sign, None)
        elif self.silent > 1 and not self._full:
            self.beat()

    def beat(self) -> None:
        self._write([wire.HEARTBEAT])

    @property
    def queued(self) -> int:
        """Frames that the transport has no room for."""
        return len(self._waiting)

    def limit(self, most: int) -> None:
        """Frames of up to so many bytes are taken from now on."""
        self._decoder.limit = most

    def _no_sign(self, _: None) -> None:
        raise PeerError(f"no sign of life for {self.times.tick * self.times.silent_ticks:g} s")

    def _gone(self) -> None:
        """From now on nothing is read or written; the owner is told once."""
        if not self.closing:
            self.closing = True
            self._waiting.clear()
            if self.owner is not None:
                self.owner.closed(self)

    def close(self, last: Any = None) -> None:
        """Write one last frame, let what the transport holds leave, and close; data that waits here is dropped."""
        if self.closing:
            return
        self._gone()
        self._cancel_deadline()
        if last is not None:
            self._write([wire.encode(last)])
        self.transport.unregisterProducer()
        self.transport.loseConnection()
        self._deadline = self.reactor.callLater(self.times.close, self._abort)

    def _abort(self) -> None:
        self._deadline = None
        self.abort()

    def abort(self) -> None:
        """Close at once; what the transport holds does not leave."""
        self._gone()
        self.transport.abortConnection()
