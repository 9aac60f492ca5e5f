"""`mom user` and `mom connections`, on a bus of two real processes."""

import socket
import time

import pytest

from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from tests.admin.processes import Processes, free_ports, write_topology


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    file = write_topology(tmp_path_factory.mktemp("bus"), {"d": "ab"}, {})
    (port,) = free_ports(1)
    file.write_text(file.read_text().replace("[servers.a]\n", f'[servers.a]\nstomp = "127.0.0.1:{port}"\n'))
    made = Processes(file)
    made.port = port
    made.up()
    yield made
    made.down()


def login(bus, user, passcode):
    """The answer to a login, and the socket."""
    made = socket.create_connection(("127.0.0.1", bus.port), 60)
    made.sendall(encode("CONNECT", [("accept-version", "1.2"), ("login", user), ("passcode", passcode)]))
    parser = Parser(Limits(), V12, SERVER)
    while (frame := parser.next()) is None:
        parser.feed(made.recv(1000))
    return frame.command, made


def test_users_are_added_with_a_passcode_from_a_prompt_a_file_or_the_environment(bus, tmp_path, monkeypatch):
    assert bus.json("user", "list") == []
    bus.mom("user", "add", "ann", stdin="secret\nsecret\n")
    (tmp_path / "file").write_text("of a file\n")
    assert bus.json("user", "add", "bob", "--passcode-file", str(tmp_path / "file")) == {"user": "bob"}
    monkeypatch.setenv("MOM_PASSCODE", "of the environment")
    bus.mom("user", "add", "cy", "--server", "b")
    for server in "ab":
        assert [row["user"] for row in bus.json("user", "list", "-s", server)] == ["ann", "bob", "cy"]
    for user, passcode in (("ann", "secret"), ("bob", "of a file"), ("cy", "of the environment")):
        command, made = login(bus, user, passcode)
        made.close()
        assert command == "CONNECTED"
    assert login(bus, "ann", "of a file")[0] == "ERROR"


def test_a_passcode_that_nobody_can_be_asked_for_is_wanted_in_a_file(bus):
    result = bus.mom("user", "add", "gus", code=1, stdin="")
    assert "--passcode-file" in result.stderr and "Aborted" not in result.stderr


def test_what_cannot_be_done_is_told(bus, monkeypatch):
    monkeypatch.setenv("MOM_PASSCODE", "x")
    bus.mom("user", "add", "dan", "-s", "a")
    result = bus.mom("user", "add", "dan", "-s", "b", code=1)
    assert "there is a user 'dan' already; `mom user passwd`" in result.stderr
    assert "there is no user 'eve'; `mom user add`" in bus.mom("user", "passwd", "eve", code=1).stderr
    assert "there is no user 'eve'" in bus.mom("user", "delete", "eve", "-s", "b", code=1).stderr
    monkeypatch.setenv("MOM_PASSCODE", "")
    assert "the passcode is empty" in bus.mom("user", "add", "eve", code=1).stderr


def test_a_passcode_is_changed_and_a_user_deleted(bus, monkeypatch):
    for passcode in ("one", "two"):
        monkeypatch.setenv("MOM_PASSCODE", passcode)
        bus.mom("user", "add" if passcode == "one" else "passwd", "fay", "-s", "a")
    command, made = login(bus, "fay", "two")
    assert command == "CONNECTED" and login(bus, "fay", "one")[0] == "ERROR"
    (row,) = [row for row in bus.json("connections") if row["user"] == "fay"]
    assert (row["server"], row["host"], row["version"]) == ("a", "127.0.0.1", "1.2")
    assert "fay" in bus.mom("connections", "-s", "a").stdout
    made.close()
    bus.mom("user", "delete", "fay", "-s", "a")
    assert login(bus, "fay", "two")[0] == "ERROR"


def test_a_passcode_is_utf_8_however_it_was_written(bus, tmp_path, monkeypatch):
    source = tmp_path / "passcode"
    for user, written in (("marked", b"\xef\xbb\xbfgr\xc3\xbcn\r\n"), ("plain", b"gr\xc3\xbcn")):
        source.write_bytes(written)
        bus.mom("user", "add", user, "--passcode-file", str(source))
        command, made = login(bus, user, "grün")
        made.close()
        assert command == "CONNECTED"
    source.write_bytes(b"gr\xfcn\n")
    refused = bus.mom("user", "add", "latin", "--passcode-file", str(source), code=1).output
    assert "is not UTF-8" in refused and refused.count("\n") == 1
    monkeypatch.setenv("MOM_PASSCODE", "gr\udcfcn")
    assert "the passcode is not UTF-8" in bus.mom("user", "add", "latin", code=1).output


