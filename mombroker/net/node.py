"""One agent server of a process: its store, driver, links and gateway, from the first to the last."""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet import threads

from mombroker import agents
from mombroker.amqp import connection
from mombroker.amqp.protocol import Amqp
from mombroker.broker import selectors
from mombroker.broker.attach import attach
from mombroker.broker.session.service import Sessions
from mombroker.core.errors import DeclaredLost, MomError, StoreError, StoreFailed, sentence
from mombroker.core.events import LinkFrame, TaskDone
from mombroker.core.limits import Limits
from mombroker.core.meta import CLEAN, TERM
from mombroker.core.server import AgentServer
from mombroker.core.status import clock_trouble, closed
from mombroker.core.times import SECOND
from mombroker.core.topology import WILDCARD, Server, Topology, address, is_loopback
from mombroker.gateway.listener import Gateway
from mombroker.gateway.tls import ending
from mombroker.gateway.users import Logins
from mombroker.net import joining
from mombroker.net.adminport import AdminPort
from mombroker.net.aside import Aside, Make
from mombroker.net.committer import Adaptive, Committer
from mombroker.net.connection import Times
from mombroker.net.driver import Driver
from mombroker.net.files import Files, Log
from mombroker.net.links import Links
from mombroker.net.peertls import PeerTls
from mombroker.net.pool import Pool
from mombroker.net.resources import disk_bytes, process, resources
from mombroker.net.secret import secret_of
from mombroker.net.tidying import tidy
from mombroker.net.verbs import ProcessVerbs
from mombroker.net.watchdog import Committing, Running
from mombroker.stomp.protocol import Stomp
from mombroker.stomp.settings import Settings
from mombroker.store import folder
from mombroker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from mombroker.gateway.web.port import Web

COMMITTERS = 8  # writer threads of a process
TASKS = 8  # deferred functions that run at once in a process
LOGINS = 2  # passcodes that are checked at once in a process; each takes 128 MiB
PRUNE_EVERY_S = 60.0
LOOK_S, LOOK_EVERY_S = 0.5, 0.01  # clients wait at a start, at most, for a neighbour to be found
LOG_BYTES, LOG_DAYS = 1_000_000_000, 30  # kept of a server's log, unless [log] says otherwise

T = TypeVar("T")


class Shared:
    """What all servers of a process have in common: reactor, topology file, threads."""

    def __init__(self, reactor: Any, topology: Topology, committer: Callable[[], Committer] | None = None):
        self.reactor, self.topology = reactor, topology
        self.commits = Pool(COMMITTERS, "commit")
        self.tasks = Pool(TASKS, "task")
        self.logins = Pool(LOGINS, "login")
        self.files = Files()
        self.alone = True  # the process has one server only
        self.makes: Mapping[str, Make] = {}  # what the HTTP port is asked beside the verbs
        self.committer = committer or (lambda: Adaptive(reactor, self.commits))

    def start(self) -> None:
        self.commits.start()
        self.tasks.start()
        self.logins.start()

    def stop(self) -> None:
        self.commits.leave()
        self.tasks.leave()
        self.logins.leave()
        self.files.close()


class Seat(Protocol):
    """What a server has of the replica that it runs on, which goes on without it (net/replicas/node.py)."""

    @property
    def store(self) -> SqliteStore: ...
    @property
    def links(self) -> Links: ...
    @property
    def committer(self) -> Committer: ...
    @property
    def secret(self) -> bytes: ...
    @property
    def tls(self) -> PeerTls | None: ...
    @property
    def verbs(self) -> object: ...  # those that are its own
    @property
    def term(self) -> int: ...  # in which it leads
    @property
    def handed(self) -> bool: ...  # by a leader that had let clients in

    def when_leased(self, call: Callable[[], None]) -> None: ...
    def complete(self, status: dict[str, Any]) -> None: ...
    def explain(self, why: dict[str, Any]) -> None: ...


