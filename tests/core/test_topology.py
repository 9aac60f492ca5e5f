"""Domains, the forest check, routes: protocols §8, paper 004 §4."""

import json
import random
from collections import deque
from itertools import combinations
from pathlib import Path

import pytest

from mombroker.core import forest
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.layouts import build
from mombroker.core.topology import AgentDecl, Domain, RoutingTable, Server, Topology, address

GOLDEN = json.loads((Path(__file__).parents[1] / "data/cycle_violation.json").read_text())
PAPER = {  # figure 2 of paper 004, with C as its own route needs it (protocols DO1)
    "A": ["S1", "S2", "S3"],
    "B": ["S4", "S5"],
    "C": ["S6", "S7", "S8"],
    "D": ["S3", "S6"],
    "E": ["S1", "S4"],
}


def small_cases():
    """The sets of 2 or 3 distinct domains over 3 or 4 servers, domains having two servers or more.

    3 servers have 4 such domains: C(4,2) + C(4,3) = 10 sets. 4 servers have 11: C(11,2) + C(11,3) = 220.
    Not every server need be in a domain, and the graph may be in pieces.
    """
    for n in (3, 4):
        subsets = [set_ for size in range(2, n + 1) for set_ in combinations([f"s{at}" for at in range(n)], size)]
        for count in (2, 3):
            for chosen in combinations(subsets, count):
                yield n, {f"d{at}": members for at, members in enumerate(chosen)}


def has_cycle(domains):
    """By taking leaves away, which shares nothing with the code under test: what stays is in or between cycles."""
    edges = {(("d", domain), ("s", server)) for domain, members in domains.items() for server in members}
    while True:
        ends = [end for edge in edges for end in edge]
        rest = {edge for edge in edges if ends.count(edge[0]) > 1 and ends.count(edge[1]) > 1}
        if rest == edges:
            return bool(edges)
        edges = rest


def random_forest(rng, pieces=1):
    domains, servers = {}, []
    for at in range(rng.randint(1, 8)):
        new = [f"s{len(servers) + each}" for each in range(rng.randint(1, 4))]
        members = ([rng.choice(servers)] if at >= pieces else [f"r{at}"]) + new
        rng.shuffle(members)
        domains[f"d{at}"] = members
        servers += [member for member in members if member not in servers]
    return domains


def random_graph(rng):
    servers = [f"s{at}" for at in range(rng.randint(3, 9))]
    return {f"d{at}": rng.sample(servers, rng.randint(2, min(5, len(servers)))) for at in range(rng.randint(2, 6))}


def without(domains, faults):
    """The domains after all remedies."""
    left = {domain: list(members) for domain, members in domains.items()}
    for fault in faults:
        for server in fault.surplus if isinstance(fault, forest.Overlap) else [fault.server]:
            left[fault.domain].remove(server)
    return left


def cycle_faults(topology):
    return [str(fault) for fault in topology.faults() if "is a cycle" in fault.text]


def test_exactly_46_of_the_230_small_configurations_are_forests():
    cases = list(small_cases())
    assert len(cases) == 230
    assert [sum(n == 3 for n, _ in cases), sum(n == 4 for n, _ in cases)] == [10, 220]
    forests = [domains for _, domains in cases if forest.is_forest(domains)]
    assert len(forests) == 46
    for _, domains in cases:
        assert forest.is_forest(domains) != has_cycle(domains)
        assert (cycle_faults(build(domains, checked=False)) == []) == forest.is_forest(domains)


def test_the_remedies_of_all_small_cyclic_configurations_make_forests():
    for _, domains in small_cases():
        faults = forest.faults(domains)
        assert bool(faults) == has_cycle(domains)
        assert not has_cycle(without(domains, faults))


def test_the_remedies_of_random_graphs_make_forests_and_split_nothing():
    rng = random.Random(1)
    for _ in range(200):
        domains = random_graph(rng)
        faults = forest.faults(domains)
        assert bool(faults) == has_cycle(domains)
        left = without(domains, faults)
        assert not has_cycle(left)
        assert len(forest.pieces(domains)) == len(forest.pieces(left))
        assert {s for members in left.values() for s in members} == {s for members in domains.values() for s in members}


