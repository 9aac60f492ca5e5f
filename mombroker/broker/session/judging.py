"""Subscriptions that are judged again, since what their users may has changed: some of them in each turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mombroker.broker.access.globs import STEPS, Steps
from mombroker.broker.access.guard import Needs
from mombroker.broker.access.permission import Rights
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.session import Session
from mombroker.core.turns import Turns

AGAIN = 10 * STEPS  # that all subscriptions of a user may take together
STEPS_OF_WORK = 50  # that take as long as a unit of a turn's work: some ten microseconds


class Change:
    """What was found since some rights have changed: the same is asked once, and for all users with the same rights."""

    __slots__ = ("left", "judged")

    def __init__(self) -> None:
        self.left: dict[str, Steps] = {}  # of each user
        self.judged: dict[tuple[Rights | None, Needs], str] = {}


class Judging:
    """1. As long as a subscription of a session is to be judged, nothing is handed to that session: what comes for it
    waits, in the order in which it has come.
    2. Each turn judges one at least, and no more when its work is used up.

    waiting   sessions, the longest waiting first, with their subscriptions
    urgent    those of them for which too much waits: they are judged whole, whatever work is left
    """

    __slots__ = ("waiting", "urgent")

    def __init__(self) -> None:
        self.waiting: dict[Session, tuple[Change, deque[SessionConsumer]]] = {}
        self.urgent: dict[Session, None] = {}

    def begin(self, session: Session, change: Change) -> None:
        """All that it has is to be judged by the guard that it has now."""
        self.waiting.pop(session, None)
        self.waiting[session] = change, deque(session.subs.values())
        session.hold()

    def pending(self, session: Session) -> Iterable[SessionConsumer]:
        return self.waiting[session][1] if session in self.waiting else ()

    def forget(self, session: Session) -> None:
        self.waiting.pop(session, None)

    def go_on(self, turns: Turns) -> None:
        """As much as fits into the turn."""
        urgent, self.urgent = self.urgent, {}
        for session in urgent:
            while session in self.waiting:
                turns.work -= self._judge(session)
        while self.waiting:
            turns.work -= self._judge(next(iter(self.waiting)))
            if turns.work <= 0:
                return

    def _judge(self, session: Session) -> int:
        """One subscription of it; the work that this was."""
        change, consumers = self.waiting[session]
        consumer, guard, steps = consumers.popleft(), session.guard, 0
        if consumer.open and guard is not None:
            asked = guard.rights, consumer.needs
            if asked not in change.judged:
                left = change.left.setdefault(session.user, Steps(AGAIN))
                steps = left.left
                change.judged[asked] = guard.lacks(consumer.needs, left)
                steps -= left.left
            if reason := change.judged[asked]:
                session.withdraw(consumer, reason)  # which may be the end of the session
        if not consumers and session in self.waiting:
            del self.waiting[session]
            session.go_on()
        return 1 + steps // STEPS_OF_WORK

    def check(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            assert (session.late is not None) == (session in self.waiting), "1: something is handed to it, or never is"
