"""Topics in total order: who publishes goes by the home of the topic, and waits for it before anything else is sent."""

from dataclasses import replace
from random import Random

import pytest

from mombroker.admin.cli.status import sentence
from mombroker.broker.commands import Disconnect, Flow, Receipt, Receipts, Send, SendRun, Subscribe, Transact
from mombroker.broker.topic.moving import POLLS
from mombroker.broker.topic.topic import Topic
from tests.broker.bench import THREE, Broker
from tests.broker.queue.test_moves_and_losses import lose, replace_store, rounds
from tests.core.bus import topology

T, Q = "topic:prices", "queue:q"
HOPS = topology({"x": "ab", "y": "bc"})


def bus(made=THREE, home="b", **policy):
    b = Broker(made)
    b.ask("a", "set_policy", match="topic:*", values={"order": "total", **policy})
    b.ask(home, "create_topic", destination=T)
    b.pump()
    return b


def up(b, name):
    b.boot(name)
    for other in set("abc") - {name}:
        b.join(name, other)
    b.pump()


def sends(*texts, to=T):
    return [Send(to, text.encode(), shown=to, receipt=text) for text in texts]


def receipts(client):
    return [name for told in client.told for name in (
        [told.receipt] if isinstance(told, Receipt) else told.receipts if isinstance(told, Receipts) else []
    )]  # fmt: skip


def test_all_readers_have_one_sequence_by_wildcards_and_durable_subscriptions_too():
    b = bus()
    readers = [b.connect(at).subscribe("s", T) for at in "abc"]
    readers += [b.connect(at).subscribe("s", "topic:*", "topic:>") for at in "ac"]
    readers += [b.connect(at, at).subscribe("s", T, durable="d") for at in "abc"]
    publishers = [b.connect(at) for at in "aacb"]
    for n in range(5):
        for at, client in enumerate(publishers):
            client.do(*sends(f"{at}.{n}"), pump=False)
    b.pump()
    first = readers[0].texts
    assert len(first) == 20 and all(each.texts == first for each in readers)
    assert sorted(first) != first, "it is not by chance the order of names"
    for at in range(4):
        assert [text for text in first if text[0] == str(at)] == [f"{at}.{n}" for n in range(5)]


def test_a_receipt_follows_the_place_and_what_is_for_elsewhere_waits_for_that():
    b = bus()
    client, reader = b.connect("a"), b.connect("c").subscribe("q", Q)
    b.cut("a", "b")
    client.do(*sends("1", "2"), SendRun(Send(T, b""), [b"3"], ["3"]), *sends("4", to=Q))
    assert receipts(client) == [] and reader.texts == []
    assert len(b.servers["a"].clients.sessions) == 1 and "no place" in next(iter(b.servers["a"].clients.waiting)).reason
    b.join("a", "b")
    b.pump()
    assert receipts(client) == ["1", "2", "3", "4"] and reader.texts == ["4"]


def test_a_run_goes_to_the_home_as_one_message_and_comes_to_readers_as_many():
    b = bus()
    readers = [b.connect(at).subscribe("s", T) for at in "abc"] + [b.connect("c", "me").subscribe("s", T, durable="d")]
    texts, late = [str(n) for n in range(20)], b.now + 10**9
    run = SendRun(Send(T, b"", shown=T), [text.encode() for text in texts], texts)
    heads = [(f"id-{n}", b"") for n in range(20)]
    client = b.connect("a")
    client.do(run)
    log = [each for _, each in b.stores["a"].log(0, 1000)]
    assert [each.detail for each in log if each.kind == "send" and "b/topic:prices" in each.dests][1:] == ["t.run"]
    assert receipts(client) == texts and all(each.texts == texts for each in readers)
    client.do(replace(run, heads=heads), replace(run, model=replace(run.model, expires=late)))
    assert [each.message.message for each in readers[3].got[20:40]] == [id for id, _ in heads]
    b.connect("b").do(run)
    client.do(replace(run, model=replace(run.model, delay=10**9)))
    assert len({each.id for each in readers[0].got}) == len(readers[0].got) == 80
    b.later(2)
    assert all(each.texts == texts * 5 for each in readers)


