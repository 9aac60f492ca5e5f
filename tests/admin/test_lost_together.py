"""Servers that are all members of a domain are lost together, and other ones take their places, by hand."""

from typing import Any

import pytest

from mombroker.admin.topology import losing
from mombroker.core.errors import MomError
from tests.core.bus import Bus, everyone_hears
from tests.core.sample_agents import Put
from tests.core.test_losses import made, of_abcast, replace_store


class Asker(losing.Asker):
    """Asks the servers of a bus without processes."""

    def __init__(self, bus: Bus):
        super().__init__(bus.topology)
        self.bus = bus

    def ask(self, server: str, verb: str, **args: Any) -> dict[str, Any]:
        if server not in self.bus.servers:
            raise MomError(f"{server} does not answer")
        answer = self.bus.ask(server, verb, **args)
        if not isinstance(answer, dict):
            raise MomError(str(answer))
        return answer


@pytest.fixture
def bus(monkeypatch):
    """The registry is a; d and e reach it over c and b, which alone are in y."""
    bus = Bus(made({"x": "ab", "y": "bc", "z": "cde"}))
    monkeypatch.setattr(losing, "_answers", lambda topology, name: name in bus.servers)
    bus.pump()
    everyone_hears(bus, "before")
    return bus


def lost(bus, *names):
    """What `mom server lost` does: where, and under which epoch."""
    asker = Asker(bus)
    plan = losing.plan(asker, list(names))
    begun = {domain: plan.epoch for domain in plan.left if domain not in plan.done}
    losing.carry_out(asker, plan, list(names), patience=0)
    return begun


def without_b_and_c(bus):
    bus.crash("b")
    bus.crash("c")
    with pytest.raises(MomError, match="place of b: run `mom server start b`, then `mom server lost c`$"):
        lost(bus, "b", "c")
    return bus.servers["d"].lost.known["c"]


def test_two_routers_that_are_alone_in_a_domain_are_lost_one_behind_the_other(bus):
    """1. a loses b in x, and d and e lose c in z, under epoch 1; nobody can tell the registry of c.
    2. Another b begins behind a, under epoch 1 in y as well, and does not know that c is lost.
    3. b loses c in y under epoch 2, and so do d and e in z: where c begins anew it has one epoch."""
    assert without_b_and_c(bus) == (1, "")
    replace_store(bus, "b", "a", joins="a")
    assert lost(bus, "c") == {"y": 2, "z": 2}
    assert bus.servers["a"].lost.known["c"] == (2, "b")
    assert lost(bus, "c") == {}, "it is done"
    replace_store(bus, "c", "b")
    assert {server.lost.known["c"] for server in bus.servers.values()} == {(2, "b")}
    everyone_hears(bus, "after")


def test_a_loss_of_one_more_begins_anew_where_the_first_one_is_over(bus):
    bus.crash("e")
    assert lost(bus, "e") == {"z": 1}
    bus.crash("d")
    assert lost(bus, "e", "d") == {"z": 2}
    for name in "de":
        replace_store(bus, name, "c")
    everyone_hears(bus, "after")


def test_those_that_are_lost_together_do_not_begin_with_the_token(monkeypatch):
    """Under epoch 1 it would be with c, which is lost as well."""
    bus = Bus(of_abcast("bcad"))
    monkeypatch.setattr(losing, "_answers", lambda topology, name: name in bus.servers)
    bus.pump()
    for name in "bc":
        bus.crash(name)
    assert lost(bus, "b", "c") == {"x": 2}
    bus.send("d", ["a/a", "d/d"], Put("without them"))
    bus.pump()
    assert [bus.fields(f"{name}/{name}")["got"] for name in "ad"] == [["without them"]] * 2


@pytest.mark.parametrize("meets", [False, True])
def test_a_store_that_is_lost_before_it_was_told_all_is_lost_under_another_epoch_if_somebody_has_met_it(bus, meets):
    """Its invitation stands until it has told its sponsor that it has the tables. Who has met a store takes no other
    one under that epoch."""
    bus.crash("e")
    assert lost(bus, "e") == {"z": 1}
    epoch, sponsor = bus.servers["d"].lost.known["e"]
    (other,) = {"c", "d"} - {sponsor}
    bus.cut("e", sponsor)
    if not meets:
        bus.cut("e", other)
    replace_store(bus, "e", sponsor, joins=other if meets else "")
    bus.crash("e")
    assert lost(bus, "e") == ({"z": 2} if meets else {}), "it is done, and nobody knows of a store that is gone"
    bus.down.clear()
    replace_store(bus, "e", bus.servers["d"].lost.known["e"][1])
    assert {server.lost.known["e"][0] for server in bus.servers.values()} == {2 if meets else 1}
    everyone_hears(bus, "after")


def test_a_router_that_was_lost_before_is_not_decided_by_that(bus):
    """a has heard of the first loss of c, and shares no domain with it."""
    bus.crash("c")
    assert lost(bus, "c") == {"y": 1, "z": 1}
    replace_store(bus, "c", "b")
    assert bus.servers["a"].lost.known["c"] == (1, "b")
    assert without_b_and_c(bus) == (2, "")
    replace_store(bus, "b", "a", joins="a")
    assert lost(bus, "c") == {"y": 3, "z": 3}
    replace_store(bus, "c", "b")
    assert {server.lost.known["c"] for server in bus.servers.values()} == {(3, "b")}
    everyone_hears(bus, "after")
