"""The domains of a bus by hand change while it works: the freeze, from the request to the last entry at a gate."""

import pytest

from mombroker.core import revision
from mombroker.core.meta import CHANGE, MARK, PLAN
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put

AGENTS = "tests.core.sample_agents"
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy")
SINKS = {f"{server}/{server}": f"{AGENTS}:Sink" for server in "abcde"}
OLD = {"x": "abc", "y": "cd", "z": "de"}
NEW = {"x": "ab", "y": "bcd", "z": "de"}


def made(domains, backend="matrix"):
    return topology(domains, SINKS, {name: (backend, {}) for name in domains if len(domains[name]) > 2})


def apply(bus, domains, server="a", backend="matrix"):
    return bus.ask(server, "apply_topology", text=revision.text_of(made(domains, backend)), revision=number(bus))


def number(bus):
    return max(server.truth.number for server in bus.servers.values())


def everyone_hears(bus, text):
    for server in bus.servers:
        bus.send(server, [f"{other}/{other}" for other in bus.servers], Put(f"{server} {text}"))
    bus.pump()
    for server, store in bus.stores.items():
        got = bus.fields(f"{server}/{server}")["got"]
        assert {f"{other} {text}" for other in bus.servers} <= set(got), server
        assert len(got) == len(set(got))
        store.check()


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
