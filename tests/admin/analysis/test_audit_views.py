"""Casts of groups as the audit sees them: each member of a view has the same, those of each sender in one order."""

from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from mombroker import store
from mombroker.admin.audit import bus as live
from mombroker.admin.audit.views import MISSED, ORDER, OUTSIDE, Views
from mombroker.agents.testing import Bus
from mombroker.core.batch import Batch
from mombroker.core.groups.bus import REFUSED
from mombroker.core.groups.view import CAST
from mombroker.core.topology import Topology
from mombroker.core.trace import Record
from mombroker.sim.seeds import cluster
from mombroker.sim.world import MS
from tests.agents.test_groups import THREE, Do, told
from tests.fakes_groups import broken

Logs = dict[str, list[Record]]


class Log:
    """The store of a server that has nothing but these records left."""

    def __init__(self, reader, records: list[Record]):
        self._reader, self._records = reader, records

    def log(self, after: int, limit: int):
        return list(enumerate(self._records, 1))[after : after + limit]

    def __getattr__(self, name: str):
        return getattr(self._reader, name)


@cache
def played() -> tuple[Topology, dict[str, object], Logs]:
    """Three members cast in both orders, in view 3 and 4; the last one joins again, one has left."""
    bus = Bus(THREE, servers=["d"])
    for each in "xyz":
        told(bus, each, "join")
    for each in "xyz":
        bus.send(each, Do("causal", f"{each}1 {each}2"))
        bus.send(each, Do("total", f"{each}3 {each}4"))
    bus.settle()
    told(bus, "z", "leave")
    told(bus, "x", "total", "one two")
    told(bus, "z", "join")
    told(bus, "y", "causal", "three four")
    nodes = bus._cluster.nodes
    stores = {name: node.disk.store for name, node in nodes.items()}
    return bus._cluster.topology, stores, {name: [r for _, r in each.log(0, 1 << 40)] for name, each in stores.items()}


def judged(edit: Callable[[Logs], None], folder: Path | None = None) -> live.Findings:
    """By the stores and, with a folder for it, by an export of them, which must agree."""
    topology, stores, logs = played()
    logs = {name: list(records) for name, records in logs.items()}
    edit(logs)
    found = live.audit(topology, {name: Log(stores[name], records) for name, records in logs.items()})
    if folder is not None:
        assert sorted(found.views) == exported(topology, logs, folder).views
    return found


def exported(topology: Topology, logs: Logs, folder: Path) -> live.Findings:
    from mombroker.admin.analysis import export
    from mombroker.admin.audit.export import audit

    for name, records in logs.items():
        with closing(store.open(folder / name, topology, name)) as disk:
            disk.commit(Batch(log=records))
    list(export.export({name: store.read(folder / name) for name in logs}, folder / "out"))
    return audit(topology, folder / "out", {}, at_rest=True)


def casts_at(records: list[Record], agent: str, number: int, home: str = "") -> list[int]:
    """Where it reacts to casts of a view."""
    logs = played()[2].values()
    ids = {
        record[1:3] for each in logs for record in each
        if record.kind == "cast" and f'"number": {number}' in record.detail and record.agent.startswith(home)
    }  # fmt: skip
    return [at for at, r in enumerate(records) if r.kind == "react" and r.agent == agent and r[1:3] in ids]


def test_a_group_without_a_fault_is_clean(tmp_path, arrow):
    found = judged(lambda logs: None, tmp_path)
    assert found.clean and found.reactions > 50
    views = {record.detail for records in played()[2].values() for record in records if record.kind == "view"}
    assert len(views) == 5


@pytest.mark.parametrize(("how", "which"), [("dropped", 0), ("in vain", 5), ("dropped", -1)])
def test_a_cast_that_one_member_has_missed_is_found(how, which, tmp_path, arrow):
    """It was taken as one of no view of its own: without what others say of it that is nothing wrong."""
    missed = []

    def edit(logs: Logs) -> None:
        records = logs["b"]
        at = casts_at(records, "b/y", 3)[which]
        missed.append(records[at][1:3])
        change = {"kind": "drop", "detail": REFUSED} if how == "dropped" else {"detail": CAST}
        records[at] = records[at]._replace(**change)

    found = judged(edit, tmp_path)
    assert found.views == [("b/y", "ledger", 3, missed[0], MISSED)]
    assert not found.clean and not (found.violations or found.lost or found.duplicates or found.unsent)


def test_a_cast_that_is_missed_in_the_last_view_is_found_when_a_later_one_of_its_sender_is_there():
    def edit(logs: Logs) -> None:
        records = logs["c"]
        at = casts_at(records, "c/z", 5)[0]
        records[at] = records[at]._replace(kind="drop", detail=REFUSED)

    assert [(*each[:3], each[4]) for each in judged(edit).views] == [("c/z", "ledger", 5, MISSED)]


