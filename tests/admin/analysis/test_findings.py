"""What the audit finds gets the link that it came over, as the log tells it."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from click.testing import CliRunner

from mombroker.admin.analysis import files
from mombroker.admin.cli.main import cli
from mombroker.core.ids import home_of
from mombroker.core.topology import RoutingTable
from tests.admin.analysis import planted
from tests.admin.analysis.test_audit import export, judge

pytestmark = pytest.mark.spark

FAULTS = (("lost", "s12"), ("duplicate", "s06"), ("unsent", "s03"), ("swapped", "s14"))


@pytest.fixture(scope="module")
def faulty(arrow, played, tmp_path_factory):
    """An export with four faults, and what they are."""
    target = export(played.folder, tmp_path_factory.mktemp("faulty") / "out")
    return target, {fault: getattr(planted, fault)(target, server) for fault, server in FAULTS}


def reactions(target):
    """(agent, message) -> domain, ordering, peer, server of the last reaction to what came over a link."""
    import pyarrow.parquet as pq

    found = defaultdict(lambda: (None,) * 4)
    for file in files.chosen(target):
        for row in pq.ParquetFile(file.path).read().to_pylist():
            if row["kind"] == "react" and row["domain"]:
                id = row["origin"], row["number"]
                found[row["agent"], id] = row["domain"], row["ordering"], row["peer"], file.server
    return found


def test_each_finding_is_joined_with_its_link(spark, played, faulty):
    from mombroker.admin.analysis import findings, source

    target, wrong = faulty
    found = judge(played.topology, target)
    assert wrong["lost"] in found.lost and wrong["swapped"] in found.violations
    assert wrong["duplicate"] in found.duplicates and wrong["unsent"] in found.unsent
    came = reactions(target)
    expected = {("violation", agent, late): came[agent, late] for agent, late, _ in found.violations}
    expected |= {("duplicate", *pair): came[pair] for pair in found.duplicates}
    expected |= {("unsent", *pair): came[pair] for pair in found.unsent}
    for agent, id in found.lost:
        way = (
            [("", id[0]), *RoutingTable(played.topology, id[0]).path(home_of(agent))] if id[0] != home_of(agent) else []
        )
        (_, peer), (domain, server) = way[-2:] or [("", None), (None, None)]
        ordering = played.topology.domains[domain].backend if domain else None
        expected["lost", agent, id] = domain, ordering, peer, server
    rows = findings.located(source.read(spark, target), found, played.topology).collect()
    located = {
        (row.finding, row.agent, (row.origin, row.number)): (row.domain, row.ordering, row.peer, row.server)
        for row in rows
    }
    assert located == expected and len({place for place in located.values() if place[0]}) > 1


def lives(target):
    """Of each agent what it sent and reacted to, in order."""
    found = defaultdict(list)
    for rows in planted.read(target).values():
        for row in rows:
            if row["kind"] in ("send", "react"):
                found[row["agent"]].append((row["kind"], (row["origin"], row["number"])))
    return found


def caused(found, late):
    """All messages that were sent after their sender had sent it, or reacted to it, or to one of these."""
    places = defaultdict(list)
    for agent, events in found.items():
        for at, (_, id) in enumerate(events):
            places[id].append((agent, at))
    seen, left, begun = {late}, [late], {}
    while left:
        for agent, at in places[left.pop()]:
            for kind, id in found[agent][at + 1 : begun.get(agent)]:
                if kind == "send" and id not in seen:
                    seen.add(id)
                    left.append(id)
            begun[agent] = min(at + 1, begun.get(agent, at + 1))
    return seen - {late}


def test_a_violation_has_the_chain_by_which_the_one_message_is_a_cause_of_the_other(played, faulty):
    from mombroker.admin.audit.chains import chains

    target, _ = faulty
    violations = [(late, before) for _, late, before in judge(played.topology, target).violations]
    found = lives(target)
    sent = sorted(id for events in found.values() for kind, id in events if kind == "send")
    pairs = [(late, before) for late in sent[:: len(sent) // 15] for before in sent[7 :: len(sent) // 15]]
    told = chains(played.topology, target, [*violations, *pairs])
    assert violations and set(told) >= set(violations) and max(map(len, told.values())) > 4
    after = {late: caused(found, late) for late, _ in pairs}
    assert {pair for pair in pairs if pair in told} == {pair for pair in pairs if pair[1] in after[pair[0]]}
    for (late, before), chain in told.items():
        assert chain[0][1] == late and chain[-1][1] == before
        for (_, one), (agent, other) in pairwise(chain):
            events = [id for _, id in found[agent]]
            assert events.index(one) < found[agent].index(("send", other))


@pytest.mark.long
def test_the_report_has_them(played, faulty):
    target, wrong = faulty
    run = CliRunner().invoke(cli, ["analyze", str(target), "--file", str(played.file), "--check", "-o", "json"])
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)["findings"]
    assert {row["finding"] for row in rows} >= {"duplicate", "unsent", "violation"}
    assert all(row["count"] and "#" in row["message"] for row in rows)
    for row in rows:
        ends = [each["message"] for each in (*row["causes"][:1], *row["causes"][-1:])]
        assert ends == ([row["message"], row["before"]] if row["finding"] == "violation" else [])
