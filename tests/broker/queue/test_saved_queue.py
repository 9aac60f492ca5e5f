"""A queue that the program of schema 2 has left, with messages in every place."""

import shutil

from mombroker import store
from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Subscribe
from mombroker.core.events import ClientCommands, ClientOpened, Tick
from mombroker.core.server import AgentServer
from mombroker.core.times import SECOND
from tests.store.samples import T0
from tests.store.saved_queue import FILE, QUEUE, topology


def test_a_queue_of_schema_2_goes_on_where_it_was(tmp_path):
    shutil.copy(FILE, tmp_path / "store.sqlite")
    assert store.verify(tmp_path) == []
    opened = store.open(tmp_path, topology(), "paris")
    assert [row.body for row in opened.held(0, 9)] == [b"b", b"c", b"d", b"e"]
    assert [row.body for row in opened.items("paris/queue:orders", "p5", None, 9)] == [b"f"]
    assert [row.body for row in opened.items("paris/author", "h", None, 9)] == [b"body"]
    server = AgentServer(topology(), "paris", opened, program(topology()), attach, T0)
    told: list[tuple[bytes, int]] = []

    def go(event: object, now: int) -> None:
        server.step(event, now)
        while server.busy:
            server.turn(now)
            ready = server.ready(now)
            opened.commit(ready.batch)
            server.committed(ready, now)
            server.check()
            told.extend((r.body, r.count) for _, some in ready.clients for r in some if isinstance(r, Delivery))

    go(ClientOpened(1, ""), T0 + 2 * SECOND)
    go(ClientCommands(1, [Subscribe("s", (QUEUE,))]), T0 + 2 * SECOND)
    assert told == [(b"c", 2), (b"d", 2), (b"e", 2), (b"f", 1)]
    go(Tick(), T0 + 62 * SECOND)
    assert told[4:] == [(b"b", 2)]
    opened.close()
    assert store.verify(tmp_path) == []
