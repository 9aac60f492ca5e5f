"""The outsider's judgement of a bus: true about buses that move while they are read, and not blind."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

from mombroker.admin.audit.bus import Findings, audit
from mombroker.core.events import Admin
from mombroker.core.limits import Limits
from mombroker.core.status import why
from mombroker.ordering.matrix import HELD
from tests.admin.walkers import Walk, Walker
from tests.core.bus import SECOND, Bus, topology
from tests.core.sample_agents import Put, Tell

AGENTS = [f"{server}/{server}{number}" for server in "abcde" for number in (1, 2)]
SAMPLES = "tests.core.sample_agents"
CLASS = f"{Walker.__module__}:{Walker.__qualname__}"


def walking(seed: int, walks: int = 6, left: int = 6, **orderings: Any) -> tuple[Bus, random.Random]:
    """A bus of three domains, with walkers everywhere, just after the first walks were sent."""
    chance = random.Random(seed)
    plan = topology({"d1": "abc", "d2": "cd", "d3": "de"}, dict.fromkeys(AGENTS, CLASS), orderings)
    for declared in plan.agents:
        declared.fields["others"] = [id for id in AGENTS if not id.endswith(f"/{declared.name}")]
    bus = Bus(plan)
    bus.pump()
    for number in range(walks):
        fields = {"left": left, "seed": chance.randrange(1 << 30)}
        args = {"to": [chance.choice(AGENTS)], "type": Walk.__wire_name__, "fields": fields}
        bus.servers[chance.choice("abcde")].step(Admin(number, "send", args), bus.now)
    return bus, chance


class Moving:
    """The stores of a bus on which something happens before each read."""

    def __init__(self, bus: Bus, chance: random.Random, steps: int):
        self.bus, self.chance, self.steps = bus, chance, steps
        self.flying = {}

    def move(self) -> None:
        """One server commits, or lets out what its last commit allows."""
        name = self.chance.choice(list(self.bus.servers))
        if name in self.flying:
            self.bus.release(name, self.flying.pop(name))
        elif self.bus.servers[name].urgency:
            self.flying[name] = self.bus.commit(name)

    def rest(self) -> None:
        while self.flying:
            self.bus.release(*self.flying.popitem())
        self.bus.pump()

    def store(self, name: str) -> "MovingStore":
        return MovingStore(self, self.bus.stores[name])

    @property
    def stores(self) -> dict:
        return {name: self.store(name) for name in self.bus.stores}


class MovingStore:
    def __init__(self, moving: Moving, store):
        self.moving, self._store = moving, store

    def __getattr__(self, name: str):
        for _ in range(self.moving.chance.randrange(self.moving.steps)):
            self.moving.move()
        return getattr(self._store, name)


def test_a_bus_that_moves_while_it_is_read_is_clean():
    seen: Counter[str] = Counter()
    for seed in range(40):
        bus, chance = walking(seed)
        moving = Moving(bus, chance, 12)
        for _ in range(chance.randrange(80)):
            moving.move()
        found = audit(bus.topology, moving.stores)
        assert found.clean and not found.restored, (seed, found)
        seen.update(waiting=found.waiting, uncut=found.uncut, reactions=found.reactions)
        moving.rest()
        found = audit(bus.topology, bus.stores)
        assert found.clean and not found.waiting and not found.uncut, (seed, found)
        assert found.reactions == sum(found.agents.values()) == sum(len(bus.records(s, "react")) for s in bus.servers)
    # The cases that the second pass and the cut are for did come up.
    assert seen["waiting"] > 30 and seen["uncut"] > 30 and seen["reactions"] > 1000, seen


@pytest.mark.parametrize(
    "order",
    [
        ("ks", {}), ("vector", {}), ("overlay", {"links": [["a", "b"], ["b", "c"]]}),
        ("daisy", {"groups": [["a"], ["b"], ["c"]], "relay": "stable"}),
    ],
    ids=lambda order: order[0],
)  # fmt: skip
def test_a_bus_that_moves_is_clean_under_any_ordering(order):
    """Also where a message may be at any member of a domain, or wait there to be passed on."""
    waiting = 0
    for seed in range(15):
        bus, chance = walking(seed, d1=order)
        moving = Moving(bus, chance, 12)
        for _ in range(chance.randrange(80)):
            moving.move()
        found = audit(bus.topology, moving.stores)
        assert found.clean, (seed, found)
        waiting += found.waiting
        moving.rest()
        found = audit(bus.topology, bus.stores)
        assert found.clean and not found.waiting and not found.uncut, (seed, found)
    assert waiting > 10


def test_what_only_waits_to_be_passed_on_is_not_lost():
    """All have the message, c among them, for whom it is; but c does not know that b has it."""
    bus, _ = walking(1, d1=("daisy", {"groups": [["a"], ["b"], ["c"]], "relay": "stable"}))
    bus.pump()
    bus.cut("b", "c")
    args = {"to": ["c/c1"], "type": Walk.__wire_name__, "fields": {"left": 0, "seed": 1}}
    bus.servers["a"].step(Admin(1, "send", args), bus.now)
    bus.pump()
    assert [wait["kind"] for wait in why(bus.servers["c"])] == ["parked"]
    found = audit(bus.topology, bus.stores)
    assert found.clean and found.waiting == 1


@pytest.mark.parametrize("missing", "bd")
def test_where_members_pass_on_for_others_all_of_their_stores_are_needed(missing):
    """From a to c a message may lie with b, but not with d, who is in another domain."""
    bus, _ = walking(1, d1=("overlay", {}))
    bus.pump()
    bus.crash("c")
    args = {"to": ["c/c1"], "type": Walk.__wire_name__, "fields": {"left": 0, "seed": 1}}
    bus.servers["a"].step(Admin(1, "send", args), bus.now)
    bus.pump()
    found = audit(bus.topology, {name: store for name, store in bus.stores.items() if name != missing})
    assert found.clean and found.unjudged and found.waiting == (missing == "d")


@pytest.fixture(scope="module")
def rested() -> Bus:
    bus, _ = walking(1)
    bus.pump()
    return bus


def edited(bus: Bus, edit) -> Findings:
    """The judgement of this bus with one server's log records changed by `edit(records) -> records`."""

    class Edited:
        def __init__(self, name: str, store):
            self.name, self._store = name, store

        def log(self, after: int, limit: int):
            records = edit(self.name, [record for _, record in self._store.log(0, 1 << 40)])
            return list(enumerate(records, 1))[after : after + limit]

        def __getattr__(self, name: str):
            return getattr(self._store, name)

    return audit(bus.topology, {name: Edited(name, store) for name, store in bus.stores.items()})


