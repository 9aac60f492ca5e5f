"""A client on a raw socket and a whole server."""

import socket

import pytest

from mombroker.broker import selectors
from mombroker.core.errors import MomError
from mombroker.gateway import users
from mombroker.gateway.users import hashed
from mombroker.stomp.frames import encode


def bodies(frames):
    return [frame.body for frame in frames]


def test_a_message_waits_in_its_queue_through_a_crash_and_is_settled_once(town):
    t = town()
    t.up()
    wire = t.wire()
    assert wire.connected.headers["server"].startswith("mombroker/")
    for body in (b"one", b"two"):
        assert wire.ask("SEND", body, destination="/queue/a", color="red") == []
    t.crash("a")
    t.up("a")
    wire = t.wire()
    wire.send("SUBSCRIBE", destination="/queue/a", id="1", ack="client-individual")
    first, second = wire.read(), wire.read()
    assert bodies([first, second]) == [b"one", b"two"] and first.headers["color"] == "red"
    assert wire.ask("ACK", id=first.headers["ack"]) == []
    assert wire.ask("DISCONNECT") == []
    wire = t.wire()
    wire.send("SUBSCRIBE", destination="/queue/a", id="1")
    frame = wire.read()
    assert (frame.body, frame.headers["redelivered"], frame.headers["JMSXDeliveryCount"]) == (b"two", "true", "2")


def test_S27_auto_ack_settles_what_was_written(town):
    t = town()
    t.up()
    wire = t.wire()
    wire.ask("SEND", b"one", destination="/queue/a")
    wire.send("SUBSCRIBE", destination="/queue/a", id="1")
    assert wire.read().body == b"one"
    t.until(lambda: not t.ask("a", "connections")["connections"][0]["waiting_bytes"])
    t.pass_time(20)
    wire.socket.close()
    t.until(lambda: not t.node("a").gateway.clients)
    wire = t.wire()
    wire.ask("SEND", b"two", destination="/queue/a")
    wire.send("SUBSCRIBE", destination="/queue/a", id="1")
    assert wire.read().body == b"two"


def test_a_topic_and_a_selector(town):
    t = town()
    t.up()
    wire, other = t.wire(), t.wire()
    assert other.ask("SUBSCRIBE", destination="/topic/a.*", id="s", selector="color = 'red' AND JMSPriority > 4") == []
    for color, priority in (("red", "9"), ("blue", "9"), ("red", "1"), ("red", "5")):
        wire.ask("SEND", priority.encode(), destination="/topic/a.b", color=color, priority=priority)
    frames = [other.read(), other.read()]
    assert bodies(frames) == [b"9", b"5"]
    assert {frame.headers["destination"] for frame in frames} == {"/topic/a.b"}


def test_a_transaction_and_a_fault(town):
    t = town()
    t.up()
    wire = t.wire()
    wire.send("SUBSCRIBE", destination="/queue/a", id="1")
    wire.ask("BEGIN", transaction="t")
    assert wire.ask("SEND", b"one", destination="/queue/a", transaction="t") == []
    wire.send("SEND", b"two", destination="/queue/a")
    assert wire.read().body == b"two"
    wire.send("COMMIT", transaction="t")
    assert wire.read().body == b"one"
    (error,) = wire.ask("COMMIT", transaction="t")
    assert (error.command, error.headers["receipt-id"]) == ("ERROR", "r")
    assert wire.read() is None


def test_a_reply_reaches_the_temporary_queue_that_its_request_names(town):
    t = town()
    t.up()
    asker, answerer = t.wire(), t.wire()
    answerer.ask("SUBSCRIBE", destination="/queue/work", id="1")
    asker.ask("SEND", b"question", destination="/queue/work", reply_to="/temp-queue/x")
    question = answerer.read()
    answerer.ask("SEND", b"answer", destination=question.headers["reply-to"])
    answer = asker.read()
    assert (answer.body, answer.headers["subscription"]) == (b"answer", "/temp-queue/x")


