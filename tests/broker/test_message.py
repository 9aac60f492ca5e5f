"""A message has one list of fields."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from mombroker.broker.commands import Send
from mombroker.broker.message import PUT, ClientMessage, maker
from mombroker.broker.properties import pack
from tests.broker.bench import Broker
from tests.broker.samples import others

Q = "queue:orders"


@pytest.mark.interpreted
def test_a_field_that_is_added_to_messages_survives_wire_row_move_and_dead_letter():
    ran = subprocess.run([sys.executable, "-m", "tests.broker.wider"], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("all fields are there\n", 0), ran.stderr[-2_000:]


def test_each_field_of_a_message_is_what_its_client_has_said():
    b = Broker()
    said = {name: value for name, value in others(Send, "destination").items() if name in PUT}
    said["expires"] = b.now + 10**12
    b.connect(client_id="me").do(Send(Q, dedup=("p", 5), delay=10**9, **said))
    item = b.queue(Q).schedule.due(b.now + 10**9)[0]
    made = {
        "destination": Q, "timestamp": b.now, "due": b.now + 10**9, "producer": "p", "counter": 5, "sender": "me",
        "annotations": {},
    }  # fmt: skip
    assert made.keys().isdisjoint(said)
    for name, value in zip(PUT, item.message.values(), strict=True):
        assert value == (made | said)[name], name


def test_a_field_that_its_source_lacks_has_its_default():
    @dataclass
    class Small:
        destination: str = Q
        priority: int = 7
        body: bytes = b"x"
        expires: int = 5

    made = maker(Small, "shown", "expires")(Small(), "/queue/orders", 9)
    assert made == ClientMessage(Q, "/queue/orders", 7, expires=9, body=b"x")
    with pytest.raises(AssertionError, match="a message has no"):
        maker(Small, "show")


def test_an_operator_sees_whatever_a_message_has():
    """As `mom queue browse` and `mom store salvage` show it; the body has its own place."""
    default = ClientMessage(Q, "").told()
    assert default == json.loads(json.dumps(default)) and default.keys() >= {"typed", "sender", "counter"}
    but = ("destination", "shown", "message", "form", "annotations", "body")
    for name, value in others(ClientMessage, *but).items():
        told = ClientMessage(Q, "", **{name: value}).told()
        key = name if name in told and name != "properties" else "headers"
        assert {each for each in told if told[each] != default[each]} == {key}
    told = ClientMessage(Q, "/queue/a", annotations={"a": "b"}).told()
    assert (told["destination"], told["properties"]) == ("/queue/a", {"a": "b"})


def test_a_copy_of_a_message_is_equal_and_another():
    put = ClientMessage("queue:q", "/queue/q", properties=pack({"a": "b"}), body=b"x")
    assert put.copy() == put and put.copy() is not put