def reacts_of(records: list, agent: str) -> list[int]:
    return [at for at, record in enumerate(records) if record.kind == "react" and record.agent == agent]


def test_an_unchanged_log_is_clean(rested):
    assert edited(rested, lambda name, records: records).clean


def test_a_reaction_that_came_before_a_cause_of_its_message_is_found(rested):
    """At some agent the first of two causally ordered messages is moved behind the second."""
    first = next(r for r in rested.records("c", "react") if r["agent"] == "c/c1" and r["origin"] != "c")

    def late(name, records):
        if name == "c":
            at = next(at for at in reacts_of(records, "c/c1") if records[at][1:3] == (first["origin"], first["number"]))
            records.append(records.pop(at))
        return records

    found = edited(rested, late)
    assert {late for _, late, _ in found.violations} == {(first["origin"], first["number"])}
    assert not found.lost and not found.duplicates


def test_a_second_reaction_is_found(rested):
    def twice(name, records):
        if name == "d":
            records.append(records[reacts_of(records, "d/d2")[0]])
        return records

    assert [agent for agent, _ in edited(rested, twice).duplicates] == ["d/d2"]


def test_a_reaction_to_what_nobody_sent_is_found(rested):
    gone = next(r for r in rested.records("e", "send") if r["agent"].startswith("e/"))

    def unsent(name, records):
        return [r for r in records if not (r[0] == "send" and r[1:3] == (gone["origin"], gone["number"]))]

    found = edited(rested, unsent)
    assert {id for _, id in found.unsent} == {(gone["origin"], gone["number"])}


def test_a_message_that_is_nowhere_is_lost(rested):
    def forgotten(name, records):
        return [r for at, r in enumerate(records) if name != "a" or at != reacts_of(records, "a/a1")[-1]]

    found = edited(rested, forgotten)
    assert [agent for agent, _ in found.lost] == ["a/a1"]


@pytest.fixture
def stuck() -> Bus:
    """Three messages wait: one in a's out-queue, one held at b for the first, one in the inbox of an agent at c that
    fails."""
    bus = Bus(
        topology(
            {"d": "abc"}, {"b/sink": f"{SAMPLES}:Sink", "c/source": f"{SAMPLES}:Source", "c/bad": f"{SAMPLES}:Sink"}
        )
    )
    bus.pump()
    bus.cut("a", "b")
    bus.send("a", "sink", Put("first"))
    bus.send("a", "source", Tell(["b/sink"], "second"))
    bus.send("a", "bad", Put("bad"))
    return bus


def give_up(bus: Bus) -> None:
    """Let the failing agent use up its attempts."""
    for _ in range(Limits().max_attempts):
        bus.later(3600)
    assert bus.records("c", "dead")


def test_what_waits_is_not_lost(stuck):
    found = audit(stuck.topology, stuck.stores)
    assert found.clean and found.waiting == 3
    stuck.join("a", "b")
    stuck.pump()
    assert audit(stuck.topology, stuck.stores).waiting == 1


@pytest.mark.parametrize(
    "server, table, agent", [("a", "queue_out", "b/sink"), ("b", "core", "b/sink"), ("c", "queue_in", "c/bad")]
)
def test_what_waits_is_lost_when_the_only_place_that_has_it_forgets_it(stuck, server, table, agent):
    disk = stuck.stores[server].disk
    if table == "core":
        rows = disk.core["d"]
        assert [rows.pop(key) for key in list(rows) if key[0] == HELD]
    else:
        getattr(disk, table).clear()
        disk.inboxes.clear()
    found = audit(stuck.topology, stuck.stores)
    assert [agent for agent, _ in found.lost] == [agent] and found.waiting == 2
    assert not (found.violations or found.duplicates or found.unsent)


