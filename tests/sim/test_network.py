"""Connections under virtual time: what the agent servers may rely on, and no more."""

from typing import Any

import pytest

from mombroker.core.errors import PeerRefused
from mombroker.core.events import LinkDown, LinkFrames, LinkUp
from mombroker.core.hello import Hello
from mombroker.sim.network import Network
from mombroker.sim.world import MS, World


class Peer:
    """Takes down what it hears."""

    def __init__(self, name: str):
        self.name, self.up, self.epoch = name, True, 1
        self.events: list[Any] = []
        self.complaints: list[tuple[str, str]] = []
        self.failed: list[str] = []
        self.refuses = ""

    def greet(self, peer: str) -> Hello:
        return Hello(self.name, "", "d", "", 0, "", 0, 0, 0, 0, 0, 1)

    def admit(self, hello: Hello) -> None:
        if hello.server == self.refuses:
            raise PeerRefused(f"not {hello.server}")

    def post(self, event: Any) -> None:
        self.events.append(event)

    def refused(self, peer: str, error: PeerRefused) -> None:
        self.complaints.append((peer, str(error)))

    def undialled(self, peer: str) -> None:
        self.failed.append(peer)

    def links(self) -> list[tuple[str, int]]:
        return [(type(event).__name__, event.conn) for event in self.events if not isinstance(event, LinkFrames)]

    def got(self, conn: int) -> list[Any]:
        frames = [event.frames for event in self.events if isinstance(event, LinkFrames) and event.conn == conn]
        return [frame for part in frames for frame in part]


class Bus:
    def __init__(self, seed: int = 1):
        self.world = World(seed)
        self.a, self.b = Peer("a"), Peer("b")
        self.network = Network(self.world, {"a": self.a, "b": self.b}, ["a", "b"], 2 * MS)

    def connect(self) -> int:
        self.network.dial("a", "b")
        self.world.run()
        return self.a.events[-1].conn


def data(n: int) -> tuple[str, str, int, list[bytes]]:
    return ("data", "d", n, [b""])


def test_both_ends_hear_of_a_connection_once():
    bus = Bus()
    conn = bus.connect()
    assert bus.a.links() == bus.b.links() == [("LinkUp", conn)]
    assert (bus.a.events[0].hello.server, bus.b.events[0].hello.server) == ("b", "a")
    bus.network.dial("a", "b")
    bus.world.run()
    assert len(bus.a.events) == 1, "there is a connection already"


def test_what_was_sent_before_an_end_hangs_up_arrives():
    bus = Bus()
    conn = bus.connect()
    bus.network.send(conn, "a", [data(n) for n in range(1, 5)])
    bus.network.hang_up(conn, "a")
    bus.network.hang_up(conn, "a")
    bus.world.run()
    assert bus.b.got(conn) == [data(n) for n in range(1, 5)]
    assert bus.a.links() == bus.b.links() == [("LinkUp", conn), ("LinkDown", conn)]
    assert not bus.network.connections and bus.connect() != conn


@pytest.mark.parametrize("seed", range(20))
def test_when_both_dial_one_connection_is_left(seed):
    bus = Bus(seed)
    bus.network.dial("a", "b")
    bus.world.after(seed * MS // 2, bus.network.dial, "b", "a")
    bus.world.run()
    conn = [event.conn for event in bus.a.events if isinstance(event, LinkUp)][-1]
    assert bus.a.links()[-1] == bus.b.links()[-1] == ("LinkUp", conn)
    assert bus.network.connections[conn].open == {"a": True, "b": True}
    assert not bus.network.attempts


@pytest.mark.parametrize("seed", range(20))
def test_data_arrive_in_order_and_without_gaps_until_the_connection_breaks(seed):
    bus = Bus(seed)
    conn = bus.connect()
    for n in range(50):
        bus.world.after(n * MS // 10, bus.network.send, conn, "a", [("ack", "d", n, 1), data(n), data(n + 100)])
    bus.world.after(3 * MS, bus.network.break_, bus.network.connections[conn])
    bus.world.run()
    sent = [frame for n in range(50) for frame in (data(n), data(n + 100))]
    got = [frame for frame in bus.b.got(conn) if frame[0] == "data"]
    assert got == sent[: len(got)] and len(got) < len(sent)
    for peer in (bus.a, bus.b):
        assert peer.links() == [("LinkUp", conn), ("LinkDown", conn)]
        assert isinstance(peer.events[-1], LinkDown), "nothing comes after it"


def test_acknowledgements_overtake_data():
    for seed in range(50):
        bus = Bus(seed)
        conn = bus.connect()
        bus.network.send(conn, "a", [data(1)])
        bus.network.send(conn, "a", [("ack", "d", 7, 1)])
        bus.world.run()
        if bus.b.got(conn) == [("ack", "d", 7, 1), data(1)]:
            return
    raise AssertionError("never")


def test_a_refusal_is_heard_by_both_and_the_attempt_fails():
    for refusing in "ab":
        bus = Bus()
        one = getattr(bus, refusing)
        one.refuses = "ab".replace(refusing, "")
        bus.network.dial("a", "b")
        bus.world.run()
        assert bus.a.failed == ["b"] and not bus.a.events and not bus.b.events
        assert [text for _, text in bus.a.complaints + bus.b.complaints] == [f"not {one.refuses}"] * 2


def test_there_is_no_connection_across_a_cut_until_all_cuts_are_healed():
    bus = Bus()
    conn = bus.connect()
    bus.network.cut("a", "b")
    bus.network.cut("b", "a")
    bus.world.run()
    assert bus.a.links()[-1] == bus.b.links()[-1] == ("LinkDown", conn)
    bus.network.heal("a", "b")
    bus.network.dial("a", "b")
    bus.world.run()
    assert bus.a.failed == ["b"]
    bus.network.heal("a", "b")
    assert bus.connect() != conn


@pytest.mark.parametrize("seed", range(20))
def test_the_peer_of_a_dead_process_learns_of_it_also_when_the_new_one_is_faster(seed):
    bus = Bus(seed)
    old = bus.connect()
    bus.network.crash("a", notice=20 * MS)
    bus.a.epoch, bus.a.events = 2, []
    bus.network.dial("a", "b")
    bus.world.run()
    new = bus.a.events[-1].conn
    assert bus.a.links() == [("LinkUp", new)], "the new process knows nothing of the old connection"
    assert sorted(bus.b.links()) == sorted([("LinkUp", old), ("LinkDown", old), ("LinkUp", new)])
