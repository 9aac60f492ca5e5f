"""TLS between servers: who is at the other end is in its certificate, as the name `mom:BUS/SERVER`.

The files are looked at for each new connection, and read again when they have changed: certificates, and those that
sign them, are replaced while the server runs.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer  # type: ignore[import-untyped]

from mombroker.core.errors import MomError, PeerError, PeerRefused
from mombroker.gateway.tls import CIPHERS, PLAIN_ON_TLS, UNREADABLE

HELLO = b"\x16\x03"  # what TLS begins with
ENDED, NOT_YET = 10, 9  # what OpenSSL finds wrong with a certificate
# What the other end tells by an alert, and what that means.
ALERTS = {
    "unknown ca": "is signed by nobody that it knows", "certificate expired": "has ended, by its clock",
    "certificate required": "was not shown", "bad certificate": "is wrong", "certificate unknown": "is wrong",
    "decrypt error": "is wrong",
}  # fmt: skip


def name_of(bus: str, server: str) -> str:
    """What the certificate of a server names, as a URI."""
    return f"mom:{quote(bus, safe='')}/{quote(server, safe='')}"


def uris(certificate: x509.Certificate) -> list[str]:
    """What a certificate names so; nothing, if that cannot be read."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *UNREADABLE):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def bus_of(ca: str, certificate: str, server: str) -> str:
    """The bus of which a file is the certificate, with the key, of this server. Raises MomError."""
    PeerTls("", server, ca, certificate, "", lambda line: None)  # is it whole?
    found = uris(x509.load_pem_x509_certificates(Path(certificate).read_bytes())[0])
    for each in found:
        bus, _, name = each.removeprefix("mom:").partition("/")
        if each == name_of(unquote(bus), server) and name:
            return unquote(bus)
    shown = ", ".join(found)[:200] or "no server"
    raise MomError(f"{certificate} names {shown}, not {server}: `mom tls init --joins {server}=HOST` makes its own")


def check_name(bus: str, server: str, found: list[str]) -> None:
    """Raises PeerRefused for the certificate of somebody else; without a name of any server of the bus will do."""
    wanted = name_of(bus, server)
    if wanted in found or (not server and any(each.startswith(wanted) for each in found)):
        return
    shown = ", ".join(found)[:200] or "no server"
    raise PeerRefused(
        f"the certificate of {server or 'the other end'} names {shown}, not {wanted}: give {server or 'it'} its own, "
        "as `mom tls init` makes it"
    )


