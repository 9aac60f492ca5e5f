"""Clients that may do this and not that: judged by their server, when they ask and when something changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mombroker.broker.access.globs import STEPS, Steps
from mombroker.broker.access.permission import Rights
from mombroker.broker.access.users import User
from mombroker.broker.commands import Disposition, Send, Transact
from mombroker.broker.session import judging, session
from mombroker.core import revision
from mombroker.core.events import Admin, ClientOpened
from tests.broker.bench import ALONE, THREE, Broker, Client
from tests.core.bus import topology

Q, T = "queue:q", "topic:t"


class Guarded(Broker):
    """Users, permissions, and clients of some name."""

    def connect(
        self, server: str = "a", client_id: str = "", writes: bool = True, strict: bool = True, user: str = "user"
    ) -> Client:
        client = Client(self, server, next(self.numbers), writes)
        self.clients[client.conn] = client
        self.servers[server].step(ClientOpened(client.conn, user, client_id, client.session, strict), self.now)
        return client

    def allow(self, user: str, match: str, *may: str, server: str = "a", **more: Any) -> Any:
        return self.ask(server, "set_permission", match=match, user=user, may=list(may), **more)


@pytest.fixture
def b() -> Guarded:
    """`user` may all; `ann` what the test says."""
    made = Guarded(THREE)
    made.allow("user", "*", "send", "receive", "create", "browse")
    return made


def test_without_a_permission_everybody_may_do_everything_and_nothing_is_judged():
    b = Guarded(ALONE)
    client = b.connect(user="ann").send(Q, "1").subscribe("s", Q)
    assert client.texts == ["1"] and not client.refusals
    assert b.servers["a"].clients.sessions[client.conn].guard is None


def test_who_may_not_is_refused_and_nothing_happens(b):
    ann = b.connect(user="ann", strict=False)
    ann.send(Q, "1").subscribe("s", Q).subscribe("t", T)
    assert ann.refusals == [
        "access refused: user 'ann' may not send to queue:q",
        "access refused: user 'ann' may not receive from queue:q",
        "access refused: user 'ann' may not receive from topic:t",
    ]  # fmt: skip
    assert "queue:q" not in b.servers["a"].names.known
    assert b.connect(user="", strict=False).send(T, "x").refusals == [
        "access refused: who has not logged in may not send to topic:t"
    ]


def test_a_queue_is_made_by_who_may_create_it(b):
    b.allow("ann", "queue:*", "send", "receive")
    ann = b.connect(user="ann", strict=False).send(Q, "1")
    assert ann.refusals == ["access refused: user 'ann' may not create queue:q"]
    b.connect().send(Q, "2")
    assert ann.forget().send(Q, "3").subscribe("s", Q).texts == ["2", "3"] and not ann.refusals


def test_roles_everybody_and_deny(b):
    b.ask("b", "set_user", user="ann", hash="h", new=True)
    b.ask("c", "set_roles", user="ann", grant=["clerk"])
    b.ask("a", "set_permission", match="queue:*", role="clerk", may=["send", "create"])
    ann = b.connect("c", user="ann", strict=False).send(Q, "1")
    assert not ann.refusals
    b.ask("b", "set_permission", match="queue:q", user="*", deny=["send"])
    assert ann.send(Q, "2").refusals and b.connect("b", strict=False).send(Q, "3").refusals
    assert not ann.forget().send("queue:r", "4").refusals
    b.ask("a", "set_roles", user="ann", revoke=["clerk"])
    assert ann.send("queue:r", "5").refusals
    assert b.ask("a", "users")["users"] == [{"user": "ann", "roles": [], "limits": {}}]


@pytest.mark.parametrize("strict", [True, False])
def test_a_right_that_is_taken_ends_the_subscriptions_that_need_it(b, strict):
    b.allow("ann", "topic:*", "receive", "send")
    b.allow("ann", "queue:q", "receive", "create")
    ann = b.connect("b", user="ann", strict=strict)
    ann.subscribe("t", T).subscribe("q", Q, ack="individual").subscribe("u", "topic:u")
    user = b.connect("c").send(Q, "1").send(T, "2")
    assert ann.texts == ["1", "2"]
    b.ask("c", "set_permission", match=T, user="ann", deny=["receive"])
    assert ann.refusals == ["access refused: user 'ann' may not receive from topic:t"]
    assert ann.scopes == [("connection", "t") if strict else ("subscription", "t")]
    user.send(T, "3").send("topic:u", "4")
    assert ann.texts == (["1", "2"] if strict else ["1", "2", "4"])
    b.ask("c", "delete_permission", match=Q, user="ann")
    taker = b.connect("a").subscribe("s", Q)
    assert taker.texts == ["1"]  # what was not settled is offered to others
    assert [reply.count for reply in taker.got] == [2 if strict else 1]


def test_what_was_settled_just_before_stays_settled(b):
    b.allow("ann", Q, "receive", "create")
    ann = b.connect("b", user="ann", strict=False).subscribe("s", Q, ack="individual")
    b.connect("a").send(Q, "1", "2")
    ann.do(Disposition(ann.tag("1")), pump=False)
    b.ask("b", "set_permission", match=Q, user="ann", deny=["receive"])
    assert b.connect("c").subscribe("s", Q).texts == ["2"]
    assert ann.forget().do(Transact([Disposition(2)])).refusals  # it has nothing any more


def test_a_durable_subscriber_whose_right_was_taken_gets_nothing_more(b):
    b.allow("ann", "topic:*", "receive")
    b.allow("ann", "sub:me:*", "receive", "create")
    ann = b.connect("b", "me", user="ann", strict=False).subscribe("s", T, durable="d")
    ann.close()
    user = b.connect("c").send(T, "1")
    b.ask("a", "set_permission", match="topic:*", user="ann", may=["send"])
    user.send(T, "2")
    again = b.connect("a", "me", user="ann", strict=False).subscribe("s", T, durable="d")
    assert again.refusals == ["access refused: user 'ann' may not receive from topic:t"] and not again.got


def test_a_durable_subscription_is_a_destination_of_its_own(b):
    """Or whoever may read the topic could take it over by its client id, or delete it."""
    b.connect("a", "app").subscribe("s", T, durable="d").close()
    b.allow("ann", "topic:*", "receive")
    ann = b.connect("b", "app", user="ann", strict=False).subscribe("s", T, durable="d")
    assert ann.refusals == ["access refused: user 'ann' may not receive from sub:app:d"]
    ann.forget().unsubscribe("", durable="d", delete=True)
    assert ann.refusals == ["access refused: user 'ann' may not create sub:app:d"]
    assert "sub:app:d" in b.servers["c"].names.known


def test_what_takes_too_long_to_judge_is_refused_and_what_takes_less_is_not():
    b = Guarded(ALONE)
    b.allow("mal", "topic:*", "receive", "send")
    for n in range(100):
        b.allow("*", f"topic:team{n}.private", deny=["receive"])
    mal = b.connect(user="mal", strict=False)
    mal.subscribe("s", *(f"topic:*.x{n}" for n in range(715))).subscribe("few", *(f"topic:*.x{n}" for n in range(100)))
    assert [each.partition(": ")[2] for each in mal.refusals] == [
        "these wildcards take too long to compare with the permissions: "
        "name fewer topics, or write them without wildcards at the beginning"
    ]  # fmt: skip
    assert mal.send("topic:a.x7", "1").texts == ["1"]


def test_all_subscriptions_of_a_user_are_judged_again_by_one_budget(b, monkeypatch):
    """What it does not suffice for ends; the same question is asked once, whoever of a user's sessions has it."""
    b.allow("ann", "topic:*", "receive")
    for n in range(20):
        b.allow("*", f"topic:team{n}.private", deny=["receive"])
    twice = [b.connect(user="ann", strict=False) for _ in range(2)]
    for ann in twice:
        ann.subscribe("s", "topic:*.a").subscribe("plain", T)
    other = b.connect(user="ann", strict=False).subscribe("s", "topic:*.b")
    cost = _cost(b, "topic:*.a")
    assert 20 < cost < STEPS / 100
    monkeypatch.setattr(judging, "AGAIN", 2 * cost - 1)
    b.allow("ann", "queue:x", "send")
    assert not any(ann.refusals for ann in twice)
    assert len(other.refusals) == 1 and "take too long to compare" in other.refusals[0]
    b.servers["a"].clients.check()


