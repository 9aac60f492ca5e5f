"""`mom user` and `mom connections`, on a bus of two real processes."""

import socket

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
    assert bus.json("user", "add", "bob", "--passcode-file", str(tmp_path / "file")) == [
        {"server": "a", "user": "bob"}, {"server": "b", "user": "bob"},
    ]  # fmt: skip
    monkeypatch.setenv("MOM_PASSCODE", "of the environment")
    bus.mom("user", "add", "cy", "--server", "a")
    assert [(row["server"], row["user"]) for row in bus.json("user", "list")] == [
        ("a", "ann"), ("a", "bob"), ("a", "cy"), ("b", "ann"), ("b", "bob"),
    ]  # fmt: skip
    for user, passcode in (("ann", "secret"), ("bob", "of a file"), ("cy", "of the environment")):
        command, made = login(bus, user, passcode)
        made.close()
        assert command == "CONNECTED"
    assert login(bus, "ann", "of a file")[0] == "ERROR"


def test_a_passcode_that_nobody_can_be_asked_for_is_wanted_in_a_file(bus):
    result = bus.mom("user", "add", "gus", code=1, stdin="")
    assert "--passcode-file" in result.stderr and "Aborted" not in result.stderr


def test_what_cannot_be_done_is_told_for_each_server(bus, monkeypatch):
    monkeypatch.setenv("MOM_PASSCODE", "x")
    bus.mom("user", "add", "dan", "-s", "a")
    result = bus.mom("user", "add", "dan", code=1)
    assert "there is a user 'dan' on a already; `mom user passwd`" in result.stderr and "b  " in result.stdout
    assert "there is no user 'eve' on b; `mom user add`" in bus.mom("user", "passwd", "eve", code=1).stderr
    assert "there is no user 'eve' on b" in bus.mom("user", "delete", "eve", "-s", "b", code=1).stderr
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


def test_a_server_that_lacks_a_change_is_named_and_gets_it_by_sync(bus, monkeypatch):
    def users(server):
        return {row["user"] for row in bus.json("user", "list", "-s", server)}

    monkeypatch.setenv("MOM_PASSCODE", "x")
    bus.mom("server", "stop", "b")
    result = bus.mom("user", "add", "hal", code=1)
    assert "b lacks this change: run `mom user sync --from a` when all servers run" in result.stderr
    bus.mom("server", "start", "b")
    bus.mom("user", "add", "ida", "-s", "b")
    shown = bus.mom("user", "list").stdout
    assert "! hal is not on b; see `mom user sync`" in shown and "! ida is not on a" in shown
    bus.mom("user", "add", "jo", "-s", "a")
    bus.mom("user", "add", "jo", "-s", "b")  # with another salt: it cannot be told whether it is the same passcode
    result = bus.mom("user", "sync", code=1)
    assert "servers have different passcodes for" in result.stderr and "jo: set them" in result.stderr
    assert users("a") == users("b") >= {"hal", "ida", "jo"}
    command, made = login(bus, "ida", "x")
    made.close()
    assert command == "CONNECTED"
    bus.mom("user", "delete", "ida", "-s", "a")
    rows = bus.json("user", "sync", "--from", "a")
    assert {"server": "b", "user": "ida", "change": "deleted"} in rows
    assert {"server": "b", "user": "jo", "change": "changed"} in rows
    assert bus.json("user", "sync") == []
