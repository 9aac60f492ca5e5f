"""The difference of two topologies: its kind, and the smallest part of the old one that has to stop."""

import random
from itertools import combinations

import pytest

from mombroker.core.changes import Attachment, Kind, Setting, compare
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.topology import AgentDecl, Domain, RoutingTable, Server, Topology

LINE = {"west": ["paris", "lyon", "nice"], "link": ["nice", "metz"], "east": ["metz", "nancy", "brest"]}
ORDERINGS = ("matrix", "ks", "daisy")


def bus(domains, registry=None, ordering="", **settings):
    """Servers whose addresses follow from their names, whatever else there is."""
    names = dict.fromkeys(server for members in domains.values() for server in members)
    servers = {
        name: Server(name, "127.0.0.1", 20_000 + int.from_bytes(name.encode(), "big") % 30_011) for name in names
    }
    orders = ordering if isinstance(ordering, dict) else dict.fromkeys(domains, ordering)
    made = {name: Domain(name, tuple(members), orders.get(name, "")) for name, members in domains.items()}
    return Topology("bus", servers, made, registry=registry or next(iter(names)), **settings)


def line(**changes):
    """LINE with some domains in another way; None takes one out."""
    return {name: members for name, members in {**LINE, **changes}.items() if members is not None}


def test_a_topology_does_not_differ_from_itself():
    assert compare(bus(LINE), bus(LINE)).kind is Kind.NOTHING


def test_the_order_of_servers_and_domains_in_the_file_says_nothing():
    turned = bus({name: LINE[name] for name in reversed(LINE)}, registry="paris")
    assert compare(bus(LINE), turned).kind is Kind.NOTHING


def test_the_order_of_members_is_their_number_in_the_clocks():
    change = compare(bus(LINE), bus(line(west=["lyon", "paris", "nice"]), registry="paris"))
    assert (change.kind, change.frozen, change.replacing) == (Kind.FREEZE, ("west",), ("west",))


def test_settings_pause_nobody():
    old = bus(LINE, allow=("shop",), agents=[AgentDecl("till", "paris", "shop:Till")])
    new = bus(
        LINE, allow=("shop", "bank"), policies=[{"match": "queue:*", "max_messages": 5}],
        agents=[AgentDecl("till", "paris", "shop:Till"), AgentDecl("safe", "lyon", "bank:Safe")],
    )  # fmt: skip
    new.servers["metz"].host = "127.0.0.9"
    change = compare(old, new)
    assert change.kind is Kind.SETTINGS and not change.inside
    safe = {"name": "safe", "server": "lyon", "cls": "bank:Safe", "fields": {}}
    assert change.settings == (
        Setting("server", "metz", old.servers["metz"].listen, new.servers["metz"].listen),
        Setting("allow", "", ["shop"], ["shop", "bank"]), Setting("agent", "safe", None, safe),
        Setting("policies", "", [], [{"match": "queue:*", "max_messages": 5}]),
    )  # fmt: skip


def test_what_is_said_of_one_server_alone_is_no_change_of_the_bus():
    new = bus(LINE, limits={"max_attempts": 3}, log={"enabled": False}, secret_file="bus.secret")
    new.servers["paris"].data, new.servers["paris"].stomp = "elsewhere", "127.0.0.1:61613"
    assert compare(bus(LINE), new).kind is Kind.NOTHING


def test_servers_behind_one_that_is_there_are_attached():
    change = compare(bus(LINE), bus({**LINE, "far": ["brest", "quimper"], "south": ["lyon", "arles", "nimes"]}))
    assert change.kind is Kind.ATTACH and not (change.frozen or change.inside or change.leavers)
    assert change.newcomers == ("quimper", "arles", "nimes")
    assert change.attached == (
        Attachment("lyon", ("arles", "nimes"), ("south",)), Attachment("brest", ("quimper",), ("far",)),
    )  # fmt: skip
    assert change.moved == ("lyon", "brest")


def test_domains_behind_new_domains_are_attached_with_them():
    change = compare(bus(LINE), bus({"end": ["quimper", "ouessant"], **LINE, "far": ["brest", "quimper"]}, "paris"))
    assert change.attached == (Attachment("brest", ("quimper", "ouessant"), ("end", "far")),)


def test_a_bus_of_one_server_is_added_to():
    alone = Topology("bus", {"paris": Server("paris", "127.0.0.1", 1)})
    assert compare(alone, bus({"d": ["paris", "lyon"]})).attached == (Attachment("paris", ("lyon",), ("d",)),)
    back = compare(bus({"d": ["paris", "lyon"]}), alone)
    assert (back.kind, back.frozen, back.replacing, back.inside) == (Kind.FREEZE, ("d",), (), ("paris", "lyon"))


