"""Whom a server without a store asks whether it is new on a bus that runs."""

import pytest

from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net import joining
from mombroker.net.adminclient import NoAccess, NoAnswer, NotRunning

SECRET = b"a secret of the bus, long enough"
FOUNDER, ELSEWHERE = {"founder": True}, {"bus": "another"}


class Peers:
    """What each says when it is asked, one after the other; the last again and again. An error as the request's answer
    stands in a tuple, else it is that of the login."""

    def __init__(self, **says):
        self.says, self.asked = says, []

    def client(self, me, at, secret, timeout=10.0, tls=None):
        name = next(name for name, server in BUS.servers.items() if at in server.listens)
        self.asked.append(name)
        said = self.says[name].pop(0) if len(self.says[name]) > 1 else self.says[name][0]
        if isinstance(said, Exception):
            raise said
        return Client(said)


class Client:
    def __init__(self, said):
        self.said = said

    def request(self, verb, **args):
        assert (verb, args) == ("invitation", {"server": "d", "bus": "test"})
        if isinstance(self.said, tuple):
            raise self.said[0]
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


BUS = Topology(
    "test",
    {name: Server(name, "127.0.0.1", port) for port, name in enumerate("abcd", 7001)},
    {"x": Domain("x", ("a", "b", "c")), "y": Domain("y", ("b", "d"))},
    [],
    "a",
)  # fmt: skip
DOWN, SLOW, NO = NotRunning("does not run"), NoAnswer("no answer in time"), NoAccess("other secrets")


@pytest.fixture
def knock(monkeypatch):
    monkeypatch.setattr(joining, "POLL_S", 0.0)

    def ask(**says):
        peers = Peers(**says)
        monkeypatch.setattr(joining, "client", peers.client)
        return joining._knock(BUS, "d", ["b", "a", "c"], SECRET), peers.asked

    return ask


def test_the_first_that_answers_says_it(knock):
    assert knock(a=[FOUNDER], b=[DOWN], c=[FOUNDER]) == (FOUNDER, ["b", "a"])
    assert knock(a=[FOUNDER], b=[NO], c=[FOUNDER]) == (FOUNDER, ["b", "a"])
    assert knock(a=[FOUNDER], b=[SLOW], c=[FOUNDER]) == (FOUNDER, ["b", "a"])
    assert knock(a=[FOUNDER], b=[(SLOW,)], c=[FOUNDER]) == (FOUNDER, ["b", "a"])


def test_nobody_is_there_and_so_the_bus_may_begin(knock):
    assert knock(a=[DOWN], b=[NO], c=[DOWN]) == ({}, ["b", "a", "c"])


@pytest.mark.parametrize("slow", [SLOW, (SLOW,)])
def test_who_is_there_and_slow_is_asked_again_and_nobody_begins_without_it(knock, slow):
    """With the login or with the answer: a machine may be busy."""
    sponsored = {"sponsor": "b", "listen": "127.0.0.1:7002"}
    said, asked = knock(a=[DOWN], b=[slow, slow, sponsored], c=[slow])
    assert (said, asked) == (sponsored, ["b", "a", "c", "b", "c", "b"])
    assert knock(a=[DOWN], b=[slow, DOWN], c=[DOWN]) == ({}, ["b", "a", "c", "b"])  # it has ended meanwhile


def test_who_stays_silent_is_named(knock, monkeypatch):
    monkeypatch.setattr(joining, "PATIENCE_S", 0.0)
    with pytest.raises(
        MomError, match=r"^d may be new on a bus that runs, .* start it again then \(no answer in time\)$"
    ):
        knock(a=[DOWN], b=[SLOW], c=[DOWN])


def test_who_cannot_begin_hears_why(knock):
    with pytest.raises(MomError, match="^d has joined the bus already$"):
        knock(a=[DOWN], b=[(MomError("d has joined the bus already"),)], c=[FOUNDER])
