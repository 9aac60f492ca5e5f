"""A server of its own process for the tests of one file, and a broker in memory for each test that asks for one."""

import pytest

from tests.jms.memory import Memory
from tests.stomp.test_stomp_py import one_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


@pytest.fixture
def url(server):
    return f"stomp://127.0.0.1:{server.port}"


@pytest.fixture
def place(request):
    """A queue of the test's own."""
    return request.node.name.replace("[", "-").replace("]", "")


@pytest.fixture
def broker():
    return Memory()
