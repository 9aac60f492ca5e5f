"""Connections with the neighbours: who dials, which of two connections stays, when one is closed, who is logged.

There is one TCP connection per pair of servers, dialled when there is something to send. When both dial at once, the
server with the lower name decides, so that the two never close each other's choice:
  lower    while its own connection to the peer is in the handshake or up, it refuses the peer's as `busy`;
  higher   takes whatever the lower one has completed: a new connection replaces the one before.
A peer dials only when it believes that there is no connection, so in all other cases the newest one is the true one.
"""

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.internet import defer, protocol
from twisted.internet.error import CannotListenError

from mombroker.core.errors import DeclaredLost, MomError, NotYet, PeerError, PeerRefused, Switched
from mombroker.core.events import LinkDown, LinkFrame, LinkFrames, LinkUp, PeerSwitched
from mombroker.core.hello import Hello
from mombroker.core.strangers import Complaints, Newcomers
from mombroker.core.topology import Topology, is_loopback
from mombroker.net import wire
from mombroker.net.connection import Connection, Owner, Times
from mombroker.net.handshake import ADMIN, NONCE_BYTES, PEER, REPLICA, Busy, Login, Told, dialer, listener
from mombroker.net.peertls import PeerTls

MAX_LOGINS = 64  # connections whose login is not over; the oldest goes, of the address that has most
MAX_SAID = 16  # different complaints logged per neighbour between two successful logins
MOST_DOUBLINGS = 100  # of the wait before the next attempt; 1,024 of them are no float any more
MOST_LOOKS = 4  # neighbours that are asked at a start
BACKLOG = 512  # of the listen port: all of a large domain may dial at once


class Doorman(Protocol):
    """The channel of an agent server. `trouble` tells it why a peer's link is refused."""

    trouble: dict[str, str]

    @property
    def topology(self) -> Topology: ...  # that it works under
    def greet(self, peer: str) -> Hello: ...
    def admit(self, hello: Hello) -> None: ...


class Neighbour:
    """What is known of one neighbour's connection."""

    __slots__ = (
        "name",
        "at",
        "up",
        "connector",
        "dialled",
        "timer",
        "wanted",
        "failures",
        "reason",
        "said",
        "faults",
        "written",
    )

    def __init__(self, name: str):
        self.name = name
        self.at = 0  # which of its addresses is dialled
        self.up: Connection | None = None
        self.connector: Any = None  # of an attempt that has not become `up`
        self.dialled: Connection | None = None  # its connection, while in the handshake
        self.timer: Any = None  # of the next attempt
        self.wanted = False  # we have something for it
        self.failures = 0  # attempts in a row
        self.reason = ""  # of the last failure, until a login goes well
        self.said: set[str] = set()
        self.faults = 0
        self.written = 0  # bytes, to connections that are closed

    def end(self) -> None:
        """It is not dialled any more."""
        self.wanted = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.connector is not None and self.dialled is None:
            self.connector.disconnect()

    def failed(self) -> None:
        """It did not answer there, or not as it should: the next attempt goes to its next address."""
        self.failures += 1
        self.at += 1

    def state(self) -> str:
        if self.up:
            return "up"
        if self.reason:
            return "down"
        return "dialling" if self.connector else "idle"


