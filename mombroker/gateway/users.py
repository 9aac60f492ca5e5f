"""Who may come in: passcodes as scrypt hashes, checked outside the reactor's thread."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mombroker.core.errors import MomError
from mombroker.core.strangers import origin

COST, BLOCK, PARALLEL = 17, 8, 1  # 2**17 * 8 * 128 bytes = 128 MiB, about 0.3 s
MAX_COST = 20  # of a stored hash
AT_ONCE = 2  # checks that run, at most one for each address
MAX_WAITING = 1_000  # different passcodes of one address
MAX_KNOWN = 10_000

# After FREE failures an address waits before its next check: FIRST_S, twice as long after each further failure, at most
# LAST_S. One failure is forgiven every FORGIVE_S.
FREE, FIRST_S, LAST_S, FORGIVE_S = 3, 0.1, 5.0, 10.0
MAX_FAILURES = 10  # that count
MAX_ADDRESSES = 10_000  # whose failures are remembered

Answer = Callable[[bool], None]
Key = tuple[str, str, bytes]  # user, stored hash, digest of the passcode


def hashed(passcode: str, cost: int = COST) -> str:
    """What is stored of a passcode."""
    salt = os.urandom(16)
    return _stored(cost, salt, _scrypt(passcode, salt, cost, BLOCK, PARALLEL))


def _stored(cost: int, salt: bytes, digest: bytes) -> str:
    return f"scrypt${cost}${BLOCK}${PARALLEL}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def matches(stored: str, passcode: str) -> bool:
    """True for the passcode that was hashed. Takes its time."""
    try:
        kind, cost, block, parallel, salt, digest = stored.split("$")
        if kind != "scrypt" or int(cost) > MAX_COST:
            return False
        found = _scrypt(passcode, b64decode(salt, validate=True), int(cost), int(block), int(parallel))
        return hmac.compare_digest(found, b64decode(digest, validate=True))
    except (ValueError, MemoryError, Base64Error):
        return False


def renewed(stored: str, passcode: str) -> str:
    """A hash of today's cost for a passcode that matches. The salt stays: by it servers see that theirs are of one."""
    salt = b64decode(stored.split("$")[4])
    return _stored(COST, salt, _scrypt(passcode, salt, COST, BLOCK, PARALLEL))


def is_of_one(stored: str, other: str) -> bool:
    """True for two hashes of one passcode as it was set."""
    return stored.split("$")[4:5] == other.split("$")[4:5]


def is_weak(stored: str) -> bool:
    """True for a hash of an older version, which costs an attacker less than today's."""
    cost = stored.split("$")[1:2]
    return bool(cost) and cost[0].isdecimal() and int(cost[0]) < COST


