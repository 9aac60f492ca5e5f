"""Queues that programs of before have left, with messages in every place."""

import shutil
from pathlib import Path

from mombroker import store
from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Disposition, Subscribe
from mombroker.broker.properties import unpack
from mombroker.core.events import ClientCommands, ClientOpened, Tick
from mombroker.core.server import AgentServer
from mombroker.core.times import SECOND
from mombroker.core.topology import Topology
from mombroker.stomp.headers import V12, text_of
from tests.store import saved_headers
from tests.store.samples import T0
from tests.store.saved_queue import FILE, QUEUE, topology


class Paris:
    """The server of a store, and what its one client is told."""

    def __init__(self, folder: Path, town: Topology):
        self.store = store.open(folder, town, "paris")
        self.server = AgentServer(town, "paris", self.store, program(town), attach, T0)
        self.told: list[Delivery] = []

    def go(self, event: object, seconds: int) -> list[Delivery]:
        """What the client is told of an event."""
        server, now, before = self.server, T0 + seconds * SECOND, len(self.told)
        server.step(event, now)
        while server.busy:
            server.turn(now)
            ready = server.ready(now)
            self.store.commit(ready.batch)
            server.committed(ready, now)
            server.check()
            self.told.extend(reply for _, some in ready.clients for reply in some if isinstance(reply, Delivery))
        return self.told[before:]

    def connect(self) -> "Paris":
        self.go(ClientOpened(1, ""), 2)
        return self

    def take(self, queue: str, seconds: int, **more: str) -> list[Delivery]:
        return self.go(ClientCommands(1, [Subscribe(f"{queue}{seconds}", (queue,), **more)]), seconds)


def test_a_queue_of_schema_2_goes_on_where_it_was(tmp_path):
    shutil.copy(FILE, tmp_path / "store.sqlite")
    assert store.verify(tmp_path) == []
    paris = Paris(tmp_path, topology())
    assert [row.body for row in paris.store.held(0, 9)] == [b"b", b"c", b"d", b"e"]
    assert [row.body for row in paris.store.items("paris/queue:orders", "p5", None, 9)] == [b"f"]
    assert [row.body for row in paris.store.items("paris/author", "h", None, 9)] == [b"body"]
    given = paris.connect().take(QUEUE, 2)
    assert [(each.body, each.count) for each in given] == [(b"c", 2), (b"d", 2), (b"e", 2), (b"f", 1)]
    assert [(each.body, each.count) for each in paris.go(Tick(), 62)] == [(b"b", 2)]
    paris.store.close()
    assert store.verify(tmp_path) == []


def sent(given: list[Delivery]) -> list[tuple[bytes, bytes]]:
    assert all(text_of(each.message, V12) == saved_headers.SENT[each.body][0] for each in given), "other headers"
    return [each.body for each in given]


def test_messages_of_schema_5_have_the_headers_that_were_sent(tmp_path):
    """They were text; now they are fields and properties, and so are they written when they are given to somebody."""
    shutil.copy(saved_headers.FILE, tmp_path / "store.sqlite")
    assert store.verify(tmp_path) == []
    paris = Paris(tmp_path, saved_headers.topology()).connect()
    assert sent(paris.take(saved_headers.QUEUE, 3, ack="individual")) == [b"2", b"3", b"4"]
    dead = paris.take("queue:DLQ.orders", 3, ack="individual")
    assert sent(dead) == [b"1"] and dead[0].message.annotations["dead-letter-from"] == saved_headers.QUEUE
    assert sent(paris.take("queue:late", 4, ack="individual")) == [b"1", b"2", b"3", b"4"]
    paris.store.close()
    paris = Paris(tmp_path, saved_headers.topology()).connect()
    assert sent(paris.take("queue:late", 5, selector="size = 7 AND JMSCorrelationID = 'c-1'")) == [b"1"]
    assert unpack(paris.told[0].message.properties) == {"color": "a:b\n", "size": 7}
    assert sent(paris.take("queue:late", 6, selector="size = 5 AND rate = 2.5 AND new AND JMSType = 't'")) == [b"2"]
    assert sent(paris.take("queue:late", 7)) == [b"3", b"4"]
    assert sent(paris.take(saved_headers.QUEUE, 7)) == [b"2", b"3", b"4"]
    paris.store.close()
    assert store.verify(tmp_path) == []


def counted(paris: Paris, queue: str) -> int:
    return paris.server.natives.agents[f"paris/{queue}"].describe()["bytes"]


def test_messages_of_schema_5_leave_as_many_bytes_as_they_have_brought(tmp_path):
    """Also when they were written anew, and beside new ones, a part of which goes."""
    old = {body: len(headers) + len(body) for body, (headers, _) in saved_headers.SENT.items()}
    shutil.copy(saved_headers.FILE, tmp_path / "store.sqlite")
    for seconds, bodies in ((3, [b"1", b"2", b"3", b"4"]), (5, [b"3", b"4"]), (7, [b"4"])):
        paris = Paris(tmp_path, saved_headers.topology()).connect()
        given = paris.take("queue:late", seconds, ack="individual")
        assert [each.body for each in given] == bodies
        assert counted(paris, "queue:late") == sum(old[body] for body in bodies)
        for each in given[: len(given) // 2]:
            paris.go(ClientCommands(1, [Disposition(each.tag)]), seconds)
        assert counted(paris, "queue:late") == sum(old[body] for body in bodies[len(bodies) // 2 :])
        paris.store.close()
