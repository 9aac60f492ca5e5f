"""Commands that wait, and receipts that wait until all servers know a subscription."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from mombroker.broker.commands import COMMAND, FULL, AcceptRun, Disposition, Refused, Send, SendRun
from mombroker.broker.session.session import Session
from mombroker.broker.topic.routing import Topics
from mombroker.core import times
from mombroker.core.errors import MomError
from mombroker.core.times import SECOND
from mombroker.core.transaction import Transaction

KNOWN_NS = 2 * SECOND  # until all servers must know a subscription; then its receipt names those that may not
STORE = "store"  # what is waited for when the server has no room; names and agents have other ones
PACE = "pace"  # that the user has sent no more than it may; a time ends that


class Wait(Exception):
    """A command waits for `key`; after a time it is refused for this reason, or goes on if there is none."""

    def __init__(self, key: str, seconds: float, reason: str, room: bool = False):
        self.key, self.seconds, self.reason, self.room = key, seconds, reason, room
        super().__init__(reason)


class Waiting:
    """What must wait, waits here, before the broker, and all later commands of its session behind it: a name that is
    being decided, a full queue, a full store, a subscription of another server.

    sessions   those whose first command waits, the longest first
    alarm      let `alarm` be called at a time
    obey       the session's commands go on
    settle     obey one command that settles
    refuse     refuse a command; that may end the session
    """

    __slots__ = ("tx", "sessions", "_topics", "_known", "_alarm", "_obey", "_settle", "_refuse")

    def __init__(
        self,
        tx: Transaction,
        topics: Topics,
        alarm: Callable[[int], None],
        obey: Callable[[Session], None],
        settle: Callable[[Session, Disposition], None],
        refuse: Callable[[Session, Refused], None],
    ):
        self.tx, self._topics = tx, topics
        self.sessions: dict[Session, None] = {}
        self._known: list[tuple[int, list[int], Callable[[list[str]], None]]] = []  # until when, entries, whom to tell
        self._alarm, self._obey, self._settle, self._refuse = alarm, obey, settle, refuse

    def hold(self, session: Session, wait: Wait) -> None:
        """Its commands wait. Who waits for something else than before, as for room in a queue where a place in an order
        was waited for, has all the time that this has."""
        if not session.until or session.awaited != wait.key:
            session.awaited = wait.key
            session.until = times.after(self.tx.now, times.of_seconds(wait.seconds))
            self._alarm(session.until)
        session.key, session.reason, session.room = wait.key, wait.reason, wait.room
        self.sessions[session] = None
        if wait.room:
            self.settle_ahead(session)

    def settle_ahead(self, session: Session) -> None:
        """A full queue must not wait for the very client that empties it: what settles its messages passes what is sent
        to it. It passes nothing else, or who passes a message on and then settles it might lose it."""
        if any(isinstance(each, AcceptRun) for each in session.commands):
            parts = [each.singles() if isinstance(each, AcceptRun) else [each] for each in session.commands]
            session.commands.clear()
            session.commands.extend(chain.from_iterable(parts))
        for command in self.freeing(session):
            session.commands.remove(command)
            try:
                self._settle(session, command)
            except MomError as error:
                self._refuse(session, Refused(str(error), command.receipt, scope=COMMAND))
                if session.ended:
                    return

    def freeing(self, session: Session) -> list[Disposition]:
        """What settles messages of the queue that the first command waits for, behind nothing but sends to it."""
        commands, found = session.commands, list[Disposition]()
        first = commands[0]
        for command in commands:
            if isinstance(command, Disposition):
                if session.deliveries.frees(command.tag, session.key):
                    found.append(command)
            elif not isinstance(command, Send | SendRun) or not isinstance(first, Send):
                break
            elif command.destination != first.destination:
                break
        return found

    def wake(self, key: str) -> None:
        """What was waited for has come: see again."""
        for session in [each for each in self.sessions if each.key == key]:
            self.go_on(session)

    def policy_changed(self) -> None:
        """Who waits for room in a queue, of this server or another, tries again, and waits anew if it must."""
        for session in [each for each in self.sessions if each.room]:
            session.until = 0
            self.go_on(session)

    def go_on(self, session: Session) -> None:
        session.key, session.room = "", False
        self.sessions.pop(session, None)
        self._obey(session)

    def answered(self, session: Session, home: str) -> None:
        """A subscription of another server has answered."""
        if session.key == home and not session.reason:
            session.until = 0
            self.go_on(session)

    def alarm(self) -> None:
        """It is later."""
        now = self.tx.now
        for session in list(self.sessions):
            if session.key and session.until <= now:
                self._in_vain(session)
        self.confirm()

    def _in_vain(self, session: Session) -> None:
        """It has waited for long enough."""
        if not session.reason:
            if session.key != PACE:
                session.unanswered(session.key)
        else:
            self._refuse(
                session,
                Refused(session.reason, session.commands[0].receipt, scope=COMMAND, cause=FULL if session.room else ""),
            )
            if session.ended:
                return
            session.commands.popleft()
        session.until = 0
        self.go_on(session)

    # -- subscriptions that servers must know ----------------------------------------------------------------------

    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None:
        """Call `tell` with nobody once all servers know these entries, or after a while with those that may not."""
        if not self._topics.unknown(epochs):
            tell([])
            return
        until = self.tx.now + KNOWN_NS
        self._known.append((until, epochs, tell))
        self._alarm(until)

    def confirm(self) -> None:
        known, self._known = self._known, []
        for until, epochs, tell in known:
            unknown = self._topics.unknown(epochs)
            if unknown and until > self.tx.now:
                self._known.append((until, epochs, tell))
            else:
                tell(unknown)