class Node:
    """One agent server of this process, from its open store to its open port.

    seat     of a server that has replicas: what it runs on
    failed   called once, with the error, when it cannot go on; it has closed everything by then
    quit     called when the operator asks for the end of the process
    reload   called when the operator asks for the settings to be read anew; what there is to say about it
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        log: Log,
        failed: Callable[["Node", BaseException], None],
        quit: Callable[[], None],
        reload: Callable[[], list[str]],
        times: Times | None = None,
        seat: Seat | None = None,
    ):
        if name not in shared.topology.servers:
            known = ", ".join(shared.topology.servers)
            raise MomError(f"the topology file has no server {name!r}; it has {known}")
        self.shared, self.name, self.log, self.times, self.seat = shared, name, log, times, seat
        self.program = agents.program(shared.topology)
        self._failed, self._quit, self._reload = failed, quit, reload
        self._prune: Any = None
        self._looking: Any = None  # the call that lets clients in

    def open(self) -> None:
        """Open the store and recover. Blocks; needs no reactor thread. Raises MomError."""
        shared, topology, seat = self.shared, self.shared.topology, self.seat
        data = topology.servers[self.name].data
        if seat is None:
            secret, self.tls = secret_of(topology, self.log), peer_tls(topology, self.name, self.log)
            self.store = joining.open_store(topology, self.name, secret)
        else:
            secret, self.tls, self.store = seat.secret, seat.tls, seat.store
        try:
            token = folder.token(data).encode()
            if folder.readable_by_others(file := Path(data) / folder.TOKEN):
                self.log(f"other users may read the token in {file}; run chmod 600 {file}")
            self.again = CLEAN in self.store.meta()  # this store has been at work before
            self.server = AgentServer(topology, self.name, self.store, self.program, attach, time.time_ns())
            for warning in self.server.alarms.warnings():
                self.log(warning)
        except BaseException:
            if seat is None:
                self.store.close()
            raise
        self.driver = Driver(
            shared.reactor,
            self.server,
            self.store,
            shared.committer() if seat is None else seat.committer,
            self,
            self._fail,
            resources=lambda: resources(data),
            meters=self._meters,
            leased=None if seat is None else seat.when_leased,
        )
        clients = self.server.clients
        assert isinstance(clients, Sessions), "the broker is attached"
        self.access = clients.access
        at, limits = topology.servers[self.name], self.server.limits
        self.stomp = Stomp(self.driver.wall, _stomp_settings(at, limits))
        self.amqp = Amqp(self.driver.wall, _amqp_settings(at, limits))
        self.gateway = Gateway(
            shared.reactor, self.name, self.driver.post, self.log,
            Logins(self.access.users.hash, self._check, shared.reactor, self._renew), self.driver.wall, at.anonymous,
            max_unfinished=limits.max_unfinished, files=shared.files, max_transactions=limits.max_transactions,
            client_ca=at.client_ca, is_user=self.access.users.known.__contains__,
        )  # fmt: skip
        requests = self.server.requests
        requests.add(ProcessVerbs(self.name, self._stop, self._reload, self._connections, self.gateway.end))
        requests.after["status"] = self._complete
        self.server.neighbours.term = int(self.store.meta(TERM).get(TERM, 0)) if seat is None else seat.term
        self.since = self.driver.wall()
        self.web: Web | None = None
        self.working = False
        self.admin = AdminPort(self.driver.post, requests.after)
        if seat is not None:
            requests.add(seat.verbs)
            requests.after["why"] = seat.explain
            self.links = seat.links
            return
        self.links = Links(
            shared.reactor, self.name, self.server.neighbours, self.driver.post, self.log, self.admin, secret,
            token, self.times, tls=self.tls, fenced=self.driver.fail,
        )  # fmt: skip

    def _meters(self) -> dict[tuple[str, str], int]:
        """What was counted since the start. The system counts for the process, thus for a server that has it alone."""
        found = {("wal_bytes", ""): self.store.wal.bytes, ("wal_syncs", ""): self.store.wal.syncs}
        if self.shared.alone:
            found["disk_bytes", ""] = disk_bytes()
        return found | {("wire_bytes", peer): count for peer, count in self.links.written().items()}

    def _check(self, work: Callable[[], T], answer: Callable[[T], None]) -> None:
        """Look at a passcode, in a thread."""
        reactor, pool = self.shared.reactor, self.shared.logins
        threads.deferToThreadPool(reactor, pool, work).addCallback(answer)

    def _run_aside(self, work: Callable[[], T], answer: Callable[[T], None]) -> None:
        threads.deferToThreadPool(self.shared.reactor, self.shared.tasks, work).addCallback(answer)

    def listen(self) -> None:
        """Open the ports. Raises MomError."""
        if self.again and not self._goes_on:
            self.gateway.hold()
        if self.seat is None:
            self.links.listen()
        else:
            self.links.fenced = self.driver.fail
            self.links.hand(self.server.neighbours, self.driver.post, self.admin)
        at = self.shared.topology.servers[self.name]
        if any((at.stomp, at.stomp_tls, at.amqp, at.amqp_tls)):
            self.shared.tasks.callInThread(selectors.prepare)
        for protocol, where, by_tls in ((self.stomp, at.stomp, at.stomp_tls), (self.amqp, at.amqp, at.amqp_tls)):
            plain, tls = _interface(where), _interface(by_tls)
            if plain is not None and not (is_loopback(plain[0]) or tls is not None):
                self.log(
                    f"passcodes and messages travel in plain text to {where}; set {protocol.setting}_tls and a "
                    "certificate"
                )
            self.gateway.listen(protocol, plain, tls, at.certificate, at.private_key)
        if at.http or at.http_tls:
            self._listen_http(at)

    def _listen_http(self, at: Server) -> None:
        from mombroker.gateway.web.port import Web  # what it needs is for servers that have this port

        plain, tls = (_interface(where) for where in (at.http, at.http_tls))
        if plain is not None and not is_loopback(plain[0]):
            self.log(f"passcodes travel in plain text to {at.http}; set http_tls and a certificate instead")
        aside = Aside(self._run_aside, self.shared.makes)

        def ask(verb: str, args: dict[str, Any], answer: Callable[[Any], None], who: str, where: str) -> None:
            if verb in aside.makes:
                aside.ask(verb, args, answer)
            else:
                self.admin.ask(verb, args, answer, who, where)

        self.web = Web(
            self.gateway, ask, self.server.requests.verbs, self.access.may, self._refuses, self.stomp,
            self.stomp.subprotocols, at.http_origins, frozenset(aside.makes),
        )  # fmt: skip
        self.web.listen(plain, tls, at.certificate, at.private_key)

    def _refuses(self) -> str:
        """Why it takes no work; empty if it does."""
        if not self.working:
            return "has not started yet"
        return closed(self.server)

    @property
    def watched(self) -> tuple[Running, Committing, Log]:
        """For the watchdog."""
        return self.server.engine, self.driver, self.log

    def start(self) -> None:
        """Let the work begin; all servers of the process that can be reached should listen by now."""
        at = self.shared.topology.servers[self.name]
        ports = {
            "STOMP": at.stomp,
            "TLS": at.stomp_tls,
            "AMQP": at.amqp,
            "AMQPS": at.amqp_tls,
            "HTTP": at.http,
            "HTTPS": at.http_tls,
        }
        clients = "".join(f", {what} {where}" for what, where in ports.items() if where)
        self.log(f"serves {at.listen}{clients}, store {at.data}")
        if trouble := clock_trouble(self.server):
            self.log(trouble)
        if self.seat is None:
            self._tidy()
        self.driver.start()
        self.working = True
        if self.again:
            self.links.look()
            if not self._goes_on:
                self._let_in(self.links.reactor.seconds() + LOOK_S)

    @property
    def _goes_on(self) -> bool:
        """Clients were let in until this moment, by another replica: there is nothing new to be asked first."""
        return self.seat is not None and self.seat.handed

    @property
    def serves(self) -> bool:
        """Clients are let in."""
        return self.working and self._looking is None

    def _let_in(self, end: float) -> None:
        """Let clients in, once a neighbour has, or none can be reached: one may say that this store was declared lost,
        and nobody is to work with it then."""
        self._looking, reactor = None, self.links.reactor
        if self.driver.dead:
            return
        if self.links.looking() and reactor.seconds() < end:
            self._looking = reactor.callLater(LOOK_EVERY_S, self._let_in, end)
        else:
            self.gateway.let_in()

    async def stop(self) -> None:
        """Take no new work, make durable what is there, let it leave, close everything."""
        self.gateway.deaf()
        await self.driver.stop()
        self._still()
        if not self.driver.dead:
            await self.gateway.stop()
            if self.web is not None:
                self.web.abort()
            if self.seat is None:
                await self.links.stop()
                self.store.close()
                self.log("stopped")

    async def leave(self) -> None:
        """Make durable what is there, and send the clients away: another replica is to lead."""
        self.gateway.deaf()
        await self.driver.stop()
        self.gateway.stop()

    def halt(self) -> None:
        """Another replica leads: nothing is committed or sent any more."""
        self.driver.halt()
        self.abort()

    def _fail(self, error: BaseException) -> None:
        """Nothing more may leave. What was promised is in the store."""
        self.abort()
        self._still()
        if isinstance(error, StoreFailed | StoreError | DeclaredLost):
            self.log(str(error))
        else:
            self.log("stopped by an error of the program: " + "".join(traceback.format_exception(error)))
        self._failed(self, error)

    def abort(self) -> None:
        """Close all sockets at once."""
        if self.web is not None:
            self.web.abort()
        self.gateway.abort()
        if self.seat is None:
            self.links.abort()

    def _still(self) -> None:
        for call in (self._prune, self._looking):
            if call is not None:
                call.cancel()
        self._prune = self._looking = None

    def _tidy(self) -> None:
        """Keep the log within the bounds of the topology file's [log] table."""
        room = self.server.limits.max_store
        try:
            wait = tidy(
                self.store,
                log_bounds(self.shared.topology.log, room),
                self.driver.now(),
                lambda: self.driver.committing,
            )
        except (StoreFailed, StoreError) as error:
            self.driver.fail(error)
            return
        near = self.server.alarms.last.bytes > room // 2  # then the log may be what takes the room
        wait = wait or (1.0 if near else PRUNE_EVERY_S)
        self._prune = self.shared.reactor.callLater(wait, self._tidy)

    # -- outputs of the driver ---------------------------------------------------------------------------------------

    def send(self, number: int, frames: list[LinkFrame]) -> None:
        self.links.send(number, frames)

    def hang_up(self, number: int) -> None:
        self.links.hang_up(number)

    def client(self, number: int, replies: list[Any]) -> None:
        self.gateway.reply(number, replies)

    def reply(self, ticket: int, result: dict[str, Any] | str) -> None:
        self.admin.reply(ticket, result)

    def dial(self, peer: str) -> None:
        self.links.dial(peer)

    def meet(self, peer: str) -> None:
        self.links.meet(peer)

    def note(self, line: str) -> None:
        self.log(line)

    def run(self, id: int, function: str, payload: bytes) -> None:
        self.shared.tasks.callInThread(self._run, id, function, payload)

    def _run(self, id: int, function: str, payload: bytes) -> None:
        """A deferred function, in its thread. Whatever it raises is its result."""
        try:
            done = TaskDone(id, self.program.run(function, payload))
        except BaseException as error:  # an exit ends its thread, not the server
            done = TaskDone(id, None, sentence(error))
        self.shared.reactor.callFromThread(self.driver.post, done)

    def reload(self, topology: Topology) -> list[str]:
        """Take over what may change while a server runs: certificate, limits, bounds of the log. Sentences about it."""
        was, at = self.shared.topology.servers[self.name], topology.servers[self.name]
        notes = []
        apart: dict[str, Any] = {"certificate": "", "private_key": "", "replicas": ()}
        if replace(was, **apart) != replace(at, **apart):
            notes.append(f"reads what has changed in [servers.{self.name}] at its next start only")
        if line := self.server.truth.stands(topology):
            notes.append(line)
        self.server.limit(Limits(**topology.limits))
        self.stomp.settings.limits.body = self.amqp.settings.max_message = self.server.limits.max_message
        self.gateway.room.unfinished.most = self.server.limits.max_unfinished
        self.gateway.room.max_transactions = self.server.limits.max_transactions
        try:
            self.gateway.reload(at.certificate, at.private_key)
        except MomError as error:
            notes.append(f"keeps the certificate that it has: {error}")
        return notes

    # -- requests about the process ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.shared.reactor.callLater(0, self._quit)

    def _complete(self, status: dict[str, Any]) -> None:
        status["faults"] = self.links.faults
        status["peers"] = self.links.peers()
        status["store_file_bytes"] = self.store.file_size()
        status["turns"] = self.driver.turns()
        status["commits"] = self.driver.commits
        status["process"] = {"since": self.since, **process()}
        status["stomp"] = {**self.gateway.status(), "dropped": self.server.clients.dropped}
        status["certificate_expires"] = self.tls.expires if self.tls is not None else self.gateway.expires
        if self.seat is not None:
            self.seat.complete(status)
        if self.web is not None:
            status["http"] = self.web.status()
        status["problems"] += self.gateway.problems()
        if self.tls is not None:
            ends = ending(self.tls.certificate, self.tls.expires, self.driver.wall() // SECOND)
            status["problems"] += [ends] if ends and ends not in status["problems"] else []

    def _connections(self) -> list[dict[str, Any]]:
        describe, parts = self.server.clients.describe, self.gateway.parts_of
        rows = [
            (row, [describe(each) for each in (row["number"], *parts(row["number"]))])
            for row in self.gateway.connections()
        ]
        return [{**row, **{name: sum(each[name] for each in told) for name in told[0]}} for row, told in rows]

    def _renew(self, user: str, was: str, hash: str) -> None:
        """A right passcode has a weak hash: store a stronger one, unless it is changed meanwhile."""
        self.admin.ask("renew_user", {"user": user, "hash": hash, "was": was})


def log_bounds(log: dict[str, Any], room: int) -> tuple[int, int]:
    """Bytes and days of a server's log that are kept, of a store that may have so many bytes."""
    return int(log.get("max_bytes", min(LOG_BYTES, room // 4))), int(log.get("max_age_days", LOG_DAYS))


def peer_tls(topology: Topology, name: str, log: Log) -> PeerTls | None:
    """What the links of a server are behind. Raises MomError."""
    if not topology.ca:
        return None
    at = topology.servers[name]
    made = PeerTls(topology.name, name, topology.ca, at.certificate, at.private_key, log)
    if why := made.trouble():
        log(why)
    return made


def _stomp_settings(at: Server, limits: Limits) -> Settings:
    settings = Settings(type_headers=at.type_headers)
    settings.limits.body = limits.max_message
    if at.hide_version:
        settings.server = ""
    return settings


def _amqp_settings(at: Server, limits: Limits) -> connection.Settings:
    settings = connection.Settings(
        anonymous=at.anonymous, external=bool(at.client_ca), max_message=limits.max_message
    )  # fmt: skip
    if at.hide_version:
        settings.server = ""
    return settings


def _interface(where: str | None) -> tuple[str, int] | None:
    """Where to listen; all addresses of the machine may be written in several ways."""
    if where is None:
        return None
    host, port = address(where)
    return ("" if host in WILDCARD - {"::"} else host), port
