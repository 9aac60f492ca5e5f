"""The users of a bus's clients: the same on all servers, each with the hash of a passcode, roles, and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from mombroker.broker.access.permission import check_name
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import Message
from mombroker.core.meta import USER
from mombroker.core.replicated import Replicated, Replication
from mombroker.core.times import LAST_NS

ASKED, DECIDED, REFUSED = "_user", "_users", "_no_user"
MAX_ROLES = 100
MAX_HASH = 1_000  # characters
MAX_TOKEN = 200


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Of one user, on each server by itself; 0 is none.

    connections     at once
    rate            messages that are sent in a second, all connections together
    pending_bytes   of topics' messages that wait for one slow connection
    """

    connections: int = 0
    rate: int = 0
    pending_bytes: int = 0


NO_LIMITS = UserLimits()


@dataclass(frozen=True, slots=True)
class User:
    """hash   of the passcode (gateway/users.py); empty: nobody logs in with one"""

    hash: str = field(repr=False)
    roles: tuple[str, ...] = ()
    limits: UserLimits = NO_LIMITS

    def row(self) -> list[Any]:
        limits = {name: value for name, value in asdict(self.limits).items() if value}
        return [self.hash, list(self.roles), limits]


def limits_of(values: Mapping[str, Any], base: UserLimits = NO_LIMITS) -> UserLimits:
    """Raises MomError for a limit that there is not."""
    known = [each.name for each in fields(UserLimits)]
    for name, value in values.items():
        if name not in known:
            raise MomError(f"a user has no limit {ascii(name)[:64]}; it has {', '.join(known)}")
        if type(value) is not int or not 0 <= value <= LAST_NS:
            raise MomError(f"{name} must be a whole number from 0 (no limit), not {ascii(value)[:64]}")
    return replace(base, **values)


def _user(row: Any) -> User:
    """Raises ValueError, TypeError, MomError."""
    hash, roles, limits = row
    if type(hash) is not str or len(hash) > MAX_HASH or type(roles) is not list or len(roles) > MAX_ROLES:
        raise ValueError("a hash and roles of another kind")
    for role in roles:
        if type(role) is not str:
            raise ValueError("a role is no text")
        check_name("role", role)
    return User(hash, tuple(roles), limits_of(limits))


