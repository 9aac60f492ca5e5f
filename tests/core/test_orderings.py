"""Every ordering back end on a bus of agent servers: natural multicasts, routers, crashes, what waits and why."""

import random
from typing import Any

import pytest

from mombroker.admin.audit import bus as audit
from mombroker.core.channel import Channel
from mombroker.core.errors import PeerError, StoreError
from mombroker.core.events import Admin, LinkFrames
from mombroker.core.message import Message
from mombroker.core.status import why
from mombroker.core.topology import AgentDecl
from mombroker.net import config
from mombroker.ordering.hypercube import hypercube
from mombroker.ordering.overlay import Overlay, graph
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put, Tell

AGENTS = "tests.core.sample_agents"
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast")
LIMITS = {"trying_boots": 1000}  # so many crashes are no message's fault
every_one = pytest.mark.parametrize("name", BACKENDS)
holding = pytest.mark.parametrize("name", [name for name in BACKENDS if name != "overlay"])
ONE_GROUP = {"daisy": {"groups": [["a", "b", "c", "d"]]}}
TWO_GROUPS = {"daisy": {"groups": [["a", "b"], ["c", "d"]], "connectors": ["b"]}}


def bus(domains: dict[str, str], **orderings: Any) -> Bus:
    """A sink on every server, and a source on a."""
    servers = sorted({server for members in domains.values() for server in members})
    agents = {f"{server}/{server}": f"{AGENTS}:Sink" for server in servers}
    made = Bus(topology(domains, agents | {"a/source": f"{AGENTS}:Source"}, orderings, limits=LIMITS))
    made.pump()
    return made


def four(name: str, options: dict[str, Any] | None = None) -> Bus:
    return bus({"x": "abcd"}, x=(name, (options or {}).get(name, {})))


def back(bus: Bus, server: str) -> None:
    """A server that was down is there again, and so are its links."""
    bus.boot(server)
    meet(bus, server)


def meet(bus: Bus, server: str) -> None:
    for domain in bus.topology.domains_of(server):
        for peer in domain.members:
            if peer != server:
                bus.join(server, peer)
    bus.pump()


def got(bus: Bus, server: str) -> list[str]:
    return bus.fields(f"{server}/{server}")["got"]


def tell(bus: Bus, to: str, text: str) -> None:
    """The source on a sends to the sinks of some servers, at once."""
    bus.send("a", "source", Tell(list(to), text))


def packets(bus: Bus, domain: str) -> list[tuple[str, str]]:
    """(from, to) of all packets that were stamped in a domain so far."""
    return [
        (server, peer)
        for server in bus.servers
        for row in bus.records(server, "send", "forward", "relay")
        for into, peer, _, _ in row["out"]
        if into == domain
    ]


def since(bus: Bus, domain: str, before: list[tuple[str, str]]) -> list[tuple[str, str]]:
    found = packets(bus, domain)
    for each in before:
        found.remove(each)
    return found


# -- one order -----------------------------------------------------------------------------------------------------


@pytest.mark.interpreted
@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_sent_while_a_run_is_delivered_has_its_turn_behind_it(guarded, monkeypatch):
    """b gets the token with the order of two messages, and sends a third one when it delivers the first."""
    if not guarded:
        right = Channel._come_back
        monkeypatch.setattr(Channel, "_come_back", lambda each: (setattr(each, "_delivering", False), right(each)))
    made = bus({"x": "abc"}, x=("abcast", {"patience": 2, "holder": "a"}))
    tell(made, "ac", "before")  # by a itself, which keeps the token
    made.cut("b", "c")  # b has the order of both, and not the first
    channel, order = made.servers["b"].channel, []
    deliver = channel.engine.deliver

    def watched(message, agents, *where, **when):
        order.append(message.number)
        if len(order) == 1:
            dests = ("a/a", "b/b", "c/c")
            channel.send(Message("b", 1 << 40, "b/b", dests, Put.__wire_name__, b"", made.now, 0, 0, b""))
        deliver(message, agents, *where, **when)

    for name in "cb":
        args = {"to": ["a/a", "b/b", "c/c"], "type": Put.__wire_name__, "fields": {"text": name}}
        made.servers[name].step(Admin(next(made.numbers), "send", args), made.now)
        made.pump()
    channel.engine.deliver = watched
    made.join("b", "c")
    made.pump()
    assert 1 << 40 in order[1:3]
    assert (order[2] == 1 << 40) == guarded


