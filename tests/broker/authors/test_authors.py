"""Authors' agents at queues and topics: what they take and send is of their reaction's transaction."""

import json

import pytest

from mombroker.broker import properties
from tests.broker.authors.desk_agents import Tell
from tests.broker.bench import Broker
from tests.core.bus import topology

DESKS = "tests.broker.authors.desk_agents"
Q = "queue:orders"


def bus(agents, domains=None, **more):
    return Broker(topology(domains or {"x": "abc"}, {id: f"{DESKS}:{cls}" for id, cls in agents.items()}, **more))


def order(item, count=1):
    return json.dumps({"item": item, "count": count})


def unacked(b, name=Q):
    return b.queue(name).describe()["unacked"]


@pytest.mark.parametrize("home", "abc")
def test_an_agent_consumes_answers_and_publishes_wherever_the_queue_lives(home):
    b = bus({"a/desk": "Desk"})
    client = b.connect(home)
    b.ask(home, "create_queue", destination="queue:replies")
    b.ask(home, "delete_destination", destination=Q)
    replies = b.connect("c").subscribe("r", "queue:replies")
    sold = b.connect("b").subscribe("s", "topic:sold")
    client.send(Q, order("tea"), order("milk", 2), reply_to="/queue/replies", message="m1")
    assert b.fields("a/desk")["got"] == ["tea 1", "milk 2"]
    assert [json.loads(text) for text in replies.texts] == [{"sold": "tea"}, {"sold": "milk"}]
    assert [each.message.correlation for each in replies.got] == ["m1", "m1"]
    assert sold.texts == ["tea", "milk"]
    assert b.queue(Q).describe()["messages"] == 0


def test_a_failed_reaction_leaves_nothing_and_the_queue_says_what_follows():
    b = bus({"b/desk": "Desk"})
    sold, dead = b.connect("c").subscribe("s", "topic:sold"), b.connect("a").subscribe("d", "queue:DLQ.orders")
    b.ask("a", "set_policy", match=Q, values={"max_redeliveries": 2, "dead_letter": "queue:DLQ.orders"})
    b.connect("a").send(Q, order("bad"), order("tea"))
    assert b.fields("b/desk")["got"] == ["tea 1"] and sold.texts == ["tea"]
    for _ in range(8):
        b.later(10)
    assert sold.texts == ["tea"] and b.queue(Q).describe()["messages"] == 0
    assert [json.loads(text)["item"] for text in dead.texts] == ["bad"]
    assert "given back 3 times" in dead.got[0].message.annotations["dead-letter-reason"]


def test_what_was_given_back_says_so_when_it_comes_again():
    b = bus({"a/desk": "Desk"})
    b.connect("a").send(Q, order("bad"))
    b.send("a", "desk", Tell("none"))
    b.later(10)
    assert b.fields("a/desk")["got"] == ["bad 1"] and b.fields("a/desk")["counts"] == [2]


def test_what_does_not_fit_is_not_tried_again():
    b = bus({"a/desk": "Desk"})
    dead = b.connect("a").subscribe("d", "queue:DLQ.orders")
    b.ask("a", "set_policy", match=Q, values={"dead_letter": "queue:DLQ.orders"})
    b.connect("a").send(Q, "no json", '{"count": 1}', '{"item": 3}', '{"item": "tea", "count": 1}')
    assert dead.texts == ["no json", '{"count": 1}', '{"item": 3}']
    assert b.fields("a/desk")["got"] == ["tea 1"]


def consuming(home, jobs="queue:jobs"):
    """A clerk on `b` that consumes from a queue which lives on `home`."""
    b = bus({"b/clerk": "Clerk"}, {"x": "ab"})
    b.ask(home, "create_queue", destination=jobs)
    b.send("a", "clerk", Tell("consume", "/queue/jobs"))
    return b