def test_another_back_end_stops_its_domain_alone():
    change = compare(bus(LINE, ordering="matrix"), bus(LINE, ordering={"west": "ks", "link": "matrix"}))
    assert change.frozen == change.replacing == ("west",)
    assert change.inside == ("paris", "lyon", "nice") and not change.moved


def test_a_member_that_joins_or_leaves_stops_its_domain():
    joined = compare(bus(LINE), bus(line(east=["metz", "nancy", "brest", "quimper"])))
    assert (joined.frozen, joined.newcomers) == (("east",), ("quimper",))
    assert joined.inside == ("metz", "nancy", "brest", "quimper")
    left = compare(bus(LINE), bus(line(east=["metz", "nancy"])))
    assert (left.frozen, left.leavers, left.moved) == (("east",), ("brest",), ())


def test_a_move_over_a_domain_that_does_not_change_stops_that_too():
    """The model's case `split-S`: without `link` what is on its way would meet the new order of the other end."""
    change = compare(bus(LINE), bus(line(west=["paris", "nice"], east=["metz", "nancy", "brest", "lyon"])))
    assert change.frozen == change.replacing == ("west", "link", "east")
    assert change.moved == ("lyon",)


def test_what_is_attached_by_the_way_stops_what_lies_between():
    """The newcomer's domain is one of those that replace S, so its sponsor has to be in S."""
    new = {**line(west=["paris", "nice", "lyon"]), "far": ["brest", "quimper"]}
    assert compare(bus(LINE), bus(new)).frozen == ("west", "link", "east")


def test_an_end_that_leaves_stops_nobody_but_the_server_it_hung_at():
    change = compare(bus({**LINE, "far": ["brest", "quimper"]}), bus(LINE))
    assert (change.frozen, change.replacing) == (("far",), ())
    assert (change.inside, change.leavers) == (("brest", "quimper"), ("quimper",))


@pytest.mark.parametrize(
    ("new", "remedy"),
    [
        (Topology("other", {"paris": Server("paris", "127.0.0.1", 1)}), 'write name = "bus"'),
        (bus({"east": ["metz", "nancy"]}), "paris is the registry, which decides names, and cannot leave"),
        (bus(LINE, registry="lyon"), 'write registry = "paris"'),
        (bus(LINE, agents=[AgentDecl("till", "lyon", "shop:Till")]), 'write server = "paris" for it'),
    ],
)
def test_what_is_no_successor_is_refused_with_the_remedy(new, remedy):
    with pytest.raises(MomError, match=remedy):
        compare(bus(LINE, agents=[AgentDecl("till", "paris", "shop:Till")]), new)


def test_a_cycle_is_no_topology_at_all():
    with pytest.raises(TopologyError, match="is a cycle"):
        bus({**LINE, "round": ["paris", "brest"]})


# -- by chance -------------------------------------------------------------------------------------------------------


def grown(rng, servers, prefix):
    """A connected forest of domains over these servers."""
    servers = rng.sample(servers, len(servers))
    domains, used, at = {}, servers[:1], 1
    while at < len(servers):
        size = rng.randint(1, 3)
        domains[f"{prefix}{len(domains)}"] = [rng.choice(used), *servers[at : at + size]]
        used, at = servers[: at + size], at + size
    return domains


def pruned(rng, domains, keep):
    """Without one server that is in one domain only."""
    counts = [server for members in domains.values() for server in members]
    ends = [server for server in dict.fromkeys(counts) if counts.count(server) == 1 and server != keep]
    if not ends:
        return domains
    gone = rng.choice(ends)
    left = {name: [server for server in members if server != gone] for name, members in domains.items()}
    return {name: members for name, members in left.items() if len(members) > 1}


def regrown(rng, domains, number):
    """Some connected domains in another way, over the same servers."""
    some = {rng.choice(sorted(domains))}
    for _ in range(rng.randint(0, 2)):
        inside = {server for name in some for server in domains[name]}
        some |= set(rng.sample([name for name in domains if inside & set(domains[name])], 1))
    inside = sorted({server for name in some for server in domains[name]})
    return {name: members for name, members in domains.items() if name not in some} | grown(rng, inside, f"e{number}.")


