"""Waiting for a change of the domains, and for newcomers that it needs."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from mombroker.core.topology import Topology

RETRY_S = 0.5
TOLD_S = 30.0  # until it is said again


def wait_for(topology: "Topology", number: int) -> None:
    """Until a change that has begun is over everywhere."""
    from mombroker.admin.topology import under_way

    with Bar("servers that have switched") as bar:
        under_way.follow(topology, number, bar.at, bar.say)


def when_they_run(change: Callable[[], dict[str, Any]], names: str) -> dict[str, Any]:
    """Begin a change that needs newcomers, as soon as they answer."""
    with Bar(f"waits for {names}") as bar:
        began, said = time.monotonic(), -1
        while True:
            try:
                return change()
            except MomError as error:
                if "not answer" not in str(error):
                    raise
            if said < (often := int((time.monotonic() - began) / TOLD_S)):
                said = often
                bar.say(
                    f"{names} joined: start each by `mom server start NAME`, or `mom server join` on its machine; `mom "
                    "topology abort` takes out again who has not begun"
                )
            time.sleep(RETRY_S)
