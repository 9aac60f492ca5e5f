"""What can be read of a damaged store is exported; a compacted store holds what it held."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker import store
from mombroker.admin.cli.main import cli
from mombroker.broker.message import ClientMessage
from mombroker.core.batch import Batch, InRow
from mombroker.core.errors import StoreError
from mombroker.stomp.headers import head_of, lines_of
from tests.broker import test_damage
from tests.broker.test_damage import BODIES, copied, opened
from tests.store import saved_headers
from tests.store.samples import Model, message, reads, sample, topology

whole = test_damage.whole


def bodies(folder: Path) -> list[bytes]:
    return sorted(row["body"].encode() for row in store.salvage(folder) if row.get("destination") == "queue:orders")


def test_all_messages_of_a_whole_store_are_exported(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    rows = [json.loads(json.dumps(row)) for row in store.salvage(folder)]
    assert bodies(folder) == BODIES and all(row["whole"] for row in rows)
    notes = [row for row in rows if row["table"] == "queue_in"]
    assert len(notes) == 7 and all(row["type"].endswith("Put") and row["source"] == "a/source" for row in notes)


def test_what_is_damaged_is_exported_as_such_before_and_after_it_was_set_aside(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    with closing(sqlite3.connect(folder / "store.sqlite")) as db:
        db.execute("UPDATE message SET body = CAST('tampered' AS BLOB) WHERE id = (SELECT max(id) FROM message)")
        db.execute("UPDATE held SET head = x'c1' WHERE id = (SELECT min(id) FROM held)")
        db.commit()
    for after in (False, True):
        wrong = [row for row in store.salvage(folder) if not row["whole"]]
        assert sorted("columns" in row for row in wrong) == [False, True]
        assert [row["body"] for row in wrong if "body" in row] == ["tampered"]
        assert [row.get("set_aside", False) for row in wrong] == [after, after]
        if not after:
            with opened(folder) as alone:
                assert len(alone.drain()) == len(BODIES) - 2


def test_pages_that_cannot_be_read_cost_what_is_on_them_alone(tmp_path: Path) -> None:
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(queue_in={n: InRow(n, "paris/a", message(n, "paris/a", bytes(300))) for n in range(1, 200)}))
    made.close()
    file = tmp_path / "store.sqlite"
    data = bytearray(file.read_bytes())
    leaves = [at for at in range(0, len(data), 4096) if data[at] == 13 and data[at : at + 4096].count(b"paris/a") > 5]
    data[leaves[4] : leaves[4] + 8] = b"\xff" * 8
    file.write_bytes(data)
    rows = list(store.salvage(tmp_path))
    assert rows[-1]["table"] == "queue_in" and "some rows cannot be read: " in rows[-1]["error"]
    ids = [row["id"] for row in rows[:-1]]
    assert len(set(ids)) == len(ids) and 170 < len(ids) < 199


def test_a_compacted_store_is_smaller_and_holds_the_same(tmp_path: Path) -> None:
    made = store.open(tmp_path, topology(), "paris")
    for batch in sample():
        made.commit(batch)
    made.commit(Batch(queue_in={n: InRow(n, "paris/a", bytes(3000)) for n in range(20, 500)}))
    made.commit(Batch(queue_in=dict.fromkeys(range(20, 500))))
    expected = reads(made)
    with pytest.raises(StoreError, match="is in use by process"):
        store.compact(tmp_path)
    made.close()
    before, after = store.compact(tmp_path)
    assert after < before / 4 and after == (tmp_path / "store.sqlite").stat().st_size
    again = store.open(tmp_path, topology(), "paris")
    assert reads(again) == expected == Model(again.meta()).reads() | expected
    again.close()
    assert store.verify(tmp_path) == []


def test_the_headers_of_a_message_are_shown_as_they_were_sent_too(tmp_path: Path) -> None:
    """Values alone do not tell how they were written, nor in which order."""
    shutil.copy(saved_headers.FILE, tmp_path / "store.sqlite")
    ran = CliRunner().invoke(cli, ["store", "salvage", str(tmp_path)], catch_exceptions=False)
    rows = [json.loads(line) for line in ran.output.splitlines()]
    late = {row["body"].encode(): row for row in rows if row["agent"] == "paris/queue:late"}
    assert late[b"1"]["headers"] == {"color": "a:b\n", "correlation-id": "c-1", "size": 7}
    for body, (block, _) in saved_headers.SENT.items():
        assert late[body]["lines"] == block.decode().splitlines()


def test_lines_of_a_message_that_a_client_has_sent_now() -> None:
    sent = {"a": "007", "type": "t", "b": "1e400", "property-types": "a=int", "c": "x\r\ny"}
    put = ClientMessage("queue:q", "q", **head_of(sent, True)._asdict())
    assert lines_of(put) == ["a:007", "type:t", "b:1e400", "property-types:a=int", "c:x\\r\\ny"]
