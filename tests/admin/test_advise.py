"""Advice on domains: it finds hidden communities, leaves uniform traffic alone, and its model tells the truth."""

from random import Random
from statistics import fmean

import pytest

from mombroker.admin.cli.advise import proposal
from mombroker.core import layouts
from mombroker.core.changes import Kind, compare
from mombroker.core.errors import MomError
from mombroker.core.topology import RoutingTable
from mombroker.lab.bus import onward
from mombroker.lab.bus_workloads import Send
from mombroker.lab.communities import communities, uniform
from mombroker.lab.replay import Delays, replay
from mombroker.net import config
from mombroker.sim.world import EPOCH, MS

pytest.importorskip("networkx", reason="advice needs the extra spark")

from mombroker.admin.topology import advise, canonical, costs, drift, split, words  # noqa: E402
from tests.admin import shapes  # noqa: E402


def load_of(sends):
    return costs.Load(costs.traffic((send.origin, send.dests) for send in sends), sends)


def advised(traffic, each=60, **options):
    sends = traffic.sends(each * len(traffic.servers))
    load = load_of(sends)
    found = advise.advise(traffic.flat(), load, **options)
    advise.replay_all(found, load)
    return found, sends


def price(tally, packet):
    return tally.control_bytes + packet * tally.packets


def judge(seed, n=0):
    """The bars: against the hidden split, one domain for all, √n of √n, and the model against the replay."""
    traffic = communities(seed, n)
    found, sends = advised(traffic)
    hidden = replay(traffic.split(), sends).total
    counted = {name: price(option.replayed.total, found.packet) for name, option in found.options.items()}
    assert counted["proposed"] <= 1.05 * price(hidden, found.packet), (seed, counted, hidden)
    assert counted["proposed"] < min(counted["flat"], counted["bus"]), (seed, counted)
    least = min(option.replayed.total.control_bytes for option in found.front)
    assert least <= 1.05 * hidden.control_bytes, seed
    assert all(abs(option.error()) <= 0.15 for option in found.options.values()), seed
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_price_of_a_split_is_that_of_its_routes(seed):
    rng = Random(seed)
    names = [f"s{at}" for at in range(rng.randint(5, 14))]
    domains, placed, left = [], [0], list(range(1, len(names)))
    rng.shuffle(left)
    while left:
        count = rng.randint(1, 4)
        domains.append(frozenset([rng.choice(placed), *left[:count]]))
        placed, left = placed + left[:count], left[count:]
    copies = {(a, b): rng.randint(0, 9) for a in names for b in names if a != b}
    search = split.Search(names, copies, lambda size: 1.7 * size + 3, split.Bounds(0, 0.2))
    bus = layouts.build({f"d{at}": [names[s] for s in domain] for at, domain in enumerate(domains)}, servers=names)
    price, passed, total = 0.0, dict.fromkeys(names, 0), sum(copies.values())
    for (a, b), count in copies.items():
        path = RoutingTable(bus, a).path(b)
        price += sum(count * (1.7 * len(bus.domains[domain].members) + 3) for domain, _ in path)
        for _, router in path[:-1]:
            passed[router] += count
    over = sum(max(count / total - 0.2, 0) * 10 * total * 6.4 for count in passed.values())
    assert search.price(tuple(domains)) == pytest.approx((price + over) / total)
    assert search.price(tuple(domains), bounded=False) == pytest.approx(price / total)
    flows = {
        (a, tuple(sorted(rng.sample([each for each in names if each != a], rng.randint(1, 4))))): 2.0 for a in names
    }
    search = split.Search(names, costs.matrix(flows), lambda size: 1.7 * size + 3, split.Bounds(0, 1.0), (), flows)
    price = sum(2 * (1.7 * len(bus.domains[each].members) + 3) for flow in flows for each in packets(bus, *flow))
    assert search.price(tuple(domains)) == pytest.approx(price / sum(costs.matrix(flows).values()))


