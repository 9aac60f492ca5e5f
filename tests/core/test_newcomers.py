"""A server is attached to a bus that works: nobody waits for it, and it misses nothing."""

from dataclasses import replace

import pytest

from mombroker.core import newcomers, revision
from mombroker.core.errors import PeerRefused
from mombroker.core.meta import ATTACHED, JOINING, KEYS, WAITING
from mombroker.core.topology import Domain, Server
from mombroker.store.memory import MemoryStore
from tests.broker.bench import Broker
from tests.core.bus import topology

TWO = {"x": "abc", "y": "cd"}
REPLICATED = tuple(key.name for key in KEYS if key.replicated)


@pytest.fixture
def b():
    made = Broker(topology(TWO))
    made.pump()
    return made


def with_more(b, domain="z", members="de", server="a"):
    """The bus's topology with one more domain, of a server that is there and new ones."""
    old = revision.read(b.servers[server].truth.text)
    servers = {name: old.servers.get(name, Server(name, "127.0.0.1", 2_000 + ord(name))) for name in members}
    return replace(
        old, servers={**old.servers, **servers}, domains={**old.domains, domain: Domain(domain, tuple(members))},
        checked=True,
    )  # fmt: skip


def attach(b, domain="z", members="de", server="a"):
    number = b.servers[server].truth.number
    return b.ask(
        server, "apply_topology", text=revision.text_of(with_more(b, domain, members, server)), revision=number
    )


def start(b, name, sponsor="d"):
    """As its operator does, with what the sponsor says."""
    made, rows = newcomers.rows(name, b.servers[sponsor].newcomers.invitation(name))
    b.stores[name] = MemoryStore(made, name, f"store of {name}")
    b.stores[name].disk.meta |= rows
    b.boot(name)
    for domain in made.domains_of(name):
        for peer in domain.members:
            if peer != name and frozenset((peer, name)) not in b.down:
                b.join(peer, name)
    b.pump()


def tables(b, name):
    meta = b.stores[name].meta()
    return {key: str(row).partition("\n")[0] for key, row in meta.items() if key.startswith(REPLICATED)}


def alike(b):
    first, *others = (tables(b, name) for name in b.servers)
    assert all(other == first for other in others), (first, others)
    return True


def test_a_newcomer_has_all_tables_and_takes_part(b):
    early = b.connect("a").subscribe("s", "topic:news").send("queue:orders", "one")
    b.ask("b", "set_policy", match="queue:*", values={"max_messages": 9})
    assert attach(b)["revision"] == 2
    start(b, "e")
    assert alike(b) and not b.servers["e"].newcomers.waiting
    client = b.connect("e").send("topic:news", "from e").subscribe("q", "queue:orders", receipt="r")
    assert early.texts == ["from e"] and client.texts == ["one"]
    client.subscribe("t", "topic:later", receipt="t")
    b.connect("a").send("topic:later", "to e")
    assert client.texts == ["one", "to e"] and client.receipts == ["r", "t"]
    for name in b.stores:
        assert not [key for key in b.stores[name].meta() if key.startswith((JOINING, WAITING))]
        for key, row in b.stores[name].meta().items():
            assert not key.startswith(ATTACHED) or row == '[2, "d", []]'
    for name in "abcde":
        b.reboot(name)
    assert alike(b)


def test_nobody_obeys_clients_before_it_has_the_tables(b):
    early = b.connect("a").subscribe("s", "topic:news")
    attach(b)
    b.cut("d", "e")
    start(b, "e")
    client = b.connect("e").send("topic:news", "as soon as it can", receipt="r")
    assert not client.receipts and not early.texts and not client.refusals
    b.join("d", "e")
    b.pump()
    assert client.receipts == ["r"] and early.texts == ["as soon as it can"]


def test_it_says_so_when_the_tables_do_not_come(b):
    attach(b)
    b.cut("d", "e")
    start(b, "e")
    client = b.connect("e", strict=False).send("topic:news", "x", receipt="r")
    b.later(61)
    assert client.refusals == [
        "e is new on the bus and has not been told its names and topics yet: see `mom status`, and try again"
    ]


