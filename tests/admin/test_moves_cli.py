"""Waiting for what moves, when it does not: its new home has refused it."""

from types import SimpleNamespace

import pytest

from mombroker.admin.cli import moves
from mombroker.admin.cli.options import Failure
from mombroker.core.errors import MomError

BUS = SimpleNamespace(servers={name: SimpleNamespace(name=name) for name in "bf"})


@pytest.fixture
def stays(monkeypatch):
    """At b it is not moving (any more), and f has none."""

    def ask(topology, server, verb, destination):
        if server.name == "f" and verb == "destination":
            raise MomError("no such destination")
        return {"created": "b", "moving": "", "messages": 1, "waits_for": ""}

    monkeypatch.setattr(moves.options, "ask", ask)
    monkeypatch.setattr(moves.options, "load", lambda file: BUS)


def test_a_queue_that_stays_is_not_waited_for(stays):
    with pytest.raises(Failure, match="queue:q stays on b: f has not taken it; the log of b says why"):
        moves.follow("bus.toml", {"destination": "queue:q", "from": "b", "to": "f"})


def test_a_topic_that_stays_is_not_waited_for(stays):
    with pytest.raises(Failure, match="news stays on b: f has not taken it"):
        moves.follow_topic(BUS, {"topic": "news", "created": "b"}, "f")
