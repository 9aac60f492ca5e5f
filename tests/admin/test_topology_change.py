"""`mom topology plan`, `apply`, `export`, `history` on a bus of real processes."""

import hashlib
import json
import random
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from mombroker import store as stores
from mombroker.admin.cli import options
from mombroker.admin.topology import stand
from mombroker.core import revision
from mombroker.core.errors import MomError
from mombroker.net import config
from tests.admin.processes import Processes, write_topology

CLERKS = {"ann": "a", "dan": "d"}
MOVING = ("now", "next", "clean", "unclean")  # keys of table `meta` that any commit writes
LINGERING = ("log", "link", "queue_out")  # tables that are written some time later


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    made = Processes(write_topology(tmp_path_factory.mktemp("bus"), {"x": "abc", "y": "cd"}, CLERKS))
    made.up()
    yield made
    made.down()


@pytest.fixture
def file(bus):
    """The file of the topology that is in force; the bus's own is back at the end."""
    text = bus.file.read_text()
    yield bus.file
    bus.file.write_text(text)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def digest(bus: Processes) -> str:
    """Of all rows of all stores but those that every commit writes, or that an acknowledgement of links takes away."""
    found = hashlib.sha256()
    for name in config.load(bus.file).servers:
        conn = sqlite3.connect(f"file:{bus.file.parent / name / 'store.sqlite'}?mode=ro", uri=True)
        tables = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for table in tables:
            rows = conn.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() if table not in LINGERING else []
            found.update(repr([row for row in rows if row[0] not in MOVING]).encode())
        conn.close()
    return found.hexdigest()


def until_known(bus: Processes, name: str) -> None:
    """All servers have been told of a name."""
    for server in config.load(bus.file).servers:
        conn = sqlite3.connect(f"file:{bus.file.parent / server / 'store.sqlite'}?mode=ro", uri=True)
        while not conn.execute("SELECT 1 FROM meta WHERE key = ?", (f"name:{name}",)).fetchone():
            time.sleep(0.05)
        conn.close()


def number(bus: Processes) -> int:
    return bus.json("topology", "history")[0]["revision"]


def test_a_file_of_what_is_in_force_changes_nothing(bus, file):
    assert bus.mom("topology", "plan").stdout == f"revision {number(bus)}: nothing is to be changed\n"
    bus.mom("topology", "plan", "--detailed-exitcode")
    before = number(bus)
    assert bus.json("topology", "apply", "--yes") == {"revision": before, "changes": []} and number(bus) == before


def test_settings_are_planned_and_applied_while_the_bus_runs(bus, file):
    was = number(bus)
    edit(
        file,
        '[[agents]]\nname = "dan"',
        '[[agents]]\nname = "eve"\nserver = "b"\nclass = "clerks:Clerk"\n[[agents]]\nname = "dan"',
    )
    file.write_text(file.read_text() + '\n[[policies]]\nmatch = "queue:few"\nmax_messages = 3\n')
    lines = ["+ agent eve on b (clerks:Clerk)", "~ policies of the file: none -> queue:few"]
    found = bus.json("topology", "plan", "--detailed-exitcode", code=7)
    assert (found["kind"], found["changes"], found["pauses"], found["costs"]) == ("settings", lines, [], [])
    assert "nothing changes" not in bus.mom("topology", "plan").stdout
    before = digest(bus)
    bus.mom("topology", "apply", stdin="n\n", code=1)
    assert digest(bus) == before
    assert bus.mom("topology", "apply", "--yes").stdout.endswith(f"revision {was + 1} is in force\n")
    assert bus.json("topology", "history")[0]["changes"] == lines
    while not (policies := bus.json("policy", "list", "--server", "d")):
        time.sleep(0.05)  # d is told by c
    assert policies[0]["max_messages"] == 3
    bus.mom("agent", "send", "eve", "clerks.Note", "text=hello")
    bus.settle()
    assert bus.json("agent", "show", "eve")["fields"]["notes"] == ["hello"]
    assert bus.mom("topology", "plan").stdout == f"revision {was + 1}: nothing is to be changed\n"
    exported = config.loads(bus.mom("topology", "export").stdout, file.parent)
    assert revision.text_of(exported) == revision.text_of(config.load(file))


