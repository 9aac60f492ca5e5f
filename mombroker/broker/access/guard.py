"""How sessions are judged: by the users and permissions that their own server has, which change in causal order."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from mombroker.broker.access.globs import Steps, Unjudged
from mombroker.broker.access.permission import (
    BROWSE,
    CREATE,
    EVERYBODY,
    RECEIVE,
    SEND,
    Grants,
    Holder,
    Permission,
    Rights,
)
from mombroker.broker.access.permissions import Permissions
from mombroker.broker.access.users import NO_LIMITS, UserLimits, Users
from mombroker.broker.commands import Denied, Subscribe
from mombroker.broker.names import subscription_name
from mombroker.core.replicated import Replication
from mombroker.core.times import SECOND
from mombroker.core.transaction import Transaction

KEPT = 1_000  # destinations that a session is known to send to
Needs = tuple[tuple[str, str], ...]  # what a subscription asks for: (action, destination)


class Pace:
    """How fast a user may send, on one server: so many messages a second, and as many of them at once."""

    __slots__ = ("rate", "due")

    def __init__(self, rate: int):
        self.rate, self.due = rate, 0  # when all that was sent so far should have been

    def wait(self, now: int, count: int) -> int:
        """Take up messages; or how long they have to wait, in ns, and nothing is taken up."""
        early = self.due - now - SECOND
        if early > 0:
            return early
        self.due = max(self.due, now) + count * SECOND // self.rate
        return 0


class Guard:
    """What one session may do, until something changes: then it gets another one.

    rights   None: everything
    sends    destinations to which it is known that it may send
    pace     shared by all sessions of its user; None: as fast as it likes
    """

    __slots__ = ("who", "rights", "sends", "pace")

    def __init__(self, who: str, rights: Rights | None, pace: Pace | None):
        self.who, self.rights, self.pace = who, rights, pace
        self.sends: set[str] = set()

    def may_send(self, destination: str) -> None:
        """Judge it, and remember that it may. Raises MomError."""
        self.judge(SEND, destination)
        if len(self.sends) >= KEPT:
            self.sends.clear()
        self.sends.add(destination)

    def judge(self, action: str, destination: str) -> None:
        """Raises MomError for what it may not do."""
        if self.rights is not None and not self.rights.may(action, destination):
            raise Denied(denied(self.who, action, destination))

    def lacks(self, needs: Needs, steps: Steps | None = None) -> str:
        """Why it may not do all of this; empty if it may. What `steps` do not suffice for it may not."""
        steps = steps or Steps()
        try:
            for action, destination in needs if self.rights is not None else ():
                if self.rights is not None and not self.rights.may(action, destination, steps):
                    return denied(self.who, action, destination)
        except Unjudged as refused:
            return str(refused)
        return ""


def denied(who: str, action: str, destination: str) -> str:
    """What somebody is told who may not."""
    words = {SEND: "send to", RECEIVE: "receive from", CREATE: "create", BROWSE: "browse"}
    whose = f"user {who[:80]!r}" if who else "who has not logged in"
    return f"access refused: {whose} may not {words.get(action, action)} {destination[:200]}"


def needs(command: Subscribe, client_id: str) -> Needs:
    """What a subscription asks for, as long as it lasts."""
    action = BROWSE if command.browser else RECEIVE
    asked = [(action, each) for each in command.destinations if not each.startswith("temp-")]
    if command.durable:
        asked.append((RECEIVE, unquote(subscription_name(client_id, command.durable, command.transient))))
    return tuple(asked)


class Access:
    """The users and permissions of a server, and what follows from them.

    changed   called when it has changed what a user may do, for whom that is asked; and why sessions of it end, if any
    """

    def __init__(
        self,
        replication: Replication,
        changed: Callable[[Callable[[str], bool], str], None],
    ):
        self.tx: Transaction = replication.tx
        self.users = Users(replication, self._user_changed)
        self.permissions = Permissions(replication, self._permissions_changed)
        self._changed = changed
        self._grants: dict[Holder, Grants] = {}  # of those who have logged in
        self._paces: dict[str, Pace] = {}
        self.guarded = bool(self.permissions.all())

    def rights(self, user: str) -> Rights:
        """Of a user as it is now; the empty name is who is anonymous."""
        known = self.users.known.get(user)
        return Rights(tuple(map(self._granted, self.permissions.holders(user, known.roles if known else ()))))

    def _granted(self, holder: Holder) -> Grants:
        found = self._grants.get(holder)
        if found is None:
            found = self._grants[holder] = Grants(self.permissions.held[holder])
        return found

    def may(self, user: str, action: str, destination: str) -> bool:
        """May a user do this with a destination, or with all that a topic pattern stands for? Of actions and
        destinations permission.py tells. The empty name is who is anonymous."""
        return not self.guarded or self.rights(user).may(action, destination)

    def limits(self, user: str) -> UserLimits:
        """Of a user, on each server by itself."""
        known = self.users.known.get(user)
        return known.limits if known else NO_LIMITS

    def guard(self, user: str) -> Guard | None:
        """What a session of a user is judged by; None: by nothing."""
        rate = self.limits(user).rate
        if not self.guarded and not rate:
            return None
        pace = None
        if rate:
            pace = self._paces.get(user)
            if pace is None or pace.rate != rate:
                pace = self._paces[user] = Pace(rate)
        return Guard(user, self.rights(user) if self.guarded else None, pace)

    def _user_changed(self, name: str, why: str) -> None:
        if name not in self.users.known:
            self._paces.pop(name, None)
        self._changed(lambda user: user == name, why)

    def _permissions_changed(self, those: list[Permission]) -> None:
        was, self.guarded = self.guarded, bool(self.permissions.all())
        everybody = was != self.guarded or any(each.user == EVERYBODY for each in those)
        users, roles = {each.user for each in those}, {each.role for each in those if each.role}

        def concerned(user: str) -> bool:
            known = self.users.known.get(user)
            return everybody or user in users or bool(known and not roles.isdisjoint(known.roles))

        for each in those:
            self._grants.pop(each.holder, None)
        self._changed(concerned, "")