class Links:
    """All connections of one agent server. Events go to `post`, which raises PeerError for frames that make no sense.

    token   of the data folder, for the role `admin`, whose connections are handed to `admin`
    tls     what all of them are behind; None: nothing
    secret  of the bus; without one only loopback addresses are dialled and let in
    fenced  called when a neighbour says that this server was declared lost
    replicas  owns the connections of other replicas of this server
    """

    def __init__(
        self,
        reactor: Any,
        me: str,
        server: Doorman,
        post: Callable[[Any], None],
        log: Callable[[str], None],
        admin: Owner,
        secret: bytes = b"",
        token: bytes = b"",
        times: Times | None = None,
        chance: Callable[[], float] = random.random,
        tls: PeerTls | None = None,
        fenced: Callable[[DeclaredLost], None] = lambda error: None,
        replicas: Owner | None = None,
    ):
        self.tls, self.fenced, self.replicas = tls, fenced, replicas
        self.reactor, self.me, self.server = reactor, me, server
        self.post, self.log, self.admin = post, log, admin
        self.secret, self.token = secret, token
        self.times = times or Times()
        self.chance = chance
        self.neighbours: dict[str, Neighbour] = {}
        self.faults = 0  # of connections without a login
        self._strangers = Complaints(log, reactor.seconds)
        self._numbers = 0
        self._by_number: dict[int, Connection] = {}  # links that are up
        self._logins: Newcomers[Connection] = Newcomers()  # accepted, login not over
        self._all: set[Connection] = set()
        self._port: Any = None
        self._sweep: Any = None
        self._stopped: defer.Deferred[None] | None = None

    # -- the driver's side -----------------------------------------------------------------------------------------

    def send(self, number: int, frames: list[LinkFrame]) -> None:
        """Acknowledgements first. Frames for a connection that is gone are dropped: the next handshake sees to them."""
        conn = self._by_number.get(number)
        if conn is not None:
            urgent = [wire.encode(frame) for frame in frames if frame[0] != "data"]
            data = [wire.encode(frame) for frame in frames if frame[0] == "data"]
            conn.send(urgent, data)

    def hang_up(self, number: int) -> None:
        """The link of this connection is no more: close it when what was sent has left."""
        conn = self._by_number.get(number)
        if conn is not None:
            conn.close()

    def dial(self, peer: str) -> None:
        """There is something for `peer`: connect, and go on trying."""
        each = self._neighbour(peer)
        if each.up is None:
            each.wanted = True
            self._try(each)

    def meet(self, peer: str) -> None:
        """As `dial`, at once: what has failed so far no longer counts."""
        each = self._neighbour(peer)
        each.failures = 0
        if each.timer is not None:
            each.timer.cancel()
            each.timer = None
        self.dial(peer)

    def look(self) -> None:
        """One attempt at some neighbours: whoever knows that we were declared lost says so, before much is promised.
        Nothing waits for it, and one that is down is no news."""
        topology = self.server.topology
        members = {peer for domain in topology.domains_of(self.me) for peer in domain.members if peer != self.me}
        for peer in sorted(sorted(members), key=lambda _: self.chance())[:MOST_LOOKS]:
            each = self._neighbour(peer)
            if not (each.up or each.connector or each.timer):
                self._connect(each)

    def looking(self) -> bool:
        """Is an attempt of `look` under way, and has no neighbour let us in yet?"""
        each = self.neighbours.values()
        return any(one.connector is not None for one in each) and not any(one.up for one in each)

    def hand(self, server: Doorman, post: Callable[[Any], None], admin: Owner) -> None:
        """From now on these are the connections of another agent server, in place of the one before, whose
        connections end at once; those of replicas stay."""
        for conn in list(self._all):
            if conn.owner is not self.replicas:
                conn.abort()
        for each in self.neighbours.values():
            each.end()
        self.neighbours = {}
        self.server, self.post, self.admin = server, post, admin

    # -- listening -------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Open the listen port. A port 0 of the topology is replaced by the one that the system chose."""
        server = self.server.topology.servers[self.me]
        if not self.secret and not is_loopback(server.host):
            raise MomError(
                f"{self.me} listens on {server.host} without a secret; set [bus] secret_file, or listen on 127.0.0.1"
            )
        factory: Any = _Accepting(self)
        if self.tls is not None:
            factory = self.tls.wrapped(factory, False, self.reactor)
        try:
            self._port = self.reactor.listenTCP(server.port, factory, BACKLOG, server.host)
        except CannotListenError as error:
            raise MomError(
                f"{self.me} cannot listen on {server.host}:{server.port}: {error.socketError}; stop whoever uses that "
                "address, or change `listen`"
            ) from None
        server.port = self._port.getHost().port

    def accepted(self, host: str) -> Connection | None:
        """A connection came in; its protocol, or None to close it."""
        if self._stopped or not (self.secret or is_loopback(host)):
            return None
        while len(self._logins) >= MAX_LOGINS:
            surplus = self._logins.surplus()
            self._logins.discard(surplus.where, surplus)
            self._failed(surplus, PeerError("too many logins at once"))
            surplus.abort()
        conn = self._connection("", host, False)
        conn.handshake = listener(
            self.me,
            os.urandom(NONCE_BYTES),
            lambda role, peer: self.token if role == ADMIN else self.secret,
            partial(self._accept, conn),
            self.server.greet,
            self.server.admit,
        )
        self._logins.add(host, conn)
        return conn

    def _accept(self, conn: Connection, peer: str) -> None:
        """A dialer has proved that it belongs to the bus and says that it is `peer`."""
        if self.tls is not None:
            self.tls.check(conn.transport, peer)
        conn.peer = peer
        topology = self.server.topology
        if peer not in topology.servers or topology.shared_domain(self.me, peer) is None:
            return  # not in our domains, or not yet: our hello says in which we are, and its own is refused
        each = self._neighbour(peer)
        if self.me < peer:
            if each.up is not None and each.up.dialled:
                each.up.beat()  # if its other end is gone, this is how we learn it
                raise Busy(f"{self.me} is connected to {peer} already")
            if each.dialled is not None:
                raise Busy(f"{self.me} connects to {peer} at this moment")

    # -- dialling --------------------------------------------------------------------------------------------------

    def _neighbour(self, name: str) -> Neighbour:
        each = self.neighbours.get(name)
        if each is None:
            if name == self.me or self.server.topology.shared_domain(self.me, name) is None:
                raise PeerRefused(f"{name} shares no domain with {self.me}; give both the same [domains]")
            each = self.neighbours[name] = Neighbour(name)
        return each

    def _try(self, each: Neighbour, slowly: bool = False) -> None:
        """Dial now, or after the wait that the failures so far call for."""
        if each.up or each.connector or each.timer or self._stopped or not each.wanted:
            return
        rounds, more = divmod(each.failures, len(self._addresses(each)))  # in which none of its addresses was good
        if not rounds or (more and not slowly):
            self._connect(each)
            return
        times = self.times
        first, doublings = times.retry_first, min(rounds - 1, MOST_DOUBLINGS)
        wait = times.retry_refused if slowly else min(times.retry_last, first * 2.0**doublings)
        each.timer = self.reactor.callLater(wait * (0.5 + self.chance()), self._connect, each)

    def _connect(self, each: Neighbour) -> None:
        each.timer = None
        topology = self.server.topology
        if topology.shared_domain(self.me, each.name) is None:  # not any more
            each.wanted = False
            return
        addresses = self._addresses(each)
        host, port = addresses[each.at % len(addresses)]
        if not self.secret and not is_loopback(host):
            each.failed()
            self._say(each, f"{each.name} is at {host}, and there is no secret; set [bus] secret_file")
            self._try(each, slowly=True)
            return
        factory: Any = _Dialling(self, each)
        if self.tls is not None:
            factory = self.tls.wrapped(factory, True, self.reactor)
        each.connector = self.reactor.connectTCP(host, port, factory, timeout=self.times.connect)

    def _addresses(self, each: Neighbour) -> list[tuple[str, int]]:
        """Where it may be: one that has replicas is where its leader is."""
        server = self.server.topology.servers.get(each.name)
        return server.addresses if server is not None else [("", 0)]

    def connected(self, each: Neighbour) -> Connection:
        """TCP is there; the protocol for it."""
        conn = each.dialled = self._connection(each.name, each.name, True)
        conn.handshake = dialer(
            self.me, each.name, PEER, self.secret, os.urandom(NONCE_BYTES), self.server.greet, self.server.admit
        )
        return conn

    def unreachable(self, each: Neighbour, reason: str) -> None:
        """TCP did not come about."""
        each.connector = None
        if each.up or self._stopped or each.name not in self.server.topology.servers or not each.wanted:
            return
        host, port = self._addresses(each)[each.at % len(self._addresses(each))]
        each.failed()
        each.reason = f"{each.name} cannot be reached at {host}:{port} ({reason}); it is tried again"
        self._say(each, each.reason)
        self._try(each)

    # -- connections -----------------------------------------------------------------------------------------------

    def _connection(self, peer: str, where: str, dialled: bool) -> Connection:
        self._numbers += 1
        conn = Connection(
            self.reactor,
            self._numbers,
            self.times,
            self._owner_of,
            self._failed,
            self._lost,
            peer,
            where,
            dialled,
            self.tls,
        )
        self._all.add(conn)
        return conn

    def _owner_of(self, conn: Connection, login: Login) -> Owner:
        self._logins.discard(conn.where, conn)
        if login.role == REPLICA:
            if self.replicas is None:
                raise PeerRefused(f"{self.me} has no replicas; give both the same topology file")
            return self.replicas
        return self if login.role == PEER else self.admin

    def opened(self, conn: Connection, login: Login) -> None:
        assert login.hello is not None, "a peer has a hello"
        conn.peer = login.peer
        each = self._neighbour(login.peer)
        if conn.dialled:
            each.connector = each.dialled = None
        elif each.connector is not None and each.dialled is None:  # still connecting: no longer needed
            connector, each.connector = each.connector, None
            connector.disconnect()
        if each.timer is not None:
            each.timer.cancel()
            each.timer = None
        if each.up is not None:
            each.up.close()  # tells the server that it is down
        each.up = conn
        self._by_number[conn.number] = conn
        if self._sweep is None:
            self._sweep = self.reactor.callLater(self.times.tick, self._tick)
        self.post(LinkUp(each.name, conn.number, login.hello))
        each.wanted = False
        if each.reason:
            self.log(f"{each.name} is connected again")
        each.reason = ""
        each.said.clear()

    def received(self, conn: Connection, frames: list[Any]) -> None:
        for at, frame in enumerate(frames):
            if _is_data(frame):
                conn.idle = 0
            elif not (_is_ack(frame) or _is_loss(frame)):
                raise PeerError("a frame is neither data nor an acknowledgement")
            frames[at] = tuple(frame)
        self.post(LinkFrames(conn.peer, conn.number, frames))

    def closed(self, conn: Connection) -> None:
        if self._by_number.pop(conn.number, None) is None:  # it was refused when it opened
            return
        each = self.neighbours[conn.peer]
        each.up = None
        if conn.ticks < 2:  # do not run in circles
            each.failed()
        self.post(LinkDown(conn.peer, conn.number))

    def _lost(self, conn: Connection) -> None:
        """The socket of a connection, with or without a login, is closed."""
        self._all.discard(conn)
        self._logins.discard(conn.where, conn)
        each = self.neighbours.get(conn.peer)
        if each is not None and each.dialled is conn:  # the login failed
            each.connector = each.dialled = None
            each.failed()
        if each is not None:
            each.written += conn.written
            self._try(each, slowly=conn.refused)
        if self._stopped is not None and not self._all and not self._stopped.called:
            self._stopped.callback(None)

    def _failed(self, conn: Connection, error: Exception) -> None:
        """A peer did something wrong, or is refused, or refuses us: count it and say it once."""
        if isinstance(error, Told) and error.lost:
            error = DeclaredLost(self.me)
        if isinstance(error, DeclaredLost) and error.server == self.me:
            self.fenced(error)
            return
        if isinstance(error, Switched):
            self.post(PeerSwitched(conn.peer))
        if isinstance(error, Busy | NotYet) or (isinstance(error, Told) and error.busy):
            return
        each = self.neighbours.get(conn.peer)
        conn.refused = isinstance(error, PeerRefused)
        if not conn.refused:
            if each is None:
                self.faults += 1
            else:
                each.faults += 1
        if conn.refused and each is not None and each.up in (None, conn):
            each.reason = self.server.trouble[each.name] = str(error)
        way = "to" if conn.dialled else "from"
        sentence = f"closed the connection {way} {conn.peer or conn.where}: {error}"
        if each is None:
            self._strangers.say(conn.where, sentence)
        else:
            self._say(each, sentence)

    def _say(self, each: Neighbour, sentence: str) -> None:
        if sentence not in each.said and len(each.said) < MAX_SAID:
            each.said.add(sentence)
            self.log(sentence)

    def _tick(self) -> None:
        self._sweep = None
        for conn in list(self._by_number.values()):
            if conn.closing:
                continue
            conn.tick()
            conn.idle += 1
            if conn.ticks == 2:
                self.neighbours[conn.peer].failures = 0
            if conn.idle > self.times.idle_ticks:
                conn.close()
        if self._by_number and not self._stopped:
            self._sweep = self.reactor.callLater(self.times.tick, self._tick)

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self) -> "defer.Deferred[None]":
        """Take no new connections, let what was written leave, close all."""
        if self._stopped is None:
            self._stopped = defer.Deferred()
            self._quit()
            for conn in list(self._all):
                conn.close()
            if not self._all:
                self._stopped.callback(None)
        return self._stopped

    def abort(self) -> None:
        """Close everything at once; nothing more leaves."""
        if self._stopped is None:
            self._stopped = defer.succeed(None)
        self._quit()
        for conn in list(self._all):
            conn.abort()

    def _quit(self) -> None:
        if self._port is not None:
            self._port.stopListening()
            self._port = None
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for each in self.neighbours.values():
            each.end()

    def written(self) -> dict[str, int]:
        """Bytes that were written to the connections with each neighbour, since the start."""
        found = {name: each.written for name, each in self.neighbours.items()}
        for conn in self._all:
            if conn.peer in found:
                found[conn.peer] += conn.written
        return found

    def peers(self) -> list[dict[str, Any]]:
        """Of each neighbour: up, dialling, idle or down, with the reason."""
        found = []
        for domain in self.server.topology.domains_of(self.me):
            for name in domain.members:
                if name != self.me:
                    each = self.neighbours.get(name) or Neighbour(name)
                    row = {"peer": name, "domain": domain.name, "state": each.state()}
                    found.append(row | {"reason": each.reason, "faults": each.faults})
        return found


