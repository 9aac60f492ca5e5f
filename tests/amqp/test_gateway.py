"""AMQP behind the listener: before the login in virtual time, and TLS and certificates at real sockets."""

import socket
import ssl

import pytest
import trustme

from mombroker.amqp import codec, performatives
from mombroker.amqp.connection import MAX_EARLY, Settings
from mombroker.amqp.frames import PLAIN, SASL, frame
from mombroker.amqp.performatives import CLOSE, DISPOSITION, FLOW, OPEN, OUTCOME, SENDER, SOURCE, TARGET
from mombroker.amqp.protocol import Amqp
from mombroker.broker.commands import Send, SendRun
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened
from mombroker.gateway import connection
from tests.amqp.peer import NOW, attach, begin, init, message, open_, terminus, transfer
from tests.gateway.test_sockets import PATIENCE_S, Echo, certificate
from tests.gateway.world import Raw, World

HELLO = SASL + init()
OPENS = PLAIN + frame(open_()) + frame(begin())


def frames(data):
    """Code and fields of each."""
    found = []
    while data:
        if data[:4] == b"AMQP":
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        if size > 8:
            described, _ = codec.value(data[:size], 8)
            found.append((described.descriptor, described.value))
        data = data[size:]
    return found


def commands(events, *kinds):
    return [
        each for one in events if isinstance(one, ClientCommands) for each in one.commands if isinstance(each, kinds)
    ]


# -- before the login, in virtual time -----------------------------------------------------------------------------


@pytest.fixture
def world():
    return World(anonymous=False)


def arrive(world, host="10.0.0.1", **settings):
    return Raw(world.accepted(host, Amqp(lambda: NOW, Settings(**settings))))


def test_who_says_nothing_is_sent_away(world):
    mine = arrive(world)
    world.clock.advance(10.1)
    assert mine.drain() == b"" and world.lines == ["10.0.0.1: no AMQP header within 10 s"]
    world.clock.advance(2.1)
    assert not mine.connected and world.take() == [] and world.idle()


@pytest.mark.parametrize("said", [HELLO, PLAIN, SASL + init(response=b"\0ann\0" + b"a" * 200)])
def test_who_says_its_login_byte_by_byte_has_no_more_time_than_others(world, said):
    """And holds no more than what it has said."""
    mine = arrive(world)
    for byte in said[:-1]:
        if mine.ending:
            break
        mine.receive(bytes([byte]))
        assert world.gateway.room.unfinished.total <= len(said)
        world.clock.advance(1.9)
    assert mine.ending and "within 10 s" in world.lines[0] and not world.checks
    world.clock.advance(2.1)
    assert not mine.connected and world.gateway.room.unfinished.total == 0 and world.idle()


def test_who_is_let_in_and_does_not_open_is_sent_away_for_its_silence(world):
    mine = arrive(world)
    mine.receive(HELLO + PLAIN)
    mine.drain()
    world.check_all()
    assert frames(mine.drain()) == [(OUTCOME, [0])]
    world.clock.pump([1] * 70)
    assert [code for code, _ in frames(mine.drain())] == [OPEN, CLOSE]
    assert mine.ending and "no heart-beat or other byte" in world.lines[0]


def test_while_a_login_is_checked_little_is_kept_and_nothing_is_lost(world):
    mine = arrive(world)
    mine.receive(HELLO + OPENS)
    link = attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders"))
    rest = frame(link) + b"".join(frame(transfer(0, id, message(b"x" * 1_000))) for id in range(100))
    sent, most = 0, 0
    while mine.reading:
        mine.receive(rest[sent : sent + 1_000])
        sent += 1_000
        most = max(most, world.gateway.room.unfinished.total)
        assert sent < len(rest)
    assert connection.EARLY_BYTES <= most < connection.EARLY_BYTES + 1_000 < MAX_EARLY and world.take() == []
    world.check_all()
    assert mine.reading
    mine.receive(rest[sent:])
    sent = commands(world.take(), Send, SendRun)
    assert sum(len(each.bodies) if isinstance(each, SendRun) else 1 for each in sent) == 100


def test_who_goes_in_the_midst_of_a_message_leaves_nothing_of_it(world):
    """Not until the next collection either: it is a heap of megabytes in a handful of objects."""
    mine = arrive(world)
    mine.receive(HELLO + OPENS)
    world.check_all()
    link, piece = attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders")), b"x" * 60_000
    mine.receive(frame(link) + frame(transfer(0, 0, piece, more=True)) * 3)
    session = mine.protocol.session
    assert world.gateway.room.unfinished.total == session.unfinished == 180_000
    mine.lose()
    assert world.gateway.room.unfinished.total == session.unfinished == session.links == 0


def test_a_login_that_is_wrong_is_told_as_one_of_sasl_and_nothing_of_it_is_logged(world):
    mine = arrive(world)
    mine.receive(SASL + init(response=b"\0ann\0hunter2") + OPENS)
    world.check_all()
    assert frames(mine.drain())[-1] == (OUTCOME, [1]) and mine.ending
    assert world.lines == ["10.0.0.1: access refused for user 'ann'"] and world.take() == []


@pytest.mark.parametrize("early", [b"", PLAIN])
def test_who_brings_no_login_is_not_let_in(world, early):
    """Neither without SASL, nor by a mechanism that is not offered here."""
    mine = arrive(world)
    mine.receive(early or SASL + init("EXTERNAL", b"ann"))
    world.check_all()
    assert mine.ending and world.take() == []


def test_external_without_a_certificate_is_no_login(world):
    mine = arrive(world, external=True)
    mine.receive(SASL + init("EXTERNAL", b"ann"))
    world.check_all()
    assert frames(mine.drain())[-1] == (OUTCOME, [1]) and world.take() == []


