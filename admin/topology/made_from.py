"""The key `revision` of a topology file: the revision of its bus that it was made from. Who would take back by such a
file what others have changed since is told of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mombroker.core.topology import Topology

KEY = "revision"
SHOWN = 6  # lines of what has changed since


def refusal(file: Topology, number: int, past: Iterable[Mapping[str, Any]]) -> str:
    """Why a file that would change revision `number` of its bus is not to, in a sentence; empty if nothing speaks
    against it. `past` are the last revisions (`revision.listed`), as far as they are known."""
    if file.revision in (0, number):
        return ""
    made = f"the file was made from revision {file.revision} of the topology, and revision {number} is in force"
    if file.revision > number:
        return (
            f"{made}: it is of another bus, or whoever knows more does not answer here; take a file of `mom topology "
            f"export`, or write {KEY} = {number} in this one if it is meant"
        )
    rows = sorted((row for row in past if row["revision"] > file.revision), key=lambda row: int(row["revision"]))
    lines = [str(line) for row in rows for line in row["changes"]]
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    since = f" (since then: {'; '.join(lines[:SHOWN])}{more})" if lines else ""
    return (
        f"{made}{since}: write what you want into a new file of `mom topology export`, or, if this one has all that "
        f"or is to take it back, {KEY} = {number} into this one"
    )
