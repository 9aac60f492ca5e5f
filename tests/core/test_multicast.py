"""A multicast to many agents of one server costs as much as so many messages: what they share is stored once."""

import json

import pytest

from mombroker import store
from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.core.batch import Batch, InRow
from mombroker.core.events import Admin
from mombroker.core.limits import Limits
from mombroker.core.message import Message, decode
from mombroker.core.server import AgentServer
from mombroker.store.base import written
from tests.core.bus import START, Bus, topology
from tests.core.sample_agents import Put, Tell

AGENTS = "tests.core.sample_agents"
FEW = Limits(turn_reactions=7, retry_first_ns=1, max_attempts=2)  # reactions a batch: most entries get a row


class Counted(Bus):
    """Counts what is written."""

    bytes = rows = 0

    def commit(self, name):
        ready = super().commit(name)
        rows, size = written(ready.batch)
        self.rows += rows
        self.bytes += size
        self.stores[name].check()
        return ready


def crowd(count: int, limits: Limits = FEW) -> Counted:
    """Servers a and b; so many sinks on a, which are there, and a source on b."""
    sinks = {f"a/s{i}": f"{AGENTS}:Sink" for i in range(count)}
    made = Counted(topology({"x": "ab"}, {"b/source": f"{AGENTS}:Source", **sinks}), limits)
    made.pump(10_000)
    made.bytes = made.rows = 0
    return made


def sinks(count: int) -> list[str]:
    return [f"a/s{i}" for i in range(count)]


def cost(count: int, text: str, server: str = "a") -> int:
    made = crowd(count)
    made.send(server, sinks(count), Put(text))
    made.pump(10_000)
    assert [made.fields(sink)["got"] for sink in sinks(count)] == [[text]] * count
    assert not made.stores["a"].disk.queue_in and not made.stores["a"].disk.payloads
    return made.bytes


@pytest.mark.parametrize("server", ["a", "b"])
def test_twice_as_many_receivers_write_twice_as_much(server):
    few, many = cost(100, "hello", server), cost(300, "hello", server)
    assert many < 3.3 * few


def test_a_large_payload_is_written_once_a_server():
    alone, many = cost(1, "x" * 50_000), cost(40, "x" * 50_000)
    assert many - 39 * 2 * 50_100 < alone + 100_000  # a sink keeps what it got in its state and in a row of its own


@pytest.mark.parametrize("text", ["small", "x" * 5_000])
def test_what_many_share_survives_a_death_at_every_batch_and_goes_with_the_last(text):
    deaths = 0
    while True:
        made = crowd(30)
        made.send("a", sinks(30), Put("before"))
        made.servers["b"].step(Admin(999, "send", {
            "to": sinks(30), "type": Put.__wire_name__, "fields": {"text": text},
        }), made.now)  # fmt: skip
        made.release("b", made.commit("b"))
        made.release("b", made.commit("b"))
        for _ in range(deaths):
            made.release("a", made.commit("a"))
        ended = not made.servers["a"].busy
        made.crash("a")
        made.boot("a")
        made.pump(10_000)
        assert [made.fields(sink)["got"] for sink in sinks(30)] == [["before", text]] * 30
        assert not made.stores["a"].disk.queue_in and not made.stores["a"].disk.payloads
        if ended:
            break
        deaths += 1
    assert deaths > 4


def test_a_failing_receiver_keeps_its_copy_until_it_is_a_dead_letter_of_its_own():
    made, text = crowd(30), "bad" + "x" * 5_000
    made.send("a", [*sinks(30), "a/nobody"], Put(text))
    for _ in range(3):
        made.later(1)
    letters = made.ask("a", "deadletters", limit=99)["letters"]
    assert sorted(letter["agent"] for letter in letters) == sorted([*sinks(30), "a/nobody"])
    rows = made.servers["a"].dead_letters.letters.scan(None, 99)
    assert [decode(row.body).dests for row in rows] == [(json.loads(row.head)["agent"],) for row in rows]
    assert made.ask("a", "deadletter", id=letters[0]["id"])["payload"] == {"text": text}
    assert made.ask("a", "retry", id=letters[1]["id"])["to"] == [letters[1]["agent"]]
    assert not made.stores["a"].disk.payloads


def test_a_dead_letter_names_its_own_receiver_only():
    made = crowd(0)
    made.send("a", [f"a/nobody{i}" for i in range(400)], Put("hello"))
    assert made.ask("a", "deadletters")["count"] == 400
    assert made.bytes < 400 * 1_000


def test_rows_that_name_all_receivers_are_read():
    """As older programs wrote them."""
    made = crowd(3)
    made.crash("a")
    message = Message("b", 1, "b/source", tuple(sinks(3)), Put.__wire_name__, b"\x91\xa3old", START)
    rows = {id: InRow(id, sink, message.encode()) for id, sink in enumerate(sinks(3), 200_000)}
    made.stores["a"].commit(Batch(queue_in=rows, meta={"next": 200_100}))
    made.boot("a")
    made.pump()
    assert [made.fields(sink)["got"] for sink in sinks(3)] == [["old"]] * 3


def test_a_source_may_name_very_many_receivers():
    """In time that grows with their number: a second here would be minutes if each was looked for among all."""
    made = crowd(0, Limits())
    made.send("b", "source", Tell([f"a/nobody{i}" for i in range(5_000)], "hello"))
    assert made.ask("a", "deadletters")["count"] == 5_000


def multicast(folder, count: int) -> tuple[int, int]:
    """To so many agents of one server; rows and bytes written, reactions included."""
    bus = topology({"x": "a"}, {f"a/s{i}": f"{AGENTS}:Sink" for i in range(count)})
    opened = store.open(folder, bus, "a")
    server = AgentServer(bus, "a", opened, program(bus), attach, START)
    rows = size = 0

    def run() -> None:
        nonlocal rows, size
        while server.busy:
            server.turn(server.tx.now)
            ready = server.ready(server.tx.now)
            opened.commit(ready.batch)
            server.committed(ready, server.tx.now)
            rows, size = rows + written(ready.batch)[0], size + written(ready.batch)[1]

    run()
    rows = size = 0
    server.step(Admin(1, "send", {"to": sinks(count), "type": Put.__wire_name__, "fields": {"text": "12345"}}), START)
    run()
    assert server.engine.reactions == 2 * count and not opened.inboxes()
    opened.close()
    return rows, size


@pytest.mark.parametrize("count", [1_500, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_multicast_of_five_bytes_to_a_whole_server_is_cheap(count, tmp_path):
    rows, size = multicast(tmp_path, count)
    assert size < 50_000_000 * count // 20_000 and rows < 8 * count
