"""`mom run`: a server without a topology file, as README.md and docs/jms.md start it, and what finds it."""

import os
import signal
import time
from urllib.request import urlopen

from click.testing import CliRunner

from mombroker import jms
from mombroker.admin.cli.main import cli
from tests.admin.processes import Processes, free_ports
from tests.snippets import commands, fenced, program, shell


def mom(*words):
    return CliRunner().invoke(cli, list(words))


def start(folder, stomp, listen, http="none", *more):
    process = Processes(folder / "none").popen(
        "run",
        "--stomp",
        f"127.0.0.1:{stomp}",
        "--listen",
        f"127.0.0.1:{listen}",
        "--http",
        http,
        "--amqp",
        "none",
        *more,
        stderr=None,
    )
    for _ in range(600):
        if mom("status").exit_code == 0:
            return process
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("it does not start")


def test_one_server_runs_without_a_file_and_keeps_its_messages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOM_FILE", raising=False)
    stomp, listen = free_ports(2)
    process = start(tmp_path, stomp, listen)
    with jms.connect(f"stomp://127.0.0.1:{stomp}") as context:
        for number in range(50):
            context.producer("/queue/q").send(f"{number}", wait=False)
        context.flush()
    sent = mom("send", "/queue/q", "last")
    assert sent.exit_code == 0 and sent.output == "", "README.md says that it prints nothing"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    process = start(tmp_path, stomp, listen)
    received = mom("receive", "-n", "51", "/queue/q").stdout.split()
    assert received == [*map(str, range(50)), "last"]
    assert "queue:q" in mom("queue", "list").stdout
    process.terminate()
    assert process.wait(30) == 0
    assert os.stat(tmp_path / "mombroker-data").st_mode & 0o77 == 0


def test_with_users_nobody_of_this_machine_comes_in_without_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOM_FILE", raising=False)
    monkeypatch.setenv("MOM_PASSCODE", "secret")
    stomp, listen = free_ports(2)
    process = start(tmp_path, stomp, listen, "none", "--users")
    assert "access refused" in mom("send", "/queue/q", "1").stderr
    assert mom("user", "add", "ann").exit_code == 0
    with jms.connect(f"stomp://ann:secret@127.0.0.1:{stomp}") as context:
        context.send("q", "2")
    process.terminate()
    assert process.wait(30) == 0


def test_a_second_one_in_the_same_folder_is_refused_and_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOM_FILE", raising=False)
    first = start(tmp_path, *free_ports(2))
    stomp, listen = free_ports(2)
    words = (
        "run",
        "--stomp",
        f"127.0.0.1:{stomp}",
        "--listen",
        f"127.0.0.1:{listen}",
        "--http",
        "none",
        "--amqp",
        "none",
    )
    second = Processes(tmp_path / "none").popen(*words)
    assert "is in use by process" in second.communicate(timeout=60)[1] and second.returncode == 1
    assert mom("status").exit_code == 0
    first.terminate()
    assert first.wait(30) == 0


def test_the_quick_start_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOM_FILE", raising=False)
    stomp, listen = free_ports(2)
    process = start(tmp_path, stomp, listen)
    first, *others = commands("README.md", "mom send /queue/orders")
    assert first.split("#")[0].split() == ["mom", "run"]
    shown = shell(others, tmp_path)
    assert "queue:orders" in shown and shown.endswith("\nann: one pizza\n")
    code = fenced("README.md", "python", "import stomp")
    assert program(code, tmp_path, _61613=stomp) == "cooking one pizza\n"
    assert mom("queue", "browse", "orders", "--unacked").stdout == ""
    process.terminate()
    assert process.wait(30) == 0


def test_where_it_cannot_run_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not in a directory" in mom("run", "--data", str(tmp_path / "file" / "x")).output
    assert mom("run", "--stomp", "nowhere").exit_code == mom("run", "--http", "nowhere").exit_code == 2
    result = mom("run", "--data", str(tmp_path / "data"), "--stomp", "0.0.0.0:5", "--listen", "10.0.0.1:6")
    assert result.exit_code == 1 and "secret_file" in result.output


def test_it_has_an_http_port_unless_that_is_not_wanted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOM_FILE", raising=False)
    stomp, listen, http = free_ports(3)
    process = start(tmp_path, stomp, listen, f"127.0.0.1:{http}")
    for path in ("metrics", "readyz"):
        with urlopen(f"http://127.0.0.1:{http}/{path}", timeout=60) as answer:
            assert answer.status == 200
    assert f'http = "127.0.0.1:{http}"' in (tmp_path / "mombroker-data" / "mombroker.toml").read_text()
    process.terminate()
    assert process.wait(30) == 0