def test_the_oldest_of_too_many_without_a_login_go(world, monkeypatch):
    monkeypatch.setattr("mombroker.gateway.listener.MAX_LOGINS", 3)
    many = [arrive(world) for _ in range(5)]
    assert [each.connected for each in many] == [False, False, True, True, True]
    many[-1].receive(HELLO)
    world.check_all()
    assert [type(event) for event in world.take()] == [ClientOpened]


# -- TLS and certificates, at real sockets -------------------------------------------------------------------------


class Wire:
    """A client with blocking sockets; `found`: what was heard."""

    def __init__(self, port, context, *said):
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.rest, self.found = b"", []
        self.socket.sendall(b"".join(said))

    def until(self, *codes):
        """Fields of the first such frame; None at the end."""
        while True:
            while len(self.rest) >= 8:
                size = 8 if self.rest[:4] == b"AMQP" else int.from_bytes(self.rest[:4], "big")
                if size > len(self.rest):
                    break
                one, self.rest = self.rest[:size], self.rest[size:]
                for code, fields in frames(one):
                    self.found.append(code)
                    if code in codes:
                        return fields
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.rest += data


@pytest.fixture
def secure(tmp_path):
    """Clients may show a certificate of `signer`; `ann` is a user."""
    made = Echo()
    both = certificate()
    (tmp_path / "both.pem").write_bytes(both)
    (tmp_path / "cert.pem").write_bytes(both[both.index(b"-----BEGIN CERT") :])
    made.signer, made.folder = trustme.CA(), tmp_path
    made.signer.cert_pem.write_to_path(tmp_path / "clients.pem")
    gateway = made.gateway
    gateway.client_ca, gateway.is_user, gateway.anonymous = (
        str(tmp_path / "clients.pem"), {"ann"}.__contains__, False,
    )  # fmt: skip
    gateway.listen(Amqp(lambda: NOW, Settings(external=True)), None, ("127.0.0.1", 0), str(tmp_path / "both.pem"))
    yield made
    gateway.abort()
    for _ in range(3):
        made.reactor.iterate(0)


def shown(secure, name="", by=None):
    context = ssl.create_default_context(cafile=str(secure.folder / "cert.pem"))
    if name:
        issued = (by or secure.signer).issue_cert(f"{name}.example", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(secure.folder / "client.pem")
        context.load_cert_chain(secure.folder / "client.pem")
    return context


def let_in(secure, context, *said):
    """The code of the outcome of SASL; None if there was none."""

    def work():
        try:
            wire = Wire(secure.gateway.ports["amqp_tls"], context, *said)
            found = wire.until(OUTCOME)
            wire.socket.close()
        except (ssl.SSLError, ConnectionError):
            return None
        return found and found[0]

    return secure.run(work)


def test_messages_of_all_sizes_are_sent_by_tls_with_the_certificate_for_a_login(secure):
    sizes = [0, 1, 100, 60_000, 1 << 20, 5] + [100] * 300

    def work():
        link = attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders"))
        wire = Wire(secure.gateway.ports["amqp_tls"], shown(secure, "ann"), SASL + init("EXTERNAL", b""))
        assert wire.until(OUTCOME) == [0]
        wire.socket.sendall(OPENS + frame(link))
        wire.until(FLOW)
        for id, size in enumerate(sizes):
            data = message(bytes([id % 256]) * size)
            pieces = [data[at : at + 60_000] for at in range(0, len(data), 60_000)]
            for at, piece in enumerate(pieces):
                wire.socket.sendall(frame(transfer(0, id, piece, more=at < len(pieces) - 1)))
        done = set()
        while len(done) < len(sizes):
            _, first, last, settled, state = wire.until(DISPOSITION)
            assert settled and state.descriptor == performatives.ACCEPTED
            done.update(range(first, (first if last is None else last) + 1))
        wire.socket.sendall(frame(performatives.close()))
        wire.until(CLOSE)
        wire.socket.close()

    secure.run(work)
    sent = commands(secure.events, Send, SendRun)
    bodies = [one.body for each in sent for one in (each.singles() if isinstance(each, SendRun) else [each])]
    assert bodies == [bytes([id % 256]) * size for id, size in enumerate(sizes)]
    secure.until(lambda: not secure.gateway.clients)
    opened = [event for event in secure.events if isinstance(event, ClientOpened)]
    assert {event.user for event in opened} == {"ann"} and isinstance(secure.events[-1], ClientClosed)


def test_a_client_is_the_user_that_its_certificate_names(secure):
    external = SASL + init("EXTERNAL", b"")
    assert let_in(secure, shown(secure, "ann"), external) == 0
    assert let_in(secure, shown(secure, "ann"), SASL + init("EXTERNAL", b"ann")) == 0
    (user,) = {event.user for event in secure.events if isinstance(event, ClientOpened)}
    assert user == "ann"


def test_a_certificate_lets_in_nobody_but_its_user(secure):
    external = SASL + init("EXTERNAL", b"")
    assert let_in(secure, shown(secure, "ann"), SASL + init("EXTERNAL", b"bob")) == 1
    assert let_in(secure, shown(secure, "bob"), external) == 1, "bob is no user"
    assert let_in(secure, shown(secure), external) == 1, "no certificate"
    assert let_in(secure, shown(secure, "ann", trustme.CA()), external) is None, "nobody's we know"
    assert not [event for event in secure.events if isinstance(event, ClientOpened)]
    secure.until(lambda: any("nobody in client_ca has signed" in line for line in secure.lines))
    assert "127.0.0.1: the certificate is of user 'ann', not of 'bob': leave the login out" in secure.lines
