"""A CA of a bus, and certificates of its servers: X.509 by the package cryptography, keys on the curve P-256."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mombroker.core.errors import MomError
from mombroker.core.topology import CLIENTS, WILDCARD, Server, Topology, address, is_loopback
from mombroker.gateway.tls import UNREADABLE
from mombroker.net.peertls import name_of

CA, CA_KEY = "ca.pem", "ca.key"
CA_DAYS = 3650
EARLIER = timedelta(hours=1)  # that a certificate is good before it is made: clocks differ


def for_bus(
    topology: Topology, folder: Path, days: int, joins: Iterable[Server] = ()
) -> list[tuple[str, Path, list[str]]]:
    """Make a certificate for each server, and a CA if the folder has none: who, where, and what it names. With `joins`,
    for these alone, which are not on the bus yet. Raises MomError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key, ca = authority(topology.name, folder)
    begin = datetime.now(UTC) - EARLIER
    made = []
    for server in joins or topology.servers.values():
        names, where = _names(topology.name, server), folder / f"{server.name}.pem"
        _write(where, issued(server.name, names, key, ca, begin, datetime.now(UTC) + timedelta(days=days)))
        made.append((server.name, where, [str(each.value) for each in names]))
    return made


def issued(
    name: str,
    names: list[x509.GeneralName],
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    begin: datetime,
    end: datetime,
) -> bytes:
    """A certificate and its key, as PEM, good from `begin` to `end`, signed by a CA with its key."""
    own = ec.generate_private_key(ec.SECP256R1())
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(_subject(name), ca.subject, own.public_key(), begin, end)
    for extension, critical in (
        (x509.SubjectAlternativeName(names), False), (x509.BasicConstraints(False, None), True),
        (x509.ExtendedKeyUsage(usage), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False),
    ):  # fmt: skip
        builder = builder.add_extension(extension, critical=critical)
    return _pem(builder.sign(key, hashes.SHA256())) + _packed(own)


def authority(bus: str, folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The CA of a folder, or a new one, and its key. Raises MomError."""
    if (folder / CA).exists():
        return _read(folder)
    key, subject = ec.generate_private_key(ec.SECP256R1()), _subject(f"CA of the bus {bus}")
    now = datetime.now(UTC)
    builder = _builder(subject, subject, key.public_key(), now - EARLIER, now + timedelta(days=CA_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates, and lists
    ca = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    _write(folder / CA_KEY, _packed(key))
    _write(folder / CA, _pem(ca), 0o644)
    return key, ca


def _read(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
        ca = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        of_ca = ca.public_key()
    except FileNotFoundError:
        raise MomError(
            f"{folder / CA} is there without {CA_KEY}, which signs: put that into the folder, or name another folder"
        ) from None
    except UNREADABLE:
        raise MomError(f"{folder / CA} and {CA_KEY} are no CA: give PEM files, and a key without passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != of_ca:
        raise MomError(f"{folder / CA_KEY} is not the key of {CA}, as `mom tls init` makes them")
    return key, ca


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _names(bus: str, server: Server) -> list[x509.GeneralName]:
    """Who it is, and where clients reach it."""
    hosts = []
    for view in server.views():
        places = [getattr(view, what) for what in CLIENTS]
        hosts += [view.host, *(address(each)[0] for each in places if each)]
    if any(is_loopback(host) for host in hosts):
        hosts += ["localhost", "127.0.0.1", "::1"]
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name_of(bus, server.name))]
    for host in dict.fromkeys(host for host in hosts if host not in WILDCARD):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _packed(key: ec.EllipticCurvePrivateKey) -> bytes:
    how = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, how, serialization.NoEncryption())


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """In one piece: a server that reads it meanwhile has the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
