"""Models of the network between the servers of a bus, whose links keep the order of sending."""

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from math import isfinite
from pathlib import Path
from typing import Any

from mombroker.core.errors import MomError
from mombroker.lab.domain import Network
from mombroker.sim.world import MS, World


class InOrder:
    """On a network where one packet may overtake another: what is too early waits for those before it on its link."""

    def __init__(self, network: Network):
        self.network = network
        self.sent: dict[tuple[int, int], int] = defaultdict(int)
        self.next: dict[tuple[int, int], int] = defaultdict(int)
        self.early: dict[tuple[int, int], dict[int, tuple[Callable[..., Any], tuple[Any, ...]]]] = defaultdict(dict)

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        number = self.sent[frm, to]
        self.sent[frm, to] += 1
        self.network.carry(frm, to, size, self._come, (frm, to), number, arrive, args)

    def _come(self, link: tuple[int, int], number: int, arrive: Callable[..., Any], args: tuple[Any, ...]) -> None:
        early = self.early[link]
        early[number] = arrive, args
        while call := early.pop(self.next[link], None):
            self.next[link] += 1
            call[0](*call[1])


class Measured:
    """The delays of each link in turn, and again from the first; a link that has none of its own takes those of all.

    1. On each link packets arrive in the order of sending.
    """

    def __init__(self, world: World, names: Sequence[str], delays: Mapping[tuple[str, str], Sequence[int]]):
        """`delays` in ns, by the names of two servers; one direction has those of the other, if it has none."""
        self.world, self.names = world, names
        self.own = {link: cycle(some) for link, some in delays.items()}
        self.all = cycle([ns for some in delays.values() for ns in some])
        self.last: dict[tuple[int, int], int] = {}

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        a, b = self.names[frm], self.names[to]
        delay = next(self.own.get((a, b)) or self.own.get((b, a)) or self.all)
        at = max(self.world.now + delay, self.last.get((frm, to), 0))
        self.last[frm, to] = at
        self.world.after(at - self.world.now, arrive, *args)


def measured(file: Path, names: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    """Rows of a CSV file: server, server, ms. Raises MomError for what is none."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    try:
        rows = list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error):
        raise MomError(f"{file} is no CSV file") from None
    for number, row in enumerate(rows, 1):
        if not row or number == 1 and row[-1] == "ms":
            continue
        try:
            a, b, told = row
            ms = float(told)
            if not (isfinite(ms) and ms >= 0):
                raise ValueError("no delay")
        except ValueError:
            raise MomError(f"{file}:{number}: a row is server, server, and ms from one to the other") from None
        for name in (a, b):
            if name not in names:
                raise MomError(f"{file}:{number}: there is no server {name!r}")
        found[a, b].append(int(ms * MS))
    if not found:
        raise MomError(f"{file} has no delays: a row is server, server, and ms from one to the other")
    return dict(found)
