"""docs/operate.md, step by step on real processes: a store is lost for good, and a server is taken away."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.processes import Processes, write_topology


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(write_topology(tmp_path, {"x": "ab", "y": "bc"}, {}))
    made.listen("abc")
    made.up()
    yield made
    made.down()


def until(asked: Callable[[], Any]) -> None:
    """Ask until there is an answer."""
    for _ in range(400):
        try:
            if asked():
                return
        except AssertionError:  # the command was refused
            pass
        time.sleep(0.05)
    raise AssertionError("it does not come to that")


@pytest.mark.long
def test_messages_for_a_queue_whose_store_is_lost_are_delivered_after_a_reset(bus):
    bus.mom("queue", "create", "orders", "-s", "c")
    bus.down()
    shutil.rmtree(bus.file.parent / "c")
    here = [bus.serve(server) for server in "ab"]
    until(lambda: bus.mom("why", "a"))
    bus.mom("send", "-s", "a", "/queue/orders", "tea")
    until(lambda: bus.json("why", "b")["waits"])  # 1. only what waits for the lost server is left
    for process in here:  # 2.
        process.terminate()
        process.wait()
    assert "names forgotten: queue:orders" in bus.mom("domain", "reset", "c", "--yes").stdout  # 3.
    bus.up()  # 4.
    (letter,) = bus.json("agent", "deadletters", "list")
    assert (letter["server"], letter["agent"]) == ("b", "c/queue:orders")
    (sent,) = bus.json("agent", "deadletters", "retry", "--server", "b", str(letter["id"]))
    assert sent["to"] == ["queue:orders"]
    assert bus.mom("receive", "-s", "c", "/queue/orders", "--timeout", "20").stdout == "tea\n"


@pytest.mark.long
def test_a_server_is_taken_away_and_a_dead_letter_for_its_queue_ends_nobody(bus):
    bus.mom("queue", "create", "DLQ.orders", "-s", "c")
    bus.mom("queue", "create", "orders", "-s", "a")
    bus.down()
    whole = bus.file.read_text()
    text = whole[: whole.index("[servers.c]")] + whole[whole.index("[domains.x]") : whole.index("[domains.y]")]
    bus.file.write_text(text)
    refused = bus.mom("topology", "adopt", "--yes", code=1).stderr
    assert "c still holds queue:DLQ.orders" in refused and "--drop" in refused
    assert "names withdrawn: queue:DLQ.orders" in bus.mom("topology", "adopt", "--yes", "--drop").stdout
    bus.up()
    bus.mom("send", "-s", "a", "/queue/orders", "late", "--ttl", "0.1")
    assert bus.mom("receive", "-s", "b", "/queue/DLQ.orders", "--timeout", "20").stdout == "late\n"
    assert bus.all_up()
