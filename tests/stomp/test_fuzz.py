"""Mutated bytes on many connections of one gateway: nobody but their sender must notice."""

import random
import re
import resource

import pytest

from mombroker.broker.commands import Delivery, Receipt, Send, Subscribe, Transact
from mombroker.broker.message import ClientMessage
from mombroker.broker.properties import BIT63
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened
from mombroker.stomp.frames import encode
from mombroker.stomp.session import Session
from tests.broker.bench import Broker
from tests.core.bus import topology
from tests.gateway.world import World
from tests.mutants import COUNT, SEED

QUEUE = ("destination", "/queue/a")
SAMPLES = [
    encode("CONNECT", [("accept-version", "1.0,1.1,1.2"), ("heart-beat", "1000,1000"), ("client-id", "c")]),
    encode("SUBSCRIBE", [("id", "1"), QUEUE, ("ack", "client"), ("selector", "a = 'b' OR c > 1")]),
    encode("SUBSCRIBE", [("id", "2"), ("destination", "/topic/a.*,/topic/b"), ("durable-subscription-name", "d")]),
    encode("SEND", [QUEUE, ("content-length", "5"), ("receipt", "r"), ("x", "1\n:")], b"a\0b\0c"),
    encode("SEND", [QUEUE, ("reply-to", "/temp-queue/t"), ("expires", "99"), ("priority", "7")], b"x"),
    encode("ACK", [("id", "s1#1/x-1.1")]),
    encode("NACK", [("id", "s1#2/x-1.2"), ("requeue", "False")]),
    encode("SUBSCRIBE", [("id", "1"), ("destination", "a"), ("subscription-type", "MULTICAST"), ("x-expires", "1")]),
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
                            put = ClientMessage(
                                each.destination, each.shown, properties=each.properties, correlation=each.correlation,
                                type=each.type, form=each.form, body=each.body,
                            )  # fmt: skip
                            replies.append(Delivery(sub.sub, tag, f"s1#{tag}", put, ack=sub.ack))
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
        mine = world.socket()
        data = mutated(chance).replace(b"/x-1.", mine.protocol.session._stamp.encode())  # some ids are right
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
    count = 5 * COUNT
    assert count // 2 < attack(count, seed=1 + SEED) < count


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_million_mutated_inputs_hurt_nobody_else(seed):
    """A quarter of them."""
    assert attack(250_000, seed) > 125_000


# -- with a broker behind the sessions -------------------------------------------------------------------------------

FAR = [b"0", b"1", b"99", b"9" * 12, b"9" * 13, b"9" * 18, b"9" * 18, b"9" * 400]
WRONG = [b"-1", b"+5", b"1e400", b"nan", b""]
NAMES = [
    b"expires:", b"expiration:", b"AMQ_SCHEDULED_DELAY:", b"AMQ_SCHEDULED_TIME:", b"priority:", b"JMSXGroupSeq:-",
    b"dedup-id:p:", b"prefetch-count:", b"x-priority:-", b"size:", b"n:", b"size:-", b"x-delay:", b"x-message-ttl:",
    b"_AMQ_SCHED_DELIVERY:", b"_AMQ_DUPL_ID:", b"consumer-window-size:-", b"JMSMessageID:", b"prefetch: ",
]  # fmt: skip
PLACES = [b"/queue/a", b"/queue/b", b"/topic/a", b"/topic/b", b"/temp-queue/t"] * 8 + [b"/remote-temp-queue/x"]
SELECTORS = [b"", b"size + 1.5 > 0", b"size / 2.5 > n", b"-size * n < 1e300", b"n BETWEEN size AND 5 OR n IS NULL"]
POLICIES = [
    {
        "match": "queue:a",
        "max_messages": 5,
        "overflow": "drop-head",
        "redelivery_delay": 1e9,
        "redelivery_delay_multiplier": 1e9,
    },
    {"match": "queue:b", "max_bytes": 9_000, "max_redelivery_delay": 1e9, "block_seconds": 4e9},
    {"match": "*", "max_redeliveries": 1, "on_expiry": "drop"},
]


def asked(chance):
    """A connection's frames: sends, subscriptions and settlements with numbers as no honest client has them."""
    frames = [b"CONNECT\naccept-version:1.2\nclient-id:c%d\n\n\0" % chance.randrange(3)]
    for at in range(chance.randrange(1, 12)):
        place = b"destination:%b\n" % chance.choice(PLACES)
        odd = b""
        for _ in range(chance.randrange(4)):
            odd += b"%b%b\n" % (chance.choice(NAMES), chance.choice(FAR if chance.random() < 0.95 else WRONG))
        if chance.random() < 0.4:
            durable = b"durable-subscription-name:d\n" if chance.random() < 0.4 and b"topic" in place else b""
            ack = chance.choice([b"auto", b"client", b"client"])
            selector = chance.choice(SELECTORS)
            frames.append(
                b"SUBSCRIBE\nid:%d\nack:%b\nselector:%b\n%b%b%b\n\0" % (at, ack, selector, durable, place, odd)
            )
        else:
            group = b"JMSXGroupID:g\n" if chance.random() < 0.3 else b""
            types = b"property-types:size=int,n=%b\n" % chance.choice([b"int", b"float"])
            frames.append(b"SEND\n%b%b%b%b\nx\0" % (place, types, group, odd))
    return frames


class Ends(Broker):
    """A broker of two servers. What it commits must fit into SQLite, whose whole numbers have 64 bits."""

    def __init__(self):
        super().__init__(topology({"x": "ab"}, policies=POLICIES))
        self.sessions = {}

    def commit(self, name):
        ready = super().commit(name)
        batch = ready.batch
        for table in (batch.items, batch.held, batch.queue_in, batch.links, batch.tasks):
            for id, row in table.items():
                assert all(-BIT63 <= each < BIT63 for each in [id, *(row or ())] if isinstance(each, int)), row
        return ready

    def release(self, name, ready):
        clients, ready.clients = ready.clients, []
        super().release(name, ready)
        for conn, replies in clients:
            if conn in self.sessions:
                self.sessions[conn][1].reply(replies)

    def join_in(self, server):
        conn = next(self.numbers)
        session = Session(f"{server}/s{conn}", lambda: self.now)
        self.sessions[conn] = (server, session)
        return conn

    def feed(self, conn, data):
        """What the client gets for it."""
        name, session = self.sessions[conn]
        server = self.servers[name]
        session.receive(data)
        if session.login is not None:
            server.step(ClientOpened(conn, "user", session.login.client_id, session.id), self.now)
            session.accept()
        while session.commands:
            commands, session.commands = session.commands, []
            server.step(ClientCommands(conn, commands), self.now)
            self.pump()
        session.check()
        out, session.output = b"".join(session.output), []
        return out

    def leave(self, conn):
        name, _ = self.sessions.pop(conn)
        self.servers[name].step(ClientClosed(conn), self.now)
        self.pump()


def press(count, seed):
    """`count` connections that ask for odd things; how many frames were settled, and how many connections refused."""
    chance, broker = random.Random(seed), Ends()
    good, settled, refused = broker.join_in("b"), 0, 0
    broker.feed(good, b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/good\n\n\0")
    for at in range(count):
        conn = broker.join_in(chance.choice("ab"))
        out = b""
        for frame in asked(chance):
            out += broker.feed(conn, frame)
        acks = re.findall(rb"\nack:([^\n]+)\n", out)
        for ack in chance.sample(acks, len(acks) // 2):
            broker.feed(conn, b"%b\nid:%b\n\n\0" % (chance.choice([b"ACK", b"NACK"]), ack))
            settled += 1
        refused += b"ERROR\n" in out
        broker.leave(conn)
        if at % 50 == 0:
            broker.later(chance.choice([0.1, 10, 1e5]))
            assert b"\nx%d\0" % at in broker.feed(good, b"SEND\ndestination:/queue/good\n\nx%d\0" % at)
        if at % 200 == 100:
            broker.reboot("a")
            broker.pump()
    return settled, refused


def test_odd_numbers_in_frames_hurt_no_server():
    settled, refused = press(400, seed=1)
    assert settled > 100 and 40 < refused < 360, (settled, refused)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 10))
def test_many_odd_numbers_hurt_no_server(seed):
    settled, refused = press(2_500, seed)
    assert settled > 400 and 250 < refused < 2_250, (settled, refused)
