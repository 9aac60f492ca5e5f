import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.core.errors import PeerError
from mombroker.net import wire

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary()
frames = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)
real = frames.filter(lambda frame: frame is not None)


@given(st.lists(real, max_size=4), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_whole_however_the_bytes_are_split(sent, sizes):
    stream = b"".join(wire.encode(frame) + wire.HEARTBEAT for frame in sent)
    decoder = wire.Decoder(1 << 20)
    got = []
    for size in itertools.cycle(sizes):
        if not stream:
            break
        got += decoder.feed(stream[:size])
        stream = stream[size:]
    assert got == [each for frame in sent for each in (frame, None)]


def test_a_length_over_the_limit_is_refused_before_anything_is_buffered():
    decoder = wire.Decoder(100)
    assert list(decoder.feed((101).to_bytes(4, "big")[:3])) == []
    with pytest.raises(PeerError, match="101 bytes is over the limit of 100"):
        list(decoder.feed(b"\x65" + bytes(50)))


def test_the_limit_may_rise_between_two_frames_of_one_chunk():
    decoder = wire.Decoder(10)
    got = []
    for frame in decoder.feed(wire.encode("first") + wire.encode("x" * 50)):
        got.append(frame)
        decoder.limit = 100
    assert got == ["first", "x" * 50]


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",  # never used by msgpack
        b"\x92\x01",  # an array cut short
        b"\x01\x01",  # two values
        b"\xa2\xff\xff",  # not UTF-8
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\xd4\x05\x00",  # an extension
        b"\x91" * 5000 + b"\xc0",  # too deep
        b"\x81\x01\x02",  # a key that is no text
    ],
)
def test_bytes_that_are_no_msgpack_are_the_peers_fault(body):
    with pytest.raises(PeerError, match="not valid msgpack"):
        wire.decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_the_peers_fault(data):
    decoder = wire.Decoder(100)
    try:
        list(decoder.feed(data))
    except PeerError:
        pass
    assert len(decoder._buffer) <= 104


def test_keys_of_maps_are_texts_unless_any_are_taken():
    frame = wire.encode({1: {None: "x"}})
    with pytest.raises(PeerError, match="strict_map_key"):
        list(wire.Decoder().feed(frame))
    assert list(wire.Decoder(any_keys=True).feed(frame)) == [{1: {None: "x"}}]
    with pytest.raises(PeerError, match="not valid msgpack"):
        list(wire.Decoder(any_keys=True).feed(b"\x00\x00\x00\x03\x81\x90\x01"))  # a list as a key
