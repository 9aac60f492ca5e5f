"""Causality across domains: which sets of domains keep it, which do not, and which router steps break it."""

import json
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from pathlib import Path
from random import Random

import pytest

from mombroker.core.causality import check
from mombroker.core.errors import TopologyError
from mombroker.core.forest import is_forest
from mombroker.core.topology import Domain, RoutingTable, Server, Topology
from tests.sim.domains import Bus, Domains, Hop, Routes, random_run

GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "cycle_violation.json").read_text())
FORCED = json.loads((Path(__file__).parent / "forced_seeds.json").read_text())


def configurations() -> list[Domains]:
    """All sets of two or three distinct domains over three or four servers."""
    found: list[Domains] = []
    for servers in (3, 4):
        subsets = [c for size in range(2, servers + 1) for c in combinations(range(servers), size)]
        found += [list(chosen) for count in (2, 3) for chosen in combinations(subsets, count)]
    return found


def forest(domains: Domains) -> bool:
    return is_forest({str(at): [str(server) for server in domain] for at, domain in enumerate(domains)})


ALL = configurations()
FORESTS = [domains for domains in ALL if forest(domains)]
CYCLIC = [domains for domains in ALL if not forest(domains)]


def test_of_the_230_sets_exactly_46_are_accepted():
    assert (len(ALL), len(FORESTS), len(CYCLIC)) == (230, 46, 184)


# -- golden traces -------------------------------------------------------------------------------------------------