@pytest.fixture
def cheap(monkeypatch):
    """A check of a passcode takes no time."""
    monkeypatch.setattr(users, "COST", 5)
    monkeypatch.setattr(users.hashed, "__defaults__", (5,))


def test_users_are_added_changed_and_deleted_while_the_server_runs(town, cheap):
    t = town(anonymous=False)
    t.up()

    def login(passcode):
        return t.wire(login="ann", passcode=passcode).connected.command

    assert login("a") == "ERROR"
    assert t.ask("a", "set_user", user="ann", hash=hashed("a", 4), new=True) == {"user": "ann"}
    assert login("a") == "CONNECTED"
    t.ask("a", "set_user", user="ann", hash=hashed("b", 4))
    assert (login("a"), login("b")) == ("ERROR", "CONNECTED")
    assert t.ask("a", "users") == {"users": [{"user": "ann", "roles": [], "limits": {}}]}
    t.down("a")
    t.up("a")
    assert (login("a"), login("b")) == ("ERROR", "CONNECTED")
    assert t.ask("a", "delete_user", user="ann") == {"user": "ann"}
    assert login("b") == "ERROR"
    assert t.ask("a", "users") == {"users": []}


def test_a_message_says_the_login_of_its_sender_and_nothing_else(town, cheap):
    t = town(anonymous=False)
    t.up()
    for user in ("ann", "a:b"):
        t.ask("a", "set_user", user=user, hash=hashed("x", 5), new=True)
    ann, other = t.wire(login="ann", passcode="x"), t.wire(login="a:b", passcode="x")
    ann.ask("SUBSCRIBE", destination="/queue/a", id="1")
    for wire, asked, said in ((ann, "true", "ann"), (other, "true", "a:b"), (other, "false", None)):
        wire.ask("SEND", destination="/queue/a", stamp_user=asked, JMSXUserID="root", login="root")
        headers = ann.read().headers
        assert headers.get("JMSXUserID") == said and "stamp-user" not in headers


def test_a_message_of_a_client_without_a_user_says_no_login(town):
    t = town()
    t.up()
    wire = t.wire(login="root", passcode="x")
    wire.ask("SUBSCRIBE", destination="/queue/a", id="1")
    wire.send("SEND", destination="/queue/a", stamp_user="true", JMSXUserID="root")
    assert "JMSXUserID" not in wire.read().headers


def test_the_connections_of_a_user_end_with_its_passcode_but_not_when_its_hash_is_renewed(town, cheap):
    t = town(anonymous=False)
    t.up()
    t.ask("a", "set_user", user="ann", hash=hashed("a", 4), new=True)
    t.ask("a", "set_user", user="bob", hash=hashed("b", 5), new=True)
    bob, ann = t.wire(login="bob", passcode="b"), t.wire(login="ann", passcode="a")
    known = t.node("a").access.users.known
    t.until(lambda: known["ann"].hash.startswith("scrypt$5$"))
    t.down("a")
    t.up("a")
    assert t.node("a").access.users.known == known
    bob, ann = t.wire(login="bob", passcode="b"), t.wire(login="ann", passcode="a")
    t.ask("a", "set_user", user="ann", hash=hashed("b", 5))
    assert ann.read().headers["message"] == "the passcode of 'ann' was changed: log in again"
    t.ask("a", "delete_user", user="bob")
    assert bob.read().headers["message"] == "the user 'bob' was deleted"


def test_a_renewed_hash_never_takes_the_place_of_a_passcode_that_was_changed_meanwhile(town):
    t = town(anonymous=False)
    t.up()
    old, new = hashed("a", 4), hashed("b", 4)
    t.ask("a", "set_user", user="ann", hash=old, new=True)
    t.ask("a", "set_user", user="ann", hash=new)
    t.node("a")._renew("ann", old, hashed("a", 5))
    t.pass_time(20)
    assert t.node("a").access.users.hash("ann") == new


