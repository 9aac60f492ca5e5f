"""The topology file: TOML to a Topology and back, with the line, the key and a remedy for everything that is wrong."""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from mombroker import ordering
from mombroker.broker.access.permission import permission
from mombroker.broker.policy import FormerWord, policy, stored
from mombroker.core import owners
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.limits import Limits
from mombroker.core.places import Place
from mombroker.core.topology import CLIENTS, AgentDecl, Domain, Fault, Server, Topology, address, listed, suggestion
from mombroker.net import toml
from mombroker.net.toml import Key
from mombroker.net.wire import LINK_LIMIT

Table = dict[str, Any]
MAX_BYTES = 16 << 20  # of a topology file

# What each table may hold: name -> (type, an example). One that starts with "!" must be there.
ABOVE = {"revision": (int, "revision = 3")}
TABLES = {"bus": (dict, "[bus]"), "servers": (dict, "[servers.NAME]"), "domains": (dict, "[domains.NAME]")}
TOP = {
    **ABOVE, **TABLES, "agents": (list, "[[agents]]"), "policies": (list, "[[policies]]"),
    "permissions": (list, "[[permissions]]"), "limits": (dict, "[limits]"), "log": (dict, "[log]"),
}  # fmt: skip
BUS = {
    "name": (str, '!name = "demo"'),
    "registry": (str, 'registry = "paris"'),
    "secret_file": (str, 'secret_file = "bus.secret"'),
    "ca": (str, 'ca = "tls/ca.pem"'),
    "allow": (list, 'allow = ["examples"]'),
}
SERVER = {
    "listen": (str, '!listen = "127.0.0.1:16300"'),
    "stomp": (str, 'stomp = "127.0.0.1:61613"'),
    "stomp_tls": (str, 'stomp_tls = "0.0.0.0:61614"'),
    "amqp": (str, 'amqp = "127.0.0.1:5672"'),
    "amqp_tls": (str, 'amqp_tls = "0.0.0.0:5671"'),
    "http": (str, 'http = "127.0.0.1:8161"'),
    "http_tls": (str, 'http_tls = "0.0.0.0:8162"'),
    "http_origins": (list, 'http_origins = ["https://shop.example"]'),
    "certificate": (str, 'certificate = "paris.pem"'),
    "private_key": (str, 'private_key = "paris.key"'),
    "client_ca": (str, 'client_ca = "clients.pem"'),
    "anonymous": (bool, "anonymous = true"),
    "type_headers": (bool, "type_headers = true"),
    "hide_version": (bool, "hide_version = true"),
    "data": (str, 'data = "var/paris"'),
    "redirect": (bool, "redirect = true"),
    "replicas": (list, 'replicas = [{ name = "p1", listen = "10.0.0.1:16300" }]'),
}
REPLICA = {
    "name": (str, '!name = "p1"'),
    "listen": (str, '!listen = "10.0.0.1:16300"'),
    "stomp": (str, 'stomp = "10.0.0.1:61613"'),
    "stomp_tls": (str, 'stomp_tls = "10.0.0.1:61614"'),
    "amqp": (str, 'amqp = "10.0.0.1:5672"'),
    "amqp_tls": (str, 'amqp_tls = "10.0.0.1:5671"'),
    "http": (str, 'http = "10.0.0.1:8161"'),
    "http_tls": (str, 'http_tls = "10.0.0.1:8162"'),
    "certificate": (str, 'certificate = "p1.pem"'),
    "private_key": (str, 'private_key = "p1.key"'),
    "data": (str, 'data = "var/p1"'),
    "witness": (bool, "witness = true"),
}
OF_REPLICAS = ("listen", *CLIENTS, "data")  # each has its own
DOMAIN = {"servers": (list, '!servers = ["paris", "lyon"]'), "ordering": (object, 'ordering = "matrix"')}
AGENT = {
    "name": (str, '!name = "greeter"'),
    "server": (str, '!server = "lyon"'),
    "class": (str, '!class = "examples.greeter:Greeter"'),
    "fields": (dict, 'fields = { greeting = "hello" }'),
}
LOG = {
    "enabled": (bool, "enabled = true"),
    "max_bytes": (int, "max_bytes = 1_000_000_000"),
    "max_age_days": (int, "max_age_days = 30"),
}
SHOWN = {"min_free": 1 << 30, "max_memory": 4 << 30}  # an example in place of the default, which is not to be written
LIMITS = {
    each.name: (int, f"{each.name} = {SHOWN.get(each.name, each.default)}")
    for each in fields(Limits)
    if each.default is not MISSING
}
ZERO = {each.name for each in fields(Limits) if each.default == 0}  # their default, which may be written
MOST = {  # what the wire, the store and the operator's port can carry
    "max_message": LINK_LIMIT // 2, "link_window": 1 << 31, "link_window_bytes": 1 << 31, "batch_bytes": 1 << 28,
    "max_attempts": 1000, "retry_factor": 1000, "max_traceback": 1 << 20,
}  # fmt: skip
REVISION = "The one that this file was made from: `mom topology apply` refuses it if another one is in force by then."
NAMED_BY = "name the topology file by --file or $MOM_FILE"
MOST_INT = (1 << 63) - 1  # that a row can hold
WORDS = {
    str: "text of one line", list: "a list of texts", dict: "a table", bool: "true or false",
    int: "a whole number from 1 up",
}  # fmt: skip