def test_each_message_of_a_run_is_a_dead_letter_where_the_topic_is_gone():
    b = bus()
    b.cut("a", "b")
    client = b.connect("a", strict=False)
    client.do(SendRun(Send(T, b"", shown=T), [b"1", b"2"], ["1", "2"]))
    b.ask("b", "delete_topic", destination=T)
    b.join("a", "b")
    b.pump()
    assert len(client.refusals) == 2 and b.ask("b", "status")["dead_letters"] == 2


@pytest.mark.parametrize("crashed", ["", "b", "a", "ab"])
@pytest.mark.parametrize("again", "abc")
def test_what_a_client_repeats_has_one_place_whoever_it_is_connected_to_and_whoever_has_crashed(crashed, again):
    """It has lost its connection to a before the receipt."""
    b = bus()
    readers = [b.connect(at).subscribe("s", T) for at in "abc" if at not in crashed]
    b.cut("a", "b")
    b.connect("a").send(T, "1", dedup=("p", 1), receipt="r").close()
    for down in crashed:
        b.crash(down)
    for down in crashed:
        up(b, down)
    b.connect("c").send(T, "2", dedup=("q", 1))
    b.join("a", "b")
    b.pump()
    client = b.connect(again).send(T, "1", dedup=("p", 1), receipt="r").send(T, "3", dedup=("p", 2), receipt="s")
    assert receipts(client) == ["r", "s"]
    assert all(each.texts == readers[0].texts for each in readers)
    assert sorted(readers[0].texts) == ["1", "2", "3"]


def test_what_comes_late_by_the_former_server_of_a_client_is_the_repeat():
    b = bus()
    reader = b.connect("c").subscribe("s", T)
    b.cut("a", "b")
    former = b.connect("a").send(T, "1", "1", dedup=("p", 1)).do(
        Transact([replace(each, dedup=("p", 2)) for each in sends("2")], "t"), *sends("other", to=Q)
    )  # fmt: skip
    again = b.connect("c")
    again.do(Transact([replace(each, dedup=("p", at)) for at, each in enumerate(sends("1", "2", "3"), 1)], "t"))
    assert receipts(former) == [] and receipts(again) == ["t"] and reader.texts == ["1", "2", "3"]
    b.join("a", "b")
    b.pump()
    assert receipts(former) == ["t", "other"] and reader.texts == ["1", "2", "3"]


def test_a_repeat_of_what_is_not_due_is_dropped_and_so_is_one_in_a_run():
    b = bus()
    reader = b.connect("c").subscribe("s", T)
    client = b.connect("a")
    for _ in range(2):
        client.send(T, "late", dedup=("p", 1), delay=10**9, receipt="r")
        client.do(SendRun(Send(T, b"", shown=T, dedup=("p", 2)), [b"run", b"run"], ["1", "2"]))
    b.later(2)
    assert reader.texts == ["run", "late"] and receipts(client) == ["r", "1", "2"] * 2


@pytest.mark.parametrize("delayed", [False, True])
def test_a_new_home_of_a_topic_knows_what_the_former_one_has_had(delayed):
    b = bus()
    client, reader = b.connect("a"), b.connect("c").subscribe("s", T)
    for n in range(250):
        client.send(T, "x", dedup=(f"p{n}", 1), pump=False)
    b.pump()
    client.send(T, "late", dedup=("p0", 2), delay=10**9 * delayed)
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    b.reboot("c")
    b.pump()
    reader = b.connect("a").subscribe("s", T)
    for n in range(250):
        client.send(T, "x", dedup=(f"p{n}", 1), pump=False)
    client.send(T, "late", "new", dedup=("p0", 2)).send(T, "new", dedup=("p0", 3))
    b.later(2)
    assert reader.texts == (["new", "late"] if delayed else ["new"])
    b.ask("c", "delete_topic", destination=T)
    b.pump()
    assert not [row for at in "bc" for row in b.stores[at].disk.items.values() if row.agent.endswith(T)]


