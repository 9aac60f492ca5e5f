"""Heart-beats: what leaves when nothing else did, and how late a client may be."""

import pytest

from mombroker.broker.commands import Receipt
from mombroker.core.events import ClientClosed, ClientOpened
from mombroker.stomp.session import MARK
from tests.gateway.world import SEND, World, delivery


def test_S6_a_beat_leaves_when_nothing_else_did():
    world = World(beat_send=1000, beat_expect=0)
    mine = world.connect(heart_beat="0,1000")
    world.clock.pump([0.1] * 9)
    assert mine.commands() == ["beat"]
    world.clock.pump([0.1] * 5)
    world.gateway.reply(1, [Receipt("r")])
    assert mine.commands() == ["RECEIPT"]
    world.clock.pump([0.1] * 7)
    assert mine.commands() == []
    world.clock.pump([0.1] * 2)
    assert mine.commands() == ["beat"]


def test_S6_a_large_message_that_is_being_written_is_a_sign_of_life_and_no_beat_lands_in_it():
    world = World(beat_send=1000, beat_expect=0)
    mine = world.connect(heart_beat="0,1000")
    world.gateway.reply(1, [delivery(1, body=b"x" * 100_000)])
    mine.writes.clear()
    world.clock.pump([0.5] * 20)
    assert mine.writes == []
    assert mine.commands() == ["MESSAGE"]
    world.clock.pump([0.5] * 2)
    assert mine.commands() == ["beat"]


def beating(**more):
    world = World(beat_send=0, beat_expect=1000, **more)
    return world, world.connect(heart_beat="1000,0")


def test_S5_a_client_may_be_late_by_as_much_again():
    world, mine = beating()
    for _ in range(10):
        world.clock.pump([0.1] * 20)
        mine.receive(b"\n")
    assert mine.commands() == []
    world.clock.pump([0.1] * 30)
    (error,) = mine.drain()
    assert "no heart-beat or other byte for 3 s, where 1 s were agreed" in error.headers["message"]
    assert [type(event) for event in world.take()] == [ClientOpened, ClientClosed]


@pytest.mark.parametrize("bytes", [SEND, b"SEND\ndestination:abcdefghijklmnop", b"\n"])
def test_S5_any_byte_is_a_sign_of_life(bytes):
    world, mine = beating()
    for at in range(20):
        world.clock.pump([0.1] * 20)
        mine.receive(bytes[at % len(bytes)].to_bytes(1, "big"))
    assert mine.commands() == []


def test_S5_when_we_were_held_up_ourselves_what_lies_there_is_read_first():
    world, mine = beating()
    world.clock.advance(30)
    assert mine.commands() == []
    mine.receive(b"\n")
    world.clock.pump([0.1] * 20)
    assert mine.commands() == []


def test_while_a_client_is_not_read_its_silence_does_not_count():
    world, mine = beating()
    while mine.reading:
        mine.receive(b"\n" * 60_000)
    world.clock.pump([0.5] * 100)
    assert mine.commands() == []
    world.gateway.reply(1, [Receipt(MARK)])
    world.clock.pump([0.1] * 20)
    assert mine.commands() == []
    world.clock.pump([0.1] * 20)
    assert mine.commands() == ["ERROR"]


def test_S8_without_heart_beats_silence_is_no_fault_and_the_system_looks_after_dead_peers(world):
    mine = world.connect()
    world.clock.advance(100_000)
    assert mine.commands() == [] and mine.connected
    assert mine.options["keepalive"] and mine.options["nodelay"] and len(mine.options) == 5
