"""Domains, the servers in them, the check that they make a causal bus, and the route from each server to each other.

No file is read here (see net/config.py). A Topology that was made without complaint keeps causal order end to end.
"""

import difflib
import hashlib
import ipaddress
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, NamedTuple

from mombroker.core import forest
from mombroker.core.errors import NoRoute, TopologyError
from mombroker.core.ids import AGENT_NAME, SERVER_NAME
from mombroker.core.places import Place, listen_of

CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
ADDRESS = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")
ORIGIN = re.compile(r"https?://[^\s/?#@]+")
WILDCARD = {"", "0.0.0.0", "::", "*"}
CLIENTS = ("stomp", "stomp_tls", "amqp", "amqp_tls", "http", "http_tls")  # where clients reach a server


class Fault(NamedTuple):
    """One thing that is wrong: the key of the file that it is about, and what to do."""

    key: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.key)
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in f"{where[1:]}: {self.text}")


@dataclass(slots=True)
class Server:
    """`host:port` is where peers reach it, `stomp` (host:port) where clients do, `stomp_tls` where they do by TLS;
    `amqp` and `amqp_tls` the same for AMQP.

    data          its folder
    certificate   PEM file of the server's certificate, and of those that signed it
    private_key   PEM file of its key; empty: it is in the other file
    anonymous     clients of the same machine need no user
    type_headers  selectors take headers of clients that look like numbers or booleans for such
    hide_version  clients are not told what they are connected to
    http          host:port of metrics, health, the API and STOMP over WebSocket; `http_tls` the same by TLS
    client_ca     PEM file of those that sign certificates of clients, which name a user each
    http_origins  whose pages may open a WebSocket, beside this port's own
    replicas      where it is several times; what of its settings each has for itself is here that of the first
    redirect      those that do not lead answer clients of `stomp` and `amqp`
    replica       the one of them that this is, with its settings; empty: none, or any
    """

    name: str
    host: str
    port: int
    stomp: str | None = None
    data: str = ""
    stomp_tls: str | None = None
    certificate: str = ""
    private_key: str = ""
    anonymous: bool = False
    type_headers: bool = False
    hide_version: bool = False
    http: str | None = None
    http_tls: str | None = None
    http_origins: tuple[str, ...] = ()
    client_ca: str = ""
    amqp: str | None = None
    amqp_tls: str | None = None
    replicas: tuple[Place, ...] = ()
    redirect: bool = False
    replica: str = ""

    @property
    def listen(self) -> str:
        return listen_of(self.host, self.port)

    @property
    def listens(self) -> str:
        """Of all its replicas, with commas between."""
        return ",".join(place.listen for place in self.replicas) if self.replicas else self.listen

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where peers may find it."""
        return [(place.host, place.port) for place in self.replicas] or [(self.host, self.port)]

    @property
    def label(self) -> str:
        """The name of its process: SERVER, or SERVER/REPLICA."""
        return f"{self.name}/{self.replica}" if self.replica else self.name

    def views(self) -> "list[Server]":
        """It, or each of its replicas."""
        return [self.at(place) for place in self.replicas] or [self]

    def at(self, place: Place) -> "Server":
        """As one of its replicas sees it."""
        return replace(
            self, host=place.host, port=place.port, data=place.data, stomp=place.stomp, stomp_tls=place.stomp_tls,
            http=place.http, http_tls=place.http_tls, certificate=place.certificate or self.certificate,
            private_key=place.private_key if place.certificate else self.private_key, replica=place.name,
            amqp=place.amqp, amqp_tls=place.amqp_tls,
        )  # fmt: skip

    @property
    def place(self) -> Place:
        """Of the replica that this is."""
        return next(place for place in self.replicas if place.name == self.replica)


@dataclass(slots=True)
class Domain:
    """A set of servers that share one clock. `options` are those of the back end, as in the file."""

    name: str
    members: tuple[str, ...]
    backend: str = ""  # empty: the default, `fifo` between two servers and `matrix` among others
    options: dict[str, Any] = field(default_factory=dict)
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.backend = self.backend or ("fifo" if len(self.members) == 2 else "matrix")
        self._index = {member: at for at, member in enumerate(self.members)}

    def index(self, server: str) -> int:
        """The number of a member in the clocks of this domain."""
        return self._index[server]

    def __contains__(self, server: str) -> bool:
        return server in self._index

    def digest(self) -> str:
        """The order digest: two servers with the same one read each other's stamps alike."""
        return _digest([self.name, self.members, self.backend, self.options])