def _is_data(frame: Any) -> bool:
    return (
        type(frame) is list and len(frame) == 4 and frame[0] == "data" and type(frame[1]) is str
        and type(frame[2]) is int and frame[2] > 0 and type(frame[3]) is list and set(map(type, frame[3])) == {bytes}
    )  # fmt: skip


def _is_ack(frame: Any) -> bool:
    return (
        type(frame) is list and len(frame) == 4 and frame[0] == "ack" and type(frame[1]) is str
        and type(frame[2]) is int and frame[2] >= 0 and type(frame[3]) is int and frame[3] >= 0
    )  # fmt: skip


def _is_loss(frame: Any) -> bool:
    return (
        type(frame) is list and len(frame) == 4 and frame[0] == "loss" and type(frame[1]) is str
        and type(frame[2]) is int and frame[2] > 0 and type(frame[3]) is bytes
    )  # fmt: skip


class _Accepting(protocol.ServerFactory):
    noisy = False

    def __init__(self, links: Links):
        self.links = links

    def buildProtocol(self, addr: Any) -> Connection | None:
        return self.links.accepted(addr.host)


class _Dialling(protocol.ClientFactory):
    noisy = False

    def __init__(self, links: Links, each: Neighbour):
        self.links, self.each = links, each

    def buildProtocol(self, addr: Any) -> Connection:
        return self.links.connected(self.each)

    def clientConnectionFailed(self, connector: Any, reason: Any) -> None:
        if self.each.connector is connector:
            self.links.unreachable(self.each, reason.getErrorMessage())