def test_who_has_the_token_is_told_where_it_is_waited_for():
    """It moves behind two of a's messages to a, which knows of that first."""
    made = bus({"x": "abc"}, x=("abcast", {"patience": 2, "holder": "c"}))
    token = lambda name: made.ask(name, "status")["domains"][0]["token"]  # noqa: E731
    made.crash("c")
    tell(made, "b", "one")
    made.pump()
    assert [token(each) for each in "ab"] == ["c", "c"]
    (held,) = (each for each in why(made.servers["b"]) if each["kind"] == "held")
    assert (held["token"], [each["server"] for each in held["waits_for"]]) == ("c", ["c"])
    back(made, "c")
    assert got(made, "b") == ["one"] and [token(each) for each in "abc"] == ["c"] * 3
    tell(made, "b", "two")
    made.pump()
    assert [token(each) for each in "abc"] == ["a"] * 3


def test_nobody_has_a_token_under_other_back_ends():
    made = four("matrix")
    assert [each["token"] for each in made.ask("a", "status")["domains"]] == [""]


# -- multicasts ----------------------------------------------------------------------------------------------------

# Of a multicast of a to b and d, the router; and of what d sends on in y to e and f. Flood: the four are a square.
IN_X = {
    "matrix": ["ab", "ad"], "rst": ["ab", "ad"], "ks": ["ab", "ad"], "vector": ["ab", "ac", "ad"],
    "overlay": ["ab", "ac", "bd", "cd", "dc"], "daisy": ["ab", "bc", "cd"], "abcast": ["ab", "ac", "ad"],
}  # fmt: skip
IN_Y = {
    "matrix": ["de", "df"], "rst": ["de", "df"], "ks": ["de", "df"], "vector": ["de", "df", "dg"],
    "overlay": ["de", "df", "eg", "fg", "gf"], "daisy": ["de", "df", "fg"], "abcast": ["de", "df", "dg"],
}  # fmt: skip


@every_one
@pytest.mark.parametrize("place", ["x", "y"])
def test_a_multicast_is_one_send_in_each_domain(name, place):
    """Over a router: one multicast in x, one in y, each in the form of the back end there."""
    order = {"x": TWO_GROUPS, "y": {"daisy": {"groups": [["d", "e"], ["f", "g"]]}}}[place].get(name, {})
    b = bus({"x": "abcd", "y": "defg"}, **{place: (name, order)})
    quiet = {domain: packets(b, domain) for domain in "xy"}
    tell(b, "bdef", "hello")
    assert [got(b, server) for server in "bcdefg"] == [["hello"], [], ["hello"], ["hello"], ["hello"], []]
    expected = {"x": IN_X["matrix"], "y": IN_Y["matrix"]} | {place: {"x": IN_X, "y": IN_Y}[place][name]}
    for domain in "xy":
        found = ["".join(pair) for pair in since(b, domain, quiet[domain])]
        if name == "overlay" and domain == place:  # which of two came first decides who hands it on to whom
            assert len(found) == len(expected[domain]) == 5
        else:
            assert sorted(found) == expected[domain]


@every_one
def test_control_bytes_and_integers_are_logged(name):
    b = four(name)
    tell(b, "bd", "hello")
    out = b.records("a", "send")[-1]["out"]
    assert out and all(control > 0 and integers > 0 for _, _, control, integers in out)


