"""The bank's money is conserved, whatever crashes; and the auditor counts right while the money moves."""

import random

import pytest

from examples.bank import Audit, Work
from mombroker.core.events import Admin
from mombroker.net import config
from tests.core.bus import Bus

ACCOUNTS = 8
MONEY = ACCOUNTS * 1000


@pytest.fixture
def bus():
    topology = config.load("examples/bank.toml")
    for agent in topology.agents:
        agent.fields.pop("to_pay", None), agent.fields.pop("every", None)
    topology.limits["trying_boots"] = 1000  # so many crashes are nobody's fault
    return Bus(topology)


def accounts(bus):
    return [bus.fields(f"{agent.server}/{agent.name}") for agent in bus.topology.agents if agent.name != "auditor"]


def names():
    return [f"account{number}" for number in range(1, ACCOUNTS + 1)]


def at_rest(bus, payments):
    found = accounts(bus)
    assert sum(each["balance"] for each in found) == MONEY
    assert [each["paid"] for each in found] == [payments] * ACCOUNTS
    assert sum(each["received"] for each in found) == payments * ACCOUNTS
    assert all(each["to_pay"] == 0 for each in found)


def test_payments_move_money_and_make_none(bus):
    bus.send("lima", names(), Work(20))
    at_rest(bus, 20)
    assert {each["balance"] for each in accounts(bus)} != {1000}


def test_the_auditor_counts_the_money_at_rest(bus):
    bus.send("lima", "auditor", Audit())
    assert bus.fields("quito/auditor")["total"] == MONEY


def disorderly(bus, rng):
    """Some server takes a step; frames of other servers stay where they are."""
    name = rng.choice(list(bus.servers))
    server = bus.servers[name]
    server.limits.turn_reactions = 5
    server.turn(bus.now)
    if server.urgency:
        bus.release(name, bus.commit(name))


@pytest.mark.parametrize("seed", range(10))
def test_the_auditor_counts_the_money_while_it_moves(bus, seed):
    rng = random.Random(seed)
    bus.pump()
    for name in bus.servers:
        post(bus, name, names(), Work(15))
    for _ in range(12):
        post(bus, "quito", ["auditor"], Audit())
        for _ in range(30):
            disorderly(bus, rng)
    bus.pump()
    found = bus.fields("quito/auditor")
    assert found["round"] > 1
    assert (found["first"], found["total"], found["wrong"]) == (MONEY, MONEY, 0)
    at_rest(bus, 15 * len(bus.servers))


def post(bus, server, to, note):
    """An operator's send whose consequences are left for later."""
    args = {"to": to, "type": type(note).__wire_name__, "fields": {f: getattr(note, f) for f in note.__wire_fields__}}
    bus.servers[server].step(Admin(next(bus.numbers), "send", args), bus.now)


@pytest.mark.parametrize("seed", range(10))
def test_money_survives_crashes(bus, seed):
    """A server dies before a commit, or after it with its frames unsent; its links come back by dialling."""
    rng = random.Random(seed)
    bus.pump()
    post(bus, "lima", names(), Work(20))
    crashes = 0
    for _ in range(300):
        disorderly(bus, rng)
        if rng.random() < 0.05:
            crashes += 1
            name = rng.choice(list(bus.servers))
            if rng.random() < 0.5:
                bus.commit(name)
            bus.crash(name)
            bus.boot(name)
    post(bus, "quito", ["auditor"], Audit())
    bus.pump()
    assert crashes > 5
    at_rest(bus, 20)
    assert bus.fields("quito/auditor")["total"] == MONEY
