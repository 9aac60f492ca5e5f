"""The fixture `mom_bus` of pytest: buses in virtual time for the tests of agents, judged at the end of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mombroker.agents.testing import Bus


@pytest.fixture
def mom_bus() -> Iterator[Callable[..., Bus]]:
    """Makes a Bus of what mombroker.agents.testing.Bus takes; each is checked when the test is over."""
    from mombroker.agents.testing import Bus

    made: list[Bus] = []

    def make(*args: Any, **more: Any) -> Bus:
        made.append(Bus(*args, **more))
        return made[-1]

    yield make
    for bus in made:
        bus.check()
