"""Frames of WebSocket, made and read by another library."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websocket import ABNF

from mombroker.core.errors import MomError
from mombroker.gateway.web.http import Request
from mombroker.gateway.web.websocket import (
    BINARY,
    CLOSE,
    CONTINUED,
    CONTROL_BYTES,
    NO_TEXT,
    NORMAL,
    PING,
    PONG,
    TEXT,
    WRONG,
    Broken,
    Frames,
    accepts,
    closing,
    frame,
    message,
)

STOMP = ("v12.stomp", "v11.stomp", "v10.stomp")


def sent(payload, opcode=BINARY, last=1, masked=1):
    """A frame of a client."""
    return ABNF(last, 0, 0, 0, opcode, masked, payload).format()


def fed(*parts):
    frames = Frames()
    return b"".join([frames.feed(part) for part in parts]), frames


def broken(*parts):
    frames = Frames()
    with pytest.raises(Broken) as refused:
        for part in parts:
            frames.feed(part)
    return refused.value.code


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 126, 127, 65_535, 65_536, 300_000])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_payloads_of_all_lengths_come_in(size, opcode):
    payload = (bytes(range(128)) * (size // 128 + 1))[:size]
    assert fed(sent(payload, opcode))[0] == payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 300_000])
def test_payloads_of_all_lengths_go_out(size):
    from websocket._abnf import frame_buffer

    data, payload = frame(BINARY, b"x" * size), b"x" * size
    source = memoryview(data)

    def receive(most):
        nonlocal source
        piece, source = bytes(source[:most]), source[most:]
        return piece

    read = frame_buffer(receive, True).recv_frame()
    assert (read.opcode, read.fin, read.data, len(source)) == (BINARY, 1, payload, 0)


PART = st.one_of(
    st.tuples(st.just("message"), st.lists(st.binary(max_size=300), min_size=1, max_size=4)),
    st.tuples(st.just("ping"), st.binary(max_size=CONTROL_BYTES)),
    st.tuples(st.just("pong"), st.binary(max_size=CONTROL_BYTES)),
)


@given(st.lists(PART, max_size=6), st.randoms(use_true_random=False))
def test_however_a_stream_is_cut_the_same_comes_out_and_next_to_nothing_is_kept(parts, at_random):
    stream, expected, last_ping = b"", b"", None
    for kind, what in parts:
        if kind == "message":
            for at, piece in enumerate(what):
                stream += sent(piece, BINARY if at == 0 else CONTINUED, int(at == len(what) - 1))
                expected += piece
                if at_random.random() < 0.3:
                    stream += sent(b"between", PONG)
        elif kind == "ping":
            stream, last_ping = stream + sent(what, PING), what
        else:
            stream += sent(what, PONG)
    frames, found = Frames(), b""
    while stream:
        size = at_random.randint(1, 50)
        found += frames.feed(stream[:size])
        stream = stream[size:]
        assert len(frames._kept) <= CONTROL_BYTES + 14
    assert (found, frames.ping, frames.closed) == (expected, last_ping, 0)


@given(st.text(max_size=200), st.integers(0, 50))
def test_a_text_may_be_cut_within_a_character(text, size):
    data = text.encode()
    parts = [data[:size], data[size:]]
    stream = sent(parts[0], TEXT, 0) + sent(parts[1], CONTINUED)
    frames = Frames()
    assert b"".join(frames.feed(stream[at : at + 3]) for at in range(0, len(stream), 3)) == data


BAD_TEXT = [b"\xff", b"\xc3", b"abc\xc3(", "grün".encode()[:-2] + b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]


@pytest.mark.parametrize("data", BAD_TEXT)
def test_what_is_no_text_is_refused_as_one_and_taken_as_bytes(data):
    assert broken(sent(data, TEXT)) == NO_TEXT
    assert broken(*[bytes([each]) for each in sent(data, TEXT)]) == NO_TEXT
    assert fed(sent(data, BINARY))[0] == data


def test_a_text_that_ends_within_a_character_is_refused_though_another_follows():
    assert broken(sent(b"\xc3", TEXT) + sent(b"\xbc", TEXT)) == NO_TEXT
    assert fed(sent(b"\xc3", TEXT, 0) + sent(b"\xbc", CONTINUED))[0] == b"\xc3\xbc"


def raw(first, length, payload=b"", mask=b"\0\0\0\0"):
    return bytes([first]) + length + mask + payload


WRONG_FRAMES = [
    sent(b"x", masked=0),
    raw(0xC2, b"\x80"),  # RSV1, as of a compression that nobody agreed on
    raw(0xA2, b"\x80"),
    raw(0x92, b"\x80"),
    raw(0x83, b"\x80"),  # kinds that are not known
    raw(0x87, b"\x80"),
    raw(0x8B, b"\x80"),
    raw(0x8F, b"\x80"),
    sent(b"x", CONTINUED),
    sent(b"x", TEXT, 0) + sent(b"y", TEXT),
    sent(b"x", BINARY) + sent(b"y", CONTINUED),
    raw(0x09, b"\x80"),  # a ping that is cut
    raw(0x89, b"\xfe\x00\x7e"),  # and one of 126 bytes
    raw(0x82, b"\xfe\x00\x7d"),  # lengths in a longer form than needed
    raw(0x82, b"\xff" + struct.pack(">Q", 65_535)),
    raw(0x82, b"\xff" + struct.pack(">Q", 1 << 63)),
    raw(0x88, b"\x81", b"\x03"),  # a close with half a code
    *(sent(struct.pack(">H", code), CLOSE) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)),
]


@pytest.mark.parametrize("data", WRONG_FRAMES, ids=range(len(WRONG_FRAMES)))
def test_what_is_no_frame_is_refused_as_soon_as_it_can_be(data):
    assert broken(data) == WRONG
    assert broken(*[bytes([each]) for each in data]) == WRONG


def test_a_frame_that_promises_more_than_memory_is_handed_on_piece_by_piece():
    frames = Frames()
    frames.feed(raw(0x82, b"\xff" + struct.pack(">Q", 1 << 62)))
    for _ in range(10):
        assert frames.feed(b"x" * 1000) == b"x" * 1000
    assert frames._kept == b""


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1014, 3000, 4999])
def test_a_close_tells_why_and_nothing_behind_it_is_read(code):
    found, frames = fed(sent(b"a") + sent(struct.pack(">H", code) + b"bye", CLOSE) + sent(b"b") + b"\xff\xff")
    assert (found, frames.closed) == (b"a", code)


def test_a_close_without_a_code_is_a_normal_one():
    assert fed(sent(b"", CLOSE))[1].closed == NORMAL


def test_our_last_frame_has_a_reason_that_fits():
    for reason in ("", "x" * 500, "ü" * 500, "\udc80"):
        data = closing(1002, reason)
        assert data[0] == 0x88 and data[1] == len(data) - 2 <= CONTROL_BYTES
        assert int.from_bytes(data[2:4], "big") == 1002 and data[4:].decode() in (
            reason,
            reason[: len(data[4:].decode())],
            "?",
        )


def test_a_message_is_text_where_it_is_text():
    assert message(b"abc")[0] == message("grün".encode())[0] == 0x80 | TEXT
    assert message(b"\xff")[0] == 0x80 | BINARY


def test_any_bytes_at_all_are_frames_or_are_refused():
    """3,000 streams, made of good ones by changing bytes."""
    at_random = random.Random(7)
    good = sent(b"hello") + sent(b"ping", PING) + sent(b"x" * 200, TEXT, 0) + sent(b"y", CONTINUED) + sent(b"", CLOSE)
    refused = 0
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(at_random.randint(1, 4)):
            data[at_random.randrange(len(data))] = at_random.randrange(256)
        frames = Frames()
        try:
            for at in range(0, len(data), 64):
                assert len(frames.feed(bytes(data[at : at + 64]))) <= 64 + CONTROL_BYTES + 14
                assert len(frames._kept) <= CONTROL_BYTES + 14
        except Broken:
            refused += 1
    assert 300 < refused < 2_900


# -- the handshake ---------------------------------------------------------------------------------------------------

GOOD = {
    "host": "127.0.0.1", "upgrade": "websocket", "connection": "keep-alive, Upgrade", "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def test_the_sample_of_the_rfc_is_granted():
    """RFC 6455, 1.3."""
    assert dict(accepts(Request("GET", "/ws", GOOD), STOMP)) == {
        "upgrade": "websocket", "connection": "upgrade", "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("v12.stomp", "v12.stomp"), ("v10.stomp, v11.stomp,v12.stomp", "v12.stomp"), ("mqtt, v10.stomp", "v10.stomp")],
)
def test_the_best_subprotocol_that_both_know_is_chosen(offered, chosen):
    granted = dict(accepts(Request("GET", "/ws", {**GOOD, "sec-websocket-protocol": offered}), STOMP))
    assert granted["sec-websocket-protocol"] == chosen


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"upgrade": ""}, "open it as ws://"),
        ({"connection": "keep-alive"}, "open it as ws://"),
        ({"sec-websocket-version": "8"}, "version 13"),
        ({"sec-websocket-key": ""}, "not of 16 bytes"),
        ({"sec-websocket-key": "!"}, "no base64"),
        ({"sec-websocket-key": "c2hvcnQ="}, "not of 16 bytes"),
        ({"sec-websocket-protocol": "mqtt"}, "offer one of them as subprotocol"),
    ],
)
def test_what_is_no_handshake_is_refused_with_what_is_one(headers, sentence):
    with pytest.raises(MomError, match=sentence):
        accepts(Request("GET", "/ws", {**GOOD, **headers}), STOMP)
