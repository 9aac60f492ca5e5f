"""A gateway without sockets, for each test that asks for one."""

import pytest

from tests.gateway.world import World


@pytest.fixture
def world():
    return World()
