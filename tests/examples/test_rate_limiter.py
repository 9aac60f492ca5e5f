"""The rate limiter: as it is shown, by processes; and in memory, called while servers crash and time goes by."""

import random
from pathlib import Path

import pytest

from examples.rate_limiter import CALLS, Call, Limit, Passed, Refused
from mombroker.agents.testing import Bus
from tests.admin.processes import Processes, free_ports
from tests.examples.started import printed

ROOT = Path(__file__).parents[2]
FIELDS = {"burst": 3, "seconds": 10.0}


def test_as_it_is_shown(tmp_path):
    text, ports = (ROOT / "examples" / "rate_limiter.toml").read_text(), free_ports(3)
    for written, port in zip(("16360", "16361", "61660"), ports, strict=True):
        text = text.replace(written, str(port))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "rate_limiter.toml").write_text(text)
    bus = Processes(tmp_path / "rate_limiter.toml")
    bus.up()
    try:
        lines = printed("rate_limiter", f"stomp://localhost:{ports[2]}")
        assert bus.json("agent", "show", "limit-ann")["fields"]["burst"] == 3
    finally:
        bus.down()
    ann, bob, todo = lines
    assert ann.startswith("ann: passed, 2 left, passed, 1 left, passed, 0 left, refused for 3")
    assert bob == "bob: passed, 2 left"
    assert todo == "to do: ann's call 1, ann's call 2, ann's call 3, bob's call 1"


def test_calls_pass_again_as_time_goes_by():
    bus = Bus({"office/limit-*": (Limit, FIELDS)}, servers=["edge"])

    def call() -> Passed | Refused:
        return bus.request("limit-ann", Call("x"), server="edge")

    assert [call().left for _ in range(3)] == [2, 1, 0]
    assert 5 < call().seconds <= 10
    bus.advance(11)
    assert call().left == 0 and isinstance(call(), Refused)
    bus.advance(3600)
    assert [call().left for _ in range(3)] == [2, 1, 0]
    bus.check()


@pytest.mark.parametrize("seed", range(8))
def test_as_many_calls_are_in_the_queue_as_were_let_through_whatever_crashes(seed):
    bus = Bus({"office/limit-*": (Limit, FIELDS)}, servers=["edge"], seed=seed, crashes=8, breaks=4)
    chance, passed, began = random.Random(seed), dict.fromkeys(("ann", "bob", "cyd"), 0), bus.now
    for number in range(30):
        customer = chance.choice(list(passed))
        answer = bus.request(f"limit-{customer}", Call(str(number)), server="edge")
        passed[customer] += isinstance(answer, Passed)
        bus.advance(chance.choice((0, 1, 20)))
    bus.check()
    calls = [message.json()["customer"] for message in bus.receive(CALLS)]
    assert {customer: calls.count(customer) for customer in passed} == passed
    most = FIELDS["burst"] + (bus.now - began) / 1e9 / FIELDS["seconds"] + 1
    assert all(0 < count <= most for count in passed.values())
