"""`mom bench peers`: another broker is started, measured in turn with ours, and gone afterwards."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mombroker.admin.bench import peers, stomp
from mombroker.admin.bench.stomp import Target
from mombroker.core.errors import MomError


@contextmanager
def another(folder: Path) -> Iterator[Target]:
    """One of ours in the place of another's."""
    with stomp.ours(folder, python=Path(sys.executable)) as (_, target, _):
        target.name = "another"
        yield target


def test_each_case_has_a_row_of_each_broker_and_its_ratio_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "rabbitmq", another)
    rows = peers.measure(["rabbitmq"], ["flow", "W=1", "fan-out"], 2_000, 2)
    assert [(row["broker"], row["kind"], row["window"], row["messages"]) for row in rows] == [
        ("mombroker", "flow", 512, 2_000), ("another", "flow", 512, 2_000),
        ("mombroker", "flow", 1, 100), ("another", "flow", 1, 100),
        ("mombroker", "fan-out", 512, 500), ("another", "fan-out", 512, 500),
    ]  # fmt: skip
    assert all(row["rate_x"] == 1.0 for row in rows[::2])
    assert all(row["rate_x"] > 0 for row in rows)
    assert not [row for row in rows if row["rate"] <= 0]


def test_a_jetstream_is_not_started_for_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def never(folder: Path) -> Iterator[Target]:
        raise AssertionError("it was started")
        yield

    monkeypatch.setitem(peers.PEERS, "jetstream", never)
    assert [row["broker"] for row in peers.measure(["jetstream"], ["backlog"], 200, 1)] == ["mombroker"]


def test_who_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "DIRECT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.installed() == []
    with pytest.raises(MomError, match="nats-server is not installed: install it, or leave jetstream out of --peer"):
        peers.measure(["jetstream"], ["flow"], 200, 1)
    with pytest.raises(MomError, match="is no release of Artemis: it has no bin/artemis"):
        peers.measure([], ["flow"], 200, 1, release=tmp_path)


def test_all_that_a_broker_has_started_ends_with_it(tmp_path: Path) -> None:
    script = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    with peers.running([sys.executable, "-c", script], tmp_path) as pid:
        while not (said := (tmp_path / "said.txt").read_text().strip()):
            time.sleep(0.01)
        assert os.getpgid(int(said)) == pid
    while runs(said):
        time.sleep(0.01)


def runs(pid: str) -> bool:
    """Before its parent has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_does_not_listen_is_told_with_its_last_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 0.0)
    (tmp_path / "said.txt").write_text("starting\nno room\n")
    with pytest.raises(MomError, match="RabbitMQ does not listen within 0 s: no room"):
        peers.answers("RabbitMQ", 1, tmp_path)


def test_a_python_of_its_own_has_its_own_mombroker_wherever_the_command_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # with a package of that name
    monkeypatch.setenv("PYTHONPATH", "here")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH and $1"\n')
    python.chmod(0o755)
    with pytest.raises(MomError, match="s1 does not start: and -P$"), stomp.ours(tmp_path, python=python):
        pass