def test_at_the_home_of_the_topic_nothing_waits():
    b = bus(home="a")
    client = b.connect("a").do(*sends("1"), pump=False)
    session = next(iter(b.servers["a"].clients.sessions.values()))
    assert session.unplaced is None
    b.pump()
    assert receipts(client) == ["1"]


def test_what_settles_and_asks_for_messages_does_not_wait():
    b = bus()
    client = b.connect("a").subscribe("s", Q, ack="individual", credit=1)
    b.connect("a").send(Q, "1", "2")
    b.cut("a", "b")
    client.do(*sends("x"))
    client.ack("1")
    client.do(Flow("s", 1))
    assert client.texts == ["1", "2"] and receipts(client) == []


@pytest.mark.parametrize("first", [sends("1"), [Transact(sends("1"), "1")]], ids=["alone", "in a transaction"])
def test_a_home_that_is_down_keeps_what_is_published_and_refuses_what_waits_behind_it(first):
    b = bus(block_seconds=5.0)
    reader = b.connect("c").subscribe("s", T)
    b.crash("b")
    client = b.connect("a", strict=False).do(*first, *sends("2", to=Q))
    b.later(6)
    assert client.refusals == ["what was published to topic:prices has no place in its order yet: is b, its home, up?"]
    assert reader.texts == []
    up(b, "b")
    assert reader.texts == ["1"] and receipts(client) == ["1"]


@pytest.mark.parametrize("place, room", [(30.0, 2.0), (5.0, 20.0)])
def test_who_has_waited_for_a_place_waits_for_room_in_a_queue_as_long_as_that_says(place, room):
    b = bus(block_seconds=place)
    b.ask("a", "set_policy", match=Q, values={"max_messages": 1, "block_seconds": room})
    b.connect("a").send(Q, "full")
    b.cut("a", "b")
    client = b.connect("a", strict=False).do(*sends("1"), *sends("2", to=Q))
    b.later(4)
    b.join("a", "b")
    b.pump()
    assert receipts(client) == ["1"] and client.refusals == []
    b.later(room - 0.5)
    assert client.refusals == []
    b.later(1)
    assert client.refusals == [f"queue:q is full, and was so for {room:g} s"]


def test_a_transaction_is_sent_in_turn_though_its_client_and_its_server_go():
    b = bus()
    reader = b.connect("c").subscribe("t", "topic:>").subscribe("q", Q)
    b.ask("c", "create_topic", destination="topic:other")
    b.pump()
    b.cut("a", "b")
    client = b.connect("a")
    client.do(Transact([*sends("1"), *sends("2", to=Q), *sends("3", to="topic:other"), *sends("4")], "all"))
    assert receipts(client) == [] and reader.texts == []
    client.close()
    b.reboot("a")
    assert reader.texts == []
    b.join("a", "b")
    b.later(1)
    b.pump()
    assert [text for text in reader.texts if text != "2"] == ["1", "3", "4"] and reader.texts.index("2") > 0
    assert not [row for row in b.stores["a"].disk.items.values() if row.collection == "outbox"]


def test_a_transaction_has_its_receipt_when_all_is_sent():
    b = bus()
    client = b.connect("a").do(Transact([*sends("1"), *sends("2", to=Q)], "all"), Disconnect("bye"))
    assert receipts(client) == ["all", "bye"]


def test_what_expires_is_measured_by_the_homes_clock_and_shared_by_nobody():
    b = bus()
    reader = b.connect("b").subscribe("s", T)
    b.connect("a").send(T, "1", expires=b.now + 10**9, receipt="r")
    assert reader.texts == ["1"] and reader.got[0].expires >= b.now


