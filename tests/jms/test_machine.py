"""What is asked, what is answered, and what a new connection is told; frames go in and come out by hand."""

import pytest

from mombroker.jms.destinations import TemporaryQueue
from mombroker.jms.errors import ConnectionLost, LoginRefused, Refused
from mombroker.jms.machine import AGAIN, DONE, FAIL, Machine, Part, Settings, Subscription
from mombroker.stomp.frames import CLIENT, FrameError, Limits, Parser, encode
from mombroker.stomp.headers import V12


def frames(data):
    parser = Parser(Limits(), V12, CLIENT)
    parser.feed(data)
    found = []
    while (frame := parser.next()) is not None:
        found.append(frame)
    return found


class Server:
    """The other side. `said` takes what the machine has put out."""

    def __init__(self, **settings):
        self.machine = Machine(Settings(**settings))
        self.events = []

    def said(self):
        data = b"".join(self.machine.output)
        self.machine.output.clear()
        return frames(data)

    def open(self, session="s1", **headers):
        self.machine.opened("here", "ann", "secret")
        (hello,) = self.said()
        self.say("CONNECTED", version="1.2", session=session, **{"heart_beat": "10000,5000", **headers})
        return hello

    def say(self, command, body=b"", **headers):
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.machine.receive(encode(command, pairs, body))
        self.machine.check()

    def send(self, body, loss=AGAIN):
        return self.machine.ask([Part("SEND", {"destination": "/queue/a"}, body)], loss)

    def subscribe(self, id="s", **headers):
        note = self.events.append
        sub = Subscription(
            id,
            {"id": id, "destination": "/queue/a", **headers},
            lambda frame: note(frame.body),
            lambda: note("lost"),
            lambda error: note(str(error)),
        )
        return sub, self.machine.subscribe(sub)

    def lose(self):
        self.machine.lost("cut")
        self.machine.check()


def up(**settings):
    server = Server(**settings)
    server.open()
    return server


def told(found):
    return [(frame.command, frame.headers.get("id", ""), frame.body) for frame in found]


def test_it_logs_in():
    server = Server(client_id="c", beat=3_000)
    hello = server.open(heart_beat="10000,5000")
    assert hello.command == "CONNECT"
    wanted = {"accept-version": "1.2", "host": "here", "login": "ann", "passcode": "secret", "client-id": "c"}
    assert hello.headers == {**wanted, "heart-beat": "3000,3000"}
    assert (server.machine.state, server.machine.session, server.machine.beats) == ("up", "s1", (5_000, 10_000))


def test_without_beats_there_are_none():
    assert up(beat=0).machine.beats == (0, 0)
    server = Server()
    server.open(heart_beat="0,0")
    assert server.machine.beats == (0, 0)


def test_a_login_that_is_refused_is_the_end():
    server = Server()
    call = server.send(b"x")
    server.machine.opened("here", "", "")
    server.say("ERROR", message="access refused for user ann")
    assert server.machine.state == "over" and isinstance(call.error, LoginRefused)
    assert isinstance(server.send(b"y").error, LoginRefused)


def test_a_call_is_done_when_its_last_part_is_answered():
    server = up()
    call = server.machine.ask([Part("BEGIN", {"transaction": "t"}), Part("COMMIT", {"transaction": "t"})], FAIL)
    begin, commit = server.said()
    assert "receipt" not in begin.headers and not call.done
    server.say("RECEIPT", receipt_id=commit.headers["receipt"], unconfirmed="b")
    assert (call.done, call.error, call.unconfirmed) == (True, None, "b") and not server.machine.calls


def test_what_is_asked_without_a_connection_waits_for_one():
    server = Server()
    server.send(b"1")
    sub, _ = server.subscribe()
    server.send(b"2", FAIL)
    server.open()
    assert told(server.said()) == [("SUBSCRIBE", "s", b""), ("SEND", "", b"1"), ("SEND", "", b"2")]


def test_after_a_loss_unanswered_calls_are_sent_again_in_order_or_fail():
    server = up()
    sub, subscribed = server.subscribe()
    calls = [server.send(b"1"), server.send(b"2"), server.send(b"3", FAIL), server.send(b"4", DONE), server.send(b"5")]
    sent = server.said()
    server.say("RECEIPT", receipt_id=sent[0].headers["receipt"])
    server.say("RECEIPT", receipt_id=sent[1].headers["receipt"])
    server.lose()
    assert [call.done for call in calls] == [True, False, True, True, False]
    assert isinstance(calls[2].error, ConnectionLost) and calls[3].error is None
    assert server.events == ["lost"] and subscribed.done
    server.open()
    again = server.said()
    assert told(again) == [("SUBSCRIBE", "s", b""), ("SEND", "", b"2"), ("SEND", "", b"5")]
    assert [frame.headers["receipt"] for frame in again[1:]] == [calls[1].receipt, calls[4].receipt]


def test_what_means_one_connection_is_not_said_on_another():
    server = up()
    epoch = server.machine.epoch
    server.machine.tell("ACK", {"id": "1"}, epoch)
    assert told(server.said()) == [("ACK", "1", b"")]
    server.lose()
    server.machine.tell("ACK", {"id": "2"}, epoch)
    server.open()
    server.machine.tell("ACK", {"id": "3"}, epoch)
    assert server.said() == []


