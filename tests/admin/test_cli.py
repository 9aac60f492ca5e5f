"""The commands that speak with running servers and look into their stores, on a bus of three real processes."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from mombroker.admin import supervisor
from mombroker.admin.cli.up import Tails
from mombroker.net import config
from mombroker.store import folder
from mombroker.store.folder import LOCK
from tests.admin.processes import Processes, write_topology

CLERKS = {"ann": "a", "bob": "b", "cy": "c"}


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bus")
    made = Processes(write_topology(folder, {"d1": "ab", "d2": "bc"}, CLERKS, "[limits]\nmax_attempts = 1"))
    made.up()
    yield made
    made.down()


def send(bus: Processes, to: str, text: str, *more: str) -> str:
    return bus.json("agent", "send", to, "clerks.Note", f"text={text}", *more)["message"]


def test_status_shows_all_servers_or_one_in_full(bus):
    rows = bus.json("status")
    assert [(row["server"], row["state"]) for row in rows] == [("a", "up"), ("b", "up"), ("c", "up")]
    lines = bus.mom("status").stdout.splitlines()
    assert lines[0].split()[:3] == ["server", "state", "links"] and len(lines) == 4
    assert bus.mom("status", "-c", "state,server").stdout.splitlines()[1].split() == ["up", "a"]
    full = bus.json("status", "--server", "b")
    assert [domain["domain"] for domain in full["domains"]] == ["d1", "d2"]
    assert {peer["peer"] for peer in full["peers"]} == {"a", "c"}
    assert "domain" in bus.mom("status", "-s", "b").stdout


def test_agents_are_listed_shown_and_sent_to(bus):
    assert {row["agent"] for row in bus.json("agent", "list")} >= {"a/ann", "b/bob", "c/cy"}
    assert [row["agent"] for row in bus.json("agent", "list", "--server", "a", "--after", "a/_")] == ["a/ann"]
    sent = send(bus, "ann", "hello", 'to=["c/cy"]')
    assert sent.startswith("a#")
    bus.settle()
    assert "hello" in bus.json("agent", "show", "ann")["fields"]["notes"]
    assert "hello again" in bus.json("agent", "show", "c/cy")["fields"]["notes"]
    assert "fields" in bus.mom("agent", "show", "ann").stdout


def test_a_server_that_does_not_own_the_agent_says_who_does(bus):
    result = bus.mom("agent", "show", "c/cy", "--server", "a", code=1)
    assert result.stderr.count("\n") == 1 and "c" in result.stderr


def test_agents_are_deployed_and_deleted(bus):
    made = bus.json("agent", "deploy", "dan", "clerks:Clerk", 'notes=["old"]', "--on", "c")
    assert made["agent"].startswith("c/")
    bus.settle()
    assert bus.json("agent", "show", made["agent"])["fields"] == {"notes": ["old"]}
    assert bus.json("agent", "show", "dan")["agent"] == made["agent"]
    assert send(bus, "dan", "new").startswith("c#")
    refused = bus.mom("agent", "send", "dan", "clerks.Note", "text=42", code=1).stderr
    assert refused == """Error: text of clerks.Note must be str, not 42; as text it is written '"42"'\n"""
    refused = bus.mom("agent", "deploy", "eve", "clerks:Clerk", "notes=none", "--on", "c", code=1).stderr
    assert refused == "Error: notes of clerks:Clerk must be list, not 'none'\n"
    assert "os" in bus.mom("agent", "deploy", "eve", "os:path", "--on", "c", code=1).stderr
    bus.mom("agent", "delete", made["agent"], stdin="n\n", code=1)
    bus.mom("agent", "delete", made["agent"], "--yes")
    bus.settle()
    assert "there is no agent" in bus.mom("agent", "show", made["agent"], code=1).stderr
    assert "no agent is named 'nobody'" in bus.mom("agent", "show", "nobody", code=1).stderr


def test_numbers_beyond_all_bounds_are_refused_in_one_line(bus):
    for words, code in ((["--ttl", "1e300"], 2), (["to=[1" + "0" * 30 + "]"], 1), (["text=1e400"], 1)):
        assert (
            "Traceback"
            not in (result := bus.run("agent", "send", "ann", "clerks.Note", "text=x", *words, code=code)).stderr
        )
        assert code == 2 or result.stderr.count("\n") == 1
    refused = bus.mom("agent", "send", "ann", "clerks.Note", "text=x", "--ttl", "nan", code=2)
    assert "'nan' is no finite number" in refused.stderr


def test_a_field_that_is_no_assignment_is_wrong_usage(bus):
    assert "FIELD=VALUE" in bus.mom("agent", "send", "ann", "clerks.Note", "hello", code=2).stderr
    refused = bus.mom("agent", "send", "ann", "clerks.Note", "test=hello", code=1).stderr
    assert "clerks.Note has no field test; it has text, to" in refused
    assert "clerks.Note needs text" in bus.mom("agent", "send", "ann", "clerks.Note", code=1).stderr


def test_dead_letters_are_listed_shown_retried_and_dropped(bus):
    send(bus, "bob", "bad one")
    bus.settle()
    letters = bus.json("agent", "deadletters", "list")
    assert [(each["server"], each["agent"]) for each in letters] == [("b", "b/bob")]
    id = str(letters[0]["id"])
    assert "cannot file bad one" in bus.mom("agent", "deadletters", "list").stdout
    shown = bus.json("agent", "deadletters", "show", "--server", "b", id)
    assert "ValueError" in shown["traceback"] and "bad one" in json.dumps(shown["payload"])
    assert bus.json("agent", "deadletters", "retry", "--server", "b", id)[0]["to"] == ["b/bob"]
    bus.settle()
    (again,) = bus.json("agent", "deadletters", "list", "--server", "b")
    (row,) = bus.json("agent", "deadletters", "retry", "--all")
    assert (row["server"], row["id"]) == ("b", again["id"])
    while (left := bus.json("agent", "deadletters", "list")) in ([], [again]):
        time.sleep(0.05)
    (again,) = left
    assert "by ID, or --all" in bus.mom("agent", "deadletters", "retry", "--server", "b", code=2).stderr
    bus.mom("agent", "deadletters", "drop", "--server", "b", str(again["id"]), "--yes")
    assert bus.json("agent", "deadletters", "list") == []
    assert "no dead letter" in bus.mom("agent", "deadletters", "show", "--server", "b", id, code=1).stderr
    assert "by --server" in bus.mom("agent", "deadletters", "show", id, code=2).stderr


def test_why_is_silent_when_nothing_waits(bus):
    bus.settle()
    assert bus.mom("why", code=2).stderr.endswith("several servers are in this file: name one of a, b, c\n")
    assert bus.mom("why", "b").stdout == ""
    assert bus.json("why", "b")["waits"] == []


def test_the_log_is_shown_from_its_end_and_followed(bus):
    message = send(bus, "ann", "logged")
    bus.settle()
    line = bus.mom("log", "tail", "--server", "a", "-n", "1").stdout
    assert f"a react {message} agent=a/ann" in line
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert re.match(time + " a react ", line)
    assert re.fullmatch(f"{time}  {time}\n", bus.mom("log", "tail", "-s", "a", "-n", "1", "-c", "time,done").stdout)
    records = [json.loads(line) for line in bus.mom("log", "tail", "-n", "2", "-o", "json").stdout.splitlines()]
    assert len(records) == 6 and {record["server"] for record in records} == {"a", "b", "c"}
    assert bus.mom("log", "tail", "-s", "a", "-n", "1", "-c", "kind,message").stdout == f"react  {message}\n"
    assert "no column" in bus.mom("log", "tail", "-c", "nothing", code=2).stderr
    follower = bus.popen("log", "tail", "--server", "a", "-n", "1", "-F", "-c", "message,kind")
    assert follower.stdout.readline().split() == [message, "react"]
    message = send(bus, "ann", "followed")
    lines = (line for line in map(str.split, follower.stdout) if line not in (["commit"], ["admin"]))
    assert [next(lines), next(lines)] == [[message, "send"], [message, "react"]]
    follower.send_signal(signal.SIGINT)
    assert "Traceback" not in follower.communicate()[1]


def test_stores_are_verified_backed_up_and_described(bus, tmp_path):
    assert "is sound" in bus.mom("store", "verify", "--server", "a").stdout
    copy = tmp_path / "a.sqlite"
    assert str(copy) in bus.mom("store", "backup", "--server", "a", str(copy)).stdout
    assert "is sound" in bus.mom("store", "verify", str(copy)).stdout
    assert bus.json("store", "verify", str(copy)) == {"store": str(copy), "sound": True, "faults": []}
    told = bus.json("store", "backup", "--server", "a", str(tmp_path / "b.sqlite"))
    assert told == {"store": told["store"], "backup": str(tmp_path / "b.sqlite"), "bytes": told["bytes"]}
    assert told["bytes"] == (tmp_path / "b.sqlite").stat().st_size
    described = bus.json("store", "info", str(copy))
    assert described["server"] == "a" and described["log_records"] > 0
    damaged = bytearray(copy.read_bytes())
    for at in range(8192, len(damaged), 4096):
        damaged[at : at + 100] = b"\xff" * 100
    copy.write_bytes(damaged)
    result = bus.mom("store", "verify", str(copy), code=4)
    assert result.output.strip() and "Traceback" not in result.output


def test_check_counts_the_reactions_of_each_agent(bus):
    report = bus.settle()
    assert report["clean"] and report["agents"]["a/ann"] > 0
    assert sum(report["agents"].values()) == report["reactions"]
    assert "a/ann" in bus.mom("check").stdout


def test_a_killed_server_comes_back_and_what_waits_for_it_is_explained(bus):
    pid = int((bus.file.parent / "b" / LOCK).read_text())
    os.kill(pid, signal.SIGKILL)
    send(bus, "ann", "through", 'to=["c/cy"]')
    report = bus.settle()
    assert report["clean"]
    assert "through again" in bus.json("agent", "show", "cy")["fields"]["notes"]
    assert "b was killed by SIGKILL and starts again" in (bus.file.parent / "b" / supervisor.LOG).read_text()


def test_up_refuses_what_runs_already(bus):
    result = bus.run("up", "--detach", code=1)
    assert "already: stop it by `mom down`, or start" in result.stderr


# -- buses of their own ------------------------------------------------------------------------------------------------


def one(folder: Path, more: str = "") -> Processes:
    return Processes(write_topology(folder, {"d": "ab"}, {}, more))


def test_up_in_the_foreground_shows_the_logs_and_stops_at_a_signal(tmp_path):
    bus = one(tmp_path)
    up = bus.popen("up")
    lines = [up.stdout.readline(), up.stdout.readline()]
    assert {line.partition(" |")[0] for line in lines} == {"a", "b"} and "serves" in lines[0]
    up.send_signal(signal.SIGINT)
    out, err = up.communicate()
    assert up.returncode == 0 and err == "2 of 2 servers are up; Ctrl-C stops them\n"
    assert bus.run("down").stdout == f"no server of {bus.file} runs here\n"


def test_servers_are_looked_after_where_nobody_waits_for_them_any_more(tmp_path):
    bus = one(tmp_path)
    up = bus.popen("up", "--detach")
    data = Path(config.load(bus.file).servers["a"].data)
    until(lambda: folder.holder(data / supervisor.LOCK))
    up.kill()
    up.communicate()
    try:
        until(bus.all_up)
        first = folder.holder(data / LOCK)
        os.kill(first, signal.SIGKILL)
        until(lambda: folder.holder(data / LOCK) not in (0, first))
    finally:
        bus.down()


def test_a_server_starts_with_the_settings_that_the_file_has_by_then(tmp_path):
    """One that was killed does so even while somebody edits the file."""
    bus = one(tmp_path)
    bus.up()
    try:
        bus.listen("a")
        url = urlsplit(bus.urls["a"])
        bus.mom("server", "restart", "a")
        socket.create_connection((url.hostname, url.port)).close()
        data, text = Path(config.load(bus.file).servers["a"].data), bus.file.read_text()
        for edited, why in [
            (text + "\n[", "a keeps the settings that it had: "),
            (
                text.replace('data = "a"', 'data = "other"'),
                f"its data folder is {data}, and another one needs `mom down`",
            ),
        ]:
            first = folder.holder(data / LOCK)
            bus.file.write_text(edited)
            os.kill(first, signal.SIGKILL)
            until(lambda first=first: folder.holder(data / LOCK) not in (0, first))
            bus.file.write_text(text)
            until(bus.all_up)
            assert why in (data / supervisor.LOG).read_text()
    finally:
        bus.file.write_text(text)
        bus.down()


def until(done: Callable[[], object]) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it never comes")


def test_down_of_what_has_just_ended_by_itself(tmp_path, monkeypatch):
    bus = one(tmp_path)
    held = {"up.lock": 2, "lock": 2}  # for so many looks: of both servers, once

    def holder(lock):
        held[lock.name] -= 1
        return 4_000_000 if held[lock.name] >= 0 else 0

    def kill(pid, number):
        raise ProcessLookupError

    monkeypatch.setattr(folder, "holder", holder)
    monkeypatch.setattr(os, "kill", kill)
    assert bus.mom("down").stdout == "stopped a, b\n"
    held |= {"up.lock": 2, "lock": 0}  # nobody runs whom the supervisor looks after
    assert bus.json("down") == {"stopped": []}


def test_one_server_is_stopped_started_and_restarted_while_the_others_go_on(tmp_path):
    bus = one(tmp_path)
    bus.up()
    lock = {name: Path(config.load(bus.file).servers[name].data) / LOCK for name in "ab"}
    a, b = folder.holder(lock["a"]), folder.holder(lock["b"])
    assert bus.mom("server", "stop", "a").stdout == "stopped a\n"
    assert bus.mom("server", "stop", "a").stdout == "a does not run here\n"
    result = bus.mom("status", code=5)
    assert "start it by `mom server start a`" in result.stdout.splitlines()[-1]
    assert bus.mom("server", "start", "a").stdout == "started a\n"
    assert bus.mom("server", "start", "a").stdout == "a runs already\n"
    again = folder.holder(lock["a"])
    assert again not in (0, a) and bus.all_up()
    assert bus.mom("server", "restart", "a").stdout == "restarted a\n"
    assert folder.holder(lock["a"]) not in (0, a, again) and folder.holder(lock["b"]) == b
    assert bus.mom("server", "reload", "a").stdout == "a has read its settings anew\n"
    bus.file.write_text(bus.file.read_text() + "\n[[policies]]\nmatch = 'queue:a'\n")
    shown = bus.mom("server", "reload", "a").stdout
    stands = "a goes by revision 1 of the topology, which its store has; the file would change that"
    assert shown.startswith(f"{stands} (~ policies of the file: none -> queue:a): run `mom topology plan`")
    assert shown.endswith("a has read its settings anew\n")
    log = lock["b"].parent / supervisor.LOG
    assert "would change that" not in log.read_text()
    os.kill(folder.holder(log.parent / supervisor.LOCK), signal.SIGHUP)  # goes to all its servers
    until(lambda: "b goes by revision 1 of the topology" in log.read_text())
    assert bus.mom("down").stdout == "stopped a, b\n"


def test_logs_are_shown_to_their_end_though_they_are_begun_anew(tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    tails = Tails({"a": log, "b": tmp_path / "none"})
    with log.open("a") as file:
        file.write("one\ntw")
    tails.show()
    with log.open("a") as file:
        file.write("o\nthree\n")
    log.rename(tmp_path / "log.txt.1")
    tails.show()
    log.write_text("four\n")
    tails.show()
    assert capsys.readouterr().out == "".join(f"a | {line}\n" for line in ("one", "two", "three", "four"))


def test_a_server_that_is_served_beside_those_of_up_is_stopped_by_down_too(tmp_path):
    bus = one(tmp_path)
    bus.up()
    bus.mom("server", "stop", "a")
    serve = bus.popen("serve", "--server", "a")
    assert "serves 127.0.0.1" in serve.stderr.readline()
    assert bus.mom("server", "stop", "a").stdout == "stopped a\n"
    assert serve.wait(60) == 0
    serve = bus.popen("serve", "--server", "a")
    assert "serves 127.0.0.1" in serve.stderr.readline()
    refused = bus.mom("server", "restart", "b")
    assert refused.stdout == "restarted b\n"
    assert bus.mom("down").stdout == "stopped a, b\n"
    serve.communicate(timeout=60)
    assert serve.returncode == 0
    assert bus.run("server", "start", "b").stdout == "1 of 1 servers are up; `mom down` stops them\n"
    assert bus.mom("down").stdout == "stopped b\n"


def test_a_server_that_refuses_to_start_says_why(tmp_path):
    bus = one(tmp_path)
    bus.up()
    try:
        bus.mom("server", "stop", "a")
        host, port = config.load(bus.file).servers["a"].host, config.load(bus.file).servers["a"].port
        with socket.create_server((host, port)):
            for word in ("start", "restart"):
                said = bus.mom("server", word, "a", code=1).stderr
                assert f"a did not start: a cannot listen on {host}:{port}" in said and said.count("\n") == 1
        assert bus.mom("server", "start", "a").stdout == "started a\n"
    finally:
        bus.down()


def test_a_server_that_is_served_beside_those_of_up_is_stopped_alone_too_as_soon_as_it_has_begun_to_start(tmp_path):
    bus = one(tmp_path)
    bus.up()
    lock = Path(config.load(bus.file).servers["b"].data) / LOCK
    bus.mom("server", "stop", "b")
    for words, stopped in (("server", "stop", "b"), "b"), (("down",), "a, b"):
        serve = bus.serve("b")
        until(lambda: folder.holder(lock))
        assert (tmp_path / "b.txt").read_text() == ""  # it does not serve yet
        assert bus.mom(*words).stdout == f"stopped {stopped}\n"
        assert serve.wait(60) == -signal.SIGTERM


def test_a_server_that_still_starts_remembers_a_sighup(tmp_path):
    bus = one(tmp_path)
    serve = bus.serve("b")
    until(lambda: folder.holder(Path(config.load(bus.file).servers["b"].data) / LOCK))
    serve.send_signal(signal.SIGHUP)
    until(lambda: "b has read its settings anew" in (tmp_path / "b.txt").read_text())
    assert bus.mom("down").stdout == "stopped b\n"
    serve.communicate(timeout=60)


def test_down_names_no_server_that_has_refused_to_start(tmp_path):
    bus = one(tmp_path)
    bus.up()
    bus.down()
    (tmp_path / "b" / "token").write_text("short")
    assert bus.run("up", "--detach", code=1).stdout == "1 of 2 servers are up; `mom down` stops them\n"
    assert bus.mom("down").stdout == "stopped a\n"


def test_what_is_started_anew_while_down_stops_it_is_named_and_no_success(tmp_path, monkeypatch):
    bus = one(tmp_path)
    looks = iter([0, 0, 0, 0] * 4 + [4_000_000] * 8)
    monkeypatch.setattr(folder, "holder", lambda lock: next(looks))
    assert "a, b was started meanwhile and runs" in bus.mom("down", code=1).stderr


def test_serve_runs_one_server_until_a_signal(tmp_path):
    bus = one(tmp_path)
    serve = bus.popen("serve", "--server", "a")
    assert "serves 127.0.0.1" in serve.stderr.readline()
    assert [row["state"] for row in bus.json("status", code=5)] == ["up", "down"]
    for words in (["agent", "list"], ["agent", "deadletters", "list"], ["connections"]):
        result = bus.mom(*words, code=5)
        assert result.stderr.splitlines()[-1] == "Error: b did not answer: this is not all", words
    bus.mom("agent", "list", "--server", "a")
    assert "b has never run here" in bus.mom("agent", "list", "--server", "b", code=1).stderr
    refused = bus.mom("server", "restart", "a", code=1)
    assert "a runs without `mom up`" in refused.stderr
    assert bus.run("down").stdout == "stopped a\n"
    serve.communicate()
    assert serve.returncode == 0


def test_serve_refuses_in_one_line(tmp_path):
    bus = one(tmp_path)
    serve = bus.popen("serve", "--server", "a")
    serve.stderr.readline()
    refused = bus.run("serve", "--server", "a", code=1)
    assert refused.stderr.count("\n") == 1 and "in use by process" in refused.stderr
    assert bus.run("serve", code=2).stderr.count("name one of a, b by --server") == 1
    serve.terminate()
    serve.communicate()


def test_a_server_that_cannot_start_is_told_and_the_others_run(tmp_path):
    bus = one(tmp_path)
    (tmp_path / "b").write_text("not a folder")
    result = bus.run("up", "--detach", "-o", "json", code=1)
    assert result.stderr.count("\n") >= 1 and "Traceback" not in result.stderr
    assert json.loads(result.stdout) == {"up": [], "not_up": ["a", "b"]}
    (tmp_path / "b").unlink()
    told = json.loads(bus.run("up", "--detach", "-o", "json").stdout)
    assert (sorted(told["up"]), told["not_up"]) == (["a", "b"], [])
    bus.down()


def test_a_secret_that_nobody_has_made_is_refused_once_with_the_command_that_makes_it(tmp_path):
    bus = one(tmp_path)
    bus.file.write_text(bus.file.read_text().replace("[bus]", '[bus]\nsecret_file = "bus.secret"'))
    for words in (["up"], ["up", "--detach"], ["serve", "--server", "a"]):
        result = bus.run(*words, code=1)
        assert result.stderr.count("\n") == 1 and "there is no secret_file" in result.stderr, words
    subprocess.run(["sh", "-c", result.stderr.split("`")[1]], check=True)
    assert (tmp_path / "bus.secret").stat().st_mode & 0o777 == 0o600
    bus.up()
    bus.down()


def test_a_server_whose_token_is_gone_is_not_down(tmp_path):
    bus = one(tmp_path)
    bus.up()
    (tmp_path / "b" / "token").unlink()
    result = bus.mom("status", code=5)
    assert result.stdout.splitlines()[2].split() == ["b", "no", "access"]
    assert "! b: b runs, but its token" in result.stdout
    bus.down()


def test_a_server_that_has_not_begun_leaves_the_rest_to_be_judged(tmp_path):
    bus = one(tmp_path)
    assert "no store" in bus.mom("check", code=1).stderr
    bus.listen("a")
    bus.up()
    bus.mom("send", "-s", "a", "/queue/kept", "x")
    more = tmp_path / "more.toml"
    more.write_text(bus.file.read_text() + '\n[servers.c]\nlisten = "127.0.0.1:1"\n[domains.y]\nservers = ["b", "c"]\n')
    result = bus.mom("check", str(more), code=5)
    assert result.stderr == (
        f"mom: there is no store of c in {tmp_path / 'var' / 'c'}, so what it did is not judged: start it if it has "
        "not begun yet, or run this where its folder is\n"
    )
    report = bus.json("check", str(more), code=5)
    assert report["clean"] and report["sends"] and report["servers_without_store"] == ["c"]
    assert bus.json("check")["servers_without_store"] == []
    bus.down()


def test_a_log_that_is_switched_off_cannot_be_judged(tmp_path):
    bus = one(tmp_path, "[log]\nenabled = false")
    assert "enabled = true" in bus.mom("check", code=1).stderr


def test_status_of_a_bus_that_does_not_run(tmp_path):
    bus = one(tmp_path)
    result = bus.mom("status", code=5)
    assert result.stdout.count("down") == 2 and "! a: " in result.stdout
    assert result.stderr == "Error: a, b did not answer: this is not all\n"
    assert bus.mom("status", "--server", "a", code=1).stderr.count("\n") == 1
    assert "name one of a, b\n" in bus.mom("status", "--server", "x", code=2).stderr
    assert "no server of this bus answers" in bus.mom("agent", "list", code=1).stderr
    assert "no server of this bus answers" in bus.mom("agent", "show", "dan", code=1).stderr


def test_the_logs_are_written_for_shiviz(bus, tmp_path):
    send(bus, "cy", "far", "-s", "a")
    for _ in range(100):
        bus.mom("log", "shiviz", "--to", str(tmp_path / "bus.log"))
        text = (tmp_path / "bus.log").read_text()
        if "c/cy has reacted" in text:
            break
    assert text.startswith("(?<date>") and re.search(r'c/cy has reacted .*\nc \{.*"a":\d', text)


class Collector(BaseHTTPRequestHandler):
    taken: ClassVar[list] = []

    def do_POST(self):
        self.taken.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200 if "refuse" not in self.path else 503)
        self.end_headers()

    def log_message(self, *said): ...


def test_the_ways_of_messages_are_given_to_a_collector_or_a_file(bus, tmp_path):
    send(bus, "cy", "traced", "-s", "a")
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{collector.server_port}"
        assert bus.mom("log", "trace", "--otlp", url).stderr.endswith(" spans\n")
        refused = bus.mom("log", "trace", "--otlp", f"{url}/refuse", code=1).stderr
        collector.shutdown()
    assert "does not take traces: Service Unavailable" in refused
    bus.mom("log", "trace", "--to", str(tmp_path / "t.jsonl"))
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    path, body = Collector.taken[0]
    assert path == "/v1/traces" and {"resourceSpans"} == set(body) == set(json.loads(lines[0]))
    assert "does not take traces" in bus.mom("log", "trace", "--otlp", url, code=1).stderr
    assert bus.mom("log", "trace", "--otlp", "nowhere", code=2) and bus.mom("log", "trace", code=2)


def test_top_shows_rates_of_all_servers_and_the_fullest_queues(bus):
    bus.mom("queue", "create", "topped", "-s", "a")
    rows = bus.json("top", "-n", "1", "-i", "0.2")
    assert [row["server"] for row in rows] == ["a", "b", "c"] and all(row["commits_s"] >= 0 for row in rows)
    lines = bus.mom("top", "-n", "2", "-i", "0.2", "-s", "a", "--queues", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines if line].count("server") == 4
    assert any("queue:topped" in line for line in lines)
