"""A change of the domains that has begun, and servers inside that are lost for good meanwhile: what their operator asks
of all inside that are left, so that it goes on without the lost (protocols §8.7).

1. WITHOUT  each that is left closes its link to the lost ones for ever, and waits for nothing of them. One that was
            asked and has not heard that it has begun takes this for the word.
2. COUNTS   each tells how much it has sent to whom in S, and received. When all that was sent between those that have
            not switched is received, nothing is under way between them, nor ever will be: their gates are closed.
3. END      then each switches, with whatever is there.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import Any

from mombroker.core.loss_reports import Counts, quiet
from mombroker.core.reconfiguration import ASKED, FROZEN

STATUS, ABORT, OVER = "topology_status", "topology_abort", "change_over"  # verbs, for the registry
WITHOUT, COUNTS, END = "change_without", "change_counts", "change_end"  # for who is left
GIVEN_UP, CARRIED_OUT = "given up", "carried out"  # what has become of a change

Reply = dict[str, Any]
Rows = Mapping[str, Reply]  # of each that is left, its answer to COUNTS
Asking = Generator[tuple[str, str, Reply], Reply | None, tuple[int, str]]


def carry_out(registry: str, lost: Collection[str]) -> Asking:
    """Yields whom to ask, the verb and its arguments, and is sent the answer, None if there is none, or a refusal. What
    has become of the change to which revision; 0 if none under way had the lost servers inside.

    Begun anew after it was cut short, it goes on where it was.
    """
    while True:
        bus = (yield from _answer(registry, STATUS))["bus"]
        gone = [server for server in lost if server in bus.get("inside", ())]
        if not gone:
            return 0, ""
        if bus["phase"] != ASKED:
            break
        if (yield registry, ABORT, {}) is not None:  # else it has begun just now
            return bus["change"], GIVEN_UP
    id, number, before = bus["id"], bus["change"], dict[str, Reply]()
    for server in bus["inside"]:  # who has switched closes its door, too
        if server not in lost:
            yield from _answer(server, WITHOUT, change=id, servers=gone)
    while True:
        now = dict[str, Reply]()
        for server in bus["inside"]:
            if server not in lost:
                now[server] = yield from _answer(server, COUNTS, change=id)
        verb, whom = todo(number, gone, before, now)
        if not whom:
            break
        for server in whom if verb != COUNTS else ():
            yield from _answer(server, verb, **{"change": id, **({"servers": gone} if verb == WITHOUT else {})})
        before = now
    yield from _answer(registry, OVER, change=id)
    return number, CARRIED_OUT


def _answer(server: str, verb: str, **args: Any) -> Generator[tuple[str, str, Reply], Reply | None, Reply]:
    while (answer := (yield server, verb, args)) is None:
        pass
    return answer


def todo(number: int, lost: Collection[str], before: Rows, now: Rows) -> tuple[str, list[str]]:
    """The verb that is to be asked next, and of whom: nobody, if all have switched to revision `number`. All rows of
    `before` were there when the first one of `now` was asked for."""
    left = [server for server, row in now.items() if row["revision"] < number]
    if late := [server for server in left if not {*lost} <= {*now[server]["lost"]}]:
        return WITHOUT, late
    return (END if _quiet(left, before, now, number) else COUNTS), left


def _quiet(left: list[str], before: Rows, now: Rows, number: int) -> bool:
    """Who has switched had nothing of its own under way: that has arrived before the others were asked, if it had
    switched before that."""
    if any(server not in left and (server not in before or before[server]["revision"] < number) for server in now):
        return False
    domains: dict[str, dict[str, Counts]] = {}
    for server in left:
        if now[server]["phase"] != FROZEN:
            return False
        for domain, counts in now[server]["domains"].items():
            domains.setdefault(domain, {})[server] = counts
    return all(quiet(reports) for reports in domains.values())
