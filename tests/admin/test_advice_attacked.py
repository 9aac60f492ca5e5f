"""Advice on traffic that nobody would call usual: most servers silent, one that sends to all, domains of one, names."""

from random import Random

import pytest

pytest.importorskip("networkx", reason="advice needs the extra spark")

from mombroker.admin.topology import advise, costs  # noqa: E402
from mombroker.core import layouts  # noqa: E402
from mombroker.lab.bus_workloads import Send  # noqa: E402
from mombroker.sim.world import EPOCH, MS  # noqa: E402
from tests.admin import shapes  # noqa: E402


def load_of(sends):
    return costs.Load(costs.traffic((send.origin, send.dests) for send in sends), sends)


def drawn(n, count, choose, seed=1):
    """Servers, and messages that `choose` draws: (from, to)."""
    rng, names = Random(seed), [f"s{at + 1}" for at in range(n)]
    return names, [Send(EPOCH + at * MS, *choose(rng, names), 50) for at in range(count)]


def any_to_any(rng, names):
    a, b = rng.sample(names, 2)
    return a, (b,)


def test_a_domain_of_one_server_that_a_bus_began_as_is_no_obstacle():
    """A bus that began as one server keeps that domain."""
    names, sends = drawn(9, 90, lambda rng, names: any_to_any(rng, names[:4] if rng.random() < 0.9 else names))
    topology = layouts.build({"first": names[:1], "all": names}, servers=names)
    assert not topology.faults()
    found = advise.advise(topology, load_of(sends), packet=20)
    assert found.changes and all(each.topology.faults() == [] for each in found.front)
    cut = advise.advise(topology, load_of(sends), ["fifo"])
    assert cut.verdict().startswith("all has more than 2 servers") and cut.changes


def test_who_sends_to_all_is_the_middle_of_a_star_if_packets_weigh_little():
    names, sends = drawn(20, 100, lambda rng, names: (names[7], tuple(sorted({*names} - {names[7]}))))
    found = advise.advise(layouts.build(layouts.flat(names)), load_of(sends))
    star = layouts.build({f"p{at}": [names[7], each] for at, each in enumerate(names) if at != 7}, servers=names)
    least = min(each.cost.control_bytes for each in found.front)
    assert least <= 1.01 * costs.predict(star, load_of(sends)).control_bytes


@pytest.mark.parametrize("layout", ["flat", "bus"])
@pytest.mark.parametrize("others", [0.0, 0.01])
def test_of_what_costs_the_same_the_fewest_changes_are_proposed(layout, others):
    """Two of twenty talk, or nearly so: they alone get a domain of their own."""
    names, sends = drawn(
        20, 400, lambda rng, names: any_to_any(rng, names) if rng.random() < others else (names[2], (names[9],))
    )
    topology = layouts.build(layouts.LAYOUTS[layout](names), servers=names)
    found = advise.advise(topology, load_of(sends))
    old = topology.domains.values()
    new = [each for each in found.options["proposed"].topology.domains.values() if each not in old]
    assert len(new) <= 4, found.changes
    assert layout == "bus" or not found.remarks


@pytest.mark.parametrize("seed", range(12))
def test_any_traffic_gets_the_same_advice_under_any_names(seed):
    """And each topology of the front is one, of the servers that there are, under the back ends allowed."""
    rng = Random(seed)
    count, several = rng.randint(2, 9), rng.random() < 0.5

    def choose(dice, names):
        a = names[min(int(dice.expovariate(0.4)), count - 1)]
        others = [name for name in names if name != a]
        return a, tuple(sorted(dice.sample(others, dice.randint(1, len(others)) if several else 1)))

    names, sends = drawn(count, rng.choice((1, 7, 60)), choose, seed)
    if rng.random() < 0.3:
        sends = [send._replace(at=EPOCH) for send in sends]
    layout = rng.choice(("flat", "bus", "chain", "tree"))
    topology = layouts.build(layouts.LAYOUTS[layout](names), servers=names)
    largest, backends = rng.choice((0, 0, 2, 3)), rng.choice((costs.DIRECT, ("matrix",), ("fifo", "ks")))
    first = advise.advise(topology, load_of(sends), backends, largest)
    for each in first.front:
        assert not each.topology.faults() and [*each.topology.servers] == names
    order, moved, new = shapes.renamed(names, sends, seed)
    domains = {f"x{name}": [new[each] for each in some] for name, some in layouts.LAYOUTS[layout](names).items()}
    other = advise.advise(
        layouts.build(dict(reversed(domains.items())), servers=order), load_of(moved), backends, largest
    )
    assert other.verdict().replace("xd", "d") == first.verdict()
    assert len(other.changes) == len(first.changes)
    assert [each.cost.price() for each in other.front] == [each.cost.price() for each in first.front]