@pytest.mark.parametrize("name", ["overlay", "daisy"])
def test_what_is_passed_on_is_logged_under_its_message(name):
    b = four(name, TWO_GROUPS)
    before = sum(row["relays"] for server in b.servers for row in b.ask(server, "status")["domains"])
    tell(b, "d", "hello")
    sent = b.records("a", "send")[-1]
    relayed = [row for server in "bcd" for row in b.records(server, "relay") if row["number"] == sent["number"]]
    assert {(row["origin"], row["domain"]) for row in relayed} == {("a", "x")}
    assert sum(len(row["out"]) for row in relayed) == {"overlay": 3, "daisy": 2}[name]
    after = sum(row["relays"] for server in b.servers for row in b.ask(server, "status")["domains"])
    assert after - before == {"overlay": 3, "daisy": 2}[name]


def test_the_copies_of_a_flood_that_come_late_are_counted():
    b = four("overlay")

    def count() -> int:
        return sum(b.ask(server, "status")["domains"][0]["duplicates"] for server in b.servers)

    before = count()
    tell(b, "d", "hello")
    assert count() - before == 5 - 3


def test_a_message_that_nobody_can_read_is_not_passed_on():
    b = four("overlay")
    tell(b, "b", "so that there is a link")
    one, two = b.servers["a"], b.servers["b"]
    core, link = one.channel.domains["x"].core, two.channel.domains["x"].link("a")
    packet = next(each for each in core.send([3], b"junk") if each.to == 1)
    frames = [("data", "x", link.received + 1, [core.encode(packet)])]
    relays = two.channel.domains["x"].relays
    with pytest.raises(Exception, match="a sent a packet in x that cannot be used"):
        two.step(LinkFrames("a", link.conn, frames), b.now)
    assert two.channel.domains["x"].relays == relays


@pytest.mark.parametrize("name", ["vector", "overlay"])
def test_a_packet_that_does_not_come_next_costs_the_peer_its_link_and_changes_nothing(name):
    b = four(name)
    tell(b, "b", "so that there is a link")
    two, core = b.servers["b"], b.servers["a"].channel.domains["x"].core
    link, body = two.channel.domains["x"].link("a"), Message("a", 99, "a/a", ("d/d",), "no type", b"").encode()
    before = link.received
    _, late = [core.encode(each) for _ in range(2) for each in core.send([3], body) if each.to == 1]
    with pytest.raises(PeerError, match="a sent a packet in x that cannot be used: .*packet .* came next after packet"):
        two.step(LinkFrames("a", link.conn, [("data", "x", link.received + 1, [late])]), b.now)
    assert link.received == before
    b.send("c", "b", Put("and others go on"))
    assert got(b, "b") == ["so that there is a link", "and others go on"]


# -- what waits, and why -------------------------------------------------------------------------------------------


def held_at_c(name: str) -> Bus:
    """a tells b and c, c's copy is stuck; b hears it and tells c."""
    b = four(name, ONE_GROUP)
    b.cut("a", "c")
    tell(b, "bc", "cause")
    assert got(b, "b") == ["cause"]
    b.send("b", "c", Put("effect"))
    return b


@holding
def test_an_effect_is_held_until_its_cause_and_why_says_so(name):
    b = held_at_c(name)
    assert got(b, "c") == []
    b.later(3)
    (domain,) = b.ask("c", "status")["domains"]
    assert (domain["held"], domain["held_longest_ns"]) == (1, 3 * 10**9)
    (wait,) = [wait for wait in b.ask("c", "why")["waits"] if wait["kind"] == "held"]
    assert wait["message"] == "b#" + str(b.records("b", "send")[-1]["number"])
    assert wait["from"] == "b" and [cause["server"] for cause in wait["waits_for"]] == ["a"]
    (hold,) = b.records("c", "hold")
    assert hold["missing"] == [(0, wait["waits_for"][0]["sequence"])]
    b.join("a", "c")
    b.pump()
    assert got(b, "c") == ["cause", "effect"]
    (domain,) = b.ask("c", "status")["domains"]
    assert (domain["held"], domain["held_longest_ns"]) == (0, 0)