@implementer(IOpenSSLContextFactory)
class PeerTls:
    """`expires`: in s since 1970, the first of our chain. Raises MomError for files that are no good at the start;
    later such are told to `log`, and what was read before stays."""

    def __init__(self, bus: str, me: str, ca: str, certificate: str, key: str, log: Callable[[str], None]):
        if not certificate:
            raise MomError(
                f"the links of {me} are to use TLS, since [bus] ca is set: give [servers.{me}] a certificate, as "
                "`mom tls init` makes it"
            )
        self.me = me
        self.bus, self.ca, self.certificate, self.key, self.log = bus, ca, certificate, key or certificate, log
        self._wrong: WeakKeyDictionary[SSL.Connection, int] = WeakKeyDictionary()
        self._read = self._stamps()
        self.context, self.expires = self._load()

    def _stamps(self) -> list[tuple[int, int]]:
        """By which it is seen that a file is another one."""
        found = []
        for path in (self.ca, self.certificate, self.key):
            try:
                at = os.stat(path)
                found.append((at.st_mtime_ns, at.st_size))
            except OSError:
                found.append((0, 0))
        return found

    def _load(self) -> tuple[SSL.Context, int]:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_cipher_list(CIPHERS)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)  # else an ended certificate would be good for longer
        context.set_verify(SSL.VERIFY_PEER, self._verified)
        try:
            chain = x509.load_pem_x509_certificates(Path(self.certificate).read_bytes())
            x509.load_pem_x509_certificates(Path(self.ca).read_bytes())
            serialization.load_pem_private_key(Path(self.key).read_bytes(), None)
            context.use_certificate_chain_file(self.certificate)
            context.use_privatekey_file(self.key)
            context.check_privatekey()
            context.load_verify_locations(self.ca)
        except OSError as error:
            raise MomError(f"cannot read {error.filename}: {error.strerror}; see [bus] ca and certificate") from None
        except UNREADABLE:
            raise MomError(
                f"{self.certificate}, {self.key} and {self.ca} are no certificate, its key and those that sign: give "
                "PEM files, and a key without a passphrase"
            ) from None
        return context, min(int(each.not_valid_after_utc.timestamp()) for each in chain)

    def trouble(self) -> str:
        """What others will find wrong with our certificate, in a sentence; empty if nothing."""
        chain = x509.load_pem_x509_certificates(Path(self.certificate).read_bytes())
        signers = [*chain[1:], *x509.load_pem_x509_certificates(Path(self.ca).read_bytes())]
        mine, now, made = chain[0], datetime.now(UTC), "`mom tls init` makes a new one"
        if not any(_signed(mine, by) for by in signers):
            return f"{self.certificate} is signed by nobody in {self.ca}, so no peer lets {self.me} in: {made}"
        if not mine.not_valid_before_utc <= now <= datetime.fromtimestamp(self.expires, UTC):
            what = "is not good yet" if now < mine.not_valid_before_utc else "has ended"
            return f"{self.certificate} {what}, by this machine's clock, so no peer lets {self.me} in: {made}"
        try:
            check_name(self.bus, self.me, uris(mine))
        except PeerRefused as error:
            return f"no peer lets {self.me} in: {error}"
        return ""

    def getContext(self) -> SSL.Context:
        """For a new connection."""
        stamps = self._stamps()
        if stamps != self._read:
            self._read = stamps
            try:
                self.context, self.expires = self._load()
                self.log(f"has read the certificate {self.certificate} anew")
                if why := self.trouble():
                    self.log(why)
            except MomError as error:
                self.log(f"keeps the certificate that it has: {error}")
        return self.context

    def _verified(self, conn: SSL.Connection, _: crypto.X509, error: int, depth: int, good: int) -> bool:
        if not good:
            self._wrong[conn] = error
        return bool(good)

    def wrapped(self, factory: Any, dials: bool, reactor: Any) -> Any:
        """A factory whose connections are those of `factory` behind TLS."""
        certified: Any = self
        made = TLSMemoryBIOFactory(certified, dials, factory, reactor)
        made.protocol = TLSMemoryBIOProtocol  # our writes are joined
        return made

    def check(self, transport: Any, server: str) -> None:
        """Raises PeerRefused unless the other end has shown the certificate of this server."""
        shown = transport.getPeerCertificate()
        if shown is None:
            raise PeerRefused(f"{server} shows no certificate: set [bus] ca and the certificate of {server} there")
        check_name(self.bus, server, uris(shown.to_cryptography()))

    def failure(self, who: str, transport: Any, error: Exception) -> Exception:
        """Why there is no TLS with somebody: refused, where only other files change that."""
        wrong = self._wrong.get(transport.getHandle())
        if wrong is not None:
            if wrong in (ENDED, NOT_YET):
                what = "has ended" if wrong == ENDED else "is not good yet"
                return PeerRefused(f"the certificate of {who} {what}, by our clock: `mom tls init` makes a new one")
            return PeerRefused(
                f"the certificate of {who} is signed by nobody in {self.ca}: give it one of the bus, or put the one "
                "that signed it into that file"
            )
        parts = error.args[0] if error.args and isinstance(error.args[0], list | tuple) else ()
        text = "; ".join(str(part[-1]) for part in parts) or "cut off"
        for alert, what in ALERTS.items():
            if f"alert {alert}" in text:
                return PeerRefused(f"{who} does not take our certificate, which {what}: see its log")
        if any(sign in text.lower() for sign in PLAIN_ON_TLS):
            return PeerRefused(f"{who} speaks plain text: set [bus] ca, and a certificate, there too")
        return PeerError(f"no TLS: {text}")


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except UNREADABLE:
        return False
    return True


def client_context(ca: str) -> ssl.SSLContext:
    """For a program of the operator, which shows no certificate. Raises MomError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the name is checked by `check_name`
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise MomError(f"cannot use {ca}: {error.strerror or error}; see [bus] ca in the topology file") from None
    return context
