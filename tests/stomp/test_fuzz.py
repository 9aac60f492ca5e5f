"""Mutated bytes on many connections of one gateway: nobody but their sender must notice."""

import random
import resource

import pytest

from mombroker.agents.commands import Delivery, Receipt, Send, Subscribe, Transact
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened
from mombroker.stomp.frames import encode
from tests.stomp.test_gateway import World

QUEUE = ("destination", "/queue/a")
SAMPLES = [
    encode("CONNECT", [("accept-version", "1.0,1.1,1.2"), ("heart-beat", "1000,1000"), ("client-id", "c")]),
    encode("SUBSCRIBE", [("id", "1"), QUEUE, ("ack", "client"), ("selector", "a = 'b' OR c > 1")]),
    encode("SUBSCRIBE", [("id", "2"), ("destination", "/topic/a.*,/topic/b"), ("durable-subscription-name", "d")]),
    encode("SEND", [QUEUE, ("content-length", "5"), ("receipt", "r"), ("x", "1\n:")], b"a\0b\0c"),
    encode("SEND", [QUEUE, ("reply-to", "/temp-queue/t"), ("expires", "99"), ("priority", "7")], b"x"),
    encode("ACK", [("id", "s1#1/1")]),
    encode("NACK", [("id", "s1#2/2"), ("requeue", "false")]),
    encode("BEGIN", [("transaction", "t")]),
    encode("SEND", [QUEUE, ("transaction", "t")], b"in t"),
    encode("COMMIT", [("transaction", "t")]),
    encode("UNSUBSCRIBE", [("id", "1")]),
    encode("DISCONNECT", [("receipt", "bye")]),
    b"\n\n\r\n",
]  # fmt: skip
SIGNS = [
    b"\n",
    b"\0",
    b"\r",
    b":",
    b"\\",
    b"\\t",
    b"\xff",
    b"-1",
    b"99999999999",
    b"\n\n",
    b"SEND\n",
    b"1.1",
    b"",
    b"\xf0\x9d\x84\x9e",
]


def mutated(chance):
    """Frames in some order, with a few faults in them."""
    count = chance.randrange(1, 6)
    frames = (
        [SAMPLES[0], *chance.choices(SAMPLES[1:], k=count)]
        if chance.random() < 0.9
        else chance.choices(SAMPLES, k=count)
    )
    data = bytearray(b"".join(frames))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at : at + chance.randrange(20)] = b""
        elif kind == 2:
            data[at:at] = chance.choice(SIGNS)
        else:
            end = at + chance.randrange(30)
            data[end:end] = data[at:end]
        if not data:
            return b"\n"
    return bytes(data)


class Proxies:
    """Answers every command, and gives what was sent to the last subscription."""

    def __init__(self, world):
        self.world, self.subs, self.tags = world, {}, {}
        self.opened = 0

    def answer(self):
        for event in self.world.take():
            if isinstance(event, ClientOpened):
                self.opened += 1
            elif isinstance(event, ClientClosed):
                self.subs.pop(event.conn, None)
                self.tags.pop(event.conn, None)
            elif isinstance(event, ClientCommands):
                replies = []
                for command in event.commands:
                    for each in command.commands if isinstance(command, Transact) else [command]:
                        if isinstance(each, Subscribe):
                            self.subs[event.conn] = each
                        elif isinstance(each, Send) and (sub := self.subs.get(event.conn)):
                            tag = self.tags[event.conn] = self.tags.get(event.conn, 0) + 1
                            replies.append(
                                Delivery(sub.sub, tag, f"s1#{tag}", each.shown, each.headers, each.body, ack=sub.ack)
                            )
                    if command.receipt is not None:
                        replies.append(Receipt(command.receipt))
                self.world.gateway.reply(event.conn, replies)


def attack(count, seed):
    """`count` connections of mutated bytes, while one client goes on working; how many of them were let in."""
    chance, world = random.Random(seed), World()
    proxies, good = Proxies(world), world.connect()
    proxies.answer()
    start = 0
    for at in range(count):
        mine, data = world.socket(), mutated(chance)
        cut = chance.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            if mine.reading and mine.connected and piece:
                mine.receive(piece)
                proxies.answer()
            if mine.connected:
                mine.client.version = mine.protocol.session.version
                mine.drain()  # reads it all: what comes out are frames
        for client in world.gateway.clients.values():
            client.session.check()
        mine.lose()
        if at % 100 == 0:
            world.lines.clear()
            good.receive(encode("SEND", [QUEUE, ("receipt", str(at))], b"x"))
            proxies.answer()
            assert [frame.headers for frame in good.drain()] == [{"receipt-id": str(at)}]
        if at == count // 10:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    proxies.answer()
    assert len(world.gateway.clients) == 1 and len(world.clock.getDelayedCalls()) == 0
    assert not proxies.subs and not proxies.tags
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    print(f"{count} inputs, {proxies.opened} logins, {grown} KiB more memory than after the first tenth")
    assert grown < 20_000
    return proxies.opened


def test_mutated_bytes_hurt_nobody_else():
    assert 2_500 < attack(5_000, seed=1) < 5_000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_million_mutated_inputs_hurt_nobody_else(seed):
    """A quarter of them."""
    assert attack(250_000, seed) > 125_000