def test_what_is_judged_again_takes_turns_and_gets_nothing_before():
    """Each turn judges one at least; a session gets what has come meanwhile, in order, once all of it is judged."""
    b = Guarded(replace(ALONE, limits={"turn_work": 1}))
    b.allow("user", "*", "send", "receive", "create")
    b.allow("ann", "topic:*", "receive")
    b.allow("ann", Q, "receive", "create")
    anns = [b.connect(user="ann", strict=False) for _ in range(9)]
    for ann in anns:
        ann.subscribe("t", T).subscribe("u", "topic:u")
    anns[0].subscribe("q", Q, ack="individual")
    user, server = b.connect(), b.servers["a"]
    server.step(Admin(1, "set_permission", {"match": T, "user": "ann", "deny": ["receive"]}), b.now)
    waited, judging = [], server.clients.judging
    for number in range(20):
        server.turn(b.now)
        b.release("a", b.commit("a"))
        server.check()
        waited.append(len(judging.waiting))
        user.send(T, f"{number} secret", pump=False).send("topic:u", f"{number}", pump=False)
        user.send(Q, f"{number} of q", pump=False)
        b.release("a", b.commit("a"))
        waits = [ann for ann in anns if server.clients.sessions[ann.conn] in judging.waiting]
        assert not any(ann.got for ann in waits)
    b.pump()
    assert waited[-1] == 0 and len([each for each in waited if each]) >= 3
    assert [ann.scopes for ann in anns] == [[("subscription", "t")]] * 9
    assert [ann.texts for ann in anns[1:]] == [[str(number) for number in range(20)]] * 8
    both = [text for number in range(20) for text in (str(number), f"{number} of q")]
    assert sorted(anns[0].texts) == sorted(both)
    assert [text for text in anns[0].texts if "q" not in text] == both[::2]
    assert [text for text in anns[0].texts if "q" in text] == both[1::2]


