"""The demo: what it makes of a topology and of logs, when it kills, and a run with real processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mombroker.admin import demo
from mombroker.admin.reshape import Step
from mombroker.core.errors import MomError
from mombroker.core.layouts import build
from mombroker.core.trace import NO_OUT, Record
from mombroker.net import adminclient, config

ROOT = Path(__file__).resolve().parent.parent.parent
TYPE = "examples.git_history.Commit"


def bus(domains="ab,bc"):
    return build({f"d{at}": list(members) for at, members in enumerate(domains.split(","))})


def test_the_stage_has_the_same_domains_and_its_own_addresses_folders_and_agents(tmp_path):
    given = bus()
    given.limits["max_held"] = 7
    made = demo.staged(given, tmp_path, tmp_path / "history", 5)
    assert (made.graph(), made.registry, made.limits) == (given.graph(), "a", {"max_held": 7})
    assert [server.data for server in made.servers.values()] == [str(tmp_path / name) for name in "abc"]
    assert len({server.port for server in made.servers.values()}) == 3
    assert [(agent.name, agent.server) for agent in made.agents] == [
        ("author0", "a"), ("author1", "b"), ("author2", "c"), ("author3", "a"), ("author4", "b"),
    ]  # fmt: skip
    assert made.agents[4].fields == {"history": str(tmp_path / "history"), "author": 4, "authors": 5}


class Told(list):
    """Stands for the admin ports: authors have seen what `seen` says, servers in `silent` do not answer."""

    def __init__(self, monkeypatch):
        self.seen, self.silent = {}, set()
        monkeypatch.setattr(adminclient, "connect", self.connect)
        monkeypatch.setattr(demo, "POLL_S", 0.0)  # authors are looked at in each tick
        monkeypatch.setattr(os, "kill", lambda pid, number: self.append((pid, number)))
        monkeypatch.setattr(signal, "raise_signal", self.append)

    def connect(self, topology, server, timeout):
        if server in self.silent:
            raise adminclient.NotRunning("down")
        return self

    def request(self, verb, agent):
        assert verb == "agent"
        return {"fields": {"seen": self.seen.get(agent, 0)}}

    def close(self):
        pass


@pytest.fixture
def told(monkeypatch):
    return Told(monkeypatch)


@pytest.fixture
def show(told, tmp_path):
    topology = demo.staged(bus(), tmp_path, tmp_path / "history", 4)
    made = demo.Show(topology, 10, 2, lambda seen, commits: told.append((seen, commits)), told.append)
    for at, server in enumerate("abc", 100):
        made.started(server, at)
    return made


END = signal.SIGTERM


def until(told, show, seen):
    told.seen = dict.fromkeys(["a/author0", "b/author1", "c/author2", "a/author3"], seen)
    show.tick()


KILLED = "was killed by SIGKILL"


def test_ports_are_in_a_row_that_nobody_uses_and_no_system_gives_to_others(monkeypatch):
    ports = demo.free_ports(50)
    assert ports == [*range(ports[0], ports[0] + 50)] and 10_000 <= ports[0] and ports[-1] < 32_768
    rows = iter(ports)
    monkeypatch.setattr(demo.random, "randrange", lambda *between: next(rows))
    with socket.create_server(("127.0.0.1", ports[1])):
        assert demo.free_ports(2) == ports[2:4]


def test_routers_are_killed_at_even_parts_of_the_run(told, show):
    for seen in (3, 4):
        until(told, show, seen)
    show.ended("b", KILLED, True)
    show.started("b", 103)
    for seen in (5, 7):
        until(told, show, seen)
    kill = "kill -9 of router b"
    assert told == [
        (3, 10), (4, 10), kill, (101, signal.SIGKILL), f"b {KILLED}", (5, 10), (7, 10), kill, (103, signal.SIGKILL),
    ]  # fmt: skip
    assert show.killed == ["b", "b"]


def test_a_router_that_is_gone_is_waited_for(told, show):
    """Its process may be that of somebody else by then."""
    until(told, show, 4)
    until(told, show, 7)  # it is dead, but nobody has seen it yet
    show.ended("b", KILLED, True)
    until(told, show, 8)
    assert show.killed == ["b"]
    show.started("b", 103)
    until(told, show, 8)
    kill = "kill -9 of router b"
    assert [each for each in told if each == kill or each[1] == signal.SIGKILL] == [
        kill, (101, signal.SIGKILL), kill, (103, signal.SIGKILL),
    ]  # fmt: skip


def test_another_router_is_killed_where_one_is_gone(told, tmp_path):
    topology = demo.staged(bus("ab,bc,cd"), tmp_path, tmp_path / "history", 4)
    show = demo.Show(topology, 10, 3, lambda seen, commits: None, told.append)
    for at, server in enumerate("abcd", 100):
        show.started(server, at)
    told.seen = dict.fromkeys(["a/author0", "b/author1", "c/author2", "d/author3"], 9)
    show.ended("b", "ended with exit code 70", True)
    show.tick()
    show.started("b", 104)
    show.tick()
    show.started("c", 105)
    show.tick()
    assert show.killed == ["c", "b", "c"]


def test_the_run_is_over_when_every_author_has_seen_all(told, show):
    show.kills = 0
    told.seen = {"a/author0": 10, "b/author1": 10, "c/author2": 10, "a/author3": 9}
    show.tick()
    assert END not in told
    told.seen["a/author3"] = 10
    show.tick()
    assert told == [(9, 10), (10, 10), END]
    show.ended("a", "stopped", False)
    assert (show.given_up, show.stalled) == ("", False)


def test_a_run_that_was_over_too_soon_for_its_kills_says_so(told, show):
    told.seen = dict.fromkeys(["a/author0", "b/author1", "c/author2", "a/author3"], 10)
    show.tick()
    assert told == [(10, 10), "the run was over before 2 of 2 kills: give it a longer history", END]


def test_a_server_that_does_not_answer_is_asked_again(told, show):
    show.kills = 0
    told.silent = {"b"}
    told.seen = dict.fromkeys(["a/author0", "b/author1", "c/author2", "a/author3"], 10)
    show.tick()
    told.silent = set()
    show.tick()
    assert told == [(6, 10), (10, 10), END]


class Reshaper:
    """Stands for the changes of the bus: one takes as many looks as `looks` says; `refuses` those that are refused."""

    def __init__(self, topology):
        self.topology, self.under_way, self.refused = topology, False, []
        self.looks, self.refuses, self.number = 2, 0, 1

    def begin(self, make):
        self.new = make(self.topology)
        self.under_way, self.left = self.new is not None, self.looks
        return self.under_way

    def look(self):
        self.left -= 1
        if self.left:
            return None
        self.under_way = False
        if self.refuses:
            self.refuses -= 1
            self.refused.append("c does not answer")
            return None
        self.topology, self.number = self.new, self.number + 1
        return Step(self.number, "attach" if self.number == 2 else "freeze", [])

    def close(self):
        pass


def changing(told, tmp_path, domains, kills=0):
    topology = demo.staged(bus(domains), tmp_path, tmp_path / "history", 4)
    show = demo.Show(topology, 10, kills, lambda seen, commits: None, told.append, changes=3)
    show._reshaper = Reshaper(topology)
    for at, server in enumerate(topology.servers, 100):
        show.started(server, at)
    return show


def ticks(told, show, seen, times=4):
    """So many looks at the authors, who have seen so much."""
    told.seen = {f"{agent.server}/{agent.name}": seen for agent in show.topology.agents}
    for _ in range(times):
        show.tick()


JOINED = "site lille joins behind c: revision 2"
SPLIT = "domain d0 is split into d0 and d02: revision 3"
MOVED = "lille takes over from c as the router of d0: revision 4"


def test_a_site_joins_a_domain_is_split_and_a_router_moves_at_even_parts_of_the_run(told, tmp_path):
    show = changing(told, tmp_path, "abc,cd")
    ticks(told, show, 2)
    assert told == [] and show.children == []
    ticks(told, show, 3)
    assert told == [JOINED]
    (site,) = show.children
    assert (site.name, site.folder.stat().st_mode & 0o777) == ("lille", 0o700)
    ticks(told, show, 5)
    assert told == [JOINED], "the new site does not run yet"
    show.started("lille", 104)
    ticks(told, show, 5)
    ticks(told, show, 8)
    assert told == [JOINED, SPLIT, MOVED]
    assert [each.members for each in show.topology.domains.values()] == [
        ("a", "lille"), ("c", "d"), ("c", "lille"), ("b", "c"),
    ]  # fmt: skip
    assert show.changed == [
        {"revision": 2, "kind": "attach", "what": JOINED.partition(":")[0]},
        {"revision": 3, "kind": "freeze", "what": SPLIT.partition(":")[0]},
        {"revision": 4, "kind": "freeze", "what": MOVED.partition(":")[0]},
    ]
    ticks(told, show, 10, 1)
    assert told[-1] == END


def test_a_change_that_was_refused_is_tried_again_and_the_run_waits_for_its_end(told, tmp_path):
    show = changing(told, tmp_path, "abc,cd")
    show._reshaper.refuses = 1
    ticks(told, show, 3, 3)
    assert told == ["not yet: c does not answer"]
    ticks(told, show, 10, 1)
    assert told[-1] != END
    ticks(told, show, 10, 2)
    assert told[1:] == [JOINED, "the run was over before 2 of 3 changes: give it a longer history", END]


def test_the_run_waits_for_a_site_that_has_joined_to_begin(told, tmp_path):
    show = changing(told, tmp_path, "abc,cd")
    show.changes = 1
    told.silent = {"lille"}  # it makes its store
    ticks(told, show, 9)
    ticks(told, show, 10)
    assert told == [JOINED]
    told.silent = set()
    ticks(told, show, 10, 1)
    assert told == [JOINED, END]


def test_a_bus_has_no_place_for_every_change(told, tmp_path):
    show = changing(told, tmp_path, "ab,bc")
    show.changes = 2
    ticks(told, show, 4)
    show.started("lille", 103)
    ticks(told, show, 7)
    assert told == ["site lille joins behind b: revision 2", "a domain is split: no domain has three servers"]


def test_the_run_is_over_when_nothing_moves(told, show, monkeypatch):
    monkeypatch.setattr(demo, "STALL_S", -1.0)
    show.tick()
    assert show.stalled and told[-1] == END


def test_the_run_is_over_when_a_server_cannot_go_on(told, show):
    show.ended("b", "was killed by SIGKILL and starts again in 0.2 s: last words", True)
    assert told == ["b was killed by SIGKILL and starts again in 0.2 s"]
    show.ended("c", "cannot go on and is not started again: disk full", False)
    assert show.given_up == "c cannot go on and is not started again: disk full"
    assert told[-1] == END


class Log:
    def __init__(self, *records):
        self.records = list(enumerate(records, 1))

    def log(self, after, limit):
        return [row for row in self.records if row[0] > after][:1]


def record(kind, number, sent, done, out=NO_OUT, detail=""):
    return Record(kind, "a", number, sent=sent, done=done, out=out, detail=detail)


def test_figures_are_of_the_messages_of_one_type():
    stores = {
        "a": Log(
            record("send", 1, 10, 10, [("d", "b", 4, 1), ("d", "c", 6, 1)], TYPE), record("send", 2, 0, 0, detail="x"),
            record("react", 1, 10, 40),
        ),
        "b": Log(
            record("hold", 1, 10, 0), record("forward", 1, 10, 20, [("e", "c", 5, 2)]), record("react", 1, 10, 20),
        ),
        "c": Log(record("react", 2, 0, 99), record("react", 1, 10, 60)),
    }  # fmt: skip
    found = demo.figures(stores, TYPE)
    assert (found.messages, found.reactions, found.hops, found.control_bytes, found.held) == (1, 3, 3, 15, 1)
    assert (found.began, found.ended, found.latencies) == (10, 60, [10, 30, 50])
    assert (found.latency_ms(0.5), found.latency_ms(0.99)) == (30e-6, 50e-6)


def test_there_are_figures_of_nothing():
    found = demo.figures({"a": Log()}, TYPE)
    assert (found.messages, found.latency_ms(0.5)) == (0, 0.0)


def test_without_examples_it_says_where_to_run_it(monkeypatch, tmp_path):
    monkeypatch.setattr(demo.mombroker, "__file__", str(tmp_path / "mombroker" / "__init__.py"))
    with pytest.raises(MomError, match="in a copy of the project"):
        demo.examples()


# -- with processes ----------------------------------------------------------------------------------------------------


def mom(*words, code=0):
    command = [sys.executable, "-m", "mombroker.admin.cli.main", *map(str, words)]
    run = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert run.returncode == code, run.stderr
    return run


def repository(folder, commits, authors):
    """A history in which each author commits in turn, and now and then merges what lies three commits back."""
    lines = []
    for at in range(1, commits + 1):
        merge = f"merge :{at - 3}\n" if at > 3 and at % 5 == 0 else ""
        lines.append(
            f"commit refs/heads/main\nmark :{at}\ncommitter A <a{at % authors}> {1000 + at} +0000\ndata 1\nx\n"
            + (f"from :{at - 1}\n" if at > 1 else "") + merge
        )  # fmt: skip
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input="\n".join(lines).encode(), check=True)


def test_a_small_run_with_any_repository_on_any_topology(tmp_path):
    repository(tmp_path / "repo", commits=40, authors=5)
    (tmp_path / "bus.toml").write_text(config.dumps(bus()))
    words = ["--git", tmp_path / "repo", "--topology", tmp_path / "bus.toml", "--folder", tmp_path / "kept"]
    words += ["--kills", 0, "--changes", 0]
    run = mom("demo", *words)
    *table, last = run.stdout.splitlines()
    found = {"messages": 40, "kills": 0, "changes": [], "violations": 0, "lost": 0, "duplicated": 0}
    assert json.loads(last) == found
    rows = dict(re.split("  +", line) for line in table if line.strip() != "killed")
    assert rows["servers, domains, routers"] == "3, 2, 1"
    assert (rows["authors"], rows["messages"], rows["reactions"]) == ("5", "40", "200")
    assert int(rows["hops"]) == 80  # one copy for each other server
    assert rows["check"].startswith("clean")
    report = json.loads(mom("check", tmp_path / "kept" / "demo.toml", "-o", "json").stdout)
    assert report["clean"] and report["reactions"] >= 200
    again = mom("demo", *words, code=1)
    assert again.stderr.count("\n") == 1 and "an earlier demo" in again.stderr


def test_the_bus_changes_while_the_history_runs(tmp_path):
    repository(tmp_path / "repo", commits=400, authors=4)
    (tmp_path / "bus.toml").write_text(config.dumps(bus("abc,cd")))
    words = ["--git", tmp_path / "repo", "--topology", tmp_path / "bus.toml", "--folder", tmp_path / "kept"]
    run = mom("demo", *words, "--kills", 1)
    last = json.loads(run.stdout.splitlines()[-1])
    changes = last.pop("changes")
    assert last.pop("kills") <= 1  # a history this short may be over before
    assert last == {"messages": 400, "violations": 0, "lost": 0, "duplicated": 0}
    early = re.search(r"over before (\d) of 3 changes", run.stderr)
    assert len(changes) == 3 - (int(early[1]) if early else 0)
    kinds = [(2, "attach"), (3, "freeze"), (4, "freeze")]
    assert [(each["revision"], each["kind"]) for each in changes] == kinds[: len(changes)]
    assert all((each["pause_ms"] > 0) == (each["kind"] == "freeze") for each in changes)
    kept = tmp_path / "kept" / "demo.toml"
    assert ("lille" in config.load(kept).servers) == bool(changes)
    report = json.loads(mom("check", kept, "-o", "json").stdout)
    assert report["clean"] and report["judged_pct"] == 100


@pytest.mark.long
def test_the_sample_survives_the_kill_of_routers():
    run = mom("demo", "--kills", 5)
    last = json.loads(run.stdout.splitlines()[-1])
    assert [each["revision"] for each in last.pop("changes")] == [2, 3, 4]
    assert last == {"messages": 2378, "kills": 5, "violations": 0, "lost": 0, "duplicated": 0}
    assert run.stderr.count("kill -9 of router") == 5
