"""Transfers that come together and are alike become one command, and mean the same as one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.amqp import codec
from mombroker.amqp.codec import NULL, boolean, uint
from mombroker.amqp.frames import frame
from mombroker.amqp.inbound import MAX_RUN
from mombroker.amqp.performatives import (
    ACCEPTED,
    DETACH,
    DISPOSITION,
    REJECTED,
    SETTLED,
    TRANSFER,
    Outcome,
    performative,
)
from mombroker.broker import heads
from mombroker.broker.commands import AcceptRun, Delivery, Disposition, SendRun
from mombroker.broker.message import Alike, ClientMessage
from mombroker.broker.queue.item import QueuedMessage
from tests.amqp.peer import delivery, message, receiving, sending, settle

HEADS = st.sampled_from([{}, {"color": "red"}, {"size": 5}])
BODIES = st.sampled_from([b"", b"x", b"\x00\x53\x75", b"y" * 255, b"z" * 256, b"\x00\x00\x00\x20\x02\x00\x00\x00"])
TAGS = st.sampled_from([b"", b"1", b"long tag"])
FORMS = st.sampled_from([uint(0), NULL, b"\x52\x00"])
SETTLES = st.sampled_from([boolean(False), boolean(True), NULL, b"\x56\x00"])
MORE = st.sampled_from(
    [[], [boolean(False)], [boolean(False), NULL, NULL, boolean(False), boolean(False), boolean(True)]]
)
IDS = st.sampled_from([NULL, codec.string("ID:a-%d"), codec.string("ID:%d@"), codec.string("an %d"), uint(7), b"\x45"])
TIMES = st.sampled_from([[], [NULL], ["now"], ["now", codec.string("group")]])
WIDE = st.booleans()  # lengths of four bytes
FRAMES = st.tuples(HEADS, BODIES, TAGS, FORMS, SETTLES, MORE, st.booleans(), IDS, TIMES, WIDE, st.booleans())


def written(id, found):
    head, body, tag, form, settled, more, wide, own, times, long, text = found
    number = b"\x70" + id.to_bytes(4, "big") if wide else uint(id)
    told = [uint(0), number, codec.binary(tag), form, settled, *more]
    return frame(performative(TRANSFER, told) + whole(id, head, body, own, times, long, text))


def whole(id, head, body, own, times, long, text):
    """A message; `own` is its id, and `times` its time of creation and what stands behind that."""
    data = message(body, **head)
    if own != b"\x45":
        name = codec.string(own[2:].decode() % id) if own[:1] == b"\xa1" else own
        times = [codec.timestamp(10**12 + id) if each == "now" else each for each in times]
        fields = [name, *[NULL] * 8, *times]
        said = codec.listed(fields)
        if long and said[0] == 0xC0:
            said = b"\xd0" + (len(said) + 1).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + said[3:]
        before, _, behind = data.partition(b"\x00\x53\x74" if head else b"\x00\x53\x75")
        data = before + b"\x00\x53\x73" + said + (b"\x00\x53\x74" if head else b"\x00\x53\x75") + behind
    if text and body != b"\x00\x53\x75" and b"\x00" not in body:
        data = data[: len(data) - len(codec.binary(body)) - 3] + b"\x00\x53\x77" + codec.string(body.decode())
    return data


def singles(commands):
    return [one for each in commands for one in (each.singles() if isinstance(each, SendRun | AcceptRun) else [each])]


@given(
    st.lists(st.tuples(FRAMES, st.integers(1, 5)), min_size=1, max_size=8), st.lists(st.integers(1, 90), max_size=20)
)
@settings(max_examples=150)
def test_however_they_come_they_mean_the_same(rows, cuts):
    every = [found for found, times in rows for _ in range(times)]
    data = b"".join(written(id, found) for id, found in enumerate(every))
    told = []
    for sizes in (cuts, [len(data)], [1] * len(data)):
        peer, at = sending(), 0
        for size in [*sizes, len(data)]:
            peer.raw(data[at : at + size])
            at += size
        told.append(singles(peer.commands()))
        peer.connection.check()
        link = peer.connection.sessions[0].inbound.links[0]
        assert link.count == len(every) and link.unanswered == sum(each.receipt is not None for each in told[-1])
    assert told[0] == told[1] == told[2]
    assert [whole_form(each) for each in told[0]] == [alone(written(id, found)) for id, found in enumerate(every)]
    assert [each.body for each in told[0]] == [body for _, body, *_ in every]


def test_a_run_ends_where_the_credit_does():
    peer = sending()
    link = peer.connection.sessions[0].inbound.links[0]
    link.credit = 5
    found = ({}, b"x", b"", uint(0), boolean(False), [], True, b"\x45", [], False, False)
    peer.raw(b"".join(written(id, found) for id in range(6)))
    assert len(singles(peer.commands())) == 5 and peer.codes() == [DETACH] and MAX_RUN > 6


QPID = codec.string("ID:a-%d")


def row(count, body=b"x", first=0, own=QPID, text=False):
    found = ({}, body, b"tag", uint(0), boolean(False), [], True, own, ["now"], True, text)
    return [written(id, found) for id in range(first, first + count)]


def test_messages_with_ids_of_their_own_are_one_run():
    for text in (False, True):
        peer = sending()
        peer.raw(b"".join(row(MAX_RUN, text=text)))
        (run,) = peer.commands()
        assert type(run) is SendRun and len(run.bodies) == MAX_RUN
        assert [each.message for each in run.singles()] == [f"ID:a-{id}" for id in range(MAX_RUN)]
        assert list(map(whole_form, run.singles())) == [alone(each) for each in row(MAX_RUN, text=text)]
        assert run.size == sum(each.size for each in run.singles())


@given(
    st.lists(st.sampled_from([b"x", b"yy", b"z" * 300, b"z" * 600]), min_size=1, max_size=6), st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 2), max_size=12), st.integers(1, 9), st.booleans(),
)  # fmt: skip
def test_messages_of_a_run_have_the_rows_and_frames_of_single_ones(bodies, text, named, times, credit, settled):
    """However they are given: again, to one whose credit ends, in frames that are too small for some."""
    peer = sending()
    own = QPID if named else NULL
    peer.raw(b"".join(frame for at, body in enumerate(bodies) for frame in row(1, body, at, own, text)))
    sent = singles(peer.commands())
    first, heads_of = sent[0], [(each.message, each.form) for each in sent]
    model = ClientMessage("queue:q", "/queue/q", message=first.message, form=first.form, body=first.body)
    made = list(map(Alike(model, True).headed, heads_of, [each.body for each in sent]))
    one_by_one = [each.copy() for each in made]
    rows = [
        [QueuedMessage(id, 4, f"a#{id}", each).held_row("a/q") for id, each in enumerate(messages)]
        for messages in (made, one_by_one)
    ]
    assert rows[0] == rows[1] and [each.pack() for each in made] == [each.pack() for each in one_by_one]
    assert [each.size for each in made] == [each.size for each in one_by_one]
    told = []
    for messages, together in ((made, True), (one_by_one, True), (one_by_one, False)):
        peer = receiving(credit=credit, settles=SETTLED if settled else 0)
        peer.connection.most_out = 512
        counts = [*times, *[1] * len(messages)]
        given = [Delivery(peer.sub, tag, "a#1", each, counts[tag - 1]) for tag, each in enumerate(messages, 1)]
        for lot in [given] if together else [[each] for each in given]:
            peer.told(*lot)
        told.append((peer.take(), peer.connection.written, peer.commands()))
    assert told[0] == told[1] == told[2]
    assert [code for code, *_ in told[0][0]].count(TRANSFER) >= min(credit, len(sent))


def alone(data):
    """The form of a message that came by itself."""
    peer = sending()
    peer.raw(data)
    return peer.commands()[0].form


def whole_form(sent):
    return heads.whole(sent.form, sent.message)


def test_text_that_is_none_is_rejected_by_itself():
    """A byte in the middle of a run that would be half a letter."""
    frames = row(3, b"abc", text=True)
    frames[1] = frames[1].replace(b"abc", b"a\xc3c")
    peer = sending()
    peer.raw(b"".join(frames))
    assert [each.message for each in singles(peer.commands())] == ["ID:a-0", "ID:a-2"]
    assert DISPOSITION in peer.codes()


def test_an_id_that_is_no_name_is_not_taken_for_one():
    frames = row(4)
    frames[2] = frames[2].replace(b"ID:a-2", b"ID a/2")
    peer = sending()
    peer.raw(b"".join(frames))
    assert [each.message for each in singles(peer.commands())] == ["ID:a-0", "ID:a-1", "", "ID:a-3"]


STATES = st.sampled_from(["once", "twice", "rejected", "open", "range"])


def settling(number, how):
    outcome = Outcome(REJECTED if how == "rejected" else ACCEPTED)
    last = {"twice": number, "range": number + 2}.get(how)
    return frame(settle(number, last, outcome, settled=how != "open"))


@given(st.lists(st.tuples(st.integers(230, 330), STATES), max_size=40), st.lists(st.integers(1, 90), max_size=20))
@settings(max_examples=150)
def test_deliveries_settled_one_by_one_are_settled_alike_however_that_comes(said, cuts):
    data, told = b"".join(settling(*each) for each in said), []
    for sizes in (cuts, [len(data)], [1] * len(data)):
        peer, at = receiving(credit=400), 0
        peer.told(*(delivery(peer, tag) for tag in range(1, 321)))
        for size in [*sizes, len(data)]:
            peer.raw(data[at : at + size])
            at += size
        peer.connection.check()
        told.append([each for each in singles(peer.commands()) if isinstance(each, Disposition)])
    assert told[0] == told[1] == told[2]