def test_what_is_delayed_waits_at_the_home_and_has_its_place_when_it_is_due_over_a_restart_and_a_move():
    b = bus()
    readers = [b.connect(at).subscribe("s", T) for at in "ac"] + [b.connect("a", "a").subscribe("s", T, durable="d")]
    client = b.connect("a")
    b.cut("b", "c")
    client.do(Send(T, b"1", delay=10**9, receipt="late"), *sends("2", "3", to=T))
    assert receipts(client) == ["late", "2", "3"] and readers[0].texts == ["2", "3"]
    b.reboot("b")
    b.join("a", "b")
    b.pump()
    assert b.ask("b", "topic", destination=T)["delayed"] == 1
    b.later(2)
    client.do(*sends("4"))
    b.join("b", "c")
    b.pump()
    assert [each.texts for each in readers] == [["2", "3", "1", "4"]] * 3
    client.do(*(Send(T, str(n).encode(), delay=n * 10**8) for n in range(300, 5, -1)), *sends("5"))
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    assert {at: b.ask(at, "topic", destination=T)["delayed"] for at in "bc"} == {"b": 0, "c": 295}
    assert not [row for row in b.stores["b"].disk.items.values() if row.agent == "b/topic:prices"]
    b.later(31)
    assert readers[0].texts[4:] == ["5", *map(str, range(6, 301))]
    assert readers[0].texts == readers[1].texts == readers[2].texts


def test_what_follows_waits_for_what_went_to_the_home_though_the_order_is_taken_away_meanwhile():
    b = bus()
    reader = b.connect("c").subscribe("s", T)
    client = b.connect("a")
    b.cut("a", "b")
    client.do(*sends("1"))
    b.ask("a", "set_policy", match="topic:*", values={})
    b.pump()
    client.do(*sends("2"), SendRun(Send(T, b""), [b"3", b"4"], ["3", "4"]))
    assert reader.texts == []
    b.join("a", "b")
    b.pump()
    assert reader.texts == receipts(client) == ["1", "2", "3", "4"]


def test_what_waits_in_an_outbox_waits_for_its_own_place_if_its_topic_has_an_order_only_by_then():
    b, other = bus(), "topic:other"
    b.ask("a", "set_policy", match=other, values={"order": ""})
    b.ask("c", "create_topic", destination=other)
    reader = b.connect("b").subscribe("q", Q).subscribe("t", other)
    b.cut("a", "b")
    client = b.connect("a").do(Transact([*sends("1"), *sends("2", to=other), *sends("3", to=Q)], "all"))
    b.ask("a", "set_policy", match=other, values={"order": "total"})
    b.reboot("a")
    b.cut("b", "c")
    b.join("a", "c")
    b.join("a", "b")
    b.pump()
    assert reader.texts == []
    b.join("b", "c")
    b.pump()
    assert reader.texts == ["2", "3"], client.refusals


def test_the_home_of_a_new_topic_is_where_it_is_published_first():
    b = bus(HOPS)
    reader = b.connect("a").subscribe("s", "topic:new")
    client = b.connect("c").do(*sends("1", "2", to="topic:new"))
    assert b.ask("a", "topic", destination="topic:new")["created"] == "c"
    assert reader.texts == ["1", "2"] and receipts(client) == ["1", "2"]


def test_a_topic_that_is_deleted_meanwhile_tells_who_has_published():
    b = bus()
    b.cut("a", "b")
    client = b.connect("a", strict=False).do(*sends("1"))
    b.ask("b", "delete_topic", destination=T)
    b.pump()
    b.join("a", "b")
    b.pump()
    assert client.refusals == ["topic:prices has no home there any more, and nobody gets this"]
    client.do(*sends("2"))
    assert receipts(client) == ["2"] and b.ask("c", "topic", destination=T)["created"] == "a"


