"""A table that is the same on all servers: a third one beside names and policies, in thirty lines."""

from typing import Any

import pytest

from mombroker.core.errors import PeerError, UnknownNotification
from mombroker.core.message import Message
from mombroker.core.replicated import Replicated, Replication
from tests.core.bus import Bus, topology

ASKED, TOLD, REFUSED = "_colour", "_coloured", "_faded"


def _read(message: Message) -> tuple[str, str]:
    name, line, colour = message.payload.decode().partition("\n")
    if not line:
        raise UnknownNotification(f"{message.type} came without a colour")
    return name, colour


class Colours(Replicated):
    """Black is refused."""

    agent, prefix = "_colours", "colour:"

    def __init__(self, replication: Replication):
        super().__init__(replication)
        self.known = self.rows()
        self.define(ASKED, _read, self._decide, TOLD, _read, self._apply)
        self.refusal(REFUSED, _read, lambda name, colour: self.settle(name, f"{colour} is no colour"))

    def paint(self, name: str, colour: str, ticket: int = 0) -> None:
        if ticket:
            self.wait(name, ticket)
        self.ask(ASKED, f"{name}\n{colour}".encode())

    def _decide(self, asker: str, name: str, colour: str) -> bytes | None:
        if colour == "black":
            self.refuse(asker, REFUSED, f"{name}\n{colour}".encode())
            return None
        return f"{name}\n{colour}".encode()

    def _apply(self, name: str, colour: str) -> None:
        self.known[name] = colour
        self.keep(name, colour)
        self.settle(name, {"name": name, "colour": colour})


@pytest.fixture
def painted():
    bus = Bus(topology({"x": "abc", "y": "cd"}))  # a decides, c passes on to d

    def paint(server: str, name: str, colour: str) -> Any:
        ticket = next(bus.numbers)
        bus.servers[server].requests.tickets.open(ticket)
        bus.tables[server].paint(name, colour, ticket)
        bus.pump()
        return bus.replies.pop(ticket, None)

    def boot(name: str) -> None:
        bus.tables[name] = Colours(bus.servers[name].natives.replication)

    bus.tables, bus.paint, bus.take_up = {}, paint, boot
    for name in bus.servers:
        boot(name)
    return bus


def seen(bus: Bus) -> list[dict[str, str]]:
    return [table.known for table in bus.tables.values()]


def test_who_asks_is_answered_when_its_own_server_has_it(painted):
    assert painted.paint("d", "door", "red") == {"name": "door", "colour": "red"}
    assert painted.paint("b", "door", "blue") == {"name": "door", "colour": "blue"}
    assert seen(painted) == [{"door": "blue"}] * 4


def test_who_is_refused_is_told_and_nobody_else(painted):
    assert painted.paint("d", "door", "black") == "black is no colour"
    assert seen(painted) == [{}] * 4 and not any(table.tickets for table in painted.tables.values())


def test_changes_of_several_servers_have_one_order_everywhere(painted):
    for colour in ("red", "blue"):
        for server in "bcd":
            painted.tables[server].paint("door", f"{colour} of {server}")
    painted.pump()
    assert len({table.known["door"] for table in painted.tables.values()}) == 1


def test_a_table_is_in_the_store(painted):
    painted.paint("b", "door", "red")
    painted.crash("d")
    painted.boot("d")
    painted.take_up("d")
    assert seen(painted) == [{"door": "red"}] * 4 and painted.stores["d"].meta()["colour:door"] == "red"


def test_what_cannot_be_meant_is_a_peer_s_error_before_anything_changes(painted):
    painted.tables["b"].ask(ASKED, b"no colour")
    with pytest.raises(PeerError, match="_colour came without a colour"):
        painted.pump()
    assert seen(painted) == [{}] * 4
