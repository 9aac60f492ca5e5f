"""The domains of a bus by hand change while it works: the freeze, from the request to the last entry at a gate."""

from unittest.mock import patch

import pytest

from mombroker import ordering
from mombroker.admin.audit import bus as audit
from mombroker.broker.commands import Subscribe
from mombroker.broker.queue.queue import Queue
from mombroker.core import lost_inside
from mombroker.core.errors import MomError, PeerError
from mombroker.core.events import Admin, ClientCommands, ClientOpened, StoreSize
from mombroker.core.ids import created_id
from mombroker.core.message import new_message
from mombroker.core.meta import CHANGE, MARK, PLAN
from mombroker.core.names import CREATE
from mombroker.core.reconfiguration import ANSWER, FORGET, FREEZE, MARKED, READY, SWITCHED, Reconfiguration
from mombroker.core.revision import EPOCH_BITS, digest_of, text_of
from mombroker.core.topology import Domain
from mombroker.sim.domains import without_clashes
from tests.core.bus import SECOND, Bus, everyone_hears, topology
from tests.core.sample_agents import Put

AGENTS = "tests.core.sample_agents"
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast")
SINKS = {f"{server}/{server}": f"{AGENTS}:Sink" for server in "abcde"}
OLD = {"x": "abc", "y": "cd", "z": "de"}
NEW = {"x": "ab", "y": "bcd", "z": "de"}


def made(domains, backend="matrix"):
    chosen = {name: Domain(name, tuple(those), backend) for name, those in domains.items() if len(those) > 2}
    return topology(domains, SINKS, {name: (each.backend, {}) for name, each in without_clashes(chosen).items()})


def apply(bus, domains, server="a", backend="matrix"):
    return bus.ask(server, "apply_topology", text=text_of(made(domains, backend)), revision=number(bus))


def number(bus):
    return max(server.truth.number for server in bus.servers.values())


def at_rest(bus, revision):
    for name, server in bus.servers.items():
        assert server.truth.number == revision, name
        assert server.change.plan is None and not server.channel.gate.behind and not len(server.channel.gate)
        meta = bus.stores[name].meta()
        assert not [key for key in meta if key.startswith((MARK, PLAN, CHANGE))]


@pytest.mark.parametrize("asked", "abe")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_domains_of_a_bus_change(asked, backend):
    bus = Bus(made(OLD, backend))
    bus.pump()
    everyone_hears(bus, "before")
    assert apply(bus, NEW, asked, backend) == {"revision": 2, "begun": True}
    at_rest(bus, 2)
    assert set(bus.servers["b"].channel.domains) == {"x", "y"}
    everyone_hears(bus, "after")
    for name in "abcde":
        bus.crash(name)
        bus.boot(name)
    everyone_hears(bus, "again")
    assert apply(bus, OLD, asked, backend) == {"revision": 3, "begun": True}
    at_rest(bus, 3)
    everyone_hears(bus, "back")


# -- while it is under way ---------------------------------------------------------------------------------------------


