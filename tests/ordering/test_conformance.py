"""One body over every back end that is registered: what none may fail."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from mombroker.core import causality
from mombroker.ordering import backend, create, names, restore
from mombroker.ordering.base import Packet
from mombroker.ordering.registry import BUILT_IN
from mombroker.ordering.testing import SIZES, Eager, Options, conform, run
from tests.ordering.judge import brute

ONLY_TWO = {"fifo"}
VARIANTS: Mapping[str, list[tuple[str, Options]]] = {
    "matrix": [("pruned", lambda size: {"own_column": False})],
}
CASES = [(name, "", lambda size: {}) for name in names()]
CASES += [(name, variant, options) for name, variants in VARIANTS.items() for variant, options in variants]
every_case = pytest.mark.parametrize(("name", "variant", "options"), CASES, ids=[f"{c[0]}{c[1]}" for c in CASES])


def kind(name: str, options: Options) -> dict[str, Any]:
    return {"sizes": (2,) if name in ONLY_TWO else SIZES, "options": options}


@every_case
def test_a_back_end_is_safe_and_live(name, variant, options):
    conform(backend(name), range(50), random.Random, **kind(name, options))


def test_these_claim_that_nothing_waits_needlessly():
    """The kit asks it of them; under the others packets wait for a place in the one order, or for acknowledgements."""
    assert {name for name in names() if backend(name).prompt} == {"fifo", "ks", "matrix", "overlay", "rst", "vector"}


@pytest.mark.long
@every_case
def test_a_back_end_is_safe_and_live_on_many_schedules(name, variant, options):
    conform(backend(name), range(50, 2_000), random.Random, **kind(name, options))


@every_case
def test_the_same_seed_gives_the_same_trace(name, variant, options):
    first, second = (run(backend(name), 7, random.Random, **kind(name, options)) for _ in range(2))
    assert first == second


@every_case
def test_the_judge_and_brute_force_agree(name, variant, options):
    for seed in range(10):
        events = run(backend(name), seed, random.Random, **kind(name, options))
        assert brute(events) == (set(), 0, 0, set())


@every_case
def test_a_new_core_and_one_restored_from_nothing_are_alike(name, variant, options):
    size = 2 if name in ONLY_TWO else 5
    for core in create(name, 0, size, **options(size)), restore(name, 0, size, {}, **options(size)):
        assert core.held() == []
        core.check()
    one, other = create(name, 0, size, **options(size)), restore(name, 0, size, {}, **options(size))
    assert [one.encode(p) for p in one.send((1,), b"x")] == [other.encode(p) for p in other.send((1,), b"x")]
    assert one.dirty() == other.dirty()


def test_the_kit_judges_by_the_outsider():
    """The verdict on a trace with a fault is what brute force says, on traces of a core without any order."""
    judged = []

    def judge(events: list[causality.Event]) -> causality.Verdict:
        verdict = causality.check(events)
        judged.append((verdict, brute(events)))
        return causality.Verdict()

    conform(Eager, range(40), random.Random, judge=judge)
    for verdict, (violations, duplicates, unsent, lost) in judged:
        assert {(process, late) for process, late, _ in verdict.violations} == violations
        assert (len(verdict.duplicates), len(verdict.unsent), set(verdict.lost)) == (duplicates, unsent, lost)
    assert sum(bool(verdict.violations) for verdict, _ in judged) > 10


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - ONLY_TWO - {"abcast"}))  # in which 2 waits for 0 to speak
def test_a_packet_may_be_handed_over_without_bytes_between(name):
    """What `send` returns goes to `receive` as it is: only `frm` says where it came from."""
    options = {"groups": [[0, 1, 2, 3]]} if name == "daisy" else {}
    cores = [backend(name)(me, 4, **options) for me in range(4)]
    got: dict[int, list[bytes]] = {me: [] for me in range(4)}

    def arrive(frm: int, packets: list[Packet], *ends: int) -> None:
        for packet in packets:
            if packet.to in ends:
                step = cores[packet.to].receive(frm, packet)
                got[packet.to] += [done.body for done in step.deliver]
                arrive(packet.to, step.send, *ends)

    first = cores[0].send([1, 2], b"cause")
    all_ = (0, 2, 3) if name == "overlay" else ()  # links alone make the order, by way of others: none may be slow
    arrive(0, first, 1, *all_)
    second = cores[1].send([2], b"effect")
    arrive(1, second, 2, *all_)
    for core in cores:
        for packet, causes in core.held():
            assert core.missing(packet) == causes and packet.frm == 1
        core.check()
    arrive(0, first, 2)
    assert got[1] == [b"cause"] and got[2] == [b"cause", b"effect"] and not any(core.held() for core in cores)
