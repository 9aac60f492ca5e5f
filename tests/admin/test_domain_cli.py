"""`mom domain reset` and `mom topology adopt` on real stores."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from mombroker import store as stores
from mombroker.admin.cli.domain import REPORT, ROWS, show_report
from mombroker.admin.cli.main import cli
from mombroker.admin.reset import Plan, Report
from mombroker.broker.queue.queue import Queue
from mombroker.broker.topic.subscription import Subscription
from mombroker.core import repair
from mombroker.core.batch import Batch, ItemRow
from mombroker.core.errors import MomError
from mombroker.core.trace import Record
from mombroker.net import config
from mombroker.store.base import Store

BUS = """
[bus]
name = "three"
registry = "a"
{servers}
[domains.x]
servers = [{members}]
"""


def bus(folder: Path, members: str) -> Path:
    servers = "".join(
        f'[servers.{name}]\nlisten = "127.0.0.1:{18300 + at}"\ndata = "{name}"\n' for at, name in enumerate(members)
    )
    file = folder / "bus.toml"
    file.write_text(BUS.format(servers=servers, members=", ".join(f'"{name}"' for name in members)))
    return file


def made(folder: Path, members: str = "abc") -> Path:
    file = bus(folder, members)
    topology = config.load(file)
    for name, server in topology.servers.items():
        stores.open(server.data, topology, name).close()
    return file


def mom(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def epoch(folder: Path, name: str) -> object:
    return stores.read(folder / name).meta().get("epoch:x")


def test_reset_sets_the_old_store_aside_and_gives_all_a_new_epoch(tmp_path):
    file = made(tmp_path)
    result = mom("domain", "reset", "b", "--yes", "-f", file, "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["domains"] == ["x"]
    assert [epoch(tmp_path, name) for name in "abc"] == [1, 1, 1]
    assert len(list(tmp_path.glob("b.lost-*"))) == 1


def log(folder: Path, name: str, *sends: tuple[str, int, tuple[str, ...]]) -> None:
    """Some messages that are in a server's log as sent."""
    topology = config.load(folder / "bus.toml")
    with contextlib.closing(stores.open(folder / name, topology, name)) as store:
        rows = [
            Record("send", origin, number, f"{origin}/x", dests, 1, sent=1, done=1, detail="m.T")
            for origin, number, dests in sends
        ]
        store.commit(Batch(log=rows))


def test_reset_works_after_another_server_has_left_the_bus(tmp_path):
    """The logs still name it: as a destination, and as an origin."""
    made(tmp_path, "abcd")
    log(tmp_path, "a", ("a", 1, ("c/queue:keep", "b/sink")), ("c", 1, ("d/sink",)), ("c", 2, ("b/sink",)))
    file = bus(tmp_path, "abd")
    assert mom("topology", "adopt", "--yes", file).exit_code == 0
    shutil.rmtree(tmp_path / "b")
    result = mom("domain", "reset", "b", "--yes", "-f", file, "-o", "json")
    assert result.exit_code == 0, result.output
    lost = [(each["message"], each["agent"]) for each in json.loads(result.stdout)["lost"]]
    assert lost == [("a#1", "b/sink"), ("c#2", "b/sink")]
    assert [epoch(tmp_path, name) for name in "abd"] == [2, 2, 2]


def test_a_reset_that_fails_has_moved_no_folder(tmp_path, monkeypatch):
    file = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(repair, "start_anew", refuse)
        assert mom("domain", "reset", "b", "--yes", "-f", file).exit_code == 1
    assert (tmp_path / "b" / "store.sqlite").exists() and not list(tmp_path.glob("b.lost-*"))


