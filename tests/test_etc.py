"""The samples in etc/ are what they say they are."""

import configparser
import subprocess
from pathlib import Path

import pytest

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
