"""Sequences, duplicates, credit and resend of one neighbour; two servers and a third that makes it a domain."""

import pytest

from mombroker.core.errors import PeerError, PeerRefused
from mombroker.core.events import LinkFrames, StoreSize
from mombroker.core.limits import Limits
from mombroker.core.link import Link
from mombroker.store.memory import MemoryStore
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put, Tell

AGENTS = "tests.core.sample_agents"


def bus(**limits: int) -> Bus:
    made = Bus(
        topology(
            {"x": "abc"}, {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink", "c/other": f"{AGENTS}:Sink"}
        ),
        Limits(**limits),
    )
    made.pump()
    return made


def link(bus: Bus, server: str, peer: str) -> Link:
    return bus.servers[server].channel.domains["x"].link(peer)


def tell(bus: Bus, text: str, to: str = "sink") -> None:
    bus.send("a", "source", Tell([to], text))


def got(bus: Bus, agent: str = "b/sink") -> list[str]:
    return bus.fields(agent)["got"]


def test_acknowledged_rows_leave_the_out_queue():
    b = bus()
    tell(b, "one")
    assert (link(b, "a", "b").sent, link(b, "a", "b").acked) == (1, 1)
    assert b.stores["a"].queue_out_size(link(b, "a", "b").id) == (0, 0)


def test_nothing_is_sent_or_acknowledged_before_its_commit():
    b = bus()
    tell(b, "warm up")
    one, two = b.servers["a"], b.servers["b"]
    conn = link(b, "b", "a").conn
    packet = one.channel.domains["x"].core.send([1], b"junk")[0]
    with pytest.raises(PeerError, match="cannot be used"):
        two.step(LinkFrames("a", conn, [("data", "x", 2, [one.channel.domains["x"].core.encode(packet)])]), b.now)
    assert link(b, "b", "a").received == 1, "what cannot be read is not taken"


def test_stored_packets_are_resent_byte_for_byte_and_duplicates_dropped():
    b = bus()
    b.cut("a", "b")
    for text in "xyz":
        tell(b, text)
    stored = b.stores["a"].queue_out(link(b, "a", "b").id, 0, 9, 9)
    assert len(stored) == 3
    b.join("a", "b")
    ready = b.commit("a")
    b.servers["a"].committed(ready, b.now)
    (conn, frames), *_ = [entry for entry in ready.frames if entry[0] == link(b, "a", "b").conn]
    data = [frame for frame in frames if frame[0] == "data"]
    assert data == [("data", "x", 1, [bytes for _, bytes in stored])]
    other = link(b, "b", "a")
    for _ in range(2):  # the same frame twice
        b.servers["b"].step(LinkFrames("a", other.conn, data), b.now)
    b.pump()
    assert got(b) == ["x", "y", "z"]
    assert other.duplicates == 3


def test_what_a_former_process_may_have_sent_may_be_had_though_the_peer_has_not_written_it_yet():
    """If the peer is lost then, whether that was delivered is unknown."""
    b = bus()
    tell(b, "met")
    b.cut("a", "b")
    for text in "xy":
        tell(b, text)
    b.crash("a")
    b.boot("a")
    assert link(b, "a", "b").seen() == 3
    b.join("a", "b")
    assert (link(b, "a", "b").conn > 0, link(b, "a", "b").next, link(b, "a", "b").seen()) == (True, 2, 3)


def test_a_gap_closes_the_link_and_changes_nothing():
    b = bus()
    tell(b, "one")
    other = link(b, "b", "a")
    with pytest.raises(PeerError, match="a gap"):
        b.servers["b"].step(LinkFrames("a", other.conn, [("data", "x", 7, [b""])]), b.now)
    assert other.received == 1


def test_frames_of_an_old_connection_are_ignored():
    b = bus()
    tell(b, "one")
    old = link(b, "b", "a").conn
    b.cut("a", "b")
    b.join("a", "b")
    b.servers["b"].step(LinkFrames("a", old, [("data", "x", 7, [b""])]), b.now)
    b.pump()
    assert got(b) == ["one"]


def test_a_sender_stays_within_credit_and_goes_on_when_it_comes():
    b = bus(link_window=4)
    b.cut("a", "b")
    for number in range(50):
        tell(b, str(number))
    b.join("a", "b")
    ready = b.commit("a")
    sent = [frame for _, frames in ready.frames for frame in frames if frame[0] == "data"]
    assert sum(len(frame[3]) for frame in sent) == 4
    b.release("a", ready)
    b.pump()
    assert got(b) == [str(number) for number in range(50)]


def test_a_peer_of_which_too_much_is_held_gets_no_credit_until_the_cause_comes():
    """1. a tells other, then sink. 2. other's cause is behind a cut. 3. What c relays to b is held at b."""
    b = Bus(
        topology(
            {"x": "abc"},
            {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink", "c/relay": f"{AGENTS}:Source"},
        ),
        Limits(max_held=3, link_window=10),
    )
    b.pump()
    b.cut("a", "b")
    b.send("a", "source", Tell(["b/sink"], "cause"))
    b.send("a", "source", Tell(["c/relay"], "hear"))
    for number in range(40):
        b.send("c", "relay", Tell(["b/sink"], f"effect {number}"))
    held = link(b, "b", "c")
    assert 3 <= held.held <= 12 and held.grant() == held.granted == held.received
    waits = [wait for wait in b.ask("b", "why")["waits"] if wait["kind"] == "held"]
    assert waits[0]["waits_for"][0]["server"] == "a" and not waits[0]["waits_for"][0]["up"]
    assert len(b.records("b", "hold")) == held.held
    b.crash("b")
    b.boot("b")
    b.join("c", "b")
    b.pump()
    assert got(b) == [] and link(b, "b", "c").held == held.held, "held packets are durable"
    b.join("a", "b")
    b.pump()
    assert got(b) == ["cause"] + [f"effect {number}" for number in range(40)]
    assert link(b, "b", "c").held == 0


def test_a_full_server_takes_no_work_but_serves_its_peers_one_by_one():
    b = bus(max_store=1000)
    b.servers["b"].step(StoreSize(2000), b.now)
    tell(b, "one")
    assert got(b) == ["one"]
    assert "takes no work from outside" in b.send("b", "sink", Put("two"))
    assert "max_store" in b.ask("b", "status")["problems"][0]
    b.servers["b"].step(StoreSize(10), b.now)
    assert "message" in b.send("b", "sink", Put("two"))


@pytest.mark.parametrize("wiped", ["a", "b"])
def test_a_wiped_store_is_refused_by_both_ends(wiped):
    b = bus()
    tell(b, "one")
    b.crash(wiped)
    b.stores[wiped] = MemoryStore(b.topology, wiped, "another")
    b.boot(wiped)
    other = "ab".replace(wiped, "")
    with pytest.raises(PeerRefused, match="mom domain reset"):
        b.servers[other].neighbours.admit(b.servers[wiped].neighbours.greet(other))


@pytest.mark.parametrize("old", ["a", "b"])
def test_a_restored_store_is_refused(old):
    b = bus()
    tell(b, "one")
    copy = b.stores[old].snapshot()
    tell(b, "two")
    b.crash(old)
    b.stores[old].restore(copy)
    b.boot(old)
    other = "ab".replace(old, "")
    with pytest.raises(PeerRefused, match="old copy"):
        b.servers[old].neighbours.admit(b.servers[other].neighbours.greet(old))
    with pytest.raises(PeerRefused, match="old copy"):
        b.servers[other].neighbours.admit(b.servers[old].neighbours.greet(other))


def test_a_restored_store_that_has_sent_anew_is_refused():
    """Its numbers fit again, its messages do not: the peer would take new ones for those that it has."""
    b = bus()
    copy = b.stores["a"].snapshot()
    tell(b, "one")
    tell(b, "two")
    b.crash("a")
    b.stores["a"].restore(copy)
    b.cut("a", "b")
    for text in ("instead of one", "instead of two", "three"):
        b.boot("a")
        tell(b, text)
        b.crash("a")
    b.boot("a")
    assert link(b, "a", "b").durable == 3 and b.servers["b"].neighbours.greet("a").received == 2
    with pytest.raises(PeerRefused, match="b has received 2 messages of a in x, which sent only 0: the store of a was"):
        b.servers["a"].neighbours.admit(b.servers["b"].neighbours.greet("a"))


def test_another_order_or_epoch_is_refused():
    b = bus()
    hello = b.servers["a"].neighbours.greet("b")
    hello.digest = "x"
    with pytest.raises(PeerRefused, match="orders domain x differently"):
        b.servers["b"].neighbours.admit(hello)
    b.servers["a"].neighbours.epochs["x"] = 1
    with pytest.raises(PeerRefused, match="started anew for some servers only"):
        b.servers["b"].neighbours.admit(b.servers["a"].neighbours.greet("b"))
    hello = b.servers["b"].neighbours.greet("a")
    hello.epoch, hello.graph = 1, "y"
    with pytest.raises(PeerRefused, match="another graph"):
        b.servers["a"].neighbours.admit(hello)
