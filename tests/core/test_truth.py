"""The topology that a bus goes by is in its stores; its settings are changed by a decision while the bus runs."""

from dataclasses import replace

import pytest

from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.core import revision
from mombroker.core.errors import PeerRefused
from mombroker.core.layouts import build
from mombroker.core.server import AgentServer
from mombroker.core.topology import AgentDecl, Domain
from mombroker.net import wire
from mombroker.store.memory import MemoryStore
from tests.broker.bench import Broker
from tests.core import sample_agents
from tests.core.bus import START, Bus, adopt, topology
from tests.core.sample_agents import Put

SINK = f"{sample_agents.__name__}:Sink"
TWO = {"x": "abc", "y": "cd"}


def town(**more):
    return topology(TWO, {"d/sink": SINK}, **{"allow": ("tests",), **more})


@pytest.fixture
def b():
    made = Broker(town())
    made.pump()
    return made


def apply(b, new, server="b", expected=None):
    number = b.servers[server].truth.number if expected is None else expected
    return b.ask(server, "apply_topology", text=revision.text_of(new), revision=number)


def numbers(b):
    return [revision.in_force(store.meta())[0] for store in b.stores.values()]


def notes(b, name):
    return " | ".join(b.servers[name].tx.notes)


def test_an_empty_store_takes_the_topology_of_the_file_as_revision_1(b):
    assert numbers(b) == [1] * 4
    said = b.ask("d", "topology")
    assert said["revision"] == 1 and revision.read(said["text"]) == replace(b.topology, log={}, limits={})
    assert b.ask("d", "topology_history")["revisions"][0]["changes"] == []


def test_a_store_of_an_older_release_takes_it_at_its_first_start(b):
    for name in "abcd":
        b.crash(name)
        meta = b.stores[name].disk.meta
        for key in [key for key in meta if key.startswith(("revision", "topology"))]:
            del meta[key]
        b.boot(name)
    b.pump()
    assert numbers(b) == [1] * 4


def test_settings_are_applied_on_all_servers_by_one_decision(b):
    new = town(policies=[{"match": "queue:q", "max_messages": 3}])
    new.agents.append(AgentDecl("other", "c", SINK, {}))
    new.servers["d"].host, new.allow = "127.0.0.7", ("tests", "shop")
    reply = apply(b, new)
    assert reply["revision"] == 2 and reply["changes"] == [
        "~ server d: 127.0.0.1:1003 -> 127.0.0.7:1003", "~ allow: tests -> tests, shop",
        f"+ agent other on c ({SINK})", "~ policies of the file: none -> queue:q",
    ]  # fmt: skip
    assert numbers(b) == [2] * 4
    for name, server in b.servers.items():
        assert server.topology.servers["d"].host == ("127.0.0.1" if name == "d" else "127.0.0.7")
        assert server.program.allow == ("tests", "shop")
        assert server.clients.policies.of("queue:q").max_messages == 3
    b.send("a", "other", Put("1"))
    assert b.fields("c/other")["got"] == ["1"]
    rows = b.ask("d", "topology_history")["revisions"]
    assert [row["revision"] for row in rows] == [2, 1] and rows[0]["changes"] == reply["changes"]


def test_they_stay_over_a_restart_with_the_old_file(b):
    new = town(policies=[{"match": "queue:q", "max_messages": 3}])
    new.agents.append(AgentDecl("other", "c", SINK, {}))
    apply(b, new)
    for name in "abcd":
        b.crash(name)
    for name in "abcd":
        b.boot(name)
        assert "goes by revision 2 of the topology, which its store has" in notes(b, name)
        assert "the file is that of revision 1: `mom topology export` writes the one in force" in notes(b, name)
    b.pump()
    b.send("a", "other", Put("1"))
    assert b.fields("c/other")["got"] == ["1"] and b.servers["a"].clients.policies.of("queue:q").max_messages == 3


def test_a_file_that_says_something_else_is_not_taken_and_its_server_says_what_differs(b):
    b.topology = topology({"x": "abc", "y": "cde"}, {"d/sink": SINK}, allow=("tests",))
    for name in "abcd":
        b.crash(name)
        b.boot(name)
        assert "the file would change that (+ server e at 127.0.0.1:1004; ~ domain y: + e" in notes(b, name)
        assert "run `mom topology plan`" in notes(b, name)
    b.pump()
    assert numbers(b) == [1] * 4


def test_a_declaration_that_is_taken_out_leaves_its_agent_as_it_is(b):
    new = town()
    new.agents.clear()
    assert apply(b, new)["changes"] == [f"- agent sink on d ({SINK})"]
    for name in "abcd":
        b.crash(name)
        b.boot(name)
    b.pump()
    b.send("a", "sink", Put("1"))
    assert b.fields("d/sink")["got"] == ["1"]


def test_a_server_that_is_down_applies_it_when_it_is_back(b):
    b.crash("d")
    apply(b, town(allow=("tests", "shop")))
    assert numbers(b) == [2, 2, 2, 1]
    b.boot("d")
    b.join("c", "d")
    b.pump()
    assert numbers(b) == [2] * 4


def test_of_two_that_are_applied_at_once_the_registry_takes_one(b):
    texts = [revision.text_of(town(allow=("tests", more))) for more in ("one", "two")]
    for server, text in zip("bd", texts, strict=True):
        b.servers[server].truth.apply(1, text, 0)
    b.pump()
    assert numbers(b) == [2] * 4 and len({store.meta()["topology"] for store in b.stores.values()}) == 1


