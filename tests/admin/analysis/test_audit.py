"""The audit of an export: the verdict of the live audit, each planted fault, and nothing else."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

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
    """At rest, unless stores are given."""
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
    from tests.admin.analysis.exports import Upto

    readers = stores.read(played.file)
    for at, server in enumerate(("s04", "s09", "s12")):
        early = {name: Upto(reader, 0.5) if name == server else reader for name, reader in readers.items()}
        list(export.export(early, tmp_path / f"{at}"))
        found = judge(played.topology, tmp_path / f"{at}", readers)
        assert found.clean and found.uncut > 0 and found.judged == 1
        others = {name: reader for name, reader in readers.items() if name != server}
        found = judge(played.topology, tmp_path / f"{at}", others)
        assert found.clean and found.unjudged > 0 and 0.3 < found.judged < 1


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
    assert done.exit_code == 4 and "mom: the export has no record of s09, so what" in done.stderr
    assert (
        judge(played.topology, target, {"s09": MemoryStore(played.topology, "s09", "a new store")}).absent == []
    )  # it never logged anything


FAULTS = ("lost", "duplicate", "unsent", "swapped", "unforwarded", "cyclic", "hole")
ROUTERS = ("s04", "s05", "s09", "s12")


def alike(found, wanted):
    """But for what one of them must leave out."""
    assert found.clean == wanted.clean and found.judged == wanted.judged
    for name in ("violations", "duplicates", "unsent", "lost"):
        assert getattr(found, name) == sorted(getattr(wanted, name)), name
    assert found.retired == wanted.retired and len(found.holes) == len(wanted.holes)
    assert (found.uncut, found.unjudged) == (wanted.uncut, wanted.unjudged)


def plant(fault: str, folder: Path, chance: Random) -> bool:
    """True if it is one that must be found."""
    server = chance.choice(ROUTERS if fault == "unforwarded" else [f"s{n:02}" for n in range(logs.SERVERS)])
    if fault == "hole":
        planted.cut_out(folder, server, chance.randrange(20, len(planted.read(folder)[server]) - 20))
        return True
    return bool(getattr(planted, fault)(folder, server))


def planting(played, folder: Path, seed: int) -> None:
    """Faults in the stores: the live audit and those of an export see the same, whatever the topology file says of
    routers by now."""
    chance = Random(seed)
    shutil.copytree(played.folder, folder)
    places = {name: replace(server, data=str(folder / name)) for name, server in played.topology.servers.items()}
    topology = replace(played.topology, servers=places)
    file = folder / "bus.toml"
    file.write_text(config.dumps(topology, folder))
    faults = chance.sample(FAULTS, chance.choice((1, 1, 2)))
    wrong = [plant(fault, folder, chance) for fault in faults]
    export(folder, folder / "out")
    if chance.random() < 0.4:  # another router between two domains, after all that
        west = replace(topology.domains["west"], members=("s11", "s13", "s14", "s15"))
        topology = replace(topology, domains={**topology.domains, "west": west})
    from mombroker.admin.analysis import stores

    readers = stores.read(file)
    wanted = live.audit(topology, readers)
    at_hand, at_rest = judge(topology, folder / "out", readers), judge(topology, folder / "out")
    alike(at_hand, wanted)
    assert wanted.clean is not any(wrong), (seed, faults)
    assert at_rest.clean == wanted.clean and at_rest.uncut == 0
    if not wanted.retired:
        alike(at_rest, wanted)
        assert at_rest.judged == 1


def test_planted_faults_are_the_same_for_the_live_audit_and_that_of_an_export(played, tmp_path):
    for seed in range(8):
        planting(played, tmp_path / f"{seed}", seed)


@pytest.mark.long
def test_two_hundred_planted_faults_are_the_same_for_both(played, tmp_path):
    for seed in range(100, 300):
        planting(played, tmp_path / f"{seed}", seed)
        shutil.rmtree(tmp_path / f"{seed}")


def test_a_verdict_says_how_much_was_judged(played, tmp_path):
    from mombroker.admin.analysis import export, stores
    from tests.admin.analysis.exports import Upto

    readers = stores.read(played.file)
    early = {name: Upto(reader, 0.5) if name == "s09" else reader for name, reader in readers.items()}
    list(export.export(early, tmp_path / "out"))
    file = tmp_path / "bus.toml"
    elsewhere = {name: replace(server, data=f"{name}") for name, server in played.topology.servers.items()}
    file.write_text(config.dumps(replace(played.topology, servers=elsewhere), tmp_path))
    done = CliRunner().invoke(cli, ["check", str(file), "--log", str(tmp_path / "out"), "-o", "json"])
    report = json.loads(done.stdout)
    assert done.exit_code == 5 and report["clean"] and 30 < report["judged_pct"] < 100 and report["not_judged"]
    assert f"clean as far as it could be judged, which is {report['judged_pct']:g} %" in done.stderr
    done = CliRunner().invoke(cli, ["check", str(played.file), "-o", "json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["judged_pct"] == 100


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