@dataclass(slots=True)
class AgentDecl:
    """An agent that the file declares; `cls` is "module:Class", `fields` are its first values. One whose name ends with
    `*` stands for all whose names begin so: each is made when something comes for it."""

    name: str
    server: str
    cls: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Topology:
    """The whole bus. Raises TopologyError with all faults, unless it is made with `checked=False`.

    An unchecked one is for reports on a wrong file, and for controls that must fail: its routes are still fixed and
    shortest, and of several domains in which a hop could be made they take the first.
    """

    name: str
    servers: dict[str, Server]
    domains: dict[str, Domain] = field(default_factory=dict)
    agents: list[AgentDecl] = field(default_factory=list)
    registry: str | None = None  # the server that decides names; a bus of one server needs none
    secret_file: str | None = None
    allow: tuple[str, ...] = ()  # module prefixes of agent classes that may be deployed
    limits: dict[str, int] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    policies: list[dict[str, Any]] = field(default_factory=list)  # of destinations (broker/policy.py)
    permissions: list[dict[str, Any]] = field(default_factory=list)  # of users and roles (broker/access/)
    ca: str | None = None  # PEM file of those that sign the servers' certificates: links use TLS
    revision: int = field(default=0, compare=False)  # of the bus, that a file says to be made from; 0: it does not say
    checked: InitVar[bool] = True
    _domains_of: dict[str, list[Domain]] = field(init=False, repr=False, compare=False)

    def __post_init__(self, checked: bool) -> None:
        if self.registry is None and len(self.servers) == 1:
            self.registry = next(iter(self.servers))
        self._domains_of = {server: [] for server in self.servers}
        for domain in self.domains.values():
            for server in dict.fromkeys(domain.members):
                self._domains_of.setdefault(server, []).append(domain)
        if checked:
            self.validate()

    def domains_of(self, server: str) -> list[Domain]:
        """In order of the file; two or more make the server a router."""
        return self._domains_of[server]

    def shared_domain(self, a: str, b: str) -> Domain | None:
        """The one domain that both are in (in a forest there is no second)."""
        return next((domain for domain in self._domains_of[a] if b in domain), None)

    def process(self, label: str) -> Server | None:
        """The settings of a server, or of one of its replicas as SERVER/REPLICA."""
        return next((view for server in self.servers.values() for view in server.views() if view.label == label), None)

    def seen_by(self, labels: Iterable[str]) -> "Topology":
        """As processes of these labels see it: of servers with replicas, each has the settings of one. Raises
        TopologyError for what is none."""
        servers = dict(self.servers)
        for label in labels:
            view = self.process(label)
            if view is None:
                known = ", ".join(view.label for server in self.servers.values() for view in server.views())
                raise TopologyError([f"the topology file has no server {label!r}; it has {known}"])
            servers[view.name] = view
        return replace(self, servers=servers, checked=False)

    @property
    def routers(self) -> list[str]:
        return [server for server in self.servers if len(self._domains_of[server]) > 1]

    def graph(self) -> str:
        """The digest of who is in which domain: servers with the same one have the same routes."""
        domains = sorted([name, sorted(domain.members)] for name, domain in self.domains.items())
        return _digest([sorted(self.servers), domains])

    def validate(self) -> None:
        if faults := self.faults():
            raise TopologyError([str(fault) for fault in faults])

    def faults(self) -> list[Fault]:
        """Everything that is wrong, each with its remedy."""
        return [*self._bus_faults(), *self._address_faults(), *self._domain_faults(), *self._agent_faults()]

    def _bus_faults(self) -> Iterable[Fault]:
        yield from _name_faults(("bus", "name"), "bus", self.name)
        if not self.servers:
            yield Fault(("servers",), 'there is no server: add [servers.NAME] with listen = "HOST:PORT"')
        if self.registry is None and len(self.servers) > 1:
            text = f'missing: name the server that decides names, as registry = "{next(iter(self.servers))}"'
            yield Fault(("bus", "registry"), text)
        elif self.registry is not None and self.registry not in self.servers:
            yield Fault(("bus", "registry"), self._no_server(self.registry))
        for prefix in self.allow:
            if not MODULE.fullmatch(prefix):
                yield Fault(("bus", "allow"), f"{prefix!r} is not the name of a module, as `examples` or `shop.agents`")

    def _address_faults(self) -> Iterable[Fault]:
        taken: dict[tuple[str, str], str] = {}
        for name, server in self.servers.items():
            yield from _name_faults(("servers", name), "server", name)
            yield from _replica_faults(("servers", name, "replicas"), server.replicas)
            for at, view in enumerate(server.views()):
                key = ("servers", name, "replicas", at) if server.replicas else ("servers", name)
                yield from self._place_faults(key, view, taken)
        hosts = {view.label: view.host for server in self.servers.values() for view in server.views()}
        outside = [name for name, host in hosts.items() if host not in WILDCARD and not is_loopback(host)]
        if outside and self.secret_file is None:
            text = f"missing: other hosts can reach {listed(outside)}, so name a file with a secret, or use 127.0.0.1"
            yield Fault(("bus", "secret_file"), text)

    def _place_faults(
        self, key: tuple[str | int, ...], server: Server, taken: dict[tuple[str, str], str]
    ) -> Iterable[Fault]:
        """Of one server, or of one of its replicas."""
        machine = _machine(server.host)
        if server.host in WILDCARD:
            yield Fault((*key, "listen"), "peers dial this address: give the name or address of one host")
        elif not ADDRESS.fullmatch(server.listen) or server.port > 65535:
            yield Fault((*key, "listen"), f"{server.listen!r} is no address: write HOST:PORT")
        uses = [("listen", machine, f"port {server.port}")] if server.port else []
        if server.data:
            uses.append(("data", machine, f"folder {server.data}"))
        for what in CLIENTS:
            if (where := getattr(server, what)) is None:
                continue
            try:
                host, port = address(where)
            except ValueError as error:
                yield Fault((*key, what), str(error))
            else:
                # A wildcard or loopback address belongs to the machine that the server runs on.
                local = host in WILDCARD or is_loopback(host)
                uses.append((what, machine if local else _machine(host), f"port {port}"))
                if server.anonymous and not is_loopback(host):
                    yield Fault((*key, "anonymous"), f"other hosts can reach {where}: use 127.0.0.1, or users")
        yield from _certificate_faults(key, server, self.ca)
        for origin in server.http_origins if key[-1] in (0, server.name) else ():  # told once
            if not ORIGIN.fullmatch(origin):
                yield Fault(
                    (*key[:2], "http_origins"), f"{origin!r} is no origin: write https://HOST or https://HOST:PORT"
                )
        for what, at, thing in uses:
            if user := taken.get((at, thing)):
                yield Fault((*key, what), f"{thing} on {at} is taken by {user}: give each its own")
            taken.setdefault((at, thing), f"{what} of {server.label}")

    def _domain_faults(self) -> Iterable[Fault]:
        for name, domain in self.domains.items():
            key, inside = ("domains", name, "servers"), set[str]()
            yield from _name_faults(key[:2], "domain", name)
            for server in domain.members:
                if server not in self.servers:
                    yield Fault(key, self._no_server(server))
                elif server in inside:
                    yield Fault(key, f"{server} is named twice: name it once")
                inside.add(server)
            if not domain.members:
                yield Fault(key, "the domain is empty: name its servers, or delete it")
            elif len(inside) == 1 and len(self.servers) > 1 and len(self._domains_of[domain.members[0]]) < 2:
                # A bus that began as one server keeps its first domain beside those in which others join.
                yield Fault(key, f"the domain has only {domain.members[0]}: name a second server, or delete it")
        if len(self.servers) > 1:
            for server in self.servers:
                if not self._domains_of[server]:
                    yield Fault(("servers", server), "in no domain: add it to the `servers` of one, or delete it")
        yield from self._graph_faults()

    def _graph_faults(self) -> Iterable[Fault]:
        # Names that are no servers are another fault; they must not join what they only seem to join.
        members = {
            name: [server for server in dict.fromkeys(domain.members) if server in self.servers]
            for name, domain in self.domains.items()
        }
        parts = forest.pieces(members)
        if len(parts) > 1:
            shown = "; ".join(listed(part) for part in parts)
            text = f"the bus is in {len(parts)} pieces ({shown}): put one server of each into a common domain"
            yield Fault(("domains",), text)
        for fault in forest.faults(members):
            key = ("domains", fault.domain, "servers")
            if isinstance(fault, forest.Overlap):
                yield Fault(key, _overlap_text(fault))
            else:
                yield Fault(key, _cycle_text(fault))

    def _agent_faults(self) -> Iterable[Fault]:
        seen: dict[str, int] = {}
        for at, agent in enumerate(self.agents):
            key = ("agents", at)
            if not AGENT_NAME.fullmatch(agent.name.removesuffix("*")):
                use = "use letters, digits and _ . : -, or * at the end for many"
                yield Fault((*key, "name"), f"{agent.name!r} is no name of an agent: {use}")
            elif agent.name in seen:
                yield Fault((*key, "name"), f"{agent.name} is declared twice: names are global, choose another")
            seen.setdefault(agent.name, at)
            if agent.server not in self.servers:
                yield Fault((*key, "server"), self._no_server(agent.server))
            if not CLASS_PATH.fullmatch(agent.cls):
                yield Fault((*key, "class"), f"{agent.cls!r} is no class path: write module:Class")

    def _no_server(self, name: str) -> str:
        return f"there is no server {name!r}: " + (suggestion(name, self.servers) or "add it under [servers]")


