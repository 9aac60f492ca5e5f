"""What the audit finds gets the link that it came over, as the log tells it."""

import json
from collections import defaultdict

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


@pytest.mark.long
def test_the_report_has_them(played, faulty):
    target, wrong = faulty
    run = CliRunner().invoke(cli, ["analyze", str(target), "--file", str(played.file), "--check", "-o", "json"])
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)["findings"]
    assert {row["finding"] for row in rows} >= {"duplicate", "unsent", "violation"}
    assert all(row["count"] and "#" in row["message"] for row in rows)
