"""The messages of a session's plain topics, until they are handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.policies import Policies
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.topic.routing import Topics
from mombroker.core.transaction import Transaction

PENDING_BYTES = 64 << 20  # of what a session does not take; then the oldest go
Row = tuple[ClientMessage, str, int]  # what it takes to hand a message out again: itself, its id, its count
Deliver = Callable[[SessionConsumer, ClientMessage, str, int, Row], None]
DeliverRun = Callable[[SessionConsumer, MessageRun], None]


class TopicFeed:
    """1. Messages are handed out in the order in which they came, whatever subscription they are for: the first waits
    until its subscription has credit, and all others behind it. A subscription whose credit is explicit waits alone,
    since its client may well want what another one has, and nothing of this one.
    2. `bytes` are those of the bodies in `pending`, `alone` and `later`.

    most_bytes   of these, at most
    held       nothing is handed out
    conn       number of the connection
    deliver    hands a message to the client, and `deliver_run` a run that is settled by being written
    alarm      lets `alarm` be called at a time
    """

    __slots__ = (
        "tx", "policies", "conn", "pending", "alone", "later", "bytes", "dropped", "_complain_at", "_number",
        "_deliver", "_deliver_run", "_alarm", "topics", "most_bytes", "held",
    )  # fmt: skip

    def __init__(
        self,
        tx: Transaction,
        policies: Policies,
        topics: Topics,
        conn: int,
        deliver: Deliver,
        deliver_run: DeliverRun,
        alarm: Callable[[int], None],
    ):
        self.tx, self.policies, self.topics, self.conn = tx, policies, topics, conn
        self.pending: deque[tuple[SessionConsumer, ClientMessage, str, int]] = deque()
        self.alone: dict[SessionConsumer, deque[Row]] = {}
        self.later: list[tuple[int, int, SessionConsumer, ClientMessage, str]] = []  # delayed: a heap, by time
        self.bytes, self.most_bytes = 0, PENDING_BYTES
        self.dropped, self.held = 0, False
        self._complain_at = 1  # so many
        self._number = 0  # of what was delayed
        self._deliver, self._deliver_run, self._alarm = deliver, deliver_run, alarm

    def take(self, consumer: SessionConsumer, message: ClientMessage, id: str) -> None:
        """A message has come."""
        if message.due > self.tx.now:
            self._number += 1
            heappush(self.later, (message.due, self._number, consumer, message, id))
            self.bytes += len(message.body)
            self._alarm(message.due)
        elif not (self.pending or self.alone) and consumer.credit > 0 and consumer.room > 0 and not message.expires:
            self._hand(consumer, message, id, 1)
        else:
            self.wait(consumer, (message, id, 1), False)
            self.hand_out()
        if self.pending or self.later or self.alone:
            self._shorten(message.destination)

    def take_run(self, consumer: SessionConsumer, run: MessageRun) -> None:
        """Messages alike have come: they go in one piece where nothing waits, or would have to."""
        count, waits = len(run.ids), self.held or self.pending or self.alone or self.later
        if consumer.ack != "auto" or consumer.explicit or waits or consumer.credit < count or consumer.room <= run.size:
            for message, id in zip(run.messages, run.ids, strict=True):
                consumer.take(consumer, message, id)
            return
        consumer.credit -= count
        consumer.room -= run.size
        self._deliver_run(consumer, run)

    @property
    def count(self) -> int:
        """Of messages that wait."""
        return len(self.pending) + len(self.later) + sum(map(len, self.alone.values()))

    def wait(self, consumer: SessionConsumer, row: Row, first: bool) -> None:
        if consumer.explicit:
            rows = self.alone.setdefault(consumer, deque())
            rows.appendleft(row) if first else rows.append(row)
        else:
            self.pending.appendleft((consumer, *row)) if first else self.pending.append((consumer, *row))
        self.bytes += len(row[0].body)

    def again(self, consumer: SessionConsumer, row: Row) -> None:
        """The client gave it back: it comes next, with its count; not for ever."""
        message, id, count = row
        if count <= self.policies.of(message.destination).max_redeliveries and consumer.open:
            self.wait(consumer, (message, id, count + 1), True)
        else:
            self._drop(consumer)

    def hand_out(self) -> None:
        now = self.tx.now
        for consumer in list(self.alone) if not self.held else ():
            self._hand_out_alone(consumer, now)
        while self.pending and not self.held:
            consumer, message, id, count = self.pending[0]
            if message.expires and message.expires <= now:
                self._next()
                continue
            if consumer.credit <= 0 or consumer.room <= 0:
                return
            self._next()
            self._hand(consumer, message, id, count)

    def _hand_out_alone(self, consumer: SessionConsumer, now: int) -> None:
        rows = self.alone[consumer]
        while rows and consumer.credit > 0 and consumer.room > 0:
            message, id, count = rows.popleft()
            self.bytes -= len(message.body)
            if not message.expires or message.expires > now:
                self._hand(consumer, message, id, count)
        if not rows:
            del self.alone[consumer]

    def _hand(self, consumer: SessionConsumer, message: ClientMessage, id: str, count: int) -> None:
        consumer.credit -= 1
        consumer.room -= len(message.body)
        self._deliver(consumer, message, id, count, (message, id, count))

    def _next(self) -> SessionConsumer:
        consumer, message, _, _ = self.pending.popleft()
        self.bytes -= len(message.body)
        return consumer

    def _due(self) -> tuple[SessionConsumer, ClientMessage, str]:
        _, _, consumer, message, id = heappop(self.later)
        self.bytes -= len(message.body)
        return consumer, message, id

    def alarm(self) -> None:
        while self.later and self.later[0][0] <= self.tx.now and not self.held:
            self.take(*self._due())

    def _shorten(self, topic: str) -> None:
        """Of what waits too long the oldest goes; of what is delayed, what would have come first."""
        limit = self.policies.of(topic).max_pending
        while self.count > limit or self.bytes > self.most_bytes:
            self._drop(self._oldest())

    def _oldest(self) -> SessionConsumer:
        """Take out what goes first; whose it was."""
        if self.pending:
            return self._next()
        if not self.alone:
            return self._due()[0]
        consumer = max(self.alone, key=lambda each: len(self.alone[each]))
        message, _, _ = self.alone[consumer].popleft()
        self.bytes -= len(message.body)
        if not self.alone[consumer]:
            del self.alone[consumer]
        return consumer

    def _drop(self, consumer: SessionConsumer) -> None:
        """The client does not get a message; the log says so now and then."""
        consumer.dropped += 1
        self.dropped += 1
        self.topics.dropped += 1
        if self.dropped >= self._complain_at:
            self._complain_at *= 10
            self.tx.note(
                f"client {self.conn} does not take the messages of its topics in time, here of its subscription "
                f"{ascii(consumer.sub)[:80]}: {self.dropped} dropped so far; see max_pending of the topic's policy"
            )

    def leave(self, consumer: SessionConsumer) -> None:
        """Its subscription has ended."""
        self.pending = deque(entry for entry in self.pending if entry[0] is not consumer)
        self.alone.pop(consumer, None)
        self.later = sorted(entry for entry in self.later if entry[2] is not consumer)
        self.bytes = self._bytes()
        self.hand_out()

    def clear(self) -> None:
        self.pending.clear()
        self.alone.clear()
        self.later.clear()
        self.bytes = 0

    def _bytes(self) -> int:
        waiting = [message for _, message, _, _ in self.pending] + [message for _, _, _, message, _ in self.later]
        waiting += [message for rows in self.alone.values() for message, _, _ in rows]
        return sum(len(message.body) for message in waiting)

    def check(self) -> None:
        assert self.bytes == self._bytes(), "2: bytes that wait miscounted"
        assert all(self.alone.values()), "an empty line is kept"
