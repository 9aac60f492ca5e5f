"""A message has one list of fields."""

import subprocess
import sys

from mombroker.broker.commands import Send
from mombroker.broker.message import PUT, ClientMessage
from mombroker.broker.properties import pack
from tests.broker.bench import Broker

Q = "queue:orders"


def test_a_field_that_is_added_to_messages_survives_wire_row_move_and_dead_letter():
    ran = subprocess.run([sys.executable, "-m", "tests.broker.wider"], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("all fields are there\n", 0), ran.stderr[-2_000:]


def test_each_field_of_a_message_is_what_its_client_has_said():
    b = Broker()
    b.connect(client_id="me").do(Send(
        Q, b"body", 7, b.now + 10**12, False, 10**9, "g", 3, ("p", 5), "text", "/queue/orders", "r",
        "", "text/plain", "t", "c-1", "/queue/answers", pack({"color": "red"}), True, b"@",
    ))  # fmt: skip
    item = b.queue(Q).schedule.due(b.now + 10**9)[0]
    values = dict(zip(PUT, item.message.values(), strict=True))
    assert values == {
        "destination": Q, "shown": "/queue/orders", "priority": 7, "timestamp": b.now,
        "expires": b.now + 10**12, "due": b.now + 10**9, "persistent": False, "kind": "text", "group": "g",
        "group_seq": 3, "producer": "p", "counter": 5, "sender": "me", "message": "", "content_type": "text/plain",
        "type": "t", "correlation": "c-1", "reply_to": "/queue/answers", "properties": pack({"color": "red"}),
        "typed": True, "form": b"@", "annotations": {},
        "body": b"body",
    }  # fmt: skip


def test_a_copy_of_a_message_is_equal_and_another():
    put = ClientMessage("queue:q", "/queue/q", properties=pack({"a": "b"}), body=b"x")
    assert put.copy() == put and put.copy() is not put