def test_a_dead_letter_is_an_end_and_so_is_expiry(stuck):
    give_up(stuck)
    found = audit(stuck.topology, stuck.stores)
    assert found.clean and found.waiting == 2 and found.ended == 1
    stuck.send("a", "source", Tell(["b/sink"], "brief", ttl=5))
    stuck.now += 10 * SECOND
    stuck.join("a", "b")
    stuck.pump()
    assert stuck.records("b", "expire")
    found = audit(stuck.topology, stuck.stores)
    assert found.clean and found.waiting == 0 and found.ended == 2


def test_a_message_that_expires_at_a_router_ends_for_all_beyond_it():
    plan = topology({"d1": "abc", "d2": "cd"}, {f"{at}/to{at}": f"{SAMPLES}:Sink" for at in "bd"})
    bus = Bus(plan)
    bus.pump()
    bus.cut("a", "c")
    fields = {"text": "brief"}
    bus.ask("a", "send", to=["tob", "tod"], type=Put.__wire_name__, fields=fields, ttl_ns=SECOND)
    bus.now += 2 * SECOND
    bus.join("a", "c")
    bus.pump()
    found = audit(bus.topology, bus.stores)
    assert found.clean and found.ended == 1 and found.waiting == 0
    assert found.agents["b/tob"] == 2  # its creation, and the message


def test_a_message_that_expires_after_the_logs_were_read_is_not_lost():
    """At a router, for all beyond it, or where it ends: after a's log tells of the send, and before a's out-queue is
    looked at."""
    plan = topology({"d1": "abc", "d2": "cd"}, {f"{at}/to{at}": f"{SAMPLES}:Sink" for at in "bd"})
    bus = Bus(plan)
    bus.pump()
    bus.cut("a", "b")
    bus.cut("a", "c")
    args = {"to": ["tob", "tod"], "type": Put.__wire_name__, "fields": {"text": "brief"}, "ttl_ns": SECOND}
    bus.ask("a", "send", **args)

    class Late:
        def __getattr__(self, name: str):
            if name == "links":
                bus.now += 2 * SECOND
                bus.join("a", "b")
                bus.join("a", "c")
                bus.pump()
            return getattr(bus.stores["a"], name)

    found = audit(bus.topology, {**bus.stores, "a": Late()})
    assert bus.records("c", "expire") and bus.records("b", "expire")
    assert found.clean and found.waiting == 2 and found.ended == 0


@pytest.mark.parametrize("victim", "bcd")
def test_a_store_that_was_restored_from_an_old_copy_is_named_with_the_remedy(victim):
    bus, _ = walking(1)
    bus.pump()
    stores = {**bus.stores, victim: copy.deepcopy(bus.stores[victim])}
    assert audit(bus.topology, stores).restored == []
    for number, agent in enumerate(AGENTS * 2):
        args = {"to": [agent], "type": Walk.__wire_name__, "fields": {"left": 6, "seed": number}}
        bus.servers["abcde"[number % 5]].step(Admin(number, "send", args), bus.now)
    bus.pump()
    (sentence,) = audit(bus.topology, stores).restored
    assert sentence.endswith(f"restored from an old copy; run `mom domain reset` for {victim}")
    assert audit(bus.topology, bus.stores).restored == []


def test_a_log_without_its_beginning_is_judged_from_there(rested):
    """Neither what was sent nor what was taken before the beginning is held against anybody."""

    class Cut:
        def __init__(self, store, after):
            self._store, self.after = store, after

        def log(self, after: int, limit: int):
            return self._store.log(max(after, self.after), limit)

        def __getattr__(self, name: str):
            return getattr(self._store, name)

    half = len(rested.records("c")) // 2
    stores = {name: Cut(store, half if name == "c" else 0) for name, store in rested.stores.items()}
    found = audit(rested.topology, stores)
    assert found.clean and found.retired == ["c"] and found.unjudged > 0


def test_a_store_that_is_not_given_leaves_the_rest_to_be_judged(rested):
    stores = {name: store for name, store in rested.stores.items() if name != "d"}
    found = audit(rested.topology, stores)
    assert found.clean and found.unjudged > 0 and found.reactions > 0 and found.unseen == ["d"]


def test_a_retried_dead_letter_is_a_new_message(stuck):
    """The retry is sent at c in the name of its first sender at a: that is no event of the sender."""
    give_up(stuck)
    letter = stuck.ask("c", "deadletters")["letters"][0]
    stuck.ask("c", "retry", id=letter["id"])
    stuck.join("a", "b")
    give_up(stuck)
    found = audit(stuck.topology, stuck.stores)
    assert found.clean and found.ended == 2 and found.waiting == 0
