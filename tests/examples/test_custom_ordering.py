"""The example of a back end of one's own, installed as a package, conforms and runs on a bus."""

import importlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mombroker import ordering
from mombroker.core.errors import TopologyError
from mombroker.net import config
from mombroker.ordering import registry
from mombroker.ordering.testing import conform
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put, Tell

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_ordering"
AGENTS = "tests.core.sample_agents"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The package in a folder of its own on the path, as `pip install` puts it there; no index is asked."""
    folder = tmp_path_factory.mktemp("custom")
    shutil.copytree(EXAMPLE, folder / "source")  # a build leaves traces
    target = folder / "target"
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    run = subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(target), str(folder / "source")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    registry._plugged.cache_clear()
    yield target
    sys.path.remove(str(target))
    sys.modules.pop("mom_sequencer", None)
    registry._plugged.cache_clear()


def test_it_is_found_by_its_entry_point(installed):
    assert "sequencer" in ordering.names()
    assert sys.modules[ordering.backend("sequencer").__module__].__file__ == str(installed / "mom_sequencer.py")


@pytest.mark.long
def test_it_conforms_on_many_schedules():
    conform(ordering.backend("sequencer"), range(100, 2_000), random.Random)


def test_what_its_author_runs_passes(installed):
    shutil.copy(EXAMPLE / "test_mom_sequencer.py", installed.parent)
    paths = f"{installed}:{Path(ordering.__file__).parents[2]}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mom_sequencer.py"],
        cwd=installed.parent, env={"PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "4 passed" in run.stdout


def test_a_topology_file_can_choose_it(tmp_path):
    bus = config.load(EXAMPLE / "bus.toml")
    assert bus.domains["south"].backend == "sequencer"
    wrong = tmp_path / "bus.toml"
    wrong.write_text((EXAMPLE / "bus.toml").read_text().replace('sequencer = "nimes"', 'sequencer = "paris"'))
    with pytest.raises(TopologyError, match="names a server of this domain: choose one of nice, nimes, nantes"):
        config.load(wrong)


@pytest.fixture
def bus():
    """c is a router; in y the sequencer is e."""
    made = Bus(
        topology(
            {"x": "abc", "y": "cdef"},
            {"a/source": f"{AGENTS}:Source", "d/sink": f"{AGENTS}:Sink", "e/far": f"{AGENTS}:Sink"},
            {"y": ("sequencer", {"sequencer": "e"})},
        )
    )
    made.pump()
    return made


def test_a_bus_runs_on_it(bus):
    bus.send("a", "source", Tell(["sink", "far"], "hello"))
    assert bus.fields("d/sink")["got"] == bus.fields("e/far")["got"] == ["hello"]
    (forward,) = bus.records("c", "forward")[-1:]
    assert [peer for _, peer, _, _ in forward["out"]] == ["e"]
    (relay,) = bus.records("e", "relay")[-1:]
    assert [peer for _, peer, _, _ in relay["out"]] == ["d"]


def test_all_wait_for_the_sequencer_and_nothing_is_lost(bus):
    bus.crash("e")
    bus.send("c", "sink", Put("one"))
    bus.crash("c")
    bus.boot("c")
    bus.send("c", "sink", Put("two"))
    assert bus.fields("d/sink")["got"] == []
    (wait,) = bus.ask("c", "why")["waits"]
    assert (wait["kind"], wait["peer"], wait["packets"]) == ("link", "e", 2)
    bus.boot("e")
    bus.join("c", "e")
    bus.pump()
    assert bus.fields("d/sink")["got"] == ["one", "two"]