@pytest.mark.parametrize("case", sorted(GOLDEN))
def test_the_golden_configurations_that_break_causality_are_refused(case):
    domains = {f"d{at}": [f"s{each}" for each in members] for at, members in enumerate(GOLDEN[case]["domains"])}
    with pytest.raises(TopologyError, match="is a cycle"):
        build(domains)


def test_a_ring_is_told_as_a_path_with_the_cheapest_server_to_take_out():
    # s5 brings the fewest servers the longer way: behind s1 and s3 hang others.
    domains = {
        "d1": ["s1", "s3", "s6", "s7", "s8"],
        "d2": ["s3", "s5", "s9"],
        "d3": ["s5", "s1", "s10"],
    }
    with pytest.raises(TopologyError) as refused:
        build(domains)
    (error,) = refused.value.errors
    assert error == (
        "domains.d3.servers: d1 – s3 – d2 – s5 – d3 – s1 – d1 is a cycle, in which causal order breaks: "
        "take s5 out of d3, which costs the fewest hops"
    )


def test_the_last_two_servers_of_a_domain_in_a_ring_part_by_deleting_it():
    with pytest.raises(TopologyError) as refused:
        build({"d1": ["a", "b"], "d2": ["b", "c"], "d3": ["c", "a"]})
    assert refused.value.errors == [
        "domains.d3.servers: d1 – b – d2 – c – d3 – a – d1 is a cycle, in which causal order breaks: "
        "take c out of d3, which costs the fewest hops, and delete d3, since one server is left in it"
    ]


def all_hops(domains):
    topology = build(domains, checked=False)
    tables = [RoutingTable(topology, server) for server in topology.servers]
    return sum(table.distance(final) for table in tables for final in topology.servers)


def test_the_cheapest_server_is_the_one_whose_leaving_adds_the_fewest_hops():
    """By brute force over each edge of the cycle, in random trees that one more membership has made cyclic."""
    rng, judged = random.Random(2), 0
    while judged < 60:
        domains = random_forest(rng)
        domain = rng.choice(list(domains))
        outside = {s for members in domains.values() for s in members} - set(domains[domain])
        if not outside:
            continue
        domains[domain].append(rng.choice(sorted(outside)))
        (fault,) = forest.faults(domains)
        if isinstance(fault, forest.Overlap):
            continue
        path, costs = fault.path, {}
        assert path[0::2] == [name for name in path if name in domains]
        for at in range(0, len(path), 2):
            for server in (path[at - 1], path[at + 1]):
                edge = {**domains, path[at]: [s for s in domains[path[at]] if s != server]}
                assert not has_cycle(edge)
                costs[server, path[at]] = all_hops(edge)
        assert costs[fault.server, fault.domain] == min(costs.values())
        judged += 1


def test_two_domains_that_share_servers_keep_one_of_them():
    with pytest.raises(TopologyError) as refused:
        build({"d1": ["a", "b", "c", "e"], "d2": ["b", "c", "d"], "d3": ["c", "f"]})
    assert refused.value.errors == [
        "domains.d2.servers: d2 and d1 share b and c, which is a cycle (d2 – b – d1 – c – d2): take b out of d2"
    ]


@pytest.mark.parametrize("inner", [["b", "c"], ["c", "a", "b"]])
def test_a_domain_inside_another_is_to_be_deleted(inner):
    """DO3: the paper's definition of a cycle misses it, and it is unsafe."""
    with pytest.raises(TopologyError) as refused:
        build({"d1": ["a", "b", "c"], "d2": inner})
    (error,) = refused.value.errors
    assert error.startswith("domains.d2.servers: all its servers are in d1 too, which is a cycle (d2 – ")
    assert error.endswith("delete d2")


def test_a_router_in_three_domains_is_no_cycle():
    """A graph with domains as nodes would show a false triangle."""
    assert build({"d1": ["r", "a"], "d2": ["r", "b"], "d3": ["r", "c"]}).routers == ["r"]


