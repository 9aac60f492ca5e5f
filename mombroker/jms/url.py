"""Where servers are: `stomp://user:passcode@host:61613`, `stomps://host:61614?ca=ca.pem`; commas between several."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from mombroker.jms import checks
from mombroker.jms.errors import InvalidUrl

PORTS = {"stomp": 61613, "stomps": 61614}
_WRITE_SIGNS = (
    "no URL like stomp://USER:PASSCODE@HOST:PORT: in a user or passcode write @ as %40, : as %3A, / as %2F, # as %23, "
    "? as %3F, a comma as %2C and % as %25"
)


@dataclass(frozen=True, slots=True)
class Url:
    """One server. `ca`: a file of certificates to trust instead of the system's; only with TLS."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    passcode: str = field(default="", repr=False)
    ca: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'stomps' if self.tls else 'stomp'}://{host}:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """Whom to believe that they are this host. Raises InvalidUrl."""
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except ValueError:
            raise InvalidUrl("ca= is the name of a file with the certificates to trust") from None
        except OSError as error:
            why = "no certificates in PEM form are in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise InvalidUrl(
                f"ca={self.ca} cannot be used: {why}; give a file with the certificates to trust"
            ) from None


def parse(urls: str | Iterable[str]) -> list[Url]:
    """The servers that a URL, or several, name. Raises InvalidUrl."""
    texts = [urls] if isinstance(urls, str) else list(urls) if isinstance(urls, Iterable) else [urls]
    for text in texts:
        checks.text("a URL", text, InvalidUrl)
    parts = [part.strip() for text in texts for part in text.removeprefix("failover:").strip("()").split(",")]
    secret = any("@" in part for part in parts)
    found = [_one(part, secret) for part in parts if part]
    if not found:
        raise InvalidUrl("no URL: write stomp://HOST:PORT, or several with commas between")
    return found


def _one(text: str, secret: bool) -> Url:
    """`secret`: what surrounds it may have a passcode, so that no part of it is repeated that is no host."""
    try:
        parts = urlsplit(text)
        scheme, host, port, options = parts.scheme, parts.hostname, parts.port, parse_qs(parts.query)
        user, passcode = (unquote(each or "", errors="strict") for each in (parts.username, parts.password))
    except ValueError as error:
        raise InvalidUrl(_WRITE_SIGNS if secret else f"{text[:80]!r} is no URL: {error}") from None
    if secret and ("@" in parts.path + parts.query + parts.fragment or not host or "://" not in text):
        raise InvalidUrl(_WRITE_SIGNS)
    shown = repr(text.rpartition("@")[2][:80])
    if scheme not in PORTS or not host or port == 0 or parts.path.strip("/") or parts.fragment or not _encodable(host):
        raise InvalidUrl(f"{shown}: write stomp://HOST:PORT, or stomps://HOST:PORT for TLS")
    if any(sign in user + passcode for sign in "\0\r\n"):
        raise InvalidUrl(f"{shown}: a user and a passcode are each on one line, and have no NUL")
    tls = scheme == "stomps"
    if unknown := set(options) - ({"ca"} if tls else set()):
        raise InvalidUrl(f"{shown}: there is no option {min(unknown)[:40]!r}; stomps:// has ca=FILE")
    return Url(host, port or PORTS[scheme], tls, user, passcode, options.get("ca", [""])[-1])


def _encodable(host: str) -> bool:
    """Whether the resolver takes it: a label of a name has at most 63 characters."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
