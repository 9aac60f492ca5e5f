"""A connection whose sessions are parts: each is a client of its own to the agent server."""

import pytest

from mombroker.amqp import codec, performatives
from mombroker.amqp.connection import Settings
from mombroker.amqp.frames import PLAIN, SASL, frame
from mombroker.amqp.performatives import RECEIVER, SENDER, SOURCE, TARGET
from mombroker.amqp.protocol import Amqp
from mombroker.broker.commands import Delivery, Disconnect, Receipt, Refused
from mombroker.broker.message import ClientMessage
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from tests.amqp.peer import attach, begin, flow, init, message, open_, terminus, transfer
from tests.gateway.test_protocols import Raw
from tests.gateway.world import World

AMQP = Amqp(lambda: 10**18, Settings(anonymous=True))


@pytest.fixture
def world():
    made = World()
    made.users.clear()
    return made


def arrive(world, container="box", **more):
    made = Raw(world.accepted("127.0.0.1", AMQP))
    made.receive(SASL + init() + PLAIN + frame(open_(container, **more)))
    return made


def drained(mine):
    """All that it is told, write by write."""
    found = b""
    while data := mine.drain():
        found += data
    return found


def codes(data):
    """Of the frames that there are."""
    found = []
    while data:
        size = 8 if data[:4] == b"AMQP" else int.from_bytes(data[:4], "big")
        found.append("header" if data[:4] == b"AMQP" else codec.value(data, 8)[0].descriptor)
        data = data[size:]
    return found


def test_each_session_has_a_number_that_nobody_else_ever_has(world):
    mine = arrive(world)
    assert codes(drained(mine)) == [
        "header", performatives.MECHANISMS, performatives.OUTCOME, "header", performatives.OPEN,
    ]  # fmt: skip
    assert [(each.conn, each.client_id) for each in world.take()] == [(1, "")]
    out = frame(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "q")), 3)
    mine.receive(frame(begin(), 3) + out + frame(transfer(0, 0, message(b"x")), 3))
    opened, asked = world.take()
    assert isinstance(opened, ClientOpened) and (opened.conn, opened.client_id, opened.strict) == (2, "box", False)
    assert opened.session == mine.protocol.session.id
    assert isinstance(asked, ClientCommands) and (asked.conn, asked.commands[0].body) == (2, b"x")
    drained(mine)
    world.gateway.reply(2, [Receipt("0")])
    assert codes(drained(mine)) == [performatives.DISPOSITION]
    mine.receive(frame(performatives.end(), 3))
    (asked,) = world.take()
    assert isinstance(asked.commands[0], Disconnect)
    world.gateway.reply(2, [Receipt(asked.commands[0].receipt)])
    assert codes(drained(mine)) == [performatives.END]
    world.gateway.reply(2, [Receipt("1")])  # to nobody
    mine.receive(frame(begin(), 3) + out)
    assert codes(drained(mine)) == [performatives.BEGIN, performatives.ATTACH, performatives.FLOW]
    other = arrive(world, "other")
    drained(other)
    assert [each.conn for each in world.take()] == [3]
    mine.lose(), other.lose()
    assert [each.conn for each in world.take() if isinstance(each, ClientClosed)] == [1, 3] and world.idle()


def test_a_lost_connection_is_the_end_of_all_its_parts(world):
    mine = arrive(world)
    for channel in (0, 1):
        source = terminus(SOURCE, "q")
        mine.receive(frame(begin(), channel) + frame(attach(0, RECEIVER, source, terminus(TARGET, None)), channel))
    world.take()
    assert world.gateway.parts_of(1) == [2, 3]
    mine.lose()
    assert world.take() == [ClientClosed(1), ClientClosed(2), ClientClosed(3)] and world.idle()
    world.gateway.reply(2, [Refused("nobody hears it")])


def test_what_is_settled_by_being_written_is_told_to_its_part(world):
    mine = arrive(world)
    source = terminus(SOURCE, "q")
    mine.receive(
        frame(begin()) + frame(attach(0, RECEIVER, source, terminus(TARGET, None), settles=1)) + frame(flow(0, 9))
    )
    drained(mine)
    *_, asked = world.take()
    subscribe = asked.commands[0]
    delivery = Delivery(subscribe.sub, 7, "a#1", ClientMessage("queue:q", "/queue/q", body=b"x"), ack="auto")
    world.gateway.reply(2, [Receipt(subscribe.receipt), delivery])
    assert world.take() == []
    assert codes(drained(mine)) == [performatives.ATTACH, performatives.TRANSFER]
    assert world.take() == [ClientWrote(2, 7)]


def test_a_container_id_is_exclusive_to_who_asks_for_that(world):
    first, second = arrive(world), arrive(world)
    assert world.gateway.client_ids == {"box": 2}
    third = arrive(world, desired=["sole-connection-for-container"])
    assert codes(drained(third))[-2:] == [performatives.OPEN, performatives.CLOSE]
    first.lose(), second.lose()
    fourth = arrive(world, desired=["sole-connection-for-container"])
    assert codes(drained(fourth))[-1] == performatives.OPEN


def test_a_stop_closes_it_in_words(world):
    mine = arrive(world)
    drained(mine)
    world.gateway.stop()
    assert codes(drained(mine)) == [performatives.CLOSE]


def test_silence_ends_it_and_ours_is_an_empty_frame(world):
    mine = arrive(world, idle=4_000)
    drained(mine)
    world.clock.pump([0.1] * 18)
    assert mine.drain() == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    world.clock.pump([1.0] * 59)
    assert not world.lines
    world.clock.pump([1.0] * 10)
    assert "no heart-beat or other byte" in world.lines[-1]
