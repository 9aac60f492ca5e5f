"""Links of a session: those that a client sends by, and those that it receives by."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mombroker.amqp import codec
from mombroker.amqp.alike import Model
from mombroker.amqp.codec import AmqpError
from mombroker.amqp.performatives import SPACE, Terminus, Transfer
from mombroker.broker.commands import MAX_PREFETCH, Delivery

TAGGED = b"\xa0\x04"  # between the number of a delivery and its tag, which is the same
CREDIT = 1_000  # deliveries that a client may send before they are answered
Values = tuple[Any, ...]
Flow = Callable[[int, int, int, bool], bytes]  # of handle, count, credit, drain


class Incoming:
    """What a client sends by.

    destination   empty: each message says it
    credit        what the client may still send, `count` what it has begun so far
    unanswered    deliveries that have come and have no outcome yet
    model         what messages have that are like the last one, and `values`, what they ask for; None: nothing is known
    made          the temporary destination that ends with it
    coordinator   of transactions
    last          number of the last delivery, while others may join its command; else -1
    """

    __slots__ = (
        "name", "handle", "destination", "credit", "count", "unanswered", "model", "values", "last", "partial",
        "size", "first", "dead", "made", "coordinator",
    )  # fmt: skip

    def __init__(self, name: str, handle: int, destination: str, count: int):
        self.name, self.handle, self.destination = name, handle, destination
        self.credit, self.count, self.unanswered = 0, count, 0
        self.model: Model | None = None
        self.values: Values = ()
        self.last = -1
        self.partial: list[bytes] = []  # of a delivery that is not whole
        self.size = 0
        self.first: Transfer | None = None  # its first transfer
        self.dead = False  # it is refused already
        self.made = ""
        self.coordinator = False

    def begin(self, transfer: Transfer) -> None:
        """A delivery begins, and has credit."""
        self.credit -= 1
        self.count = (self.count + 1) % SPACE
        self.first, self.size, self.dead = transfer, 0, False

    def over(self) -> tuple[list[bytes], int]:
        """The delivery has ended: its pieces, and how many bytes they have."""
        pieces, size = self.partial, self.size
        self.partial, self.size, self.first = [], 0, None
        return pieces, size

    def room(self) -> int:
        """The credit that it should have, if it should have another one now; else 0."""
        wanted = CREDIT - self.unanswered
        return wanted if wanted - self.credit >= CREDIT // 2 else 0


class Outgoing:
    """What a client receives by.

    sub        the broker's name of it
    settled    deliveries are settled by being written
    credit     what the client still takes, `count` what it was given so far
    granted    of the credit, what the broker has and has not used
    unsettled  deliveries that the client has and has not settled
    pending    deliveries that wait for credit, the window, or the link to be there
    draining   the broker has not yet said that it has nothing more; `drained`, it has, and some of it is pending
    flow_said  makes a flow of it
    durable    the durable subscription, which ends with the link if that is closed
    made       the temporary destination that ends with it
    """

    __slots__ = (
        "name", "handle", "sub", "source", "settled", "credit", "count", "granted", "unsettled", "pending", "durable",
        "made", "attached", "draining", "drained", "flow_said", "head",
        "end", "common",
    )  # fmt: skip

    def __init__(self, name: str, handle: int, sub: str, source: Terminus, settled: bool, channel: int):
        self.name, self.handle, self.sub, self.source, self.settled = name, handle, sub, source, settled
        self.credit = self.count = self.granted = self.unsettled = 0
        self.pending: deque[Delivery] = deque()
        self.durable = self.made = ""
        self.attached = self.draining = self.drained = self.common = False
        self.flow_said: Flow | None = None
        told = codec.uint(handle)
        start = bytes((0x00, 0x53, 0x14, 0xC0, len(told) + 14, 5))
        self.head = b"\x02\x00" + channel.to_bytes(2, "big") + start + told + b"\x70"
        self.end = b"\x43" + codec.boolean(settled)

    def flow(self, count: int, credit: int) -> None:
        """What the client takes, and what it had been given when it said so."""
        since = (self.count - count) % SPACE  # given to it in the meantime
        self.credit = max(0, credit - since) if since < SPACE // 2 else credit

    def lacks(self) -> int:
        """How much more credit the broker should have."""
        under_way = self.granted + len(self.pending)
        # The broker counts what is settled by being written until it hears of that.
        most = MAX_PREFETCH // 2 if self.settled else MAX_PREFETCH
        return max(0, min(self.credit - under_way, most - under_way - self.unsettled))

    def gave(self, count: int) -> None:
        """It was given so many."""
        self.credit -= count
        self.count = (self.count + count) % SPACE
        if not self.settled:
            self.unsettled += count

    def transfer(self, delivery_id: int, parts: tuple[bytes, ...], most: int) -> bytes | list[bytes]:
        """The frame of a delivery, or the frames, each of at most `most` bytes. `parts`: of its message."""
        id, payload = delivery_id.to_bytes(4, "big"), b"".join(parts)
        before, between, size = self.around(b"", len(payload))
        if size <= most:
            return b"".join((before, id, TAGGED, id, between, payload))
        return self._several(id, payload, most)

    def around(self, lead: bytes, more: int) -> tuple[bytes, bytes, int]:
        """What stands before the number of a delivery, and behind its tag up to what leads its message, of which so
        many bytes follow; and the size of the frame."""
        between = self.end + lead
        size = 4 + len(self.head) + 4 + len(TAGGED) + 4 + len(between) + more
        return size.to_bytes(4, "big") + self.head, between, size

    def _several(self, id: bytes, payload: bytes, most: int) -> list[bytes]:
        """With `more` behind the other fields."""
        told = self.head[10:]  # the handle, and the code of the number behind it
        frames, at = list[bytes](), 0
        while at < len(payload) or not frames:
            body = b"".join((told, id, TAGGED, id, self.end))
            room = most - len(self.head) - 32
            more = at + room < len(payload)
            body += codec.boolean(more)
            start = b"".join((self.head[:4], b"\x00\x53\x14\xc0", bytes((len(body) + 1, 6)), body))
            piece = payload[at : at + room]
            frames.append(b"".join(((len(start) + 4 + len(piece)).to_bytes(4, "big"), start, piece)))
            at += room
        return frames


def too_large(most: int) -> AmqpError:
    return AmqpError(f"a message of over {most} bytes: send less, or raise max_message in [limits]", _TOO_LARGE)


_TOO_LARGE = "amqp:link:message-size-exceeded"
