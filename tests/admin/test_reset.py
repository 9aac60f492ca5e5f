"""A lost store, and a changed topology: the bus goes on, and the report says what did not."""

from functools import partial

import pytest

from mombroker.admin.reset import adopt, plan
from mombroker.core.errors import MomError, PeerRefused
from mombroker.core.meta import CHANGE, MARK, NEXT, PLAN, VIEWS
from mombroker.core.revision import history, in_force, text_of
from mombroker.core.status import why
from mombroker.core.topology import Topology
from mombroker.store.memory import MemoryStore
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Tell

AGENTS = "tests.core.sample_agents"
RING = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"]]
DOMAINS = {"x": "abr", "y": "rcd"}
SINKS = {f"{server}/sink-{server}": f"{AGENTS}:Sink" for server in "abcdr"}


def bus() -> Bus:
    made = Bus(
        topology(DOMAINS, {"a/source": f"{AGENTS}:Source", "c/far": f"{AGENTS}:Source"} | SINKS, allow=("tests",))
    )
    made.pump()
    return made


def tell(bus: Bus, text: str, *to: str, source: str = "source") -> None:
    bus.send("a" if source == "source" else "c", source, Tell([f"sink-{server}" for server in to], text))


def got(bus: Bus, server: str) -> list[str]:
    return bus.fields(f"{server}/sink-{server}")["got"]


def reset_bus(b: Bus, lost: str) -> dict:
    for name in list(b.servers):
        b.crash(name)
    b.stores[lost] = MemoryStore(b.topology, lost, "a new store")
    made = plan(b.topology, lost, b.stores, b.program, b.now)
    made.commit(b.stores)
    report = made.report.as_dict()
    for name in b.topology.servers:
        b.boot(name)
    b.down.clear()
    b.pump()
    return report


def test_a_router_that_lost_its_store_returns_and_causal_order_goes_on():
    b = bus()
    tell(b, "before", *"abcdr")
    b.cut("a", "r")
    b.cut("b", "r")
    tell(b, "caught", *"bcr")
    report = reset_bus(b, "r")
    assert report["domains"] == ["x", "y"]
    assert {(dead["at"], dead["agent"]) for dead in report["dead"]} == {
        ("a", "c/sink-c"), ("a", "r/sink-r"),
    }  # fmt: skip
    assert {lost["agent"] for lost in report["lost"]} >= {"r/sink-r", "c/sink-c"}
    assert got(b, "b") == ["before", "caught"]
    tell(b, "after", *"abcdr")
    tell(b, "back", *"abcdr", source="far")
    assert got(b, "c") == ["before", "after", "back"]
    assert got(b, "r") == ["after", "back"], "its agents were lost with the store"
    news = b.fields("a/source")["news"]
    assert sum("ReactionFailed" in line and "started anew" in line for line in news) == 2
    assert not [wait for server in b.servers.values() for wait in why(server)]


def test_neither_ids_nor_views_of_the_lost_store_are_numbered_again():
    """What comes late from a view of a group there would be taken for a word of the new one's."""
    b = bus()
    reset_bus(b, "r")
    meta = b.stores["r"].meta()
    assert meta[VIEWS] == b.now // 1000 <= meta[NEXT]


def test_what_is_held_for_a_lost_leaf_becomes_dead_letters():
    """1. d tells b's domain something that c never gets. 2. c holds what r sends on top of it. 3. d's disk is gone."""
    b = Bus(topology({"y": "rcd"}, {"d/source": f"{AGENTS}:Source", "r/far": f"{AGENTS}:Source"} | {
        f"{server}/sink-{server}": f"{AGENTS}:Sink" for server in "rcd"
    }))  # fmt: skip
    b.pump()
    b.cut("c", "d")
    b.send("d", "source", Tell(["sink-c"], "cause"))
    b.send("d", "source", Tell(["r/far"], "heard"))
    b.send("r", "far", Tell(["sink-c"], "effect"))
    assert got(b, "c") == []
    report = reset_bus(b, "d")
    assert [(dead["at"], dead["agent"]) for dead in report["dead"]] == [("c", "c/sink-c")]
    assert got(b, "c") == []
    b.send("r", "far", Tell(["sink-c", "sink-d"], "new"))
    assert got(b, "c") == got(b, "d") == ["new"]