@pytest.mark.parametrize(
    ("change", "expected", "remedy"),
    [
        (lambda new: None, None, "there is nothing to apply"),
        (lambda new: new.policies.append({"match": "queue:q"}), 7, "run `mom topology plan` again"),
        (lambda new: setattr(new, "name", "other"), None, 'write name = "test"'),
        (lambda new: setattr(new, "registry", "b"), None, 'write registry = "a"'),
        (lambda new: new.policies.append({"match": "queue:q", "max_mesages": 1}), None, "max_mesages"),
        (lambda new: new.agents.append(AgentDecl("taken", "b", SINK)), None, "the name taken is taken by a/taken"),
        (lambda new: new.domains.update(z=Domain("z", ("a", "d"))), None, "is a cycle"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused_and_nothing_changes(b, change, expected, remedy):
    b.ask("a", "deploy", **{"class": SINK, "name": "taken"})
    before = [dict(store.meta()) for store in b.stores.values()]
    new = town()
    change(new)
    assert remedy in apply(b, new, expected=expected)
    for was, store in zip(before, b.stores.values(), strict=True):
        changed = {key for key, row in store.meta().items() if was.get(key) != row}
        assert changed <= {"now", "next", "clean"}


# -- servers that meet -----------------------------------------------------------------------------------------------


def admit(one, two):
    one.neighbours.admit(two.neighbours.greet(one.name))


def test_servers_of_different_revisions_meet_if_their_domain_is_the_same(b):
    wide = topology({"x": "abc", "y": "cd", "z": "de"}, {"d/sink": SINK}, allow=("tests",))
    b.crash("c")
    adopt(b.stores["c"], wide, "c")
    b.boot("c")
    assert b.servers["a"].topology.graph() != b.servers["c"].topology.graph()
    for one, two in ("ac", "ca", "cd", "dc"):
        admit(b.servers[one], b.servers[two])
    assert b.servers["c"].neighbours.greet("a").revision == 2


def test_other_domains_under_the_same_revision_are_refused_with_the_difference(b):
    def under(**domains):
        other = Bus(topology({**TWO, **domains}, orderings={"x": ("ks", {})} if not domains else None))
        return other.servers["a"]

    with pytest.raises(PeerRefused, match=r"a orders domain x differently \(matrix -> ks\): stop all servers and run"):
        admit(b.servers["b"], under())
    with pytest.raises(PeerRefused, match=r"a orders domain x differently \(\+ e\)"):
        admit(b.servers["b"], under(x="abce"))
    with pytest.raises(PeerRefused, match="another graph of domains under the same revision 1 of the topology"):
        admit(b.servers["b"], under(y="cde"))


def test_another_order_under_another_revision_is_refused_and_both_are_told(b):
    other = topology(TWO, orderings={"x": ("ks", {})})
    b.crash("c")
    adopt(b.stores["c"], other, "c")
    b.boot("c")
    remedy = (
        r"a is at revision 1 of the topology, c at 2: see `mom topology history`, or run `mom topology adopt` again"
    )
    with pytest.raises(PeerRefused, match=remedy):
        admit(b.servers["a"], b.servers["c"])


def test_a_server_of_an_older_release_says_nothing_of_its_order_or_revision(b):
    hello = b.servers["a"].neighbours.greet("b")
    b.servers["b"].neighbours.admit(replace(hello, revision=0, order=""))
    with pytest.raises(PeerRefused, match=r"differently \(members, back end or options\)"):
        b.servers["b"].neighbours.admit(replace(hello, revision=0, order="", digest="other"))
    with pytest.raises(PeerRefused, match="another graph"):
        b.servers["b"].neighbours.admit(replace(hello, revision=0, graph="other"))


def test_a_long_order_is_left_out_of_the_hello():
    names = [f"server-{at:04}" for at in range(200)]
    for count in (2, 200):
        made = build({"x": names[:count]})
        store = MemoryStore(made, names[0], "s")
        server = AgentServer(made, names[0], store, program(made), attach, START)
        order = server.neighbours.greet(names[1]).order
        assert (len(order) > 2) is (count == 2)
        assert len(wire.encode(["hello", server.neighbours.greet(names[1]).values()])) < wire.LOGIN_LIMIT


def test_a_note_of_one_server_reaches_another_that_knows_of_nothing_yet(b):
    """The decision comes before what is sent by whoever knows of it: the new agent is there when it is written to."""
    new = town()
    new.agents.append(AgentDecl("other", "d", SINK, {}))
    b.servers["b"].truth.apply(1, revision.text_of(new), 0)
    b.pump()
    b.send("b", "other", Put("x"))
    assert b.fields("d/other")["got"] == ["x"]


def test_an_agent_that_its_server_cannot_make_is_refused_before_anything_changes(b):
    """Which its server alone can say; of a change of domains it is asked by the registry."""
    new = replace(b.topology, agents=[*b.topology.agents, AgentDecl("lost", "c", "tests.core.nowhere:Lost", {})])
    said = b.ask("c", "judge_topology", text=revision.text_of(new), revision=1)
    assert said.startswith("agent lost cannot be made on c: tests.core.nowhere:Lost cannot be imported")
    assert said.endswith("bring its class there, then apply")
    assert apply(b, new, server="c") == said
    other = replace(new, domains={**new.domains, "x": Domain("x", ("a", "b", "c"), "ks")})
    said = apply(b, other, server="a")
    assert "c cannot do it: agent lost cannot be made" in said and "nothing has changed" in said
    assert numbers(b) == [1] * 4
    wrong = AgentDecl("lost", "c", SINK, {"nothing": 1})
    text = revision.text_of(replace(b.topology, agents=[*b.topology.agents, wrong]))
    assert "has no field nothing" in b.ask("c", "judge_topology", text=text, revision=1)
