"""A running server takes over another topology: nothing of what ends is left, and nothing else has noticed."""

import pytest

from mombroker.core.batch import Batch
from mombroker.core.errors import PeerRefused
from mombroker.core.events import ClientCommands, ClientOpened
from mombroker.core.meta import ALONE, DIGEST, EPOCH, GRAPH, OWN
from mombroker.core.revision import EPOCH_BITS, rows, text_of
from mombroker.core.topology import Topology
from mombroker.store.memory import MemoryStore
from tests.core.bus import Bus, everyone_hears, topology
from tests.core.sample_agents import Put

AGENTS = "tests.core.sample_agents"
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast")
SINKS = {f"{server}/{server}": f"{AGENTS}:Sink" for server in "abcd"}
OLD = {"x": "abc", "y": "cd"}


def made(domains: dict[str, str], backend: str = "matrix") -> Topology:
    return topology(domains, SINKS, {name: (backend, {}) for name in domains if len(domains[name]) > 2})


def install(bus: Bus, new: Topology, *names: str, anew: tuple[str, ...] = ()) -> None:
    """As the last step of a change, without those before: nothing is under way."""
    number = 1 + max(server.truth.number for server in bus.servers.values())
    for name in names or new.servers:
        bus.servers[name].truth.take(number, bus.now, text_of(new), anew)
    bus.topology = new
    bus.pump()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("domains", [{"y": "abd", "z": "bc"}, {"x": "abcd"}, {"x": "ab", "y": "cd", "z": "bc"}])
def test_servers_go_on_in_other_domains(domains, backend):
    bus = Bus(made(OLD, backend))
    bus.pump()
    everyone_hears(bus, "before")
    install(bus, made(domains, backend), anew=("x", "y"))
    everyone_hears(bus, "after")
    for name in "abcd":
        bus.crash(name)
        bus.boot(name)
    everyone_hears(bus, "again")


def test_nothing_is_left_of_what_ends_and_what_stays_goes_on():
    bus = Bus(made(OLD))
    bus.pump()
    everyone_hears(bus, "before")
    kept = bus.servers["c"].channel.domains["x"].links["a"]
    install(bus, made({"x": "abc", "z": "bd"}))
    assert bus.servers["c"].channel.domains["x"].links["a"] is kept and kept.conn
    for store in bus.stores.values():
        rows = store.disk
        assert "y" not in rows.core or not rows.core["y"]
        assert all(row.domain != "y" for row in rows.links.values())
        assert {EPOCH + "y", DIGEST + "y", OWN + "y"}.isdisjoint(rows.meta)
        assert rows.meta[GRAPH] == bus.topology.graph()
    assert EPOCH + "x" not in bus.stores["c"].meta() and bus.stores["b"].meta()[EPOCH + "z"] == 2 << EPOCH_BITS
    everyone_hears(bus, "after")


def test_what_a_link_had_under_way_goes_with_it_and_its_neighbour_is_still_known():
    bus = Bus(made(OLD))
    bus.pump()
    everyone_hears(bus, "before")
    bus.cut("c", "d")
    bus.send("c", "d/d", Put("never"))
    bus.down.clear()
    install(bus, made({"x": "abc", "z": "cd"}))
    everyone_hears(bus, "after")
    assert "never" not in bus.fields("d/d")["got"]
    assert all(row.incarnation for row in bus.stores["c"].links())
    assert not any(key.startswith(ALONE) for key in bus.stores["c"].meta())


def test_a_packet_that_is_stamped_and_not_yet_stored_goes_with_its_link():
    bus = Bus(made(OLD))
    bus.pump()
    server = bus.servers["c"]
    server.channel.domains["y"].send(["d"], b"body", [])
    install(bus, made({"x": "abc", "z": "cd"}))
    everyone_hears(bus, "after")


def test_servers_of_different_epochs_do_not_meet():
    bus = Bus(made(OLD))
    bus.pump()
    with pytest.raises(PeerRefused, match="epoch 0"):
        install(bus, bus.topology, *"abc", anew=("y",))


def test_clients_keep_their_connections_and_new_declared_agents_are_made():
    bus = Bus(topology(OLD, SINKS))
    bus.pump()
    server = bus.servers["a"]
    server.step(ClientOpened(9, "", session="a/9"), bus.now)
    bus.pump()
    new = topology({"x": "ab", "y": "bcd"}, SINKS | {"d/later": f"{AGENTS}:Sink"})
    install(bus, new)
    bus.send("a", "later", Put("welcome"))
    bus.pump()
    assert bus.fields("d/later")["got"] == ["welcome"]
    server.step(ClientCommands(9, []), bus.now)
    assert 9 in server.clients.sessions


def test_a_new_server_is_met_by_who_has_a_domain_with_it_and_one_that_has_left_is_forgotten():
    bus = Bus(made(OLD))
    bus.pump()
    new = topology(OLD | {"z": "de"}, SINKS | {"e/e": f"{AGENTS}:Sink"})
    bus.stores["e"] = MemoryStore(new, "e", "store of e")
    bus.stores["e"].commit(Batch(meta={**rows(2, text_of(new), 0, []), EPOCH + "z": 2 << EPOCH_BITS}))
    bus.topology = new
    bus.boot("e")
    for name in "abcd":
        bus.servers[name].truth.take(2, bus.now, text_of(new))
    bus.pump()
    everyone_hears(bus, "with e")
    bus.crash("e")
    del bus.stores["e"]
    install(bus, made(OLD), *"abcd")
    everyone_hears(bus, "without e")
    assert all(len(store.disk.links) < 4 for store in bus.stores.values())