def test_the_home_moves_while_clients_publish_and_the_order_goes_on():
    b = bus(HOPS)
    readers = [b.connect(at).subscribe("s", T) for at in "abc"]
    clients = [b.connect(at) for at in "abc"]
    for n in range(12):
        for at, client in enumerate(clients):
            client.do(*sends(f"{at}.{n}"), pump=n % 3 == 2)
        if n in (3, 7):
            b.ask("b" if n == 3 else "c", "move_topic", destination=T, to="c" if n == 3 else "a")
    b.pump()
    assert b.ask("b", "topic", destination=T) | {"policy": 0, "patterns": 0, "servers": 0} == {
        "topic": T, "created": "a", "moving": "", "delayed": 0, "policy": 0, "patterns": 0, "servers": 0,
        "subscribers_here": 1, "subscriptions_here": [],
    }  # fmt: skip
    assert len(readers[0].texts) == 36 and readers[0].texts == readers[1].texts == readers[2].texts
    assert "ask its home server a" in b.ask("b", "move_topic", destination=T, to="c")


def test_a_move_waits_until_all_servers_are_up_and_the_former_home_works_on():
    b = bus()
    reader = b.connect("c").subscribe("s", T)
    b.crash("a")
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    b.connect("c").do(*sends("1"))
    assert reader.texts == ["1"] and b.ask("b", "topic", destination=T)["moving"] == "to c"
    assert "on its way to c" in b.ask("b", "move_topic", destination=T, to="a")
    up(b, "a")
    assert b.ask("b", "topic", destination=T)["created"] == "c"
    b.connect("a").do(*sends("2"))
    assert reader.texts == ["1", "2"]


def test_what_comes_to_the_new_home_too_early_waits_there_over_a_restart():
    b = bus()
    reader = b.connect("a").subscribe("s", T)
    client = b.connect("c", strict=False)
    b.cut("a", "b")
    b.cut("a", "c")
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    b.join("a", "b")
    b.pump()
    b.join("a", "c")
    b.pump()
    client.do(*sends("1"))
    b.reboot("c")
    b.pump()
    assert reader.texts == ["1"] and b.ask("a", "topic", destination=T)["created"] == "c"


def reasons(b, server):
    return [sentence(each, b.now) for each in b.ask(server, "why")["waits"] if each["kind"] not in ("link", "held")]


def test_why_tells_what_a_transaction_waits_for():
    b = bus()
    b.cut("a", "b")
    b.connect("a").do(*sends("1", "2"))
    b.connect("a").do(Transact([*sends("3"), *sends("4", to=Q)], "all"))
    *_, session = b.servers["a"].clients.sessions.values()
    assert b.servers["a"].clients.reason(session.id) == "what it has published to topic:prices has its place at b"
    assert reasons(b, "a") == ["3 messages of clients have no place in topic:prices yet, whose home is b"]
    b.join("a", "b")
    b.pump()
    assert reasons(b, "a") == []


def test_why_tells_what_a_home_waits_for_that_is_on_its_way():
    b = bus()
    b.cut("a", "b")
    b.cut("a", "c")
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    b.join("a", "b")
    b.pump()
    b.cut("b", "c")
    b.join("a", "c")
    b.pump()
    b.connect("c").do(*sends("1"))
    waits, place = reasons(b, "c")
    assert waits.startswith(
        "c/topic:prices waits until b, its former home, has sent on all that has come there, in order to take c#"
    )
    assert place == "1 message of clients has no place in topic:prices yet, whose home is c"


def test_why_tells_what_waits_where_a_topic_ends():
    b = bus(home="a")
    b.connect("a").send(T, "later", delay=10**12)
    b.servers["a"].turn(b.now)
    topic = b.servers["a"].clients.natives.agents["a/topic:prices"]
    topic.deleted()
    assert b.servers["a"].clients.reason(topic.id) == "what it keeps that is not due is given up: it was deleted"


def test_a_server_that_is_drained_gives_its_topics_away():
    b = bus()
    b.ask("b", "drain", to="c")
    b.pump()
    assert b.ask("a", "topic", destination=T)["created"] == "c"


def test_a_subscriber_needs_no_home():
    b = bus()
    b.connect("a").do(Subscribe("s", ("topic:quiet",), receipt="r"))
    assert "topic:quiet" not in b.servers["a"].names.known