class RoutingTable:
    """Where a message for each server goes next, seen from server `me`: fixed and minimal.

    Two successive hops are never in one domain. One entry per final server, filled at the first question.
    """

    __slots__ = ("me", "_topology", "_hops", "_came")

    def __init__(self, topology: Topology, me: str):
        assert me in topology.servers, f"{me} is not in the topology"
        self.me = me
        self._topology = topology
        self._hops: dict[str, tuple[str, str]] = {}
        self._came: dict[str, tuple[str, str]] = {}  # server -> (domain, server) by which it was found

    def hop(self, final: str) -> tuple[str, str]:
        """(domain, next server) on the way to another server. Raises MomError if no way leads there."""
        found = self._hops.get(final)
        if found is None:
            found = self._hops[final] = self.path(final)[0]
        return found

    def path(self, final: str) -> list[tuple[str, str]]:
        """All hops on the way to another server, as (domain, server that it leads to)."""
        assert final != self.me, "a message to its own server takes no hop"
        if not self._came:
            self._explore()
        if final not in self._came:
            raise NoRoute(f"no route from {self.me} to {final!r}: it is not a server of this bus")
        path = []
        while final != self.me:
            domain, before = self._came[final]
            path.append((domain, final))
            final = before
        return path[::-1]

    def distance(self, final: str) -> int:
        return 0 if final == self.me else len(self.path(final))

    def _explore(self) -> None:
        """Breadth first from `me`: shortest routes, and a shortest route never makes two hops in one domain."""
        came, entered, queue = self._came, set[str](), deque([self.me])
        while queue:
            server = queue.popleft()
            for domain in self._topology.domains_of(server):
                if domain.name not in entered:
                    entered.add(domain.name)
                    by = (domain.name, server)
                    for member in domain.members:
                        if member not in came and member != self.me:
                            came[member] = by
                            queue.append(member)