def test_who_has_too_much_waiting_is_judged_before_others(monkeypatch):
    monkeypatch.setattr(session, "MAX_LATE_BYTES", 3_000)
    b = Guarded(replace(ALONE, limits={"turn_work": 1}))
    b.allow("user", "*", "send", "receive", "create")
    b.allow("ann", "topic:*", "receive")
    anns = [b.connect(user="ann", strict=False).subscribe("t", T) for _ in range(9)]
    anns[-1].subscribe("u", "topic:u").subscribe("v", "topic:v")
    user, server = b.connect(), b.servers["a"]
    server.step(Admin(1, "set_permission", {"match": T, "user": "ann", "deny": ["receive"]}), b.now)
    server.turn(b.now)
    assert len(server.clients.judging.waiting) >= 8
    user.send("topic:u", *(str(number) for number in range(7)), pump=False)
    server.turn(b.now)
    b.release("a", b.commit("a"))
    assert len(anns[-1].got) == 7 and server.clients.judging.waiting
    b.pump()
    assert not server.clients.judging.waiting and [len(ann.refusals) for ann in anns] == [1] * 9


def test_what_waits_for_a_client_that_goes_meanwhile_goes_back():
    b = Guarded(replace(ALONE, limits={"turn_work": 1}))
    b.allow("user", "*", "send", "receive", "create")
    b.allow("ann", "*", "receive", "create")
    ann = b.connect(user="ann", strict=False).subscribe("u", "topic:u").subscribe("q", Q, ack="individual")
    user, server = b.connect(), b.servers["a"]
    server.step(Admin(1, "set_permission", {"match": T, "user": "ann", "deny": ["receive"]}), b.now)
    server.turn(b.now)
    user.send(Q, "1", pump=False)
    assert server.clients.judging.waiting and not ann.got
    ann.close()
    assert not server.clients.judging.waiting
    assert b.connect().subscribe("q", Q).texts == ["1"]