def test_a_change_of_domains_says_who_pauses_and_what_it_costs(bus, file):
    bus.mom("agent", "send", "ann", "clerks.Note", "text=x", 'to=["d/dan"]')
    bus.settle()
    bus.file.write_text(bus.mom("topology", "export").stdout)
    edit(file, 'servers = ["a", "b", "c"]\nordering = "matrix"', 'servers = ["a", "b", "c"]\nordering = "ks"')
    found = bus.json("topology", "plan")
    assert (found["kind"], found["changes"]) == ("freeze", ["~ domain x: matrix -> ks"])
    assert (found["pauses"], found["domains"], found["replaced_by"]) == (["a", "b", "c"], ["x"], ["x"])
    assert [row["topology"] for row in found["costs"]] == ["current", "planned"]
    assert all(row["packets"] > 0 for row in found["costs"])
    shown = bus.mom("topology", "plan").stdout
    assert "a, b and c pause for what enters x there; all others go on as they are" in shown
    assert "what a message costs" in shown


def test_what_the_registry_would_not_take_is_told_by_the_plan(bus, file):
    bus.file.write_text(bus.mom("topology", "export").stdout)
    if "theirs" not in bus.mom("agent", "list").stdout:
        bus.mom("agent", "deploy", "theirs", "clerks:Clerk", "--on", "b")
    bus.settle()
    file.write_text(file.read_text() + '[[agents]]\nname = "theirs"\nserver = "c"\nclass = "clerks:Clerk"\n')
    for words in (("plan",), ("apply", "--yes")):
        refused = bus.mom("topology", *words, code=1)
        assert "+ agent theirs on c" in refused.stdout
        assert "this cannot be applied now: the name theirs is taken by b/theirs: choose another" in refused.stderr


def test_what_a_server_that_leaves_holds_is_listed(bus, file):
    bus.mom("queue", "create", "kept", "--server", "d")
    bus.file.write_text(bus.mom("topology", "export").stdout)
    text = file.read_text()
    head, _, rest = text.partition("[servers.d]")
    rest = rest.partition("[domains.x]")[2]
    left = (head + "[domains.x]" + rest).replace('[domains.y]\nservers = ["c", "d"]\nordering = "matrix"\n', "")
    file.write_text(left.replace('[[agents]]\nname = "dan"\nserver = "d"\nclass = "clerks:Clerk"\n', ""))
    found = bus.json("topology", "plan", code=1)  # it holds something: nobody takes that
    assert found["refused"] and (found["leavers"], found["domains"], found["replaced_by"]) == (["d"], ["y"], [])
    assert {"queue:kept", "agent dan"} <= set(found["holds"]["d"])
    shown = bus.mom("topology", "plan", code=1)
    assert "d leaves, and holds agent dan" in shown.stdout and "this cannot be applied now: " in shown.stderr


def test_a_server_that_is_down_is_named_and_gets_settings_later(bus, file):
    bus.file.write_text(bus.mom("topology", "export").stdout)
    bus.mom("server", "stop", "d")
    edit(file, 'allow = ["clerks"]', 'allow = ["clerks", "shop"]')
    found = bus.json("topology", "plan")
    assert (found["kind"], found["down"], found["needed"]) == ("settings", ["d"], [])
    assert "d is down, and will learn of it later" in bus.mom("topology", "plan").stdout
    done = bus.json("topology", "apply", "--yes")["revision"]
    bus.mom("server", "start", "d")
    for _ in range(100):
        with_d = stores.read(bus.file.parent / "d")
        have, _ = revision.in_force(with_d.meta())
        with_d.close()
        if have == done:
            break
        bus.settle()
    assert have == done


