"""Rows that are summed in one loop have the checksums that a reader looks for."""

from zlib import crc32

from mombroker.core.batch import HeldRow, ItemRow
from mombroker.store import reader, sums

IDS = [0, 1, 1 << 32, (1 << 63) - 1]


def test_items_in_one_loop_have_the_checksum_of_each() -> None:
    places = [("a/queue:x", "p5"), ("a/queue:x", "p6"), ("a/queue:y", "p5"), ("a/queue:x", "p5")]
    rows = [ItemRow(id, *place, key, b"h" * key, b"body") for id in IDS for place in places for key in (0, 3)]
    made = sums.with_items(iter(rows))
    assert made == [(*row, sums.item(*row)) for row in rows]
    assert not any(sums.wrong(sums.item, row) for row in made) and len({row[-1] for row in made}) > 10


def test_held_rows_in_one_loop_have_the_checksum_of_each() -> None:
    rows = [HeldRow(id, agent, b"head", b"body") for id in IDS for agent in ("a/queue:x", "a/queue:y")]
    assert sums.with_held(iter(rows)) == [(*row, sums.held(*row)) for row in rows]


def test_rows_of_messages_are_looked_at_together():
    rows = sums.with_items([(number, "a/q", "p4", 0, b"head", b"body") for number in range(1, 4)])
    assert sums.whole(rows) and sums.whole([])
    for at, value in [(4, b"Head"), (5, b"bodY"), (6, None), (6, 1), (1, b"a/q"), (0, "1"), (3, None)]:
        damaged = [*rows[:2], tuple(value if place == at else old for place, old in enumerate(rows[2]))]
        assert not sums.whole(damaged), (at, value)


def test_a_row_has_the_checksum_of_its_columns_one_after_the_other() -> None:
    values = ("a\ud800", 1, None, b"x\0", b"", "b", 2.5)
    assert sums.row(*values) == crc32(b"'a\\ud800'\x001\x00None\x00" + b"x\0" + b"'b'\x002.5\x00")
    assert sums.row() == 0 and sums.row(b"x") == crc32(b"x")


def test_a_row_of_the_log_has_the_checksum_of_any_row() -> None:
    row = (1, 7, 1 << 62, (1 << 62) + 1, 0, 9, b"columns\0", 1, 3, 400)
    assert sums.log(row) == sums.row(*row)


def test_bytes_are_written_as_they_are_without_a_search_for_how() -> None:
    data = b"body"
    assert reader.sqlite3.adapters[bytes, reader.sqlite3.PrepareProtocol](data) is data