def test_domains_and_servers_may_have_the_same_names():
    assert build({"a": ["a", "b"], "b": ["b", "c"]}).routers == ["b"]


def server(name, host="127.0.0.1", port=1, **more):
    return Server(name, host, port, **more)


def refused(**parts):
    """The faults of a sound bus of a, b and c in which some parts are replaced."""
    sound = {
        "name": "bus",
        "servers": {name: server(name, port=at + 1) for at, name in enumerate("abc")},
        "domains": {"d1": Domain("d1", ("a", "b", "c"))},
        "registry": "a",
    }
    assert Topology(**sound).faults() == []
    return [str(fault) for fault in Topology(**{**sound, **parts}, checked=False).faults()]


def domains(*members):
    return {f"d{at}": Domain(f"d{at}", tuple(each)) for at, each in enumerate(members, 1)}


def servers(*made):
    return {each.name: each for each in made}


FAULTS = [
    ({"name": "my bus"}, ["bus.name: 'my bus' is no name of a bus"]),
    ({"registry": None}, ['bus.registry: missing: name the server that decides names, as registry = "a"']),
    ({"registry": "z"}, ["bus.registry: there is no server 'z': add it under [servers]"]),
    ({"allow": ("a-b",)}, ["bus.allow: 'a-b' is not the name of a module"]),
    ({"domains": domains("abx")}, ["d1.servers: there is no server 'x'", "servers.c: in no domain: add it"]),
    ({"domains": domains("abc", "")}, ["domains.d2.servers: the domain is empty: name its servers, or delete it"]),
    (
        {"domains": domains("bc", "a")},
        ["domains.d2.servers: the domain has only a: name a second server, or delete", "domains: the bus is in 2"],
    ),
    ({"domains": domains("abca")}, ["domains.d1.servers: a is named twice"]),
    ({"domains": {}}, [f"servers.{name}: in no domain" for name in "abc"]),
    ({"domains": {"d 1": Domain("d 1", ("a", "b", "c"))}}, ["domains.d 1: 'd 1' is no name of a domain"]),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", "localhost", 2))},
        ["servers.c.listen: port 2 on 127.0.0.1 is taken by listen of b: give each its own"],
    ),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", port=3, stomp="0.0.0.0:2"))},
        ["servers.c.stomp: port 2 on 127.0.0.1 is taken by listen of b"],
    ),
    (
        {"servers": servers(server("a", data="x"), server("b", port=2), server("c", port=3, data="x"))},
        ["servers.c.data: folder x on 127.0.0.1 is taken by data of a"],
    ),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", port=3, stomp="here"))},
        ["servers.c.stomp: 'here' is no address: write HOST:PORT"],
    ),
    (
        {"servers": servers(server("a", stomp="127.0.0.1:9"), server("b", port=2, anonymous=True), server(
            "c", port=3, stomp="127.0.0.1:9", stomp_tls="0.0.0.0:4", anonymous=True))},
        [
            "servers.c.anonymous: other hosts can reach 0.0.0.0:4: use 127.0.0.1, or users",
            "servers.c.certificate: missing: stomp_tls needs a PEM file",
            "servers.c.stomp: port 9 on 127.0.0.1 is taken by stomp of a",
        ],
    ),
    (
        {"servers": servers(server("a", http="127.0.0.1:9"), server(
            "b", port=2, http="0.0.0.0:8", anonymous=True), server(
            "c", port=3, http_tls="127.0.0.1:9", http_origins=("https://a", "http://b:1", "c.example", "https://d/")))},
        [
            "servers.b.anonymous: other hosts can reach 0.0.0.0:8: use 127.0.0.1, or users",
            "servers.c.certificate: missing: http_tls needs a PEM file",
            "servers.c.http_origins: 'c.example' is no origin: write https://HOST",
            "servers.c.http_origins: 'https://d/' is no origin: write https://HOST",
            "servers.c.http_tls: port 9 on 127.0.0.1 is taken by http of a",
        ],
    ),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", port=3, private_key="k"))},
        ["servers.c.private_key: a key needs a certificate"],
    ),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", "0.0.0.0", 3))},
        ["servers.c.listen: peers dial this address"],
    ),
    (
        {"servers": servers(server("a"), server("b", port=2), server("c", "a b", 3)), "secret_file": "x"},
        ["servers.c.listen: 'a b:3' is no address"],
    ),
    (
        {"servers": servers(server("a"), server("b", "10.0.0.2"), server("c", "nice.example"))},
        ["bus.secret_file: missing: other hosts can reach b and c, so name a file with a secret, or use 127.0.0.1"],
    ),
    (
        {"agents": [AgentDecl("x", "a", "m:C"), AgentDecl("x", "a", "m:C")]},
        ["agents[1].name: x is declared twice: names are global, choose another"],
    ),
    (
        {"agents": [AgentDecl("x y", "q", "m.C")]},
        ["agents[0].name: 'x y' is no name", "agents[0].server: there is no server 'q'", "agents[0].class: 'm.C'"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), FAULTS, ids=[expected[0].split(": ")[0] for _, expected in FAULTS])
