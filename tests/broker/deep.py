"""A server with a very deep queue: python -m tests.broker.deep FOLDER MESSAGES BYTES.

It is filled with messages of so many bytes, starts again, and is drained of some.

Prints its peak memory in MiB after each of these as one line of JSON. A program by itself, because a process's peak
never falls.
"""

import json
import resource
import sys
from collections.abc import Iterator
from typing import Any

from mombroker import agents, store
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Disposition, Send, Subscribe
from mombroker.core.events import ClientCommands, ClientOpened
from mombroker.core.server import AgentServer
from tests.core.bus import START, topology

Q, WINDOW = "queue:deep", 1_000
TOPOLOGY = topology({})


class Server:
    def __init__(self, folder: str):
        self.store = store.open(folder, TOPOLOGY, "a")
        self.server = AgentServer(TOPOLOGY, "a", self.store, agents.program(TOPOLOGY), attach, START)
        self.server.step(ClientOpened(1, "user", "", "a/s1"), START)

    def do(self, *commands: Any) -> Iterator[Any]:
        """What the client is told until there is nothing more to do."""
        server = self.server
        server.step(ClientCommands(1, list(commands)), START)
        server.turn(START)
        while server.urgency or server.more:
            ready = server.ready(START)
            if not ready.batch.empty():
                self.store.commit(ready.batch)
            for _, replies in ready.clients:
                yield from replies
            server.committed(ready, START)
            server.turn(START)

    def stop(self) -> None:
        self.store.close()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    folder, messages, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    body = b"x" * size
    figures = {"empty": peak()}
    filled = Server(folder)
    for start in range(0, messages, WINDOW):
        for _ in filled.do(*(Send(Q, b"%d " % number + body) for number in range(start, start + WINDOW))):
            pass
    figures["filled"] = peak()
    filled.stop()
    again = Server(folder)
    assert again.server.natives.agents[f"a/{Q}"].describe()["messages"] == messages, "some are missing"
    figures["started again"] = peak()
    expected, due = 0, min(messages, 100_000)
    commands: list[Any] = [Subscribe("s", (Q,), ack="individual", prefetch=WINDOW)]
    while expected < due:
        told = [reply for reply in again.do(*commands) if isinstance(reply, Delivery)]
        for delivery in told:
            assert delivery.body.startswith(b"%d " % expected), f"{delivery.body!r} came for {expected}"
            expected += 1
        commands = [Disposition(delivery.tag) for delivery in told]
    figures["drained some"] = peak()
    again.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