@pytest.mark.interpreted
def test_what_a_role_was_given_is_looked_up_in_one_place_for_all_that_have_it(b, monkeypatch):
    """And what they ask for alike is asked once."""
    b.ask("a", "set_permission", match="topic:*", role="clerk", may=["receive"])
    access, asked = b.servers["a"].clients.access, []
    for number in range(20):
        access.users.known[f"u{number}"] = User("", ("clerk",))
        b.connect(user=f"u{number}", strict=False).subscribe("t", T)
    may = Rights.may
    monkeypatch.setattr(Rights, "may", lambda rights, *what: asked.append(rights.grants) or may(rights, *what))
    b.ask("a", "set_permission", match="topic:x", role="clerk", deny=["receive"])
    b.servers["a"].clients.check = lambda: None
    assert len({id(grants) for rights in asked for grants in rights}) == 1
    assert access.rights("u1") == access.rights("u2")


def _cost(b: Guarded, topics: str) -> int:
    steps = Steps()
    assert b.servers["a"].clients.access.rights("ann").may("receive", topics, steps)
    return STEPS - steps.left


def test_a_question_about_what_is_no_destination_is_refused(b):
    refused = b.ask("a", "may", user="ann", action="receive", destination="/topic/prices.a")
    assert refused == "'/topic/prices.a' is no destination: write 'topic:prices.a'"


def test_a_wildcard_needs_all_that_it_can_match_as_long_as_it_lasts(b):
    b.allow("ann", "topic:a.*", "receive")
    ann = b.connect("b", user="ann", strict=False).subscribe("all", "topic:>")
    assert ann.refusals == ["access refused: user 'ann' may not receive from topic:>"]
    ann.forget().subscribe("some", "topic:a.*").subscribe("one", "topic:a.b")
    assert not ann.refusals
    b.allow("*", "topic:a.secret", deny=["receive"])
    assert [sub for _, sub in ann.scopes] == ["some"]
    b.connect("c").send("topic:a.secret", "1").send("topic:a.b", "2")
    assert ann.texts == ["2"]


def test_temporary_queues_and_dead_letters_are_destinations_like_all_others(b):
    b.allow("ann", "queue:q", "receive", "create")
    owner = b.connect("a")
    mine = f"temp-queue:{owner.session}/r"
    owner.subscribe("r", mine)
    ann = b.connect("b", user="ann", strict=False).send(mine, "forged")
    assert ann.refusals == [f"access refused: user 'ann' may not send to {mine}"] and not owner.got
    ann.forget().subscribe("x", mine).subscribe("d", "queue:DLQ.q").subscribe("own", f"temp-queue:{ann.session}/r")
    assert ann.refusals[0].endswith("which alone may consume from it")
    assert ann.refusals[1:] == [
        "access refused: user 'ann' may not receive from queue:DLQ.q",
        f"access refused: user 'ann' may not create temp-queue:{ann.session}/r",
    ]
    b.allow("ann", "temp-queue:*", "create")
    ann.forget().subscribe("own", f"temp-queue:{ann.session}/r").send(f"temp-queue:{ann.session}/r", "1")
    assert ann.texts == ["1"] and not ann.refusals


