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
from mombroker.core.events import Admin
from mombroker.net import config
from mombroker.ordering import registry
from mombroker.ordering.testing import conform
from tests.broker.bench import Broker
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
    assert "5 passed" in run.stdout


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


ROUNDS = 24
WHO = "abc"


@pytest.fixture(params=WHO)
def trio(request):
    """Three members, each of whose sources tells all three sinks; one of them is the sequencer."""
    agents = {f"{name}/{kind}-{name}": f"{AGENTS}:{kind.title()}" for name in WHO for kind in ("sink", "source")}
    made = Bus(topology({"x": WHO}, agents, {"x": ("sequencer", {"sequencer": request.param})}))
    made.pump()
    return made


def tell(bus: Bus, name: str, text: str, *sinks: str) -> None:
    """An operator's request; nothing of it has left."""
    note = {"to": [f"sink-{sink}" for sink in sinks], "text": text}
    args = {"to": [f"source-{name}"], "type": Tell.__wire_name__, "fields": note}
    bus.servers[name].step(Admin(next(bus.numbers), "send", args), bus.now)


def got(bus: Bus, name: str) -> list[str]:
    return bus.fields(f"{name}/sink-{name}")["got"]


def test_two_members_that_tell_all_at_once_have_one_order_in_every_round(trio):
    for number in range(ROUNDS):
        for name in WHO[number % 3 :] + WHO[: number % 3]:
            tell(trio, name, f"{name}{number}", *WHO)
        trio.pump()
    assert got(trio, "a") == got(trio, "b") == got(trio, "c")
    assert len(got(trio, "a")) == 3 * ROUNDS and not any(s.channel.domains["x"].pending for s in trio.servers.values())


def test_what_is_for_the_sender_alone_does_not_overtake_what_it_sent_before(trio):
    for number in range(ROUNDS):
        for name in WHO:
            tell(trio, name, f"all {name}{number}", *WHO)
            tell(trio, name, f"own {name}{number}", name)
    trio.pump()
    for name in WHO:
        mine = [text for text in got(trio, name) if name in text.split()[1]]
        assert mine == [f"{what} {name}{number}" for number in range(ROUNDS) for what in ("all", "own")]
    shared = [[text for text in got(trio, name) if text.startswith("all")] for name in WHO]
    assert shared[0] == shared[1] == shared[2] and len(shared[0]) == 3 * ROUNDS


def test_own_copies_survive_the_death_of_whoever_waits_for_them(trio):
    sequencer = trio.topology.domains["x"].options["sequencer"]
    others = [name for name in WHO if name != sequencer]
    trio.crash(sequencer)
    for number in range(3):
        for name in others:
            tell(trio, name, f"{name}{number}", *WHO)
            tell(trio, name, f"own {name}{number}", name)
    trio.pump()
    assert got(trio, others[0]) == got(trio, others[1]) == []
    trio.crash(others[0])
    trio.boot(others[0])
    trio.boot(sequencer)
    for name in others:
        trio.join(name, sequencer)
    trio.pump()
    shared = [[text for text in got(trio, name) if not text.startswith("own")] for name in WHO]
    assert shared[0] == shared[1] == shared[2] and len(shared[0]) == 6
    assert [text for text in got(trio, others[0]) if others[0] in text] == [
        text for number in range(3) for text in (f"{others[0]}{number}", f"own {others[0]}{number}")
    ]


def test_a_router_does_not_let_what_comes_from_another_domain_overtake_its_own_copy():
    """c tells d and itself by y, then b by x; b answers c by x, sooner than c's own copy is back from e."""
    agents = {"c/sink-c": f"{AGENTS}:Sink", "d/sink-d": f"{AGENTS}:Sink", "b/asked": f"{AGENTS}:Sink"}
    made = Bus(topology({"x": "bc", "y": "cde"}, {**agents, "c/source-c": f"{AGENTS}:Source"},
                        {"y": ("sequencer", {"sequencer": "e"})}))  # fmt: skip
    made.pump()
    made.crash("e")
    tell(made, "c", "cause", "d", "c")
    made.pump()
    made.send("c", "asked", Put("ask sink-c"))
    assert made.fields("b/asked")["got"] == ["ask sink-c"] and got(made, "c") == []
    made.boot("e")
    for name in "cd":
        made.join(name, "e")
    made.pump()
    assert got(made, "c") == ["cause", "asked"] and got(made, "d") == ["cause"]


def test_clients_are_served_while_own_copies_are_on_their_way():
    made = Broker(topology({"x": WHO}, {}, {"x": ("sequencer", {"sequencer": "b"})}))
    one, far = made.connect("a"), made.connect("c")
    one.subscribe("t", "topic:t").subscribe("q", "queue:q")
    far.subscribe("t", "topic:t")
    for number in range(5):
        one.send("topic:t", f"t{number}", pump=False)
        one.send("queue:q", f"q{number}", pump=False)
        far.send("topic:t", f"far{number}", pump=False)
    made.pump()
    assert all(one.texts.index(f"t{number}") < one.texts.index(f"q{number}") for number in range(5))
    assert [text for text in one.texts if text[0] != "q"] == far.texts and len(far.texts) == 10


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
