"""Topologies by rule: paper 004 §6, figure 10."""

from math import isqrt

import pytest

from mombroker.core.errors import MomError
from mombroker.core.layouts import LAYOUTS, build, generate
from mombroker.core.topology import RoutingTable


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [*range(1, 40), 150, 1000])
def test_every_layout_of_n_servers_is_a_valid_bus(layout, n):
    """To make one is to validate it: a forest, in one piece, each address once."""
    bus = generate(layout, n, stomp=20000)
    assert list(bus.servers) == [f"s{at}" for at in range(1, n + 1)]
    assert all(len(domain.members) > 1 for domain in bus.domains.values())
    assert bool(bus.domains) == (n > 1)


@pytest.mark.parametrize("n", [4, 16, 17, 150])
def test_a_bus_has_about_root_n_domains_of_root_n_on_a_backbone_and_routes_of_three_hops(n):
    bus = generate("bus", n)
    backbone, *others = bus.domains.values()
    assert len(others) == isqrt(n)
    assert {len(domain.members) for domain in others} <= {n // isqrt(n), n // isqrt(n) + 1}
    assert list(backbone.members) == [domain.members[0] for domain in others] == bus.routers
    assert RoutingTable(bus, others[0].members[1]).distance(others[-1].members[1]) == 3


@pytest.mark.parametrize(("n", "size"), [(16, None), (17, 3), (5, 2), (8, 4)])
def test_a_chain_is_of_domains_that_share_one_server(n, size):
    domains = list(generate("chain", n, size=size).domains.values())
    assert all(len(domain.members) == (size or isqrt(n)) for domain in domains[:-1])
    for at, domain in enumerate(domains):
        shared = [at + each for each, other in enumerate(domains[at:]) if set(domain.members) & set(other.members)]
        assert shared == [at, at + 1][: len(domains) - at]
    assert all(a.members[-1] == b.members[0] for a, b in zip(domains, domains[1:], strict=False))


@pytest.mark.parametrize(("size", "children", "depth"), [(4, 3, 2), (3, 2, 4), (5, 2, 3), (4, 3, 0)])
def test_a_full_tree_has_as_many_servers_as_the_formula_says(size, children, depth):
    """protocols §8.5 and DO4: n = 1 + (s-1)(k^(d+1)-1)/(k-1), routes of at most 2d+1 hops."""
    count = (children ** (depth + 1) - 1) // (children - 1)
    n = 1 + (size - 1) * count
    bus = generate("tree", n, size=size, children=children)
    assert len(bus.domains) == count
    assert {len(domain.members) for domain in bus.domains.values()} == {size}
    table = RoutingTable(bus, f"s{n}")
    assert max(table.distance(server) for server in bus.servers) == 2 * depth + 1


def test_flat_is_one_domain():
    assert [len(domain.members) for domain in generate("flat", 9).domains.values()] == [9]


def test_the_wish_for_a_back_end_goes_to_all_domains():
    assert {domain.backend for domain in generate("bus", 9, ordering="ks").domains.values()} == {"ks"}
    assert {domain.backend for domain in generate("bus", 4).domains.values()} == {"fifo"}


def test_ports_count_up_and_the_first_server_decides_names():
    bus = build({"d": ["b", "a"]}, servers=["a"], port=5000, stomp=6000)
    assert [(each.listen, each.stomp, each.data) for each in bus.servers.values()] == [
        ("127.0.0.1:5000", "127.0.0.1:6000", "var/a"),
        ("127.0.0.1:5001", "127.0.0.1:6001", "var/b"),
    ]
    assert bus.registry == "a"


@pytest.mark.parametrize(
    ("args", "options", "reason"),
    [
        (("ring", 3), {}, "there is no layout 'ring': choose bus, chain, tree, flat"),
        (("bus", 0), {}, "a bus of 0 servers is none"),
        (("bus", 9), {"size": 3}, "the size of domains can be chosen for chain and tree"),
        (("chain", 9), {"size": 1}, "2 or more"),
        (("chain", 9), {"children": 2}, "for tree only"),
        (("tree", 9), {"size": 3, "children": 3}, "room for 1 to 2 child domains, not 3"),
        (("tree", 9), {"children": 0}, "room for 1 to 3 child domains, not 0"),
    ],
)
def test_impossible_wishes_are_refused(args, options, reason):
    with pytest.raises(MomError, match=reason):
        generate(*args, **options)


@pytest.mark.parametrize(
    ("n", "ports", "reason"),
    [
        (3, {"port": 65534}, "3 servers need as many ports from 65534 on, and there are 2"),
        (100_000, {}, "100000 servers need as many ports from 16300 on, and there are 49236"),
        (10**12, {}, "1000000000000 servers need"),
        (2, {"stomp": 65535}, "2 servers need as many ports from 65535 on, and there are 1"),
    ],
)
def test_more_servers_than_there_are_ports_are_refused_in_one_line(n, ports, reason):
    with pytest.raises(MomError, match=reason) as refused:
        generate("flat", n, **ports)
    assert "\n" not in str(refused.value)
