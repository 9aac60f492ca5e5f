"""The permissions in force: those of the topology, and those that operators have set at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mombroker.broker.access.permission import EVERYBODY, Holder, Permission, permission
from mombroker.core.changes import Change
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import Message
from mombroker.core.meta import PERMISSION
from mombroker.core.replicated import Replicated, Replication
from mombroker.core.times import LAST_NS
from mombroker.core.topology import Topology

ASKED, DECIDED, REFUSED = "_permission", "_permissions", "_no_permission"
MAX_TOKEN = 200
OPEN = (
    "that is the last permission, and where there is none every user may do everything: say that this is meant by "
    "--open, or first give somebody another one"
)

IN_FILE = (
    "the topology file gives one, which counts until `mom topology apply` of a file without it, or until "
    "`mom permission set` denies what it allows"
)


class Permissions(Replicated):
    """Where there is none, everybody may do everything; from the first one on, only what is allowed.

    held      by the user or role that has them
    set       by number, which rises with each decision: one for each user or role and pattern
    changed   called with permissions that hold from now on, or no longer
    """

    agent, prefix = "_permissions", PERMISSION

    def __init__(self, replication: Replication, changed: Callable[[list[Permission]], None] = lambda those: None):
        super().__init__(replication)
        self.changed = changed
        self.declared = [permission(values) for values in self.tx.topology.permissions]
        rows = sorted((int(number), row) for number, row in self.rows().items())
        self.set = {number: permission(json.loads(row)) for number, row in rows}
        self.held: dict[Holder, list[Permission]]
        self._hold()
        self.define(ASKED, _read_asked, self._decide, DECIDED, _read_decided, self._decided)
        self.refusal(REFUSED, _read_refused, self._refused)

    def all(self) -> list[Permission]:
        return [*self.declared, *self.set.values()]

    def holders(self, user: str, roles: Iterable[str]) -> list[Holder]:
        """Of those that somebody with these roles is, to whom permissions are given; the empty name is anonymous."""
        those = [
            (EVERYBODY, ""),
            *([(user, "")] if user not in ("", EVERYBODY) else []),
            *(("", role) for role in roles),
        ]
        return [each for each in those if each in self.held]

    def of(self, user: str, roles: Iterable[str]) -> list[Permission]:
        """Those that count for a user with these roles."""
        return [each for holder in self.holders(user, roles) for each in self.held[holder]]

    def _hold(self) -> None:
        """Something has changed."""
        self.held = {}
        for each in self.all():
            self.held.setdefault(each.holder, []).append(each)

    def change(self, made: Permission, gone: bool, open: bool, ticket: int = 0) -> None:
        """Have a permission set in place of one of the same user or role and pattern, or deleted: `gone`. With `open`
        it may be the last one. The reply to `ticket` follows when this server has it."""
        token = f"{self.tx.name}:{self.tx.new_id()}"
        if ticket:
            self.wait(token, ticket)
        self.ask(ASKED, json.dumps([token, made.values(), gone, open]).encode())

    def revised(self, change: Change) -> None:
        """Another revision of the topology is in force."""
        if any(setting.what == "permissions" for setting in change.settings):
            was, self.declared = self.declared, [permission(values) for values in self.tx.topology.permissions]
            self._hold()
            self.changed([*was, *self.declared])

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all that were set; see Newcomers.tables."""
        for number, each in self.set.items():
            payload = json.dumps(["", number, each.values(), False]).encode()
            yield self.tx.topology.registry or self.tx.name, DECIDED, payload

    def _decide(self, asker: str, token: str, made: Permission, gone: bool, open: bool) -> bytes | None:
        if gone:
            there = [each for each in self.set.values() if each.key == made.key]
            reason = ""
            if not there:
                reason = f"{made.whose()} was given no permission for {made.match!r} at run time; " + (
                    IN_FILE if self._in_file(made) else "see `mom permission list`"
                )
            elif not open and len(self.all()) == 1:
                reason = OPEN
            if reason:
                self.refuse(asker, REFUSED, json.dumps([token, reason]).encode())
                return None
        number = max(self.tx.new_id(), 1 + max(self.set, default=0))
        return json.dumps([token, number, made.values(), gone]).encode()

    def _decided(self, token: str, number: int, made: Permission, gone: bool) -> None:
        touched = [made]
        for old in [old for old, each in self.set.items() if each.key == made.key]:
            touched.append(self.set.pop(old))
            self.keep(old, None)
        if not gone:
            self.set[number] = made
            self.keep(number, json.dumps(made.values()))
        self._hold()
        still = self._in_file(made) if gone else made
        self.settle(token, {"permission": still and still.values(), "count": len(self.all())})
        self.changed(touched)

    def _refused(self, token: str, sentence: str) -> None:
        self.settle(token, sentence)

    def _in_file(self, made: Permission) -> Permission | None:
        """That of the topology file for the same user or role and pattern: it counts whatever was set beside it."""
        return next((each for each in self.declared if each.key == made.key), None)


def check(topology: Topology) -> None:
    """Raises MomError for a permission of a topology that is none."""
    for values in topology.permissions:
        permission(values)


def _read_asked(message: Message) -> tuple[str, Permission, bool, bool]:
    match _values(message):
        case [str(token), dict(values), bool(gone), bool(open)] if len(token) <= MAX_TOKEN:
            return token, _read(message, values, gone), gone, open
    raise UnknownNotification(f"{message.type} came with what is no permission")


def _read_decided(message: Message) -> tuple[str, int, Permission, bool]:
    match _values(message):
        case [str(token), int(number), dict(values), bool(gone)] if 0 < number <= LAST_NS and len(token) <= MAX_TOKEN:
            return token, number, _read(message, values, gone), gone
    raise UnknownNotification(f"{message.type} came with what is no permission")


def _read_refused(message: Message) -> tuple[str, str]:
    match _values(message):
        case [str(token), str(sentence)]:
            return token, sentence
    raise UnknownNotification(f"{message.type} came with what is no refusal")


def _values(message: Message) -> object:
    try:
        return json.loads(message.payload)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None


def _read(message: Message, values: dict[str, Any], gone: bool) -> Permission:
    try:
        return permission(values)
    except MomError as error:
        raise UnknownNotification(f"{message.type} came with what is no permission: {error}") from None