@pytest.mark.parametrize(
    "order",
    [
        ("matrix", {}), ("rst", {}), ("ks", {}), ("vector", {}), ("overlay", {}), ("overlay", {"links": RING}),
        ("daisy", {}), ("daisy", {"groups": [["a", "b"], ["c", "d"]], "connectors": ["d"], "relay": "stable"}),
    ],
    ids=["matrix", "rst", "ks", "vector", "overlay", "ring", "daisy", "connector"],
)  # fmt: skip
def test_a_lost_member_under_any_ordering(order):
    """d has told others, and they each other; then it is gone. What waits for it becomes dead letters, each once."""
    sinks = {f"{server}/sink-{server}": f"{AGENTS}:Sink" for server in "abcd"}
    sources = {"a/source": f"{AGENTS}:Source", "d/far": f"{AGENTS}:Source"}
    b = Bus(topology({"x": "abcd"}, sources | sinks, {"x": order}))
    b.pump()
    for number in range(3):
        b.send("d", "far", Tell([f"sink-{server}" for server in "abc"], f"d{number}"))
        tell(b, f"a{number}", *"bcd")
    b.crash("d")
    tell(b, "for d", "d")
    tell(b, "for c and d", *"cd")
    report = reset_bus(b, "d")
    dead = [(each["message"], each["agent"]) for each in report["dead"]]
    assert len(dead) == len(set(dead)) and [agent for _, agent in dead].count("d/sink-d") == 2
    connector = order[1].get("relay") == "stable"  # then nothing comes to c
    assert [agent for _, agent in dead].count("c/sink-c") == connector
    assert got(b, "c") == ["d0", "a0", "d1", "a1", "d2", "a2", *([] if connector else ["for c and d"])]
    assert len([line for line in b.fields("a/source")["news"] if "ReactionFailed" in line]) == len(dead)
    tell(b, "new", *"bcd")
    assert got(b, "d") == ["new"] and got(b, "c")[-1] == got(b, "b")[-1] == "new"


def test_a_reset_that_was_cut_short_is_refused_by_the_peers_and_may_be_repeated():
    b = bus()
    tell(b, "before", *"abcdr")
    for name in list(b.servers):
        b.crash(name)
    copy = b.stores["b"].snapshot()
    b.stores["r"] = MemoryStore(b.topology, "r", "a new store")
    plan(b.topology, "r", b.stores, b.program, b.now).commit(b.stores)
    b.stores["b"].restore(copy)  # as if the process had died before it came to b
    for name in b.topology.servers:
        b.boot(name)
    with pytest.raises(PeerRefused, match="some servers only"):
        b.servers["a"].neighbours.admit(b.servers["b"].neighbours.greet("a"))
    reset_bus(b, "r")
    tell(b, "after", *"abcdr")
    assert got(b, "b") == ["before", "after"]


def test_a_deployed_name_that_lived_on_the_lost_server_is_forgotten_and_the_others_are_known_to_its_successor():
    b = bus()
    for name, server in (("here", "a"), ("gone", "r")):
        b.ask("a", "deploy", **{"name": name, "class": f"{AGENTS}:Sink", "server": server})
    report = reset_bus(b, "r")
    assert report["names"] == ["gone"]
    assert all("gone" not in server.names.known for server in b.servers.values())
    assert b.servers["r"].names.known["here"] == "a/here"


def test_reset_needs_all_stores():
    b = bus()
    b.stores.pop("a")
    with pytest.raises(MomError, match="a not found"):
        plan(b.topology, "r", b.stores, b.program, b.now)


def restart(b: Bus, changed: Topology) -> None:
    for name in list(b.servers):
        b.crash(name)
    for name in changed.servers:
        if name not in b.stores:
            b.stores[name] = MemoryStore(changed, name, f"store of {name}")
    adopt(changed, b.stores)
    b.topology = changed
    for name in changed.servers:
        b.boot(name)
    b.pump()


def declared(*more: str) -> dict[str, str]:
    return {"a/source": f"{AGENTS}:Source", "c/far": f"{AGENTS}:Source"} | SINKS | {
        f"{server}/sink-{server}": f"{AGENTS}:Sink" for server in more
    }  # fmt: skip


def test_a_new_domain_is_attached_while_messages_are_under_way():
    b = bus()
    b.ask("a", "deploy", **{"name": "here", "class": f"{AGENTS}:Sink", "server": "a"})
    b.cut("a", "r")
    tell(b, "under way", *"cd")
    b.down.clear()
    restart(b, topology(DOMAINS | {"z": "def"}, declared(*"ef"), allow=("tests",)))
    tell(b, "new", *"def")
    assert got(b, "d") == ["under way", "new"] and got(b, "e") == got(b, "f") == ["new"]
    assert b.servers["f"].names.known["here"] == "a/here"
    revisions = [list(history(store.meta()).items()) for store in b.stores.values()]
    assert [rows[0][0] for rows in revisions] == [2] * len(b.stores)
    assert revisions[0][0][1][2][:2] == ["+ server e at 127.0.0.1:1004", "+ server f at 127.0.0.1:1005"]


