"""A permission: what a user or a role may do with the destinations that a pattern matches. No server, no table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mombroker.broker.access.globs import Globs, Steps, cover
from mombroker.broker.policy import KINDS as DESTINATIONS
from mombroker.broker.policy import MAX_TEXT
from mombroker.broker.topic.patterns import segments_of
from mombroker.core.errors import MomError
from mombroker.core.topology import listed, suggestion

SEND, RECEIVE, CREATE, BROWSE, MANAGE = ACTIONS = ("send", "receive", "create", "browse", "manage")
KINDS = (*DESTINATIONS, "agent")
EVERYBODY = "*"  # as a user: all, and who is anonymous
BUS = "bus"  # what is managed of the bus itself
MAX_NAME = 100  # characters of a user or role
Holder = tuple[str, str]  # a user, or a role


@dataclass(frozen=True, slots=True)
class Permission:
    """It is of a user or of a role.

    match   pattern of destinations, with `*` and `?`: `queue:NAME`, `topic:NAME`, `sub:CLIENT:NAME`, ..., or `bus`
    may     what it allows
    deny    what it forbids, whatever others allow
    """

    match: str = ""
    user: str = ""
    role: str = ""
    may: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """There is one permission for a user or role and a pattern."""
        return self.user, self.role, self.match

    @property
    def holder(self) -> Holder:
        return self.user, self.role

    def whose(self) -> str:
        return f"user {self.user}" if self.user else f"role {self.role}"

    def values(self) -> dict[str, Any]:
        """As in a topology file."""
        found: dict[str, Any] = {"user": self.user} if self.user else {"role": self.role}
        found["match"] = self.match
        return found | {name: list(each) for name, each in (("may", self.may), ("deny", self.deny)) if each}


def permission(values: dict[str, Any]) -> Permission:
    """Raises MomError for a key or a value that is wrong."""
    known = Permission.__dataclass_fields__
    for key, value in values.items():
        if key not in known:
            raise MomError(f"a permission has no {ascii(key)[:64]}; it has {', '.join(known)}")
        if key in ("may", "deny"):
            if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
                raise MomError(f'{key} must be a list, as {key} = ["send", "receive"], not {ascii(value)[:64]}')
            if wrong := [each for each in value if each not in ACTIONS]:
                near = suggestion(wrong[0], ACTIONS) or f"write some of {listed(ACTIONS)}"
                raise MomError(f"nobody may {ascii(wrong[0])[:64]}: {near}")
        elif not isinstance(value, str):
            raise MomError(f"{key} must be text, not {ascii(value)[:64]}")
    made = Permission(**values | {key: tuple(dict.fromkeys(values.get(key, ()))) for key in ("may", "deny")})
    if bool(made.user) == bool(made.role):
        raise MomError('a permission is of a user or of a role: write user = "NAME", user = "*" or role = "NAME"')
    check_name("user" if made.user else "role", made.user or made.role)
    if not made.may and not made.deny:
        raise MomError('a permission says something: write may = ["send"], or deny = ["receive"]')
    _check_match(made.match)
    return made


def check_name(kind: str, name: str) -> None:
    """Raises MomError for what cannot be a user's or role's name."""
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        raise MomError(f"a {kind}'s name has 1 to {MAX_NAME} printable characters, and no spaces around them")


def _check_match(match: str) -> None:
    if not match:
        raise MomError('a permission needs match = "PATTERN", as "queue:orders.*"')
    if len(match) > MAX_TEXT or not match.isprintable():
        raise MomError(f"a pattern has {MAX_TEXT} printable characters at most")
    if "[" in match:
        raise MomError(f"{match[:80]!r}: a permission's pattern knows * and ? alone, so write ? in place of each [")
    kind, _, name = match.partition(":")
    possible = "*" in kind or match == BUS or (bool(name) and any(Globs([kind]).match(each) for each in KINDS))
    if not possible:
        raise MomError(f"{match[:80]!r} matches no destination: {_hint(match)}")


def check_destination(name: str) -> None:
    """Raises MomError for what is neither a destination, nor topics with wildcards, nor the bus."""
    kind, _, rest = name.partition(":")
    if name != BUS and not (kind in KINDS and rest):
        raise MomError(f"{name[:80]!r} is no destination: {_hint(name)}")


def _hint(text: str) -> str:
    """How to write what has no kind, or none that there is."""
    bare = text.partition(":")[2] or text.lstrip("/")
    for kind in KINDS:
        if bare.startswith(f"{kind}/") and text.startswith("/"):
            return f"write {ascii(f'{kind}:' + bare[len(kind) + 1 :])[:80]}"
    return f"write 'queue:{bare[:80]}' or 'topic:{bare[:80]}'" if bare else "write a name as 'queue:orders'"


class Grants:
    """What some permissions, all of one user or role, say: patterns by action."""

    __slots__ = ("may", "deny")

    def __init__(self, permissions: Iterable[Permission]):
        may: dict[str, list[str]] = {action: [] for action in ACTIONS}
        deny: dict[str, list[str]] = {action: [] for action in ACTIONS}
        for each in permissions:
            for action in each.may:
                may[action].append(each.match)
            for action in each.deny:
                deny[action].append(each.match)
        self.may = {action: Globs(patterns) for action, patterns in may.items() if patterns}
        self.deny = {action: Globs(patterns) for action, patterns in deny.items() if patterns}


@dataclass(frozen=True, slots=True)
class Rights:
    """What the grants of a user, of its roles, and of everybody allow together: nothing that none allows, and nothing
    that one denies. Two are equal if they are of the same grants."""

    grants: tuple[Grants, ...]

    def may(self, action: str, destination: str, steps: Steps | None = None) -> bool:
        """With a destination, or with all topics that one with wildcards stands for: `steps` are left for that. Raises
        Unjudged."""
        allowed = [each.may[action] for each in self.grants if action in each.may]
        denied = [each.deny[action] for each in self.grants if action in each.deny]
        if segments_of(destination):
            steps = steps or Steps()
            return cover(allowed, destination, steps) and not any(each.meet(destination, steps) for each in denied)
        return any(each.match(destination) for each in allowed) and not any(each.match(destination) for each in denied)
