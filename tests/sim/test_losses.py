"""Servers of a simulated bus die with their disks while it works under faults; each rule of that, broken on purpose."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from mombroker.admin.audit.bus import Findings, audit
from mombroker.broker.session.orphans import Orphans
from mombroker.core import undelivered
from mombroker.core.dead_letters import DeadLetters
from mombroker.core.losses import Losses
from mombroker.sim import mischief
from mombroker.sim.checkers import judge
from mombroker.sim.programs import HEIRS
from mombroker.sim.seeds import cluster, run
from mombroker.sim.world import MS
from tests import fakes_losses as fakes

DIRECT = ("", "", "matrix", "rst", "ks", "vector")
RELAYING = ("overlay", "daisy")


def all_clean(seeds: range, backends: tuple[str, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, backends=backends, losses=True)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean(range(16), DIRECT)
    for what in ("losses", "told", "told_unknown", "crashes", "held", "came_back"):
        assert counts[what], what


def test_some_seeds_are_clean_where_members_pass_on_for_others():
    assert all_clean(range(8), RELAYING)["told_unknown"]


def test_a_server_that_holds_as_much_as_it_may_takes_what_is_under_way():
    """What it holds waits for what is lost, and nobody would ever begin anew."""
    all_clean(range(2084, 2085), DIRECT)


@pytest.mark.parametrize("seeds", [range(4, 6), pytest.param(range(6, 12), marks=pytest.mark.long)])
def test_queues_that_are_lost_and_made_anew_keep_the_order_of_their_senders(seeds):
    sent = Counter[str]()
    for seed in seeds:
        result = run(seed, backends=DIRECT, losses=True, program=HEIRS)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        sent.update(result.counts)
    assert sent["losses"] and sent["seen"]


def taken_out_under_load(seed: int) -> tuple[list[str], Findings]:
    """What the clients say of a run, and what `mom check` says of its logs."""
    made = cluster(seed, backends=DIRECT, losses=True, program=HEIRS)
    wrong = made.run(made.world.rng.choice((100, 400, 1000)) * MS)
    assert made.losses is not None and made.losses.taken_out
    stores = {name: node.disk.store for name, node in made.nodes.items() if not node.gone}
    return wrong + judge(made)[0], audit(made.losses.topology, stores)


@pytest.mark.interpreted
def test_what_is_sent_on_to_a_queue_that_was_made_anew_comes_too_late():
    wrong, found = taken_out_under_load(1)
    assert not wrong and found.clean and found.reactions
    with patch.object(Orphans, "_follow", fakes.sent_on(Orphans._follow)):
        wrong, found = taken_out_under_load(1)
    assert any("before" in line for line in wrong)
    assert found.violations and not (found.unsent or found.duplicates or found.lost)


@pytest.mark.long
def test_two_thousand_seeds_are_clean():
    all_clean(range(1500), DIRECT)
    all_clean(range(500), RELAYING)


class Control(NamedTuple):
    where: Any
    name: str
    make: Callable[..., Any]
    seeds: Iterable[int] = range(40)


CONTROLS = {
    "begun anew without a word of others": Control(Losses, "_settled", fakes.without_reports),
    "begun anew with what others have sent under way": Control(Losses, "_settled", fakes.only_what_is_acknowledged),
    "sent into the domain meanwhile": Control(Losses, "_guard", fakes.open_gate),
    "senders are not told": Control(DeadLetters, "undeliverable", fakes.nobody_is_told),
    "what waits for lost causes is dropped": Control(undelivered, "held", fakes.held_are_dropped, (14, 24, 23)),
    "no fence": Control(Losses, "judge", fakes.no_fence, (86, 91, 98)),
    "sent anew": Control(Losses, "_bury", fakes.sent_anew),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    where, method, make, seeds = CONTROLS[name]
    with patch.object(where, method, make(getattr(where, method))), patch.object(mischief, "MAX_CALLS", 20_000):
        assert any(run(seed, backends=DIRECT, losses=True).wrong for seed in seeds)
