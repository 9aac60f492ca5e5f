"""Heads of AMQP that messages have in common: a form tells as much as a whole one, in every store for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker import heads
from mombroker.broker.heads import MOST, SHARED, TIME, Head, head_of, whole
from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.item import QueuedMessage, item_of

TEXTS = st.one_of(st.binary(max_size=40), st.just(b"x-opt-jms-msg-type" * 50))
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=100)
HEADS = st.one_of(
    st.builds(Head, TEXTS, st.just(4), st.integers(0, 1 << 20), TEXTS, TEXTS, st.just(False), st.just(b"")),
    st.builds(Head, TEXTS, st.sampled_from([1, 4]), st.integers(0, 155), TEXTS, TEXTS, st.just(True), TEXTS),
    st.builds(Head, TEXTS, st.just(0), st.just(0), st.just(b""), st.just(b""), st.just(True), TEXTS),
)
ONE = Head(
    b"\x00Sr\xc1)\x04\xa3\x0ex-opt-jms-destQ\x00\xa3\x12x-opt-jms-msg-typeQ\x03\x00Ss\xd0", 4, 0x40, b"\0\0\0\n\xa1",
    b"@\xa1\x06orders@@@\xa3\x18application/octet-stream@@\x83", True, b"",
)  # fmt: skip
STORED = b"Sd\x84\x002\x00;\x00d#K\xab\x03X\xab\xc3B6x\x10\xe2\xf5*\x00"  # made of it once


@given(HEADS, IDS, st.binary(min_size=TIME, max_size=TIME), st.sampled_from([b"d", b"t"]))
def test_a_shared_form_tells_the_whole_one(head, id, time, kind):
    time = time if head.timed else b""
    form = head.pack(kind) + time
    assert head_of(form) == (head, time)
    size = (head.base + len(id)).to_bytes(4, "big")[4 - head.width :]
    named = size + head.between + bytes((len(id),)) + id.encode() if head.width else b""
    assert whole(form, id) == b"A" + kind + head.start + named + head.middle + time + head.end


def test_what_stands_in_stores_is_read_for_ever():
    form = STORED + b"\0\0\x01\x90" * 2
    assert whole(form, "ID:7") == b"Ad" + ONE.start + b"\0\0\0D" + ONE.between + b"\x04ID:7" + ONE.middle + form[-8:]
    assert len(form) < 45  # of 109


@given(st.binary(max_size=80), st.text(max_size=300))
@settings(max_examples=300)
def test_a_damaged_form_is_none(data, id):
    for form in (SHARED + data, ONE.pack(b"d")[: len(data)] + data, STORED[:9] + data):
        assert whole(form, id)[:1] in (b"", b"A")
    bomb = ONE._replace(start=b"x" * (MOST - 10), middle=b"", between=b"").pack(b"d")
    assert whole(bomb + b"12345678", "x" * 256) == b""


def test_rows_keep_the_shared_form_and_servers_get_the_whole_one():
    message = ClientMessage("queue:q", "/queue/q", message="ID:7", form=STORED + bytes(TIME), body=b"x")
    item = QueuedMessage(1, 4, "a#1", message)
    assert item_of(item.held_row("a/q")).message == message
    there = ClientMessage.unpack(message.pack())
    assert there.form == heads.whole(message.form, "ID:7") and there.form[:1] == b"A"
    assert message.copy() == message and there.size > message.size
