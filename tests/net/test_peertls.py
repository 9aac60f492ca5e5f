"""Links behind TLS: certificates are who servers are, files are replaced while they run, and what is wrong is said."""

import os
import random
import socket
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mombroker.core.errors import MomError
from mombroker.gateway.tls import Certified
from mombroker.net import certificates
from mombroker.net.peertls import PeerTls, bus_of, name_of
from tests.mutants import COUNT, SEED
from tests.net.town import NOTE, Town


def made(folder):
    folder.mkdir()
    return folder


def pem(signer):
    return signer[1].public_bytes(Encoding.PEM)


class SecureTown(Town):
    """Servers whose links use TLS; `cas` are the files of those that each trusts."""

    def __init__(self, folder, names="ab", **more):
        super().__init__(folder, names, **more)
        self.signer = certificates.authority("town", made(folder / "signer"))
        self.cas = {name: folder / f"ca-{name}.pem" for name in names}
        for name in names:
            self.cas[name].write_bytes(pem(self.signer))
            self.certify(name)

    def file(self, name):
        return self.folder / f"{name}.pem"

    def certify(self, name, as_=None, signer=None, begin=-1, end=100):
        """From so many days from now to so many."""
        now, names = datetime.now(UTC), [x509.UniformResourceIdentifier(name_of("town", as_ or name))]
        whole = certificates.issued(
            name, names, *(signer or self.signer), now + timedelta(days=begin), now + timedelta(days=end)
        )
        self.put(self.file(name), whole)

    def put(self, path, data):
        (self.folder / "new.pem").write_bytes(data)
        (self.folder / "new.pem").replace(path)

    def topology(self, me):
        made = super().topology(me)
        made.ca = None if self.cas[me] is None else str(self.cas[me])
        if made.ca:
            made.servers[me].certificate = str(self.file(me))
        return made

    def tls(self, name):
        return self.cas[name] and (str(self.cas[name]), "town")

    def said(self, name, words):
        self.until(lambda: any(words in line for line in self.lines[name]))


@pytest.fixture
def town(tmp_path):
    towns = []

    def make(**more):
        towns.append(SecureTown(tmp_path, **more))
        return towns[-1]

    yield make
    for each in towns:
        each.down()


def test_messages_travel_behind_tls_and_operators_are_heard(town):
    t = town(names="abc").up()
    t.send("a", "Note", "b/box-b", text="1")
    t.send("c", "Note", "b/box-b", text="2")
    t.until(lambda: sorted(t.got("b")) == ["1", "2"])
    with socket.create_connection(("127.0.0.1", t.ports["b"])) as plain:
        plain.sendall(b"\x00\x00\x00\x05hello")
        t.said("b", "127.0.0.1 speaks plain text: set [bus] ca, and a certificate, there too")


class Load:
    """Each server sends one note after the other to the boxes of all others, and does not wait for anything."""

    def __init__(self, town):
        self.town, self.count, self.answers = town, 0, []
        self.timer = town.reactor.callLater(0, self._go)

    def _go(self):
        self.count += 1
        for name in self.town.names:
            boxes = [f"{other}/box-{other}" for other in self.town.names if other != name]
            args = {"to": boxes, "type": f"{NOTE}Note", "fields": {"text": f"{name} {self.count}"}}
            self.town.node(name).admin.ask("send", args, self.answers.append)
        self.timer = self.town.reactor.callLater(0.005, self._go)

    def arrives(self):
        """What is sent from now on, too: that all links work."""
        now = self.count + 1
        for name in self.town.names:
            wanted = {f"{other} {now}" for other in self.town.names if other != name}
            self.town.until(lambda name=name, wanted=wanted: wanted <= set(self.town.got(name)))

    def ends(self):
        """All that was sent is there, once and in order."""
        self.timer.cancel()
        for name in self.town.names:
            expected = {
                other: [f"{other} {at}" for at in range(1, self.count + 1)]
                for other in self.town.names
                if other != name
            }
            self.town.until(lambda name=name: len(self.town.got(name)) >= 2 * self.count)
            got = self.town.got(name)
            assert {other: [text for text in got if text.startswith(other)] for other in expected} == expected
        assert not any(isinstance(answer, str) for answer in self.answers)


def test_all_certificates_and_their_signer_are_replaced_under_load(town):
    """Two of those that sign are known during the change; nothing is lost, nobody is stopped or refused."""
    t = town(names="abc").up()
    load, other = Load(t), certificates.authority("town", made(t.folder / "other"))
    connected = [0]

    def connect_again():
        for name in "abc":
            for conn in list(t.node(name).links._all):
                connected[0] += 1
                conn.close()
        load.arrives()

    load.arrives()
    for name in "abc":
        t.put(t.cas[name], pem(t.signer) + pem(other))
    for name in "abc":
        t.certify(name, signer=other)
        connect_again()
    for name in "abc":
        t.put(t.cas[name], pem(other))
    connect_again()
    load.ends()
    assert connected[0] >= 4 * 3
    for name in "abc":
        t.ask(name, "status")
        assert any("has read the certificate" in line for line in t.lines[name])
        assert [line for line in t.lines[name] if "closed the connection" in line or "keeps" in line] == []


