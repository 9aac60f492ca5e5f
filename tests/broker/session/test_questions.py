"""Clients that ask agents."""

import json

import pytest

from mombroker.agents.notifications import to_json
from mombroker.broker.commands import Ask, Transact
from mombroker.broker.session import questions
from mombroker.core.events import Admin
from tests.broker.bench import Broker, Client
from tests.core.bus import SECOND, topology
from tests.core.sample_agents import Counted, Put, Release

CLERK = "tests.core.sample_agents:Clerk"
TYPES = "tests.core.sample_agents."
BUS = topology({"x": "ab", "y": "bc"}, {"c/clerk": CLERK, "a/other": CLERK})
ANSWERS = "queue:answers"


def bus() -> tuple[Broker, Client]:
    """A bus with agents, and a client of one end that hears all answers."""
    b = Broker(BUS)
    return b, b.connect("a", strict=False).subscribe("s", ANSWERS)


def question(kind: str, body: object = None, to: str = "agent:clerk", **more: object) -> Ask:
    more.setdefault("reply_to", "/queue/answers")
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return Ask(to, data, type=TYPES + kind, **more)


def answers(client: Client) -> list[tuple[str, object, str]]:
    """Type, what the JSON says, and correlation of each."""
    found = [each.message for each in client.got]
    return [(each.type.removeprefix(TYPES), json.loads(each.body), each.correlation) for each in found]


def reasons(client: Client) -> list[tuple[str, str]]:
    return [(type, body["reason"]) for type, body, _ in answers(client)]


def test_an_agent_answers_a_client_as_it_answers_an_agent():
    b, client = bus()
    client.do(question("Count", {"what": "hat"}, correlation="c 1:é", receipt="r"))
    assert answers(client) == [("Counted", {"what": "hat", "total": 1, "stamp": ""}, "c 1:é")]
    message = client.got[0].message
    assert (message.content_type, message.kind, message.shown) == ("application/json", "json", "/queue/answers")
    assert client.receipts == ["r"]
    assert b.fields("c/clerk")["counts"] == {"hat": 1}


def test_an_answer_may_be_a_plain_value():
    _, client = bus()
    client.do(question("Count", {"what": "hat"}), question("Total"), question("Total", reply_to=""))
    assert answers(client)[1:] == [("", {"hat": 1}, "")] and not client.refusals


def test_the_id_of_a_question_stands_for_its_correlation_id():
    _, client = bus()
    client.do(question("Count", {"what": "hat"}, message="m-1"))
    client.do(question("Count", {"what": "hat"}, message="m-2", correlation="c"))
    assert [correlation for _, _, correlation in answers(client)] == ["m-1", "c"]


def test_an_agent_is_asked_by_its_id_too():
    _, client = bus()
    client.do(question("Count", {"what": "hat", "times": 3}, "agent:c/clerk"))
    assert answers(client)[0][1]["total"] == 3


def test_bytes_are_text_on_both_ways():
    _, client = bus()
    client.do(question("Count", {"what": "hat", "stamp": "é"}))
    assert answers(client)[0][1]["stamp"] == "é"


def test_an_answer_comes_to_a_temporary_queue_and_to_a_topic():
    b, _ = bus()
    client = b.connect("a")
    client.subscribe("t", f"temp-queue:{client.session}/mine").subscribe("u", "topic:answers")
    client.do(question("Count", {"what": "x"}, reply_to=f"/remote-temp-queue/{client.session}/mine"))
    client.do(question("Count", {"what": "x"}, reply_to="/topic/answers"))
    assert [(each.sub, json.loads(each.body)["total"]) for each in client.got] == [("t", 1), ("u", 2)]


def test_an_answer_to_a_connection_that_is_gone_is_dropped():
    b, _ = bus()
    client = b.connect("b")
    client.do(question("Later", reply_to=f"/remote-temp-queue/{client.session}/mine"))
    client.close()
    b.send("a", "clerk", Release())
    assert [b.ask(name, "deadletters")["count"] for name in "abc"] == [0, 0, 0]


def test_who_asks_for_no_answer_gets_none():
    b, client = bus()
    client.do(question("Count", {"what": "hat"}, reply_to=""))
    assert (client.got, client.refusals, b.fields("c/clerk")["counts"]) == ([], [], {"hat": 1})
    assert b.ask("c", "deadletters")["count"] == b.ask("a", "deadletters")["count"] == 0