def test_credit_is_what_a_consuming_agent_takes():
    b = consuming("a")
    b.cut("a", "b")
    b.connect("a").send("queue:jobs", *"123456")
    assert unacked(b, "queue:jobs") == 2 and b.queue("queue:jobs").describe()["ready"] == 4
    b.join("a", "b")
    b.pump()
    assert b.fields("b/clerk")["got"] == list("123456")
    assert b.queue("queue:jobs").describe()["messages"] == 0


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("crash", "ab")
@pytest.mark.parametrize("home", "ab")
def test_every_message_once_whichever_commit_a_crash_comes_at(home, crash, durable):
    for at in range(1, 10):
        b = consuming(home)
        sender = b.connect("a").send("queue:jobs", "first")
        b.death = (crash, at, durable)
        sender.send("queue:jobs", "second", receipt="r")
        kept = sender.receipts or len(b.fields("b/clerk")["got"]) > 1
        for _ in range(3):
            b.later(10)
        got = b.fields("b/clerk")["got"]
        assert got == ["first", "second"] or (not kept and got == ["first"]), at
        assert b.queue("queue:jobs").describe()["messages"] == 0


def test_an_agent_subscribes_by_pattern_and_selector_and_misses_nothing_while_it_is_down():
    b = bus({"c/reader": "Reader"})
    client = b.connect("a")
    client.send("topic:sold", "one")
    client.send("topic:news.eu", "two")
    client.send("topic:other", "no")
    b.cut("a", "c"), b.cut("b", "c")
    b.crash("c")
    client.send("topic:news.us", "three")
    b.boot("c")
    b.join("a", "c")
    b.pump()
    assert b.fields("c/reader")["got"] == ["one", "two", "three"]


def test_a_subscription_has_redelivery_and_dead_letters_too():
    b = bus({"c/reader": "Reader"})
    b.ask("a", "set_policy", match="sub:*", values={"max_redeliveries": 1, "dead_letter": "queue:DLQ.x"})
    dead = b.connect("a").subscribe("d", "queue:DLQ.x")
    b.connect("a").send("topic:sold", "bad", "good")
    for _ in range(4):
        b.later(20)
    assert b.fields("c/reader")["got"] == ["good"] and dead.texts == ["bad"]


def test_what_an_agent_sends_has_what_a_clients_send_has():
    b = bus({"c/reader": "Reader"})
    filed = b.connect("b").subscribe("f", "queue:filed")
    b.connect("a").send("topic:sold", "x", properties=properties.pack({"then": True}))
    (got,) = filed.got
    assert got.body == b"topic:sold x" and got.message.priority == 7 and got.message.group == "g"
    assert got.message.kind == "text" and got.message.sender == "c/reader"


def test_what_a_failed_reaction_has_sent_never_leaves():
    b = bus({"a/clerk": "Clerk"})
    filed, sold = b.connect("b").subscribe("f", "queue:filed"), b.connect("c").subscribe("s", "topic:sold")
    b.send("a", "clerk", Tell("fail", "/queue/filed", "x"))
    b.send("a", "clerk", Tell("put", "/queue/filed", "y"))
    for _ in range(6):
        b.later(100)
    assert filed.texts == ["y"] and sold.texts == []


def test_an_agent_consumes_when_it_likes_and_stops():
    b = bus({"b/clerk": "Clerk"})
    client = b.connect("a").send("queue:jobs", "1", "2", "3")
    b.send("a", "clerk", Tell("consume", "/queue/jobs"))
    assert b.fields("b/clerk")["got"] == ["1", "2", "3"]
    b.reboot("b")
    client.send("queue:jobs", "4")
    assert b.fields("b/clerk")["got"] == ["1", "2", "3", "4"]
    b.send("a", "clerk", Tell("stop"))
    client.send("queue:jobs", "5")
    assert b.queue("queue:jobs").describe()["ready"] == 1 and b.ask("b", "agent", agent="clerk")["consumes"] == []


def test_a_subscription_that_an_agent_stops_is_gone():
    b = bus({"b/clerk": "Clerk"})
    b.send("a", "clerk", Tell("subscribe", "/topic/t"))
    b.connect("a").send("topic:t", "1")
    names = b.servers["a"].names.known
    (name,) = [name for name in names if name.startswith("sub:")]
    b.send("a", "clerk", Tell("stop"))
    b.connect("a").send("topic:t", "2")
    assert b.fields("b/clerk")["got"] == ["1"] and name not in names


