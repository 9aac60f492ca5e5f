"""Batches as bytes: every kind of row comes back as it was."""

from __future__ import annotations

import dataclasses

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.core.batch import LINK_BITS, Batch, PayloadRow
from mombroker.core.trace import records
from mombroker.store import columns
from mombroker.store.columns import records_of
from mombroker.store.packed import VERSION, pack, unpack
from tests.store.samples import batches, blobs, ids, sample

payloads = st.builds(PayloadRow, ids, ids, blobs)


def test_every_field_of_a_batch_is_in_the_samples():
    """One that is added is in none, until somebody has thought of its form."""
    for each in dataclasses.fields(Batch):
        if each.name == "above":  # for the process that has made it
            continue
        if each.name not in ("ended", "core", "dropped", "bytes", "row"):  # which the random ones have
            assert any(getattr(batch, each.name) for batch in sample()), each.name


def again(batch: Batch, version: int = VERSION) -> Batch:
    """Packed, unpacked, and with its log as records."""
    found = unpack(pack(batch, version))
    return dataclasses.replace(found, log=records_of(found), row=None)


VERSIONS = range(1, VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("batch", sample())
def test_a_batch_comes_back(batch, version):
    assert again(batch, version) == dataclasses.replace(batch, row=None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("batch", sample())
def test_the_store_gets_the_row_of_the_log_that_was_packed(batch, version):
    row = columns.row(batch.log)
    assert row is not None and unpack(pack(batch, version)).row == batch.row == row


def test_a_version_says_which_it_is():
    assert [msgpack.unpackb(pack(Batch(1), version))[0] for version in VERSIONS] == [*VERSIONS]


sets = st.sets(st.sampled_from(["core", "edge"]))


@given(batches(), st.lists(payloads, max_size=3), st.sets(ids), sets, ids, st.sampled_from(VERSIONS))
def test_any_batch_comes_back(batch, shared, spent, ended, size, version):
    batch.queue_out = [(link << LINK_BITS | at, data) for at, (link, data) in enumerate(batch.queue_out)]
    batch.payloads = {row.id: row for row in shared}
    batch.spent, batch.ended, batch.bytes = spent, ended, size
    assert again(batch, version) == dataclasses.replace(batch, log=records(batch.log), row=None)


def test_what_no_field_holds_is_an_empty_batch():
    assert unpack(pack(Batch(7))) == Batch(7)


def test_texts_without_a_form_in_utf8_come_back():
    batch = Batch(1, meta={"name:\ud800": "\udcff"}, agents={"a/\ud800": ("x:Y", b"")})
    assert unpack(pack(batch)) == batch


def test_a_newer_version_is_refused():
    fields = msgpack.unpackb(pack(Batch(1)))
    with pytest.raises(ValueError, match=f"a batch of version {VERSION + 1}: this program reads those up to {VERSION}"):
        unpack(msgpack.packb([VERSION + 1, *fields[1:]]))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_batch_are_refused(data):
    with pytest.raises(ValueError):
        unpack(data)


@given(batches(), st.data())
def test_a_batch_that_was_cut_short_is_refused(batch, data):
    whole = pack(Batch(queue_in=batch.queue_in, meta=batch.meta))
    with pytest.raises(ValueError):
        unpack(whole[: data.draw(st.integers(0, len(whole) - 1))])
