"""SENDs that come together and are alike become one command, and mean the same as one by one."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mombroker.broker.commands import Delivery, Receipts, Send, SendRound, SendRun, Sync
from mombroker.broker.message import Alike, ClientMessage
from mombroker.broker.properties import pack
from mombroker.broker.queue.item import QueuedMessage
from mombroker.stomp.frames import encode
from mombroker.stomp.session import MAX_RUN
from tests.stomp.peer import Client, client, singles

HEADS = st.sampled_from(
    [
        [("destination", "/queue/a")],
        [("destination", "/queue/a"), ("color", "red")],
        [("destination", "/queue/b"), ("persistent", "true")],
        [("destination", "/queue/a"), ("expires", "0"), ("AMQ_SCHEDULED_DELAY", "5")],
    ]
)
BODIES = st.sampled_from([b"", b"x", b"hello", b"a\nb\n\nreceipt:1\n\n", b"SEND\n", b"with\0nul\0", b"\0"])
RECEIPTS = st.sampled_from(["1", "2", "a-b", "with space", "co:lon", "é", "x" * 199, "y" * 300])
FRAMES = st.tuples(HEADS, BODIES, RECEIPTS | st.none(), st.booleans(), st.booleans())


def written(frame):
    head, body, receipt, first, counted = frame
    told = [("receipt", receipt)] if receipt is not None else []
    counted = [("content-length", str(len(body)))] if counted or b"\0" in body else []
    return encode("SEND", (told + head if first else head + told) + counted, body)


@given(
    st.lists(st.tuples(FRAMES, st.integers(1, 6)), min_size=1, max_size=8), st.lists(st.integers(1, 90), max_size=20)
)
@settings(max_examples=150)
def test_however_they_come_they_mean_the_same(rows, cuts):
    data = b"".join(written(frame) for frame, times in rows for _ in range(times)) + b"ACK\nid:x\n\n\0"
    told = []
    for sizes in (cuts, [len(data)], [1] * len(data)):
        mine, at = client(), 0
        for size in [*sizes, len(data)]:
            mine.raw(data[at : at + size])
            at += size
        told.append(singles(mine.take()))
    assert told[0] == told[1] == told[2] and len(told[0]) == sum(times for _, times in rows) + 1


PLACES = ["/queue/a", "/queue/b", "/topic/c", "d", "/queue/a b", "/queue/c:d", "/queue/é", "/temp-queue/t", "/agent/x"]
MORE = st.sampled_from(
    [[], [("color", "red")], [("priority", "7")], [("destination-type", "ANYCAST")], [("reply-to", "r")]]
)
TO = st.tuples(st.sampled_from(PLACES), MORE, RECEIPTS | st.none(), st.sampled_from([b"", b"body"]), st.integers(0, 2))


@given(st.lists(st.tuples(TO, st.integers(1, 3)), min_size=1, max_size=12))
@example([((place, [], receipt, b"", 0), 1) for place, receipt in (("/queue/a", "1"), ("d", None), ("/queue/a", "2"))])
@settings(max_examples=150)
def test_those_to_other_destinations_mean_what_each_means_alone(rows):
    """What a parser remembers of one destination, or of none, is not taken for another."""
    frames = []
    for (place, more, receipt, body, at), times in rows:
        if more and more[0][0] == "destination-type" and not place.startswith("/queue/"):
            more = []
        head = [*more, *([("receipt", receipt)] if receipt is not None else [])]
        head.insert(at, ("destination", place))
        frames += [encode("SEND", head, body)] * times
    together, alone = client(), []
    together.raw(b"".join(frames))
    for frame in frames:
        one = client()
        one.raw(frame)
        alone += singles(one.take())
    assert singles(together.take()) == alone and len(alone) == len(frames)


@given(
    st.sampled_from([[], [("color", "red")], [("destination-type", "ANYCAST")], [("content-length", "4")]]),
    st.lists(st.tuples(st.sampled_from([*PLACES[:2] * 3, *PLACES, ""]), st.booleans()), min_size=3, max_size=12),
    st.lists(st.integers(1, 60), max_size=9),
)
@settings(max_examples=150)
def test_those_to_destinations_in_turn_mean_what_each_means_alone(more, rows, cuts):
    frames, alone = [], []
    for number, (place, named) in enumerate(rows):
        if more and more[0][0] == "destination-type" and not place.startswith("/queue/"):
            place = "/queue/z"
        receipt = [("receipt", f"{number}")] if named or number % 4 else []
        frames.append(encode("SEND", [("destination", place), *more, *receipt], b"%04d" % number))
        one = client()
        one.raw(frames[-1])
        alone += [replace(each, receipt=None) if isinstance(each, Sync) else each for each in singles(one.take())]
        if not place:
            break
    data, together, at = b"".join(frames), client(), 0
    for size in [*cuts, len(data)]:
        together.raw(data[at : at + size])
        at += size
    found = singles(together.take())
    assert [replace(each, receipt=None) if isinstance(each, Sync) else each for each in found] == alone


def test_alike_ones_with_receipts_to_queues_in_turn_are_one_command():
    mine = client()

    def come(*places):
        frame = b"SEND\ndestination:%b\nreceipt:%d\n\n%d\0"
        mine.raw(b"".join(frame % (place.encode(), number, number) for number, place in enumerate(places)))
        return [[shown for _, shown in each.places] if isinstance(each, SendRound) else 1 for each in mine.take()]

    several = [f"/queue/q{number}" for number in range(2 * MAX_RUN)]
    assert come(*several) == [1, several[1 : MAX_RUN + 2], several[MAX_RUN + 2 :]]
    assert come("/queue/a", "b", "/topic/t", "/queue/c", "/queue/d") == [["/queue/a", "b"], 1, ["/queue/c", "/queue/d"]]
    assert come("/queue/a", "/queue/b", "/queue/b", "/queue/b") == [["/queue/a", "/queue/b"], 1]
    mine.raw(b"SEND\ndestination:/queue/b\nreceipt:7\n\n\0")
    (last,) = mine.take()
    assert isinstance(last, Send) and last.shown == "/queue/b"


def test_a_body_over_the_limit_ends_those_to_queues_in_turn_and_the_session():
    mine = client()
    mine.session.parser.limits.body = 5
    frame = b"SEND\ndestination:/queue/q%d\nreceipt:%d\n\n%b\0"
    bodies = [b"1", b"22", b"333", b"4444444", b"5"]
    mine.raw(b"".join(frame % (number, number, body) for number, body in enumerate(bodies)))
    *sent, _ = singles(mine.take())
    assert [each.body for each in sent] == [b"1", b"22", b"333"]
    mine.ended("a body is over 5 bytes", "3")


def test_a_head_is_remembered_wherever_it_goes():
    mine = client()
    mine.raw(b"SEND\ndestination:/queue/a\ncolor:red\nreceipt:1\n\n\0")
    known = mine.session.parser.known
    for number in range(1_000):
        mine.raw(b"SEND\ndestination:/queue/q%d\ncolor:red\nreceipt:%d\n\n\0" % (number, number))
        assert mine.session.parser.known is known
    assert [each.destination for each in mine.take()] == ["queue:a", *(f"queue:q{number}" for number in range(1_000))]
    mine.raw(b"SEND\ndestination:\ncolor:red\nreceipt:last\n\n\0")
    mine.ended("SEND needs a destination", "last")


def test_alike_ones_with_receipts_are_one_command():
    mine = client()
    frame = b"SEND\ndestination:/queue/a\nreceipt:%d\ncontent-length:2\n\n%d\0"
    mine.raw(b"".join(frame % (number, 10 + number % 90) for number in range(MAX_RUN + 10)))
    first, run, rest = mine.take()
    assert isinstance(first, Send) and [type(each) for each in (run, rest)] == [SendRun, SendRun]
    assert run.bodies == [b"%d" % (10 + number % 90) for number in range(1, MAX_RUN + 2)]
    assert run.receipts == [str(number) for number in range(1, MAX_RUN + 2)]
    assert [each.receipt for each in singles([first, run, rest])] == [str(number) for number in range(MAX_RUN + 10)]
    mine.raw(frame % (1, 11))
    assert isinstance(mine.take()[0], Send)


def test_a_body_over_the_limit_ends_a_run_and_the_session():
    mine = client()
    mine.session.parser.limits.body = 5
    frame = b"SEND\ndestination:/queue/a\nreceipt:%d\n\n%b\0"
    mine.raw(b"".join(frame % (number, body) for number, body in enumerate([b"1", b"22", b"333", b"4444444", b"5"])))
    *sent, _ = singles(mine.take())
    assert [each.body for each in sent] == [b"1", b"22", b"333"]
    mine.ended("a body is over 5 bytes", "3")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_receipts_of_a_run_are_frames_each(version):
    mine = Client().connect(version)
    texts = ["1", "a-b", "co:lon", "é"] if version != "1.0" else ["1", "a-b", "é"]
    assert [frame.headers for frame in mine.say(Receipts(texts))] == [{"receipt-id": text} for text in texts]


@given(
    st.lists(st.tuples(st.sampled_from(["ok", "cumulative", "settled", "other", "junk"]), st.booleans()), max_size=12)
)
@settings(max_examples=100)
def test_a_row_of_acks_settles_what_one_by_one_would(kinds):
    """Up to the first that is not there to be settled, which ends the session."""
    told = []
    for together in (True, False):
        mine, ids = client(), []
        mine.send("SUBSCRIBE", id="s", destination="/queue/q", ack="client-individual")
        mine.send("SUBSCRIBE", id="c", destination="/queue/c", ack="client")
        for tag, (kind, _) in enumerate(kinds, 1):
            sub, mode = ("c", "client") if kind == "cumulative" else ("s", "individual")
            (frame,) = mine.say(Delivery(sub, tag, "s1#9", ClientMessage("queue:q", "/queue/q"), ack=mode))
            ids.append({"other": "s1#9/zz.1", "junk": "junk"}.get(kind, frame.headers["ack"]))
            if kind == "settled":
                mine.send("ACK", id=ids[-1])
        mine.take()
        frames = [encode("ACK" if ack else "NACK", [("id", id)]) for id, (_, ack) in zip(ids, kinds, strict=True)]
        for data in [b"".join(frames)] if together else frames:
            mine.raw(data)
        told.append((mine.take(), mine.session.unsettled.given, mine.session.state, mine.session.fault))
    assert told[0] == told[1]


FIRST = st.builds(
    ClientMessage, destination=st.just("queue:q"), shown=st.sampled_from(["/queue/q", "/queue/a:b"]),
    priority=st.sampled_from([4, 9]), timestamp=st.integers(0, 10**19 // 2), persistent=st.booleans(),
    kind=st.sampled_from(["bytes", "text", "map"]), group=st.sampled_from(["", "g"]), sender=st.text(max_size=3),
    content_type=st.sampled_from(["", "text/plain"]), correlation=st.text(max_size=3),
    properties=st.sampled_from([b"", pack({"k": "v", "n": 1})]), typed=st.booleans(),
    annotations=st.sampled_from([{}, {"JMSXUserID": "me"}]), body=st.sampled_from([b"", b"first"]),
)  # fmt: skip
GIVEN = st.tuples(
    st.sampled_from(["s", "t:x", "unknown"]), st.sampled_from(["auto", "client", "individual"]), st.integers(1, 2),
    st.integers(0, 1),
)  # fmt: skip


@given(
    FIRST, st.lists(BODIES, max_size=4), st.lists(GIVEN, max_size=8), st.sampled_from(["1.0", "1.1", "1.2"]),
    st.booleans(),
)  # fmt: skip
def test_messages_of_a_run_have_the_rows_and_frames_of_single_ones(first, bodies, deliveries, version, own):
    """However they are given, together, again, or to several, with ids and forms of AMQP of their own or not."""
    if own:
        first = replace(first, message="id", form=b"Ad")
        heads = [(first.message, first.form), *((f"id-{at}", b"Ad" + b"x" * at) for at in range(len(bodies)))]
        made = list(map(Alike(first, own).headed, heads, [first.body, *bodies]))
        assert [(each.message, each.form) for each in made] == heads
    else:
        made = list(map(Alike(first).message, [first.body, *bodies]))
    alone = [each.copy() for each in made]
    assert alone == made and [each.alike for each in alone] == [None] * len(made)
    assert [each.size for each in alone] == [each.size for each in made] and made[0] == first
    rows = [
        [QueuedMessage(id, 9 - each.priority, f"a#{id}", each).row("a/q", "p5") for id, each in enumerate(messages)]
        for messages in (alone, made)
    ]
    assert rows[0] == rows[1] and [each.pack() for each in alone] == [each.pack() for each in made]
    told = []
    for messages in (alone, made):
        mine = Client().connect(version)
        mine.send("SUBSCRIBE", id="s", destination="/queue/q")
        mine.send("SUBSCRIBE", destination="/queue/q", **({"id": "t:x"} if version != "1.0" else {}))
        given = [(each, *how) for each in messages for how in deliveries]
        mine.session.reply([
            Delivery(sub, tag, "a#1", each, count, expires * 10**6, ack)
            for tag, (each, sub, ack, count, expires) in enumerate(given, 1)
        ])  # fmt: skip
        told.append(mine.session.output)
    assert told[0] == told[1]