def pair(seed):
    """Two topologies of one bus: the second one is by some steps further, or has nothing to do with the first."""
    rng = random.Random(seed)
    servers = [f"s{at}" for at in range(rng.randint(2, 11))]
    old = new = grown(rng, servers, "d")
    if rng.random() < 0.2:
        new = grown(rng, ["s0", *rng.sample([*servers[1:], "n0", "n1"], len(servers) - 1)], rng.choice("de"))
    else:
        for number in range(rng.randint(1, 4)):
            match rng.choice(("join", "leave", "regrow", "attach", "turn")):
                case "join":
                    name = rng.choice(sorted(new))
                    new = {**new, name: [*new[name], f"n{number}"]}
                case "leave":
                    new = pruned(rng, new, "s0") or new
                case "regrow":
                    new = regrown(rng, new, number)
                case "attach":
                    at = rng.choice(sorted({server for members in new.values() for server in members}))
                    new = {**new, f"a{number}": [at, f"n{number}", f"m{number}"]}
                case "turn":
                    name = rng.choice(sorted(new))
                    new = {**new, name: new[name][::-1]}
    orders = {name: rng.choice(ORDERINGS) for name in {**old, **new}}
    other = {**orders, rng.choice(sorted(orders)): "ks"} if rng.random() < 0.3 else orders
    return bus(old, "s0", orders), bus(new, "s0", other)


def members_of(topology, names):
    return {server for name in names for server in topology.domains[name].members}


def connected(topology, names):
    left = set(names)
    reached = {left.pop()} if left else set()
    while near := {name for name in left if members_of(topology, reached) & members_of(topology, [name])}:
        reached |= near
        left -= near
    return not left


def same(old, new, name):
    return name in old.domains and name in new.domains and old.domains[name] == new.domains[name]


def is_stop_set(old, new, names):
    """By definition: connected, has all that changes, and covers the same servers, newcomers and leavers aside."""
    kept = old.servers.keys() & new.servers.keys()
    replacing = {name for name in new.domains if name in names or not same(old, new, name)}
    before, after = members_of(old, names) & kept, members_of(new, replacing) & kept
    covers = before == after or (not replacing and len(before) == 1)
    return connected(old, names) and covers and all(name in names or same(old, new, name) for name in old.domains)


@pytest.mark.parametrize("first", range(0, 3000, 500))
def test_of_random_pairs_s_is_the_smallest_that_fits(first):
    kinds = set()
    for seed in range(first, first + 500):
        old, new = pair(seed)
        change = compare(old, new)
        kinds.add(change.kind)
        if change.kind is not Kind.FREEZE:
            assert change.frozen == change.replacing == change.inside == () and not change.leavers
            assert all(same(old, new, name) for name in old.domains)
            continue
        assert is_stop_set(old, new, change.frozen), seed
        assert set(change.inside) == members_of(old, change.frozen) | members_of(new, change.replacing)
        assert {*change.newcomers, *change.leavers, *change.moved} <= set(change.inside), seed
        smaller = (names for size in range(len(change.frozen)) for names in combinations(old.domains, size))
        if len(old.domains) <= 9:
            assert not any(is_stop_set(old, new, set(names)) for names in smaller), seed
    assert kinds >= {Kind.ATTACH, Kind.FREEZE}


@pytest.mark.parametrize("first", range(0, 3000, 1000))
def test_of_random_pairs_whoever_is_outside_goes_on_by_the_same_routes(first):
    for seed in range(first, first + 1000):
        old, new = pair(seed)
        change = compare(old, new)
        apart = {name for each in change.attached for name in each.servers} | set(change.inside)
        for server in old.servers.keys() - apart:
            before, after = RoutingTable(old, server), RoutingTable(new, server)
            assert old.domains_of(server) == [new.domains[domain.name] for domain in old.domains_of(server)] or (
                server in {each.sponsor for each in change.attached}
            ), seed
            for other in (old.servers.keys() & new.servers.keys()) - {server}:
                assert before.hop(other) == after.hop(other), seed


@pytest.mark.parametrize("first", range(0, 3000, 1000))
def test_of_random_pairs_attached_servers_are_all_newcomers_each_once(first):
    seen = 0
    for seed in range(first, first + 1000):
        old, new = pair(seed)
        change = compare(old, new)
        if change.kind is Kind.ATTACH:
            seen += 1
            servers = [server for each in change.attached for server in each.servers]
            domains = [name for each in change.attached for name in each.domains]
            assert sorted(servers) == sorted(change.newcomers) == sorted(new.servers.keys() - old.servers.keys())
            assert sorted(domains) == sorted(new.domains.keys() - old.domains.keys())
            assert all(each.sponsor in old.servers for each in change.attached)
    assert seen > 20