@holding
def test_what_is_held_and_why_survives_a_crash(name):
    b = held_at_c(name)
    (before,) = [wait for wait in b.ask("c", "why")["waits"] if wait["kind"] == "held"]
    b.crash("c")
    b.boot("c")
    b.later(2)
    (after,) = [wait for wait in b.ask("c", "why")["waits"] if wait["kind"] == "held"]
    assert [cause["sequence"] for cause in after["waits_for"]] == [c["sequence"] for c in before["waits_for"]]
    assert after["message"] == before["message"]
    assert b.ask("c", "status")["domains"][0]["held_longest_ns"] == 2 * 10**9
    meet(b, "c")
    assert got(b, "c") == ["cause", "effect"]
    assert b.ask("c", "status")["domains"][0]["held"] == 0


# Graphs of seven, with how many may be down at once while all others hear all that they tell each other.
SEVEN = {
    "the hypercube of seven": (None, 2),
    "a ring": (["ab", "bc", "cd", "de", "ef", "fg", "ga"], 1),
    "a wheel": (["ab", "bc", "cd", "de", "ef", "fa", *(f"g{k}" for k in "abcdef")], 2),
}


@pytest.mark.parametrize(("links", "spare"), SEVEN.values(), ids=[*SEVEN])
@pytest.mark.parametrize("seed", range(3))
def test_an_overlay_of_seven_servers_goes_on_while_fewer_than_kappa_are_down(links, spare, seed):
    options = {} if links is None else {"links": [[*pair] for pair in links]}
    whole = bus({"x": "abcdefg", "y": "gh"}, x=("overlay", options))
    shown = Overlay.describe(whole.topology.domains["x"].members, options)
    assert shown["survives"] == f"all among the others while any {spare} are down"
    lots = random.Random(seed)
    down = lots.sample("bcdef", spare)
    up = [name for name in "bcdefgh" if name not in down]
    for name in down:
        whole.crash(name)
    for number in range(4):
        tell(whole, "bcdefgh", f"{number}")
        whole.send(up[0], [name for name in "bcdefgh" if name != up[0]], Put(f"answer to {number}"))
    order = [f"{text}{number}" for number in range(4) for text in ("", "answer to ")]
    assert all(got(whole, name) == order for name in up[1:])
    assert not any(whole.records(name, "hold") for name in up)
    for name in down:
        back(whole, name)
    assert all(got(whole, name) == order for name in [*up[1:], *down])
    near = hypercube(7) if links is None else graph(7, [["abcdefg".index(name) for name in pair] for pair in links])
    assert all("abcdefg".index(to) in near["abcdefg".index(frm)] for frm, to in packets(whole, "x"))


def test_an_overlay_of_which_kappa_are_down_is_in_two_parts_until_they_are_back():
    """The control: both neighbours of c are down."""
    b = bus({"x": "abcdefg"}, x=("overlay", {"links": [[*pair] for pair in SEVEN["a ring"][0]]}))
    b.crash("b")
    b.crash("d")
    tell(b, "cg", "hello")
    assert (got(b, "g"), got(b, "c")) == (["hello"], [])
    back(b, "d")
    assert got(b, "c") == ["hello"]


def test_an_overlay_brings_the_cause_another_way():
    b = held_at_c("overlay")
    assert got(b, "c") == ["cause", "effect"]
    assert b.records("c", "hold") == []


def test_a_connector_holds_what_is_for_others_and_lets_it_go():
    """a and b are in one group with c, who connects it; d is in the other."""
    b = bus({"x": "abcd"}, x=("daisy", {"groups": [["a", "b", "c"], ["d"]], "connectors": ["c"]}))
    b.cut("a", "c")
    tell(b, "bd", "cause")
    b.send("b", "d", Put("effect"))
    assert got(b, "d") == []
    assert b.ask("c", "status")["domains"][0]["held"] == 1
    b.join("a", "c")
    b.pump()
    assert got(b, "d") == ["cause", "effect"]
    assert b.ask("c", "status")["domains"][0]["held"] == 0
    assert [link["held"] for link in b.ask("c", "status")["links"]] == [0, 0, 0]


