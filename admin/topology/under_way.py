"""A change of the domains that is under way, seen from this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from mombroker.admin.topology.stand import PATIENCE_S, of_all
from mombroker.core.errors import MomError
from mombroker.core.reconfiguration import FROZEN
from mombroker.core.topology import Topology
from mombroker.net import adminclient

POLL_S = 0.1
UNKNOWN, JOINING = "unknown", "joining"  # phases of servers that do not answer
Rows = list[dict[str, Any]]
NOBODY: Mapping[str, str] = {}


def statuses(topology: Topology, silent: Mapping[str, str] = NOBODY) -> Rows:
    """Of each server: the revision that it works under, its phase in a change, how many messages wait there for the end
    of that, and what it waits for. `bus` is what the registry says of all. One that does not answer has the phase
    `unknown`, or `joining` if it was never started; those of `silent`, with the reason, are not asked."""

    def row(name: str) -> dict[str, Any]:
        try:
            if name in silent:
                raise MomError(silent[name])
            with adminclient.connect(topology, name, PATIENCE_S) as client:
                return client.request("topology_status")
        except MomError as error:
            return {
                "revision": 0, "phase": UNKNOWN, "change": 0, "gate": 0, "waits_for": [str(error)], "bus": {},
                "joining": [],
            }  # fmt: skip

    rows = [{"server": name, **found} for name, found in of_all(topology.servers, row).items()]
    expected = joining(rows)
    for each in rows:
        if each["phase"] == UNKNOWN and each["server"] in expected:
            each |= {"phase": JOINING, "waits_for": [f"its first start, by `mom server start {each['server']}`"]}
    return rows


def joining(rows: Rows) -> list[str]:
    """Servers that have joined the bus, and were not started yet."""
    return [name for row in rows for name in row.get("joining", ())]


def change(rows: Rows) -> int:
    """The number of the revision to which a change is under way, as servers that answer say; 0 without one."""
    return max((each for row in rows for each in (row["change"], row["bus"].get("change", 0))), default=0)


def begun(rows: Rows, digest: str) -> int:
    """The number of the revision that a change which has begun brings, if that is the one of a digest; else 0. Servers
    of an older version do not tell."""
    told = [each for row in rows for each in (row, row["bus"]) if each.get("digest") == digest]
    return max((each["change"] for each in told if each["phase"] == FROZEN), default=0)


def left(rows: Rows) -> list[str]:
    """Who has still to switch, as the registry says; nobody if no change is under way, or the registry does not say."""
    return next((row["bus"]["waits_for"] for row in rows if row["bus"]), [])


def waits(rows: Rows) -> Iterator[str]:
    """What the change waits for, a sentence each: of servers that have not switched, or do not answer."""
    late = left(rows)
    nobody = all(row["phase"] == UNKNOWN for row in rows)
    for row in rows:
        if row["server"] in late or row["phase"] == FROZEN or nobody:
            reasons = ", ".join(row["waits_for"][:3])
            if row["phase"] == UNKNOWN:
                yield reasons
            else:
                yield f"{row['server']} waits for {reasons}" if reasons else f"{row['server']} has not switched"


def follow(
    topology: Topology,
    number: int,
    moved: Callable[[int, int], None],
    say: Callable[[str], None],
    patience: float = 5.0,
    timeout: float = inf,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Until revision `number` is in force on all servers that answer; False if it is not within `timeout` seconds.
    `moved` hears how many have it, of how many; after each `patience` seconds without a move `say` hears what is waited
    for."""
    most, still, end = -1, 0.0, clock() + timeout
    while True:
        rows = statuses(topology)
        known = [row for row in rows if row["phase"] not in (UNKNOWN, JOINING)]
        have = sum(row["revision"] >= number and row["phase"] in ("", "switched") for row in known)
        over = not any(row["bus"] or row["phase"] for row in known)
        if known and have == len(known) and over:
            moved(have, len(rows))
            return True
        if have != most:
            most, still = have, 0.0
            moved(have, len(rows))
        elif (still := still + POLL_S) >= patience:
            still = 0.0
            for line in waits(rows):
                say(line)
        if clock() >= end:
            return False
        sleep(POLL_S)
