"""Settings of all tests."""

import signal
from typing import Any

import pytest
from hypothesis import settings

# The same examples at every run, and no clock: a slow machine is no failure.
settings.register_profile("mombroker", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("mombroker")

# A shell that starts something in the background makes it deaf to Ctrl-C, and with it the commands under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Side by side, the tests of a file stay together; so do all of the analysis, which share one session of Spark."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "tests/admin/analysis" if file.startswith("tests/admin/analysis/") else file

    return Files(config, log)
