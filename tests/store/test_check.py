"""`verify` names every planted fault; `backup` copies one commit of a store that is being written."""

import shutil
import sqlite3
import stat

import pytest

from mombroker import ordering, store
from mombroker.core.batch import LINK_BITS, Batch, InRow
from mombroker.core.errors import StoreError
from mombroker.store import check
from mombroker.store.reader import TABLES
from tests.store.samples import Model, message, reads, sample, topology


def clocks() -> dict[tuple[str, int, int], bytes]:
    """Core rows of paris, which holds a message of lyon until one of nice has come."""
    paris, lyon, nice = (ordering.create("matrix", me=me, size=3) for me in range(3))
    for_paris, for_lyon = sorted(nice.send([0, 1], message(1, "paris/a")), key=lambda packet: packet.to)
    lyon.receive(2, for_lyon)
    (later,) = lyon.send([0], message(2, "paris/a"))
    paris.receive(1, paris.decode(1, lyon.encode(later)))
    assert [len(missing) for _, missing in paris.held()] == [1]
    put, gone = paris.dirty()
    assert not gone
    return {("core", *key): blob for key, blob in put.items()}


@pytest.fixture
def opened(tmp_path):
    made = store.open(tmp_path / "paris", topology(), "paris")
    first, second = sample()
    first.core = clocks()
    made.commit(first)
    made.commit(second)
    yield made
    made.close()


def test_a_whole_store_has_no_faults_while_it_is_open_or_closed(opened, tmp_path):
    assert store.verify(tmp_path / "paris") == []
    opened.close()
    assert store.verify(tmp_path / "paris") == []


PLANTED = [
    ("DELETE FROM link WHERE id = 2", "the out-queue of link 2 has 1 packet, but there is no such link"),
    ("UPDATE link SET peer = 'rome' WHERE id = 2", "link 2 is to rome in domain core, which is no neighbour"),
    ("UPDATE link SET domain = 'east' WHERE id = 2", "link 2 is to nice in domain east, which is no neighbour"),
    (
        "UPDATE link SET acked = 1 WHERE id = 1",
        "the out-queue to lyon in domain core holds 3..3, but not acknowledged is 2..3",
    ),
    (
        "UPDATE link SET sent = 2 WHERE id = 1",
        "the out-queue to lyon in domain core holds 3..3, but not acknowledged is nothing",
    ),
    (
        "UPDATE link SET acked = 4 WHERE id = 1",
        "the out-queue to lyon in domain core: 4 packets are acknowledged, but only 3 were sent",
    ),
    (
        f"DELETE FROM queue_out WHERE id = {1 << LINK_BITS | 3}",
        "the out-queue to lyon in domain core holds nothing, but not acknowledged is 3..3",
    ),
    (
        f"UPDATE queue_out SET id = {2 << LINK_BITS | 7} WHERE id = {1 << LINK_BITS | 3}; "
        "UPDATE link SET sent = 7 WHERE id = 2; UPDATE link SET acked = 3 WHERE id = 1",
        "the out-queue to nice in domain core lacks 5 packets between 1 and 7",
    ),
    (
        "UPDATE queue_in SET data = x'00' WHERE id = 1",
        "message 1 for paris/a cannot be read: not a message: ",
    ),
    ("UPDATE queue_in SET agent = 'lyon/a' WHERE id = 1", "message 1 waits for lyon/a, which does not live here"),
    (
        "UPDATE queue_in SET id = 101 WHERE id = 1",
        "id 101 in table queue_in is above the mark of used ids, 100",
    ),
    ("UPDATE message SET id = 102 WHERE id = 4", "id 102 in table message is above the mark of used ids, 100"),
    ("UPDATE task SET id = 103 WHERE id = 7", "id 103 in table task is above the mark of used ids, 100"),
    (
        "UPDATE message SET agent = 'paris/gone' WHERE id = 4",
        "1 item of agent paris/gone without such an agent",
    ),
    ("UPDATE held SET id = 104 WHERE id = 10", "id 104 in table held is above the mark of used ids, 100"),
    (
        "UPDATE held SET agent = 'paris/gone' WHERE id = 10",
        "1 item of agent paris/gone without such an agent",
    ),
    (
        "UPDATE task SET agent = 'paris/gone' WHERE id = 8",
        "1 timer or deferred function of agent paris/gone without such an agent",
    ),
    (
        "UPDATE task SET data = x'00' WHERE id = 7",
        "timer 7 of paris/a cannot be read: not a message: ",
    ),
    ("UPDATE core SET domain = 'east'", "there are clocks of domain east, which this server is not in"),
    ("UPDATE log SET columns = x'c1'", "log records 1..2 cannot be read: "),
    ("UPDATE log SET id = 5 WHERE id = 3", "log records 3..4 are missing"),
]


@pytest.mark.parametrize(("sql", "sentence"), PLANTED)
def test_each_fault_is_named(opened, tmp_path, sql, sentence):
    opened.close()
    conn = sqlite3.connect(tmp_path / "paris" / "store.sqlite")
    conn.executescript(sql)
    conn.executescript("".join(f"UPDATE {table} SET sum = NULL;" for table in TABLES))  # as older programs wrote rows
    conn.close()
    faults = store.verify(tmp_path / "paris")
    assert faults and faults[0].startswith(sentence)