def test_an_agent_may_answer_later_and_after_all_servers_were_down():
    b, client = bus()
    client.do(question("Later", correlation="1"), question("Later", correlation="2"))
    for name in "abc":
        b.reboot(name)
    client = b.connect("b").subscribe("s", ANSWERS)
    b.send("a", "clerk", Release())
    assert sorted((each[2], each[1]["total"]) for each in answers(client)) == [("1", 2), ("2", 2)]


def test_another_agent_may_answer():
    _, client = bus()
    client.do(question("Delegate", {"to": "other"}, correlation="7"))
    assert answers(client) == [("Counted", {"what": "a/other", "total": 0, "stamp": ""}, "7")]


@pytest.mark.parametrize(
    "kind, body, reason",
    [
        ("Nothing", None, "Clerk has no reaction to tests.core.sample_agents.Nothing"),
        ("Nobody", None, "Clerk has no reaction to tests.core.sample_agents.Nobody"),
        ("Release", None, f"{TYPES}Release is not for clients: @notification(expose=True) makes it so"),
        ("Count", {"what": 1}, f"what of {TYPES}Count must be str, not 1; as text it is written '\"1\"'"),
        ("Count", {"what": "a", "sort": 1}, f"{TYPES}Count has no field sort; it has what, times, stamp"),
        ("Count", None, f"{TYPES}Count needs what"),
        ("Count", ["a"], f"the body must be a JSON object with the fields of {TYPES}Count, not ['a']"),
        ("Count", b"{", f"the body is no JSON, as {TYPES}Count is asked for"),
        ("Count", b"[" * 100_000, f"the body is no JSON, as {TYPES}Count is asked for"),
        ("Count", {"what": "a", "times": 1 << 64}, "Count: an int of more than 64 bits cannot be stored or sent"),
    ],
)
def test_what_an_agent_cannot_take_is_told_as_one_sentence_and_is_a_dead_letter(kind, body, reason):
    b, client = bus()
    client.do(question(kind, body, correlation="c"))
    assert [(type, correlation) for type, _, correlation in answers(client)] == [("mom.ReactionFailed", "c")]
    ((_, told),) = reasons(client)
    assert told.startswith(reason) and "\n" not in told
    assert answers(client)[0][1]["agent"] == "c/clerk"
    (letter,) = b.ask("c", "deadletters")["letters"]
    assert letter["reason"] == told
    client.forget().do(question("Count", {"what": "hat"}))
    assert answers(client)[0][0] == "Counted"


def test_a_reaction_that_fails_is_told_when_it_was_tried_often_enough():
    b, client = bus()
    client.do(question("Count", {"what": "bad"}))
    assert not client.got
    for _ in range(100):
        b.later(60)
    assert reasons(client) == [("mom.ReactionFailed", "ValueError: no such thing")]


def test_without_a_reply_to_what_is_wrong_is_told_to_the_connection():
    b, client = bus()
    client.do(question("Release", reply_to=""))
    assert client.refusals == [f"c/clerk: {TYPES}Release is not for clients: @notification(expose=True) makes it so"]
    strict = b.connect("a")
    strict.do(question("Release", reply_to=""))
    assert strict.scopes == [("connection", "")]
    gone = b.connect("a")
    gone.do(question("Release", reply_to=""), pump=False)
    gone.close()
    assert b.ask("c", "deadletters")["count"] == 3


@pytest.mark.parametrize(
    "command, reason",
    [
        (question("Count", to="agent:nobody"), "no agent is named 'nobody' on this bus: see `mom agent list`"),
        (question("Count", to="agent:queue:answers"), "no agent is named 'queue:answers' on this bus"),
        (question("Count", to="agent:c/_clients"), "'c/_clients' is the server's own"),
        (question("Count", to="agent:c/queue:x"), "'c/queue:x' is the server's own"),
        (question("Count", to="agent:z/clerk"), "no route from a to 'z'"),
        (question("Count", delay=SECOND), "an agent gets what it is sent at once"),
        (Ask("agent:clerk", b"", reply_to="/queue/answers"), "a message to an agent needs the header type"),
        (Ask("agent:clerk", b"", type="x" * 257, reply_to="/queue/answers"), "a type has at most 256 characters"),
    ],
)
def test_what_is_no_question_is_told_at_once(command, reason):
    _, client = bus()
    client.do(command)
    assert [told.startswith(reason) for _, told in reasons(client)] == [True], reasons(client)
    command.reply_to = ""
    client.forget().do(command)
    assert [told.startswith(reason) for told in client.refusals] == [True], client.refusals