def test_each_fault_is_told_with_its_key_and_a_remedy(parts, expected):
    told = refused(**parts)
    assert len(told) == len(expected)
    for error, part in zip(told, expected, strict=True):
        assert part in error


def test_a_near_name_is_suggested():
    made = servers(server("paris"), server("lyon", port=2))
    told = refused(servers=made, domains=domains(("paris", "lion")), registry="paris")
    assert told[0] == "domains.d1.servers: there is no server 'lion': did you mean lyon?"


def test_all_faults_are_told_at_once():
    made = servers(server("a"), server("b"), server("c", "0.0.0.0"), server("d", port=9))
    told = refused(name="", servers=made, domains=domains("abc", "bc"), registry="x")
    assert [error.split(": ")[0] for error in told] == [
        "bus.name", "bus.registry", "servers.b.listen", "servers.c.listen", "servers.d", "domains.d2.servers",
    ]  # fmt: skip


def test_a_bus_in_pieces_is_told_with_its_pieces():
    with pytest.raises(TopologyError) as refused:
        build({"d1": ["a", "b"], "d2": ["c", "d"], "d3": ["b", "e"]})
    assert refused.value.errors == [
        "domains: the bus is in 2 pieces (d1 and d3; d2): put one server of each into a common domain"
    ]


def test_a_bus_of_one_server_needs_no_domain_and_no_registry():
    bus = Topology("bus", servers(server("a")))
    assert (bus.registry, bus.domains_of("a"), bus.routers) == ("a", [], [])
    assert Topology("bus", servers(server("a")), domains("a")).domains["d1"].backend == "matrix"


def test_two_servers_have_fifo_unless_another_back_end_is_named():
    assert [Domain("d", tuple(members)).backend for members in ("ab", "abc")] == ["fifo", "matrix"]
    assert Domain("d", ("a", "b"), "rst").backend == "rst"


def test_the_order_digest_tells_whatever_stamps_depend_on():
    base = Domain("d", ("a", "b", "c"), "matrix", {"x": [1]})
    assert base.digest() == Domain("d", ("a", "b", "c"), "matrix", {"x": [1]}).digest()
    others = [
        Domain("e", ("a", "b", "c"), "matrix", {"x": [1]}),
        Domain("d", ("b", "a", "c"), "matrix", {"x": [1]}),
        Domain("d", ("a", "b", "c"), "ks", {"x": [1]}),
        Domain("d", ("a", "b", "c"), "matrix", {"x": [2]}),
    ]
    assert len({base.digest(), *(other.digest() for other in others)}) == 5


def test_the_graph_digest_tells_membership_and_nothing_else():
    graph = build(PAPER).graph()
    assert build({name: PAPER[name][::-1] for name in reversed(PAPER)}, port=9000, ordering="matrix").graph() == graph
    assert build({**PAPER, "B": ["S4", "S5", "S9"]}).graph() != graph
    assert build({**{name: PAPER[name] for name in "ABCE"}, "X": PAPER["D"]}).graph() != graph