def test_adopting_again_makes_no_other_revision_and_one_that_was_cut_short_makes_one_for_all():
    b = bus()
    restart(b, b.topology)
    assert {in_force(store.meta())[0] for store in b.stores.values()} == {1}
    wide = topology(DOMAINS | {"z": "de"}, declared("e"), allow=("tests",))
    before = b.stores["a"].snapshot()
    restart(b, wide)
    b.crash("a")
    b.stores["a"].disk = before  # its turn had not come
    restart(b, wide)
    assert {in_force(store.meta()) for store in b.stores.values()} == {(3, text_of(wide))}


def test_a_reset_by_a_file_of_other_domains_is_refused():
    b = bus()
    other = topology(DOMAINS | {"z": "de"}, declared("e"), allow=("tests",))
    stores = {**b.stores, "e": MemoryStore(other, "e", "store of e")}
    with pytest.raises(MomError, match=r"has revision 1 of the topology, and the file is of another one \(\+ server e"):
        plan(other, "r", {name: store for name, store in stores.items() if name != "r"}, b.program, b.now)


def test_a_changed_domain_needs_a_bus_at_rest_and_starts_its_clocks_anew():
    b = bus()
    tell(b, "before", *"abcdr")
    b.cut("a", "b")
    tell(b, "under way", "b")
    grown = topology({"x": "abre", "y": "rcd"}, declared("e"), allow=("tests",))
    with pytest.raises(MomError, match="1 packet waits in a for b"):
        restart(b, grown)
    b.down.clear()
    for name in b.topology.servers:
        b.boot(name)
    b.pump()
    restart(b, grown)
    tell(b, "after", *"abcdre")
    assert got(b, "b") == ["before", "under way", "after"] and got(b, "e") == ["after"]


# -- in the middle of a change of the domains --------------------------------------------------------------------------

NEW = {"x": "abr", "y": "rcd"}  # by other back ends


def changing(until, registry="a"):
    """A bus whose registry is lost in the middle of a change: when one of the others is `until`."""
    b = bus()
    tell(b, "before", *"abcdr")
    new = topology(NEW, SINKS | {"a/source": f"{AGENTS}:Source", "c/far": f"{AGENTS}:Source"}, {
        "x": ("ks", {}), "y": ("rst", {})
    }, allow=("tests",))  # fmt: skip
    stop = dict.fromkeys("bcdr", until)
    for name, server in b.servers.items():
        server.change._may_switch = partial(may_switch, stop.get(name, "switched"), server.change._may_switch)
    b.ask("a", "apply_topology", text=text_of(new), revision=1)
    return b, new


def may_switch(until, really, plan):
    return until != "frozen" and really(plan)


def at_rest(b):
    for name, store in b.stores.items():
        assert not [key for key in store.meta() if key.startswith((PLAN, CHANGE, MARK))], name
        assert not len(b.servers[name].channel.gate)


def test_a_change_that_its_lost_registry_has_begun_goes_back():
    b, _ = changing("frozen")
    b.stores["a"].restore(b.stores["a"].snapshot())
    b.send("c", "far", Tell(["sink-b", "sink-d"], "waits"))
    assert {b.servers[name].change.status()["phase"] for name in "bcdr"} == {"frozen"}
    assert got(b, "b") == ["before"]
    report = reset_bus(b, "a")
    assert report["notes"] == ["the change to revision 2 of the topology was given up: apply it again"]
    assert {server.truth.number for server in b.servers.values()} == {1}
    at_rest(b)
    assert got(b, "b") == ["before", "waits"] and got(b, "d") == ["before", "waits"]
    tell(b, "after", *"abcdr")
    assert got(b, "c")[-1] == got(b, "a")[-1] == "after"


def test_adopt_is_refused_in_the_middle_of_a_change():
    b, new = changing("frozen")
    for name in list(b.servers):
        b.crash(name)
    with pytest.raises(MomError, match="a change of the domains is under way in a, b, c, d, r"):
        adopt(new, b.stores)


def test_a_change_that_somebody_has_carried_out_is_ended_when_its_registry_is_lost():
    b, new = changing("switched")
    for name in "cdr":
        assert b.servers[name].truth.number == 2
    b, new = changing("frozen")
    b.servers["b"].change._may_switch = lambda plan: True  # as if c, d and r had died before they could, too
    b.send("c", "far", Tell(["sink-b", "sink-d"], "waits"))
    assert [b.servers[name].truth.number for name in "bcdr"] == [2, 1, 1, 1]
    with pytest.raises(MomError, match="the store of b has revision 2"):
        reset_bus(b, "a")
    b.topology = new
    report = reset_bus(b, "a")
    assert report["notes"] == ["the change to revision 2 of the topology was ended"]
    assert {server.truth.number for server in b.servers.values()} == {2}
    at_rest(b)
    assert got(b, "b") == ["before", "waits"] and got(b, "d") == ["before", "waits"]
    tell(b, "after", *"abcdr")
    assert got(b, "c")[-1] == got(b, "a")[-1] == "after"
