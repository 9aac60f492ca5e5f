"""The domains of a simulated bus change while it works under faults; each rule of the freeze, broken on purpose."""

import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from mombroker.core import changes
from mombroker.core.changes import Kind, compare
from mombroker.core.channel import Channel
from mombroker.core.gate import Gate
from mombroker.core.neighbours import Neighbours
from mombroker.core.reconfiguration import Reconfiguration
from mombroker.ordering import registry
from mombroker.sim.faults import STORM, Faults
from mombroker.sim.relayouts import changed
from mombroker.sim.seeds import AGENTS, cluster, run
from tests import fakes_relayouts as fakes

EVERY = ("", "matrix", "rst", "ks", "vector", "overlay", "daisy")
SEQUENCER = Path(__file__).parents[2] / "examples" / "custom_ordering"


def all_clean(seeds: range, program: str = AGENTS, backends: tuple[str, ...] = EVERY) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, backends=backends, program=program, relayouts=True)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean(range(12))
    assert counts["relayouts"] > 20 and counts["crashes"] and counts["held"]


def test_some_seeds_with_clients_are_clean():
    assert all_clean(range(6), "everything")["relayouts"] > 12


@pytest.mark.parametrize("seed", [46, 121, 149])
def test_a_server_that_has_switched_and_forgets_it_has_told_nobody(seed):
    """Its neighbours would have given up what they had for it in the domains before."""
    assert not run(seed, faults=STORM, backends=EVERY, relayouts=True).wrong


def test_a_server_that_leaves_has_something_to_do_when_a_neighbour_hangs_up():
    assert all_clean(range(32132, 32133), "enduringly")["servers_left"]


@pytest.mark.long
def test_two_thousand_seeds_are_clean():
    all_clean(range(1000))
    for program in ("everything", "queues", "enduringly", "pulls"):
        all_clean(range(250), program)


def test_every_kind_of_change_is_drawn():
    rng, topology = Random(1), cluster(3).topology
    seen: Counter[str] = Counter()
    for number in range(200):
        new = changed(rng, topology, EVERY, number)
        found = compare(topology, new)
        assert found.kind is Kind.FREEZE and not (found.newcomers or found.leavers)
        seen.update(
            {
                "moved": bool(found.moved),
                "far": len(found.frozen) > 2,
                "kept": len(found.frozen) < len(topology.domains),
            }
        )
        topology = new
    assert min(seen.values()) > 20, seen


def test_a_back_end_that_delivers_own_copies_is_changed_too(monkeypatch):
    monkeypatch.syspath_prepend(str(SEQUENCER))
    point = EntryPoint("sequencer", "mom_sequencer:Sequencer", registry.GROUP)
    monkeypatch.setattr(registry, "_plugged", lambda: {"sequencer": point})
    done = 0
    for seed in (*range(12), 21, 30):  # in the last two it is the registry's own
        result = run(seed, backends=("sequencer", "sequencer", "", "matrix"), relayouts=True)
        assert not result.wrong, (seed, result.wrong)
        done += result.counts["relayouts"]
    sys.modules.pop("mom_sequencer", None)
    assert done > 20


class Control(NamedTuple):
    where: Any
    name: str
    make: Callable[..., Any]
    seeds: tuple[int, ...]  # that show it
    faults: Faults | None = None


CONTROLS = {
    "parked per hop": Control(Gate, "put", fakes.per_hop, (1, 4)),
    "transit inside S parked, too": Control(Channel, "_stamp", fakes.transit_too, (1, 3)),
    "forwards from outside not parked": Control(Channel, "_stamp_before_gate", fakes.forwards_pass, (2, 26, 28)),
    "switch at FREEZE": Control(Reconfiguration, "turn", fakes.without_marks, (0, 1)),
    "switch without the marks of others": Control(Reconfiguration, "turn", fakes.without_marks_of_others, (0, 1)),
    "let in in any order": Control(Gate, "entries", fakes.in_any_order, (1, 3)),
    "S is not connected": Control(changes, "_spanned", fakes.only_changed, (0, 1)),
    "handed over before forwards are stamped": Control(Channel, "_deliver", fakes.handed_over_first, (0, 1, 2)),
    "new domains are told of before they are durable": Control(
        Neighbours, "_durable", fakes.greets_from_memory, (46,), STORM
    ),
    "switch with packets of its own under way": Control(Reconfiguration, "_under_way", fakes.keeps_out_queues, (0, 1)),
    "a restart opens the gate": Control(Reconfiguration, "_guard", fakes.forgets_the_gate, (4,)),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    where, method, make, seeds, faults = CONTROLS[name]
    with patch.object(where, method, make(getattr(where, method))):
        assert any(run(seed, faults=faults, backends=EVERY, relayouts=True).wrong for seed in seeds)