def test_messages_go_to_their_subscription_and_those_of_none_go_back():
    server = up()
    sub, _ = server.subscribe()
    server.say("MESSAGE", b"one", subscription="s", message_id="m/1", destination="/queue/a", ack="m/1")
    server.machine.unsubscribe(sub)
    server.said()
    server.say("MESSAGE", b"two", subscription="s", message_id="m/2", destination="/queue/a", ack="m/2")
    server.say("MESSAGE", b"three", subscription="s", message_id="m/3", destination="/queue/a")
    (nack,) = server.said()
    assert (nack.command, nack.headers) == ("NACK", {"id": "m/2", "unseen": "true"})
    assert server.events == [b"one"]


def test_a_subscription_that_ended_is_not_made_again():
    server = up()
    sub, _ = server.subscribe()
    call = server.machine.unsubscribe(sub)
    server.lose()
    assert call.done and call.error is None
    other, subscribed = server.subscribe("t")
    assert server.machine.unsubscribe(other) is None and subscribed.done
    assert server.machine.unsubscribe(other) is None
    server.open()
    assert server.said() == []


def test_a_temporary_queue_is_made_on_each_connection_before_all_else_and_named_after_it():
    server = up()
    queue = TemporaryQueue("t1", server.machine)
    server.machine.make_temporary(queue)
    server.said()
    server.machine.ask([Part("SEND", {"destination": "/queue/a", "reply-to": queue})], AGAIN)
    (sent,) = server.said()
    assert sent.headers["reply-to"] == "/remote-temp-queue/s1/t1"
    server.lose()
    server.open("s2")
    made, _, sent = server.said()
    assert (made.command, made.headers["destination"]) == ("SUBSCRIBE", "/temp-queue/t1")
    assert sent.headers["reply-to"] == "/remote-temp-queue/s2/t1"


def test_an_error_is_that_of_its_cause_and_all_others_are_asked_again():
    server = up()
    calls = [server.send(b"1"), server.send(b"2")]
    server.said()
    server.say("ERROR", message="full", receipt_id=calls[0].receipt)
    assert isinstance(calls[0].error, Refused) and str(calls[0].error) == "full"
    assert server.machine.farewell == "full" and server.machine.faults == []
    server.lose()
    server.open()
    assert told(server.said()) == [("SEND", "", b"2")]


def test_an_error_without_a_cause_is_told_and_in_the_end_it_is_that_of_the_first_call():
    server = up()
    first, second = server.send(b"1"), server.send(b"2")
    for _ in range(2):
        server.say("ERROR", message="what?")
        server.lose()
        server.open()
    assert [str(fault) for fault in server.machine.faults] == ["what?", "what?"]
    server.say("ERROR", message="what?")
    assert isinstance(first.error, Refused) and not second.done


def test_an_error_of_what_nobody_waits_for_is_told():
    server = up()
    call = server.send(b"1")
    call.watched = False
    server.say("ERROR", message="full", receipt_id=call.receipt)
    assert [str(fault) for fault in server.machine.faults] == ["full"]


def test_a_subscription_that_cannot_be_made_again_ends():
    server = up()
    sub, call = server.subscribe()
    server.say("RECEIPT", receipt_id=call.receipt)
    server.lose()
    server.open()
    server.said()
    server.say("ERROR", message="no more", receipt_id=sub.call.receipt)
    assert server.events == ["lost", "no more"] and server.machine.subs == {}
    assert [str(fault) for fault in server.machine.faults] == ["no more"]


def test_a_subscription_that_is_taken_away_ends_and_is_not_made_again():
    server = up()
    _, call = server.subscribe()
    server.say("RECEIPT", receipt_id=call.receipt)
    server.said()
    server.say("ERROR", message="another took it over", subscription="s")
    server.lose()
    server.open()
    assert server.events == ["another took it over"] and server.said() == []


def test_it_leaves_with_a_last_answer():
    server = up()
    server.subscribe()
    call = server.machine.leave()
    server.said()
    server.say("RECEIPT", receipt_id=call.receipt)
    server.lose()
    assert server.machine.state == "over" and server.events[-1] == "closed" and server.machine.faults == []
    assert isinstance(server.send(b"x").error, ConnectionLost)


def test_to_leave_without_a_connection_is_to_give_up():
    server = Server()
    call, left = server.send(b"x"), server.machine.leave()
    assert left.done and isinstance(call.error, ConnectionLost) and server.machine.state == "over"


def test_to_give_up_fails_all_and_is_told():
    server = Server()
    server.subscribe()
    call = server.send(b"x")
    server.machine.give_up(ConnectionLost("no server"))
    assert str(call.error) == "no server" and server.events == ["no server"]
    assert [str(fault) for fault in server.machine.faults] == ["no server"]
    server.machine.check()


def test_what_is_no_stomp_is_a_frame_error():
    for data in (b"HTTP/1.1 400\r\n\r\n", encode("CONNECTED", [("version", "1.2"), ("heart-beat", "x")])):
        server = Server()
        server.machine.opened("here", "", "")
        with pytest.raises(FrameError):
            server.machine.receive(data)
