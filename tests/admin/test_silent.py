"""Commands that look for something on all servers, while some do not answer."""

from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from mombroker.admin.cli import options
from mombroker.admin.cli.main import cli
from mombroker.core.errors import MomError

FILE = """
[bus]
name = "test"
registry = "a"
[domains.all]
servers = ["a", "b", "c"]
""" + "".join(f'[servers.{name}]\nlisten = "127.0.0.1:{port}"\n' for name, port in zip("abc", (1, 2, 3), strict=True))
ANSWERS = {"groups": {"groups": [{"group": "sale"}]}, "close_connections": {"closed": []}, "group": {"members": []},
           "remove_group": {"removed": "sale"}}  # fmt: skip
SEARCHES = [
    ("group", "show", "ledger"), ("group", "remove", "ledger", "--yes"),
    ("group", "remove", "ledger", "--member", "a/x", "--yes"), ("connections", "close", "--user", "ann"),
]  # fmt: skip


class Client:
    """Of a server that has one dead letter."""

    def request(self, verb: str, **args: object) -> dict[str, object]:
        if verb == "retry":
            return {"to": "a/x"}
        return {"letters": [] if args["after"] else [{"id": 7, "time": 1}]}


@pytest.fixture
def mom(tmp_path, monkeypatch):
    """Runs a command; those servers do not answer."""
    (tmp_path / "bus.toml").write_text(FILE)

    def run(silent: str, *words: str):
        def there(server) -> None:
            if server.name in silent:
                raise MomError(f"{server.name} does not run")

        def ask(topology, server, verb, /, **args):
            there(server)
            return ANSWERS[verb]

        @contextmanager
        def connect(topology, server):
            there(server)
            yield Client()

        monkeypatch.setattr(options, "ask", ask)
        monkeypatch.setattr(options, "connect", connect)
        return CliRunner().invoke(cli, [*words, "-f", str(tmp_path / "bus.toml")])

    return run


@pytest.mark.parametrize("words", SEARCHES)
def test_what_no_server_has_is_not_there(mom, words):
    done = mom("", *words)
    assert done.exit_code == 6 and done.stderr.startswith("Error: there is no ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", SEARCHES)
def test_what_is_not_found_while_servers_are_down_may_be_there(mom, words):
    done = mom("bc", *words)
    line = done.stderr.splitlines()[-1]
    assert done.exit_code == 5 and line.startswith("Error: b, c did not answer, and no other server has a ")
    assert "start them, or wait until `mom status` shows them, and try again" in line
    assert "there is no" not in done.stderr
    assert "start it, or wait" in mom("a", *words).stderr


@pytest.mark.parametrize("words", SEARCHES)
def test_nothing_is_said_of_a_bus_of_which_no_server_answers(mom, words):
    done = mom("abc", *words)
    assert done.exit_code == 1 and "no server of this bus answers" in done.stderr


@pytest.mark.parametrize("words", [("group", "show", "sale"), ("group", "remove", "sale", "--yes")])
def test_a_group_that_is_found_needs_no_other_server(mom, words):
    assert mom("c", *words).exit_code == 0


def test_dead_letters_of_the_servers_that_answer_are_tried_again(mom):
    done = mom("a", "agent", "deadletters", "retry", "--all", "-c", "server,id")
    assert done.exit_code == 5 and [line.split() for line in done.stdout.splitlines()[1:]] == [["b", "7"], ["c", "7"]]
    assert "a did not answer: this is not all" in done.stderr
