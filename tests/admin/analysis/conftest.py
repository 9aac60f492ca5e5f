"""One Spark session for all tests that ask for `spark`."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from mombroker.core.errors import MomError


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from mombroker.admin.analysis.session import session

    try:
        started = session("local[2]")
    except MomError as error:  # no Spark or no Java for this machine
        assert "MOM_SKIP_NOTHING" not in os.environ, error
        pytest.skip(str(error))
    yield started
    started.stop()
