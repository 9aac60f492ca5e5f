"""Timers: what happens at a given time, and deferred functions, which run outside the server until they end."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from mombroker.core.batch import EVERY, Reader, TaskRow
from mombroker.core.errors import MomError, PeerError
from mombroker.core.message import Message, decode, new_message
from mombroker.core.transaction import COMMIT, LINGER, Transaction

RETRY, ALARM = 0, -1


def rings(task: TaskRow) -> bool:
    """Is it a timer?"""
    return task.sort == "timer" or task.kind.startswith(EVERY)


class Timers:
    """1. A task, which is an agent's timer or deferred function, has its row until it is over.
    2. Retries and alarms are in memory only: who needs them sets them again after a start.

    notice     packs a named notification
    heap       (due, task id, agent); instead of a task RETRY or ALARM
    next       the time of the earliest of them; 0 = none
    brought    (agent, id that it knows) -> task, of agents that have moved here
    deferred   functions that the driver is to run: task id, path, arguments
    on_retry   called with (agent, time) when the time of a reaction that failed has come
    on_alarm   called with the native agent whose time has come
    """

    __slots__ = (
        "tx",
        "notice",
        "send",
        "unreadable",
        "heap",
        "next",
        "tasks",
        "brought",
        "deferred",
        "on_retry",
        "on_alarm",
    )

    def __init__(
        self,
        tx: Transaction,
        notice: Callable[..., tuple[str, bytes]],
        send: Callable[[Message], None],
        unreadable: Callable[[bytes, str, MomError], None],
    ):
        self.tx, self.notice, self.send, self.unreadable = tx, notice, send, unreadable
        self.heap: list[tuple[int, int, str]] = []
        self.next = 0
        self.tasks: dict[int, TaskRow] = {}
        self.brought: dict[tuple[str, int], int] = {}
        self.deferred: list[tuple[int, str, bytes]] = []
        self.on_retry: Callable[[str, int], None]
        self.on_alarm: Callable[[str], None]

    def recover(self, reader: Reader) -> None:
        for task in reader.tasks():
            self._schedule(task)

    # -- tasks -------------------------------------------------------------------------------------------------

    def add(self, task: TaskRow) -> None:
        self.tx.rows.tasks[task.id] = task
        self._schedule(task)
        self.tx.urgency = COMMIT

    def cancel(self, agent: str, shown: int) -> None:
        """Delete a task of an agent, by the id that it knows; nothing if it is over."""
        task = self.tasks.get(self.brought.get((agent, shown), shown))
        if task and (task.agent, task.shown) == (agent, shown):
            self.drop_task(task)

    def drop_task(self, task: TaskRow) -> None:
        self._over(task)
        self.tx.urgency = COMMIT

    def _over(self, task: TaskRow) -> None:
        del self.tasks[task.id]
        self.brought.pop((task.agent, task.shown), None)
        self.tx.rows.tasks[task.id] = None

    def drop(self, agent: str) -> None:
        """An agent was deleted: delete its tasks."""
        for task in [task for task in self.tasks.values() if task.agent == agent]:
            self.drop_task(task)

    def done(self, id: int, payload: bytes | None, reason: str) -> None:
        """A deferred function ended; only the first end counts."""
        task = self.tasks.get(id)
        if task:
            self._over(task)
            size, limit = len(payload or b""), self.tx.limits.max_message
            if size > limit:
                payload, reason = None, f"its result of {size} bytes is over the limit of {limit}"
            if payload is None:
                type_, body = self.notice("DeferFailed", task=task.shown, reason=reason)
            else:
                type_, body = self.notice("DeferDone", task=task.shown, packed=payload)
            self.send(new_message(self.tx, task.agent, (task.agent,), type_, body))

    def _schedule(self, task: TaskRow) -> None:
        self.tasks[task.id] = task
        if task.shown != task.id:
            self.brought[task.agent, task.shown] = task.id
        if rings(task):
            self._set(task.due, task.id, task.agent)
        else:
            path, _, arguments = task.data.partition(b"\n")
            self.deferred.append((task.id, path.decode(), arguments))

    # -- times -------------------------------------------------------------------------------------------------

    def alarm(self, at: int, agent: str = "") -> None:
        """Let there be a turn when a time has come, in which a native agent is told of it."""
        if not self.next or at < self.next:
            self.tx.urgency = self.tx.urgency or LINGER  # so that the driver learns of it
        self._set(at, ALARM, agent)

    def retry(self, at: int, agent: str) -> None:
        self._set(at, RETRY, agent)

    def _set(self, at: int, id: int, agent: str) -> None:
        heappush(self.heap, (at, id, agent))
        self.next = self.heap[0][0]

    def tick(self) -> None:
        """Do what is due."""
        while 0 < self.next <= self.tx.now:
            at, id, agent = heappop(self.heap)
            self.next = self.heap[0][0] if self.heap else 0
            self.tx.urgency = self.tx.urgency or LINGER  # so that the driver learns of the next one
            if id == ALARM:
                self.on_alarm(agent)
            elif id == RETRY:
                self.on_retry(agent, at)
            elif task := self.tasks.get(id):
                if task.kind.startswith(EVERY):
                    self._again(task)
                else:
                    self._over(task)
                self._ring(task)

    def _again(self, task: TaskRow) -> None:
        """A timer that comes again: at the next time of its own that is still to come."""
        period = int(task.sort[len(EVERY) :])
        self.add(task._replace(due=self.tx.now + period - (self.tx.now - task.due) % period))

    def _ring(self, task: TaskRow) -> None:
        """Send the message of a timer to its agent."""
        try:
            message = decode(task.data)
        except PeerError as error:
            self.unreadable(task.data, task.agent, error)
        else:
            self.send(new_message(self.tx, message.source, message.dests, message.type, message.payload))

    def check(self) -> None:
        assert self.next == min(self.heap, default=(0,))[0], "the earliest time is another one"
        ringing = {id for _, id, _ in self.heap}
        assert all(not rings(task) or id in ringing for id, task in self.tasks.items()), "a timer will never ring"