@every_one
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_were_damaged_are_read_or_refused_in_one_sentence(name, seed):
    b = held_at_c(name)
    b.crash("c")
    lots, rows = random.Random(seed), b.stores["c"].disk.core["x"]
    for _ in range(20):
        intact, key = dict(rows), lots.choice(sorted(rows))
        rows[key] = lots.choice((b"", rows[key][: lots.randrange(len(rows[key]))], lots.randbytes(len(rows[key]))))
        try:
            b.boot("c")
            b.crash("c")
        except StoreError as error:
            assert f"the {name} clock of domain x in the store of c cannot be read" in str(error)
        rows.clear()
        rows.update(intact)
    back(b, "c")
    assert got(b, "c") == ["cause", "effect"]


# -- a member that is down -----------------------------------------------------------------------------------------


@every_one
def test_each_server_may_crash_between_any_two_steps(name):
    """Every server in turn loses what is not durable; nothing is lost, repeated or out of order."""
    b = bus({"x": "abcd", "y": "defg"}, x=(name, TWO_GROUPS.get(name, {})))
    for number, server in enumerate("abcdefgabcdefg"):
        tell(b, "bcdefg"[number % 5 :], f"{number}")
        b.crash(server)
        b.boot(server)
        b.pump()
    tell(b, "bcdefg", "last")
    for server in "bcdefg":
        expected = [f"{number}" for number in range(14) if server in "bcdefg"[number % 5 :]]
        assert got(b, server) == [*expected, "last"]


@every_one
def test_who_is_down_gets_everything_later_in_order(name):
    b = four(name, ONE_GROUP)
    b.crash("d")
    for number in range(5):
        tell(b, "bd", f"{number}")
        b.send("b", "d", Put(f"b{number}"))
    assert got(b, "b") == list("01234"), "nobody else waits"
    back(b, "d")
    order = got(b, "d")
    assert [text for text in order if text[0] != "b"] == list("01234")
    assert [text for text in order if text[0] == "b"] == ["b0", "b1", "b2", "b3", "b4"]
    assert all(order.index(f"{number}") < order.index(f"b{number}") for number in range(5))


@pytest.mark.parametrize("name", ["matrix", "rst", "ks", "vector"])
def test_only_what_depends_on_who_is_down_waits(name):
    """d tells b and c and is gone before c has it: of b's messages c holds those alone that come after it.

    A vector clock counts it at a too, whom it is not for: what a sends does not depend on it all the same.
    """
    b = four(name)
    b.cut("c", "d")
    b.send("b", "c", Put("before"))
    b.send("d", ["b", "c"], Put("cause"))
    b.crash("d")
    b.send("b", "c", Put("after"))
    tell(b, "c", "unrelated")
    assert got(b, "c") == ["before", "unrelated"]
    back(b, "d")
    order = got(b, "c")
    assert order[:2] == ["before", "unrelated"] and sorted(order) == ["after", "before", "cause", "unrelated"]
    assert order.index("cause") < order.index("after")


def test_a_daisy_stops_at_a_connector_that_is_down_and_only_there():
    b = four("daisy", TWO_GROUPS)
    b.crash("b")
    tell(b, "d", "across")
    b.send("c", "d", Put("inside"))
    assert got(b, "d") == ["inside"]
    back(b, "b")
    assert got(b, "d") == ["inside", "across"]


def test_a_stable_relay_waits_for_all_of_the_group_and_why_names_them():
    order = {"groups": [["a", "b", "c"], ["d"]], "connectors": ["b"], "relay": "stable"}
    b = bus({"x": "abcd"}, x=("daisy", order))
    b.crash("c")
    tell(b, "d", "across")
    assert got(b, "d") == []
    (wait,) = [wait for wait in b.ask("b", "why")["waits"] if wait["kind"] == "parked"]
    assert wait["waits_for"] == ["c"] and wait["message"].startswith("a#")
    assert b.ask("b", "status")["domains"][0]["parked"] == 1
    b.crash("b")
    back(b, "b")
    assert b.ask("b", "status")["domains"][0]["parked"] == 1
    back(b, "c")
    assert got(b, "d") == ["across"]
    (ack,) = b.records("c", "relay")
    assert (ack["origin"], [out[1] for out in ack["out"]], ack["out"][0][3]) == ("", ["b"], 2)
    assert b.ask("c", "status")["domains"][0]["relays"] == 0


