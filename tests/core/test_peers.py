"""Bytes of a neighbour that no member of the domain sends, in every back end: its link ends, nothing has changed."""

import random
import struct
from dataclasses import fields, replace

import pytest

from mombroker.core.errors import SENTENCE_CHARS, NotYet, PeerError, PeerRefused
from mombroker.core.events import LinkDown, LinkFrames, LinkUp
from mombroker.core.hello import Hello
from mombroker.core.message import Message
from mombroker.ordering.base import Packet
from mombroker.ordering.registry import BUILT_IN
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put

AGENTS = "tests.core.sample_agents"
TREE = {"groups": [["a", "b"], ["c", "d"]]}
OPTIONS = {"daisy": TREE}
BACKENDS = [name for name in BUILT_IN if name != "fifo"]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def town(backend: str) -> Bus:
    members = "ab" if backend == "fifo" else "abcd"
    made = Bus(topology(
        {"x": members}, {f"{name}/{name}": f"{AGENTS}:Sink" for name in members},
        {"x": (backend, OPTIONS.get(backend, {}))},
    ))  # fmt: skip
    made.pump()
    made.send("a", "b", Put("first"))
    return made


def hear(made: Bus, data: bytes) -> None:
    """One packet of a comes to b, in its turn."""
    link = made.servers["b"].channel.domains["x"].link("a")
    made.servers["b"].step(LinkFrames("a", link.conn, [("data", "x", link.received + 1, [data])]), made.now)


def goes_on(made: Bus) -> None:
    made.servers["b"].check()
    made.send("a", "b", Put("second"))
    assert made.fields("b/b")["got"] == ["first", "second"]


@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", [*BACKENDS, "fifo"])
def test_bytes_that_are_no_packet_end_the_link_and_change_nothing(backend, count):
    made, chance = town(backend), random.Random(backend)
    link = made.servers["b"].channel.domains["x"].link("a")
    real = Message("a", 99, "a/a", ("b/b",), Put.__wire_name__, b"\x91\xa1x").encode()
    for _ in range(count):
        junk = chance.randbytes(chance.choice((0, 1, 2, 5, 20, 80))) + chance.choice((b"", b"junk" * 9, real[:-9]))
        before = link.received
        with pytest.raises(PeerError) as error:
            hear(made, junk)
        assert str(error.value).isprintable() and len(str(error.value)) <= SENTENCE_CHARS
        assert link.received == before and made.servers["b"].channel.domains["x"].core.dirty() == ({}, set())
    goes_on(made)


@pytest.mark.parametrize("where", ["decode", "receive"])
@pytest.mark.parametrize("error", [
    KeyError(-1), IndexError(), struct.error("\x1b[2J"), RuntimeError("x" * 10**7), ZeroDivisionError(), TypeError(),
    Mute(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), RecursionError(), ValueError("a\nb"),
])  # fmt: skip
def test_whatever_a_back_end_raises_for_a_packet_is_the_peer_s_error(where, error, monkeypatch):
    made = town("matrix")
    core = made.servers["b"].channel.domains["x"].core

    def stumble(frm: int, what: object) -> object:
        raise error

    packet = (
        made.servers["a"].channel.domains["x"].core.send([1], Message("a", 9, "a/a", ("b/b",), "t", b"").encode())[0]
    )
    data = made.servers["a"].channel.domains["x"].core.encode(packet)
    with monkeypatch.context() as patch:
        patch.setattr(core, where, stumble)
        with pytest.raises(PeerError, match="a sent a packet in x that cannot be used") as found:
            hear(made, data)
    assert str(found.value).isprintable() and len(str(found.value)) <= SENTENCE_CHARS
    made.servers["b"].check()
    hear(made, data)


def test_a_failed_assertion_of_a_core_is_no_fault_of_a_peer(monkeypatch):
    made = town("matrix")

    def fail(frm: int, packet: Packet) -> None:
        raise AssertionError("ours")

    core = made.servers["a"].channel.domains["x"].core
    data = core.encode(core.send([1], Message("a", 9, "a/a", ("b/b",), "t", b"").encode())[0])
    monkeypatch.setattr(made.servers["b"].channel.domains["x"].core, "receive", fail)
    with pytest.raises(AssertionError, match="ours"):
        hear(made, data)


@pytest.mark.parametrize("frame", [
    ("data", "x", 1 << 63, [b""]), ("data", "\x1b[2J" * 10**5, 1, [b""]), ("ack", "x", 1 << 63, 0),
    ("ack", "y\n", 0, 1), ("\x1b[2J" * 10**5, "x", 1, 1),
])  # fmt: skip
def test_what_a_frame_says_is_told_in_one_bounded_line(frame):
    made = town("matrix")
    with pytest.raises(PeerError) as error:
        made.servers["b"].step(
            LinkFrames("a", made.servers["b"].channel.domains["x"].link("a").conn, [frame]), made.now
        )
    assert str(error.value).isprintable() and len(str(error.value)) <= SENTENCE_CHARS
    goes_on(made)


@pytest.mark.parametrize("field", [each.name for each in fields(Hello) if each.name != "server"])
def test_a_greeting_out_of_range_is_refused_or_does_no_harm(field):
    made = town("matrix")
    made.cut("a", "b")
    one, two = made.servers["a"], made.servers["b"]
    for wrong in (
        (0, 1 << 62, (1 << 63) - 1) if type(getattr(one.neighbours.greet("b"), field)) is int else ("", "\x1b[2J" * 900)
    ):
        hello = replace(one.neighbours.greet("b"), **{field: wrong})
        try:
            two.neighbours.admit(hello)
        except PeerRefused as error:
            assert str(error).isprintable() and len(str(error)) <= SENTENCE_CHARS
            continue
        two.step(LinkUp("a", 900, hello), made.now)
        two.step(LinkDown("a", 900), made.now)
        two.check()
    made.join("a", "b")
    goes_on(made)


def test_of_the_leaders_of_a_neighbour_that_has_replicas_an_older_one_is_refused_quietly():
    made = Bus(topology({"x": "ab"}))
    a, b = (made.servers[name].neighbours for name in "ab")
    made.cut("a", "b")
    a.term = 7
    made.join("a", "b")
    hello = a.greet("b")
    assert hello.term == 7 and b.terms["a"] == (hello.incarnation, 7)
    with pytest.raises(NotYet, match="a has a newer leader, of term 7"):
        b.admit(replace(hello, term=6))
    b.admit(replace(hello, term=8))
    assert b.terms["a"][1] == 7, "who was only let in has not been met"
