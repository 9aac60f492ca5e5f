"""Real processes killed at random under every ordering back end: the logs are clean, and the agents' counts agree."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mombroker.admin.bench.chaos import topology_of, without_order
from mombroker.core.trace import Record

ROOT = Path(__file__).resolve().parent.parent.parent


def storm(folder: Path, *words: str) -> list[dict]:
    command = [sys.executable, "-m", "mombroker.admin.bench.chaos", *words, "--folder", str(folder), "-o", "json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return json.loads(run.stdout)


def test_kills_under_one_back_end(tmp_path):
    (row,) = storm(tmp_path, "ks", "--seconds", "2", "--pause", "0.4")
    assert (row["ordering"], row["other"], row["servers"], row["clean"]) == ("ks", "matrix", 8, True)
    assert row["kills"] > 1 and row["told"] == row["heard"] > 32
    assert row["violations"] == row["duplicates"] == row["lost"] == row["unsent"] == row["out_of_turn"] == 0
    assert row["reactions"] >= row["heard"]


def test_a_storm_that_a_signal_ends_says_that_and_judges_nothing(tmp_path):
    """As by `timeout` or Ctrl-C: servers stop in good order then, the first of them before the others."""
    command = [sys.executable, "-m", "mombroker.admin.bench.chaos", "ks", "--folder", str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("*/s8/store.sqlite")):
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    out, error = run.communicate(60)
    assert (run.returncode, out) == (1, "")
    assert error == "Error: stopped by a signal before it was over: nothing is judged\n"


@pytest.mark.long
@pytest.mark.parametrize("name", ["matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast"])
def test_thirty_seconds_of_kills(tmp_path, name):
    (row,) = storm(tmp_path, name)
    assert row["clean"] and row["kills"] > 15 and row["told"] == row["heard"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(11))
def test_five_servers_have_one_order_in_each_of_eleven_storms(tmp_path, seed):
    (row,) = storm(tmp_path, "abcast", "--seconds", "8", "--pause", "0.5", "--seed", str(seed))
    assert row["clean"] and row["without_order"] == 0 and row["kills"] > 5


def test_two_orders_in_the_logs_are_found(tmp_path):
    made = topology_of("abcast", "matrix", tmp_path)
    kind = {"domain": "north", "payload": 1}
    heard = {"s1": ("s3", "s4"), "s2": ("s4", "s3")}
    logs = {
        name: [Record("react", frm, 1, f"{name}/t-{name}", **kind) for frm in heard.get(name, ())]
        for name in made.servers
    }
    assert set(without_order(made, logs)) == {("s3", 1), ("s4", 1)}
    logs["s2"].reverse()
    assert without_order(made, logs) == []


def test_the_bus_of_a_storm_has_two_domains_and_a_router(tmp_path):
    made = topology_of("ks", "overlay", tmp_path)
    made.validate()
    assert (len(made.servers), made.routers) == (8, ["s5"])
    assert [domain.backend for domain in made.domains.values()] == ["ks", "overlay"]