def test_who_waits_for_a_home_that_is_lost_is_told_and_the_next_one_goes_on():
    b = bus(topology({"x": "abc", "y": "cde"}), home="d")
    readers = [b.connect(at).subscribe("s", T) for at in "abe"]
    client = b.connect("a", strict=False)
    client.do(*sends("1"))
    b.crash("d")
    client.do(*sends("2", "3"), Transact([*sends("4"), *sends("5", to=Q)], "all"))
    assert receipts(client) == ["1"] and client.refusals == []
    lose(b, "d", {"y": "c"})
    b.pump()
    assert [each.split(",")[0] for each in client.refusals] == [
        "topic:prices has no home there any more", "topic:prices has no home there any more",
        "a topic of the transaction has no home there any more",
    ]  # fmt: skip
    b.later(31)
    client.do(*sends("6"))
    assert b.ask("e", "topic", destination=T)["created"] == "a"
    assert receipts(client)[-1] == "6" and all(each.texts[0] == "1" and each.texts[-1] == "6" for each in readers)
    assert len({tuple(each.texts) for each in readers}) == 1


def test_a_move_ends_though_one_of_its_homes_or_a_server_between_is_lost():
    for lost, step in [(lost, step) for lost in "bcd" for step in range(14)]:
        b = bus(topology({"x": "abc", "y": "cde"}), home="b")
        b.ask("b", "move_topic", destination=T, to="d")
        rounds(b, step)
        b.crash(lost)
        b.pump()
        lose(b, lost, {name: member for name, member, those in (("x", "a", "abc"), ("y", "e", "cde")) if lost in those})
        replace_store(b, lost, "c" if lost == "d" else "a")
        b.later(1)
        homes = [
            id for server in b.servers.values() for id, each in server.natives.agents.items() if type(each) is Topic
        ]
        assert not [
            id for server in b.servers.values() for id, it in server.natives.agents.items() if getattr(it, "move", 0)
        ]
        known = {server.names.known.get("topic:prices") for server in b.servers.values()}
        assert len(known) == 1 and homes == [id for id in known if id], (lost, step, known, homes)
        readers = [b.connect(at).subscribe("s", T) for at in "ae"]
        clients = [b.connect(at).do(*sends("1", "2")) for at in "abcde"]
        assert all(receipts(each) == ["1", "2"] for each in clients), (lost, step)
        assert len(readers[0].texts) == 10 and readers[0].texts == readers[1].texts


@pytest.mark.parametrize("lost, left", [("d", {"y": "c"}), ("c", {"x": "a", "y": "d"})])
def test_a_home_that_has_lost_its_new_one_or_the_way_there_waits_for_nobody_to_be_there(lost, left):
    """It stays, or invites the new one again. e has still to say that it is there."""
    b = bus(topology({"x": "abc", "y": "cd", "z": "be"}), home="b")
    b.crash("e")
    b.ask("b", "move_topic", destination=T, to="d")
    b.pump()
    move = b.servers["b"].natives.agents["b/topic:prices"].move
    assert (move.phase, move.waits) == (POLLS, {"e"})
    b.crash(lost)
    lose(b, lost, left)
    assert lost == "c" or b.servers["b"].natives.agents["b/topic:prices"].move is None
    replace_store(b, lost, "a" if lost == "c" else "c")
    b.boot("e")
    b.join("b", "e")
    b.later(1)
    if lost == "d":
        assert b.servers["a"].names.known["topic:prices"] == "b/topic:prices"
        b.ask("b", "move_topic", destination=T, to="d")
        b.pump()
    assert {server.names.known["topic:prices"] for server in b.servers.values()} == {"d/topic:prices"}


