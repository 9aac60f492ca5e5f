"""The page on the architecture tells the way of a message as it is: each station, in the order of the way."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mombroker.broker.commands import Delivery
from mombroker.core.events import ClientCommands, ClientOpened, ClientWrote, Ready
from mombroker.stomp.frames import encode
from mombroker.stomp.session import Session
from tests.core.bus import Bus, topology
from tests.test_tree import ARROWS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = ("stomp/", "broker/", "core/", "ordering/")  # what runs here: no sockets, no files


def stations() -> list[tuple[str, str]]:
    """(file, function) as the page names them, one behind the other."""
    table = PAGE.partition("## The way of one message\n")[2].partition("\n## ")[0]
    found = []
    for line in table.splitlines():
        for file, names in re.findall(r"`([\w/]+\.py)`((?: `[\w.]+`,?)+)", line if line.startswith("|") else ""):
            found += [(file, name) for name in re.findall(r"`([\w.]+)`", names)]
    return found


def functions(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def test_each_station_is_a_function_of_the_file_that_is_named():
    named = stations()
    assert len(named) > 20
    missing = [(file, name) for file, name in named if name not in [*functions(ROOT / "mombroker" / file)]]
    assert missing == []


class Peer:
    """A STOMP client of one server, without a socket."""

    def __init__(self, bus: "Wired", server: str, conn: int):
        self.bus, self.server, self.conn = bus, server, conn
        self.session = Session(f"{server}/s{conn}", lambda: bus.now)
        self.told = b""
        bus.peers[conn] = self
        self.receive(encode("CONNECT", [("accept-version", "1.2")]))
        bus.servers[server].step(ClientOpened(conn, "user", "", self.session.id), bus.now)
        self.session.accept()
        bus.pump()

    def receive(self, data: bytes) -> None:
        self.session.receive(data)
        if commands := self.session.commands[:]:
            self.session.commands.clear()
            self.bus.servers[self.server].step(ClientCommands(self.conn, commands), self.bus.now)

    def reply(self, replies: list[object]) -> None:
        self.session.reply(replies)
        self.told += b"".join(self.session.output)
        self.session.output.clear()

    def wrote(self, replies: list[object]) -> None:
        for reply in replies:
            if isinstance(reply, Delivery):
                self.bus.servers[self.server].step(ClientWrote(self.conn, reply.tag), self.bus.now)


class Wired(Bus):
    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        super().__init__(topology({"d": "ab"}))

    def release(self, name: str, ready: Ready) -> None:
        for conn, replies in ready.clients:
            self.peers[conn].reply(replies)
        super().release(name, ready)
        for conn, replies in ready.clients:
            self.peers[conn].wrote(replies)


def test_a_message_passes_the_stations_in_their_order():
    bus = Wired()
    producer, consumer = Peer(bus, "a", 901), Peer(bus, "b", 902)
    consumer.receive(encode("SUBSCRIBE", [("id", "1"), ("destination", "/queue/q")]))
    bus.pump()
    passed = []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and "mombroker" in code.co_filename:
            passed.append((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        producer.receive(encode("SEND", [("destination", "/queue/q"), ("receipt", "r")], b"hello"))
        bus.pump()
    finally:
        sys.setprofile(None)
    assert b"RECEIPT" in producer.told and b"hello" in consumer.told
    went = iter(passed)
    lost = [
        (file, name)
        for file, name in stations()
        if file.startswith(ROOMS) and not any(at.endswith(f"/{file}") and name == done for at, done in went)
    ]
    assert lost == []  # once one is not found, those behind it are not either


def test_the_layers_of_the_core_are_as_the_page_tells():
    """A part imports its own layer and those below; files that the page does not name are below all."""
    table = PAGE.partition("## The layers of the core\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d+ \|", line)]
    layer = {file: int(row[1]) for row in rows for file in re.findall(r"`core/(\w+)\.py`", row[2])}
    assert {"server", "engine", "channel", "link", "transaction"} <= layer.keys()
    wrong = []
    for path in sorted((ROOT / "mombroker" / "core").glob("*.py")):
        needs = ARROWS.get(f"mombroker.core.{path.stem}", set())
        names = sorted(name.removeprefix("mombroker.core.") for name in needs)
        wrong += [f"{path.stem} -> {name}" for name in names if layer.get(name, 0) > layer.get(path.stem, 0)]
    assert wrong == []
