"""How the client waits in an event loop: each call is a greenlet, which gives the loop what it waits for."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

try:
    import greenlet
except ImportError as error:
    raise ImportError("mombroker.jms.aio needs greenlet: pip install 'mombroker[aio]'") from error

from mombroker.jms.errors import IllegalState
from mombroker.jms.transport import Ready, Transport, dial
from mombroker.jms.url import Url

P = ParamSpec("P")
T = TypeVar("T")


class _Call(greenlet.greenlet):  # type: ignore[misc, unused-ignore]
    """One call; its parent is the task that awaits it."""


async def run(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a function returns that waits by `wait`. If the task is cancelled, it is where the function waits."""
    task = greenlet.getcurrent()
    call = _Call(function, task)
    call.gr_context = task.gr_context
    given = call.switch(*arguments, **options)
    while not call.dead:
        try:
            value = await given
        except BaseException:  # it is the function's, which may have something to leave in order
            given = call.throw(*sys.exc_info())
        else:
            given = call.switch(value)
    result: T = given
    return result


def wait(awaitable: Awaitable[T]) -> T:
    """Let others run until it is done, and return what it is. Within `run`."""
    call = greenlet.getcurrent()
    if not isinstance(call, _Call):
        if asyncio.iscoroutine(awaitable):
            awaitable.close()
        raise IllegalState("this waits for an answer: await it, by the method of the same name of mombroker.jms.aio")
    result: T = call.parent.switch(awaitable)
    return result


class LoopLock:
    """What a Condition is among threads. Tasks run one at a time, up to where they wait: there is nothing to lock."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: set[asyncio.Future[None]] = set()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None:
        for future in self.waiting:
            _finish(future)

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:
        """Until it is true, or the time is over; what it says then."""
        end = None if timeout is None else self.loop.time() + timeout
        while not (found := predicate()):
            left = None if end is None else end - self.loop.time()
            if left is not None and left <= 0:
                break
            future = self.loop.create_future()
            alarm = None if left is None else self.loop.call_later(left, _finish, future)
            self.waiting.add(future)
            try:
                wait(future)
            finally:
                self.waiting.discard(future)
                if alarm is not None:
                    alarm.cancel()
        return found


class LoopReady(Ready):
    """The same by the loop's own selector."""

    def __init__(self, sock: socket.socket, woken: socket.socket):
        self.sock, self.woken, self.loop = sock, woken, asyncio.get_running_loop()
        self.future: asyncio.Future[None] | None = None
        self.readable = self.writes = False
        self.loop.add_reader(sock, self._seen, True)
        self.loop.add_reader(woken, self._seen, False)

    def __exit__(self, *_: object) -> None:
        self.loop.remove_reader(self.sock)
        self.loop.remove_reader(self.woken)
        self.loop.remove_writer(self.sock)

    def wait(self, writes: bool, seconds: float | None) -> bool:
        if writes != self.writes:
            self.writes = writes
            if writes:
                self.loop.add_writer(self.sock, self._seen, False)
            else:
                self.loop.remove_writer(self.sock)
        self.readable = False
        self.future = self.loop.create_future()
        alarm = None if seconds is None else self.loop.call_later(seconds, _finish, self.future)
        try:
            wait(self.future)
        finally:
            if alarm is not None:
                alarm.cancel()
        return self.readable

    def _seen(self, readable: bool) -> None:
        self.readable = self.readable or readable
        if not readable:
            self._drain()
        assert self.future is not None, "the loop says something before anybody has waited"
        _finish(self.future)

    def _drain(self) -> None:
        try:
            self.woken.recv(4096)
        except BlockingIOError:
            pass  # it was the socket, which can be written


class LoopTransport(Transport):
    """The same as a task. To dial, which the system blocks for, it takes a thread of the loop's."""

    task: asyncio.Task[None]

    def start(self) -> None:
        self._woken.setblocking(False)
        self.task = asyncio.get_running_loop().create_task(run(self._run))

    def _dial(self, url: Url) -> socket.socket:
        return wait(asyncio.get_running_loop().run_in_executor(None, dial, url))

    def _pause(self, seconds: float) -> None:
        with LoopReady(self._woken, self._woken) as ready:
            ready.wait(False, seconds)

    def _ready(self, sock: socket.socket) -> Ready:
        return LoopReady(sock, self._woken)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