def load(path: str | Path, warn: Callable[[str], None] | None = None) -> Topology:
    """The topology in a TOML file. Raises TopologyError with all that is wrong, each as `file:line: key: what to do`.
    With `warn` former words of policies are no fault; that is told of each.

    Relative paths are relative to the file's folder.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise TopologyError([f"{path}: larger than {MAX_BYTES >> 20} MiB: give a topology file"])
        text = content.decode("utf-8-sig")  # some editors mark the beginning
    except OSError as error:
        raise TopologyError([f"{path}: {(error.strerror or str(error)).lower()}: {NAMED_BY}"]) from None
    except UnicodeDecodeError as error:
        raise TopologyError([f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8"]) from None
    return loads(text, path.parent.absolute(), str(path), warn)


def loads(text: str, base: Path, source: str = "topology", warn: Callable[[str], None] | None = None) -> Topology:
    """As `load`, from text whose relative paths are relative to `base`; errors name `source`."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, line = str(error).partition(" (at line ")
        where = f"{source}:{line.partition(',')[0]}" if line else source
        raise TopologyError([f"{where}: not TOML: {what[:1].lower()}{what[1:]}; correct this line"]) from None
    except RecursionError:
        raise TopologyError([f"{source}: lists and tables are too deep within each other: take some out"]) from None
    except ValueError:  # of Python, for more digits than it reads
        raise TopologyError([f"{source}: not TOML: a number has thousands of digits; shorten it"]) from None
    if (key := _beyond(content, ())) is not None:
        faults = [Fault(key, "not TOML, whose numbers have 64 bits: lower it")]
    else:
        reading = _Reading(base, warn)
        topology = reading.topology(content)
        faults = [*reading.faults, *reading.kept(topology.faults()), *_ordering_faults(topology)]
    if faults:
        lines = toml.key_lines(text)
        at = [(toml.line_of(lines, fault.key), fault) for fault in faults]
        at.sort(key=lambda pair: pair[0])
        raise TopologyError([f"{source}:{line}: {fault}" if line else f"{source}: {fault}" for line, fault in at])
    return topology


class _Reading:
    """Turns parsed TOML into a Topology and collects what is wrong with its shape on the way."""

    def __init__(self, base: Path, warn: Callable[[str], None] | None = None):
        self.base, self.warn = base, warn
        self.faults: list[Fault] = []

    def topology(self, content: Table) -> Topology:
        top = self.table((), content, TOP)
        bus = self.table(("bus",), top.get("bus", {}), BUS)
        servers = {name: self.server(name, table) for name, table in top.get("servers", {}).items()}
        domains = {name: self.domain(name, table) for name, table in top.get("domains", {}).items()}
        agents = [self.agent(at, table) for at, table in enumerate(top.get("agents", []))]
        secret, made_from = bus.get("secret_file"), top.get("revision", 0)
        if made_from > MOST_INT:
            self.fault(("revision",), f"must be {MOST_INT} at most, not {made_from}: lower it")
        limits = self.bounded(self.table(("limits",), top.get("limits", {}), LIMITS))
        log = self.table(("log",), top.get("log", {}), LOG)
        if log.get("max_bytes", 0) >= (room := limits.get("max_store", Limits().max_store)):
            self.fault(
                ("log", "max_bytes"),
                f"must be below max_store = {room}, or the log leaves no room for messages: lower it",
            )
        return Topology(
            name=bus.get("name", ""),
            servers=servers,
            domains=domains,
            agents=agents,
            registry=bus.get("registry"),
            secret_file=str(self.base / secret) if secret is not None else None,
            allow=tuple(bus.get("allow", ())),
            ca=self.path(bus.get("ca")) or None,
            limits=limits,
            log=log,
            policies=[self.policy(at, table) for at, table in enumerate(top.get("policies", []))],
            permissions=[self.permission(at, table) for at, table in enumerate(top.get("permissions", []))],
            revision=made_from,
            checked=False,
        )

    def server(self, name: str, value: object) -> Server:
        key = ("servers", name)
        replicated = isinstance(value, dict) and bool(value.get("replicas"))
        known = SERVER | {"listen": (str, 'listen = "127.0.0.1:16300"')} if replicated else SERVER
        table = self.table(key, value, known)
        places = tuple(self.place(name, at, each) for at, each in enumerate(table.get("replicas", ())))
        for each in OF_REPLICAS if places else ():
            if each in table:
                self.fault((*key, each), "each of the `replicas` has its own: write it there")
        host, port = self.address((*key, "listen"), table)
        certificate, private = (self.path(table.get(each)) for each in ("certificate", "private_key"))
        made = Server(
            name, host, port, table.get("stomp"), self.path(table.get("data", f"var/{name}")), table.get("stomp_tls"),
            certificate, private, table.get("anonymous", False), table.get("type_headers", False),
            table.get("hide_version", False), table.get("http"), table.get("http_tls"),
            tuple(table.get("http_origins", ())), self.path(table.get("client_ca")),
            table.get("amqp"), table.get("amqp_tls"), places,
            table.get("redirect", False),
        )  # fmt: skip
        if not places:
            return made
        return replace(made.at(places[0]), certificate=certificate, private_key=private, replica="")

    def place(self, server: str, at: int, value: object) -> Place:
        key = ("servers", server, "replicas", at)
        table = self.table(key, value, REPLICA)
        name = table.get("name", "")
        host, port = self.address((*key, "listen"), table)
        certificate, private = (self.path(table.get(each)) for each in ("certificate", "private_key"))
        return Place(
            name, host, port, self.path(table.get("data", f"var/{server}-{name}")), table.get("stomp"),
            table.get("stomp_tls"), table.get("http"), table.get("http_tls"), certificate, private,
            table.get("witness", False), table.get("amqp"), table.get("amqp_tls"),
        )  # fmt: skip

    def address(self, key: Key, table: Table) -> tuple[str, int]:
        try:
            return address(table["listen"]) if "listen" in table else ("", 0)
        except ValueError as error:
            self.fault(key, str(error))
            return "", 0

    def path(self, text: str | None) -> str:
        """A path of the file; an empty one if there is none."""
        return str(self.base / text) if text else ""

    def domain(self, name: str, value: object) -> Domain:
        key = ("domains", name)
        table = self.table(key, value, DOMAIN)
        order, options = table.get("ordering", ""), Table()
        if isinstance(order, dict):
            options = {option: each for option, each in order.items() if option != "backend"}
            order = order.get("backend")
        if not isinstance(order, str) or ("ordering" in table and not order):
            self.fault((*key, "ordering"), 'write a name, as "matrix", or { backend = "daisy", groups = [...] }')
            order = ""
        return Domain(name, tuple(table.get("servers", ())), order, options)

    def agent(self, at: int, value: object) -> AgentDecl:
        key = ("agents", at)
        table = self.table(key, value, AGENT)
        if (bad := _unpackable(table.get("fields", {}))) is not None:
            self.fault((*key, "fields"), f"{bad} cannot be a field: use text, numbers, true, false, lists and tables")
        return AgentDecl(
            table.get("name", ""), table.get("server", ""), table.get("class", ""), table.get("fields", {})
        )

    def bounded(self, limits: Table) -> Table:
        for name, value in limits.items():
            if value > MOST.get(name, MOST_INT):
                self.fault(("limits", name), f"must be {MOST.get(name, MOST_INT)} at most, not {value}: lower it")
        return limits

    def policy(self, at: int, values: Table) -> Table:
        try:
            policy(values)
        except MomError as error:
            if self.warn and isinstance(error, FormerWord):
                self.warn(f"policies[{at}]: {error} before a server starts with this file")
                return stored(values).as_dict()
            self.fault(("policies", at), str(error))
        return values

    def permission(self, at: int, values: Table) -> Table:
        try:
            return permission(values).values()
        except MomError as error:
            self.fault(("permissions", at), str(error))
        return values

    def table(self, key: Key, value: object, known: Mapping[str, tuple[type, str]]) -> Table:
        """The entries of a table that may be used; the others are faults."""
        if not isinstance(value, dict):
            self.fault(key, f"must be a table, not {_shown(value)}")
            return {}
        good = {}
        for name, each in value.items():
            if name not in known:
                hint = suggestion(name, known) or f"known are {listed(known, 99)}"
                if name in ABOVE:
                    hint = "it belongs above the first table"
                self.fault((*key, name), f"unknown key: {hint}")
            elif not _fits(each, known[name][0], name):
                kind, example = known[name]
                words = WORDS[kind].replace("from 1 up", "from 0 up") if name in ZERO else WORDS[kind]
                self.fault((*key, name), f"must be {words}, not {_shown(each)}: {example.lstrip('!')}")
            else:
                good[name] = each
        for name, (_, example) in known.items():
            if example.startswith("!") and name not in value:
                self.fault((*key, name), f"missing: add {example[1:]}")
        return good

    def fault(self, key: Key, text: str) -> None:
        self.faults.append(Fault(key, text))

    def kept(self, faults: Iterable[Fault]) -> list[Fault]:
        """Without those that only follow from a value that is missing or of the wrong type."""
        told = {fault.key for fault in self.faults}
        return [each for each in faults if told.isdisjoint(each.key[:end] for end in range(1, len(each.key) + 1))]


def _fits(value: object, kind: type, name: str) -> bool:
    if kind is str:
        return isinstance(value, str) and value != "" and min(value) >= " "
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= (name not in ZERO)
    if kind is list:
        inner = dict if name in ("agents", "policies", "permissions", "replicas") else str
        return isinstance(value, list) and all(isinstance(each, inner) for each in value)
    return isinstance(value, kind)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def _beyond(value: object, key: Key) -> Key | None:
    """Where a whole number is that 64 bits do not hold: Python reads it, but nothing that follows could keep it."""
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return next((found for at, each in parts if (found := _beyond(each, (*key, at))) is not None), None)
    return key if isinstance(value, int) and value.bit_length() > 64 else None


def _unpackable(value: object) -> object:
    """A value in it that TOML has and a message has not: a date or a time."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next((bad for bad in map(_unpackable, value) if bad is not None), None)
    return None if isinstance(value, str | int | float) else value


def _ordering_faults(topology: Topology) -> Iterable[Fault]:
    """What the back ends say of their options; core, which lies below them, cannot ask."""
    found: list[Domain] = []
    for domain in topology.domains.values():
        key = ("domains", domain.name, "ordering")
        try:
            backend = ordering.backend(domain.backend)
        except MomError as error:
            yield Fault(key, str(error))
        else:
            if domain.members:  # else that is the fault
                yield from (Fault(key, text) for text in backend.validate(domain.members, domain.options))
            found.append(domain)
    for server in topology.servers:
        if clash := owners.clash(server, its := [domain for domain in found if server in domain]):
            yield Fault(("domains", its[-1].name, "ordering"), clash)


def _placed(server: Server | Place, place: Callable[[str], str]) -> Table:
    """What a server has at each of its places; with several of them, these."""
    found: Table = {
        "listen": server.listen, "stomp": server.stomp, "stomp_tls": server.stomp_tls, "amqp": server.amqp,
        "amqp_tls": server.amqp_tls, "http": server.http, "http_tls": server.http_tls,
        "data": place(server.data) or None,
    }  # fmt: skip
    if isinstance(server, Place):
        found = {"name": server.name, **found, "witness": server.witness or None}
    elif server.replicas:
        rows = [_placed(each, place) for each in server.replicas]
        found = {"replicas": [{key: value for key, value in row.items() if value is not None} for row in rows]}
    return found | {
        "certificate": place(server.certificate) or None, "private_key": place(server.private_key) or None,
    }  # fmt: skip


def dumps(topology: Topology, base: Path | None = None, remarks: Iterable[str] = ()) -> str:
    """The topology as TOML that `loads` reads back; paths below `base` are written relative to it."""

    def place(path: str) -> str:
        return str(Path(path).relative_to(base)) if path and base and Path(path).is_relative_to(base) else path

    remarks = list(remarks)
    assert all(map(str.isprintable, remarks)), "a remark must not leave its line"
    out = [f"# {remark}" for remark in remarks]
    if topology.revision:
        out += [f"# {REVISION}", f"revision = {topology.revision}"]
    bus = {"name": topology.name, "registry": topology.registry}
    bus["secret_file"] = place(topology.secret_file) if topology.secret_file else None
    bus["ca"] = place(topology.ca) if topology.ca else None
    toml.write(out, "[bus]", {**bus, "allow": list(topology.allow) or None})
    for name, server in topology.servers.items():
        table = {
            **_placed(server, place), "redirect": server.redirect or None, "anonymous": server.anonymous or None,
            "type_headers": server.type_headers or None, "hide_version": server.hide_version or None,
            "http_origins": list(server.http_origins) or None, "client_ca": place(server.client_ca) or None,
        }  # fmt: skip
        toml.write(out, f"[servers.{toml.key(name)}]", table)
    for name, domain in topology.domains.items():
        order = {"backend": domain.backend, **domain.options} if domain.options else domain.backend
        toml.write(out, f"[domains.{toml.key(name)}]", {"servers": list(domain.members), "ordering": order})
    for agent in topology.agents:
        decl = {"name": agent.name, "server": agent.server, "class": agent.cls, "fields": agent.fields or None}
        toml.write(out, "[[agents]]", decl)
    for values in topology.policies:
        toml.write(out, "[[policies]]", values)
    for values in topology.permissions:
        toml.write(out, "[[permissions]]", values)
    for name in ("limits", "log"):
        if table := getattr(topology, name):
            toml.write(out, f"[{name}]", table)
    return "\n".join(out) + "\n"
