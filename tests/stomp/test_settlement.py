"""MESSAGE, and the ACK or NACK that settles it."""

import pytest

from mombroker.broker.commands import REJECTED, RELEASED, REQUEUED, BrowseEnd, Delivery, Disposition
from mombroker.broker.properties import pack
from mombroker.stomp.headers import V10, V11, V12
from tests.stomp.peer import MS, NOW, VERSIONS, Client, client, message


@pytest.mark.parametrize("version", VERSIONS)
def test_S15_what_a_message_tells(version):
    mine = client(version)
    mine.send("SUBSCRIBE", destination="/topic/a.>", id="s:1", ack="client")
    (frame,) = mine.say(
        Delivery(
            "s:1", 7, "s1#99", message(
                "/topic/a.b", b"bo\0dy", properties=pack({"color": "red", "x": "1:2"}), priority=8, timestamp=NOW,
                persistent=False, kind="bytes", annotations={"dead-letter-reason": "a:b"},
            ), count=3, expires=5 * MS, ack="client",
        )
    )  # fmt: skip
    expected = {
        "destination": "/topic/a.b", "message-id": "s1#99/5f-7.7", "subscription": "s:1", "timestamp": str(NOW // MS),
        "JMSXDeliveryCount": "3", "redelivered": "true", "priority": "8", "expires": "5", "persistent": "false",
        "dead-letter-reason": "a:b", "content-length": "5", "color": "red", "x": "1:2",
    }  # fmt: skip
    assert frame.headers == ({**expected, "ack": "s1#99/5f-7.7"} if version == V12 else expected)
    assert (frame.command, frame.body) == ("MESSAGE", b"bo\0dy")


def test_S15_a_plain_message_tells_little(any_version):
    any_version.send("SUBSCRIBE", destination="a", id="1")
    (frame,) = any_version.say(Delivery("1", 1, "s1#1", message("a", kind="text")))
    assert set(frame.headers) == {"destination", "message-id", "subscription", "timestamp", "JMSXDeliveryCount"}


def test_S15_two_subscriptions_get_different_ids_for_one_message():
    mine = client()
    for name in "ab":
        mine.send("SUBSCRIBE", destination="/topic/a", id=name, ack="client")
    ids = {mine.give(tag, sub, id="s1#1").headers["message-id"] for tag, sub in ((1, "a"), (2, "b"))}
    assert len(ids) == 2


@pytest.mark.parametrize("kind, body, length", [
    ("text", b"x", None), ("text", b"a\0b", "3"), ("bytes", b"x", "1"), ("bytes", b"", "0"), ("map", b"x", "1"),
])  # fmt: skip
def test_text_has_no_length_unless_it_must(kind, body, length):
    frame = client().give(1, kind=kind, body=body)
    assert (frame.headers.get("content-length"), frame.body) == (length, body)
    told = kind == "map" or (kind == "text" and length)
    assert frame.headers.get("amq-msg-type") == (kind if told else None)


def test_S17_a_missing_or_unknown_id_is_a_fault():
    key = {V10: "message-id", V11: "message-id", V12: "id"}
    for version in VERSIONS:
        for command in ("ACK", "NACK"):
            client(version).fails(command, "needs", subscription="a")
            for wrong in (
                "s1#101/5f-7.2",
                "s1#102/5f-7.1",
                "s1#101/5f-8.1",
                "s1#101/1",
                "1",
                "/5f-7.1",
                ".1",
                "s1#101/5f-7.",
                "s1#101/5f-7.x",
                "s1#101/5f-7.٣",
                "",
                "s1#101/5f-7." + "9" * 30,
                "s1#101/5f-7." + "9" * 5_000,
            ):
                mine = client(version)
                mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
                assert mine.give(1).headers["message-id"] == "s1#101/5f-7.1"
                headers = {key[version]: wrong, "subscription": "a"}
                mine.fails(command, "no delivery of this connection, or is settled already", **headers)


def test_S17_in_1_1_the_subscription_must_be_named_and_right():
    mine = client(V11)
    frame = mine.give(1)
    mine.fails("ACK", "ACK needs a subscription", message_id=frame.headers["message-id"])
    mine = client(V11)
    mine.give(1)
    words = "subscription 'a' has it, not 'b'"
    mine.fails("ACK", words, message_id=frame.headers["message-id"], subscription="b")


def test_S17_in_1_0_and_1_2_a_stray_subscription_is_ignored():
    for version, key in ((V10, "message-id"), (V12, "id")):
        mine = client(version)
        mine.give(7)
        assert mine.send("ACK", **{key: "s1#107/5f-7.7"}, subscription="of somebody") == [Disposition(7)]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("mode", ["client", "individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_S17_an_id_of_another_connection_settles_nothing(version, mode, command):
    """The message that it named comes again under the same number, behind another one."""
    former, mine = client(version), Client(id="s1/5f-8").connect(version)
    old = [former.give(tag, ack=mode) for tag in (1, 2)][1]
    mine.give(1, ack=mode, id="s1#999")
    mine.give(2, ack=mode)
    headers = {"id": old.headers.get("ack", ""), "message-id": old.headers["message-id"], "subscription": "a"}
    mine.fails(command, "is no delivery of this connection", **headers)
    assert sorted(mine.session.unsettled.given) == [1, 2]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("mode", ["client", "individual"])
def test_S17_what_is_settled_cannot_be_settled_again(any_version, command, mode):
    frame = any_version.give(1, ack=mode)
    any_version.settles(command, frame)
    headers = {"id": frame.headers.get("ack", ""), "message-id": frame.headers["message-id"], "subscription": "a"}
    any_version.fails(command, "settled already", **headers)


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_S18_client_settles_all_earlier_ones_of_its_subscription(any_version, command):
    mine = any_version
    for tag, sub in enumerate("ababa"):
        mine.give(tag, sub)
    mine.settles(command, mine.give(5, "a", "individual"))
    third = mine.give(6, "a")
    mine.give(7, "a")
    mine.settles(command, third)
    assert sorted(mine.session.unsettled.given) == [1, 3, 7]


def test_S18_client_individual_settles_one(any_version):
    mine = any_version
    frames = [mine.give(tag, ack="individual") for tag in range(4)]
    assert mine.settles("ACK", frames[2]) == [Disposition(2)]
    assert mine.settles("NACK", frames[0], requeue="false") == [Disposition(0, REJECTED)]
    assert mine.settles("NACK", frames[1], requeue="true") == [Disposition(1, REQUEUED)]
    assert sorted(mine.session.unsettled.given) == [3]


def test_S18_a_nack_may_say_that_nobody_has_seen_the_message():
    mine = client()
    assert mine.settles("NACK", mine.give(1), unseen="true") == [Disposition(1, RELEASED)]
    mine.fails("NACK", "unseen must be true or false", id=mine.give(2).headers["ack"], unseen="maybe")


def test_S18_requeue_is_a_flag():
    mine = client()
    frame = mine.give(1)
    mine.fails("NACK", "requeue must be true or false", id=frame.headers["ack"], requeue="maybe")


def test_S19_what_was_delivered_can_be_settled_after_unsubscribe(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
    frame = mine.give(1)
    mine.send("UNSUBSCRIBE", id="a")
    late = mine.give(2)  # it was on its way
    assert mine.settles("ACK", frame) == [Disposition(1)]
    assert mine.settles("ACK", late) == [Disposition(2)]


def test_S20_the_mode_at_the_delivery_counts(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client-individual")
    first, second = mine.give(1, ack="individual"), mine.give(2, ack="individual")
    mine.send("UNSUBSCRIBE", id="a")
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
    third, fourth = mine.give(3, ack="client"), mine.give(4, ack="client")
    mine.settles("ACK", second)
    mine.settles("ACK", fourth)
    assert sorted(mine.session.unsettled.given) == [1]
    mine.settles("ACK", first)
    assert third.headers["message-id"] == "s1#103/5f-7.3"


def test_what_a_session_keeps_of_deliveries_is_what_is_unsettled():
    """A million messages later nothing has grown."""
    for version in VERSIONS:
        mine = client(version)
        mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
        for tag in range(2_000):
            mine.give(tag, ack="auto")
        for tag in range(2_000, 4_000, 10):
            frames = [
                mine.give(tag + each, "ab"[each % 2], ("client", "individual")[each % 3 == 0]) for each in range(10)
            ]
            individual = [frame for each, frame in enumerate(frames) if each % 3 == 0]
            for frame in [*individual, *[frame for each, frame in enumerate(frames) if each in (7, 8)]]:
                mine.settles("ACK", frame)
        assert (mine.session.unsettled.given, mine.session.unsettled.lines) == ({}, {})
        assert mine.session.subs.keys() == {"a"}


def test_S27_the_last_auto_delivery_in_the_output_is_known():
    mine = client()
    assert mine.session.written == 0
    mine.give(3, ack="auto")
    mine.give(4, ack="client")
    assert mine.session.written == 3


def test_a_browser_is_told_the_end():
    mine = client()
    mine.send("SUBSCRIBE", destination="/queue/a", id="b", browser="true")
    (frame,) = mine.say(BrowseEnd("b"))
    assert frame.headers == {"destination": "/queue/a", "message-id": "", "subscription": "b", "browser": "end"}
    mine.send("UNSUBSCRIBE", id="b")
    assert mine.say(BrowseEnd("b"))[0].headers["browser"] == "end"
