"""Consumer and Browser: one subscription each, to a queue or to topics, and what it has been sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mombroker.broker.selectors import SelectorError, compile
from mombroker.jms import checks
from mombroker.jms.destinations import Destination, Owner, to_consume
from mombroker.jms.errors import ConnectionLost, IllegalState, InvalidDestination, InvalidSelector, JmsError, TimedOut
from mombroker.jms.machine import Headers, Subscription
from mombroker.jms.messages import Message
from mombroker.stomp.frames import Frame

if TYPE_CHECKING:
    from mombroker.jms.context import Context

Wanted = Destination | str | Sequence[Destination | str]
Listener = Callable[[Message], None]

INDIVIDUAL, DUPS_OK = "individual", "dups-ok"
KNOWN = frozenset(("selector", "durable", "shared", "no_local", "prefetch", "exclusive", "priority", "take_over"))
MAX_RETURNED = 1_000  # ids of what was given back because it had expired
LAZY = 20  # messages that are acknowledged at once, at most, with dups-ok


def subscription(
    wanted: Wanted,
    name: str,
    *,
    ack: str,
    selector: str = "",
    durable: str = "",
    shared: str | bool = False,
    no_local: bool = False,
    prefetch: int = 0,
    exclusive: bool = False,
    priority: int = 0,
    take_over: bool = True,
    client_id: str = "",
    connection: Owner | None = None,
) -> tuple[Headers, bool]:
    """The headers of SUBSCRIBE, and whether the server keeps what it has sent for the next one who comes. Raises
    InvalidDestination, InvalidSelector, IllegalState."""
    shown, topics = to_consume(wanted, connection)
    headers = {"id": name, "destination": shown, "ack": ack}
    checks.text("selector", selector, InvalidSelector)
    checks.text("durable", durable)
    for option, value in (("no_local", no_local), ("exclusive", exclusive), ("take_over", take_over)):
        checks.flag(option, value)
    checks.whole("prefetch", prefetch)
    checks.whole("priority", priority)
    if shared is not True and shared is not False:
        checks.text("shared", shared)
    if selector:
        try:
            compile(selector)
        except SelectorError as error:
            raise InvalidSelector(str(error)) from None
        headers["selector"] = selector
    if (durable or shared) and (not topics or shown.startswith("/temp-")):
        raise InvalidDestination(f"{shown}: durable and shared subscriptions are to topics; queues are as they are")
    if durable:
        checks.name("durable", durable)
        if shared is not True and shared:
            raise IllegalState("a durable subscription has one name: durable=NAME, and shared=True if it is shared")
        if not shared and not client_id:
            raise IllegalState("a durable subscription needs connect(..., client_id=NAME), or shared=True")
        headers["durable-subscription-name"] = durable
        if shared:
            headers["shared"] = "true"
        if not take_over:
            headers["take-over"] = "false"
    elif shared is True:
        raise IllegalState("a shared subscription needs a name: shared=NAME, or durable=NAME to be durable, too")
    elif shared:
        checks.name("shared", shared)
        headers["shared-subscription-name"] = shared
    for option, value in (("no-local", no_local), ("exclusive", exclusive)):
        if value:
            headers[option] = "true"
    if prefetch < 0 or abs(priority) > checks.MOST:
        raise IllegalState("prefetch is a number of messages, and priority a whole number of up to 18 digits")
    if prefetch:
        headers["prefetch-count"] = str(min(prefetch, checks.MOST))
    if priority:
        headers["x-priority"] = str(priority)
    return headers, not shown.startswith("/temp-") and (not topics or bool(durable or shared))


class Consumer:
    """1. Messages leave `waiting` in the order in which they came.

    waiting   (arrival, message): not handed out yet
    """

    def __init__(self, context: Context, wanted: Wanted, listener: Listener | None, **options: object):
        self.context = context
        self.connection = context.connection
        self.name = f"s{self.connection.number()}"
        checks.options("a consumer", options, KNOWN)
        if listener is not None:
            checks.function("listener", listener)
        wire = {INDIVIDUAL: "client-individual", DUPS_OK: "client"}
        headers, self.kept = subscription(
            wanted,
            self.name,
            ack=wire.get(context.ack, "client-individual"),
            client_id=self.connection.machine.settings.client_id,
            connection=self.connection,
            **options,  # type: ignore[arg-type]
        )
        self.waiting: deque[tuple[int, Message]] = deque()
        self._returned: set[str] = set()  # ids of what had expired here; if they come again the server knows better
        self.listener: Listener | None = None
        self.closed = False
        self.unconfirmed: list[str] = []
        self._failed: JmsError | None = None
        self._lazy: Message | None = None  # the last that was handed out and is not acknowledged, with dups-ok
        self._lazy_count = 0
        self._sub = Subscription(self.name, headers, self._take, self._lost, self._end)
        call = self.connection.subscribe(self._sub)
        try:
            confirmed = self.connection.wait(call).unconfirmed
        except JmsError:
            self.connection.unsubscribe(self._sub)
            raise
        self.unconfirmed = confirmed.split(",") if confirmed else []
        context.consumers.append(self)
        if listener is not None:
            self.listen(listener)

    # -- from the machine, under the lock ----------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        message = Message(frame, self.connection.machine.epoch, self)
        self.waiting.append((self.connection.number(), message))

    def _lost(self) -> None:
        """What the server keeps for us comes again; what it does not, we have."""
        self._lazy, self._lazy_count = None, 0
        if self.kept:
            self.waiting.clear()
        for _, message in self.waiting:
            message.ack = ""

    def _end(self, error: JmsError) -> None:
        self._failed = error

    # -- for the program ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Until the consumer is closed."""
        while (message := self.receive()) is not None:
            yield message

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when there was none for `timeout` seconds, or the consumer has been closed.

        Raises ConnectionLost or Refused when nothing more can come, IllegalState when the transaction is too long.
        """
        timeout = checks.timeout(timeout)
        with self.connection.lock:
            if self.listener is not None:
                raise IllegalState("this consumer has a listener, which gets its messages")
            self.connection.wait_for(lambda: self._ready() or self.closed or self._failed is not None, timeout)
            if self._ready():
                self.check_room()
                return self.hand_out()
            if self._failed is not None and not self.closed:
                raise type(self._failed)(str(self._failed))
            return None

    def listen(self, listener: Listener) -> None:
        """Have each message passed to `listener` by the context's thread; a message counts as consumed when it returns.

        If it raises, the message is given back (auto, dups-ok, individual) or the transaction rolled back (transacted).
        """
        checks.function("listener", listener)
        with self.connection.lock:
            if self.closed or self.context.closed:
                raise IllegalState("this consumer is closed")
            self.listener = listener
            self.context.listen()

    def close(self) -> None:
        """No more messages; those that were not handed out go back. What was handed out can still be acknowledged."""
        with self.connection.lock:
            if self.closed:
                return
            self.closed = True
            self.connection.lock.notify_all()
            self.context.await_listener(self)
            self.acknowledge_lazily()
            self.connection.unsubscribe(self._sub)
            self.context.give_back([], self.clear())
            if self in self.context.consumers:
                self.context.consumers.remove(self)

    # -- for the context, under the lock -------------------------------------------------------------------------------

    def _ready(self) -> bool:
        if self.closed or not self.connection.started:
            return False
        while self.waiting and self._expired(self.waiting[0][1]):
            self._drop(self.pop())
        return bool(self.waiting)

    def _expired(self, message: Message) -> bool:
        expires = message.expires
        return expires is not None and expires <= self.connection.carrier.now() and message.id not in self._returned

    def _drop(self, message: Message) -> None:
        """It has expired while it waited here: its queue does with it what its policy says."""
        self.acknowledge_lazily()
        if not self.kept:
            self.context.tell("ACK", message)
            return
        if len(self._returned) >= MAX_RETURNED:
            self._returned.clear()
        self._returned.add(message.id)
        self.context.give_back([], [message])

    def check_room(self) -> None:
        """Raises IllegalState if the next message is too much for the transaction."""
        self.context.check_room(0 if self.kept else len(self.waiting[0][1].raw))

    @property
    def destination(self) -> str:
        """As it is written to the server."""
        return str(self._sub.headers["destination"])

    def next_for_listener(self) -> int | None:
        """Which arrival it was, of what waits for the listener."""
        return self.waiting[0][0] if self.listener is not None and self._ready() else None

    def hand_out(self) -> Message:
        message = self.pop()
        self.context.received(message, self)
        return message

    def pop(self) -> Message:
        return self.waiting.popleft()[1]

    def settle(self, message: Message) -> None:
        """It is consumed, in a mode in which the program does not say so."""
        if self.context.ack != DUPS_OK:
            self.context.tell("ACK", message)
            return
        self._lazy = message
        self._lazy_count += 1
        if self._lazy_count >= LAZY or not self.waiting:
            self.acknowledge_lazily()

    def acknowledge_lazily(self) -> None:
        """One acknowledgement for all of the last."""
        if self._lazy is not None:
            self.context.tell("ACK", self._lazy)
            self._lazy, self._lazy_count = None, 0

    def clear(self) -> list[Message]:
        """What nobody has seen."""
        waiting, self.waiting = self.waiting, deque()
        return [message for _, message in waiting]


class Browser:
    """What waits in a queue, in order, each time that it is iterated over; nothing is taken."""

    def __init__(self, context: Context, queue: Destination | str, selector: str = ""):
        self.context, self.queue, self.selector = context, queue, selector
        if to_consume(queue)[1]:
            raise InvalidDestination(f"{queue}: only a queue can be browsed")
        subscription(queue, "", ack="auto", selector=selector)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def __iter__(self) -> Iterator[Message]:
        """Raises ConnectionLost, TimedOut, InvalidSelector."""
        connection = self.context.connection
        name = f"b{connection.number()}"
        headers, _ = subscription(self.queue, name, ack="auto", selector=self.selector, connection=connection)
        waiting: deque[Frame] = deque()
        lost: list[JmsError] = []

        def was_lost() -> None:
            lost.append(ConnectionLost("the connection was lost while browsing: browse again"))

        sub = Subscription(name, {**headers, "browser": "true"}, waiting.append, was_lost, lost.append)
        connection.subscribe(sub)
        try:
            while True:
                with connection.lock:
                    if not connection.wait_for(lambda: waiting or lost, connection.patience):
                        raise TimedOut(f"nothing of {self.queue} came for {connection.patience:g} s")
                    if not waiting:
                        raise lost[0]
                    frame = waiting.popleft()
                if frame.headers.get("browser") == "end":
                    return
                yield Message(frame, connection.machine.epoch)
        finally:
            connection.unsubscribe(sub)