def _replica_faults(key: tuple[str, ...], replicas: tuple[Place, ...]) -> Iterable[Fault]:
    names = [place.name for place in replicas]
    for at, place in enumerate(replicas):
        yield from _name_faults((*key, at, "name"), "replica", place.name)
        if place.name in names[:at]:
            yield Fault((*key, at, "name"), f"{place.name} is named twice: give each replica a name of its own")
        if place.witness and any(getattr(place, what) for what in CLIENTS):
            yield Fault((*key, at, "witness"), "a witness serves no clients: take its ports for these away")
    if replicas and all(place.witness for place in replicas):
        yield Fault(key, "all are witnesses: at least one replica must keep what the server has")


def _certificate_faults(key: tuple[str | int, ...], server: Server, ca: str | None) -> Iterable[Fault]:
    by_tls = [what for what in CLIENTS if what.endswith("_tls") and getattr(server, what) is not None]
    if by_tls and not server.certificate:
        yield Fault((*key, "certificate"), f'missing: {by_tls[0]} needs a PEM file, as certificate = "paris.pem"')
    if server.certificate and not by_tls and ca is None:
        yield Fault((*key, "certificate"), "it is for TLS: add stomp_tls, amqp_tls, http_tls or [bus] ca, or remove it")
    if server.private_key and not server.certificate:
        yield Fault((*key, "private_key"), "a key needs a certificate: add it, or remove this one")
    if server.client_ca and not by_tls:
        text = "clients show certificates by TLS alone: add stomp_tls, amqp_tls or http_tls, or remove this"
        yield Fault((*key, "client_ca"), text)