def test_servers_that_are_down_may_learn_of_it_later(b):
    """b is down: e works, its subscriptions are told to be unknown to b, and b, once back, misses nothing of e."""
    late = b.connect("b").subscribe("s", "topic:news")
    b.crash("b")
    attach(b)
    start(b, "e")
    client = b.connect("e").subscribe("t", "topic:later", receipt="t")
    assert b.servers["e"].newcomers.unmet == ["b"]
    b.later(3)
    (receipt,) = [reply for reply in client.told if getattr(reply, "receipt", "") == "t"]
    assert receipt.unconfirmed == "b"
    client.send("topic:news", "while b was down")
    b.boot("b")
    b.pump()
    assert alike(b) and b.servers["e"].newcomers.unmet == []
    b.connect("b").send("topic:later", "of b")
    assert client.texts == ["of b"]
    assert late.open is False


def test_an_everywhere_subscription_is_told_to_be_unknown_to_who_does_not_know_the_server(b):
    b.ask("a", "set_policy", match="topic:all", values={"announce": "everywhere"})
    b.crash("b")
    attach(b)
    start(b, "e")
    client = b.connect("e").subscribe("t", "topic:all", receipt="t")
    b.later(3)
    (receipt,) = [reply for reply in client.told if getattr(reply, "receipt", "") == "t"]
    assert receipt.unconfirmed == "b"


def test_what_was_told_before_a_server_knew_of_it_comes_over_the_sponsor(b):
    """b subscribes before it knows of e, and the sponsor hears of it after it has sent its tables."""
    b.cut("a", "b")
    attach(b)  # all but b know of e, since a decides
    b.cut("b", "c")
    client = b.connect("b").subscribe("s", "topic:news")
    start(b, "e")
    assert "topic:news" not in " ".join(map(str, tables(b, "e").values()))
    b.join("b", "c")
    b.pump()
    assert b.servers["b"].truth.number == 1 and "topic:news" in tables(b, "e").values()
    b.connect("e").send("topic:news", "from e")
    b.join("a", "b")
    b.pump()
    assert client.texts == ["from e"] and alike(b)


def test_receipts_of_others_wait_for_a_newcomer(b):
    attach(b)
    client = b.connect("a").subscribe("s", "topic:news", receipt="r")
    b.later(3)
    (receipt,) = [reply for reply in client.told if getattr(reply, "receipt", "") == "r"]
    assert receipt.unconfirmed == "e"


def test_a_newcomer_may_sponsor_others_before_it_was_ever_started(b):
    b.connect("a").subscribe("s", "topic:news")
    attach(b)
    attach(b, "w", "efg")
    attach(b, "v", "ah")
    start(b, "e")
    for name in "gf":
        start(b, name, "e")
    start(b, "h", "a")
    assert alike(b) and {server.truth.number for server in b.servers.values()} == {4}
    g = b.connect("g").subscribe("s", "topic:far", receipt="r")
    b.connect("h").send("topic:far", "over all")
    assert g.texts == ["over all"] and g.receipts == ["r"]
    for name in b.servers:
        assert all(not each.unmet for each in b.servers[name].newcomers.attached.values())


def test_a_message_for_a_server_that_we_do_not_know_yet_waits_for_the_revision(b):
    """c hears of d's news for e from a server that is ahead of it."""
    b.cut("a", "b")
    attach(b)
    start(b, "e")
    reader = b.connect("b").subscribe("s", "topic:news")
    assert b.servers["b"].truth.number == 1
    b.connect("e").subscribe("t", "topic:all").send("topic:news", "x")
    assert b.servers["b"].channel.conns and not reader.texts  # it is held, and the link is up
    b.join("a", "b")
    b.pump()
    assert alike(b)


def test_an_invitation_is_given_by_the_sponsor_until_it_is_used(b):
    ask = b.servers["d"].newcomers.invitation
    attach(b)
    assert b.servers["a"].newcomers.invitation("e") == {"sponsor": "d"}
    start(b, "e")
    with pytest.raises(Exception, match="e has joined the bus already, with another store"):
        ask("e")


def test_a_newcomer_that_has_begun_without_the_bus_hears_what_to_do(b):
    """Nobody was there when it was started first, with a file alone."""
    attach(b)
    b.topology = with_more(b)
    b.stores["e"] = MemoryStore(b.topology, "e", "store of e")
    b.boot("e")
    with pytest.raises(
        PeerRefused, match="^e has begun by itself, since nobody .* put its data folder aside, and start"
    ):
        b.join("d", "e")
    start(b, "e")
    assert alike(b) and not b.servers["e"].newcomers.waiting


def test_a_name_whose_agents_are_still_known_is_no_newcomers(b):
    b.servers["a"].names.known["queue:old"] = "e/queue:old"
    with pytest.raises(Exception, match="queue:old lived on a server of that name"):
        b.servers["a"].truth.judge(1, revision.text_of(with_more(b)))