@pytest.mark.parametrize("reply_to", ["/agent/clerk", "/nowhere", "/queue/" + "x" * 190, "/temp-queue/x"])
def test_an_answer_needs_a_place(reply_to):
    _, client = bus()
    client.do(question("Count", {"what": "a"}, reply_to=reply_to, correlation="é" * 60))
    assert len(client.refusals) == 1 and not client.got


def test_a_question_that_is_sent_again_is_asked_once():
    b, client = bus()
    client.do(question("Count", {"what": "hat"}, dedup=("me", 1)))
    far = b.connect("b")
    far.do(question("Count", {"what": "hat"}, dedup=("me", 1)), question("Count", {"what": "cap"}, dedup=("me", 2)))
    b.reboot("c")
    far.do(question("Count", {"what": "cap"}, dedup=("me", 2)), question("Count", {"what": "cap"}, dedup=("you", 2)))
    assert [body["what"] for _, body, _ in answers(client)] == ["hat", "cap", "cap"]
    assert b.fields("c/clerk")["counts"] == {"hat": 1, "cap": 2}
    assert [row["detail"] for row in b.records("c", "drop")] == ["a repeat"] * 2


def test_what_an_agent_was_asked_goes_with_it(monkeypatch):
    monkeypatch.setattr(questions, "MAX_ASKED", 1)
    b, client = bus()
    for name in ("clerk", "other", "clerk"):
        client.do(question("Count", {"what": name}, f"agent:{name}", dedup=("me", 1)))
    assert [body["what"] for _, body, _ in answers(client)] == ["clerk", "other"]
    assert b.stored("clerk", "c") == {questions.ASKED: 1}
    b.ask("c", "delete", agent="clerk")
    assert b.stored("clerk", "c") == {}


def test_a_dead_letter_of_a_question_can_be_sent_anew():
    b, client = bus()
    client.do(question("Count", {"what": 7}, dedup=("me", 1), correlation="1"))
    (letter,) = b.ask("c", "deadletters")["letters"]
    client.forget()
    b.ask("c", "retry", id=letter["id"])
    assert len(client.got) == 1  # it fails as before: it was no repeat
    assert b.ask("c", "deadletters")["count"] == 1


def test_a_question_expires():
    b, client = bus()
    b.cut("b", "c")
    client.do(question("Count", {"what": "hat"}, expires=b.now + SECOND))
    b.later(2)
    b.join("b", "c")
    b.pump()
    assert reasons(client) == [("mom.Expired", "expired")]


def test_an_agent_that_is_gone_is_told():
    b, client = bus()
    b.ask("c", "delete", agent="clerk")
    client.do(question("Count", {"what": "hat"}))
    assert [type for type, _ in reasons(client)] == ["mom.UnknownAgent"]


def test_a_transaction_asks_with_all_else_or_not_at_all():
    b, client = bus()
    client.do(Transact([question("Count", {"what": "hat"}), question("Count", {"what": "cap"})]))
    assert [body["what"] for _, body, _ in answers(client)] == ["hat", "cap"]
    client.forget().do(Transact([question("Count", {"what": "hat"}), question("Count", to="agent:nobody")]))
    assert (client.got, len(client.refusals)) == ([], 1)
    assert b.fields("c/clerk")["counts"] == {"hat": 1, "cap": 1}


def test_what_a_client_asks_reaches_an_agent_in_the_order_of_the_bus():
    b, client = bus()
    client.do(*(question("Count", {"what": str(number)}) for number in range(50)))
    assert b.fields("c/clerk")["order"] == [str(number) for number in range(50)]


def test_what_json_has_not_cannot_be_told_to_a_client():
    with pytest.raises(TypeError, match="Counted cannot be told to a client"):
        to_json(Counted("x", 1, b"\xff"))


