"""Rules of permissions, broken on purpose: the simulated clients must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.access.permissions import Permissions
from mombroker.broker.access.users import Users
from mombroker.broker.session.judging import Judging
from mombroker.broker.session.service import Sessions
from mombroker.broker.session.session import Session
from mombroker.sim.world import MS

LAG = 100 * MS


@contextmanager
def without_order() -> Iterator[None]:
    """A server judges by what another one has told it a while ago, whatever has come by then."""

    def late(decided: Callable[..., None]) -> Callable[..., None]:
        def lagging(table: Any, token: str, *change: Any) -> None:
            if table.tx.name in (table.tx.topology.registry, token.partition(":")[0]):
                decided(table, token, *change)
                return
            sessions = table.changed.__self__._changed.__self__
            sessions.alarm_at(table.tx.now + LAG)
            waiting.setdefault(sessions, []).append((table.tx.now + LAG, lambda: decided(table, token, *change)))

        return lagging

    def alarm(sessions: Sessions) -> None:
        ring(sessions)
        queue = waiting.get(sessions, [])
        while queue and queue[0][0] <= sessions.tx.now:
            queue.pop(0)[1]()

    waiting: dict[Sessions, list[tuple[int, Callable[[], None]]]] = {}
    ring = Sessions.alarm
    with (
        patch.object(Permissions, "_decided", late(Permissions._decided)),
        patch.object(Users, "_decided", late(Users._decided)),
        patch.object(Sessions, "alarm", alarm),
    ):
        yield


def cache_kept(judge: Callable[[Sessions, Session], None]) -> Callable[[Sessions, Session], None]:
    """Where a session may send it may for ever."""

    def judge_by(sessions: Sessions, session: Session) -> None:
        former = session.guard
        judge(sessions, session)
        if former is not None and session.guard is not None:
            session.guard.sends = former.sends

    return judge_by


@contextmanager
def judged_at_first_only() -> Iterator[None]:
    """A subscription that was allowed goes on, whatever is taken: its messages are not judged again."""

    def changed(sessions: Sessions, concerns: Callable[[str], bool], why: str) -> None:
        for session in sessions.sessions.values():
            sessions._judge_by(session)

    with patch.object(Sessions, "_access_changed", changed), patch.object(Sessions, "check", lambda sessions: None):
        yield


@contextmanager
def given_before_judged() -> Iterator[None]:
    """What comes for a subscription that is still to be judged again is handed out."""
    with (
        patch.object(Session, "hold", lambda session: None),
        patch.object(Session, "go_on", lambda session: None),
        patch.object(Judging, "check", lambda judging, sessions: None),
    ):
        yield