def test_a_browser_browses_and_takes_nothing(b):
    b.connect("a").send(Q, "1")
    b.allow("ann", Q, "browse")
    ann = b.connect("b", user="ann", strict=False).subscribe("b", Q, browser=True).subscribe("s", Q)
    assert ann.texts == ["1"] and ann.refusals == ["access refused: user 'ann' may not receive from queue:q"]


def test_a_transaction_with_one_message_too_many_does_nothing(b):
    b.allow("ann", Q, "send", "create")
    ann = b.connect("a", user="ann", strict=False)
    ann.do(Transact([Send(Q, b"1"), Send(T, b"2")]))
    assert ann.refusals == ["access refused: user 'ann' may not send to topic:t"]
    assert b.connect("b").subscribe("s", Q).texts == []


def test_what_was_allowed_is_judged_again_after_a_change(b):
    b.allow("ann", Q, "send", "create")
    ann = b.connect("a", user="ann", strict=False).send(Q, "1").send(Q, "2")
    b.ask("c", "delete_permission", match=Q, user="ann")
    assert ann.send(Q, "3").refusals == ["access refused: user 'ann' may not send to queue:q"]


def test_the_last_permission_goes_only_if_the_bus_is_to_be_open():
    b = Guarded(THREE)
    b.allow("ann", Q, "send")
    assert "say that this is meant by --open" in b.ask("b", "delete_permission", match=Q, user="ann")
    assert b.ask("b", "permissions")["guarded"]
    assert "was given no permission for 'queue:x' at run time" in b.ask(
        "b", "delete_permission", match="queue:x", user="ann"
    )
    b.ask("b", "delete_permission", match=Q, user="ann", open=True)
    assert not any(server.clients.access.guarded for server in b.servers.values())
    assert b.connect("c", user="bob").send(Q, "1").subscribe("s", Q).texts == ["1"]


def test_who_deletes_a_permission_hears_that_the_file_gives_it_still():
    values = {"match": Q, "role": "clerk", "may": ["send"]}
    b = Guarded(replace(THREE, permissions=[values]))
    b.ask("a", "set_permission", match=Q, role="clerk", may=["send", "receive"])
    still = b.ask("b", "delete_permission", match=Q, role="clerk")
    assert still["permission"] == values and still["count"] == 1
    assert "until `mom topology apply` of a file without it" in b.ask("c", "delete_permission", match=Q, role="clerk")
    b.allow("ann", Q, "send")
    assert b.ask("b", "delete_permission", match=Q, user="ann")["permission"] is None


def test_permissions_and_users_are_there_after_a_restart(b):
    b.ask("a", "set_user", user="ann", hash="h", new=True)
    b.ask("a", "limit_user", user="ann", limits={"rate": 7})
    b.allow("ann", Q, "send")
    b.reboot("c")
    access = b.servers["c"].clients.access
    assert access.may("ann", "send", Q) and not access.may("ann", "receive", Q)
    assert access.users.hash("ann") == "h" and access.limits("ann").rate == 7


def test_a_user_that_is_deleted_or_has_another_passcode_is_sent_away_everywhere(b):
    b.ask("a", "set_user", user="ann", hash="h", new=True)
    one, other = b.connect("b", user="ann", strict=False), b.connect("c", user="bob")
    b.ask("c", "set_user", user="ann", hash="i")
    assert one.refusals == ["the passcode of 'ann' was changed: log in again"] and one.scopes == [("connection", "")]
    two = b.connect("a", user="ann")
    b.ask("c", "delete_user", user="ann")
    assert two.refusals == ["the user 'ann' was deleted"] and not other.refusals
    assert [server.clients.access.users.hash("ann") for server in b.servers.values()] == [None] * 3
    assert "there is no user 'ann'" in b.ask("b", "set_user", user="ann", hash="x")


