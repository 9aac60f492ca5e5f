"""Requests and answers of the HTTP port as values."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mombroker.core.errors import MomError
from mombroker.core.topology import is_loopback

MAX_ARGUMENTS = 20  # of a query
MAX_DEPTH = 8  # of the tables and lists in a body
JSON = "application/json"
# Nothing that a page of somebody else could use, and nothing kept by whoever is between.
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Request:
    """`headers`: names in lower case; what several of one name say is joined by commas. `body`: of a POST alone; not
    `whole`: it is large, and comes once its user may send it. `path`: of the target, as it is meant."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = True
    path: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", unquote(self.target.partition("?")[0]))

    @property
    def query(self) -> dict[str, str]:
        """Raises MomError."""
        try:
            pairs = parse_qsl(self.target.partition("?")[2], keep_blank_values=True, max_num_fields=MAX_ARGUMENTS)
        except ValueError:
            raise MomError(f"a request has at most {MAX_ARGUMENTS} arguments") from None
        return dict(pairs)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the body. Raises MomError."""
        try:
            found = json.loads(self.body or b"{}", parse_constant=_no_number)
            _check(found, MAX_DEPTH)
        except (ValueError, RecursionError):
            raise MomError('the body of a change is a table of JSON, as {"destination": "queue:orders"}') from None
        if not isinstance(found, dict):
            raise MomError('the body of a change is a table of JSON, as {"destination": "queue:orders"}')
        return found

    @property
    def is_json(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON

    @property
    def upgrades(self) -> bool:
        """It wants to become a WebSocket."""
        return self.headers.get("upgrade", "").lower() == "websocket"

    def same_origin(self, tls: bool) -> bool:
        """A browser's page asks, and it is ours; or none does."""
        origin = self.headers.get("origin", "")
        return not origin or origin.lower() == f"{'https' if tls else 'http'}://{self.headers.get('host', '')}".lower()

    def forged(self, tls: bool) -> bool:
        """A page of somebody else asks, with the login that the browser has for us. A browser says whose page it is by
        Sec-Fetch-Site, where it trusts the way to us, else by Origin; programs say nothing."""
        site = self.headers.get("sec-fetch-site")
        return site != "same-origin" if site is not None else not self.same_origin(tls)

    @property
    def to_this_machine(self) -> bool:
        """It names this machine as such. A page of somebody else, whose name leads to 127.0.0.1, does not."""
        try:
            return is_loopback(urlsplit(f"//{self.headers.get('host', '')}").hostname or "")
        except ValueError:
            return False

    def login(self) -> tuple[str, str] | None:
        """User and passcode of Basic authentication (RFC 7617); None if there are none that can be read."""
        scheme, _, encoded = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, colon, passcode = b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (Base64Error, ValueError):
            return None
        return (user, passcode) if colon else None


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def said(status: int, sentence: str, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, f"{sentence}\n".encode(errors="backslashreplace"), headers=named)


def as_json(value: Any, status: int = 200) -> Answer:
    """Bytes are told in base64."""
    text = json.dumps(value, ensure_ascii=True, default=_plain, separators=(",", ":"))
    return Answer(status, text.encode(), JSON)


def _plain(value: object) -> str:
    assert isinstance(value, bytes), f"{type(value).__name__} in an answer"
    return b64encode(value).decode()


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _check(value: object, depth: int) -> None:
    """Raises ValueError for text that UTF-8 has no form for, as half of a pair of surrogates, and what is too deep."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        if not depth:
            raise ValueError("too deep")
        for each in value if isinstance(value, list) else (*value, *value.values()):
            _check(each, depth - 1)