def test_who_waits_for_a_home_beyond_a_server_that_is_lost_is_told_that_it_may_be_published():
    b = bus(topology({"x": "abc", "y": "cde"}), home="d")
    client = b.connect("a", strict=False)
    b.cut("c", "d")
    client.do(*sends("1"))
    b.crash("c")
    lose(b, "c", {"x": "a", "y": "d"})
    replace_store(b, "c", "a")
    (told,) = client.refusals
    assert told.startswith("topic:prices has its home on d") and told.endswith("this was published is unknown")
    client.do(*sends("2"))
    assert receipts(client) == ["2"]


def test_four_publishers_on_three_servers_and_five_readers_on_five_through_crashes_and_moves():
    for seed in range(6):
        rng = Random(seed)
        b = bus(topology({"x": "abc", "y": "cde"}), home="c")
        names, made = ["a", "a", "b", "d"], [0] * 4
        readers = {at: [] for at in "abcde"}
        connections = {}

        def connect(at, b=b, connections=connections, readers=readers):
            reader = connections[at] = b.connect(at, f"reader-{at}").subscribe("s", T, durable=at, credit=100)
            readers[at].append(reader)

        for at in "abcde":
            connect(at)
        clients = [b.connect(at) for at in names]
        for _ in range(40):
            who, dice = rng.randrange(4), rng.random()
            texts = [f"{who}.{made[who] + n}" for n in range(rng.choice((1, 1, 4)))]
            made[who] += len(texts)
            run = SendRun(Send(T, b"", shown=T), [text.encode() for text in texts], texts)
            clients[who].do(run if len(texts) > 1 else sends(texts[0])[0], pump=False)
            if dice < 0.5:
                rounds(b, rng.randrange(4))
            elif dice < 0.6:
                home = b.ask("c", "topic", destination=T)["created"]
                b.ask(home, "move_topic", destination=T, to=rng.choice("abcde"))
            elif dice < 0.7:
                down = rng.choice("abcde")
                b.crash(down)
                rounds(b, rng.randrange(4))
                b.boot(down)
                for other in {*("abc" if down in "ab" else "cde" if down in "de" else "abde")} - {down}:
                    b.join(down, other)
                connect(down)
                clients = [each if each.open else b.connect(each.server) for each in clients]
        b.pump()
        seen = [list(dict.fromkeys(text for each in readers[at] for text in each.texts)) for at in "abcde"]
        told = {text for client in b.clients.values() for text in receipts(client)}
        assert len(seen[0]) > 30 and all(each == seen[0] for each in seen) and told <= {*seen[0]}, seed
        for who in range(4):
            mine = [int(text.partition(".")[2]) for text in seen[0] if text[0] == str(who)]
            assert mine == sorted(mine), (seed, who)


def test_what_is_not_due_when_a_topic_is_deleted_becomes_dead_letters_over_a_restart_and_a_move():
    b = bus(dead_letter="queue:dead")
    client = b.connect("a")
    client.do(*(Send(T, str(n).encode(), delay=(1 + n) * 10**10) for n in range(300)), *sends("late"))
    b.ask("b", "move_topic", destination=T, to="c")
    b.pump()
    assert b.ask("c", "delete_topic", destination=T) == {"deleted": T, "delayed": 300}
    b.reboot("c")
    up(b, "c")
    b.pump()
    assert T not in [row["topic"] for row in b.ask("a", "topics")["topics"]]
    assert not [row for row in b.stores["c"].disk.items.values() if row.agent == "c/topic:prices"]
    reader = b.connect("b").subscribe("q", "queue:dead")
    assert reader.texts == [*map(str, range(300))]
    said = reader.got[0].message.annotations
    assert (said["dead-letter-reason"], said["dead-letter-from"]) == (f"{T} was deleted", T)
    assert said["original-message-id"].startswith("a#")


def test_a_topic_that_is_made_again_where_it_ends_lives_on_without_what_was_not_due():
    b = bus()
    client, reader = b.connect("a"), b.connect("c").subscribe("s", T)
    client.do(*(Send(T, str(n).encode(), delay=10**9) for n in range(250)))
    b.ask("b", "delete_topic", destination=T)
    client.do(*sends("new"))
    b.pump()
    b.later(3)
    assert reader.texts == ["new"]
