"""The browser of all tests of the console, and a server for clients on real sockets."""

import os

import pytest

from tests.gateway.live import town as town
from tests.gateway.web import browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Without Chromium what needs it is skipped, but not where nothing may be skipped."""
    if browser.NAME is None:
        assert "MOM_SKIP_NOTHING" not in os.environ, "install chromium"
        pytest.skip("needs chromium")
    made = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()