def test_a_user_is_on_all_servers_and_on_one_that_was_down_too(bus, monkeypatch):
    monkeypatch.setenv("MOM_PASSCODE", "x")
    bus.mom("server", "stop", "b")
    bus.mom("user", "add", "hal")
    bus.mom("server", "start", "b")
    for _ in range(600):  # it learns of the change as soon as its link is there
        users = [{row["user"] for row in bus.json("user", "list", "-s", name)} for name in "ab"]
        if users[0] == users[1]:
            break
        time.sleep(0.05)
    assert users[0] == users[1] and "hal" in users[1]
    assert bus.json("user", "limit", "hal", "rate=5", "-s", "b") == {"user": "hal"}
    (hal,) = [row for row in bus.json("user", "list") if row["user"] == "hal"]
    assert hal["limits"] == {"rate": 5}


def test_certificates_are_made_for_a_topology_file(bus, tmp_path):
    folder = tmp_path / "tls"
    done = bus.mom("tls", "init", "--to", str(folder), "--days", "5")
    assert "! the topology file does not use them yet: add [bus] ca = " in done.stderr
    assert {path.name for path in folder.iterdir()} == {"ca.pem", "ca.key", "a.pem", "b.pem"}
    assert [row["names"][0].rpartition("/")[2] for row in bus.json("tls", "init", "--to", str(folder))] == ["a", "b"]
    (folder / "ca.key").write_text("junk")
    assert "are no CA: give PEM files" in bus.mom("tls", "init", "--to", str(folder), code=1).stderr


def test_roles_permissions_and_the_end_of_a_connection(bus, monkeypatch):
    monkeypatch.setenv("MOM_PASSCODE", "x")
    bus.mom("user", "add", "kim")
    bus.mom("user", "add", "billing", "--certificate")
    assert login(bus, "billing", "")[0] == "ERROR"
    bus.mom("role", "grant", "clerk", "kim", "-s", "b")
    bus.mom("permission", "set", "--role", "clerk", "queue:orders*", "--may", "send", "--may", "create")
    bus.mom("permission", "set", "--user", "*", "topic:*", "--may", "all")
    assert bus.json("role", "list") == [{"role": "clerk", "users": ["kim"], "permissions": 1}]
    assert {row["match"] for row in bus.json("permission", "list", "-s", "b")} == {"queue:orders*", "topic:*"}
    assert bus.json("permission", "check", "--user", "kim", "send", "queue:orders")["may"]
    bus.mom("permission", "check", "--user", "kim", "receive", "queue:orders", code=4)
    command, made = login(bus, "kim", "x")
    assert command == "CONNECTED"
    made.sendall(encode("SUBSCRIBE", [("destination", "/queue/orders"), ("id", "1")]))
    assert b"user 'kim' may not receive from queue:orders" in made.recv(1000)
    made.close()
    command, made = login(bus, "kim", "x")
    (row,) = bus.json("connections", "close", "--user", "kim", "--reason", "lunch")
    assert (row["server"], row["user"]) == ("a", "kim") and b"closed by an operator: lunch" in made.recv(1000)
    made.close()
    bus.mom("connections", "close", "--client-id", "nobody", code=6)
    bus.mom("permission", "delete", "--user", "*", "topic:*")
    assert "--open" in bus.mom("permission", "delete", "--role", "clerk", "queue:orders*", code=1).stderr
    bus.mom("permission", "delete", "--role", "clerk", "queue:orders*", "--open")
    rows = bus.json("log", "audit", "--all", "-c", "server,who,from,verb,args,result")
    mine = [row for row in rows if row["verb"] == "close_connections"]
    assert mine[0]["server"] == "a" and mine[0]["who"].startswith("mom") and mine[0]["from"] == "127.0.0.1"
    assert mine[0]["args"]["user"] == "kim" and mine[0]["result"] == "done"
    assert "scrypt" not in str(rows) and [row["result"] for row in rows if row["args"].get("user") == "kim"].count(
        "asked"
    )
    assert "every user may do everything" in bus.mom("permission", "list").stderr
