"""Values as bytes and back, and whatever is no value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.amqp import codec, performatives, reading
from mombroker.amqp.codec import AmqpError, Described, Symbol, any_value, read

SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.text("abc:-", max_size=300).map(Symbol) | st.uuids()
)  # fmt: skip
KEYS = st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5))


def alike(one, other):
    if isinstance(one, str) and isinstance(other, str):
        return type(one) is type(other) and one == other
    return one == other and type(one) is type(other)


@given(VALUES)
def test_what_is_written_is_read_again(value):
    data = any_value(value)
    assert alike(read(data), value) and codec.skip(data, 0) == len(data)


@pytest.mark.parametrize(
    "data, value",
    [
        ("43", 0), ("5205", 5), ("7000000100", 256), ("44", 0), ("5305", 5), ("800000000100000000", 1 << 32),
        ("5405", 5),
        ("54ff", -1), ("55ff", -1), ("51ff", -1), ("50ff", 255), ("60ffff", 65535), ("61ffff", -1), ("41", True),
        ("5600", False), ("7300000041", "A"), ("45", []), ("723f800000", 1.0), ("a30161", "a"), ("c0020140", [None]),
        ("e00602a301610162", ["a", "b"]), ("f0000000050000000341", [True] * 3),
        ("005325a00161", Described(0x25, b"a")), ("c10402540140", {1: None}),
    ],
)  # fmt: skip
def test_each_form_of_the_specification_is_read(data, value):
    assert read(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data",
    [
        "", "01", "70ff", "a0ff00", "b0ffffffff00", "c003ff4040", "d0ffffffff0000000140", "c1020140",
        "c1090454014054014040", "5602", "f0000000050fffffff41", "f0000000090000ffff4300000000",
        "a101ff", "a301ff", "0000" * 40, "c00401" * 3, "7300ffffff", "00", "e00101",
    ],
)  # fmt: skip
def test_what_is_no_value_is_told_so(data):
    with pytest.raises(AmqpError):
        read(bytes.fromhex(data))


def test_values_in_each_other_have_a_bound():
    data = b"\x40"
    for _ in range(codec.MAX_DEPTH + 1):
        data = codec.listed([data])
    with pytest.raises(AmqpError, match="in each other"):
        read(data)
    with pytest.raises(AmqpError):
        read(b"\x00" * 100_000)


def test_a_number_of_more_than_64_bits_is_none():
    with pytest.raises(AmqpError, match="64 bits"):
        any_value(1 << 63)


@given(st.binary(max_size=60), st.sampled_from([0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x41]))
@settings(max_examples=300)
def test_a_frame_is_a_performative_or_refused(data, code):
    for body in (data, bytes((0, 0x53, code)) + data, bytes((0, 0x53, code, 0xC0, len(data) + 1, 3)) + data):
        try:
            reading.decode(body)
        except AmqpError:
            pass


@pytest.mark.parametrize(
    "fields, said",
    [
        ([codec.uint(1)], "a wrong type"), ([codec.NULL], "without a container-id"),
        ([codec.string("a"), codec.NULL, codec.string("x")], "a wrong type"),
        ([codec.string("a"), codec.NULL, codec.any_value(-1)], "out of range"),
    ],
)  # fmt: skip
def test_fields_of_a_wrong_type_are_refused(fields, said):
    with pytest.raises(AmqpError, match=said):
        reading.decode(codec.performative(performatives.OPEN, fields))
