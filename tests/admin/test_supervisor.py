"""The supervisor: who is started again, who is not, and that all of them stop. With real processes."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mombroker.admin import supervisor
from mombroker.core.errors import MomError, StoreFailed
from mombroker.store import folder

# A supervisor of fake servers. Each serves by the word in its plan for its n-th start; what happens is one JSON line.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
from mombroker.admin import supervisor
from mombroker.core.errors import MomError, StoreFailed

supervisor.FIRST_PAUSE = 0.1
folder, plan, fails = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[4]
supervisor.GRACE = float(sys.argv[3])

class Watcher:
    def say(self, *words):
        print(json.dumps(words), flush=True)
    def started(self, server, pid):
        self.say("started", server, pid)
        self.fail("started")
    def ended(self, server, text, again):
        self.say("ended", server, text, again)
        self.fail("ended")
    def tick(self):
        self.fail("tick")
        return supervisor.NEVER
    def fail(self, what):
        if what == fails and all((folder / name / "starts").exists() for name in plan):
            raise RuntimeError(f"{what} fails")

def serve(name):
    count = folder / name / "starts"
    number = int(count.read_text()) if count.exists() else 0
    count.write_text(str(number + 1))
    match plan[name][min(number, len(plan[name]) - 1)]:
        case "run":
            signal.pause()
        case "refuse":
            raise MomError(f"{name} cannot start; mend it")
        case "full":
            raise StoreFailed("the disk is full; make room")
        case "crash":
            raise RuntimeError("our bug")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "orderly":
            signal.signal(signal.SIGTERM, lambda *_: None)
            print("ready", flush=True)
            signal.pause()
            return 0
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ready", flush=True)
            while True:
                signal.pause()
        case int(code):
            return code

children = [supervisor.Child(name, folder / name) for name in plan]
sys.exit(supervisor.Supervisor(children, serve, Watcher()).run())
"""


class Run:
    def __init__(self, folder: Path, plan: dict, grace: float, fails: str):
        command = [sys.executable, "-c", SCRIPT, str(folder), json.dumps(plan), str(grace), fails]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until(self, *wanted) -> list:
        """The lines up to the first that starts with these words."""
        lines = []
        for line in self.process.stdout:
            lines.append(json.loads(line))
            if lines[-1][: len(wanted)] == list(wanted):
                return lines
        raise AssertionError(f"{wanted} never came, but {lines}")

    def end(self) -> tuple[int, list]:
        self.process.wait(60)
        lines = [json.loads(line) for line in self.process.stdout]
        return self.process.returncode, lines


@pytest.fixture
def run(tmp_path):
    made: list[Run] = []

    def start(grace: float = supervisor.GRACE, fails: str = "", **plan) -> Run:
        made.append(Run(tmp_path, plan, grace, fails))
        return made[-1]

    yield start
    for each in made:
        each.process.terminate()  # killed, it would leave its servers behind
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.process.wait(10)
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        each.process.stderr.close()


def test_one_that_dies_is_started_again_after_growing_pauses(run, tmp_path):
    it = run(a=["kill", "crash", 70, "run"])
    ends = [line for line in it.until("started", "a") if line[0] == "ended"]
    for _ in range(3):
        ends += [line for line in it.until("started", "a") if line[0] == "ended"]
    assert [line[2].partition(" and")[0] for line in ends] == [
        "was killed by SIGKILL", "ended with exit code 70", "ended with exit code 70",
    ]  # fmt: skip
    assert [line[2].partition("again in ")[2][:5] for line in ends] == ["0.1 s", "0.2 s", "0.4 s"]
    assert all(again for _, _, _, again in ends)
    assert "RuntimeError: our bug" in (tmp_path / "a" / supervisor.LOG).read_text()
    it.process.terminate()
    code, lines = it.end()
    assert code == 0 and lines == [["ended", "a", "was killed by SIGTERM", False]]


@pytest.mark.parametrize("how, code", [(3, 3), ("full", 3), ("refuse", 1), (0, 0)])
def test_one_that_only_a_person_can_mend_is_not(run, tmp_path, how, code):
    it = run(a=[how])
    assert it.end()[0] == code
    assert (tmp_path / "a" / "starts").read_text() == "1"


def ready(folder: Path) -> None:
    log = folder / supervisor.LOG
    while not log.exists() or "ready" not in log.read_text():
        time.sleep(0.01)


def test_a_refusal_is_told_with_its_reason_while_the_others_go_on(run, tmp_path):
    it = run(a=["refuse"], b=["orderly"])
    lines = it.until("ended", "a")
    assert lines[-1][2:] == ["refused to start and is not started again: a cannot start; mend it", False]
    ready(tmp_path / "b")
    it.process.send_signal(signal.SIGINT)
    code, lines = it.end()
    assert lines == [["ended", "b", "stopped", False]] and code == 1


def test_a_second_signal_does_not_wait(run, tmp_path):
    it = run(a=["deaf"])
    ready(tmp_path / "a")
    it.process.terminate()
    it.process.send_signal(signal.SIGINT)
    code, lines = it.end()
    assert lines[-1] == ["ended", "a", "was killed by SIGKILL", False] and code == 0


def test_one_that_does_not_stop_is_killed_though_nothing_else_happens(run, tmp_path):
    it = run(a=["deaf"], grace=0.2)
    ready(tmp_path / "a")
    it.process.terminate()
    code, lines = it.end()
    assert lines[-1] == ["ended", "a", "was killed by SIGKILL", False] and code == 0