def test_the_route_of_the_papers_figure_2():
    bus = build(PAPER)
    assert bus.routers == ["S1", "S3", "S4", "S6"]
    table = RoutingTable(bus, "S1")
    assert table.path("S8") == [("A", "S3"), ("D", "S6"), ("C", "S8")]
    assert (table.hop("S8"), table.distance("S8"), table.distance("S1")) == (("A", "S3"), 3, 0)
    assert table.hop("S2") == ("A", "S2")
    shared = bus.shared_domain("S3", "S6")
    assert shared is not None and shared.name == "D" and shared.index("S6") == 1
    assert bus.shared_domain("S1", "S6") is None


def test_there_is_no_route_to_a_server_that_is_none():
    with pytest.raises(MomError, match="no route from S1 to 'S77': it is not a server of this bus"):
        RoutingTable(build(PAPER), "S1").hop("S77")


def distances(domains, start):
    """Hops from one server to each, by a search of servers alone."""
    found, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for members in domains.values():
            if at in members:
                for member in members:
                    if member not in found:
                        found[member] = found[at] + 1
                        queue.append(member)
    return found


def test_routes_in_random_forests_are_minimal_fixed_and_never_linger_in_a_domain():
    rng = random.Random(3)
    for _ in range(40):
        domains = random_forest(rng)
        bus = build(domains)
        tables = {server: RoutingTable(bus, server) for server in bus.servers}
        for start, table in tables.items():
            for final, hops in distances(domains, start).items():
                if final == start:
                    continue
                path = table.path(final)
                assert len(path) == table.distance(final) == hops
                entered = [domain for domain, _ in path]
                assert len(set(entered)) == len(entered)
                assert table.hop(final) == path[0]
                # Every router on the way goes on along the same route.
                for at, (_, server) in enumerate(path[:-1]):
                    assert tables[server].path(final) == path[at + 1 :]


def multicast(tables, origin, finals):
    """Copies that each server receives, and where it is delivered, if each router serves whoever is not behind it."""
    copies, delivered = [], []

    def serve(me, domain):
        next_hops = {}
        for final in finals:
            if final == me:
                delivered.append(me)
                continue
            into, peer = tables[me].hop(final)
            if into != domain:
                next_hops[peer] = into
        for peer, into in next_hops.items():
            copies.append(peer)
            serve(peer, into)

    serve(origin, "")
    return copies, delivered


def test_a_multicast_reaches_each_final_server_once_along_the_tree():
    rng = random.Random(4)
    for _ in range(200):
        bus = build(random_forest(rng))
        tables = {server: RoutingTable(bus, server) for server in bus.servers}
        origin = rng.choice(list(bus.servers))
        finals = rng.sample(list(bus.servers), rng.randint(1, len(bus.servers)))
        copies, delivered = multicast(tables, origin, finals)
        assert sorted(delivered) == sorted(finals)
        assert len(set(copies)) == len(copies) and origin not in copies
        on_the_way = {server for final in finals if final != origin for _, server in tables[origin].path(final)}
        assert set(copies) == on_the_way


def test_a_forced_cyclic_configuration_has_fixed_routes_through_the_first_domain():
    """What the controls that must fail need: the golden `lowest` choice."""
    bus = build({"d0": ["s0", "s1", "s2"], "d1": ["s1", "s2", "s3"]}, checked=False)
    assert RoutingTable(bus, "s1").hop("s2") == ("d0", "s2")
    assert RoutingTable(bus, "s3").hop("s2") == ("d1", "s2")
    with pytest.raises(TopologyError):
        bus.validate()


@pytest.mark.parametrize(
    ("text", "host", "port"), [("h:1", "h", 1), ("[::1]:65535", "::1", 65535), ("10.0.0.1:80", "10.0.0.1", 80)]
)
def test_addresses(text, host, port):
    assert address(text) == (host, port)
    assert Server("s", host, port).listen == text


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:0", "h:65536", "h:x", "::1:5", "[h]:1", "a b:1", "h:٣", "h:-1"])
def test_texts_that_are_no_addresses(text):
    with pytest.raises(ValueError, match="write HOST:PORT"):
        address(text)
