"""Clients of storms: whom they take for their server."""

import json
import socket
import threading
from random import Random

import pytest

from mombroker.admin.bench.guests import Lost, Place, Taker
from mombroker.stomp.frames import encode


def answering(session):
    """A server that lets one client in, under this session."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        conn, _ = server.accept()
        conn.recv(1 << 16)
        conn.sendall(encode("CONNECTED", [("version", "1.2"), ("session", session)]))

    threading.Thread(target=serve, daemon=True).start()
    return server


def guest(server, tmp_path):
    port = server.getsockname()[1]
    return Taker(Place({port: "a"}, tmp_path / "journal"), "taker", Random(1), of=(), ack="auto")


def test_a_client_knows_its_server_by_the_session(tmp_path):
    with answering("a/0a1b-3") as server:
        made = guest(server, tmp_path)
        made.connect()
        assert made.since
        made.socket.close()


def test_a_client_stays_with_no_other_server_that_listens_where_its_own_is_down(tmp_path):
    with answering("ab/0a1b-3") as server:
        made = guest(server, tmp_path)
        with pytest.raises(Lost):
            made.connect()
        made.socket.close()
    last = json.loads((tmp_path / "journal").read_text().splitlines()[-1])
    assert last == ["refused", made.conn, "ab answers where a was expected"] and not made.since