def test_a_server_is_stopped_started_and_restarted_by_orders_and_is_no_other_than_before(run, tmp_path):
    it = run(a=["orderly"], b=["run"])
    ready(tmp_path / "a")
    assert supervisor.order(tmp_path / "a", supervisor.RESTART)
    assert it.until("ended")[-1] == ["ended", "a", "stopped", True]
    it.until("started", "a")
    while (tmp_path / "a" / supervisor.LOG).read_text().count("ready") < 2:
        time.sleep(0.01)
    assert supervisor.order(tmp_path / "a", supervisor.STOP)
    assert it.until("ended")[-1] == ["ended", "a", "stopped", False]
    assert supervisor.order(tmp_path / "a", supervisor.START)
    it.until("started", "a")
    it.process.terminate()
    code, lines = it.end()
    assert code == 0 and {line[1] for line in lines} == {"a", "b"}
    assert not supervisor.order(tmp_path / "a", supervisor.START)


def test_an_order_that_cannot_be_written_is_told(run, tmp_path, monkeypatch):
    run(a=["run"]).until("started", "a")

    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(MomError, match="so its server is not told to stop: no space left on device; make"):
        supervisor.order(tmp_path / "a", supervisor.STOP)
    assert not list((tmp_path / "a").glob("up.order*"))


def test_one_that_refused_to_start_can_be_told_to_start_again(run, tmp_path):
    it = run(a=["refuse", "run"], b=["run"])
    it.until("ended", "a")
    supervisor.order(tmp_path / "a", supervisor.START)
    assert it.until("started")[-1][1] == "a"


def test_one_that_does_not_stop_by_an_order_is_killed(run, tmp_path):
    it = run(a=["deaf"], b=["run"], grace=0.2)
    ready(tmp_path / "a")
    supervisor.order(tmp_path / "a", supervisor.STOP)
    assert it.until("ended")[-1] == ["ended", "a", "was killed by SIGKILL", False]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("what", ["started", "ended", "tick"])
def test_no_server_outlives_a_watcher_that_fails(run, tmp_path, what):
    it = run(a=["run"], b=["kill"], c=["deaf"], grace=1, fails=what)
    code, lines = it.end()
    assert code == 1 and it.process.stderr.read().endswith(f"RuntimeError: {what} fails\n")
    pids = [line[2] for line in lines if line[0] == "started"]
    assert len(pids) >= 3 and all(map(gone, pids))
    for name in "abc":
        os.close(supervisor.hold(tmp_path / name))


def test_one_that_is_killed_before_it_has_a_log_is_told(tmp_path):
    told = []
    watcher = supervisor.Nobody()
    watcher.ended = lambda *words: told.append(words)
    child = supervisor.Child("a", tmp_path)
    supervisor.Supervisor([child], lambda name: 0, watcher)._ended(child, -signal.SIGKILL, 1.0)
    assert told == [("a", "was killed by SIGKILL and starts again in 0.2 s", True)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_server_whose_last_words_cannot_be_written_ends_all_the_same(tmp_path, fails):
    """It is a copy of its supervisor, and must never go on as that one."""
    pid = os.fork()
    if not pid:
        child = supervisor.Child("a", tmp_path)
        try:
            supervisor.Supervisor([child], unopened if fails else full, supervisor.Nobody())._become(child)
        except OSError:
            os._exit(98)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_a_reactor_in_the_parent_is_refused_for_its_children_would_share_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, supervisor.REACTOR, object())
    with pytest.raises(RuntimeError, match="would share its epoll"):
        supervisor.Supervisor([supervisor.Child("a", tmp_path)], full, supervisor.Nobody()).run()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_removed_harms_no_other_server(run, tmp_path):
    it = run(a=["run"], b=["run"])
    _, _, server = it.until("started", "a")[-1]
    it.until("started", "b")
    shutil.rmtree(tmp_path / "a")
    os.kill(server, signal.SIGKILL)
    lines = [*it.until("ended", "a"), *it.until("started", "a")]
    assert [line[0:2] for line in lines] == [["ended", "a"], ["started", "a"]]  # and not b
    assert folder.holder(tmp_path / "a" / supervisor.LOCK) == it.process.pid


class Full:
    def flush(self) -> None:
        raise OSError("no space left on the device")


def full(name: str) -> int:
    sys.stdout = Full()
    return 3


def unopened(name: str) -> int:
    sys.stderr = Full()
    raise StoreFailed("the disk is full; make room")


def test_two_supervisors_of_one_folder_are_refused_and_a_dead_one_leaves_no_lock(run, tmp_path):
    it = run(a=["run"])
    _, _, server = it.until("started", "a")[-1]
    file = tmp_path / "a" / supervisor.LOCK
    assert folder.holder(file) == it.process.pid
    with pytest.raises(MomError, match=f"process {it.process.pid} looks after the server"):
        supervisor.hold(tmp_path / "a")
    it.process.kill()
    it.process.wait()
    os.kill(server, signal.SIGKILL)  # it has outlived its supervisor
    assert folder.holder(file) == 0
    os.close(supervisor.hold(tmp_path / "a"))
    assert folder.holder(tmp_path / "none") == 0


def test_why_a_watcher_sees_an_end_that_it_did_not_want(tmp_path):
    """The folders of a storm are gone when its sentence is read."""
    children = [supervisor.Child(name, tmp_path / name) for name in ("a", "b")]
    for child in children:
        child.folder.mkdir()
        (child.folder / supervisor.LOG).write_text(f"first of {child.name}\nlast of {child.name}\n")
    said = f"b refused to start and {supervisor.GAVE_UP}: port"
    assert str(supervisor.given_up(said, children)) == f"{said}; its log ends so:\n  first of b\n  last of b"
    for text in ("b stopped", "b was killed by SIGKILL"):
        assert str(supervisor.given_up(text, children)).startswith("stopped by a signal before it was over")
