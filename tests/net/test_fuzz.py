"""Whatever comes in at the port of peers, before and after their login, plain and behind TLS: no error of ours, nothing
kept beyond the bounds, others are served."""

import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from OpenSSL import SSL
from twisted.internet import task
from twisted.internet.address import IPv4Address

from mombroker.core.errors import MomError
from mombroker.core.strangers import MAX_KINDS, PERIOD_S
from mombroker.net import certificates, wire
from mombroker.net.connection import Times
from mombroker.net.handshake import PEER, dialer
from mombroker.net.links import MAX_LOGINS, MAX_SAID, Links, _Accepting
from mombroker.net.peertls import PeerTls, name_of
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put
from tests.mutants import COUNT, SEED, changed, mutated
from tests.net.cable import Desk, End

SINK = "tests.core.sample_agents:Sink"
SECRET = b"secret"
ROUND = max(100, COUNT // 100)  # after so many all is looked at


class Listening(Bus):
    """Server `b` has a port; `c` is its neighbour, and `a` is somebody who has the secret, and had messages for it."""

    def __init__(self, tls=None):
        self.packets, self.acks = [], []
        super().__init__(topology({"d": "abc"}, {"a/a": SINK, "b/b": SINK, "c/c": SINK}))
        for at in range(5):
            self.send("a", ["b/b", "c/c"], Put(f"text {at}"))
            self.send("b", "a/a", Put(f"text {at}"))
        self.hello = self.servers["a"].neighbours.greet("b")
        self.crash("a")
        self.clock, self.lines = task.Clock(), []
        self.links = Links(
            self.clock, "b", self.servers["b"].neighbours, lambda event: self.servers["b"].step(event, self.now),
            self.lines.append, Desk(), SECRET, b"token", Times(), tls=tls,
        )  # fmt: skip
        self.links._numbers = 1 << 40  # those of the bus are below
        self.links.opened = self.opened
        self.accepting = None
        self.heard = self.logins = 0

    def opened(self, conn, login):
        """A login is what the port takes for one, also where its last word is one that we do not understand."""
        self.logins += 1
        Links.opened(self.links, conn, login)

    def release(self, name, ready):
        if name == "a":
            frames = [frame for _, some in ready.frames for frame in some]
            self.packets += [packet for frame in frames if frame[0] == "data" for packet in frame[3]]
            self.acks += [frame for frame in frames if frame[0] == "ack"]
        super().release(name, ready)

    def accept(self):
        return Stranger(self, self.links.accepted("127.0.0.1"))

    def link(self):
        return self.servers["b"].neighbours._link_to("a")[1]

    def greet(self, peer):
        """As `a` would, if it had whatever `b` believes of it."""
        link, (_, term) = self.link(), self.servers["b"].neighbours.terms.get("a", ("", 0))
        received = max(link.acked, self.hello.received)
        return replace(self.hello, term=term, sent=1 << 40, acked=0, received=received, limit=1 << 40)

    def frames(self):
        """That would be right now."""
        first = self.link().received + 1
        return [
            ["data", "d", first, self.packets], ["data", "d", first, self.packets[:1]], *map(list, self.acks), None,
            ["ack", "d", self.link().acked, 1 << 30], ["loss", "d", 1, b"\x91\x01"],
        ]  # fmt: skip

    def others_are_served(self):
        """`c` and `b` go on, and nothing is kept of who has gone."""
        self.heard += 1
        self.send("c", "b/b", Put(f"from c {self.heard}"))
        assert f"from c {self.heard}" in self.fields("b/b")["got"]
        assert len(self.links._all) == len(self.links._logins) == len(self.links._by_number) == 0
        minutes = 1 + self.clock.seconds() / PERIOD_S
        assert len(self.lines) <= minutes * MAX_KINDS + (self.logins + 1) * (MAX_SAID + 1)
        self.clock.advance(0)


class Stranger:
    """Who has connected: what it writes is read at once."""

    def __init__(self, bus, conn):
        self.bus, self.conn, self.end = bus, conn, End("127.0.0.1")
        self.end.other, self.end.protocol, conn.transport = End("127.0.0.1"), conn, self.end
        self.end.other.protocol = self
        self.decoder = wire.Decoder(wire.LINK_LIMIT)
        conn.connectionMade()

    def connectionLost(self, reason): ...

    def say(self, at_random, data):
        """In pieces, as long as somebody listens."""
        while data and self.end.open and not self.conn.closing:
            size = at_random.randint(1, 4_000)
            self.conn.dataReceived(data[:size])
            data = data[size:]
            assert self.conn.owner is not None or len(self.conn._decoder._buffer) <= wire.LOGIN_LIMIT + 4

    def answers(self):
        found = list(self.decoder.feed(b"".join(data for data in self.end.out if data)))
        self.end.out.clear()
        return [frame for frame in found if frame is not None]

    def log_in(self, at_random, wrong=-1):
        """As server `a`, with one step that is not quite right, perhaps; whether that went well."""
        steps = dialer("a", "b", PEER, SECRET, bytes(16), self.bus.greet, lambda hello: None)
        out = next(steps)
        for step in range(4):
            data = b"".join(map(wire.encode, out))
            if step == wrong:
                bytes_alone = at_random.random() < 0.5
                data = mutated(at_random, [data]) if bytes_alone else wire.encode(changed(at_random, out[0]))
            self.say(at_random, data)
            if self.conn.closing or not (frames := self.answers()):
                return False
            try:
                for frame in frames:
                    out = steps.send(frame)
            except StopIteration:
                return True
            except MomError:
                return False
        return False

    def go(self):
        if self.end.open:
            self.end.lost()
        self.bus.clock.advance(2.1)  # the last words of a server have that time


def test_anybody_before_the_login():
    bus, at_random, right = Listening(), random.Random(SEED + 1), 0
    for number in range(COUNT):
        stranger = bus.accept()
        right += stranger.log_in(at_random, at_random.randrange(3))
        stranger.go()
        if number % ROUND == 0:
            bus.others_are_served()
    assert right < COUNT // 4
    bus.others_are_served()
    assert bus.accept().log_in(at_random)


def wrong(at_random, bus):
    """Frames whose bytes are wrong, or what they say, or the packet that one brings."""
    good = bus.frames()
    match at_random.randrange(3):
        case 0:
            return mutated(at_random, [wire.encode(each) if each else wire.HEARTBEAT for each in good])
        case 1:
            return wire.encode(changed(at_random, at_random.choice(good)))
    packets = [mutated(at_random, [packet]) for packet in at_random.choices(bus.packets, k=at_random.randint(1, 3))]
    return wire.encode(["data", "d", bus.link().received + 1, packets])


def test_a_neighbour_after_its_login():
    """Its frames are wrong in their bytes or in what they say; what is right of them takes effect, in order."""
    bus, at_random, said, refused = Listening(), random.Random(SEED + 2), 0, 0
    while said < COUNT:
        stranger = bus.accept()
        assert stranger.log_in(at_random), bus.lines[-1]
        while not stranger.conn.closing and said < COUNT:
            stranger.say(at_random, wrong(at_random, bus))
            said += 1
            if stranger.conn._decoder._buffer:
                break  # the rest of its frame never comes
            bus.servers["b"].turn(bus.now)
            if said % 10 == 0:
                bus.release("b", bus.commit("b"))
        refused += stranger.conn.closing
        stranger.go()
        bus.pump()
        if refused % ROUND == 0:
            bus.others_are_served()
    assert refused > COUNT // 20
    bus.others_are_served()
    assert bus.accept().log_in(at_random)


# -- behind TLS ------------------------------------------------------------------------------------------------------


class Shaking:
    """Who begins TLS with the port, as server `a` by its certificate. `say` hands bytes to the port."""

    def __init__(self, bus, context):
        self.bus, self.end = bus, End("127.0.0.1")
        self.end.other, self.end.other.protocol = End("127.0.0.1"), self
        self.end.protocol = self.port = bus.accepting.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        self.port.makeConnection(self.end)
        self.mine = SSL.Connection(context, None)
        self.mine.set_connect_state()

    def connectionLost(self, reason): ...

    def flight(self):
        """What TLS has to say next; empty if that is nothing, or it is over."""
        with suppress(SSL.Error):
            self.mine.do_handshake()
        with suppress(SSL.WantReadError):
            return self.mine.bio_read(1 << 16)
        return b""

    def say(self, data):
        if self.end.open:
            self.port.dataReceived(data)
        for each in self.end.out:
            with suppress(SSL.Error):
                self.mine.bio_write(each)
        self.end.out.clear()

    def go(self):
        if self.end.open:
            self.end.lost()
        self.bus.clock.advance(2.1)


@pytest.fixture
def secure(tmp_path):
    """With TLS; `context` is that of server `a`."""
    key, ca = certificates.authority("test", tmp_path)
    now = datetime.now(UTC)
    for name in "ab":
        names = [x509.UniformResourceIdentifier(name_of("test", name))]
        pem = certificates.issued(name, names, key, ca, now - timedelta(1), now + timedelta(1))
        (tmp_path / f"{name}.pem").write_bytes(pem)
    bus = Listening(PeerTls("test", "b", str(tmp_path / "ca.pem"), str(tmp_path / "b.pem"), "", lambda line: None))
    bus.accepting = bus.links.tls.wrapped(_Accepting(bus.links), False, bus.clock)
    bus.context = PeerTls("test", "a", str(tmp_path / "ca.pem"), str(tmp_path / "a.pem"), "", print).context
    return bus


def test_anybody_who_begins_tls(secure):
    at_random, through = random.Random(SEED + 3), 0
    for number in range(COUNT // 4):
        shaking = Shaking(secure, secure.context)
        right = at_random.choice((0, 0, 0, 1, 2))  # flights, or records of who is through already
        for flight in range(3):
            data = shaking.flight()
            if flight == 2:
                through += 1
                shaking.mine.send(wire.encode(["mom", 2, PEER, "a", "b", bytes(16)]))
                data = shaking.mine.bio_read(1 << 16)
            if flight == right:
                shaking.say(mutated(at_random, [data or b"x"]))
                break
            shaking.say(data)
        assert len(secure.links._all) <= 1
        shaking.go()
        if number % ROUND == 0:
            secure.others_are_served()
    assert through > COUNT // 40
    secure.others_are_served()


# -- slowly ----------------------------------------------------------------------------------------------------------


def slowly(bus, strangers, data):
    """One byte of each at a time, a second later the next; how long the last of them was there."""
    for second, byte in enumerate(data):
        for each in strangers:
            if each.end.open:
                each.end.protocol.dataReceived(bytes([byte]))
        bus.clock.advance(1)
        if not any(each.end.open for each in strangers):
            return second + 1
    raise AssertionError("they stay")


def test_who_logs_in_slowly_is_cut_off_in_time_and_only_some_are_there_at_once():
    bus = Listening()
    strangers = [bus.accept() for _ in range(3 * MAX_LOGINS)]
    assert len(bus.links._logins) == MAX_LOGINS == sum(each.end.open for each in strangers)
    assert slowly(bus, strangers, wire.encode(["mom", 2, PEER, "a" * 60, "b", bytes(16)])) <= 8
    bus.others_are_served()


def test_who_begins_tls_slowly_is_cut_off_as_well(secure):
    strangers = [Shaking(secure, secure.context) for _ in range(3 * MAX_LOGINS)]
    assert len(secure.links._logins) == MAX_LOGINS == sum(each.end.open for each in strangers)
    assert slowly(secure, strangers, strangers[0].flight()) <= 8
    secure.others_are_served()
