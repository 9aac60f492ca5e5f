"""The listener on real sockets, plain and TLS, with a server that answers everything at once."""

import datetime
import socket
import ssl
import threading
import time
from contextlib import suppress

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.internet.epollreactor import EPollReactor

from mombroker.broker.commands import Delivery, Receipt, Send, Transact
from mombroker.broker.message import ClientMessage
from mombroker.core.errors import MomError
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.gateway.listener import Gateway
from mombroker.gateway.times import Times
from mombroker.gateway.tls import Certified, ending
from mombroker.gateway.users import Logins
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from mombroker.stomp.protocol import Stomp
from mombroker.stomp.settings import Settings

PATIENCE_S = 60  # before a test gives up; nothing is measured by it


class Echo:
    """A gateway whose server gives each message back to the client that sent it, as to an auto-ack subscription `e`."""

    def __init__(self):
        self.reactor = EPollReactor()
        self.events, self.lines, self.tags = [], [], {}
        logins = Logins(lambda user: None, lambda work, answer: answer(work()), self.reactor)
        self.stomp = Stomp(time.time_ns, Settings(limits=Limits(body=64 << 20)))
        times = Times(login=PATIENCE_S, close=PATIENCE_S)
        self.gateway = Gateway(self.reactor, "s1", self.post, self.lines.append, logins, time.time_ns, True, times)

    def listen(self, *ports):
        self.gateway.listen(self.stomp, *ports)

    def post(self, event):
        self.events.append(event)
        if isinstance(event, ClientCommands):
            self.reactor.callLater(0, self.answer, event)

    def answer(self, event):
        replies = []
        for command in event.commands:
            for send in command.commands if isinstance(command, Transact) else [command]:
                if isinstance(send, Send):
                    tag = self.tags[event.conn] = self.tags.get(event.conn, 0) + 1
                    put = ClientMessage(
                        send.destination, send.shown, kind=send.kind, properties=send.properties, body=send.body
                    )
                    replies.append(Delivery("e", tag, f"s1#{tag}", put))
            if command.receipt is not None:
                replies.append(Receipt(command.receipt))
        self.gateway.reply(event.conn, replies)

    def run(self, work):
        """Do the client's part in a thread while the reactor turns; what it returns."""
        result = []

        def guarded():
            try:
                result.append((True, work()))
            except BaseException as error:
                result.append((False, error))

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self.until(lambda: result)
        done, value = result[0]
        if not done:
            raise value
        return value

    def until(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, (self.events[-5:], self.lines)
            self.reactor.iterate(0.01)


class Wire:
    """A client with blocking sockets."""

    def __init__(self, port, context=None, **headers):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.parser = Parser(Limits(body=64 << 20), V12, SERVER)
        self.send("CONNECT", **{"accept-version": "1.2", **headers})

    def send(self, command, body=b"", **headers):
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.socket.sendall(encode(command, pairs, body))
        return self

    def read(self):
        """The next frame; None at the end."""
        while (frame := self.parser.next()) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.parser.feed(data)
        return frame

    def commands(self):
        """Of all frames until the end."""
        found = []
        while (frame := self.read()) is not None:
            found.append(frame.command)
        return found


@pytest.fixture
def echo():
    made = Echo()
    made.listen(("127.0.0.1", 0))
    yield made
    made.gateway.abort()
    for _ in range(3):
        made.reactor.iterate(0)


def certificate(serial=1):
    """A key, and a certificate for localhost that it has signed itself, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(serial).not_valid_before(now - day).not_valid_after(now + day)
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret + built.sign(key, hashes.SHA256()).public_bytes(pem)


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """The certificate and its key in one file and in two."""
    folder = tmp_path_factory.mktemp("pem")
    both = certificate()
    at = both.index(b"-----BEGIN CERT")
    for name, data in (("key", both[:at]), ("cert", both[at:]), ("both", both)):
        (folder / f"{name}.pem").write_bytes(data)
    return folder


@pytest.fixture
def secure(echo, pem):
    echo.listen(None, ("127.0.0.1", 0), str(pem / "both.pem"))
    echo.context = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    return echo


def bodies(sizes, port, context=None):
    """Send bodies of these sizes in one go; those that came back in order."""
    wire = Wire(port, context)
    assert wire.read().command == "CONNECTED"
    sent = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    for body in sent:
        wire.send("SEND", body, destination="a", content_length=str(len(body)))
    frames = [wire.read() for _ in sent]
    wire.send("DISCONNECT", receipt="bye")
    assert (wire.read().command, wire.read()) == ("RECEIPT", None)
    return [frame.body for frame in frames] == sent


SIZES = [0, 1, 100, 1 << 20, 5, 3 << 20, 0, 1 << 16] + [100] * 500


def test_messages_of_all_sizes_go_both_ways(echo):
    assert echo.run(lambda: bodies(SIZES, echo.gateway.ports["stomp"]))
    echo.until(lambda: not echo.gateway.clients)
    assert isinstance(echo.events[0], ClientOpened) and isinstance(echo.events[-1], ClientClosed)
    written = [event.tag for event in echo.events if isinstance(event, ClientWrote)]
    assert written == sorted(set(written)) and written


def test_messages_of_all_sizes_go_both_ways_by_tls(secure):
    assert secure.run(lambda: bodies(SIZES, secure.gateway.ports["stomp_tls"], secure.context))
    secure.until(lambda: not secure.gateway.clients)
    written = [event.tag for event in secure.events if isinstance(event, ClientWrote)]
    assert written == sorted(set(written)) and written


def test_all_that_was_written_is_told_by_tls_too(secure):
    def work():
        wire = Wire(secure.gateway.ports["stomp_tls"], secure.context)
        wire.read()
        for _ in range(5):
            wire.send("SEND", destination="a").read()
        return wire

    wire = secure.run(work)
    secure.until(lambda: ClientWrote(1, 5) in secure.events)
    wire.socket.close()


def test_unfinished_bodies_of_many_clients_hold_no_more_than_their_bound(echo):
    """200 clients send most of a body and stop: memory for a few of them is taken, the others are not read."""
    gateway = echo.gateway
    gateway.room.unfinished.most, size = 1 << 20, 300_000
    head = encode("SEND", [("destination", "/queue/a"), ("content-length", str(size))])[:-1]
    wires = echo.run(lambda: [Wire(gateway.ports["stomp"]) for _ in range(200)])
    for wire in wires:
        wire.socket.setblocking(False)
    left = dict.fromkeys(wires, head + b"x" * (size - 1))
    largest = 0
    for _ in range(300):
        for wire in wires:
            with suppress(BlockingIOError, ConnectionError):
                left[wire] = left[wire][wire.socket.send(left[wire][:50_000]) :]
        echo.reactor.iterate(0)
        gateway.room.unfinished.check()
        largest = max(largest, gateway.room.unfinished.total)
    assert gateway.room.unfinished.most < largest < 2 * gateway.room.unfinished.most + len(wires) * 16_384 * 2
    waiting = [client for client in gateway.clients.values() if client.paused]
    assert len(waiting) > 100
    held = sum(len(client.session.parser._data) for client in gateway.clients.values())
    assert held <= largest
    small = echo.run(lambda: Wire(gateway.ports["stomp"]).send("SEND", b"x", destination="/queue/a"))
    assert echo.run(lambda: [small.read().command, small.read().command]) == ["CONNECTED", "MESSAGE"]


def test_S25_an_error_can_be_read_though_much_that_was_sent_is_never_read(echo):
    def work():
        wire = Wire(echo.gateway.ports["stomp"])
        wire.read()
        wire.socket.sendall(b"FOO\n\n\0" + b"x" * 1_000_000)
        return wire.commands()

    assert echo.run(work) == ["ERROR"]


def test_S29_a_client_that_returns_at_once_is_let_in_though_its_old_connection_lingers(echo):
    def work():
        wires = [Wire(echo.gateway.ports["stomp"]) for _ in range(5)]
        return [wire.read().command for wire in wires]

    assert echo.run(work) == ["CONNECTED"] * 5


def test_S30_plain_text_on_the_tls_port_is_a_line_in_the_log_and_no_silence(secure):
    def work():
        wire = Wire(secure.gateway.ports["stomp_tls"])
        return wire.socket.recv(100) is not None

    secure.run(work)
    secure.until(lambda: secure.lines)
    assert secure.lines == [
        "127.0.0.1 speaks plain text on the TLS port: give it the port of `stomp`, or let it use TLS"
    ]
    assert secure.events == []


def test_S30_tls_on_the_plain_port_is_a_line_in_the_log_and_no_silence(secure):
    def work():
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Wire(secure.gateway.ports["stomp"], secure.context)

    secure.run(work)
    assert secure.lines == ["127.0.0.1: these bytes are TLS: this port takes plain text"]


def test_a_client_that_distrusts_the_certificate_is_a_line_in_the_log(secure):
    def work():
        with pytest.raises(ssl.SSLError):
            Wire(secure.gateway.ports["stomp_tls"], ssl.create_default_context())

    secure.run(work)
    secure.until(lambda: secure.lines)
    assert secure.lines[0].startswith("no TLS with 127.0.0.1: ")


def test_a_client_is_the_user_that_its_certificate_names(echo, pem, tmp_path):
    signer = trustme.CA()
    signer.cert_pem.write_to_path(tmp_path / "clients.pem")
    echo.gateway.client_ca, echo.gateway.is_user, echo.gateway.anonymous = (
        str(tmp_path / "clients.pem"), {"ann"}.__contains__, False,
    )  # fmt: skip
    echo.listen(None, ("127.0.0.1", 0), str(pem / "both.pem"))

    def answer(name, by=signer, **login):
        context = ssl.create_default_context(cafile=str(pem / "cert.pem"))
        if name:
            by.issue_cert(f"{name}.example", common_name=name).private_key_and_cert_chain_pem.write_to_path(
                tmp_path / "client.pem"
            )
            context.load_cert_chain(tmp_path / "client.pem")
        try:
            wire = Wire(echo.gateway.ports["stomp_tls"], context, **login)
            frame = wire.read()
            wire.socket.close()
        except (ssl.SSLError, ConnectionError):
            return "no TLS"
        return frame and frame.headers.get("message", frame.command)

    assert echo.run(lambda: answer("ann")) == "CONNECTED"
    (opened,) = [event for event in echo.events if isinstance(event, ClientOpened)]
    assert opened.user == "ann"
    told = echo.run(lambda: answer("ann", login="bob"))
    assert told == "the certificate is of user 'ann', not of 'bob': leave the login out"
    assert echo.run(lambda: answer("bob")) == "access refused for user 'bob'"
    assert echo.run(lambda: answer("ann", by=trustme.CA())) in ("no TLS", None)
    echo.until(lambda: any("that nobody in client_ca has signed" in line for line in echo.lines))


def test_a_client_that_vanishes_is_noticed(echo):
    def work():
        wire = Wire(echo.gateway.ports["stomp"])
        wire.read()
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.socket.close()  # a reset

    echo.run(work)
    echo.until(lambda: ClientClosed(1) in echo.events)


def test_the_system_is_asked_to_look_after_dead_peers(echo):
    def work():
        wire = Wire(echo.gateway.ports["stomp"])
        wire.read()
        return wire

    wire = echo.run(work)
    handle = echo.gateway.clients[1]._socket.getHandle()
    assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    wire.socket.close()


def test_a_stop_ends_with_an_error_that_the_client_can_read(secure):
    ports = secure.gateway.ports
    wires = secure.run(lambda: [Wire(ports["stomp"]), Wire(ports["stomp_tls"], secure.context)])
    secure.run(lambda: [wire.read() for wire in wires])
    stopped = secure.gateway.stop()
    assert secure.run(lambda: [wire.commands() for wire in wires]) == [["ERROR"]] * 2
    secure.run(lambda: [wire.socket.close() for wire in wires])
    secure.until(lambda: stopped.called)


# -- what cannot be ------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named_with_its_key(echo):
    with pytest.raises(MomError, match=r"s1 cannot listen on 127.0.0.1:\d+ for STOMP: .*; stop .*, or change `stomp`"):
        echo.listen(("127.0.0.1", echo.gateway.ports["stomp"]))


def test_key_and_certificate_may_be_in_one_file_or_two(pem):
    Certified(str(pem / "both.pem"))
    Certified(str(pem / "cert.pem"), str(pem / "key.pem"))


def test_a_certificate_that_ends_soon_is_told(secure, pem):
    """It is of one day."""
    left = secure.gateway.expires - time.time()
    assert 0 < left < 86_401
    (sentence,) = secure.gateway.problems()
    assert "both.pem ends in 0 days" in sentence or "both.pem ends in 1 day:" in sentence
    assert ending("a.pem", 100 * 86_400, 70 * 86_400 - 1) == ""
    assert "a.pem ends in 30 days" in ending("a.pem", 100 * 86_400, 70 * 86_400)
    assert "has ended" in ending("a.pem", 100, 101)


def test_files_that_are_no_certificate_are_named(pem, tmp_path):
    (tmp_path / "junk").write_text("junk")
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "other.pem").write_bytes(other)
    for certificate, key, words in (
        (tmp_path / "none.pem", "", "cannot read"),
        (tmp_path / "junk", "", "are no certificate"),
        (pem / "key.pem", "", "are no certificate"),
        (pem / "cert.pem", "", "are no certificate and its key"),
        (pem / "cert.pem", tmp_path / "other.pem", "are no certificate and its key"),
        (pem / "cert.pem", tmp_path / "none.pem", "set `certificate` and `private_key`"),
    ):
        with pytest.raises(MomError, match=words):
            Certified(str(certificate), str(key))


@pytest.mark.parametrize("name, good", [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", True), ("ECDHE-ECDSA-CHACHA20-POLY1305", True), ("", True),
    ("ECDHE-ECDSA-AES128-SHA256", False), ("ECDHE-ECDSA-AES128-SHA", False),
])  # fmt: skip
def test_tls_takes_only_ciphers_with_forward_secrecy_that_authenticate(secure, pem, name, good):
    """Named ones are of TLS 1.2; without a name it is 1.3."""
    context = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    if name:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(name)
    port = secure.gateway.ports["stomp_tls"]
    if good:
        wire = secure.run(lambda: Wire(port, context))
        assert wire.socket.version() == ("TLSv1.2" if name else "TLSv1.3")
    else:
        with pytest.raises(OSError, match="(?i)handshake failure|reset"):
            secure.run(lambda: Wire(port, context))


def serial(secure):
    """Of the certificate that the listener shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    wire = secure.run(lambda: Wire(secure.gateway.ports["stomp_tls"], context))
    return x509.load_der_x509_certificate(wire.socket.getpeercert(True)).serial_number


def test_a_certificate_is_read_anew_and_one_that_is_half_written_leaves_the_old_one(echo, tmp_path):
    file = tmp_path / "both.pem"
    file.write_bytes(certificate(serial=1))
    echo.listen(None, ("127.0.0.1", 0), str(file))
    assert serial(echo) == 1
    whole = certificate(serial=2)
    for part in (whole[: len(whole) // 2], b"", whole[:-40]):
        file.write_bytes(part)
        with pytest.raises(MomError, match=r"both.pem and .*both.pem are no certificate and its key"):
            echo.gateway.reload(str(file), "")
        assert serial(echo) == 1
    file.write_bytes(whole)
    echo.gateway.reload(str(file), "")
    assert serial(echo) == 2
