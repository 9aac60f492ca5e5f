"""Names of destinations, and their form inside the bus."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

TEMPORARY = "_temp:"
SAFE = " !$&'()*+,;=:@~._-"  # kept in names as they are


@lru_cache(10_000)
def name_of(destination: str) -> str:
    """The name of a destination on the bus."""
    return quote(destination, safe=SAFE)


def subscription_name(client_id: str, name: str, transient: bool = False) -> str:
    """The name of a durable or shared subscription on the bus."""
    return f"{'share' if transient else 'sub'}:{quote(client_id, safe='')}:{name_of(name)}"


MAX_NAME = 200
