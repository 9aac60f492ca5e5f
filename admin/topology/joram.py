"""Import of JORAM's a3servers.xml. Whatever has no counterpart here is listed, never dropped silently."""

import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from mombroker.core.errors import MomError, TopologyError
from mombroker.core.ids import SERVER_NAME
from mombroker.core.layouts import MOST_PORT, PORT
from mombroker.core.topology import Domain, Server, Topology, address, is_loopback, suggestion
from mombroker.core.words import many

MAX_BYTES = 16 << 20  # of an a3servers.xml
MAX_NAME = 64


@dataclass(slots=True)
class Import:
    """What became of the file. `renamed` holds (what, old name, new name), `left_out` all that has no counterpart."""

    topology: Topology
    renamed: list[tuple[str, str, str]]
    left_out: list[str]

    def remarks(self) -> list[str]:
        names = [f"{what} {old!r} is now {new}" for what, old, new in self.renamed]
        remarks = [*names, *(f"no counterpart: {each}" for each in self.left_out)]
        return ["".join(c if c.isprintable() else " " for c in remark) for remark in remarks]


def read(path: str | Path) -> Import:
    """The bus of an a3servers.xml. Raises MomError; TopologyError with all faults if its graph has a cycle."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MomError(f"{path}: {(error.strerror or str(error)).lower()}: give an a3servers.xml") from None
    if len(content) > MAX_BYTES:
        raise MomError(f"{path}: larger than {MAX_BYTES >> 20} MiB: give an a3servers.xml")
    try:
        return parse(content)
    except TopologyError as error:
        raise TopologyError([f"{path}: {each}" for each in error.errors]) from None
    except MomError as error:
        raise MomError(f"{path}: {error}") from None


def parse(content: bytes) -> Import:
    root = _tree(content)
    if root.tag != "config":
        raise MomError(f"the root element is {root.tag}, not config: give an a3servers.xml")
    return _Reading(root).result()


def _tree(content: bytes) -> Element:
    """The elements of an XML text whose DOCTYPE, if any, is passed over.

    It is parsed twice. The first pass refuses entities and finds the root element; the second reads from there on, and
    so knows no entity but XML's own five (a first pass alone would drop unknown ones in attributes without a word).
    """
    start, encoding = 0, None
    scan = expat.ParserCreate()

    def declaration(version: str, name: str | None, standalone: int) -> None:
        nonlocal encoding
        encoding = name

    def root(*_: object) -> None:
        nonlocal start
        start = scan.CurrentByteIndex
        scan.StartElementHandler = None

    def refuse(name: str, *_: object) -> NoReturn:
        raise MomError(f"it declares or uses the entity {name!r}; entities are refused: write their text in place")

    scan.XmlDeclHandler, scan.StartElementHandler = declaration, root
    scan.EntityDeclHandler = scan.SkippedEntityHandler = refuse
    try:
        scan.Parse(content, True)
        return ElementTree.fromstring(content[start:], ElementTree.XMLParser(encoding=encoding))
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise MomError(f"not well-formed XML: {error}") from None


@dataclass(slots=True)
class _Names:
    """Legal, distinct names for those of the file."""

    what: str
    new: dict[str, str] = field(default_factory=dict)
    renamed: list[tuple[str, str, str]] = field(default_factory=list)

    def make(self, old: str, spare: str) -> str:
        """A name for a new thing that was called `old`; `spare` if nothing of that is left."""
        plain = unicodedata.normalize("NFKD", old).encode("ascii", "ignore").decode()
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain).strip("-_.")[:MAX_NAME] or spare
        if SERVER_NAME.fullmatch(old):
            name = old
        first, count, taken = name, 1, set(self.new.values())
        while name in taken:
            count += 1
            name = f"{first[: MAX_NAME - 8]}-{count}"
        if name != old:
            self.renamed.append((self.what, old, name))
        return name


class _Reading:
    def __init__(self, root: Element):
        self.errors: list[str] = []
        self.left: list[str] = []
        self.domain_names, self.server_names = _Names("domain"), _Names("server")
        self.members: dict[str, list[str]] = {}
        self.servers: dict[str, Server] = {}
        bus = _Names("bus")
        self.name = bus.make(root.get("name", ""), "joram")
        self.renamed = bus.renamed if root.get("name") else []
        for element in root.findall("domain"):
            self.domain(element)
        ids: dict[str, str] = {}
        for element in root.findall("server"):
            name, number = self.server(element), element.get("id", "")
            if number in ids:
                self.errors.append(f"servers {ids[number]} and {name} both have the id {number!r}: give each its own")
            ids.setdefault(number, name)
        if ids:
            self.left.append(f"server ids {', '.join(ids)} (servers are known by name)")
        for element in root:
            if element.tag not in ("domain", "server"):
                self.left.append(_shown(element))

    def domain(self, element: Element) -> None:
        old = element.get("name", "")
        if old in self.domain_names.new:
            self.errors.append(f"domain {old!r} is declared twice: declare it once")
            return
        name = self.domain_names.new[old] = self.domain_names.make(old, f"d{len(self.members) + 1}")
        self.members[name] = []
        if transport := element.get("network"):
            self.left.append(f"domain {name}: network {transport} (every link is TCP)")
        self.rest(f"domain {name}", element, {"name", "network"}, set())

    def server(self, element: Element) -> str:
        number = element.get("id", "")
        old = element.get("name", "")
        name = self.server_names.make(old, f"s{number}" if re.fullmatch("[0-9]+", number) else f"s{len(self.servers)}")
        self.server_names.new[name] = name  # JORAM knows servers by id: names may repeat
        server = self.servers[name] = Server(name, element.get("hostname", "localhost"), 0, None, f"var/{name}")
        for network in element.findall("network"):
            self.network(server, network)
        for service in element.findall("service"):
            self.service(server, service)
        self.rest(f"server {name}", element, {"id", "name", "hostname"}, {"network", "service"})
        return name

    def network(self, server: Server, element: Element) -> None:
        old, text = element.get("domain", ""), element.get("port", "")
        domain = self.domain_names.new.get(old)
        if domain is None:
            hint = suggestion(old, self.domain_names.new) or "declare it, or delete the network"
            self.errors.append(f"server {server.name} is in a domain {old!r} that is not declared: {hint}")
        else:
            self.members[domain].append(server.name)
        port = self.port(f"server {server.name}", text) if text.strip("0") or not text else 0
        if server.port and port != server.port:
            self.left.append(f"server {server.name}: port {text} for {old} (port {server.port} serves all its domains)")
        elif not port and text:
            self.left.append(f"server {server.name}: port {text} for {old} (in JORAM it only dials; here all listen)")
        server.port = server.port or port
        self.rest(f"server {server.name}: network {old}", element, {"domain", "port"}, set())

    def service(self, server: Server, element: Element) -> None:
        """A TCP proxy is where clients come in: its port becomes the one for STOMP."""
        name, args = element.get("class", ""), element.get("args", "").split()
        if name.endswith("TcpProxyService") and args and server.stomp is None:
            port = self.port(f"server {server.name}: {name}", args[0])
            server.stomp = Server("", server.host, port).listen
            self.left.append(f"server {server.name}: {_shown(element)} (clients speak STOMP on port {port})")
        else:
            self.left.append(f"server {server.name}: {_shown(element)}")

    def rest(self, where: str, element: Element, attributes: set[str], elements: set[str]) -> None:
        """List the parts of an element that nobody has read."""
        self.left += [f'{where}: {name}="{value}"' for name, value in element.attrib.items() if name not in attributes]
        self.left += [f"{where}: {_shown(child)}" for child in element if child.tag not in elements]

    def port(self, where: str, text: str) -> int:
        if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536:
            return int(text)
        self.errors.append(f"{where}: {text!r} is no port: write a number from 1 to 65535")
        return 0

    def result(self) -> Import:
        if not self.servers:
            self.errors.append("it declares no server: give an a3servers.xml with servers")
        self.leave_out_the_lonely()
        outside = not all(is_loopback(server.host) for server in self.servers.values())
        if outside:
            self.left.append("no secret yet: write one into bus.secret, the same for all servers")
        topology = Topology(
            self.name,
            self.servers,
            {name: Domain(name, tuple(members)) for name, members in self.members.items()},
            registry=next(iter(self.servers), None),
            secret_file="bus.secret" if outside else None,
            checked=False,
        )
        faults = [str(fault) for fault in topology.faults()] if self.servers else []
        if self.errors or faults:
            raise TopologyError(self.errors + faults)
        return Import(topology, [*self.renamed, *self.domain_names.renamed, *self.server_names.renamed], self.left)

    def leave_out_the_lonely(self) -> None:
        """Domains that order nothing, and servers that JORAM lets stand alone: they are no part of a bus."""
        for name in [name for name, members in self.members.items() if len(members) < 2]:
            servers = many(len(self.members.pop(name)), "server")
            self.left.append(f"domain {name} of {servers} (it has nothing to order)")
        joined = {server for members in self.members.values() for server in members}
        lonely = [name for name in self.servers if name not in joined]
        if len(lonely) == len(self.servers) > 1:
            self.errors.append("no two of its servers share a domain: import each server from a file of its own")
        elif len(self.servers) > 1:
            for name in lonely:
                self.left.append(f"server {name} in no domain (it can be a bus of its own)")
                del self.servers[name]
        taken = {server.port for server in self.servers.values()}
        taken |= {address(server.stomp)[1] for server in self.servers.values() if server.stomp and not self.errors}
        free = (port for port in range(PORT, MOST_PORT + 1) if port not in taken)
        for server in self.servers.values():
            if not server.port and not self.errors:
                server.port = next(free)
                self.left.append(f"server {server.name} without a port (it listens on {server.port})")


def _shown(element: Element) -> str:
    return " ".join([element.tag, *(f'{name}="{value}"' for name, value in element.attrib.items())])
