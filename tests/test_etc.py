"""The samples in etc/ are what they say they are."""

import configparser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mombroker.gateway.web import metrics
from mombroker.net import config

ETC = Path(__file__).resolve().parent.parent / "etc"


@pytest.mark.parametrize("path", sorted(ETC.glob("*.toml")), ids=lambda path: path.stem)
def test_a_sample_topology_is_valid_and_stays_on_this_machine(path):
    topology = config.load(path)
    assert topology.name == path.stem
    assert {server.host for server in topology.servers.values()} == {"127.0.0.1"}
    assert all(Path(server.data).parent == ETC / "var" for server in topology.servers.values())


def test_no_two_samples_share_a_port():
    ports = [server.port for path in ETC.glob("*.toml") for server in config.load(path).servers.values()]
    assert len(ports) == len(set(ports))


def test_the_mixed_sample_mixes_back_ends():
    assert len({domain.backend for domain in config.load(ETC / "mixed.toml").domains.values()}) > 1


def test_the_service_is_not_restarted_where_only_a_person_can_help():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(ETC / "mombroker.service")
    assert "3" in unit["Service"]["RestartPreventExitStatus"].split()
    assert unit["Service"]["ExecStart"].endswith("/mom serve")


def needs(command, package):
    """It is skipped without, but not where nothing may be skipped."""
    if shutil.which(command) is None:
        assert "MOM_SKIP_NOTHING" not in os.environ, f"install {package}"
        pytest.skip(f"needs {command}")


def test_the_service_may_do_next_to_nothing():
    needs("systemd-analyze", "systemd")
    unit = str(ETC / "mombroker.service")
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=12", "--no-pager", unit]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


RULES, DASHBOARD = ETC / "prometheus" / "mombroker.rules.yml", ETC / "grafana" / "mombroker.json"
METRICS = {metrics.full(each): each for each in (*metrics.METRICS, *metrics.REPLICA, *metrics.REPLICAS)}


def expressions():
    """(title, expression) of each alert and panel."""
    found = re.findall(r"- alert: (\w+)\n +expr: (.*)\n", RULES.read_text())
    assert len(found) == RULES.read_text().count("alert:")
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return found + [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_every_metric_that_an_alert_or_a_panel_names_is_there_and_counters_are_rates(title, expression):
    used = set(re.findall(r"\b(?:mombroker|process)_[a-z_]+\b", re.sub(r'"[^"]*"', "", expression)))
    assert used <= METRICS.keys() and (used or "up{" in expression)
    for name in used:
        if METRICS[name].type == "counter":
            assert re.search(rf"(rate|increase)\({name}\b[^)]*\[", expression), f"{name} only ever grows"


def test_the_most_important_figures_have_an_alert():
    text = RULES.read_text()
    for name in (
        "full", "problems", "domain_held_longest_seconds", "link_up", "agent_dead_letters", "stuck_agents",
        "disk_free_bytes", "certificate_expires_seconds", "replica_up", "replica_behind",
    ):  # fmt: skip
        assert f"mombroker_{name}" in text


def test_panels_have_room_of_their_own():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        x, y, w, h = (panel["gridPos"][each] for each in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24 and not cells & taken
        taken |= cells


CASES = """
rule_files: [mombroker.rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - { series: 'mombroker_link_up{server="a",peer="b",domain="d"}', values: "1 1 0x10" }
      - { series: 'mombroker_link_waiting{server="a",peer="b",domain="d"}', values: "0 0 7x10" }
      - { series: 'mombroker_link_up{server="a",peer="c",domain="d"}', values: "0x12" }
      - { series: 'mombroker_link_waiting{server="a",peer="c",domain="d"}', values: "0x12" }
      - { series: 'mombroker_queue_messages{server="a",destination="queue:DLQ.in"}', values: "0 0 3x10" }
      - { series: 'mombroker_domain_held_longest_seconds{server="a",domain="d"}', values: "0 30 61 90 0x8" }
      - { series: 'mombroker_replica_behind{server="a",replica="a-2",role="follower"}', values: "0 2000x4 1x3 5000x9" }
    alert_rule_test:
      - { alertname: MombrokerLinkDown, eval_time: 3m }
      - { alertname: MombrokerReplicaBehind, eval_time: 12m }
      - alertname: MombrokerReplicaBehind
        eval_time: 15m
        exp_alerts:
          - exp_labels: { severity: warning, server: a, replica: a-2, role: follower }
            exp_annotations:
              summary: replica a-2 of a is behind
              description: It lacks 5000 entries, and does not lead before it has them. mom replica status shows all.
      - alertname: MombrokerLinkDown
        eval_time: 5m
        exp_alerts:
          - exp_labels: { severity: critical, server: a, peer: b, domain: d }
            exp_annotations:
              summary: a does not reach b
              description: 0 is 0 while packets wait in domain d. mom status --server a has the reason.
      - alertname: MombrokerDeadLetters
        eval_time: 2m
        exp_alerts:
          - exp_labels: { severity: warning, server: a, destination: "queue:DLQ.in" }
            exp_annotations:
              summary: 3 dead letters in queue:DLQ.in
              description: mom queue browse shows them with the reason, mom dlq retry sends them back.
      - { alertname: MombrokerHeldLong, eval_time: 4m }
"""


def test_prometheus_takes_the_alerts_and_fires_them_when_it_should(tmp_path):
    needs("promtool", "prometheus")
    shutil.copy(RULES, tmp_path)
    (tmp_path / "cases.yml").write_text(CASES)
    done = subprocess.run(["promtool", "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_papers_are_reported_from_a_fresh_clone_by_one_command(tmp_path):
    """What make would do where nothing is yet: an environment, the package with what draws pictures, the report."""
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        (tmp_path / name).write_bytes((ETC.parent / name).read_bytes())
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", "papers", "ARGS=--full"], cwd=tmp_path, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    venv, pip, report = (
        next(at for at, line in enumerate(lines) if word in line)
        for word in ("-m venv", "install --editable '.[plots]'", ".venv/bin/mom paper report --full")
    )
    assert done.returncode == 0 and venv < pip < report == len(lines) - 1