@pytest.mark.parametrize("name", ["vector", "overlay", "daisy"])
def test_status_names_the_member_that_holds_the_disk(name):
    b = four(name, ONE_GROUP)
    b.crash("d")
    for _ in range(20):
        tell(b, "b", "x" * 1000)
    assert b.ask("b", "status")["problems"] == [], "it may just be starting again"
    b.later(11)
    keepers = [server for server in "abc" if b.ask(server, "status")["problems"]]
    assert keepers == {"vector": ["a"], "overlay": ["b", "c"], "daisy": ["a"]}[name]
    (problem,) = b.ask(keepers[0], "status")["problems"]
    assert problem.startswith("d is down, and what others tell each other in domain x is kept for it, too")
    back(b, "d")
    assert all(b.ask(server, "status")["problems"] == [] for server in "abc")


@pytest.mark.parametrize("name", ["matrix", "rst", "ks"])
def test_who_is_down_costs_no_disk_for_what_is_for_others(name):
    b = four(name)
    b.crash("d")
    for _ in range(20):
        tell(b, "b", "x" * 1000)
    b.later(11)
    assert b.ask("a", "status")["problems"] == []
    assert b.ask("a", "status")["domains"][0]["waiting"] == 0


# -- random work ---------------------------------------------------------------------------------------------------


def disorder(bus: Bus, seed: int, steps: int) -> int:
    """Sources tell sinks at random, servers step at random and die, before a commit or after one that was not sent.

    Returns the number of crashes. In the end all is at rest.
    """
    lots, names, crashes = random.Random(seed), list(bus.topology.servers), 0
    for number in range(steps):
        name = lots.choice(names)
        if lots.random() < 0.4:
            to = [f"{other}/{other}" for other in lots.sample(names, lots.choice((1, 1, 2, 3)))]
            fields = {"text": f"{number}"}
            args = {"to": to, "type": Put.__wire_name__, "fields": fields}
            bus.servers[name].step(Admin(next(bus.numbers), "send", args), bus.now)
        bus.servers[name].turn(bus.now)
        if bus.servers[name].urgency:
            ready = bus.commit(name)
            if lots.random() < 0.06:
                bus.crash(name)
                bus.boot(name)
                crashes += 1
            else:
                bus.release(name, ready)
        if lots.random() < 0.03:
            bus.crash(name)
            bus.boot(name)
            crashes += 1
    for name in names:
        meet(bus, name)
    bus.pump()
    for server in bus.servers.values():
        assert not why(server)
        assert not any(consumer.core.held() or consumer.core.parked() for consumer in server.channel.domains.values())
    return crashes


def judged(bus: Bus) -> audit.Findings:
    found = audit.audit(bus.topology, bus.stores)
    assert found.clean and not found.waiting and not found.uncut and not found.unjudged, found
    return found


@every_one
@pytest.mark.parametrize("seed", range(2))
def test_random_work_and_crashes_leave_everything_in_order(name, seed):
    other = BACKENDS[(BACKENDS.index(name) + 1) % len(BACKENDS)]
    b = bus({"x": "abcde", "y": "efgh"}, x=(name, {}), y=(other, {}))
    assert disorder(b, seed, 400) > 3
    assert judged(b).reactions > 250


def test_all_of_them_in_one_bus():
    mixed = config.load("etc/mixed.toml")
    mixed.limits |= LIMITS
    mixed.agents += [AgentDecl(name, name, f"{AGENTS}:Sink", {}) for name in mixed.servers]
    b = Bus(mixed)
    b.pump()
    assert disorder(b, 1, 600) > 3
    assert judged(b).reactions > 300
