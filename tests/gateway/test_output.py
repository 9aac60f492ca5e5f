"""What is written to a socket straight away is what it takes; what stops it is left to the transport."""

import socket

import pytest

from mombroker.gateway.output import straight


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_socket_takes_so_much_at_most_until_it_is_full(pair):
    ours, theirs = pair
    write, data = straight(ours, 1_000), bytes(range(250)) * 8
    assert write(data[:7]) == 7 and write(data) == 1_000
    assert theirs.recv(4_096) == data[:7] + data[:1_000]
    while sent := write(data):
        assert sent <= 1_000
    assert write(b"x") == 0


def test_a_socket_that_is_gone_takes_nothing(pair):
    ours, theirs = pair
    write = straight(ours, 1_000)
    theirs.close()
    assert write(b"x") == 0
    ours.close()
    assert write(b"x") == 0
