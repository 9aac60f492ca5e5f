"""What is told of a bus that does not come to rest."""

import json

from mombroker.admin.bench import scene
from mombroker.core.errors import MomError

LINK = {"peer": "b", "domain": "d", "up": True, "sent": 7, "acked": 7, "waiting": 0, "received": 3, "trouble": ""}
QUEUE = {"destination": "queue:in", "messages": 2, "ready": 0}


def answers(**more):
    return {
        "status": {"problems": [], "links": [LINK], "peers": [{"peer": "b", "state": "up", "reason": ""}]},
        "why": {"waits": []}, "queues": {"queues": []}, "subscriptions": {"subscriptions": []},
        "connections": {"connections": []}, **more,
    }  # fmt: skip


def asked(bus):
    def ask(server, verb, **args):
        if server not in bus:
            raise MomError("no replica of it leads")
        return bus[server][verb]

    return ask


def test_a_server_that_has_nothing_waiting_is_one_line_and_one_that_does_not_answer_too(tmp_path):
    found = scene.of(asked({"a": answers()}), ["a", "c"], tmp_path / "journal")
    assert found == ["a: well", "c: no replica of it leads"]


def test_what_waits_is_told_with_who_could_take_it_and_what_the_clients_wrote_last(tmp_path):
    status = {
        "problems": ["the disk is full"], "term": 4, "replicas": [{"replica": "a2", "role": "leader"}],
        "links": [{**LINK, "acked": 5, "waiting": 2, "up": False}],
        "peers": [{"peer": "b", "state": "down", "reason": "b cannot be reached"}],
    }  # fmt: skip
    bus = {
        "a": answers(
            status=status,
            why={"waits": [{"kind": "link", "peer": "b"}]},
            queues={"queues": [QUEUE, {**QUEUE, "messages": 0}]},
            destination={**QUEUE, "consumers": [{"session": "g/conn:5", "unacked": 2}], "policy": {"match": "*"}},
            connections={"connections": [{"number": 3, "user": "u", "state": "open", "unsettled": 2}]},
        )
    }
    journal = tmp_path / "journal"
    lines = [["open", "mover.12.1"], ["saw", "mover.12.1", "in", "7"], ["pause", "a", 1.0, 2.0], ["open", "red.9.1"]]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert scene.of(asked(bus), ["a"], journal) == [
        "a: a2 leads in term 4; the disk is full",
        'a: link {"peer": "b", "up": false, "sent": 7, "acked": 5, "received": 3, "trouble": ""}',
        "a: b is down b cannot be reached",
        'a: waits {"kind": "link", "peer": "b"}',
        'a: keeps {"destination": "queue:in", "messages": 2, "ready": 0, '
        '"consumers": [{"session": "g/conn:5", "unacked": 2}]}',
        'a: client {"number": 3, "state": "open", "unsettled": 2}',
        'mover wrote last: ["saw", "mover.12.1", "in", "7"]',
        'red wrote last: ["open", "red.9.1"]',
    ]  # fmt: skip
