"""What a queue has in memory, and what on disk."""

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from mombroker.broker.commands import RELEASED
from mombroker.broker.properties import pack
from mombroker.broker.queue import lane
from mombroker.broker.queue.queue import Queue
from tests.broker.bench import Broker
from tests.broker.queue.orders import Q, filled
from tests.core.bus import SECOND

# -- volatile ------------------------------------------------------------------------------------------------------


def test_messages_that_need_not_persist_have_no_rows():
    b = Broker()
    filled(b, "1", persistent=False).send(Q, "2")
    assert b.stored(Q) == {"p5": 1}
    b.reboot("a")
    assert b.connect().subscribe("s", Q).texts == ["2"]
    assert b.queue(Q).messages.bytes == 0


# -- size ----------------------------------------------------------------------------------------------------------


def small(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    monkeypatch.setattr(lane, "MEMORY", messages * lane.OVERHEAD)
    monkeypatch.setattr(lane, "PAGE", 8)
    monkeypatch.setattr(lane, "PAGE_LEAST", 3)


def test_a_deep_queue_is_on_disk_and_drains_in_order(monkeypatch):
    small(monkeypatch, 10)
    b = Broker()
    texts = [str(number) for number in range(100)]
    filled(b, *texts)
    assert sum(len(each.items) for each in b.queue(Q).messages.lanes.values()) < 12
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=7)
    b.connect().subscribe("s", Q, prefetch=3, ack="individual").close()
    for number in range(50):
        consumer.ack(str(number))
    b.reboot("a")
    filled(b, "last")
    consumer = b.connect().subscribe("s", Q)
    assert consumer.texts == [*texts[50:], "last"]
    assert b.queue(Q).messages.count == 0 and b.stored(Q) == {}


def test_a_selector_finds_what_is_deep_on_disk_and_it_returns_there(monkeypatch):
    small(monkeypatch, 10)
    b = Broker()
    producer = b.connect()
    for number in range(60):
        producer.send(Q, str(number), properties=pack({"rare": str(int(number % 20 == 19))}), pump=number % 7 == 0)
    b.pump()
    rare = b.connect().subscribe("s", Q, selector="rare = '1'", ack="individual", prefetch=2)
    assert rare.texts == ["19", "39"]
    rare.close()
    again = b.connect().subscribe("s", Q, selector="rare = '1'", ack="individual")
    assert again.texts == ["19", "39", "59"]
    again.ack("39").close()
    everything = b.connect().subscribe("s", Q)
    assert everything.texts == [str(number) for number in range(60) if number != 39]


def test_messages_on_disk_expire_and_are_browsed(monkeypatch):
    small(monkeypatch, 5)
    b = Broker()
    producer = b.connect()
    for number in range(40):
        producer.send(Q, str(number), expires=b.now + SECOND if number % 3 == 0 else 0)
    left = [str(number) for number in range(40) if number % 3]
    b.later(1.1)
    assert b.connect().subscribe("b", Q, browser=True, prefetch=4).texts == left
    assert b.connect().subscribe("s", Q).texts == left


def deep(folder: Path, messages: int, size: int) -> dict[str, int]:
    """Peak memory of a server with so many messages, in MiB."""
    folder.mkdir()
    code = [sys.executable, "-m", "tests.broker.deep", str(folder), str(messages), str(size)]
    ran = subprocess.run(code, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert ran.returncode == 0, ran.stderr
    figures: dict[str, int] = json.loads(ran.stdout)
    return figures


def test_memory_does_not_grow_with_the_depth_of_a_queue(tmp_path):
    """What is in memory is bounded: twice as deep costs next to nothing."""
    peaks = [max(deep(tmp_path / f"{depth}", depth, 4_000).values()) for depth in (4_000, 8_000)]
    assert peaks[1] - peaks[0] < 10


@pytest.mark.long
def test_a_queue_of_five_million_messages_keeps_its_server_under_a_gibibyte(tmp_path):
    assert max(deep(tmp_path / "store", 5_000_000, 100).values()) < 1024


# -- memory ------------------------------------------------------------------------------------------------------------


def test_an_idle_queue_takes_less_than_two_kilobytes_also_after_a_restart():
    b = Broker()
    filled(b, "one")
    b.connect().subscribe("s", Q)
    server, state = b.servers["a"], b.queue(Q).pack()
    for kind in (b"", state):
        Queue(server.clients, "a/queue:first", kind)
        gc.collect()
        tracemalloc.start()
        queues = [Queue(server.clients, f"a/queue:name{number}", kind) for number in range(200)]
        server.natives.turns.touched.clear()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used / len(queues) < 2_000


def test_a_row_that_was_in_no_batch_before_is_not_deleted_and_one_that_was_is():
    b = Broker()
    batches, commit = [], b.stores["a"].commit
    b.stores["a"].commit = lambda batch: (batches.append(dict(batch.items)), commit(batch))[1]  # type: ignore[method-assign]

    def deleted() -> list[int]:
        found = [id for items in batches for id, row in items.items() if row is None]
        batches.clear()
        return found

    first = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    b.connect().send(Q, "1", "2", pump=False)
    second = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    assert (first.texts, second.texts, deleted()) == (["1"], ["2"], [])
    b.connect().send(Q, "3")
    assert deleted() == []
    first.ack("1")
    assert first.texts == ["1", "3"] and len(deleted()) == 1
    first.nack("3", outcome=RELEASED)
    b.reboot("a")
    assert b.connect().subscribe("s", Q).texts == ["2", "3"]
