"""The log's columns: what comes out is what went in, and what all records share costs nothing."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.core.trace import DEFAULTS, FIELDS, Notes
from mombroker.core.trace import records as singles
from mombroker.store import columns
from tests.store.samples import T0, record, run_of, some_notes

texts = st.text(max_size=4)
pairs = st.tuples(st.integers(0, 9), st.integers(0, 1 << 40))
records = st.builds(
    record,
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 62),
    kind=texts, agent=texts, dests=st.lists(texts, max_size=2).map(tuple), hops=st.integers(0, 3), domain=texts,
    out=st.lists(st.tuples(texts, texts, st.integers(0, 99), st.integers(0, 99)), max_size=2),
    missing=st.lists(pairs, max_size=2), detail=st.text(st.characters(), max_size=4),
)  # fmt: skip


@given(st.lists(records, min_size=1, max_size=6))
def test_records_come_back_as_they_were(rows):
    assert columns.unpack(columns.pack(rows), len(rows)) == rows


@given(st.lists(records | some_notes(), min_size=1, max_size=8))
def test_notes_come_back_as_their_records_do(log):
    rows = singles(log)
    assert columns.count(log) == len(rows) and columns.time(log[-1]) == columns.time(rows[-1])
    data = columns.pack(log)
    assert columns.unpack(data, len(rows)) == columns.unpack(columns.pack(rows), len(rows)) == rows


def test_what_the_records_of_a_run_share_is_stored_once():
    alike, run = record(1), run_of(*((number, 7) for number in range(100)))
    stored = dict(zip(FIELDS, msgpack.unpackb(columns.pack([alike, run, run]), strict_map_key=False), strict=True))
    assert stored["payload"] == [7] and stored["hops"] is None
    assert stored["kind"] == {0: ["send"], 1: ["send", "react"]}
    assert stored["number"][1] == [number for number in range(100) for _ in "ab"]


def test_few_notes_are_stored_as_their_records_would_be():
    for log in ([run_of((1, 7), (2, 8))], [record(1), run_of((2, 7)), record(3)]):
        assert columns.pack(log) == columns.pack(singles(log))


@pytest.mark.parametrize(("name", "default"), DEFAULTS._asdict().items())
def test_any_field_of_a_record_beside_notes_comes_back(name, default):
    other = {str: "x", int: 7, tuple: ("x",), list: [("x", "y", 1, 2)]}[type(default)]
    notes = Notes("paris", T0)
    notes.told = [(1, "paris/a", "paris/q", "sample.Note", 7), (2, "paris/q", "paris/b", "sample.Other", 0)]
    log = [DEFAULTS._replace(**{name: other}), notes]
    assert columns.unpack(columns.pack(log), 5) == singles(log)


@pytest.mark.parametrize(
    "column", [{}, {1: [1]}, {0: []}, {0: [1, 2, 3]}, {0: [1], 0.5: [2]}, {0: [1], 9: [2]}, {"": 1}]
)
def test_a_map_that_is_no_column_of_so_many_records_is_a_value_error(column):
    with pytest.raises(ValueError):
        columns.unpack(msgpack.packb([None, None, column]), 2)


def test_a_column_is_left_out_once_twice_or_whole():
    rows = [record(1, detail="first"), record(2), record(3)]
    stored = dict(zip(FIELDS, msgpack.unpackb(columns.pack(rows)), strict=True))
    assert (stored["hops"], stored["missing"]) == (None, None)  # all default
    assert (stored["kind"], stored["payload"]) == (["send"], [7])  # all alike
    assert stored["detail"] == ["first", rows[1][-1]]  # all but the first
    assert stored["number"] == [1, 2, 3]


def test_text_that_is_no_unicode_does_not_stop_a_commit():
    rows = [record(1, detail="bad \udcff byte")]
    assert columns.unpack(columns.pack(rows), 1) == rows


def test_records_of_an_older_trace_get_the_defaults_of_younger_fields():
    stored = msgpack.unpackb(columns.pack([record(1), record(2)]))
    assert columns.unpack(msgpack.packb(stored[:13]), 2) == [
        record(1, out=[], detail=""),
        record(2, out=[], detail=""),
    ]


def test_records_of_a_younger_trace_lose_the_fields_that_are_not_known():
    stored = msgpack.unpackb(columns.pack([record(1)]))
    assert columns.unpack(msgpack.packb([*stored, ["new field"]]), 1) == [record(1)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", msgpack.packb(7), msgpack.packb([["send"] * 3]), msgpack.packb([None] * 4 + [[7, 8]]), b"\x91"],
)
def test_what_is_no_log_row_is_a_value_error(data):
    with pytest.raises(ValueError):
        columns.unpack(data, 2)


def test_the_time_of_a_record_is_its_latest_station():
    assert columns.time(record(1, T0, received=T0 + 1, delivered=T0 + 2, done=T0 + 3)) == T0 + 3
    assert columns.time(record(1, T0, received=T0 + 1, done=0)) == T0 + 1  # held
    assert columns.time(record(1, T0, done=0)) == T0
