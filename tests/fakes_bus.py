"""Agent servers that are wrong on purpose: each breaks one rule of the bus, and the simulator must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.core.batch import LINK_BITS
from mombroker.core.events import LinkDown, LinkFrame, LinkFrames, LinkUp, Ready
from mombroker.core.link import Link
from mombroker.core.message import Message
from mombroker.core.names import CREATE
from mombroker.sim.node import Node, Watched, WatchedEngine
from mombroker.sim.world import MS


@contextmanager
def replaced(cls: type, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A method of the core is replaced by `make(the right one)`."""
    with patch.object(cls, name, make(getattr(cls, name))):
        yield


class ResendsUncommitted(Node):
    """After a reconnect it sends at once what the peer lacks, also what is not durable yet."""

    def post(self, event: Any) -> None:
        super().post(event)
        if isinstance(event, LinkUp) and self.up:
            server, link = self.server, self.server.neighbours.conns[event.conn]
            rows = server.reader.queue_out(link.id, link.acked, link.durable, 1000)
            for batch in (server.tx.in_flight, server.tx.rows):
                for key, data in batch.queue_out if batch else []:
                    if key >> LINK_BITS == link.id:
                        rows.append((key & ((1 << LINK_BITS) - 1), data))
            rows = [row for row in dict(rows).items() if link.next <= row[0] <= link.limit]
            if rows:
                frame = ("data", link.domain, rows[0][0], [data for _, data in rows])
                self.cluster.network.send(event.conn, self.name, [frame])
                link.next = rows[-1][0] + 1

    @staticmethod
    def believing(acknowledged: Callable[[Link, int, int], None]) -> Callable[[Link, int, int], None]:
        """It cannot object to an acknowledgement of what it has not committed."""

        def believe(link: Link, upto: int, limit: int) -> None:
            link.durable = max(link.durable, upto)
            acknowledged(link, upto, limit)

        return believe


def remembering(numbers: Callable[[Link], tuple[int, int, int, int]]) -> Callable[[Link], tuple[int, int, int, int]]:
    """The handshake tells the number that was received, durable or not."""

    def remember(link: Link) -> tuple[int, int, int, int]:
        sent, acked, _, limit = numbers(link)
        return sent, acked, link.received, limit

    return remember


class AcknowledgesFromMemory(Node):
    """A duplicate is acknowledged at once, with the number that was received, durable or not."""

    def post(self, event: Any) -> None:
        link = self.server.neighbours.conns.get(event.conn) if self.up and isinstance(event, LinkFrames) else None
        known = link.received if link else 0
        super().post(event)
        if link and self.up and any(frame[0] == "data" and frame[2] <= known for frame in event.frames):
            ack: LinkFrame = ("ack", link.domain, link.received, link.grant())
            self.cluster.network.send(event.conn, self.name, [ack])


class Blocking(Watched):
    """Takes no packets while more than two wait in one of its own out-queues."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.waiting: list[LinkFrames] = []
        super().__init__(*args, **kwargs)

    def step(self, event: object, now: int) -> None:
        if isinstance(event, LinkDown):
            self.waiting = [frames for frames in self.waiting if frames.conn != event.conn]
        if isinstance(event, LinkFrames):
            data = [frame for frame in event.frames if frame[0] == "data"]
            event.frames = [frame for frame in event.frames if frame[0] != "data"]
            self.waiting += [LinkFrames(event.peer, event.conn, data)] if data else []
        super().step(event, now)
        links = [link for consumer in self.channel.domains.values() for link in consumer.links.values()]
        while self.waiting and all(link.sent - link.acked <= 2 for link in links):
            super().step(self.waiting.pop(0), now)


class Blocked(Node):
    machine = Blocking


def behind_data(frames: Callable[[Link], list[LinkFrame]]) -> Callable[[Link], list[LinkFrame]]:
    """An acknowledgement waits until the data that was written before it has left, which waits for credit."""

    def queue(link: Link) -> list[LinkFrame]:
        granted = link.granted
        out = frames(link)
        if link.conn and link.limit < link.next <= link.sent and out and out[0][0] == "ack":
            link.granted, link.owes = granted, True
            del out[0]
        return out

    return queue


class Creating(WatchedEngine):
    """Creation is not a part of the delivery but a reaction, which now and then fails and is tried again later."""

    def __init__(self, *args: Any):
        self.failed: list[tuple[int, Message, list[str]]] = []
        super().__init__(*args)

    def deliver(self, message: Message, agents: list[str], domain: str = "", *where: Any, **when: Any) -> None:
        if message.type == CREATE and message.number % 2:
            self.failed.append((self.tx.now + 10 * MS, message, agents))
        else:
            super().deliver(message, agents, domain, *where, **when)

    def retry(self, now: int) -> None:
        while self.failed and self.failed[0][0] <= now:
            _, message, agents = self.failed.pop(0)
            super().deliver(message, agents, "retried")


class Factory(Watched):
    reacts = Creating
    engine: Creating

    @property
    def busy(self) -> bool:
        return bool(self.engine.failed) or super().busy

    def turn(self, now: int) -> None:
        self.engine.retry(now)
        super().turn(now)

    def ready(self, now: int) -> Ready:
        ready = super().ready(now)
        times = [time for time in (ready.timer, *(due for due, _, _ in self.engine.failed)) if time]
        ready.timer = min(times, default=0)
        return ready


class Retried(Node):
    machine = Factory