def packets(bus, me, dests, came=""):
    """The domains of all packets that a message makes: one for each server that some of its ways lead to."""
    for into, peers in onward(RoutingTable(bus, me), me, dests, came).items():
        for peer, beyond in peers.items():
            yield into
            if beyond != [peer]:
                yield from packets(bus, peer, tuple(beyond), into)


def test_hidden_communities_are_found():
    found = judge(1007)
    assert found.worthwhile and found.gain > 0.15 and found.fit > 0.4
    for row in found.as_dict()["options"]:
        assert row["replayed_rows"] > 4 and row["rows"] == pytest.approx(row["replayed_rows"], rel=0.1)
        assert row["replayed_ms"] > 9 and row["delay_ms"] == pytest.approx(row["replayed_ms"], rel=0.1)
    assert found.options["proposed"].topology.routers  # and it is valid: a Topology refuses cycles
    assert "domain d1 goes" in found.changes and any("become" in line for line in found.changes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_twenty_workloads_meet_the_bars(seed):
    judge(seed)


@pytest.mark.long
def test_no_split_is_proposed_for_uniform_traffic():
    """Other back ends are: they cost no packet. What a split would give, and take, is told; and once they are there,
    it is all that is told."""
    found, _ = advised(uniform(24, 1), each=30)
    assert found.changes == ["domain d1 is ordered by ks in place of matrix"] and found.fit < advise.FIT
    assert found.gain > 0.2 and len(found.front) > 2
    then = advise.advise(found.options["proposed"].topology, load_of(uniform(24, 1).sends(720)))
    assert not then.worthwhile and not then.changes and then.trades
    assert then.options["proposed"] is then.options["current"] and then.as_dict()["worthwhile"] is False
    assert then.verdict().startswith("what there is may stay: with a packet at 200 bytes nothing is 5% cheaper.")
    assert "% control bytes and -" in then.verdict() and "nothing is to be gained" not in then.verdict()


def test_nothing_is_to_be_gained_where_nothing_found_is_better_in_anything():
    traffic = uniform(2, 1)
    found = advise.advise(traffic.flat(), load_of(traffic.sends(60)))
    assert not found.changes and not found.trades
    assert found.verdict() == (
        "nothing is to be gained: nothing that was found is 5% better than what there is, in control bytes, packets, "
        "rows on disk and ms of delay"
    )


@pytest.mark.long
@pytest.mark.parametrize("n", [36, 64, 100])
def test_nor_is_it_on_a_larger_bus(n):
    found, _ = advised(uniform(n, n))
    assert len(found.changes) == 1 and "in place of matrix" in found.changes[0]


def broadcasts(n, each=10):
    """Each message goes to all."""
    servers = uniform(n, 1).servers
    return [
        send._replace(dests=tuple(name for name in servers if name != send.origin))
        for send in uniform(n, 1).sends(each * n)
    ]


@pytest.mark.parametrize("options", [{}, {"largest": 5}, {"backends": ("matrix",)}])
def test_what_costs_least_is_proposed_for_broadcasts_though_no_split_follows_them(options):
    load = load_of(broadcasts(8))
    found = advise.advise(uniform(8, 1).flat(), load, packet=20, **options)
    proposed = found.options["proposed"]
    assert found.fit < advise.FIT and proposed.topology.routers and found.changes
    for name in ("current", "flat", "bus"):
        assert proposed.cost.price(20) <= found.options[name].cost.price(20), name
    domains = proposed.topology.domains.values()
    assert max(len(domain.members) for domain in domains) <= options.get("largest", 8)
    assert {domain.backend for domain in domains} <= {*options.get("backends", costs.DIRECT)}
    if "largest" not in options:
        assert found.worthwhile and found.gain >= advise.GAIN
        assert any("which servers are together matters little" in line for line in found.remarks)
    assert not advise.advise(
        proposed.topology, load, packet=20, **options
    ).changes  # once that is done, nothing is left to gain


def test_a_limit_does_not_hide_what_is_gained_for_broadcasts():
    """One domain for all is too large to stay, and it would be too dear if it were not."""
    load = load_of(broadcasts(9))
    free = advise.advise(uniform(9, 1).flat(), load, packet=20)
    found = advise.advise(uniform(9, 1).flat(), load, largest=8, packet=20)
    assert free.worthwhile and found.worthwhile and "nothing is to be gained" not in found.verdict()
    assert found.gain == pytest.approx(free.gain, abs=0.1) and found.gain >= advise.GAIN
    assert max(len(domain.members) for domain in found.options["proposed"].topology.domains.values()) <= 8


def test_a_domain_that_no_back_end_allowed_can_order_is_held_against_what_it_costs_now():
    found = advise.advise(uniform(6, 1).flat(), load_of(broadcasts(6)), ["fifo"])
    price = {name: option.cost.price() for name, option in found.options.items()}
    assert found.changes and found.gain == pytest.approx(1 - price["proposed"] / price["current"])


def test_what_would_have_fewer_control_bytes_than_the_proposal_is_told():
    """The bus has fewer for this one message, but under matrix, and only ks is allowed."""
    send = uniform(9, 1).sends(1)[0]._replace(origin="s5", dests=("s3", "s4", "s6", "s7"))
    found = advise.advise(uniform(9, 1).flat(), load_of([send]), ["ks"], packet=0)
    cost = {name: option.cost.control_bytes for name, option in found.options.items()}
    assert found.worthwhile and cost["bus"] < cost["proposed"] < cost["current"]
    told = [line for line in found.remarks if "would have fewer control bytes than what is proposed" in line]
    assert told == [
        "√n domains of √n servers on a backbone would have fewer control bytes than what is proposed, "
        f"{cost['bus']} a message, under matrix, not among the back ends allowed"
    ]


def test_a_star_of_pairs_has_few_control_bytes_and_is_not_kept_for_them():
    """It has twice the packets, rows and hops."""
    traffic = communities(1007, 10)
    load, hub = load_of(traffic.sends(300)), traffic.servers[0]
    star = layouts.build({f"p{at}": [hub, each] for at, each in enumerate(traffic.servers[1:])})
    found = advise.advise(star, load)
    old, new = found.options["current"].cost, found.options["proposed"].cost
    assert found.worthwhile and new.packets < 0.8 * old.packets and new.price() < 0.8 * old.price()
    assert min(each.cost.control_bytes for each in found.front) <= old.control_bytes  # it is there to be chosen


def test_a_topology_that_fits_is_left_alone():
    traffic = communities(1007, 8)
    found = advise.advise(traffic.split(), load_of(traffic.sends(300)))
    assert not found.worthwhile and not found.remarks


def test_domains_are_no_larger_than_allowed_and_have_the_back_ends_allowed():
    traffic = communities(1007, 10)
    found, _ = advised(traffic, each=30, largest=6, backends=("matrix",))
    domains = found.options["proposed"].topology.domains.values()
    assert max(len(domain.members) for domain in domains) <= 6
    assert {domain.backend for domain in domains} == {"matrix"}


@pytest.mark.parametrize("seed, n, largest", [(1007, 26, 2), (1007, 26, 3), (2001, 24, 5), (1001, 33, 5)])
def test_no_start_of_the_search_is_larger_than_allowed(seed, n, largest):
    traffic = communities(seed, n)
    copies = costs.matrix(load_of(traffic.sends(30 * n)).flows)
    search = split.Search(traffic.servers, copies, float, split.Bounds(largest), [[traffic.servers]])
    starts = [search.named(each) for each in search.starts()]
    assert len(starts) > 4
    for domains in starts:
        assert max(map(len, domains)) <= largest and min(map(len, domains)) > 1
        layouts.build({f"d{at}": list(domain) for at, domain in enumerate(domains)}, servers=traffic.servers)  # a tree


@pytest.mark.parametrize("backends", [("fifo", "matrix"), ("fifo",)])
def test_domains_that_are_larger_than_allowed_are_cut_where_nothing_is_gained_by_it_too(backends):
    traffic = uniform(8, 1)
    found = advise.advise(traffic.flat(), load_of(traffic.sends(160)), backends, 2)
    assert not found.worthwhile and found.changes
    assert found.verdict().startswith("d1 has more than 2 servers; but for that nothing is to be gained. ")
    assert {len(domain.members) for domain in found.options["proposed"].topology.domains.values()} == {2}
    assert not any("one domain for all" in line for line in found.remarks)  # it is not allowed


def test_the_present_topology_is_proposed_with_a_word_on_back_ends_that_are_not_allowed():
    traffic = uniform(8, 1)
    load = load_of(traffic.sends(160))
    backend = traffic.flat().domains["d1"].backend
    found = advise.advise(traffic.flat(), load, ["fifo", "ks"])
    assert backend == "matrix" and found.options["proposed"] is found.options["current"]
    assert found.verdict().endswith("; kept, though not among the back ends allowed: matrix in d1")
    assert "kept" not in advise.advise(traffic.flat(), load).verdict()


def test_on_one_server_nothing_is_to_be_gained():
    with pytest.raises(MomError, match="^nothing is to be gained: a bus of one server"):
        advise.advise(layouts.build(layouts.flat(["s1"]), servers=["s1"]), costs.Load({("s1", ("s1",)): 3.0}, []))


def test_the_price_is_told_with_the_weight_of_a_packet_that_was_asked_for():
    traffic = uniform(4, 1)
    load = load_of(traffic.sends(40))
    for packet in (0, 1000):
        found = advise.advise(traffic.flat(), load, packet=packet)
        row, cost = found.as_dict()["options"][0], found.options["current"].cost
        assert row["price"] == round((cost.control_bytes + packet * cost.packets) / cost.messages, 1)


@pytest.mark.parametrize(
    "flows, text",
    [
        ({}, "has left its server"),
        ({("s1", ("s9",)): 1.0}, "no message is left to go by: 1 of 1 messages came from or went to s9, which the"),
    ],
)
def test_a_log_that_advice_cannot_go_by_is_refused(flows, text):
    with pytest.raises(MomError, match=text):
        advise.advise(uniform(4, 1).flat(), costs.Load(flows, []))


def test_servers_that_are_gone_from_the_file_are_left_out_and_named():
    """Half of the messages go to one of them alone, or come from it, or go to it, too."""
    traffic, gone = uniform(6, 1), ("s7", "s8")
    sends = traffic.sends(60)
    odd = [
        send._replace(origin="s7")
        if at % 3 == 0
        else send._replace(dests=("s8",) if at % 3 == 1 else (*send.dests, "s8"))
        for at, send in enumerate(sends)
    ]
    load = load_of(sorted([*sends, *odd]))
    load.seen = {"hops": 1.0}
    found = advise.advise(traffic.flat(), load)
    advise.replay_all(found, load)
    assert found.remarks[0] == (
        "60 of 120 messages came from or went to s7 and s8, which the topology file has not: these, or their copies "
        "there, are left out"
    )
    assert found.options["current"].cost.messages == found.options["current"].replayed.messages == 80
    assert found.options["current"].error() == 0 and not found.model
    known, _ = advise.known(traffic.flat(), load)
    assert known.messages == len(known.sends) == 80 and sum(costs.matrix(known.flows).values()) == 80
    assert advise.known(traffic.flat(), known) == (known, "")
    assert not any(name in domain for name in gone for domain in found.options["proposed"].topology.domains.values())


def test_the_model_is_held_against_the_log():
    traffic = uniform(4, 1)
    load = load_of(traffic.sends(40))
    cost = costs.predict(traffic.flat(), load)
    load.seen = {"control_bytes": cost.control_bytes / cost.messages / 2, "hops": 1.25, "delay_ms": 0.0}
    rows = {row["figure"]: row for row in advise.advise(traffic.flat(), load).as_dict()["model"]}
    assert {name: row["error_pct"] for name, row in rows.items()} == {
        "control_bytes": 100.0, "hops": -20.0, "delay_ms": None,
    }  # fmt: skip
    assert (rows["hops"]["log"], rows["hops"]["model"]) == (1.25, 1.0)


def test_the_proposal_keeps_the_places_of_the_stores(tmp_path):
    """Relative ones stay so in the folder of the old file; anywhere else the file leads to the same stores."""
    file = tmp_path / "bus.toml"
    file.write_text(config.dumps(uniform(4, 1).flat()))  # its stores are in var
    topology = config.load(file)
    advice = advise.advise(topology, load_of(uniform(4, 1).sends(40)))
    data = topology.servers["s1"].data
    assert data == str(tmp_path / "var" / "s1")
    (tmp_path / "x").mkdir()
    for same in (tmp_path, tmp_path / "x" / ".."):
        text = proposal(advice, file.parent, same)
        assert 'data = "var/s1"' in text and str(tmp_path) not in text
    for new in (tmp_path / "x", tmp_path.parent):
        assert config.loads(proposal(advice, file.parent, new), new).servers["s1"].data == data


def test_the_proposal_can_follow_the_topology_that_it_was_made_for(tmp_path):
    traffic = communities(3, 24)
    file = tmp_path / "bus.toml"
    file.write_text(config.dumps(traffic.flat()))
    current = config.load(file)
    advice = advise.advise(current, load_of(traffic.sends(400)))
    assert advice.changes
    proposed = config.loads(proposal(advice, file.parent, tmp_path), tmp_path)
    assert compare(current, proposed).kind is Kind.FREEZE


def test_any_of_the_front_can_be_written(tmp_path):
    traffic = communities(3, 10)
    (tmp_path / "bus.toml").write_text(f"revision = 7\n{config.dumps(traffic.flat())}")
    current = config.load(tmp_path / "bus.toml")
    advice = advise.advise(current, load_of(traffic.sends(200)))
    assert len(advice.front) > 1 and current.revision == 7
    for at, each in enumerate(advice.front, 1):
        text = proposal(advice, tmp_path, tmp_path, at)
        assert config.loads(text, tmp_path).domains == each.topology.domains and f"# number {at}: " in text
        assert config.loads(text, tmp_path).revision == 7, "what it is made from"
    assert config.loads(proposal(advice, tmp_path, tmp_path), tmp_path).revision == 7


def test_a_model_of_one_size_is_not_taken_for_another_with_the_same_traffic():
    """Six busy servers of 24 have the same pattern of sends whatever domain they are in; their clocks have not."""
    names = [f"s{n:02}" for n in range(24)]
    chance = Random(1)
    sends = [Send(n * MS, a, (b,), 10) for n in range(300) for a, b in [chance.sample(names[:6], 2)]]
    load = load_of(sends)
    flat = layouts.build({"all": names})
    split = layouts.build({"busy": names[:6], "rest": names[5:]})
    costs._play.cache_clear()
    first = [costs.predict(each, load).control_bytes for each in (flat, split)]
    costs._play.cache_clear()
    assert first == [costs.predict(each, load).control_bytes for each in (split, flat)][::-1]
    assert first[0] > 1.5 * first[1]


def test_changes_are_told_in_words():
    old = layouts.build({"a": ["s1", "s2", "s3"], "b": ["s3", "s4", "s5"]})
    new = layouts.build({"a": ["s1", "s2", "s4"], "c": ["s4", "s3", "s5"]}, servers=old.servers)
    assert words.changes(old, new) == [
        "domain a loses s3 and gains s4",
        "new domain c under matrix: s4, s3, s5",
        "domain b goes",
        "s4 becomes a router",
        "s3 needs not route any more",
    ]
    assert words.changes(old, old) == []


def test_a_sample_is_played_twice_and_counts_the_second_time():
    traffic = communities(1007)
    sends = traffic.sends(6000)
    whole, sample = load_of(sends), costs.Load(load_of(sends).flows, sends[2400:3600])
    assert (whole.first, sample.first) == (0, 1200) and whole.played == sends and len(sample.played) == 2400
    assert [send[1:] for send in sample.played[:1200]] == [send[1:] for send in sample.played[1200:]]
    assert sample.played == sorted(sample.played)
    for topology in (traffic.split(), traffic.flat()):
        late, again = costs.predict(topology, sample), replay(topology, sample.played, first=1200)
        assert late.messages == 6000 and again.messages == 1200
        assert late.control_bytes / 6000 == pytest.approx(again.total.control_bytes / 1200, rel=0.02)
        assert late.packets / 6000 == pytest.approx(again.total.packets / 1200)
        assert late.packets == pytest.approx(costs.predict(topology, whole).packets, rel=0.05)


def test_what_the_model_does_not_fit_is_told():
    traffic = communities(1007, 10)
    load = load_of(traffic.sends(600))
    load.seen = {"control_bytes": costs.predict(traffic.flat(), load).control_bytes / 600, "hops": 1.0}
    assert not any("does not fit" in line for line in advise.advise(traffic.flat(), load).remarks)
    load.seen["control_bytes"] /= 2
    assert (
        "the model does not fit the log of the current topology, +100 % in control_bytes: is it the log of this "
        "topology?" in advise.advise(traffic.flat(), load).remarks
    )


@pytest.mark.parametrize("size, apart", [(1, 0), (10, 1)], ids=["single", "bursts"])
@pytest.mark.parametrize("delays", [(60,), (5, 10, 200)], ids=["slow", "uneven"])
@pytest.mark.parametrize("shape", ["bus", "split"])
def test_the_model_is_right_however_long_links_take_and_in_whatever_order_messages_come(shape, delays, size, apart):
    """Ten times as many messages are under way on each link as at the pace of the other tests; in a burst, stamps are
    nearly empty."""
    traffic, lots = communities(1003, 36), Random(5)
    links = {(a, b): lots.choice(delays) * MS for a in traffic.servers for b in traffic.servers if a != b}
    sends = sorted(
        each._replace(at=EPOCH + (each.at - EPOCH) * size // 10 + number * apart * MS)
        for each in traffic.sends(3000 // size)
        for number in range(size)
    )
    load = load_of(sends)
    load.delays = Delays(round(fmean(links.values())), links)
    topology = traffic.split() if shape == "split" else layouts.build(layouts.bus(traffic.servers))
    played = replay(topology, sends, load.delays)
    assert costs.predict(topology, load).control_bytes == pytest.approx(played.total.control_bytes, rel=0.1)


# -- names, structure, change, growth ----------------------------------------------------------------------------------


def results(found, back=None):
    """What an advice says, but for names; with the names of servers, if these are given."""
    whole = found.as_dict()
    rows = [{k: v for k, v in row.items() if k != "busiest"} for row in whole["options"] + whole["front"]]
    groups = [
        sorted(sorted(back[name] if back else name for name in each.members) for each in one.topology.domains.values())
        for one in found.front
    ]
    verdict = found.verdict().partition(":")[2]
    return found.gain, found.fit, rows, groups, verdict, [[row["packets_s"], row["delay_ms"]] for row in found.forecast]


@pytest.mark.parametrize("shape, number, layout", [
    ("hierarchy", 0, "flat"), ("clients", 3, "flat"), *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (("hierarchy", 0, "bus"), ("multicast", 1, "flat"), ("multicast", 1, "bus"), ("clients", 3, "bus"))
    )
])  # fmt: skip
def test_names_and_the_order_of_a_file_change_nothing(shape, number, layout):
    names, sends = shapes.workload(shape, number, 12)
    domains = layouts.LAYOUTS[layout](names)
    first = advise.advise(layouts.build(domains, servers=names), load_of(sends))
    order, moved, new = shapes.renamed(names, sends, 1)
    again = [(name, [new[each] for each in members]) for name, members in domains.items()]
    for at, (_, members) in enumerate(again):
        Random(at).shuffle(members)
    other = advise.advise(layouts.build(dict(reversed(again)), servers=order), load_of(moved))
    assert results(other, {b: a for a, b in new.items()}) == results(first)


@pytest.mark.parametrize("seed", range(40))
def test_servers_and_domains_have_the_same_canonical_names_whatever_they_are_called(seed):
    rng = Random(seed)
    shape, number = rng.choice(shapes.ALL)
    names, sends = shapes.workload(shape, number)
    sends = sends[: rng.choice((5, 60, 500))]  # where there are few, most servers have no message
    domains = layouts.LAYOUTS[rng.choice(("flat", "bus", "tree", "chain"))](names)
    links = {(a, b): 7 + at for at, (a, b) in enumerate(zip(names, names[1:], strict=False))}
    load = load_of(sends)
    load.delays = Delays(10, links)
    order, moved, new = shapes.renamed(names, sends, seed)
    again = [(f"x{name}", rng.sample(list(map(new.get, each)), len(each))) for name, each in domains.items()]
    rng.shuffle(again)
    other = load_of(moved)
    other.delays = Delays(10, {(new[a], new[b]): mean for (a, b), mean in links.items()})
    one = canonical.of(layouts.build(domains, servers=names), load)
    two = canonical.of(layouts.build(dict(again), servers=order), other)
    for each in ("sends", "flows"):
        assert getattr(one.load, each) == getattr(two.load, each)
    assert one.topology.domains == two.topology.domains
    assert one.load.delays == two.load.delays and sorted(one.names.values()) == sorted(names)


def followed(*traffics, each=500):
    """One traffic after the other."""
    sends, off = [], 0
    for traffic in traffics:
        some = [send._replace(at=send.at + off) for send in traffic.sends(each)]
        sends, off = [*sends, *some], off + some[-1].at - some[0].at
    return sends


@pytest.mark.parametrize("seed", range(6))
def test_that_traffic_has_changed_is_told_and_when(seed):
    before, since = communities(seed, 20), communities(seed + 100, 20)
    sends = followed(before, since)
    found = drift.shift(sends)
    assert found and found.times == 1 and found.at == sends[500].at and found.share > 0.5
    assert drift.shift(before.sends(1000)) is None and drift.shift(uniform(20, seed).sends(1000)) is None
    back = drift.shift(followed(before, since, before, since, each=250))
    assert back and back.times == 3
    assert drift.shift(sends[:100]) is None  # too few to tell


def test_what_a_proposal_saves_before_and_since_a_change_is_told():
    sends = followed(communities(1, 10), communities(101, 10))
    found = advise.advise(communities(1, 10).flat(), load_of(sends), packet=20)
    (told,) = [line for line in found.remarks if line.startswith("traffic has changed in this log: ")]
    assert "the proposal would make a message cheaper by" in told and told.endswith(
        f"--since {found.as_dict()['changed_at']}"
    )


def test_twice_the_traffic_is_forecast():
    traffic = communities(1007, 10)
    load = load_of(traffic.sends(320))
    found = advise.advise(traffic.flat(), load, packet=20)
    now, later, *proposed = found.forecast
    assert (now["topology"], now["times"], later["times"]) == ("current", 1, 2)
    assert later["packets_s"] == pytest.approx(2 * now["packets_s"], rel=0.01)
    assert {row["topology"] for row in proposed} == {"proposed"} and proposed[1]["busiest"]
    span = (load.sends[-1].at - load.sends[0].at) / 1e9
    assert now["messages_s"] == pytest.approx(320 / span, rel=0.01)
    shorter = load.faster(2)
    assert shorter.sends[-1].at - shorter.sends[0].at == pytest.approx(span * 1e9 / 2, abs=2)
