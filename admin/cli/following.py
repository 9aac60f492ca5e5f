"""Waiting for a change of the domains, and for newcomers that it needs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mombroker.admin.cli.options import Failure
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError
from mombroker.core.topology import listed
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from mombroker.core.topology import Topology

RETRY_S = 0.5
TOLD_S = 30.0  # until it is said again
PATIENCE_S = 600.0  # somebody may have to go to another machine


def wait_for(topology: "Topology", number: int, timeout: float = PATIENCE_S) -> None:
    """Until a change that has begun is over everywhere. Raises Failure if it is not in time, and MomError at Ctrl-C."""
    from mombroker.admin.topology import under_way

    goes_on = f"the change to revision {number} goes on by itself: see `mom topology status`"
    with Bar("servers that have switched") as bar, _interrupted(goes_on):
        if not under_way.follow(topology, number, bar.at, bar.say, timeout=timeout):
            raise Failure(ExitCode.INCOMPLETE, f"not all have switched within {timeout:g} s; {goes_on}")


def when_they_run(
    topology: "Topology", names: Sequence[str], change: Callable[[], dict[str, Any]], goes_on: str, timeout: float
) -> dict[str, Any]:
    """Begin a change that needs newcomers, once all of them have begun. It says whom it waits for. Raises Failure if
    that takes too long, and MomError at Ctrl-C or for any other refusal; both tell how it `goes_on`."""
    with Bar(f"waits for {listed(names)}") as bar, _interrupted(goes_on):
        began, said, at = time.monotonic(), "", 0.0
        while True:
            waits = _not_begun(topology, names)
            if not waits:
                try:
                    return change()
                except MomError as error:
                    if "not answer" not in str(error):
                        raise
                    waits = f"it is tried again: {error}"
            now = time.monotonic()
            if waits != said or now - at >= TOLD_S:
                said, at = waits, now
                bar.say(waits)
            if now - began >= timeout:
                raise Failure(ExitCode.INCOMPLETE, f"the domains have not changed within {timeout:g} s; {goes_on}")
            time.sleep(RETRY_S)


def _not_begun(topology: "Topology", names: Sequence[str]) -> str:
    """Which of these were not started yet, as their sponsors say, and what to do; empty if all were, or nobody says."""
    from mombroker.admin.topology import under_way

    joining = under_way.joining(under_way.statuses(topology))
    left = [name for name in names if name in joining]
    if not left:
        return ""
    return (
        f"{listed(left, 12)} joined: start each by `mom server start NAME`, or `mom server join` on its machine; `mom "
        "topology abort` takes out again who has not begun"
    )


@contextmanager
def _interrupted(goes_on: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise MomError(f"interrupted; {goes_on}") from None
