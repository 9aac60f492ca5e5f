"""What a destination does at its limits and with failures: settings by pattern, the first that matches wins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from mombroker.core import times
from mombroker.core.errors import MomError
from mombroker.core.topology import suggestion

KINDS = ("queue", "topic", "sub", "share", "temp-queue", "temp-topic")  # what the name of a destination begins with
WILD = re.compile(r"[*?[]")
MAX_TEXT = 1000  # characters of a pattern, or of another text; no name of a destination has as many
# What rows of stores may still say, from before the names had the field's words: a setting, or its value.
FORMER = {
    "redeliver": "max_redeliveries", "full": "overflow", "nack": "on_nack", "expired": "on_expiry",
    "redeliver_first": "redelivery_delay", "redeliver_factor": "redelivery_delay_multiplier",
    "redeliver_max": "max_redelivery_delay",
}  # fmt: skip
FORMER_VALUES: dict[tuple[str, Any], str] = {("overflow", "drop-oldest"): "drop-head"}


class FormerWord(MomError):
    """A policy is written in words of a former version."""


@dataclass(slots=True)
class Policy:
    """`match` is a pattern over `queue:NAME`, `topic:NAME`, `sub:CLIENT:NAME`, `share:CLIENT:NAME`, `temp-queue:ID`.
    Times are in seconds; of limits 0 is none."""

    match: str = "*"
    create: bool = True  # by being used
    max_messages: int = 0
    max_bytes: int = 0
    overflow: str = "block"  # or "reject", "drop-head"
    block_seconds: float = 30.0  # then a blocked SEND is rejected
    max_redeliveries: int = 5  # failures before the dead-letter queue
    redelivery_delay: float = 1.0  # after the first failure
    redelivery_delay_multiplier: float = 2.0
    max_redelivery_delay: float = 60.0
    on_nack: str = "redeliver"  # or "dead-letter"
    dead_letter: str = ""  # queue; empty: DLQ.NAME
    on_expiry: str = "dead-letter"  # or "drop"
    announce: str = ""  # topics: "everywhere" sends copies to all servers
    order: str = ""  # topics: "total" lets all subscribers have one order
    idle_timeout: float = 0.0  # a durable subscription without a consumer for so long ends; 0 = never
    max_pending: int = 1_000  # messages kept for a slow connection that has plain subscriptions

    def __post_init__(self) -> None:
        for name, known in (
            ("overflow", ("block", "reject", "drop-head")),
            ("on_nack", ("redeliver", "dead-letter")),
            ("on_expiry", ("dead-letter", "drop")),
            ("announce", ("", "everywhere")),
            ("order", ("", "total")),
        ):
            if getattr(self, name) not in known:
                raise MomError(f"{name} must be {' or '.join(map(repr, known))}, not {getattr(self, name)!r}")
        for field in fields(Policy):
            value = getattr(self, field.name)
            if isinstance(value, int | float):
                most = times.LAST_S if type(field.default) is float else times.LAST_NS
                if value < 0:
                    raise MomError(f"{field.name} must not be negative")
                if not value <= most:  # NaN, too
                    raise MomError(f"{field.name} must be a number from 0 to {most}")
        if not self.max_pending:
            raise MomError("max_pending must be 1 or more: a message has to be kept until it is handed out")

    def backoff_ns(self, failures: int) -> int:
        delay = self.redelivery_delay
        for _ in range(min(failures - 1, 100)):
            delay *= self.redelivery_delay_multiplier
        return times.of_seconds(min(delay, self.max_redelivery_delay))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


DEFAULT = Policy()
TEMPORARY = Policy(max_messages=10_000, max_bytes=64 << 20, overflow="drop-head", on_expiry="drop")


def policy(values: dict[str, Any]) -> Policy:
    """Raises MomError for a key or a value that is wrong."""
    known = {field.name: type(field.default) for field in fields(Policy)}
    for key, value in values.items():
        if key in FORMER:
            raise FormerWord(f"a policy has no {key!r} any more: write {FORMER[key]!r}")
        if key not in known:
            raise MomError(f"a policy has no {key!r}; it has {', '.join(known)}")
        if type(value) is not known[key] and not (known[key] is float and type(value) is int):
            raise MomError(f"{key} must be {_WORDS[known[key]]}, not {value!r}")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise MomError(f"{key} must have {MAX_TEXT} characters at most, not {len(value)}: shorten it")
        if (key, value) in FORMER_VALUES:
            raise FormerWord(f"{key} is not {value!r} any more: write {FORMER_VALUES[key, value]!r}")
    if "match" not in values:
        raise MomError('a policy needs match = "PATTERN", as "queue:orders.*"')
    _check_match(values["match"])
    queue = values.get("dead_letter", "")
    if queue and (not queue.startswith("queue:") or queue == "queue:"):
        raise MomError(f'dead_letter must be a queue, as "queue:{queue.rpartition(":")[2] or "failed"}", not {queue!r}')
    made = Policy(**values)
    if made.order and not _may_match(made.match, ["topic"]):
        raise MomError(f"order is for topics, and {made.match!r} matches none: leave it out, or match 'topic:...'")
    return made


def _check_match(match: str) -> None:
    """Raises MomError for a pattern that matches no name that there can be."""
    kind, colon, name = match.partition(":")
    possible = _may_match(match, KINDS)
    if possible and kind in ("sub", "share") and ":" not in name and "*" not in name:
        raise MomError(f"{match!r} matches no subscription: write '{kind}:CLIENT:NAME'; * stands for any of both")
    if not possible:
        near = kind if kind in KINDS else suggestion(kind, KINDS)[len("did you mean ") : -1] if kind and colon else ""
        bare = name if near else match.removeprefix("/queue/").removeprefix("/topic/").lstrip(":")
        if not bare:
            hint = f"a name is missing, as in '{near or ('topic' if match.startswith('/topic') else 'queue')}:*'"
        else:
            hint = f"did you mean {near}:{bare}?" if near else f"write 'queue:{bare}' or 'topic:{bare}'"
        raise MomError(f"{match!r} matches no destination: {hint}")


def _may_match(match: str, kinds: Iterable[str]) -> bool:
    """Is there a destination of one of these kinds that a pattern matches?"""
    kind, _, name = match.partition(":")
    head = WILD.split(match)[0]  # what all names that it matches begin with
    if "*" in kind:  # it may stand for the colon, too
        return any(f"{each}:".startswith(head) or head.startswith(f"{each}:") for each in kinds)
    return bool(name) and any(fnmatchcase(each, kind) for each in kinds)


def stored(values: dict[str, Any]) -> Policy:
    """One that was accepted before, perhaps in former words: what is refused today is as if it had not been set, and
    no server stays down."""
    good = {"match": "*"}
    for word, value in values.items():
        key = FORMER.get(word, word)
        value = FORMER_VALUES.get((key, value), value)
        with suppress(MomError):
            policy(good | {key: value})
            good[key] = value
    return Policy(**good | {"match": values["match"]})


_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