def test_damaged_clocks_are_named(opened, tmp_path):
    opened.commit(Batch(core=dict.fromkeys(clocks(), b"\xc1")))
    (fault,) = store.verify(tmp_path / "paris")
    assert fault.startswith("the clocks of domain core (matrix) are damaged: ")


def damage(file, kind: int, old: bytes, new: bytes) -> None:
    """Overwrite bytes in all pages of a kind (13 = rows of a table, 10 = an index)."""
    whole = file.read_bytes()
    pages = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    file.write_bytes(b"".join(page.replace(old, new) if page[0] == kind else page for page in pages))


def test_an_index_that_does_not_fit_its_table_is_named(opened, tmp_path):
    opened.close()
    damage(tmp_path / "paris" / "store.sqlite", 10, b"paris/a\x03", b"paris/z\x03")
    faults = store.verify(tmp_path / "paris")
    assert faults == [f"the file is damaged: row {row} missing from index queue_in_agent" for row in (2, 3)]


def test_a_damaged_page_is_named(opened, tmp_path):
    opened.commit(Batch(queue_in={n: InRow(n, "paris/a", message(n, "paris/a", bytes(3000))) for n in range(10, 60)}))
    opened.close()
    damage(tmp_path / "paris" / "store.sqlite", 13, bytes(2000), b"\xff" * 2000)
    damage(tmp_path / "paris" / "store.sqlite", 13, b"\x0d\x00\x00\x00\x01", b"\xff" * 5)
    assert "malformed" in store.verify(tmp_path / "paris")[-1]


def test_many_faults_of_one_kind_are_counted(opened, tmp_path):
    opened.commit(Batch(queue_in={n: InRow(n, "paris/a", b"") for n in range(10, 60)}))
    faults = store.verify(tmp_path / "paris")
    assert len(faults) == check.SHOWN + 1
    assert faults[-1] == f"and {50 - check.SHOWN} more of this kind"


# -- backup ----------------------------------------------------------------------------------------------------------


def test_a_backup_of_a_running_server_is_one_commit_of_it(opened, tmp_path, monkeypatch):
    """The server commits after every page that is copied; none of that is in the copy, and the copying ends."""
    monkeypatch.setattr(check, "PAGE", 1)
    link, seen = opened.links()[0], []

    def serve(done, total):
        seen.append((done, total))
        seq = link.sent + len(seen)
        packets = [(1 << LINK_BITS | seq, bytes(9000))]
        opened.commit(Batch(queue_out=packets, links={1: link._replace(sent=seq)}, meta={"now": seq}))
        assert len(seen) <= seen[0][1], "it starts over at every commit"

    expected = reads(opened)
    store.backup(tmp_path / "paris", tmp_path / "copy.sqlite", serve)
    assert [done for done, _ in seen] == list(range(1, seen[0][1] + 1))
    assert store.verify(tmp_path / "copy.sqlite") == []
    copy = store.read(tmp_path / "copy.sqlite")
    assert reads(copy) == expected
    copy.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.sqlite", "paris"]
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    assert opened.links()[0].sent == link.sent + len(seen)


def test_a_backup_opens_as_the_store_of_its_server(opened, tmp_path):
    store.backup(tmp_path / "paris", tmp_path / "copy.sqlite")
    expected = reads(opened)
    (tmp_path / "new").mkdir()
    shutil.move(tmp_path / "copy.sqlite", tmp_path / "new" / "store.sqlite")
    again = store.open(tmp_path / "new", topology(), "paris")
    assert reads(again) == expected
    model = Model(again.meta())
    assert model.reads()["meta"] == expected["meta"]  # the incarnation too: its neighbours will see that it is old
    again.close()


def test_a_backup_never_replaces_a_file(opened, tmp_path):
    target = tmp_path / "copy.sqlite"
    target.write_text("precious")
    with pytest.raises(StoreError, match="copy.sqlite exists already; name a new file"):
        store.backup(tmp_path / "paris", target)
    assert target.read_text() == "precious"


def test_a_backup_that_cannot_be_written_leaves_nothing(opened, tmp_path):
    with pytest.raises(StoreError, match="cannot write .*No such file or directory; name a file in a folder with room"):
        store.backup(tmp_path / "paris", tmp_path / "nowhere" / "copy.sqlite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paris"]


def test_a_backup_of_nothing_is_refused(tmp_path):
    with pytest.raises(StoreError, match="there is no store at"):
        store.backup(tmp_path, tmp_path / "copy.sqlite")


def test_a_text_file_is_told_from_a_damaged_store(tmp_path):
    """As a topology file that was given without --file."""
    file = tmp_path / "bus.toml"
    file.write_text('[bus]\nname = "demo"\n')
    assert store.verify(file) == [
        f"{file} is a text file, not a store: name the `data` folder of a server or a backup; a topology file goes "
        "behind --file"
    ]
