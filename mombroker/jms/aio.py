"""The client for programs of asyncio: what `mombroker.jms` does, in the tasks of one event loop, without threads.

It is the same client: where that waits, the task lets others run (loop.py). So what a method does, and what it raises,
is told there. A context is for one task at a time, but for `close`, `request` and `ask`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from mombroker import jms
from mombroker.jms.connection import PATIENCE_S, Connection, log_fault
from mombroker.jms.consumer import Wanted
from mombroker.jms.context import AUTO, REQUEST_S
from mombroker.jms.destinations import Destination, TemporaryQueue, TemporaryTopic
from mombroker.jms.errors import IllegalState, JmsError
from mombroker.jms.loop import LoopLock, LoopTransport, run
from mombroker.jms.machine import Machine
from mombroker.jms.messages import Message


async def connect(
    url: str | Iterable[str] = "stomp://localhost:61613",
    *,
    ack: str = AUTO,
    client_id: str = "",
    exclusive: bool = False,
    heartbeat: float = 10.0,
    reconnect: float = 60.0,
    on_error: Callable[[JmsError], None] = log_fault,
) -> Context:
    """A context on a new connection, which `async with` closes. Arguments and errors are those of
    `mombroker.jms.connect`; `on_error` is called in the loop."""
    urls, settings = jms.settled(url, ack, client_id, exclusive, heartbeat, reconnect, on_error)
    connection = Connection(Machine(settings), on_error, reconnect + PATIENCE_S, LoopLock())
    transport = LoopTransport(urls, connection.machine, connection.lock, connection.changed, reconnect)
    try:
        return Context(await run(jms.opened, connection, transport, ack))
    except BaseException:
        transport.end()
        raise


class Pending:
    """A message that was sent: `id`, and `done` when it is durable, or has an `error`; `await` it for that."""

    def __init__(self, pending: jms.Pending):
        self._pending = pending

    @property
    def id(self) -> str:
        return self._pending.id

    @property
    def done(self) -> bool:
        return self._pending.done

    @property
    def error(self) -> JmsError | None:
        return self._pending.error

    async def wait(self, timeout: float | None = None) -> None:
        """Raises Refused, TimedOut, ConnectionLost."""
        await run(self._pending.wait, timeout)

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()


class Producer:
    """Made by Context.producer, whose options are its defaults."""

    def __init__(self, producer: jms.Producer):
        self._producer = producer

    async def send(self, body: Any = None, **options: Any) -> Pending:
        """With wait=False it returns at once; await what it returns, or Context.flush."""
        return Pending(await run(self._producer.send, body, **options))


class Consumer:
    """Takes messages: by `receive`, or `async for`, until it is closed."""

    def __init__(self, consumer: jms.Consumer):
        self._consumer = consumer

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    @property
    def unconfirmed(self) -> list[str]:
        return self._consumer.unconfirmed

    async def receive(self, timeout: float | None = None) -> Message | None:
        return await run(self._consumer.receive, timeout)

    async def close(self) -> None:
        await run(self._consumer.close)


class Context:
    """Made by `connect`, or by `Context.context`, which shares the connection."""

    def __init__(self, context: jms.Context):
        self._context = context

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def context(self, ack: str = AUTO) -> Context:
        return Context(self._context.context(ack))

    async def close(self) -> None:
        await run(self._context.close)

    # -- sending ---------------------------------------------------------------------------------------------------

    def producer(self, destination: Destination | str | None = None, **options: Any) -> Producer:
        return Producer(self._context.producer(destination, **options))

    async def send(self, to: Destination | str, body: Any = None, **options: Any) -> Pending:
        return Pending(await run(self._context.send, to, body, **options))

    async def flush(self, timeout: float | None = None) -> None:
        await run(self._context.flush, timeout)

    async def request(
        self, to: Destination | str, body: Any = None, *, timeout: float = REQUEST_S, **options: Any
    ) -> Message:
        return await run(self._context.request, to, body, timeout=timeout, **options)

    async def ask(self, agent: Destination | str, question: Any, *, timeout: float = REQUEST_S, **options: Any) -> Any:
        return await run(self._context.ask, agent, question, timeout=timeout, **options)

    async def reply(self, message: Message, body: Any = None, **options: Any) -> Pending:
        return Pending(await run(self._context.reply, message, body, **options))

    # -- receiving -------------------------------------------------------------------------------------------------

    async def consumer(self, wanted: Wanted, **options: Any) -> Consumer:
        """The options are those of `mombroker.jms`, but for `listener`: a task that iterates is one."""
        if "listener" in options:
            raise IllegalState("a consumer of asyncio has no listener: iterate over it in a task of its own")
        return Consumer(await run(self._context.consumer, wanted, **options))

    async def browser(self, queue: Destination | str, selector: str = "") -> AsyncIterator[Message]:
        """`async for` what waits in a queue; nothing is taken."""
        each = iter(self._context.browser(queue, selector))
        try:
            while (message := await run(_next, each)) is not None:
                yield message
        finally:
            await run(each.close)  # type: ignore[attr-defined]

    async def temporary_queue(self) -> TemporaryQueue:
        return await run(self._context.temporary_queue)

    def temporary_topic(self) -> TemporaryTopic:
        return self._context.temporary_topic()

    async def delete(self, temporary: TemporaryQueue | TemporaryTopic) -> None:
        await run(temporary.delete)

    async def unsubscribe(self, durable: str) -> None:
        await run(self._context.unsubscribe, durable)

    def start(self) -> None:
        self._context.start()

    def stop(self) -> None:
        self._context.stop()

    # -- settling --------------------------------------------------------------------------------------------------

    async def acknowledge(self, message: Message | None = None, wait: bool = True) -> None:
        """Settle one message (`individual`), or all that was received; return when that is durable, unless wait=False
        says otherwise."""
        await run(self._context.acknowledge if message is None else message.acknowledge, wait)

    def reject(self, message: Message, requeue: bool | None = None) -> None:
        self._context.reject(message, requeue)

    def recover(self) -> None:
        self._context.recover()

    async def commit(self, timeout: float | None = None) -> None:
        await run(self._context.commit, timeout)

    def rollback(self) -> None:
        self._context.rollback()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Context]:
        """Commit at the end of the block; roll back if it raises."""
        try:
            yield self
        except BaseException:
            self.rollback()
            raise
        await self.commit()


def _next(each: Iterator[Message]) -> Message | None:
    return next(each, None)