WRONG = [
    lambda text, rng: text.replace('name = "test"', f'name = "{rng.choice(["other", "no name", ""])}"'),
    lambda text, rng: text.replace('registry = "a"', f'registry = "{rng.choice("bcdz")}"'),
    lambda text, rng: text.replace('registry = "a"\n', ""),
    lambda text, rng: text + f'\n[domains.z{rng.randrange(9)}]\nservers = ["{rng.choice("ab")}", "d"]\n',
    lambda text, rng: text + rng.choice(["\n[domains.z]\nservers = []\n", '\n[domains.z]\nservers = ["nobody"]\n']),
    lambda text, rng: text + f'\n[domains.z]\nservers = ["d", "{rng.choice(["e", "paris"])}"]\n',
    lambda text, rng: text.replace('server = "d"', f'server = "{rng.choice("abc")}"'),
    lambda text, rng: text.replace('ordering = "matrix"', f'ordering = "{rng.choice(["fast", "daisies", "fifo"])}"'),
    lambda text, rng: text + f'\n[[policies]]\nmatch = "{rng.choice(["orders", "queue:", ""])}"\n',
    lambda text, rng: text + f'\n[[policies]]\nmatch = "queue:q"\nmax_mesages = {rng.randrange(9)}\n',
    lambda text, rng: text + f'\n[[agents]]\nname = "ann"\nserver = "{rng.choice("bcd")}"\nclass = "clerks:Clerk"\n',
    lambda text, rng: text + '\n[[agents]]\nname = "taken"\nserver = "c"\nclass = "clerks:Clerk"\n',
    lambda text, rng: text + f'\n[servers.{rng.choice("ef")}]\nlisten = "127.0.0.1:{rng.choice([1, 99999])}"\n',
    lambda text, rng: text[: rng.randrange(len(text) // 2)] + "]" * 3,
    lambda text, rng: text.replace("listen", rng.choice(["lissen", "port"]), 1),
    lambda text, rng: text.replace("servers = [", "servers = [7, ", 1),
    lambda text, rng: text + f"\n[limits]\nmax_message = {rng.choice(['true', '-1', '0'])}\n",
]  # fmt: skip


def test_a_hundred_wrong_files_are_refused_with_a_remedy_and_change_nothing(bus, file):
    bus.file.write_text(bus.mom("topology", "export").stdout)
    if "taken" not in bus.mom("agent", "list").stdout:
        bus.mom("agent", "deploy", "taken", "clerks:Clerk", "--on", "b")
    until_known(bus, "taken")
    bus.settle()
    rng, right, before = random.Random(7), file.read_text(), digest(bus)
    wrong = file.with_name("wrong.toml")
    for at in range(100):
        wrong.write_text(WRONG[at % len(WRONG)](right, rng))
        refused = bus.mom("topology", "apply", str(wrong), "--yes", code=1).stderr
        assert refused.startswith("Error: ") and "Traceback" not in refused, (at, refused)
        assert ":" in refused[7:] or ", " in refused, (at, refused)  # what is wrong, and what to do
    assert digest(bus) == before


def test_a_server_that_does_not_know_the_revision_any_more_is_told_to_plan_again(bus, file):
    bus.file.write_text(bus.mom("topology", "export").stdout)
    topology = config.load(file)
    with pytest.raises(MomError, match="run `mom topology plan` again"):
        options.ask(topology, topology.servers["b"], "apply_topology", text=revision.text_of(topology), revision=99)


def test_what_is_in_force_is_told_though_nobody_runs(tmp_path):
    alone = Processes(write_topology(tmp_path, {"x": "ab"}, {"ann": "a"}))
    refused = alone.mom("topology", "plan", code=1).stderr
    assert "no server of this bus tells its topology, and no store of one is here: start it" in refused
    alone.up()
    alone.down()
    assert [row["revision"] for row in alone.json("topology", "history")] == [1]
    assert alone.mom("topology", "plan").stdout.splitlines()[0] == "revision 1: nothing is to be changed"
    edit(alone.file, 'allow = ["clerks"]', 'allow = ["shop"]')
    assert "no server of this bus answers here: start it" in alone.mom("topology", "apply", "--yes", code=1).stderr
    elsewhere = tmp_path / "else" / "new.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(alone.file.read_text())
    found = alone.json("topology", "plan", str(elsewhere), "--now", str(alone.file))
    assert found["changes"] == ["~ allow: clerks -> shop"] and found["down"] == ["a", "b"]
    assert json.loads(json.dumps(found)) == found


def test_all_servers_are_asked_at_once():
    """So those that are silent are waited for once: here each waits until all others were asked."""
    together = threading.Barrier(8, timeout=30)
    assert stand.of_all("abcdefgh", lambda name: (together.wait(), name)[1]) == {name: name for name in "abcdefgh"}
    assert stand.of_all((), str) == {}
