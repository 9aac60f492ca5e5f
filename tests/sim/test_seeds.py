"""The whole bus under random faults: safe while they last, everything delivered once they are over."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from mombroker import ordering
from mombroker.sim import __main__ as command
from mombroker.sim.faults import POINTS
from mombroker.sim.seeds import AGENTS, Run, cluster, run

CASES = json.loads((Path(__file__).parent.parent / "seeds" / "cases.json").read_text())
SOME = (*range(40), 80)  # in the last, much is refused


def all_clean(seeds: Iterable[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.deaths)
        counts.update(result.counts)
    return counts


def test_some_seeds_are_clean_and_meet_every_fault():
    counts = all_clean(SOME)
    assert {point: counts[point] for point in POINTS if not counts[point]} == {}
    for what in ("breaks", "lost", "refusals", "held"):
        assert counts[what] > 100, what


@pytest.mark.long
def test_five_thousand_seeds_are_clean():
    all_clean(range(40, 5000))


ORDERINGS = sorted({*ordering.names()} - {"fifo"})  # which is for two servers only


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_ordering_carries_the_bus(name):
    for seed in (0, 6):
        assert run(seed, backends=(name,)).wrong == [], seed


@pytest.mark.long
def test_every_mixture_of_orderings_carries_the_bus():
    for seed in range(10_000, 12_000):
        assert run(seed, backends=ORDERINGS).wrong == [], seed


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['seed']}: {case['found'][:40]}")
def test_a_seed_that_once_failed(case):
    assert run(case["seed"], program=case.get("clients", AGENTS)).wrong == []


def test_the_same_seed_gives_the_same_trace_in_any_process():
    """Also where sets and dicts of names are in another order. In the last, a queue lets go four servers that it had
    told to hold back their clients."""
    runs = [(3, AGENTS), (28, AGENTS), (7, "queues")]
    code = f"from mombroker.sim.seeds import run\nfor seed, program in {runs}: print(run(seed, program=program).trace)"
    here = [run(seed, program=program).trace for seed, program in runs]
    assert here == [run(seed, program=program).trace for seed, program in runs]
    for hash_seed in ("1", "4"):
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
        assert out.split() == here


def test_seeds_draw_all_shapes():
    """Three to twelve servers, routers in three domains, both back ends, tight and wide limits."""
    drawn = [cluster(seed).topology for seed in range(100)]
    assert {len(topology.servers) for topology in drawn} == set(range(3, 13))
    assert any(len(topology.domains_of(server)) >= 3 for topology in drawn for server in topology.routers)
    assert {domain.backend for topology in drawn for domain in topology.domains.values()} == {"matrix", "fifo"}
    assert {"link_window" in topology.limits for topology in drawn} == {True, False}


def test_the_command_prints_one_line_of_json():
    ran = subprocess.run(
        [sys.executable, "-m", "mombroker.sim", "--seeds", "7:9"], capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    assert json.loads(line)["seeds"] == 2 and json.loads(line)["failed"] == []


def test_a_failing_seed_is_named_with_the_end_of_its_trace(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "run", lambda seed, **_: Run(seed, "agents", ["one is lost"] * (seed == 8), tail=["s1 kind=send"])
    )
    monkeypatch.setattr(sys, "argv", ["sim", "--seeds", "7:20"])
    assert command.main() == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["failed"] == [8] and json.loads(out)["seeds"] == 2
    assert "seed 8 fails:" in err and "one is lost" in err and "s1 kind=send" in err