def test_limits_of_a_user():
    b = Guarded(ALONE)
    b.ask("a", "set_user", user="ann", hash="h", new=True)
    assert "a user has no limit 'speed'" in b.ask("a", "limit_user", user="ann", limits={"speed": 1})
    b.ask("a", "limit_user", user="ann", limits={"connections": 2, "rate": 10, "pending_bytes": 5})
    first, second = b.connect(user="ann"), b.connect(user="ann")
    third = b.connect(user="ann")
    b.pump()
    assert third.refusals == ["user 'ann' has 2 connections to a, as many as it may"]
    reader = b.connect(user="bob").subscribe("s", Q)
    for number in range(30):
        (first if number % 2 else second).send(Q, str(number))
    assert len(reader.got) == 11  # a second's worth at once
    b.later(1)
    assert len(reader.got) == 21
    b.later(1)
    assert len(reader.got) == 30
    first.close()
    slow = b.connect(user="ann").subscribe("t", T, prefetch=1, ack="individual")
    b.connect(user="bob").send(T, "11", "22", "33", "44")
    assert b.servers["a"].clients.sessions[slow.conn].feed.bytes <= 5


def test_users_of_one_server_alone_become_users_of_the_bus():
    """As stores have them from before users were the same on all servers."""
    b = Guarded(THREE)
    for name, users in {
        "b": {"ann": "scrypt$17$8$1$salt$one", "bob": "h"},
        "c": {"ann": "scrypt$17$8$1$other$two"},
    }.items():
        b.crash(name)
        b.stores[name].disk.meta.update({f"user:{user}": hash for user, hash in users.items()})
    for name in "bc":
        b.boot(name)
        assert b.servers[name].clients.access.users.hash("ann")  # it counts before anybody has answered
    b.pump()
    found = [server.clients.access.users for server in b.servers.values()]
    assert {users.hash("ann") for users in found} == {"scrypt$17$8$1$salt$one"}
    assert {users.hash("bob") for users in found} == {"h"} and not any(users.former for users in found)
    assert all(store.meta()["user:bob"] == '["h", [], {}]' for store in b.stores.values())


def test_what_somebody_may_do_is_told(b):
    b.allow("ann", "queue:*", "send")
    told = b.ask("c", "may", user="ann", action="send", destination=Q)
    assert told == {"may": True, "guarded": True, "permissions": [{"user": "ann", "match": "queue:*", "may": ["send"]}]}
    assert b.ask("c", "may", user="ann", action="receive", destination="topic:>")["may"] is False
    assert "nothing that a permission is about" in b.ask("c", "may", user="ann", action="read", destination=Q)


def test_permissions_of_the_topology_count_from_the_first_moment_and_change_with_it():
    declared = [{"user": "user", "match": "queue:*", "may": ["send", "create", "receive"]}]
    b = Guarded(replace(topology({"x": "abc"}), permissions=declared))
    client = b.connect("b", strict=False).send(Q, "1").subscribe("s", Q).send(T, "2")
    assert client.texts == ["1"] and client.refusals == ["access refused: user 'user' may not send to topic:t"]
    assert "say that this is meant by --open" not in b.ask("a", "delete_permission", match="queue:*", user="user")
    new = revision.text_of(replace(b.topology, permissions=[{"user": "user", "match": "topic:*", "may": ["send"]}]))
    told = b.ask("c", "apply_topology", text=new, revision=1)
    assert told["changes"] == ["~ permissions of the file: user for queue:* -> user for topic:*"]
    assert client.scopes[-1] == ("subscription", "s")
    assert client.forget().send(T, "3").send(Q, "4").refusals == ["access refused: user 'user' may not send to queue:q"]
    b.reboot("b")
    assert not b.servers["b"].clients.access.may("user", "send", Q)
    wrong = new.replace('"may":["send"]', '"may":["sing"]')
    assert "nobody may 'sing'" in b.ask("a", "apply_topology", text=wrong, revision=2)


def test_a_text_of_a_topology_from_before_there_were_permissions_is_as_one_without():
    text = revision.text_of(ALONE)
    assert "permissions" not in text and revision.read(text).permissions == []
