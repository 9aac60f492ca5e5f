"""The wire form of a message: encoded once, read back as it was, and refused when it is none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.core import message
from mombroker.core.errors import PeerError
from mombroker.core.ids import SERVER_NAME
from mombroker.core.message import Message, decode, ident

TEXT = st.text(st.characters(blacklist_characters="\n/", blacklist_categories=("Cs",)), min_size=1, max_size=20)
AGENT = st.builds("{}/{}".format, TEXT, TEXT)
NUMBER = st.integers(0, 2**63 - 1)
SERVER = st.from_regex(SERVER_NAME, fullmatch=True)
MESSAGES = st.builds(
    Message, SERVER, NUMBER, AGENT, st.lists(AGENT, min_size=1, max_size=5).map(tuple), TEXT.filter(str.isprintable),
    st.binary(max_size=50),
    NUMBER, NUMBER, st.integers(0, 255),
)  # fmt: skip


@given(MESSAGES)
def test_what_is_encoded_is_read_back(sent):
    data = sent.encode()
    for _ in range(2):  # the second time its head is known
        got = decode(data)
        assert (got.origin, got.number, got.source, got.dests) == (sent.origin, sent.number, sent.source, sent.dests)
        assert (got.type, got.payload, got.sent, got.expires, got.flags) == (
            sent.type, sent.payload, sent.sent, sent.expires, sent.flags,
        )  # fmt: skip
        assert got.size == len(sent.payload) and got.encode() is data
    assert ident(data) == (sent.origin, sent.number)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_message_are_refused(data):
    try:
        decode(data)
    except PeerError as error:
        assert str(error).startswith("not a message")


@pytest.mark.parametrize("cut", [0, 10, 28, 35])
def test_a_message_that_is_cut_short_is_refused(cut):
    data = Message("a", 1, "a/x", ("b/y",), "T", b"").encode()
    with pytest.raises(PeerError, match="not a message"):
        decode(data[:cut])


def test_a_head_without_an_agent_is_refused():
    data = Message("a", 1, "a/x", ("nobody",), "T", b"").encode()
    with pytest.raises(PeerError, match="names no agent"):
        decode(data)


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 1 << 63}, {"sent": (1 << 64) - 1}, {"expires": 1 << 63}, {"origin": "a\x1b[2J"}, {"origin": ""},
        {"source": "nobody"}, {"source": "a/" + "x" * 20_000}, {"dests": ("b/y", "b/" + "x" * 20_000)},
        {"type": "T\x1b[2J"}, {"type": "T" * 300},
    ],
)  # fmt: skip
def test_a_head_out_of_shape_is_refused_in_one_bounded_line(wrong):
    data = replace(Message("a", 1, "a/x", ("b/y",), "T", b""), **wrong).encode()
    with pytest.raises(PeerError, match="not a message") as refused:
        decode(data)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 300


def test_known_heads_do_not_grow_without_bound():
    for number in range(message._MAX_KNOWN + 10):
        decode(Message("a", 1, "a/x", (f"b/{number}",), "T", b"").encode())
    decode(Message("a", 1, "a/x", tuple(f"b/{number}" for number in range(1_000)), "T", b"").encode())
    assert all(len(head) <= message._MAX_HEAD for head in [*message._KNOWN, *message._HEADS.values()])
    assert len(message._KNOWN) <= message._MAX_KNOWN and len(message._HEADS) <= message._MAX_KNOWN