@pytest.mark.parametrize("what, mine, theirs, start", [
    ("signer", "the certificate of b is signed by nobody in", "does not take our certificate", "is signed by nobody"),
    ("name", "the certificate of b names mom:town/c, not mom:town/b", "names mom:town/c, not", "no peer lets b in:"),
    ("ended", "the certificate of b has ended, by our clock", "does not take our certificate", "has ended, by this"),
    ("plain", "b speaks plain text: set [bus] ca", "speaks TLS, and we do not: set [bus] ca here, too", ""),
])  # fmt: skip
def test_what_is_wrong_with_a_neighbour_is_one_sentence_and_nothing_of_it_is_believed(town, what, mine, theirs, start):
    """Its own server says so at its start."""
    t = town()
    if what == "signer":
        trustme.CA().issue_cert("b.example").private_key_and_cert_chain_pem.write_to_path(t.file("b"))
    elif what == "name":
        t.certify("b", as_="c")
    elif what == "ended":
        t.certify("b", begin=-9, end=-2)
    else:
        t.cas["b"] = None
    t.up()
    assert any(start in line for line in t.lines["b"])
    assert not any("lets" in line for line in t.lines["a"])
    t.send("a", "Note", "b/box-b", text="1")
    t.said("a", mine)
    assert not any(each.up for name in "ab" for each in t.node(name).links.neighbours.values())
    if what != "name":
        t.said("b", theirs)
    assert sum(mine in line for line in t.lines["a"]) == 1


def test_a_half_written_certificate_keeps_the_one_that_was_read(town, tmp_path):
    t = town().up()
    whole = t.file("b").read_bytes()
    t.file("b").write_bytes(whole[: len(whole) // 2])
    t.send("a", "Note", "b/box-b", text="1")
    t.until(lambda: t.got("b") == ["1"])
    t.said("b", "keeps the certificate that it has: ")
    assert sum("keeps the certificate" in line for line in t.lines["b"]) == 1
    t.file("b").write_bytes(whole)
    with pytest.raises(MomError, match="are no certificate, its key and those that sign"):
        PeerTls("town", "b", str(t.cas["b"]), str(tmp_path / "ca-a.pem"), "", print)
    with pytest.raises(MomError, match=r"give \[servers.b\] a certificate"):
        PeerTls("town", "b", str(t.cas["b"]), "", "", print)


def damaged(at_random, text):
    """A file of PEM, with a byte or two of what it holds changed."""
    first, _, _ = text.partition(b"-----BEGIN PRIVATE")
    data = bytearray(ssl.PEM_cert_to_DER_cert(first.decode()))
    for _ in range(at_random.randint(1, 2)):
        data[at_random.randrange(len(data))] = at_random.randrange(256)
    return ssl.DER_cert_to_PEM_cert(bytes(data)).encode()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_file_that_is_damaged_is_a_sentence_whatever_is_wrong_with_it(tmp_path):
    """Also an algorithm that nobody knows, and names that cannot be read. What was read before stays."""
    key, ca = certificates.authority("town", tmp_path)
    now, lines, at_random = datetime.now(UTC), [], random.Random(SEED)
    names = [x509.UniformResourceIdentifier(name_of("town", "b"))]
    made = certificates.issued("b", names, key, ca, now - timedelta(1), now + timedelta(1))
    files = {tmp_path / "b.pem": made, tmp_path / "ca.pem": (tmp_path / "ca.pem").read_bytes()}
    (tmp_path / "b.pem").write_bytes(made)
    where = str(tmp_path / "ca.pem"), str(tmp_path / "b.pem")
    tls, client = PeerTls("town", "b", *where, "", lines.append), Certified(where[1], "", where[0])
    for number in range(COUNT // 2):
        file = at_random.choice(list(files))
        private = files[file].partition(b"-----BEGIN PRIVATE")
        file.write_bytes(damaged(at_random, files[file]) + b"".join(private[1:]))
        os.utime(file, ns=(number, number))
        tls.getContext()
        for read in (lambda: bus_of(*where, "b"), lambda: client.load(where[1]), lambda: certificates._read(tmp_path)):
            try:
                read()
            except MomError as error:
                assert "\n" not in str(error)
        file.write_bytes(files[file])
    kept = sum("keeps the certificate" in line for line in lines)
    assert COUNT // 20 < kept < len(lines)


def test_that_a_certificate_ends_soon_is_a_problem_of_the_status(town):
    t = town()
    t.certify("a", end=5.1)
    t.up()
    (line,) = [line for line in t.ask("a", "status")["problems"] if "certificate" in line]
    assert line.endswith("ends in 5 days: put a new one in its place, and `mom server reload` takes it")


def test_a_ca_and_certificates_are_made_for_a_topology_and_links_go_by_them(town, tmp_path):
    t = town()
    made = certificates.for_bus(t.topology("a"), tmp_path / "made", 30)
    assert [(name, names[0]) for name, _, names in made] == [("a", "mom:town/a"), ("b", "mom:town/b")]
    assert "127.0.0.1" in made[0][2] and (tmp_path / "made" / "a.pem").stat().st_mode & 0o077 == 0
    for name in "ab":
        t.cas[name] = tmp_path / "made" / "ca.pem"
    t.file = lambda name: tmp_path / "made" / f"{name}.pem"
    t.up()
    t.send("a", "Note", "b/box-b", text="1")
    t.until(lambda: t.got("b") == ["1"])
    first = t.file("a").read_bytes()
    certificates.for_bus(t.topology("a"), tmp_path / "made", 30)
    assert t.file("a").read_bytes() != first
    (tmp_path / "made" / "ca.key").unlink()
    with pytest.raises(MomError, match=r"without ca.key, which signs"):
        certificates.for_bus(t.topology("a"), tmp_path / "made", 30)
