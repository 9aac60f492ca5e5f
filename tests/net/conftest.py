"""A driver without a server, a store or a socket, started, for each test that asks for one."""

import pytest

from tests.net.world import World


@pytest.fixture
def world():
    made = World()
    made.start()
    return made