class Users(Replicated):
    """What there was before users were the same on all servers is asked for at the start, and holds until it is
    decided: a name that has no user on the bus becomes one.

    known     by name
    former    by name, hashes of users of this server alone
    changed   called with the name of a user whose row is another now, why its connections end (empty: they stay)
    """

    agent, prefix = "_users", USER

    def __init__(self, replication: Replication, changed: Callable[[str, str], None] = lambda name, why: None):
        super().__init__(replication)
        self.changed = changed
        self.known: dict[str, User] = {}
        self.former: dict[str, str] = {}
        for name, row in self.rows().items():
            if row.startswith("["):
                self.known[name] = _user(json.loads(row))
            else:
                self.former[name] = row
        self.ops: dict[str, Callable[[str, User | None, Any], User | None]] = {
            "add": self._add, "passcode": self._passcode, "renew": self._renew, "roles": self._roles,
            "limits": self._limits, "delete": self._delete, "adopt": self._adopt,
        }  # fmt: skip
        self.define(ASKED, self._read_asked, self._decide, DECIDED, _read_decided, self._decided)
        self.refusal(REFUSED, _read_refused, self._refused)

    def recover(self) -> None:
        """Ask for those that are of this server alone."""
        for name, hash in self.former.items():
            self.change("adopt", name, hash)

    def hash(self, name: str) -> str | None:
        """Of a user's passcode; None if there is no such user, or nobody can log in as it by a passcode."""
        user = self.known.get(name)
        return (user.hash or None) if user is not None else self.former.get(name)

    def change(self, op: str, name: str, value: Any = None, ticket: int = 0) -> None:
        """Have the registry change a user; the reply to `ticket` follows when this server has it."""
        token = f"{self.tx.name}:{self.tx.new_id()}"
        if ticket:
            self.wait(token, ticket)
        self.ask(ASKED, json.dumps([token, op, name, value]).encode())

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all users; see Newcomers.tables."""
        for name, user in self.known.items():
            payload = json.dumps(["", name, user.row(), ""]).encode()
            yield self.tx.topology.registry or self.tx.name, DECIDED, payload

    # -- on the registry server ------------------------------------------------------------------------------------

    def _decide(self, asker: str, token: str, op: str, name: str, value: Any) -> bytes | None:
        was = self.known.get(name)
        try:
            now = self.ops[op](name, was, value)
        except MomError as error:
            self.refuse(asker, REFUSED, json.dumps([token, str(error)]).encode())
            return None
        why = ""
        if op in ("passcode", "delete"):
            why = (
                f"the user {name!r} was deleted"
                if now is None
                else f"the passcode of {name!r} was changed: log in again"
            )
        return json.dumps([token, name, now.row() if now is not None else None, why]).encode()

    def _add(self, name: str, was: User | None, hash: Any) -> User:
        if was is not None:
            raise MomError(f"there is a user {name!r} already; `mom user passwd` changes the passcode")
        return User(_hash(hash))

    def _adopt(self, name: str, was: User | None, hash: Any) -> User:
        return was or User(_hash(hash))

    def _passcode(self, name: str, was: User | None, hash: Any) -> User:
        return replace(_there(name, was), hash=_hash(hash))

    def _renew(self, name: str, was: User | None, value: Any) -> User:
        """Another hash of the same passcode, if it was not changed since."""
        match value:
            case [str(former), str(hash)] if was is not None and was.hash == former:
                return replace(was, hash=_hash(hash))
        raise MomError(f"the passcode of {name!r} was changed meanwhile")

    def _roles(self, name: str, was: User | None, value: Any) -> User:
        user = _there(name, was)
        roles = [*dict.fromkeys([*(each for each in user.roles if each not in value["revoke"]), *value["grant"]])]
        if len(roles) > MAX_ROLES:
            raise MomError(f"a user has {MAX_ROLES} roles at most")
        return replace(user, roles=tuple(roles))

    def _limits(self, name: str, was: User | None, value: Any) -> User:
        user = _there(name, was)
        return replace(user, limits=limits_of(value, user.limits))

    def _delete(self, name: str, was: User | None, value: Any) -> None:
        _there(name, was)

    # -- everywhere --------------------------------------------------------------------------------------------------

    def _decided(self, token: str, name: str, user: User | None, why: str) -> None:
        former = self.former.pop(name, None)
        if user is None:
            self.known.pop(name, None)
            self.keep(name, None)
        else:
            if former is not None and not _of_one(former, user.hash):
                self.tx.note(
                    f"the user {name!r} had another passcode on {self.tx.name} alone, which does not count any more: "
                    "`mom user passwd` changes that of the bus"
                )
            self.known[name] = user
            self.keep(name, json.dumps(user.row()))
        self.settle(token, {"user": name})
        self.changed(name, why)

    def _refused(self, token: str, sentence: str) -> None:
        self.settle(token, sentence)

    # -- what others may say ---------------------------------------------------------------------------------------

    def _read_asked(self, message: Message) -> tuple[str, str, str, Any]:
        try:
            match json.loads(message.payload):
                case [str(token), str(op), str(name), value] if op in self.ops and len(token) <= MAX_TOKEN:
                    check_name("user", name)
                    _check_value(op, value)
                    return token, op, name, value
        except (ValueError, TypeError, AttributeError, MomError, RecursionError) as error:
            raise UnknownNotification(f"{message.type} came with what is no user: {error}") from None
        raise UnknownNotification(f"{message.type} came with what is no change of a user")


def _check_value(op: str, value: Any) -> None:
    """What a request brings is of its kind. Raises TypeError, ValueError, MomError."""
    if op == "roles":
        for role in [*value["grant"], *value["revoke"]]:
            check_name("role", role)
    elif op == "limits":
        limits_of(value)


def _read_decided(message: Message) -> tuple[str, str, User | None, str]:
    try:
        match json.loads(message.payload):
            case [str(token), str(name), row, str(why)] if len(token) <= MAX_TOKEN:
                check_name("user", name)
                return token, name, None if row is None else _user(row), why
    except (ValueError, TypeError, AttributeError, MomError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no user: {error}") from None
    raise UnknownNotification(f"{message.type} came with what is no user")


def _read_refused(message: Message) -> tuple[str, str]:
    try:
        match json.loads(message.payload):
            case [str(token), str(sentence)]:
                return token, sentence
    except (ValueError, RecursionError):
        pass
    raise UnknownNotification(f"{message.type} came with what is no refusal")


def _there(name: str, user: User | None) -> User:
    if user is None:
        raise MomError(f"there is no user {name!r}; `mom user add` makes one, `mom user list` shows all")
    return user


def _hash(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_HASH:
        raise MomError("a passcode's hash is a text of some hundred characters: see `mom user add`")
    return value


def _of_one(hash: str, other: str) -> bool:
    """Are both of one passcode as it was set? Its salt stays when a hash is renewed."""
    return hash == other or hash.split("$")[4:5] == other.split("$")[4:5] != []
