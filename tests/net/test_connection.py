import socket
from contextlib import suppress
from types import SimpleNamespace

import pytest
from twisted.internet import task, tcp

from mombroker.core.errors import PeerError
from mombroker.net import wire
from mombroker.net.connection import BUFFER_BYTES, Connection, Times
from mombroker.net.handshake import Login
from tests.net.cable import END, End

TIMES = Times()


class Calls(list):
    """Everything that the connection says, in one list."""

    def opened(self, conn, login):
        self.append(("opened", login.peer))

    def received(self, conn, frames):
        self.append(("received", frames))
        if frames == ["bad"]:
            raise PeerError("that was bad")

    def closed(self, conn):
        self.append("closed")

    def failed(self, conn, error):
        self.append(("failed", str(error)))

    def lost(self, conn):
        self.append("lost")


def one_frame():
    """The shortest of all handshakes."""
    frame = yield [["who"]]
    if frame != "me":
        raise PeerError("not me")
    return Login("peer", "a", None, [["welcome"]])


@pytest.fixture
def made():
    calls, clock = Calls(), task.Clock()
    conn = Connection(clock, 1, TIMES, lambda conn, login: calls, calls.failed, calls.lost, "", "host", False)
    conn.handshake = one_frame()
    end = End("host")
    end.other = End("other")
    end.protocol, end.other.protocol = conn, Connection(clock, 2, TIMES, None, None, lambda conn: None, "", "", False)
    conn.transport = end
    conn.connectionMade()
    return conn, end, calls, clock


def login(conn, end, calls):
    conn.dataReceived(wire.encode("me"))
    end.out.clear()
    calls.clear()


def written(end):
    """The frames that the transport holds."""
    decoder = wire.Decoder(wire.LINK_LIMIT)
    got = list(decoder.feed(b"".join(end.out)))
    end.out.clear()
    return got


def test_the_login_comes_first_and_may_share_a_chunk_with_what_follows(made):
    conn, end, calls, clock = made
    data = wire.encode("me") + wire.HEARTBEAT + wire.encode("x" * (2 * wire.LOGIN_LIMIT))
    for at in range(len(data)):
        conn.dataReceived(data[at : at + 1])
    assert written(end) == [["who"], ["welcome"]]
    assert calls == [("opened", "a"), ("received", ["x" * (2 * wire.LOGIN_LIMIT)])]
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wire.encode("you"), "not me"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes is over the limit of 4096"),
        ((wire.LOGIN_LIMIT + 1).to_bytes(4, "big"), "a frame of 4097 bytes is over the limit of 4096"),
        (b"\0\0\0\1\xc1", "a frame is not valid msgpack"),
    ],
)
def test_bad_bytes_before_the_login_close_the_connection_with_a_word(made, data, reason):
    conn, end, calls, clock = made
    written(end)
    conn.dataReceived(data)
    conn.dataReceived(b"more")
    assert len(calls) == 1 and calls[0][0] == "failed" and calls[0][1].startswith(reason)
    assert end.out.pop() == END
    assert [frame[:2] for frame in written(end)] == [["refused", ""]]


def test_a_slow_login_is_closed_at_the_deadline(made):
    conn, end, calls, clock = made
    clock.advance(TIMES.login - 1)
    conn.dataReceived(wire.encode("me")[:3])
    clock.advance(0.9)
    assert not end.disconnecting
    clock.advance(0.2)
    assert end.disconnecting and calls == [("failed", "no login within 5 s")]


def test_a_peer_that_does_not_take_our_last_word_is_cut_off(made):
    conn, end, calls, clock = made
    conn.close(["bye"])
    clock.advance(TIMES.close - 0.1)
    assert end.open
    clock.advance(0.2)
    assert not end.open and calls == ["lost"]
    assert not clock.getDelayedCalls()


def test_bad_frames_after_the_login_close_without_a_word(made):
    conn, end, calls, clock = made
    login(conn, end, calls)
    conn.dataReceived(wire.encode("bad") + wire.encode("never seen")[:5])
    assert calls == [("received", ["bad"]), ("failed", "that was bad"), "closed"]
    assert list(end.out) == [END]