def test_a_reset_that_was_cut_short_leaves_its_report_and_a_second_one_makes_all_epochs_equal(tmp_path, monkeypatch):
    file = made(tmp_path)
    log(tmp_path, "a", ("a", 1, ("b/sink",)))
    for batches in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Plan, "commit", cut_short(batches))
            assert mom("domain", "reset", "b", "--yes", "-f", file).exit_code == 1
    assert mom("domain", "reset", "b", "--yes", "-f", file).exit_code == 0
    assert len({epoch(tmp_path, name) for name in "abc"}) == 1
    reports = [json.loads(path.read_text())["lost"] for path in tmp_path.glob(f"b.lost-*/{REPORT}")]
    assert len(reports) == 4 and all(lost[0]["agent"] == "b/sink" for lost in reports)


def refuse(*_: object) -> None:
    raise MomError("no")


def cut_short(batches: int) -> Callable[..., None]:
    def commit(plan: Plan, stores: dict[str, Store]) -> None:
        for name in list(plan.batches)[:batches]:
            stores[name].commit(plan.batches[name])
        raise MomError("no")

    return commit


def test_reset_refuses_while_a_server_runs_and_when_a_store_is_not_here(tmp_path):
    file = made(tmp_path)
    running = stores.open(tmp_path / "a", config.load(file), "a")
    result = mom("domain", "reset", "b", "--yes", "-f", file)
    running.close()
    assert result.exit_code == 1 and "in use by process" in result.stderr
    assert not list(tmp_path.glob("b.lost-*"))
    (tmp_path / "c").rename(tmp_path / "elsewhere")
    result = mom("domain", "reset", "b", "--yes", "-f", file)
    assert result.exit_code == 1 and "no store of c" in result.stderr and "bring the data folders" in result.stderr
    assert not (tmp_path / "c").exists()


def test_a_reset_prints_the_first_rows_of_its_report_and_saves_all(tmp_path, capsys):
    report = Report(["x"], lost=[{"message": f"a#{number}", "agent": "b/y"} for number in range(ROWS + 5)])
    show_report(report, "table", "message", tmp_path / REPORT)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["lost, or possibly half delivered: 25", "message"] and lines[-2] == "a#19"
    assert lines[-1] == f"... 5 more are in {tmp_path / REPORT}"


def test_a_reset_saves_its_report_though_nothing_is_left_of_the_store(tmp_path):
    file = made(tmp_path)
    shutil.rmtree(tmp_path / "b")
    result = mom("domain", "reset", "b", "--yes", "-f", file, "-o", "json")
    (saved,) = tmp_path.glob(f"b.lost-*/{REPORT}")
    assert json.loads(saved.read_text()) == json.loads(result.stdout)


def test_reset_asks_first(tmp_path):
    file = made(tmp_path)
    assert CliRunner().invoke(cli, ["domain", "reset", "b", "-f", str(file)], input="n\n").exit_code == 1
    assert not list(tmp_path.glob("b.lost-*"))


def test_a_changed_file_is_refused_by_the_stores_until_it_is_adopted(tmp_path):
    made(tmp_path)
    file = bus(tmp_path, "abcd")
    topology = config.load(file)
    result = mom("topology", "adopt", "--yes", file)
    assert result.exit_code == 0, result.output
    assert "all clocks were started anew" in result.stdout
    for name, server in topology.servers.items():
        stores.open(server.data, topology, name).close()


def test_a_file_that_was_made_from_another_revision_is_not_adopted(tmp_path):
    """Unless it says what is in the stores already. Once it is adopted it is of the new revision."""
    made(tmp_path)

    def adopted(names, number, code=0):
        file = bus(tmp_path, names)
        file.write_text(f"revision = {number}\n{file.read_text()}")
        result = mom("topology", "adopt", "--yes", file)
        assert result.exit_code == code, result.output
        return result, config.load(file).revision

    assert adopted("abc", 9)[1] == 1, "the stores knew none"
    refused, number = adopted("abcd", 3, code=1)
    assert "was made from revision 3 of the topology, and revision 1 is in force" in refused.stderr and number == 3
    assert adopted("abcd", 1)[1] == 2
    refused, number = adopted("abc", 1, code=1)
    assert "revision 2 is in force (since then: + server d at" in refused.stderr and number == 1
    assert adopted("abcd", 1)[1] == 2
    assert adopted("abc", 2)[1] == 3


