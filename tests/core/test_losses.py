"""A server is lost for good, by hand: the others go on without it, and another one begins in its place."""

import json

import pytest

from mombroker.admin.topology import losing
from mombroker.broker.groups.group import Group
from mombroker.broker.groups.notes import Place
from mombroker.core import newcomers, revision
from mombroker.core.names import CREATE, MOST_DOUBTED
from mombroker.store.memory import MemoryStore
from tests.core.bus import Bus, everyone_hears, topology
from tests.core.sample_agents import Put

AGENTS = "tests.core.sample_agents"
SINKS = {f"{server}/{server}": f"{AGENTS}:Sink" for server in "abcde"}
ROUTER = {"x": "abc", "y": "cde"}  # c is lost
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast")


def made(domains, backend="matrix"):
    servers = {server for members in domains.values() for server in members}
    sinks = {agent: path for agent, path in SINKS.items() if agent[0] in servers}
    return topology(domains, sinks, {name: (backend, {}) for name in domains if len(domains[name]) > 2})


def lose(bus, name, domain, server, epoch=1):
    return bus.ask(server, "lose", servers=[name], domain=domain, epoch=epoch)


def replace_store(bus, name, sponsor, joins="abcde"):
    """Another store in the place of the lost one, as its operator makes it."""
    made, rows = newcomers.rows(name, bus.servers[sponsor].newcomers.invitation(name))
    bus.stores[name] = MemoryStore(made, name, f"another store of {name}")
    bus.stores[name].disk.meta |= rows
    bus.boot(name)
    for domain in made.domains_of(name):
        for peer in domain.members:
            if peer != name and peer in joins:
                bus.join(name, peer)
    bus.pump()


