"""The audit of an export: the verdict of the live audit, each planted fault, and nothing else."""

import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mombroker.admin.audit import bus as live
from mombroker.admin.bench import logs
from mombroker.admin.cli.main import cli
from mombroker.net import config
from mombroker.store.memory import MemoryStore
from tests.admin.analysis import planted

pytestmark = pytest.mark.usefixtures("arrow")


def export(folder, target):
    from mombroker.admin.analysis import export, stores

    list(export.export(stores.read(folder), target))
    return target


def judge(topology, target, stores=None):
    from mombroker.admin.audit.export import audit

    return audit(topology, target, stores or {}, at_rest=stores is None)


@pytest.fixture(scope="module")
def exported(played, arrow, tmp_path_factory):
    return export(played.folder, tmp_path_factory.mktemp("exported") / "out")


def same(found, wanted):
    for name in ("violations", "duplicates", "unsent", "lost"):
        assert getattr(found, name) == sorted(getattr(wanted, name)), name
    for name in ("records", "sends", "reactions", "agents", "ended", "uncut", "unjudged", "waiting", "retired"):
        assert getattr(found, name) == getattr(wanted, name), name


def test_an_export_is_judged_as_the_stores_are(played, exported):
    from mombroker.admin.analysis import stores

    readers = stores.read(played.file)
    found = judge(played.topology, exported, readers)
    same(found, live.audit(played.topology, readers))
    assert found.clean and found.sends > 1000 and found.reactions > found.sends


@pytest.mark.parametrize("server", ["s03", "s09", "s14"])
@pytest.mark.parametrize("fault", ["lost", "duplicate", "unsent", "swapped"])
def test_each_planted_fault_is_found_and_nothing_else(fault, server, played, exported, tmp_path):
    target = tmp_path / "out"
    shutil.copytree(exported, target)
    wrong = getattr(planted, fault)(target, server)
    found = judge(played.topology, target)
    assert not found.clean
    expect(found, fault, wrong)


def expect(found, fault, wrong):
    named = {"lost": "lost", "duplicate": "duplicates", "unsent": "unsent", "swapped": "violations"}
    for name in named.values():
        findings = getattr(found, name)
        if name == named[fault]:
            assert findings == [wrong]
        elif fault == "lost" and name == "violations":  # what it was a cause of was taken without it
            assert {finding[:2] for finding in findings} <= {wrong}
        else:
            assert findings == []


def test_what_was_exported_before_its_cause_is_left_out(played, tmp_path):
    """The servers' logs end at different times: what depends on what was not read is not judged."""
    from mombroker.admin.analysis import export, stores
    from tests.admin.analysis.test_export import Upto

    readers = stores.read(played.file)
    for at, server in enumerate(("s04", "s09", "s12")):
        early = {name: Upto(reader, 0.5) if name == server else reader for name, reader in readers.items()}
        list(export.export(early, tmp_path / f"{at}"))
        found = judge(played.topology, tmp_path / f"{at}", readers)
        assert found.clean and found.uncut > 0
        found = judge(played.topology, tmp_path / f"{at}")
        assert found.violations == found.duplicates == found.unsent == [] and found.uncut > 0


def test_a_log_without_its_beginning_is_judged_from_there_on(played, exported, tmp_path):
    from mombroker.admin.analysis import files

    target = tmp_path / "out"
    shutil.copytree(exported, target)
    import pyarrow.parquet as pq

    file = next(file for file in files.chosen(target) if file.server == "s09")
    table = pq.ParquetFile(file.path).read()
    pq.write_table(table[300:], files.place(target, *file.log, file.lo + 300, file.hi, file.day).path)
    file.path.unlink()
    shutil.rmtree(target / files.KNOWN)  # its store had lost them before
    found = judge(played.topology, target)
    assert found.violations == found.duplicates == found.unsent == [] == found.holes
    assert found.retired == ["s09"] and found.unjudged > 0


def test_a_server_of_which_the_export_has_nothing_is_named_and_not_clean(played, exported, tmp_path):
    target = tmp_path / "out"
    shutil.copytree(exported, target, ignore=shutil.ignore_patterns("server=s09"))
    found = judge(played.topology, target)
    assert found.absent == ["s09"] and not found.clean
    assert judge(played.topology, exported).absent == []
    done = CliRunner().invoke(cli, ["check", str(played.file), "--log", str(target)])
    assert done.exit_code == 1 and "mom: the export has no record of s09, so what" in done.stderr
    assert (
        judge(played.topology, target, {"s09": MemoryStore(played.topology, "s09", "a new store")}).absent == []
    )  # it never logged anything


BIG = """
import sys, resource
from pathlib import Path
from mombroker.admin.audit.export import audit
from mombroker.net import config
folder = Path(sys.argv[1])
found = audit(config.load(folder / "bus.toml"), Path(sys.argv[2]), {}, at_rest=True)
used = resource.getrusage(resource.RUSAGE_SELF)
print(found.sends + found.reactions, found.violations, found.duplicates, found.unsent, found.lost, sep="\\n")
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


@pytest.mark.long
def test_one_fault_in_a_million_events_is_found_in_two_minutes_and_two_gigabytes(tmp_path):
    folder = tmp_path / "bus"
    topology, written = logs.play(folder, 10_000)
    logs.write(topology, written, 56)
    (folder / "bus.toml").write_text(config.dumps(topology, folder))
    export(folder, tmp_path / "out")
    for fault, server in (("lost", "s03"), ("duplicate", "s06"), ("unsent", "s10"), ("swapped", "s14")):
        target = tmp_path / fault
        shutil.copytree(tmp_path / "out", target)
        wrong = getattr(planted, fault)(target, server)
        done = subprocess.run([sys.executable, "-c", BIG, folder, target], capture_output=True, text=True, check=True)
        events, violations, duplicates, unsent, lost, used = done.stdout.splitlines()
        assert int(events) > 1_000_000
        found = live.Findings(*map(eval, (violations, duplicates, unsent, lost)))
        expect(found, fault, wrong)
        seconds, kilobytes = map(float, used.split())
        assert seconds < 120 and kilobytes < 2 << 20
        shutil.rmtree(target)
