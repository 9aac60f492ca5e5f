"""Who may come in: passcodes as scrypt hashes, checked outside the reactor's thread."""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable

from mombroker.core.errors import MomError

COST, BLOCK, PARALLEL = 15, 8, 1  # 2**15 * 8 * 128 bytes = 32 MiB, about 0.1 s
MAX_COST = 20  # of a stored hash
MAX_WAITING = 1_000  # logins of different passcodes at once
MAX_KNOWN = 10_000

Answer = Callable[[bool], None]


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
    except (ValueError, Base64Error):
        return False


def _scrypt(passcode: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    memory = 128 * block * parallel * (1 << cost) * 2
    return hashlib.scrypt(
        passcode.encode(errors="surrogatepass"), salt=salt, n=1 << cost, r=block, p=parallel, maxmem=memory, dklen=32
    )


class Logins:
    """Answers whether a user may come in.

    A passcode that was right is known again at once, so that a thousand clients that return together wait for one
    check; and a user that there is not takes as long as a wrong passcode.

    stored   the hash of a user, None if there is no such user
    run      runs a function in some thread, then calls back with what it returned
    """

    def __init__(self, stored: Callable[[str], str | None], run: Callable[[Callable[[], bool], Answer], None]):
        self.stored, self.run = stored, run
        self._key = os.urandom(32)
        self._nobody = _stored(COST, os.urandom(16), os.urandom(32))
        self._known: dict[tuple[str, str], bytes] = {}  # (user, hash) -> digest of the right passcode
        self._waiting: dict[tuple[str, str, bytes], list[Answer]] = {}

    def check(self, user: str, passcode: str, answer: Answer) -> None:
        """Calls `answer`, at once or later. Raises MomError when too many wait."""
        stored = self.stored(user)
        digest = hmac.digest(self._key, passcode.encode(errors="surrogatepass"), "sha256")
        if stored is not None and hmac.compare_digest(self._known.get((user, stored), b""), digest):
            answer(True)
            return
        key = (user, stored or "", digest)
        if key in self._waiting:
            self._waiting[key].append(answer)
            return
        if len(self._waiting) >= MAX_WAITING:
            raise MomError("too many logins at once: try again soon")
        self._waiting[key] = [answer]
        self.run(lambda: matches(stored or self._nobody, passcode), lambda right: self._checked(key, right))

    def _checked(self, key: tuple[str, str, bytes], right: bool) -> None:
        user, stored, digest = key
        right = bool(right and stored)
        if right:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[user, stored] = digest
        for answer in self._waiting.pop(key):
            answer(right)