def frozen(backend="matrix"):
    """A bus whose change stands still: c is cut off from d as soon as all have said that they can."""
    bus = Bus(made(OLD, backend))
    bus.pump()
    everyone_hears(bus, "before")
    coordinator = bus.servers["a"].coordinator
    tell = coordinator._tell

    def cut(type):
        if type == FREEZE:
            bus.cut("c", "d")
        tell(type)

    coordinator._tell = cut
    assert apply(bus, NEW, "a", backend) == {"revision": 2, "begun": True}
    return bus


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_enters_waits_and_others_go_on(backend):
    bus = frozen(backend)
    bus.send("a", ["a/a", "b/b", "d/d", "e/e"], Put("waits"))
    bus.send("e", ["d/d", "c/c"], Put("from outside"))
    bus.send("e", ["d/d", "e/e"], Put("passes"))
    status = {name: server.change.status() for name, server in bus.servers.items()}
    assert [status[name]["phase"] for name in "abcde"] == ["frozen", "frozen", "frozen", "ready", ""]
    assert [row["gate"] for row in status.values()] == [1, 0, 0, 0, 0]
    assert "the mark of d" in status["a"]["waits_for"]
    own = ordering.backend(backend).own  # then a copy for a itself waits with the others
    assert ("waits" in bus.fields("a/a")["got"]) != own and "waits" not in bus.fields("b/b")["got"]
    assert {"passes", "from outside"} <= set(bus.fields("d/d")["got"])
    found = audit.audit(bus.topology, bus.stores)
    assert found.clean and found.waiting
    for name in "abcde":  # nothing of that is in memory alone
        bus.crash(name)
        bus.boot(name)
    bus.join("c", "d")
    bus.pump()
    at_rest(bus, 2)
    assert "waits" in bus.fields("b/b")["got"] and "from outside" in bus.fields("c/c")["got"]
    assert audit.audit(bus.topology, bus.stores).clean
    everyone_hears(bus, "after")


def test_a_gate_that_is_full_holds_clients_back():
    bus = frozen()
    server = bus.servers["a"]
    server.limits.max_gate = 3
    for n in range(3):
        bus.send("a", "b/b", Put(str(n)))
    assert server.tx.full and "max_gate is 3" in server.alarms.why()[0]
    assert "takes no work" in bus.send("a", "b/b", Put("one too many"))
    bus.join("c", "d")
    bus.pump()
    assert not server.tx.full and bus.fields("b/b")["got"][-3:] == ["0", "1", "2"]


def test_a_change_that_has_begun_is_not_aborted_and_no_other_begins():
    bus = frozen()
    assert "has begun, and goes on by itself" in bus.ask("a", "topology_abort")
    told, status = digest_of(text_of(made(NEW))), bus.ask("b", "topology_status")
    assert status["digest"] == told == bus.ask("a", "topology_status")["bus"]["digest"] and status["phase"] == "frozen"
    assert "is under way, and waits for a, b, c and d" in apply(bus, {"x": "abcde"})
    assert "ask it to abort" in bus.ask("b", "topology_abort")


def test_a_change_that_has_not_begun_is_aborted():
    bus = Bus(made(OLD))
    bus.pump()
    bus.cut("c", "d")
    assert apply(bus, NEW) is None
    assert bus.servers["c"].change.status()["phase"] == "ready"
    assert bus.ask("a", "topology_status")["bus"]["waits_for"] == ["d"]
    assert bus.ask("a", "topology_abort") == {"change": 2}
    bus.join("c", "d")
    bus.pump()
    at_rest(bus, 1)
    assert "no change of the domains is under way" in bus.ask("a", "topology_abort")
    assert apply(bus, NEW) == {"revision": 2, "begun": True}
    at_rest(bus, 2)


def test_who_does_not_answer_in_time_ends_a_change_before_it_begins():
    bus = Bus(made(OLD))
    bus.pump()
    bus.cut("c", "d")
    ticket = next(bus.numbers)
    bus.servers["a"].step(Admin(ticket, "apply_topology", {"text": text_of(made(NEW)), "revision": 1}), bus.now)
    bus.pump()
    bus.crash("a")
    bus.boot("a")  # the registry, which knows it still
    bus.later(4.5)
    assert bus.servers["a"].coordinator.run is None
    bus.join("c", "d")
    bus.pump()
    at_rest(bus, 1)


@pytest.mark.parametrize("server", "abd")
def test_a_disk_that_is_too_full_ends_a_change_before_it_begins(server):
    bus = Bus(made(OLD))
    bus.pump()
    bus.servers[server].step(StoreSize(1, free=1, disk=1000), bus.now)
    assert apply(bus, NEW, "c").startswith(f"{server} takes no work, since it lacks room: see `mom status`")
    at_rest(bus, 1)
    bus.servers[server].step(StoreSize(1, free=999, disk=1000), bus.now)
    assert apply(bus, NEW, "c") == {"revision": 2, "begun": True}
    at_rest(bus, 2)