def _scrypt(passcode: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    memory = 128 * block * parallel * (1 << cost) * 2
    return hashlib.scrypt(
        passcode.encode(errors="surrogatepass"), salt=salt, n=1 << cost, r=block, p=parallel, maxmem=memory, dklen=32
    )


class Clock(Protocol):
    def seconds(self) -> float: ...
    def callLater(self, delay: float, call: Callable[..., Any]) -> Any: ...


@dataclass(slots=True)
class Waiter:
    """A connection that waits for its answer; None when it does not wait any more."""

    answer: Answer | None

    def drop(self) -> None:
        self.answer = None


@dataclass(slots=True)
class _Result:
    right: bool
    renewed: str = ""  # a hash of today's cost for a passcode whose stored hash is weak


class Logins:
    """Answers whether a user may come in.

    A passcode that was right is known again at once, so that a thousand clients that return together wait for one
    check; and a user that there is not takes as long as a wrong passcode.

    1. At most AT_ONCE checks run, one for each address, and the addresses take turns.
    2. A check for which nobody waits any more is not made.
    3. An address whose passcodes are wrong waits ever longer for its next check.

    stored   the hash of a user, None if there is no such user
    run      runs a function in some thread, then calls back with what it returned
    renew    is told (user, stored hash, new hash) when a right passcode has a weak hash
    """

    def __init__(
        self,
        stored: Callable[[str], str | None],
        run: Callable[[Callable[[], _Result], Callable[[_Result], None]], None],
        clock: Clock,
        renew: Callable[[str, str, str], None] | None = None,
    ):
        self.stored, self.run, self.clock, self.renew = stored, run, clock, renew
        self._key = os.urandom(32)
        self._nobody = _stored(COST, os.urandom(16), os.urandom(32))
        self._known: dict[tuple[str, str], bytes] = {}  # (user, hash) -> digest of the right passcode
        self._waiting: dict[Key, list[Waiter]] = {}
        self._queues: dict[str, dict[Key, str]] = {}  # address -> its passcodes, in turn; addresses too
        self._running: dict[Key, str] = {}  # for which address
        self._failures: dict[str, tuple[float, float]] = {}  # address -> how many, and when the last was
        self._timer: Any = None

    def check(self, user: str, passcode: str, answer: Answer, host: str = "") -> Waiter | None:
        """Calls `answer`, at once or later. Raises MomError when too many wait."""
        stored = self.stored(user)
        digest = hmac.digest(self._key, passcode.encode(errors="surrogatepass"), "sha256")
        if stored is not None and hmac.compare_digest(self._known.get((user, stored), b""), digest):
            answer(True)
            return None
        key, whose, waiter = (user, stored or "", digest), origin(host), Waiter(answer)
        if key not in self._running:
            queue = self._queues.setdefault(whose, {})
            if key not in queue and len(queue) >= MAX_WAITING and not self._tidy(queue):
                raise MomError("too many logins at once: try again soon")
            queue[key] = passcode
        self._waiting.setdefault(key, []).append(waiter)
        self._go()
        return waiter

    def _tidy(self, queue: dict[Key, str]) -> bool:
        """Drop what nobody waits for; whether that made room."""
        for key in list(queue):
            if not self._wanted(key):
                del queue[key]
        return len(queue) < MAX_WAITING

    def _wanted(self, key: Key) -> bool:
        """Whether somebody waits for a check that does not run yet."""
        waiters = self._waiting.get(key)
        if waiters is None or key in self._running:
            return False
        if any(waiter.answer for waiter in waiters):
            return True
        del self._waiting[key]
        return False

    def _go(self) -> None:
        """Start what may start now."""
        while len(self._running) < AT_ONCE and (found := self._next()) is not None:
            whose, key, passcode = found
            self._running[key] = whose
            work = _Work(key[1] or self._nobody, passcode, self.renew is not None)
            self.run(work, partial(self._checked, key))

    def _next(self) -> tuple[str, Key, str] | None:
        """The first address whose turn it is, and its first passcode; if all must wait, a timer is set."""
        now, soonest = self.clock.seconds(), math.inf
        for whose, queue in list(self._queues.items()):
            while queue and not self._wanted(first := next(iter(queue))):
                del queue[first]
            if not queue:
                del self._queues[whose]
            elif whose not in self._running.values():
                due = self._due(whose)
                if due <= now:
                    return whose, first, queue.pop(first)
                soonest = min(soonest, due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest < math.inf:
            self._timer = self.clock.callLater(soonest - now, self._ring)
        return None

    def _ring(self) -> None:
        self._timer = None
        self._go()

    def _due(self, whose: str) -> float:
        """When the next passcode of this address may be checked."""
        count, at = self._failures.get(whose, (0.0, 0.0))
        return at + min(LAST_S, FIRST_S * 2.0 ** (count - FREE)) if count > FREE else 0.0

    def _failed(self, whose: str) -> None:
        now = self.clock.seconds()
        count, at = self._failures.pop(whose, (0.0, now))
        if len(self._failures) >= MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]  # the one that has been good for longest
        self._failures[whose] = min(MAX_FAILURES, max(0.0, count - (now - at) / FORGIVE_S) + 1), now

    def _checked(self, key: Key, result: _Result) -> None:
        user, stored, digest = key
        right = bool(result.right and stored and is_of_one(self.stored(user) or "", stored))  # it may have changed
        whose = self._running.pop(key)
        if (queue := self._queues.pop(whose, None)) is not None:
            self._queues[whose] = queue  # behind the others
        if right:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[user, stored] = digest
            if result.renewed and self.renew is not None:
                self._known[user, result.renewed] = digest
                self.renew(user, stored, result.renewed)
        else:
            self._failed(whose)
        for waiter in self._waiting.pop(key):
            if waiter.answer is not None:
                waiter.answer(right)
        self._go()


@dataclass(slots=True)
class _Work:
    """A check, for some thread."""

    stored: str
    passcode: str
    renews: bool

    def __call__(self) -> _Result:
        right = matches(self.stored, self.passcode)
        return _Result(
            right, renewed(self.stored, self.passcode) if right and self.renews and is_weak(self.stored) else ""
        )