def test_two_casts_in_total_order_that_one_member_has_the_other_way_round_are_found(tmp_path, arrow):
    """Of two senders: only the home's order is between them."""
    late = []

    def edit(logs: Logs) -> None:
        records = logs["c"]
        total = casts_at(records, "c/z", 3, "a/group:")
        one, other = next((one, other) for one, other in pairwise(total) if records[one].sent < records[other].sent)
        late.append(records[one][1:3])
        records[one], records[other] = records[other], records[one]

    assert judged(edit, tmp_path).views == [("c/z", "ledger", 3, late[0], ORDER)]


def test_a_cast_that_comes_behind_its_view_is_found():
    late = []

    def edit(logs: Logs) -> None:
        records = logs["a"]
        at = casts_at(records, "a/x", 3)[-1]
        late.append(records[at][1:3])
        behind = next(
            at for at, r in enumerate(records)
            if r.kind == "view" and r.agent == "a/x" and '"number": 4' in r.detail
        )  # fmt: skip
        viewed = next(
            at for at, r in enumerate(records)
            if r.kind == "react" and r.agent == "a/x" and r[1:3] == records[behind][1:3]
        )  # fmt: skip
        records.insert(viewed, records.pop(at))

    views = judged(edit).views
    assert ("a/x", "ledger", 3, late[0], MISSED) in views and not [each for each in views if each[3] != late[0]]


def test_whoever_is_out_of_the_next_view_is_not_held_to_the_last_casts():
    """z leaves: of view 3 it may lack what comes last."""

    def edit(logs: Logs) -> None:
        records = logs["c"]
        at = casts_at(records, "c/z", 3)[-1]
        records[at] = records[at]._replace(kind="drop", detail=REFUSED)

    assert judged(edit).clean


def test_a_cast_whose_reaction_has_failed_was_delivered():
    def edit(logs: Logs) -> None:
        records = logs["b"]
        at = casts_at(records, "b/y", 3)[2]
        records[at] = records[at]._replace(kind="dead", detail="ReactionFailed")

    assert judged(edit).clean


def test_logs_of_an_older_program_say_nothing_of_casts():
    def edit(logs: Logs) -> None:
        for records in logs.values():
            records[:] = [
                record._replace(detail=record.detail.replace(', "home"', ', "of"')) if record.kind == "view"
                else record._replace(kind="hold", detail="") if record.kind == "cast" else record
                for record in records
            ]  # fmt: skip
        logs["b"][:] = [
            r._replace(kind="drop", detail=REFUSED) if at in casts_at(logs["b"], "b/y", 3)[:1] else r
            for at, r in enumerate(logs["b"])
        ]

    assert judged(edit).clean


ALL = ["a/x", "b/y", "c/z"]


def begun() -> Views:
    """Two views are known, and all have come to the first."""
    views = Views()
    for number in (1, 2):
        said = f'{{"group": "g", "home": "a/group:g", "number": {number}, "members": ["a/x", "b/y", "c/z"]}}'
        views.view(("a", number), said)
        views.sent("a/group:g", ("a", number), ALL, [])
    for agent in ALL:
        views.reacted(agent, ("a", 1))
    return views


def test_a_cast_of_a_view_that_a_member_has_not_come_to_is_found():
    views, cast = begun(), ("b", 1)
    views.cast(cast, '{"home": "a/group:g", "number": 2}')
    views.sent("b/y", cast, ALL, [])
    views.reacted("c/z", cast)
    assert views.finish() == [("c/z", "g", 2, cast, OUTSIDE)]


def test_what_is_kept_does_not_grow_with_what_all_have():
    views, agents = begun(), ALL
    for id in [("b", number) for number in range(1000)]:
        views.cast(id, '{"home": "a/group:g", "number": 1}')
        views.sent("b/y", id, agents, [])
        for agent in agents:
            views.reacted(agent, id)
    view = views.of["a", 1]
    assert not (views._casts or views._told or views._open or view.open or view.placed)
    assert view.had == {agent: {"b/y": 1000} for agent in agents} and views.finish() == []


def run(seed: int, losses: bool = False) -> live.Findings:
    made = cluster(seed, groups=True, losses=losses)
    with suppress(AssertionError):  # what is broken may end itself
        made.run(made.world.rng.choice((100, 400, 1000)) * MS)
    stores = {name: node.disk.store for name, node in made.nodes.items() if not node.gone}
    return live.audit(made.losses.topology if made.losses else made.topology, stores)


@pytest.mark.long
@pytest.mark.parametrize(("control", "seeds"), [("no flush", (4, 5, 6)), ("not inhibited", (10, 2, 12))])
def test_a_group_whose_members_differ_is_seen_in_its_logs(control, seeds):
    """Of these seeds at least one shows it: what members do changes all that comes behind it."""
    with broken(control):
        assert any(run(seed).views for seed in seeds)


@pytest.mark.long
@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("part", range(10))
def test_groups_under_faults_are_clean_in_their_logs(part, losses):
    assert [seed for seed in range(20 * part, 20 * part + 20) if run(seed, losses).views] == []
