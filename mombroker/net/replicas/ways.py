"""Connections between the replicas of a server. Each dials all the others, and speaks on what it has dialled: of the
two connections of a pair each carries one direction.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from twisted.internet import protocol

from mombroker.core.errors import PeerError, PeerRefused
from mombroker.core.places import Place
from mombroker.core.raft.messages import Envelope
from mombroker.core.topology import Server, is_loopback
from mombroker.net import wire
from mombroker.net.connection import Connection, Times
from mombroker.net.handshake import NONCE_BYTES, REPLICA, Login, dialer
from mombroker.net.peertls import PeerTls
from mombroker.net.replicas.wire import LIMIT, Told, envelope_of, frame_of, told_of

TICK_S = 1.0
SILENT_TICKS = 5
RETRY_LAST_S = 1.0
QUEUED = 32  # frames that wait for a replica which does not read; what is more is not sent, as if it were lost


class Way:
    """To one other replica."""

    __slots__ = ("place", "conn", "connector", "timer", "failures", "up", "told", "said")

    def __init__(self, place: Place):
        self.place = place
        self.conn: Connection | None = None  # dialled, perhaps not up yet
        self.connector: Any = None
        self.timer: Any = None
        self.failures = 0
        self.up = False
        self.told: Told | None = None  # what it tells of itself
        self.said = ""  # the last complaint


class Ways:
    """Owner of connections of role `replica` (net/connection.py).

    ways    by the name of the other replica
    tell    what we tell of ourselves
    met     called when another replica has told what it is
    heard   called with what it says
    """

    def __init__(
        self,
        reactor: Any,
        server: Server,
        secret: bytes,
        times: Times,
        log: Callable[[str], None],
        tls: PeerTls | None,
        tell: Callable[[], Told],
        met: Callable[[Told], None],
        heard: Callable[[Envelope], None],
    ):
        self.reactor, self.me, self.name, self.secret, self.log = reactor, server.replica, server.name, secret, log
        self.times = replace(times, tick=min(times.tick, TICK_S), silent_ticks=max(SILENT_TICKS, times.silent_ticks))
        self.tls, self.tell, self.met, self.heard = tls, tell, met, heard
        self.ways: dict[str, Way] = {}
        self.names: dict[str, str] = {}  # id of a store -> its replica
        self.batches: dict[str, int] = {}  # id -> up to this version it reads packed batches
        self._whose: dict[Connection, str] = {}  # accepted ones, and those that were dialled -> replica, once it told
        self._conns: set[Connection] = set()
        self._numbers = 0
        self._sweep: Any = None
        self._stopped = True
        self.place(server.replicas)

    def place(self, places: Iterable[Place]) -> None:
        """Where the others are, from now on."""
        others = {place.name: place for place in places if place.name != self.me}
        for name in [*self.ways]:
            if others.get(name) != self.ways[name].place:
                self._end(self.ways.pop(name))
        for name, place in others.items():
            if name not in self.ways:
                self.ways[name] = Way(place)
                if not self._stopped:
                    self._dial(self.ways[name])

    def start(self) -> None:
        self._stopped = False
        self._sweep = self.reactor.callLater(self.times.tick, self._tick)
        for way in self.ways.values():
            self._dial(way)

    def stop(self) -> None:
        self._stopped = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for way in self.ways.values():
            self._end(way)

    def _end(self, way: Way) -> None:
        if way.timer is not None:
            way.timer.cancel()
            way.timer = None
        if way.conn is not None:
            way.conn.abort()
        elif way.connector is not None:
            way.connector.disconnect()
        way.conn = way.connector = None

    def send(self, envelope: Envelope) -> None:
        """What cannot be sent now is lost, as on any network."""
        way = self.ways.get(self.names.get(envelope.to, ""))
        if way is not None and way.up and way.conn is not None and way.conn.queued < QUEUED:
            way.conn.send_now(wire.encode(frame_of(envelope)))  # before our own disk writes, which may keep this thread

    def told(self) -> list[Told]:
        """What the others have told."""
        return [way.told for way in self.ways.values() if way.told is not None]

    def say(self) -> None:
        """Something that we tell of ourselves has changed."""
        frame = wire.encode(self.tell().frame())
        for conn in self._conns:
            conn.send([frame], [])

    # -- dialling --------------------------------------------------------------------------------------------------

    def _dial(self, way: Way) -> None:
        way.timer = None
        place = way.place
        if not self.secret and not is_loopback(place.host):
            self._complain(way, f"{place.name} is at {place.host}, and there is no secret; set [bus] secret_file")
            return
        factory: Any = _Dialling(self, way)
        if self.tls is not None:
            factory = self.tls.wrapped(factory, True, self.reactor)
        way.connector = self.reactor.connectTCP(place.host, place.port, factory, timeout=self.times.connect)

    def connected(self, way: Way) -> Connection:
        """TCP is there; the protocol for it."""
        self._numbers += 1
        conn = way.conn = Connection(
            self.reactor, self._numbers, self.times, lambda *_: self, self._failed, self._lost, self.name,
            way.place.name, True, self.tls,
        )  # fmt: skip
        conn.handshake = dialer(self.name, self.name, REPLICA, self.secret, os.urandom(NONCE_BYTES))
        return conn

    def unreachable(self, way: Way) -> None:
        way.connector = way.conn = None
        way.up = False
        if not self._stopped and self.ways.get(way.place.name) is way and way.timer is None:
            way.failures += 1
            wait = min(RETRY_LAST_S, self.times.retry_first * 2.0 ** min(way.failures - 1, 10))
            way.timer = self.reactor.callLater(wait * (0.5 + random.random()), self._dial, way)

    def _lost(self, conn: Connection) -> None:
        for way in self.ways.values():
            if way.conn is conn:
                self.unreachable(way)

    def _failed(self, conn: Connection, error: Exception) -> None:
        way = next((way for way in self.ways.values() if way.conn is conn), None)
        if way is not None:
            self._complain(way, f"closed the connection to replica {way.place.name}: {error}")

    def _complain(self, way: Way, sentence: str) -> None:
        if sentence != way.said:
            way.said = sentence
            self.log(sentence)

    # -- both ends -------------------------------------------------------------------------------------------------

    def opened(self, conn: Connection, login: Login) -> None:
        if self.tls is not None and not conn.dialled:
            self.tls.check(conn.transport, self.name)
        conn.limit(LIMIT)
        self._conns.add(conn)
        conn.send([wire.encode(self.tell().frame())], [])

    def received(self, conn: Connection, frames: list[Any]) -> None:
        for frame in frames:
            if type(frame) is not list or not frame:
                raise PeerError("a replica says what is no message")
            if frame[0] == "replica":
                self._told(conn, told_of(frame))
            elif conn not in self._whose:
                raise PeerError("a replica says something before it has told who it is")
            else:
                self.heard(envelope_of(frame))

    def _told(self, conn: Connection, told: Told) -> None:
        way = self.ways.get(told.replica)
        if told.server != self.name or way is None:
            raise PeerRefused(
                f"{told.server}/{told.replica} is no other replica of {self.name}, by the topology file of {self.me}"
            )
        if conn.dialled and conn is not way.conn:
            raise PeerRefused(f"{told.replica} answers where {conn.where} was expected; compare `listen` of both")
        self._whose[conn] = told.replica
        self.names = {id: name for id, name in self.names.items() if name != told.replica}
        self.names[told.id], self.batches[told.id] = told.replica, told.batches
        way.told = told
        if conn is way.conn:
            way.up, way.failures, way.said = True, 0, ""
        self.met(told)

    def closed(self, conn: Connection) -> None:
        self._conns.discard(conn)
        self._whose.pop(conn, None)

    def _tick(self) -> None:
        for conn in [*self._conns]:
            if not conn.closing:
                conn.tick()
        self._sweep = self.reactor.callLater(self.times.tick, self._tick)


class _Dialling(protocol.ClientFactory):
    noisy = False

    def __init__(self, ways: Ways, way: Way):
        self.ways, self.way = ways, way

    def buildProtocol(self, addr: Any) -> Connection:
        return self.ways.connected(self.way)

    def clientConnectionFailed(self, connector: Any, reason: Any) -> None:
        if self.way.connector is connector:
            self.ways.unreachable(self.way)
