"""One Spark session for all tests that ask for `spark`, and one played log for all that read one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mombroker import store
from mombroker.admin.bench import logs
from mombroker.core.errors import MomError
from mombroker.core.topology import Topology
from mombroker.net import config

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def java() -> Path:
    """Skips what needs a Java."""
    from mombroker.admin.analysis.session import prepare_java

    return _or_skip(prepare_java)


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[Any]:
    from mombroker.admin.analysis.session import session

    # What the better compiler and the parallel collectors cost pays off after minutes.
    started = _or_skip(lambda: session("local[2]", spark_driver_extraJavaOptions=QUICK))
    yield started
    started.stop()


def _or_skip(start: Callable[[], Any]) -> Any:
    try:
        return start()
    except MomError as error:  # no Spark or no Java for this machine
        assert "MOM_SKIP_NOTHING" not in os.environ, error
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def arrow() -> Any:
    """Skips what needs no Java, but the extra."""
    try:
        import pyarrow
    except ImportError:
        assert "MOM_SKIP_NOTHING" not in os.environ, "install the extra spark"
        pytest.skip("this needs pyarrow; install it with: pip install 'mombroker[spark]'")
    return pyarrow


class Played(NamedTuple):
    folder: Path
    topology: Topology
    file: Path
    written: logs.Played


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Stores with the logs of a run of the simulator; read only."""
    folder = tmp_path_factory.mktemp("played")
    topology, written = logs.play(folder, 1500)
    logs.write(topology, written)
    file = folder / "bus.toml"
    file.write_text(config.dumps(topology, folder))
    return Played(folder, topology, file, written)


@pytest.fixture
def stores(played):
    return {server: store.read(played.topology.servers[server].data) for server in played.written}
