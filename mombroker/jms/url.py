"""Where servers are: `stomp://user:passcode@host:61613`, `stomps://host:61614?ca=ca.pem`; commas between several."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from mombroker.jms.errors import InvalidUrl

PORTS = {"stomp": 61613, "stomps": 61614}


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
        except OSError as error:
            why = "no certificates in PEM form are in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise InvalidUrl(
                f"ca={self.ca} cannot be used: {why}; give a file with the certificates to trust"
            ) from None


def parse(urls: str | Iterable[str]) -> list[Url]:
    """The servers that a URL, or several, name. Raises InvalidUrl."""
    texts = [urls] if isinstance(urls, str) else list(urls)
    parts = [part.strip() for text in texts for part in text.removeprefix("failover:").strip("()").split(",")]
    found = [_one(part) for part in parts if part]
    if not found:
        raise InvalidUrl("no URL: write stomp://HOST:PORT, or several with commas between")
    return found


def _one(text: str) -> Url:
    try:
        parts = urlsplit(text)
        port, options = parts.port, {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError as error:
        raise InvalidUrl(f"{_shown(text)} is no URL: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
        raise InvalidUrl(f"{_shown(text)}: write stomp://HOST:PORT, or stomps://HOST:PORT for TLS")
    tls = parts.scheme == "stomps"
    if unknown := set(options) - ({"ca"} if tls else set()):
        raise InvalidUrl(f"{_shown(text)}: there is no option {sorted(unknown)[0]!r}; stomps:// has ca=FILE")
    user, passcode = unquote(parts.username or ""), unquote(parts.password or "")
    return Url(parts.hostname, port or PORTS[parts.scheme], tls, user, passcode, options.get("ca", ""))


def _shown(text: str) -> str:
    """Without what may be a passcode."""
    return repr(text.rpartition("@")[2][:80])