def test_acknowledgements_never_queue_behind_megabytes(made):
    """Data waits here, not in the transport: an urgent frame has at most BUFFER_BYTES and one frame before it."""
    conn, end, calls, clock = made
    login(conn, end, calls)
    piece = wire.encode(bytes(50_000))
    conn.send([], [piece] * 100)
    held = sum(map(len, end.out))
    assert BUFFER_BYTES < held <= BUFFER_BYTES + len(piece)
    conn.send([wire.encode("ack")], [wire.encode("last")])
    assert sum(map(len, end.out)) == held + len(wire.encode("ack"))
    got = []
    while end.out:
        got += written(end)
        conn.resumeProducing()
        assert sum(map(len, end.out)) <= BUFFER_BYTES + len(piece)
    assert got.index("ack") == 3
    assert [frame for frame in got if frame != "ack"] == [bytes(50_000)] * 100 + ["last"]


def test_one_commits_frames_leave_in_one_write(made):
    conn, end, calls, clock = made
    login(conn, end, calls)
    conn.send([wire.encode("ack")], [wire.encode("one"), wire.encode("two")])
    assert list(end.out) == [wire.encode("ack") + wire.encode("one") + wire.encode("two")]


def test_nothing_is_written_after_the_close(made):
    conn, end, calls, clock = made
    login(conn, end, calls)
    conn.close()
    conn.send([wire.encode("ack")], [wire.encode("data")])
    assert list(end.out) == [END]


def test_a_quiet_connection_sends_heartbeats(made):
    conn, end, calls, clock = made
    login(conn, end, calls)
    seen = []
    for _ in range(4):
        conn.quiet = 0
        conn.tick()
        seen.append(b"".join(end.out))
        end.out.clear()
    assert seen == [b"", wire.HEARTBEAT, b"", wire.HEARTBEAT]


def test_a_silent_peer_is_closed_and_any_byte_is_a_sign_of_life(made):
    conn, end, calls, clock = made
    login(conn, end, calls)
    for _ in range(TIMES.silent_ticks):
        conn.tick()
    conn.dataReceived(b"\0")
    for _ in range(TIMES.silent_ticks):
        conn.tick()
    assert calls == []
    conn.tick()
    assert calls == [("failed", "no sign of life for 15 s"), "closed"]


@pytest.fixture
def ends(made):
    """The connection at a real socket, its other end, and the writers that wait for a turn of the reactor."""
    conn = made[0]
    ours, theirs = socket.socketpair()
    turns = set()
    reactor = SimpleNamespace(addWriter=turns.add, removeWriter=turns.discard)
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        conn.transport = tcp.Connection(ours, conn, reactor)
        conn.transport.connected = True
        yield conn, theirs, turns


def read(end):
    found = b""
    with suppress(BlockingIOError):
        while data := end.recv(1 << 20):
            found += data
    return found


def test_what_is_sent_now_is_on_its_way_before_the_reactor_turns_again(ends):
    conn, theirs, turns = ends
    conn.send([], [b"before"])
    assert read(theirs) == b"" and turns, "Twisted would write in its next turn"
    conn.send_now(b"one")
    assert read(theirs) == b"beforeone" and not turns
    conn.transport.reactor.addWriter = None  # it is not asked any more
    written = conn.written
    conn.send_now(b"two")
    assert read(theirs) == b"two" and conn.written == written + 3
    conn.closing = True
    conn.transport = None
    conn.send_now(b"three")


def test_what_the_socket_does_not_take_now_leaves_in_its_order(ends):
    conn, theirs, turns = ends
    large = bytes(range(256)) * (1 << 14)  # 4 MiB, more than any buffer
    conn.send_now(b"first")
    conn.send_now(large)
    conn.send_now(b"behind")
    assert turns
    conn.send([b"beat"], [])
    conn.send_now(b"last")
    got = b""
    while conn.transport.dataBuffer or conn.queued:
        got += read(theirs)
        conn.transport.doWrite()
    assert got + read(theirs) == b"first" + large + b"behindbeatlast"
    conn.send_now(b"again")
    assert read(theirs) == b"again" and not turns


def test_a_connection_that_is_lost_while_it_sends_is_lost_in_the_next_turn(ends):
    conn, theirs, turns = ends
    conn.send_now(b"one")
    theirs.close()
    conn.send_now(b"two")
    assert turns, "the transport finds out, and tells"
