"""Bounds on what peers and clients may cost before their login: lines in the log, and connections. Both are counted by
address, so that no address uses up the share of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Generic, TypeVar

from mombroker.core.errors import line

PERIOD_S = 60.0
MAX_KINDS = 10  # lines of one address in that time
MAX_LINES = 200  # lines of all addresses in that time

T = TypeVar("T")
_VARYING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+""")


def origin(host: str) -> str:
    """The unit that is counted: an IPv4 address, or the /64 network of an IPv6 address, which one host may own."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


@dataclass(slots=True)
class _Said:
    at: float
    left_out: int = 0


class Complaints:
    """Lines about those who connect, written at a bounded rate.

    1. Lines that differ only in numbers and quoted texts are of one kind. A kind is written once in PERIOD_S for each
       address, and the next line of that kind says how many were left out.
    2. An address causes at most MAX_KINDS lines in PERIOD_S, all together at most MAX_LINES; what is remembered is
       bounded by the same numbers.

    now   seconds of a clock that nobody can set
    """

    def __init__(self, log: Callable[[str], None], now: Callable[[], float]):
        self.log, self.now = log, now
        self._said: dict[str, dict[str, _Said]] = {}
        self._crowded = 0  # lines left out for which there was no entry

    def say(self, host: str, text: str) -> None:
        now, whose, text = self.now(), origin(host), line(text)
        kind = _VARYING.sub("*", text)
        said = self._said.get(whose, {}).get(kind)
        if said is None and not self._room(whose, now):
            self._crowded += 1
            return
        if said is not None and now - said.at < PERIOD_S:
            said.left_out += 1
            return
        more = f" (and {said.left_out:,} more like this)" if said is not None and said.left_out else ""
        if self._crowded:
            more += f" (and {self._crowded:,} lines of other kinds were left out)"
            self._crowded = 0
        self._said.setdefault(whose, {})[kind] = _Said(now)
        self.log(text + more)

    def _room(self, whose: str, now: float) -> bool:
        """Whether one more kind of this address can be remembered."""
        kinds = self._said.get(whose, {})
        if len(kinds) < MAX_KINDS and len(self) < MAX_LINES:
            return True
        for each, said in list(self._said.items()):
            fresh = {kind: entry for kind, entry in said.items() if now - entry.at < PERIOD_S}
            if fresh:
                self._said[each] = fresh
            else:
                del self._said[each]
        return len(self._said.get(whose, {})) < MAX_KINDS and len(self) < MAX_LINES

    def __len__(self) -> int:
        return sum(map(len, self._said.values()))


class Newcomers(Generic[T]):
    """Connections whose login is not over. When they are too many, the oldest of the address that has most must go."""

    def __init__(self) -> None:
        self._of: dict[str, dict[T, None]] = {}

    def add(self, host: str, conn: T) -> None:
        self._of.setdefault(origin(host), {})[conn] = None

    def discard(self, host: str, conn: T) -> None:
        whose = origin(host)
        if conn in self._of.get(whose, {}):
            del self._of[whose][conn]
            if not self._of[whose]:
                del self._of[whose]

    def surplus(self) -> T:
        """The one to close first."""
        return next(iter(self._of[max(self._of, key=lambda whose: len(self._of[whose]))]))

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))