def test_adopt_does_not_take_an_absent_store_for_a_new_server(tmp_path):
    made(tmp_path)
    (tmp_path / "c").rename(tmp_path / "elsewhere")
    result = mom("topology", "adopt", "--yes", bus(tmp_path, "abcd"))
    assert result.exit_code == 1 and "no store of c" in result.stderr
    assert not (tmp_path / "d").exists()


def test_a_server_that_holds_something_leaves_the_file_only_by_drop(tmp_path):
    """Its store is found beside the others; what else it was called by is free again."""
    file = made(tmp_path)
    with contextlib.closing(stores.open(tmp_path / "c", config.load(file), "c")) as store:
        rows = {1: ItemRow(1, "c/queue:in", "p5", 0, b"", b""), 2: ItemRow(2, "c/_dead", "letters", 0, b"", b"")}
        agents = {"c/queue:in": (Queue.path, b""), "c/sub:me:daily": (Subscription.path, b""), "c/x": ("m:X", b"")}
        store.commit(Batch(items=rows, agents=agents))
    with contextlib.closing(stores.open(tmp_path / "a", config.load(file), "a")) as store:
        store.commit(Batch(meta={"name:queue:in": "c/queue:in", "name:far": "b/far", "topic:c:7": "topic:t"}))
    file = bus(tmp_path, "ab")
    result = mom("topology", "adopt", "--yes", file)
    assert result.exit_code == 1
    for what in ("queue:in with 1 message", "durable subscription me:daily", "agent x", "1 dead letter", "--drop"):
        assert what in result.stderr
    with contextlib.closing(stores.open(tmp_path / "c", config.load(bus(tmp_path, "abc")), "c")):
        result = mom("topology", "adopt", "--yes", bus(tmp_path, "ab"), "--drop")
        assert result.exit_code == 1 and "in use by process" in result.stderr
    result = mom("topology", "adopt", "--yes", file, "--drop")
    assert result.exit_code == 0, result.output
    assert "c left the bus" in result.stdout and "names withdrawn: queue:in" in result.stdout
    for name in "ab":
        meta = stores.read(tmp_path / name).meta()
        assert [key for key in meta if key.startswith(("name:", "topic:"))] == ["name:far"]
    assert mom("topology", "adopt", "--yes", file).exit_code == 0


def test_the_name_of_an_agent_that_was_deleted_does_not_keep_its_server_and_one_on_its_way_there_does(tmp_path):
    file = made(tmp_path)
    with contextlib.closing(stores.open(tmp_path / "a", config.load(file), "a")) as store:
        store.commit(Batch(meta={"name:gone": "c/gone"}))
    with contextlib.closing(stores.open(tmp_path / "c", config.load(file), "c")) as store:
        store.commit(Batch(meta={"arriving:b/far": '["b", false]'}))
    result = mom("topology", "adopt", "--yes", bus(tmp_path, "ab"))
    assert result.exit_code == 1 and "c still holds agent far: " in result.stderr
    with contextlib.closing(stores.open(tmp_path / "c", config.load(bus(tmp_path, "abc")), "c")) as store:
        store.commit(Batch(meta={"arriving:b/far": None}))
    result = mom("topology", "adopt", "--yes", bus(tmp_path, "ab"))
    assert result.exit_code == 0 and "names withdrawn: gone" in result.stdout, result.output
    assert not stores.read(tmp_path / "a").meta("name:")


def test_a_server_that_holds_nothing_leaves_and_one_whose_store_is_not_here_is_asked_for(tmp_path):
    made(tmp_path)
    (tmp_path / "c").rename(tmp_path / "elsewhere.c")
    assert mom("topology", "adopt", "--yes", bus(tmp_path, "ab")).exit_code == 0
    (tmp_path / "b" / "store.sqlite").rename(tmp_path / "lost.sqlite")
    result = mom("topology", "adopt", "--yes", bus(tmp_path, "a"))
    assert result.exit_code == 1 and "the store of b is not here" in result.stderr
