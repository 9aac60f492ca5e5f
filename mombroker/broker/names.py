"""Names of destinations, and their form inside the bus."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

TEMPORARY = "_temp:"
SAFE = " !$&'()*+,;=:@~._-"  # kept in names as they are


@lru_cache(65_536)  # of as many that take turns none is quoted anew
def name_of(destination: str) -> str:
    """The name of a destination on the bus."""
    return quote(destination, safe=SAFE)


def subscription_name(client_id: str, name: str, transient: bool = False) -> str:
    """The name of a durable or shared subscription on the bus."""
    return f"{'share' if transient else 'sub'}:{quote(client_id, safe='')}:{name_of(name)}"


def spoken(shown: str) -> str:
    """What an operator calls a queue or subscription, in a sentence."""
    kind, _, rest = shown.partition(":")
    client, colon, name = rest.partition(":")
    if kind not in ("sub", "share") or not colon:
        return shown
    shared = "shared " if kind == "share" else ""
    return f"{shared}subscription {unquote(name)} {f'of client {unquote(client)}' if client else 'without a client id'}"


MAX_NAME = 200