def test_a_notification_of_an_agent_is_not_asked_and_needs_not_be_exposed():
    b, _ = bus()
    b.send("a", "clerk", Put("x"))
    b.send("a", "clerk", Release())
    (letter,) = b.ask("c", "deadletters")["letters"]
    assert letter["reason"] == f"Clerk has no reaction to {TYPES}Put"


def test_who_asks_must_be_allowed_to_send_to_the_agent_and_to_where_it_answers():
    b, _ = bus()
    client = b.connect("b", strict=False)
    b.pump()
    for match, may in (("queue:answers", ["receive"]), ("agent:other", ["send"]), ("queue:mine", ["send", "create"])):
        b.ask("a", "set_permission", user="user", match=match, may=may)
    for to, reply in (("clerk", "mine"), ("c/clerk", "mine"), ("other", "answers"), ("other", "mine")):
        client.do(question("Count", {"what": "hat"}, f"agent:{to}", reply_to=f"/queue/{reply}"))
    client.do(Transact([question("Count", {"what": "hat"}, "agent:clerk", reply_to="")]))
    refused = [f"access refused: user 'user' may not send to {what}" for what in ("agent:clerk", "queue:answers")]
    assert client.refusals == [refused[0], refused[0], refused[1], refused[0]]
    assert (b.fields("c/clerk")["counts"], b.fields("a/other")["counts"]) == ({}, {"hat": 1})


def test_where_an_answer_is_to_go_is_made_and_judged_like_where_a_message_goes():
    b, _ = bus()
    b.ask("a", "set_policy", match="queue:no*", values={"create": False})
    client = b.connect("b", strict=False)
    client.do(question("Count", {"what": "a"}, reply_to="/queue/nowhere"))
    client.do(question("Count", {"what": "a"}, reply_to="/remote-temp-queue/b/x"))
    assert len(client.refusals) == 2 and client.refusals[0].startswith("queue:nowhere does not exist")
    client.do(question("Count", {"what": "a"}, reply_to="/queue/mine"))
    assert b.queue("queue:mine").id == "b/queue:mine" and b.queue("queue:mine").id in b.servers["b"].natives.agents
    assert b.fields("c/clerk")["counts"] == {"a": 1}


def test_what_an_agent_was_asked_moves_with_it():
    b = Broker(topology({"x": "ab", "y": "bc"}, {"c/clerk": CLERK}, allow=("tests",)))
    client = b.connect("a", strict=False).subscribe("s", ANSWERS)

    def ask(*numbers: int) -> None:
        for number in numbers:
            client.do(question("Count", {"what": str(number)}, dedup=("me", number)), pump=False)
        b.pump()

    ask(1, 2, 5)
    for at, to in (("c", "b"), ("b", "a"), ("a", "c"), ("c", "b")):
        b.ask(at, "move_agent", agent="clerk", to=to)
        ask(1, 5)
        b.reboot(to)
        client = b.connect("a", strict=False).subscribe("s", ANSWERS) if to == "a" else client
        ask(2)
    ask(3)
    assert b.program.describe(*b.stores["b"].agent("c/clerk"))["counts"] == dict.fromkeys("1253", 1)
    rows = {name: [row.agent for row in b.stores[name].disk.items.values() if row.collection == questions.ASKED]
            for name in "abc"}  # fmt: skip
    assert rows == {"a": [], "b": ["c/clerk"], "c": []}


def test_a_repeat_that_is_sooner_at_the_new_home_than_the_agent_is_one():
    b = Broker(topology({"x": "ab", "y": "bc"}, {"c/clerk": CLERK}, allow=("tests",)))
    client = b.connect("b", strict=False).subscribe("s", ANSWERS)
    client.do(question("Count", {"what": "hat"}, dedup=("me", 1)))
    b.servers["c"].step(Admin(1_000, "move_agent", {"agent": "clerk", "to": "b"}), b.now)
    for _ in range(200):
        for name in "abc":
            b.release(name, b.commit(name))
        client.do(question("Count", {"what": "hat"}, dedup=("me", 1)), pump=False)
    b.pump()
    assert b.program.describe(*b.stores["b"].agent("c/clerk"))["counts"] == {"hat": 1}
    assert len(client.got) == 1