def test_a_thousand_wrong_logins_of_one_address_do_not_hold_up_another(town, monkeypatch):
    """What they cost is counted in checks of passcodes: each takes a third of a second of a processor."""
    checks = []
    right = users.matches
    monkeypatch.setattr(users, "matches", lambda stored, code: checks.append(code) or right(stored, code))
    t = town(anonymous=False)
    t.up()
    t.ask("a", "set_user", user="ann", hash=hashed("a"), new=True)
    for at in range(1_000):
        with socket.create_connection(("127.0.0.1", t.stomp)) as made:
            made.sendall(encode("CONNECT", [("accept-version", "1.2"), ("login", "ann"), ("passcode", f"x{at}")]))
        t.reactor.iterate(0)
    before = len(checks)
    assert t.wire(host="127.0.0.2", login="ann", passcode="a").connected.command == "CONNECTED"
    assert len(checks) - before <= 10 and len(checks) < 100
    t.until(lambda: len(t.node("a").gateway.clients) == 1)
    assert len(t.lines["a"]) < 10


def test_users_that_cannot_be_set(town):
    t = town()
    t.up()
    t.ask("a", "set_user", user="ann", hash="x", new=True)
    for wrong, words in (
        ({"user": "ann", "new": True}, "there is a user 'ann' already"),
        ({"user": "bob"}, "there is no user 'bob'; `mom user add`"),
        ({"user": " bob", "new": True}, "a user's name has"),
        ({"user": "x" * 101, "new": True}, "a user's name has"),
    ):
        with pytest.raises(MomError, match=words):
            t.ask("a", "set_user", hash="x", **wrong)
    with pytest.raises(MomError, match="there is no user 'bob'"):
        t.ask("a", "delete_user", user="bob")


def test_the_operator_sees_the_connections(town):
    t = town()
    t.up()
    t.wire(client_id="c")
    stomp = t.ask("a", "status")["stomp"]
    assert (stomp["clients"], stomp["dropped"]) == (1, 0)
    (shown,) = t.ask("a", "connections")["connections"]
    assert (shown["client_id"], shown["host"], shown["tls"]) == ("c", "127.0.0.1", False)
    assert (shown["pending"], shown["dropped"]) == (0, 0)


def test_what_a_listener_may_be_set_to(town):
    t = town(hide_version=True, type_headers=True)
    t.up()
    wire = t.wire()
    assert "server" not in wire.connected.headers
    wire.ask("SUBSCRIBE", destination="/queue/a", id="1", selector="size > 5 AND new")
    for size in ("4", "6"):
        wire.send("SEND", size.encode(), destination="/queue/a", size=size, new="true")
    assert wire.read().body == b"6"


def test_a_message_that_is_too_large_is_refused_before_it_comes(town):
    t = town()
    t.up()
    wire = t.wire().send("SEND", destination="/queue/a", content_length=str(1 << 30))
    assert "a body is over" in wire.read().headers["message"]


def test_a_stop_is_told_to_the_clients(town):
    t = town()
    t.up()
    wire = t.wire()
    wire.ask("SEND", destination="/queue/a")
    stopped = t.hosts["a"].stop()
    error = wire.read()
    assert (error.command, error.headers["message"]) == ("ERROR", "server a is stopping: connect again")
    wire.socket.close()
    t.until(lambda: stopped.called)
    del t.hosts["a"]


def test_a_port_that_is_taken_keeps_the_server_from_starting(town):
    t = town()
    with socket.create_server(("127.0.0.1", t.stomp)), pytest.raises(MomError, match="cannot listen on .* for STOMP"):
        t.up()
    t.up()


def test_the_parsers_of_selectors_are_made_while_clients_are_served(town):
    selectors._parser.cache_clear()
    t = town().up()
    t.until(lambda: selectors._parser.cache_info().currsize == 4)
