"""Application properties as bytes, and what is refused of them; messages of before, which had headers as text."""

import math
import random

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mombroker.broker import texts
from mombroker.broker.message import ClientMessage, row_of
from mombroker.broker.properties import (
    BIT63,
    FIELDS,
    KINDS,
    MAX_BYTES,
    MAX_PROPERTIES,
    PropertyError,
    named,
    pack,
    unpack,
)
from mombroker.broker.protocol import Dispatch, Publish
from mombroker.broker.queue.item import item_of
from mombroker.core.batch import HeldRow, ItemRow
from mombroker.core.errors import StoreError

VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(-BIT63, BIT63 - 1), st.floats(allow_nan=False), st.binary(), st.none()
)
PROPERTIES = st.dictionaries(st.text(min_size=1), VALUES, max_size=8)


@given(PROPERTIES)
@example({"nan": math.inf, "z": -0.0, "e": ""})
def test_properties_come_back_with_their_types_and_in_order(properties):
    found = unpack(pack(properties))
    assert list(found.items()) == list(properties.items())
    assert [type(value) for value in found.values()] == [type(value) for value in properties.values()]


def test_no_properties_are_no_bytes():
    assert pack({}) == b"" and unpack(b"") == {}


@pytest.mark.parametrize("wrong, why", [
    ({"": 1}, "'' is no name"), ({5: 1}, "5 is no name"), ({"a": BIT63}, "more than 64 bits"),
    ({"a": [1]}, "'a' is text, a boolean, a number, bytes or nothing, not list"), ({"a": {}}, "not dict"),
    ({"a": "\ud800"}, "properties"), ({str(n): 1 for n in range(MAX_PROPERTIES + 1)}, "1001 of them, of at most 1000"),
    ({"a": b"x" * MAX_BYTES}, "put them into the body"),
])  # fmt: skip
def test_what_is_no_property_is_refused(wrong, why):
    with pytest.raises(PropertyError, match=why):
        pack(wrong)


JUNK = [
    b"\x80", b"\xc1", b"\x81", b"\x81\xa1a", b"\x05", b"\xc0", b"\x90", b"\x91" * 9_000, b"\x81\x05\x05",
    b"\x81\xa1a\x81\xa1b\x05",
    b"\x82\xa1a\x01\xa1a\x02", b"\x81\xa1a\xd1\x00\x05", b"\x81\xa0\x01", b"\x81\xa1\xff\x01", b"\x81\xc4\x01a\x01",
    b"\x81\xa1a\xcf" + b"\xff" * 8, b"\x81\xa1a\xd4\x01\x00", b"\x81\xa1a\xca\x00\x00\x00\x00", b"\xdf\xff\xff\xff\xff",
    b"\x81\xa1a\xdb\xff\xff\xff\xff", b"\x81\xa1a\x01\x00", b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
    b"\x00" * (MAX_BYTES + 1),
]  # fmt: skip


@pytest.mark.parametrize("packed", JUNK)
def test_bytes_that_pack_has_not_made_are_refused(packed):
    with pytest.raises(ValueError) as refused:
        unpack(packed)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200
    with pytest.raises(ValueError, match="^properties: "):
        ClientMessage.unpack(msgpack.packb(ClientMessage("queue:q", "q", properties=packed).values()))


@given(PROPERTIES.filter(bool), st.integers(0, 1 << 32))
@settings(max_examples=300)
def test_whatever_becomes_of_properties_on_their_way_they_are_such_or_refused_by_one_sentence(properties, seed):
    chance, packed = random.Random(seed), bytearray(pack(properties))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(packed) + 1)
        deed = chance.randrange(3)
        if deed == 0:
            packed[at:at] = bytes([chance.randrange(256)])
        elif packed and deed == 1:
            packed[min(at, len(packed) - 1)] = chance.randrange(256)
        else:
            del packed[at : at + chance.randint(1, 5)]
    try:
        found = unpack(bytes(packed))
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert {type(value) for value in found.values()} <= KINDS and pack(found) == packed


def test_names_of_standard_fields_are_those_of_selectors():
    put = ClientMessage(
        "queue:q", "q", content_type="text/plain", type="t", reply_to="/queue/r", properties=pack({"a": 1, "b": b"x"})
    )
    assert dict(named(put)) == {"content-type": "text/plain", "type": "t", "reply-to": "/queue/r", "a": 1, "b": b"x"}
    assert list(FIELDS.values()) == ["content_type", "type", "correlation", "reply_to"]


def test_for_json_bytes_and_odd_numbers_are_text():
    found = texts.plain({"a": b"\xff", "b": math.inf, "c": 1.5, "d": None, "e": math.nan})
    assert found == {"a": "/w==", "b": "inf", "c": 1.5, "d": None, "e": "nan"}


# -- of before -----------------------------------------------------------------------------------------------------

HEADERS = b"color:a\\cb\\n\\\\\ncorrelation-id:c-1\nsize:007\nreply-to:\nproperty-types:rate=float\nrate:2.50\n"
OLD = [
    "queue:q", "/queue/q", HEADERS, 7, 1, 2, 3, False, "text", "g", 4, "p", 5, "a/x", "id", False, {"k": "v"}, b"body",
]  # fmt: skip


def test_a_message_of_before_is_read_from_wire_and_rows():
    new = ClientMessage(
        "queue:q", "/queue/q", 7, 1, 2, 3, False, "text", "g", 4, "p", 5, "a/x", "id", correlation="c-1",
        properties=pack({"color": "a:b\n\\", "size": "007", "reply-to": "", "rate": 2.5}), form=b"=" + HEADERS,
        annotations={"k": "v"}, body=b"body",
    )  # fmt: skip
    assert ClientMessage.unpack(msgpack.packb(OLD)) == new
    assert ClientMessage.of_row(OLD[:-1], b"body") == new == ClientMessage.of_row(list(row_of(new)), b"body")
    assert Publish.unpack(msgpack.packb([OLD, None])).message == new
    assert Dispatch.unpack(msgpack.packb([5, [[1, "a#1", 2, OLD]]])).items == [(1, "a#1", 2, new)]
    typed = [*OLD[:15], True, *OLD[16:]]
    assert unpack(ClientMessage.of(typed).properties)["size"] == 7
    bare = ClientMessage.of(["queue:q", "q", b"", 4])
    assert bare == ClientMessage("queue:q", "q")


@pytest.mark.parametrize("at, value", [
    (2, b"nocolon\n"), (2, b":x\n"), (2, b"\xff:x\n"), (3, 11), (0, 5), (16, {"k": 5}), (17, "x"), (5, -1),
    (2, b"".join(b"%d:\n" % n for n in range(1_001))),
])  # fmt: skip
def test_a_wrong_message_of_before_is_refused(at, value):
    with pytest.raises(ValueError):
        ClientMessage.unpack(msgpack.packb([*OLD[:at], value, *OLD[at + 1 :]]))


@pytest.mark.parametrize("row", [ItemRow(9, "a/queue:q", "p4", 0, b"", b"body"), HeldRow(9, "a/queue:q", b"", b"body")])
def test_a_row_with_wrong_properties_is_refused(row):
    head = bytes(26) + msgpack.packb(["a#1", 4, *row_of(ClientMessage("queue:q", "q", properties=b"\x81\xa1a"))])
    with pytest.raises(StoreError, match="message 9 of a/queue:q cannot be read: properties: they cannot be unpacked"):
        item_of(row._replace(head=head))