def test_a_deleted_agent_gives_back_what_it_had_and_its_subscription_ends():
    b = bus({"b/desk": "Desk", "b/reader": "Reader"}, {"x": "ab"})
    b.connect("a").send(Q, order("tea"))
    b.cut("a", "b")
    b.connect("a").send(Q, *(order(str(i)) for i in range(5)))
    b.ask("b", "delete", agent="desk")
    b.ask("b", "delete", agent="reader")
    b.join("a", "b")
    b.pump()
    assert b.queue(Q).describe()["ready"] == 5 and unacked(b) == 0
    assert [name for name in b.servers["a"].names.known if name.startswith("sub:")] == []
    other = b.connect("a").subscribe("s", Q)
    assert [json.loads(text)["item"] for text in other.texts] == list("01234")


def test_an_agent_goes_on_when_its_queue_was_deleted_and_is_made_anew():
    b = bus({"b/desk": "Desk"})
    b.connect("a").send(Q, order("tea"))
    b.ask(b.queue(Q).id[0], "delete_destination", destination=Q)
    (shown,) = b.ask("b", "agent", agent="desk")["consumes"]
    assert shown["home"] == "" and "was deleted" in shown["waits"]
    b.connect("c").send(Q, order("milk"))
    assert b.fields("b/desk")["got"] == ["tea 1", "milk 1"]


def test_an_agent_waits_for_a_queue_that_only_an_operator_makes():
    b = bus({"b/desk": "Desk"}, policies=[{"match": "queue:*", "create": False}])
    assert "no queue:orders yet" in b.ask("b", "agent", agent="desk")["consumes"][0]["waits"]
    b.reboot("b")
    b.ask("c", "create_queue", destination=Q)
    b.connect("c").send(Q, order("tea"))
    assert b.fields("b/desk")["got"] == ["tea 1"]


def test_an_agent_follows_a_queue_that_moves():
    b = bus({"b/desk": "Desk"})
    client = b.connect("a").send(Q, order("1"))
    home = b.queue(Q).id[0]
    to = "c" if home != "c" else "a"
    b.ask(home, "move_destination", destination=Q, to=to)
    client.send(Q, order("2"), order("3"))
    b.reboot(to)
    client = b.connect("b").send(Q, order("4"))
    assert b.queue(Q).id.startswith(to)
    assert b.fields("b/desk")["got"] == [f"{i} 1" for i in range(1, 5)] and b.queue(Q).describe()["messages"] == 0


def test_a_full_queue_takes_what_agents_send_or_it_becomes_a_dead_letter():
    b = bus({"a/clerk": "Clerk"})
    values = {"max_messages": 2, "overflow": "reject", "dead_letter": "queue:DLQ.f"}
    b.ask("a", "set_policy", match="queue:filed", values=values)
    for text in "123":
        b.send("a", "clerk", Tell("put", "/queue/filed", text))
    assert b.queue("queue:filed").describe()["messages"] == 2
    assert b.connect("a").subscribe("d", "queue:DLQ.f").texts == ["3"]
    b.ask("a", "set_policy", match="queue:filed", values={**values, "overflow": "block"})
    b.send("a", "clerk", Tell("put", "/queue/filed", "4"))
    assert b.queue("queue:filed").describe()["messages"] == 3


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("/topic/x", "send to it by publish"),
        ("/temp-queue/x", "belongs to a connection"),
        ("/queue/a,b", "without commas"),
        ("/nothing/x", "write /queue/NAME"),
        ("/remote-temp-queue/nobody/conn:1/x", "nobody"),
    ],
)
def test_what_is_no_queue_is_refused_with_what_to_do(where, said):
    b = bus({"a/clerk": "Clerk"})
    b.send("a", "clerk", Tell("put", where, "x"))
    for _ in range(6):
        b.later(100)
    (letter,) = b.ask("a", "deadletters")["letters"]
    assert said in letter["reason"]


def test_an_expired_message_is_no_ones():
    b = bus({"b/desk": "Desk"}, {"x": "ab"})
    b.connect("a").send(Q, order("tea"))
    b.cut("a", "b")
    b.connect("a").send(Q, order("late"), expires=b.now + 5_000_000_000)
    b.later(10)
    b.join("a", "b")
    b.pump()
    assert b.fields("b/desk")["got"] == ["tea 1"] and b.queue(Q).describe()["messages"] == 0
