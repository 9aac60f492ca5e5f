"""A connection is lost with very many messages unsettled, at any moment between two commits: all of it is given again.

What a queue has to give, and a consumer would take, never lies idle: the server is asked so after its turns.
"""

from random import Random

import pytest

from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Send, Subscribe
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.settlement import Settlement
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote, Ready
from mombroker.core.limits import Limits
from mombroker.core.server import AgentServer
from mombroker.store.memory import MemoryStore
from tests.broker.bench import ALONE
from tests.core.bus import START
from tests.fakes_bus import replaced
from tests.fakes_clients import once_a_batch

Q = "queue:orders"


class Server:
    """Turns, and the begins and ends of commits, come in any order that a driver may have them in."""

    def __init__(self, rng: Random, limits: Limits):
        self.rng = rng
        self.store = MemoryStore(ALONE, "a", "store of a")
        self.server = AgentServer(ALONE, "a", self.store, program(ALONE), attach, START, limits)
        self.checked = 1.0  # the share of turns after which all is checked
        self.flying: Ready | None = None
        self.got: dict[int, list[bytes]] = {1: [], 2: []}

    def step(self, event: object) -> None:
        self.server.step(event, START)
        for _ in range(self.rng.randrange(4)):
            self.go_on()

    def go_on(self) -> bool:
        """One thing that a driver might do next; False if there is none."""
        server = self.server
        if self.flying is None and (server.urgency or server.more) and self.rng.random() < 0.5:
            self.flying = server.ready(START)
            self.store.begin(self.flying.batch)
        elif self.flying is not None and self.rng.random() < 0.5:
            self.store.finish()
            for conn, replies in self.flying.clients:
                told = [reply for reply in replies if isinstance(reply, Delivery)]
                self.got[conn] += [reply.body for reply in told]
                if told:
                    server.step(ClientWrote(conn, told[-1].tag), START)
            server.committed(self.flying, START)
            self.flying = None
        elif server.busy:
            server.turn(START)
            if self.rng.random() < self.checked:
                server.check()
        return self.flying is not None or server.busy

    def rest(self) -> None:
        while self.go_on():
            pass
        self.server.check()


def lose(seed: int, most: int) -> tuple[int, int]:
    """A run; how many messages there were, and how many were left with nobody."""
    rng = Random(seed)
    count = int(most ** rng.random())
    limits = Limits(turn_work=rng.choice((7, 100, 500)), batch_bytes=rng.choice((20_000, 4 << 20)))
    run = Server(rng, limits)
    run.checked = min(1.0, 300 / count)
    for conn in (1, 2):
        run.step(ClientOpened(conn, "user", "", f"a/s{conn}"))
    run.step(ClientCommands(1, [Send(Q, b"%d" % number, shown=Q) for number in range(count)]))
    run.rest()
    run.step(ClientCommands(1, [Subscribe("s", (Q,), ack="individual", prefetch=max(1, min(count, 10_000)))]))
    unsettled = rng.choice((count, rng.randint(0, count)))
    while len(run.got[1]) < unsettled and run.go_on():
        pass
    run.step(ClientClosed(1))
    run.step(ClientCommands(2, [Subscribe("s", (Q,), ack="auto")]))
    run.rest()
    assert sorted(run.got[2], key=int) == run.got[2] == [b"%d" % number for number in range(count)]
    queue = run.server.natives.agents["a/" + Q]
    assert isinstance(queue, Queue)
    return count, queue.messages.count


def test_what_a_lost_connection_had_is_given_at_once():
    runs = [lose(seed, 400) for seed in range(40)]
    assert all(left == 0 for _, left in runs) and max(count for count, _ in runs) > 200


@pytest.mark.long
def test_what_a_lost_connection_had_is_given_at_once_in_three_thousand_runs():
    runs = [lose(seed, 5_000) for seed in range(3_000)]
    assert all(left == 0 for _, left in runs) and max(count for count, _ in runs) > 4_900


@pytest.mark.interpreted
def test_a_queue_that_takes_back_once_in_a_batch_is_found_idle():
    with replaced(Settlement, "take_back", once_a_batch), pytest.raises(AssertionError, match="left lying"):
        for seed in range(40):
            lose(seed, 400)