def topology(domains: Domains, checked: bool = True) -> Topology:
    servers = sorted({server for domain in domains for server in domain})
    return Topology(
        "golden",
        {f"s{n}": Server(f"s{n}", "127.0.0.1", 1000 + n, None, f"s{n}") for n in servers},
        {f"d{at}": Domain(f"d{at}", tuple(f"s{n}" for n in domain)) for at, domain in enumerate(domains)},
        registry="s0",
        checked=checked,
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_the_loader_refuses_a_golden_cycle(name):
    with pytest.raises(TopologyError, match="is a cycle"):
        topology(GOLDEN[name]["domains"])


@pytest.mark.parametrize("name", GOLDEN)
def test_the_checker_flags_a_golden_trace(name):
    golden = GOLDEN[name]
    events = []
    for step in golden["trace"]:
        if step["ev"] == "send":
            events.append(("send", step["from"], step["msg"], [step["to"]]))
        elif step["ev"] == "deliver":
            events.append(("deliver", step["at"], step["msg"]))
    expected = golden["violation"]
    assert check(events).violations == [(expected["at"], expected["delivered_late"], expected["delivered_before_it"])]


@pytest.mark.parametrize("name", GOLDEN)
def test_real_cores_that_are_forced_into_a_cycle_take_the_golden_steps(name):
    golden = GOLDEN[name]
    unchecked = topology(golden["domains"], checked=False)
    tables = {server: RoutingTable(unchecked, server) for server in unchecked.servers}

    def hop(frm: int, final: int) -> tuple[int, int]:
        domain, server = tables[f"s{frm}"].hop(f"s{final}")
        return int(domain[1:]), int(server[1:])

    bus = Bus(golden["domains"], hop)
    for kind, *what in golden["actions"]:
        if kind == "s":
            bus.send(what[0], [what[1]])
        else:
            bus.arrive(tuple(what[0]))
    assert bus.trace == golden["trace"]
    expected = golden["violation"]
    assert check(bus.events).violations == [
        (expected["at"], expected["delivered_late"], expected["delivered_before_it"])
    ]


# -- forests -------------------------------------------------------------------------------------------------------


def judge(bus: Bus) -> list[str]:
    verdict = check(bus.events)
    wrong = [kind for kind in ("violations", "duplicates", "unsent", "lost") if getattr(verdict, kind)]
    return wrong + ["held"] * bool(bus.held())


def forest_runs(seeds: range) -> None:
    for domains in FORESTS:
        routes = Routes(domains)
        for seed in seeds:
            bus = random_run(Bus(domains, routes), routes, Random(seed), sends=14)
            assert judge(bus) == [], (domains, seed)


def test_no_random_schedule_breaks_causality_in_a_forest():
    forest_runs(range(3))


@pytest.mark.long
def test_no_random_schedule_breaks_causality_in_a_forest_at_length():
    forest_runs(range(3, 600))


Plan = list[tuple[int, list[int], int | None]]  # sends: (from, to, message that must have been delivered there before)


def plans(routes: Routes) -> Iterator[Plan]:
    """The shapes of chains that could overtake: one message from a to q, and others from a to q by way of others."""
    for a, b, q in permutations(routes.servers, 3):
        if routes.reaches(a, b) and routes.reaches(b, q) and routes.reaches(a, q):
            yield [(a, [q], None), (a, [b], None), (b, [q], 1)]
            yield [(a, [q, b], None), (b, [q], 0)]
            yield [(a, [q], None), (a, [q], None), (a, [b, q], None)]
            for c in routes.servers:
                if c not in (a, b, q) and routes.reaches(b, c) and routes.reaches(c, q):
                    yield [(a, [q], None), (a, [b], None), (b, [c], 1), (c, [q], 2)]


def schedules(domains: Domains, routes: Routes, plan: Plan) -> Iterator[Bus]:
    """Every order in which the sends of a plan and the arrivals of their packets can happen. Of the orders that are
    the same for each server, one is enough: no server can tell them apart."""
    stack: list[list[object]] = [[]]
    seen = set()
    while stack:
        path = stack.pop()
        bus, sent = Bus(domains, routes), 0
        histories: dict[int, list[object]] = {}
        for action in path:
            at = plan[sent][0] if action == "send" else action[2]  # type: ignore[index]
            histories.setdefault(at, []).append(action)
            if action == "send":
                bus.send(plan[sent][0], plan[sent][1])
                sent += 1
            else:
                bus.arrive(action)  # type: ignore[arg-type]
        state = tuple(sorted((server, tuple(history)) for server, history in histories.items()))
        if state in seen:
            continue
        seen.add(state)
        choices: list[object] = list(bus.links)
        if sent < len(plan) and (plan[sent][2] is None or ("deliver", plan[sent][0], plan[sent][2]) in bus.events):
            choices.append("send")
        if not choices:
            yield bus
        stack += [[*path, choice] for choice in choices]


def exhaust(forests: list[Domains]) -> int:
    count = 0
    for domains in forests:
        routes = Routes(domains)
        for plan in plans(routes):
            for bus in schedules(domains, routes, plan):
                assert judge(bus) == [], (domains, plan, bus.trace)
                count += 1
    return count


def shape(domains: Domains) -> tuple[tuple[int, ...], ...]:
    """The same for sets of domains that differ only in the servers' numbers."""
    servers = sorted({server for domain in domains for server in domain})
    return min(
        tuple(sorted(tuple(sorted(order[servers.index(s)] for s in domain)) for domain in domains))
        for order in permutations(range(len(servers)))
    )


def test_no_schedule_at_all_breaks_a_short_chain_in_a_forest():
    """Every order of events, in one forest of each shape."""
    shapes = {shape(domains): domains for domains in FORESTS}
    assert len(shapes) == 5
    assert exhaust(list(shapes.values())) > 300


@pytest.mark.long
def test_no_schedule_at_all_breaks_a_short_chain_in_any_forest():
    exhaust(FORESTS)


# -- cycles, forced ------------------------------------------------------------------------------------------------


def forced(domains: Domains, seed: int, sends: int = 14) -> Bus:
    """A domain for each pair, chosen at random and kept: what an administrator without the forest check could do."""
    rng = Random(seed)
    routes = Routes(domains, rng.choice)
    return random_run(Bus(domains, routes), routes, rng, sends)


def test_each_cyclic_set_breaks_causality_when_it_is_forced():
    assert len(FORCED) == len(CYCLIC)
    clean = [
        (domains, seed)
        for domains, seed in zip(CYCLIC, FORCED, strict=True)
        if not check(forced(domains, seed).events).violations
    ]
    assert clean == []


RING3: Domains = [(0, 1), (1, 2), (0, 2)]
RING4: Domains = [(0, 1), (1, 2), (2, 3), (0, 3)]
SHARE2: Domains = [(0, 1, 2), (1, 2, 3)]
INSIDE: Domains = [(0, 1, 2), (0, 1)]
TWICE: Domains = [(0, 1, 2), (0, 1, 2)]
TREE: Domains = [(0, 1, 2), (2, 3, 4), (4, 5), (2, 6)]


@pytest.mark.parametrize("domains, seed", [(RING3, 6), (RING4, 1), (SHARE2, 5), (INSIDE, 7)])
def test_control_forced_cycles(domains, seed):
    assert check(forced(domains, seed).events).violations


def per_message(domains: Domains, rng: Random) -> Hop:
    routes = Routes(domains)

    def hop(frm: int, final: int) -> tuple[int, int]:
        server = routes.next[frm, final]
        return rng.choice(routes.shared[frm, server]), server

    return hop


def control(seed: int, domains: Domains, make: Callable[[Domains, Routes, Random], Bus], multicast: float) -> Bus:
    rng = Random(seed)
    routes = Routes(domains)
    return random_run(make(domains, routes, rng), routes, rng, 14, multicast)


@pytest.mark.parametrize("domains, seed", [(TWICE, 2), (INSIDE, 2), (SHARE2, 6)])
def test_control_domain_chosen_per_message(domains, seed):
    bus = control(seed, domains, lambda domains, _, rng: Bus(domains, per_message(domains, rng)), multicast=0)
    assert check(bus.events).violations


@pytest.mark.parametrize("later, seed", [("fifo", 2), ("any", 1)])
def test_control_forwarding_later_than_the_delivery(later, seed):
    assert check(control(seed, TREE, lambda d, routes, _: Bus(d, routes, later=later), 0.3).events).violations


@pytest.mark.parametrize("seed", [8])
def test_control_a_multicast_forwarded_as_unicasts(seed):
    assert check(control(seed, TREE, lambda d, routes, _: Bus(d, routes, unicasts=True), 0.6).events).violations


def test_the_tree_of_the_controls_is_safe_without_them():
    for seed in range(40):
        assert judge(control(seed, TREE, lambda d, routes, _: Bus(d, routes), 0.3)) == [], seed


class Lingering(Bus):
    """A router that passes on what came in the same domain."""

    def beyond(self, domain: int, server: int, finals: list[int]) -> list[int]:
        return [final for final in finals if final != server]


def test_control_a_lingering_route():
    """0 -> 1 -> 2 although 0 and 2 share the domain: what came later overtakes by way of 3."""
    route = {(0, 2): 1}
    bus = Lingering([(0, 1, 2, 3)], lambda frm, final: (0, route.get((frm, final), final)))
    bus.send(0, [2])
    bus.send(0, [3])
    bus.arrive((0, 0, 3))
    bus.send(3, [2])
    bus.arrive((0, 3, 2))
    bus.arrive((0, 0, 1))
    bus.arrive((0, 1, 2))
    assert check(bus.events).violations == [(2, 0, 2)]