@pytest.mark.parametrize("down", "abcd")
def test_whoever_dies_after_the_freeze_is_only_waited_for(down):
    bus = frozen()
    bus.crash(down)
    bus.down.clear()
    bus.pump()
    assert {server.truth.number for server in bus.servers.values()} == {1}
    bus.boot(down)
    for peer in "abcde":
        if peer != down and bus.servers[down].topology.shared_domain(down, peer):
            bus.join(down, peer)
    bus.join("c", "d")
    bus.pump()
    at_rest(bus, 2)
    everyone_hears(bus, "after")


def test_a_back_end_that_a_server_has_not_is_refused_before_anything_changes(monkeypatch):
    bus = Bus(made(OLD))
    bus.pump()
    backend = ordering.backend

    def lacks(name):
        if name == "ks":
            raise MomError("no ordering back end is named 'ks'")
        return backend(name)

    monkeypatch.setattr(ordering, "backend", lacks)
    assert "cannot be ordered by ks" in apply(bus, {"x": "abc", "y": "cde"}, backend="ks")
    at_rest(bus, 1)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", b'["x",2,0,""]', b'[1,2,3,"no text"]', b"[[[[", b'[0,1,1,""]'])
def test_what_a_neighbour_cannot_mean_changes_nothing(payload):
    bus = Bus(made(OLD))
    bus.pump()
    server = bus.servers["a"]
    for type in (READY, FREEZE, FORGET, MARKED, ANSWER, SWITCHED):
        server.channel.send(new_message(server.tx, "a/_change", ("b/_change",), type, payload))
        try:
            bus.pump()
        except PeerError:
            bus = Bus(made(OLD))
            bus.pump()
            server = bus.servers["a"]
    assert bus.servers["b"].change.plan is None and bus.servers["b"].truth.number == 1


# -- a server leaves ---------------------------------------------------------------------------------------------------

LEAVING = [
    ({"x": "abc", "y": "cd", "z": "def"}, {"x": "abc", "y": "cd", "z": "de"}),  # at an end
    ({"x": "abc", "y": "cf", "z": "fde"}, {"x": "abc", "y": "cde"}),  # a router
    ({"x": "abcde", "y": "ef"}, {"x": "abcde"}),  # with its domain
    ({"x": "abcde", "y": "efg"}, {"x": "abcde"}),  # two of them
]


def is_out(bus, *gone):
    for name in gone:
        server = bus.servers[name]
        assert server.truth.number == 2 and not server.channel.domains and list(server.topology.servers) == [name]
        bus.crash(name)
        with pytest.raises(MomError, match="has left the bus with revision 2"):
            bus.boot(name)
        del bus.stores[name]


@pytest.mark.parametrize("old, new", LEAVING)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_holds_nothing_leaves(backend, old, new):
    bus = Bus(made(old, backend))
    bus.pump()
    gone = [name for name in "fg" if name in bus.servers]
    bus.send("a", [f"{name}/{name}" for name in "abcde"], Put("before"))
    assert apply(bus, new, "a", backend) == {"revision": 2, "begun": True}
    is_out(bus, *gone)
    at_rest(bus, 2)
    everyone_hears(bus, "after")


@pytest.mark.parametrize("old, new", LEAVING[:3])
def test_a_server_that_leaves_and_dies_meanwhile_is_out_in_the_end(old, new):
    bus = Bus(made(old))
    bus.pump()
    switch = Reconfiguration._switch

    def dies(change, plan):
        if change.tx.name != "f":
            switch(change, plan)

    with patch.object(Reconfiguration, "_switch", dies):
        assert apply(bus, new) == {"revision": 2, "begun": True}
    assert {name: server.truth.number for name, server in bus.servers.items()} == dict.fromkeys("abcde", 2) | {"f": 1}
    bus.crash("f")
    bus.boot("f")
    bus.pump()
    is_out(bus, "f")
    at_rest(bus, 2)
    everyone_hears(bus, "after")


def test_a_server_that_holds_something_cannot_leave():
    old, new = LEAVING[0]
    bus = Bus(made(old))
    bus.pump()
    bus.ask("f", "create_queue", destination="queue:kept")
    said = apply(bus, new)
    assert said.startswith("f cannot leave, and holds queue:kept: move that or delete it first, or give it up by")
    bus.ask("f", "delete_destination", destination="queue:kept")
    bus.servers["f"].step(ClientOpened(9, "", session="f/9"), bus.now)
    assert "f cannot leave, and holds 1 connection of clients" in apply(bus, new)
    at_rest(bus, 1)
    assert "have that in two plans" in apply(bus, {"x": "abcq", "y": "cd", "z": "def"})


def deploying(domains):
    """With an agent at e that keeps what comes back to it."""
    orderings = {name: ("matrix", {}) for name in domains if len(domains[name]) > 2}
    return topology(domains, SINKS | {"e/source": f"{AGENTS}:Source"}, orderings, allow=(AGENTS,))


@pytest.mark.parametrize("old, new", LEAVING[:3])
def test_the_name_of_an_agent_that_was_deleted_does_not_keep_its_server(old, new):
    """The agent does, while it is there. What is under way to it when its server is asked comes back to its sender, and
    when the server has left the name is free."""
    bus, changed = Bus(deploying(old)), {"text": text_of(deploying(new)), "revision": 1}
    bus.pump()
    sink = {"class": f"{AGENTS}:Sink", "name": "gone"}
    assert bus.ask("b", "deploy", **sink, server="f") == {"name": "gone", "agent": "f/gone"}
    assert "f cannot leave, and holds gone" in bus.ask("a", "apply_topology", **changed)
    assert [row["name"] for row in bus.ask("f", "holdings")["holdings"]] == ["f/gone"]
    bus.ask("b", "delete", agent="gone")
    assert not bus.ask("f", "holdings")["holdings"] and bus.servers["a"].names.known["gone"] == "f/gone"
    bus.crash("f")
    bus.boot("f")
    bus.pump()
    refusal = Reconfiguration._refusal

    def sends(change, plan):
        if change.tx.name == "e":
            payload = bus.program.compose(Put.__wire_name__, {"text": "late"})
            bus.servers["e"].channel.send(new_message(change.tx, "e/source", ("f/gone",), Put.__wire_name__, payload))
        return refusal(change, plan)

    with patch.object(Reconfiguration, "_refusal", sends):
        assert bus.ask("a", "apply_topology", **changed) == {"revision": 2, "begun": True}
    assert bus.fields("e/source")["news"] == ["created", "UnknownAgent f/gone unknown agent"]
    is_out(bus, "f")
    at_rest(bus, 2)
    assert not [name for name in "abcde" if "gone" in bus.servers[name].names.known]
    assert bus.ask("b", "deploy", **sink, server="c") == {"name": "gone", "agent": "c/gone"}
    everyone_hears(bus, "after")


def about_to_leave(old, new):
    """f has said that it can leave, and e, which is down, has still to answer."""
    makers = SINKS | {"b/maker": f"{AGENTS}:Source"}

    def of(domains, agents):
        orderings = {name: ("matrix", {}) for name in domains if len(domains[name]) > 2}
        total = [{"match": "topic:one", "order": "total"}]
        return topology(domains, agents, orderings, allow=(AGENTS,), policies=total)

    bus = Bus(of(old, makers | {"f/cart.*": f"{AGENTS}:Sink"}))
    bus.pump()
    for verb, what in (("create_queue", "queue:moves"), ("create_topic", "topic:one")):
        assert "agent" in bus.ask("b", verb, destination=what)
    bus.crash("e")
    return bus, {"text": text_of(of(new, makers)), "revision": 1}


def restarted(bus, *names):
    for name in names:
        bus.crash(name)
        bus.boot(name)
    bus.pump()


def back(bus):
    """e is up again, and so goes on what waits for it."""
    bus.boot("e")
    for peer in "cdf":
        if peer in bus.servers and bus.servers["e"].topology.shared_domain("e", peer):
            bus.join("e", peer)
    bus.pump()


def placing(bus, name):
    """What is said to whoever places something on f."""
    sink, agent = {"class": f"{AGENTS}:Sink", "name": f"{name}.a"}, new_message(bus.servers["b"].tx, "", (), "", b"")
    said = [bus.ask(server, "deploy", **sink, server="f") for server in "abf"]
    said.append(bus.ask("f", "create_queue", destination=f"queue:{name}.b"))
    bus.ask("b", "move_destination", destination="queue:moves", to="f")
    bus.ask("b", "move_topic", destination="topic:one", to="f")
    bus.ask("b", "move_agent", agent="b/b", to="f")
    tx, id = bus.servers["b"].tx, created_id("f", "b", agent.number)
    payload = f"{AGENTS}:Sink\n".encode() + bus.program.initial(f"{AGENTS}:Sink", {})
    bus.servers["b"].channel.send(new_message(tx, "b/maker", (id,), CREATE, payload))
    words = bus.program.compose(Put.__wire_name__, {"text": "kept"})
    bus.servers["b"].channel.send(new_message(tx, "b/maker", (f"f/cart.{name}",), Put.__wire_name__, words))
    bus.servers["f"].names.declare(f"queue:{name}.c", Queue.path, b"")
    bus.pump()
    return said, id


def homes(bus):
    known = bus.servers["b"].names.known
    return [known["queue:moves"], known["topic:one"], bus.servers["b"].names.homes.home("b/b")]


@pytest.mark.parametrize("again", ["", "a", "f", "af"])
@pytest.mark.parametrize("old, new", LEAVING[:2])
def test_nothing_is_placed_on_a_server_that_is_about_to_leave(old, new, again):
    """Neither by the registry, with what it decides, nor by others, who are told."""
    bus, changed = about_to_leave(old, new)
    assert bus.ask("a", "apply_topology", **changed) is None
    assert bus.servers["f"].change.leaving()
    restarted(bus, *again)
    (one, two, *at_f), id = placing(bus, "lost")
    said = (
        "f leaves the bus with the change to revision 2 of the topology, which is under way: make lost.a on another "
        "server, or give the change up by `mom topology abort`"
    )
    assert [one, two] == [said, said]
    assert at_f == [
        "f is leaving its bus, and what it is asked for could be lost: ask another server",
        one.replace("lost.a", "queue:lost.b"),
    ]
    assert "ask another server" in bus.send("f", "b/b", Put("late")) and "leaving" in bus.ask("f", "delete", agent="b")
    assert homes(bus) == ["b/queue:moves", "b/topic:one", "b"]
    assert not [each for each in bus.servers["b"].natives.agents.values() if getattr(each, "move", None)]
    assert bus.ask("b", "agent", agent="b/b")["moving"] == ""
    assert [row["kind"] for row in bus.ask("f", "holdings")["holdings"]] == ["dead letters"]
    restarted(bus, *again)
    back(bus)
    is_out(bus, "f")
    at_rest(bus, 2)
    news = bus.fields("b/maker")["news"]
    assert sorted(news) == sorted([
        "created", f"UnknownAgent {id} f is leaving its bus: choose another server",
        "UnknownAgent f/cart.lost unknown agent",
    ])  # fmt: skip
    assert not [name for name in bus.servers["b"].names.known if "lost" in name]
    assert homes(bus) == ["b/queue:moves", "b/topic:one", "b"]
    everyone_hears(bus, "after")


@pytest.mark.parametrize("again", ["", "af"])
@pytest.mark.parametrize("old, new", LEAVING[:2])
def test_a_server_that_was_to_leave_and_stays_takes_all_again(old, new, again):
    """What the broker itself asked for meanwhile, too."""
    bus, changed = about_to_leave(old, new)
    assert bus.ask("a", "apply_topology", **changed) is None
    placing(bus, "lost")
    assert bus.ask("a", "topology_abort") == {"change": 2}
    restarted(bus, *again)
    back(bus)
    (one, *_), id = placing(bus, "kept")
    assert one == {"name": "kept.a", "agent": "f/kept.a"}
    assert homes(bus) == ["f/queue:moves", "f/topic:one", "f"]
    assert bus.servers["b"].names.known["queue:kept.c"] == "f/queue:kept.c"
    assert bus.fields("f/cart.kept")["got"] == ["kept"] and bus.stores["f"].agent(id)
    assert "f cannot leave, and holds" in bus.ask("a", "apply_topology", **changed)
    at_rest(bus, 1)


def test_what_is_new_on_a_server_that_is_drained_to_one_that_leaves_is_made_there():
    bus, changed = about_to_leave(*LEAVING[0])
    assert bus.ask("a", "apply_topology", **changed) is None
    assert bus.ask("c", "drain", to="f") == {"server": "c", "draining": "f", "moving": 1}
    assert bus.servers["b"].names.homes.home("c/c") == "c"
    for name in ("queue:early", "queue:late"):
        bus.servers["c"].names.declare(name, Queue.path, b"")
        bus.pump()
        assert bus.servers["b"].names.known[name] == f"c/{name}"
        if "f" in bus.servers:
            back(bus)
            is_out(bus, "f")


@pytest.mark.parametrize("old, new", LEAVING[:3])
def test_a_server_is_dropped_with_all_that_it_holds(old, new):
    """Its names are free again everywhere, its clients are sent away, and what comes for it later is a dead letter."""
    agents = SINKS | {"f/kept": f"{AGENTS}:Sink"}
    bus = Bus(topology(old, agents, {name: ("matrix", {}) for name in old if len(old[name]) > 2}))
    bus.pump()
    bus.ask("f", "create_queue", destination="queue:kept")
    server = bus.servers["f"]
    server.step(ClientOpened(9, "", session="f/9"), bus.now)
    server.step(ClientCommands(9, [Subscribe("s", ("topic:news",))]), bus.now)
    bus.pump()
    assert all("f" in each.clients.topics.table for each in bus.servers.values())
    dropped = {"text": text_of(made(new)), "revision": 1, "drop": True}
    assert "f cannot leave, and holds" in apply(bus, new)
    assert bus.ask("b", "apply_topology", **dropped) == {"revision": 2, "begun": True}
    assert not server.clients.sessions
    is_out(bus, "f")
    at_rest(bus, 2)
    for name in "abcde":
        each = bus.servers[name]
        assert not [id for id in each.names.known.values() if id.startswith("f/")], name
        assert "f" not in each.clients.topics.table
    assert "it is not a server of this bus" in bus.send("a", "f/kept", Put("late"))
    assert bus.ask("b", "create_queue", destination="queue:kept")
    everyone_hears(bus, "after")


# -- a server inside is lost -------------------------------------------------------------------------------------------


def end_without(bus, lost):
    """What `mom server lost` does about a change; what has become of it."""
    for name in {*lost} & bus.servers.keys():
        bus.crash(name)
    steps, answer = lost_inside.carry_out("a", lost), None
    while True:
        try:
            server, verb, args = steps.send(answer)
        except StopIteration as over:
            return over.value
        found = bus.ask(server, verb, **args)
        answer = found if isinstance(found, dict) else None


def lose(bus, name, epoch):
    """The rest of it; then another one begins in its place."""
    for domain in bus.servers["a"].topology.domains.values():
        if name in domain:
            asked = next(each for each in domain.members if each != name)
            assert bus.ask(asked, "lose", domain=domain.name, servers=[name], epoch=epoch)["epoch"] == epoch
    bus.pump()
    assert bus.servers["a"].lost.decided(name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_that_has_begun_is_carried_out_without_a_router_that_is_lost(backend):
    """d, beyond it, has not even heard that it has begun; and nobody has the marks of the other side."""
    bus = frozen(backend)
    bus.send("a", ["b/b", "d/d"], Put("waits"))
    bus.send("d", ["e/e"], Put("outside"))
    assert why(bus, "a") == "the change to revision 2 of the topology waits for the mark of d"
    assert end_without(bus, ["c"]) == (2, lost_inside.CARRIED_OUT)
    assert {server.truth.number for name, server in bus.servers.items() if name in "abd"} == {2}
    assert "waits" in bus.fields("b/b")["got"]
    lose(bus, "c", (2 << EPOCH_BITS) + 1)
    if backend != "daisy":  # there c is between b and d again, and needs another one in its place
        at_rest(bus, 2)
        assert "waits" in bus.fields("d/d")["got"]


def why(bus, name):
    (row,) = [row for row in bus.ask(name, "why")["waits"] if row["kind"] == "change"]
    return row["reason"]


def test_who_has_switched_waits_for_nobody_who_is_lost_before_it_has():
    """All but c have switched: only the registry waits for it, and says so."""
    bus = Bus(made(OLD))
    bus.pump()
    with patch.object(bus.servers["c"].change, "_may_switch", lambda plan: False):
        assert apply(bus, NEW) == {"revision": 2, "begun": True}
        assert [bus.servers[name].truth.number for name in "abcd"] == [2, 2, 1, 2]
        bus.crash("c")
    assert why(bus, "a") == "the change to revision 2 of the topology waits for c to switch"
    bus.now += 11 * SECOND
    (line,) = bus.ask("a", "status")["problems"]
    assert "waits for c to switch; 0 messages wait here" in line and "`mom server lost` for it" in line
    assert end_without(bus, ["c"]) == (2, lost_inside.CARRIED_OUT)
    lose(bus, "c", (2 << EPOCH_BITS) + 1)
    at_rest(bus, 2)


def test_who_has_not_switched_does_so_when_nothing_is_under_way():
    """b lacks something of d that nobody can give it; the others have switched."""
    bus = Bus(made(OLD))
    bus.pump()
    bus.servers["b"].change._may_switch = lambda plan: plan.ended
    assert apply(bus, NEW) == {"revision": 2, "begun": True}
    bus.send("b", ["c/c"], Put("waits"))
    assert [bus.servers[name].truth.number for name in "abcd"] == [2, 1, 2, 2]
    assert end_without(bus, ["d"]) == (2, lost_inside.CARRIED_OUT)
    lose(bus, "d", (2 << EPOCH_BITS) + 1)
    assert "waits" in bus.fields("c/c")["got"]


def test_a_change_that_has_not_begun_is_given_up_for_a_server_that_is_lost():
    bus = Bus(made(OLD))
    bus.pump()
    bus.cut("c", "d")
    assert apply(bus, NEW) is None
    assert end_without(bus, ["c"]) == (2, lost_inside.GIVEN_UP)
    assert end_without(bus, ["c"]) == (0, "")
    lose(bus, "c", (1 << EPOCH_BITS) + 1)
    assert [bus.servers[name].change.status()["phase"] for name in "ab"] == ["", ""]


def test_who_is_connected_or_not_inside_is_not_lost():
    bus = frozen()
    id = bus.ask("a", "topology_status")["bus"]["id"]
    assert "c is connected to a, so it is not lost" in bus.ask("a", "change_without", change=id, servers=["c"])
    assert "cannot go on without 'e': name others of a, b, c and d" in bus.ask(
        "a", "change_without", change=id, servers=["e"]
    )
    assert bus.ask("e", "change_without", change=id, servers=["c"])["phase"] == ""
    assert bus.ask("a", "change_end", change=id)["phase"] == "frozen"  # nobody is lost
    bus.pump()
    assert bus.servers["a"].truth.number == 1