def letters(bus):
    return {name: len(server.dead_letters.letters) for name, server in bus.servers.items()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_router_is_lost_and_another_one_takes_its_place(backend):
    bus = Bus(made(ROUTER, backend))
    bus.pump()
    everyone_hears(bus, "before")
    bus.crash("c")
    bus.send("a", ["b/b", "c/c", "e/e"], Put("on its way"))
    for domain, server in (("x", "a"), ("y", "d")):
        assert lose(bus, "c", domain, server) == {"domain": domain, "epoch": 1}
    for name in "abde":
        server = bus.servers[name]
        (domain,) = server.channel.domains
        assert server.neighbours.epochs[domain] == 1 and not server.losses.losses and not server.channel.gate.behind
    assert sum(letters(bus).values()) == 2
    replace_store(bus, "c", "a")
    everyone_hears(bus, "after")


@pytest.mark.parametrize("members", ["abcd", "ad"])
def test_a_lost_server_is_taken_out_with_nobody_in_its_place(members):
    old = {"x": "abc", "y": members} if members == "ad" else {"x": members}
    new = {name: those.replace("d", "") for name, those in old.items() if len(those) > 2}
    bus = Bus(made(old))
    bus.pump()
    bus.send("a", ["b/b", "d/d"], Put("before"))
    bus.crash("d")
    (domain,) = [name for name, those in old.items() if "d" in those]
    asked = {"text": revision.text_of(made(new)), "revision": 1, "lost": ["d"]}
    assert "run `mom server lost d` first" in bus.ask("b", "apply_topology", **asked)
    assert lose(bus, "d", domain, "a") == {"domain": domain, "epoch": 1}
    bus.send("a", ["b/b", "d/d"], Put("too late"))
    del bus.stores["d"]
    assert bus.ask("b", "apply_topology", **asked) == {"revision": 2, "begun": True}
    for server in bus.servers.values():
        assert server.truth.number == 2 and "d" not in server.topology.servers
        assert server.change.plan is None and not server.losses.losses and not server.channel.gate.behind
    assert sum(letters(bus).values()) == 1
    everyone_hears(bus, "after")


def of_abcast(members, **options):
    sinks = {agent: path for agent, path in SINKS.items() if agent[0] in members}
    return topology({"x": members}, sinks, {"x": ("abcast", options)})


@pytest.mark.parametrize("options", [{}, {"holder": "c"}])
def test_the_domain_of_a_lost_holder_of_the_token_goes_on_with_another_one(options):
    """Under an epoch in which it begins with the next member; so it does again where that is lost, too."""
    bus = Bus(of_abcast("cabd", **options))
    bus.pump()
    everyone_hears(bus, "before")
    bus.crash("c")
    assert lose(bus, "c", "x", "a") == {"domain": "x", "epoch": 1}
    assert {server.channel.domains["x"].core.holder for server in bus.servers.values()} == {1}
    bus.send("b", ["a/a", "d/d"], Put("without it"))
    bus.crash("d")
    bus.boot("d")  # from its rows
    for name in "ab":
        bus.join("d", name)
    bus.pump()
    assert all(server.channel.domains["x"].core.held() == [] for server in bus.servers.values())
    replace_store(bus, "c", "a")
    assert bus.servers["c"].channel.domains["x"].core.holder == 1
    everyone_hears(bus, "after")


@pytest.mark.parametrize(("before", "after"), [("dabc", "abc"), ("dab", "ab")])
def test_a_lost_holder_of_the_token_is_taken_out_with_nobody_in_its_place(before, after):
    """The change goes by the order of the domain, which has begun anew; two that are left have one order still."""
    bus = Bus(of_abcast(before, holder="d"))
    bus.pump()
    bus.crash("d")
    lose(bus, "d", "x", "a")
    del bus.stores["d"]
    rest = losing.without(bus.topology, ["d"])
    assert (rest.domains["x"].backend, rest.domains["x"].options) == ("abcast", {})
    wrong = {"text": revision.text_of(of_abcast(after, holder="e")), "revision": 1, "lost": ["d"]}
    assert "holder names a server of this domain: choose one of a, b" in bus.ask("b", "apply_topology", **wrong)
    asked = {"text": revision.text_of(rest), "revision": 1, "lost": ["d"]}
    assert bus.ask("b", "apply_topology", **asked) == {"revision": 2, "begun": True}
    assert all(server.truth.number == 2 and server.change.plan is None for server in bus.servers.values())
    everyone_hears(bus, "after")


def test_the_name_of_an_agent_whose_creation_was_lost_is_free_again():
    bus = Bus(made(ROUTER))
    bus.pump()
    for server in bus.servers.values():
        server.names._named("late", "b/late", "a")  # and nobody has made it
    bus.servers["b"].names.wanted.add("asked")  # and nobody has heard that
    bus.crash("c")
    for domain, server in (("x", "a"), ("y", "d")):
        lose(bus, "c", domain, server)
    replace_store(bus, "c", "a")
    assert not [name for name, server in bus.servers.items() if "late" in server.names.known]
    assert not bus.servers["b"].names.wanted  # whoever waits asks anew
    assert all(name in server.names.known for name, server in bus.servers.items())


def test_who_was_to_make_an_agent_sends_nothing_to_it_when_its_creation_was_lost():
    bus = Bus(made(ROUTER))
    bus.pump()
    names = bus.servers["b"].names
    for name in "acde":
        bus.servers[name].names._named("late", "b/late", "b")  # and b has not heard of it, nor has it been made
    names.wanted.add("late")
    met = []

    def on_known(name):  # as who waits
        if name == "late":
            met.append(names.known.get(name))
            names.wanted.add(name)

    names.on_known = on_known
    bus.crash("c")
    for domain, server in (("x", "a"), ("y", "d")):
        lose(bus, "c", domain, server)
    replace_store(bus, "c", "a")
    assert met == [None, None], "at the loss, and when the name is free"
    assert not [name for name, server in bus.servers.items() if "late" in server.names.known]


GROUP, ID = "group:g", "b/group:g"


@pytest.mark.parametrize("control", [False, True])
def test_who_says_that_nobody_is_there_says_nothing_of_an_agent_that_is_on_its_way(control):
    """After a loss it is told the name anew, of which it has asked the registry to free it and to have another one made
    there. `control`: it does not say what it has heard."""
    bus = Bus(made(ROUTER))
    bus.pump()
    a, b = bus.servers["a"], bus.servers["b"]
    for server in bus.servers.values():
        server.names._named(GROUP, ID, "b")
    a.newcomers.tell_tables(["b"])
    b.names.nobodys(GROUP, ID)
    b.names.declare(GROUP, Group.path, b"")
    if control:
        b.names._give_up = b.names.forget
    bus.pump()
    assert ID in b.natives.agents
    assert {server.names.known.get(GROUP) for server in bus.servers.values()} == {None if control else ID}
    bus.servers["d"].names.declare(GROUP, Group.path, b"")  # as who does not know of it
    bus.pump()
    homes = [name for name, server in bus.servers.items() if f"{name}/{GROUP}" in server.natives.agents]
    assert homes == (["b", "d"] if control else ["b"])


@pytest.mark.parametrize("restarts", ["", "a", "b", "ab"])
def test_the_registry_goes_by_who_has_heard_that_an_agent_was_to_be_made_there(restarts, monkeypatch):
    """Its creation is lost, and the name told anew; the registry has still the number of it, and its home what it has
    heard."""
    bus = Bus(made(ROUTER))
    bus.pump()
    bus.servers["b"].names.declare(GROUP, Group.path, b"")
    monkeypatch.setitem(bus.servers["b"].engine.entering, CREATE, lambda *_: False)
    bus.pump()
    assert {server.names.known[GROUP] for server in bus.servers.values()} == {ID}
    for name in restarts:
        bus.crash(name)
        bus.boot(name)
        for peer in "bc" if name == "a" else "ac":
            bus.join(name, peer)
        bus.pump()
    a, b = bus.servers["a"].names, bus.servers["b"].names
    assert b.heard > a.made[GROUP] > 0 and not b.made
    bus.servers["a"].newcomers.tell_tables(["b"])
    bus.pump()
    assert not [name for name, server in bus.servers.items() if GROUP in server.names.known]
    assert not a.made and not bus.stores["a"].meta("made:")


@pytest.mark.parametrize("here", [True, False])
def test_what_comes_to_nothing_on_its_way_to_a_group_frees_no_name_of_one_that_is_there(here):
    """What a has asked of a group of b waits at b for what only c had."""
    bus = Bus(made(ROUTER))
    bus.pump()
    a, b = bus.servers["a"], bus.servers["b"]
    if here:
        b.names.declare(GROUP, Group.path, b"")
    else:
        for server in bus.servers.values():
            server.names._named(GROUP, ID, "b")
    bus.pump()
    bus.cut("b", "c")
    bus.send("c", ["a/a", "b/b"], Put("first"))
    a.natives.post("a/a", ID, Place("text", b""))
    bus.pump()
    bus.crash("c")
    for domain, server in (("x", "a"), ("y", "d")):
        lose(bus, "c", domain, server)
    replace_store(bus, "c", "a")
    (drop,) = [record for record in bus.records("b", "drop") if record["agent"] == ID]
    assert drop["detail"] == "it waited for what only c had, which is lost: it was not delivered"
    assert (ID in b.natives.agents) is here
    assert {server.names.known.get(GROUP) for server in bus.servers.values()} == {ID if here else None}


def test_who_has_not_heard_that_names_are_free_is_told_of_each_once_as_far_as_that_is_kept(monkeypatch):
    bus = Bus(made(ROUTER))
    bus.pump()
    names, asked = bus.servers["b"].names, list[str]()
    monkeypatch.setattr(names, "ask", lambda type, payload: asked.append(f"{type} {payload.decode()}"))
    for number in [*range(MOST_DOUBTED), *range(MOST_DOUBTED)]:
        names.outdated(f"group:{number}", f"b/group:{number}", "d")
    assert len(names.doubted) == len({*asked}) == len(asked) == MOST_DOUBTED == 1_000
    assert asked[7] == "_outdated group:7\nb/group:7\nd/_names"
    names.outdated("group:one more", "b/group:one more", "d")
    names.outdated("group:7", "b/group:7", "d")  # what was kept is forgotten, so it is told once more
    assert len(names.doubted) == 2 and asked[MOST_DOUBTED + 1] == asked[7]


def test_nobody_is_made_for_who_did_not_know_that_another_one_has_begun():
    bus = Bus(made(ROUTER))
    bus.pump()
    sink = SINKS["b/b"]
    bus.servers["b"].newcomers.unmet.append("a")
    bus.ask("b", "deploy", name="early", server="b", fields={}, **{"class": sink})
    assert bus.stores["b"].agent("b/early") is None
    assert [record["detail"] for record in bus.records("b", "drop")] == ["it was for the former b, which is lost"]
    bus.servers["b"].newcomers.unmet.clear()
    bus.ask("b", "deploy", name="later", server="b", fields={}, **{"class": sink})
    assert bus.stores["b"].agent("b/later") is not None


def test_a_newcomer_whose_sponsor_is_lost_too_early_says_what_to_do_and_begins_anew():
    bus = Bus(made(ROUTER))
    bus.pump()
    bus.crash("d")
    lose(bus, "d", "y", "e")
    sponsor = bus.servers["a"].lost.known["d"][1]
    (other,) = {"c", "e"} - {sponsor}
    bus.cut("d", sponsor)
    replace_store(bus, "d", sponsor, joins=[other])
    assert bus.servers["d"].newcomers.waiting and not bus.ask("d", "status")["problems"]
    bus.crash(sponsor)
    for domain, server in (("y", other), ("x", "a")) if sponsor == "c" else (("y", other),):
        lose(bus, sponsor, domain, server, 2)
    replace_store(bus, sponsor, bus.servers["a"].lost.known[sponsor][1])
    (problem,) = bus.ask("d", "status")["problems"]
    assert "run `mom server lost d`" in problem
    bus.crash("d")
    bus.boot("d")
    for peer in (other, sponsor):
        bus.join("d", peer)
    bus.pump()
    assert bus.ask("d", "status")["problems"] == [problem], "it is known after a restart"
    bus.crash("d")
    lose(bus, "d", "y", other, 3)
    replace_store(bus, "d", bus.servers["a"].lost.known["d"][1])
    assert not bus.servers["d"].newcomers.waiting and not bus.ask("d", "status")["problems"]
    everyone_hears(bus, "after")


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_in_force_is_told_again_though_it_is_not_durable_yet(restarts):
    """A server is lost in the first moments of the registry."""
    bus = Bus(topology({"x": "abc"}))
    if restarts:
        bus.pump()
        bus.crash("a")
        bus.boot("a")
    truth = bus.servers["a"].truth
    truth.retell(["b"])
    meta = truth.tx.reader.meta("revision:") | truth.tx.rows.meta
    assert truth.since == json.loads(meta["revision:1"])[0] > 0
    bus.pump()
    assert bus.servers["b"].truth.number == 1
