"""TLS of the listener: its certificate, and what goes wrong in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLContextFactory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer  # type: ignore[import-untyped]

from mombroker.core.errors import MomError
from mombroker.core.words import many

CIPHERS = b"ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all good
DAY_S = 86_400
SOON_S = 30 * DAY_S  # before its end an operator is told
PLAIN_ON_TLS = (
    "wrong version number",
    "http request",
    "https proxy request",
    "unknown protocol",
    "packet length too long",
    "record layer",
)

# What is said of a certificate or key that is cut, damaged, or of a kind that nobody knows.
UNREADABLE = (
    ValueError, TypeError, SSL.Error, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion,
    x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip


@implementer(IOpenSSLContextFactory)
class Certified:
    """TLS with the certificate (and its chain) in one PEM file and the private key in another, or in the same one.
    `expires`: in s since 1970, the first of the chain. Clients may show a certificate of one of
    `client_ca`.

    Raises MomError.
    """

    def __init__(self, certificate: str, key: str = "", client_ca: str = ""):
        self.client_ca = client_ca
        self.load(certificate, key)

    def load(self, certificate: str, key: str = "") -> None:
        """Read the files. What is not whole, as while somebody writes it, is refused, and nothing changes."""
        key = key or certificate
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_cipher_list(CIPHERS)
        try:
            chain = x509.load_pem_x509_certificates(Path(certificate).read_bytes())
            serialization.load_pem_private_key(Path(key).read_bytes(), None)  # else OpenSSL asks for its passphrase
            context.use_certificate_chain_file(certificate)
            context.use_privatekey_file(key)
            context.check_privatekey()
            if self.client_ca:
                x509.load_pem_x509_certificates(Path(self.client_ca).read_bytes())
                context.load_verify_locations(self.client_ca)
                context.load_client_ca(self.client_ca.encode())
                context.set_verify(SSL.VERIFY_PEER)
                context.set_session_cache_mode(SSL.SESS_CACHE_OFF)  # or one that has ended would be good for longer
                context.set_options(SSL.OP_NO_TICKET)
        except OSError as error:
            text = f"cannot read {error.filename}: {error.strerror}; set `certificate` and `private_key`"
            raise MomError(text) from None
        except UNREADABLE:
            raise MomError(
                f"{certificate} and {key} are no certificate and its key: give PEM files, the server's own certificate "
                "before those that signed it, and a key without a passphrase"
            ) from None
        self.context = context
        self.file, self.expires = certificate, min(int(each.not_valid_after_utc.timestamp()) for each in chain)

    def getContext(self) -> SSL.Context:
        return self.context


def user_of(transport: Any) -> str | None:
    """The user whose certificate a client has shown, by its common name; None if it has shown none."""
    shown = getattr(transport, "getPeerCertificate", lambda: None)()
    if shown is None:
        return None
    names = shown.to_cryptography().subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def ending(file: str, expires: int, now: int) -> str:
    """A sentence, if a certificate ends soon, or has; times in s."""
    left = expires - now
    if left > SOON_S:
        return ""
    when = f"ends in {many(left // DAY_S, 'day')}" if left >= 0 else "has ended: clients refuse it"
    return f"the certificate {file} {when}: put a new one in its place, and `mom server reload` takes it"


def secured(accepting: Any, certified: Any, reactor: Any) -> Any:
    """A factory whose connections are those of `accepting` behind TLS."""
    factory = TLSMemoryBIOFactory(certified, False, accepting, reactor)
    # Nothing to aggregate: our writes are joined, and we must know when they leave.
    factory.protocol = TLSMemoryBIOProtocol
    return factory


def failure(host: str, error: Exception, setting: str) -> str:
    """Why there is no TLS with a host. `setting`: of the port that takes plain text."""
    text = "; ".join(str(part[-1]) for part in error.args[0]) if error.args and error.args[0] else "cut off"
    if any(sign in text.lower() for sign in PLAIN_ON_TLS):
        return f"{host} speaks plain text on the TLS port: give it the port of `{setting}`, or let it use TLS"
    if "certificate verify failed" in text:
        return f"{host} shows a certificate that has ended, or that nobody in client_ca has signed"
    return f"no TLS with {host}: {text}"
