"""Transfers that come together and are alike become one command, and mean the same as one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.amqp import codec
from mombroker.amqp.codec import NULL, boolean, uint
from mombroker.amqp.frames import frame
from mombroker.amqp.inbound import MAX_RUN
from mombroker.amqp.performatives import TRANSFER, performative
from mombroker.broker.commands import SendRun
from tests.amqp.peer import message
from tests.amqp.test_connection import sending

HEADS = st.sampled_from([{}, {"color": "red"}, {"size": 5}])
BODIES = st.sampled_from([b"", b"x", b"\x00\x53\x75", b"y" * 255, b"z" * 256, b"\x00\x00\x00\x20\x02\x00\x00\x00"])
TAGS = st.sampled_from([b"", b"1", b"long tag"])
FORMS = st.sampled_from([uint(0), NULL, b"\x52\x00"])
SETTLED = st.sampled_from([boolean(False), boolean(True), NULL, b"\x56\x00"])
MORE = st.sampled_from(
    [[], [boolean(False)], [boolean(False), NULL, NULL, boolean(False), boolean(False), boolean(True)]]
)
FRAMES = st.tuples(HEADS, BODIES, TAGS, FORMS, SETTLED, MORE, st.booleans())


def written(id, found):
    head, body, tag, form, settled, more, wide = found
    number = b"\x70" + id.to_bytes(4, "big") if wide else uint(id)
    told = [uint(0), number, codec.binary(tag), form, settled, *more]
    return frame(performative(TRANSFER, told) + message(body, **head))


def singles(commands):
    return [one for each in commands for one in (each.singles() if isinstance(each, SendRun) else [each])]


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
    assert told[0] == told[1] == told[2] and [each.body for each in told[0]] == [body for _, body, *_ in every]


def test_a_run_ends_where_the_credit_does():
    peer = sending()
    link = peer.connection.sessions[0].inbound.links[0]
    link.credit = 5
    found = ({}, b"x", b"", uint(0), boolean(False), [], True)
    peer.raw(b"".join(written(id, found) for id in range(6)))
    assert "has no credit" in peer.connection.fault and MAX_RUN > 6