def address(text: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6 address]:port". Raises ValueError with a sentence."""
    found = ADDRESS.fullmatch(text)
    if not found or not 0 < int(found["port"]) < 65536:
        raise ValueError(f"{text!r} is no address: write HOST:PORT, as 127.0.0.1:16300 or [::1]:16300")
    return found["v6"] or found["host"], int(found["port"])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names in a sentence, the first few of many."""
    names = list(names)
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def suggestion(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest known name, if one is near."""
    near = difflib.get_close_matches(name, known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else ""


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _machine(host: str) -> str:
    return "127.0.0.1" if is_loopback(host) else host.lower()


def _name_faults(key: tuple[str | int, ...], what: str, name: str) -> Iterable[Fault]:
    if not SERVER_NAME.fullmatch(name):
        text = f"{name!r} is no name of a {what}: up to 64 letters, digits and . _ -, the first a letter or digit"
        yield Fault(key, text)


def _overlap_text(fault: forest.Overlap) -> str:
    a, b, shared = fault.domain, fault.other, fault.shared
    if fault.inside:
        return f"all its servers are in {b} too, which is a cycle ({_ring([a, shared[0], b, shared[1]])}): delete {a}"
    return (
        f"{a} and {b} share {listed(shared)}, which is a cycle ({_ring([a, shared[0], b, shared[1]])}): "
        f"take {listed(fault.surplus)} out of {a}"
    )


def _cycle_text(fault: forest.Cycle) -> str:
    text = (
        f"{_ring(fault.path)} is a cycle, in which causal order breaks: "
        f"take {fault.server} out of {fault.domain}, which costs the fewest hops"
    )
    return text + f", and delete {fault.domain}, since one server is left in it" if fault.alone else text


def _ring(path: list[str]) -> str:
    return " – ".join([*path, path[0]])
