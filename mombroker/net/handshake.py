"""How the two ends of a connection make sure who is there, as frames in and frames out. No sockets.

    dialer    mom, version, role, own name, wanted name, nonce
    listener  mom, version, own name, nonce
    dialer    proof of the key
    listener  proof of the key, hello
    dialer    hello
    listener  welcome

The key never travels: a proof is HMAC-SHA256 over both nonces, both names, the role and the side, so that it is
good for this connection only and cannot be sent back to its maker. A `peer` proves the secret of the bus; an
`admin` proves the token of the server's data folder, and is done after the proofs. So is who wants to `join`, which
proves the secret of the bus and need not know whom it speaks to: it wants the name "". A `replica` of the listener's
server proves that secret, too, under the server's own name. Either end may answer any frame
with a refusal: one sentence for the other end's log, unless it says that nothing is wrong (`busy`), or that the other
end was declared lost (`lost`), which counts after the proofs only. A hello is a map of named fields (core/hello.py).
What every version reads and writes in the same way: the first two values of `mom`, and a refusal.
"""

import hashlib
import hmac
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from mombroker.core.errors import DeclaredLost, NotYet, PeerError, PeerRefused
from mombroker.core.hello import Hello, hello_of
from mombroker.core.ids import SERVER_NAME

VERSION = 2
NONCE_BYTES = 16
ADMIN = "admin"
PEER = "peer"
JOIN = "join"
REPLICA = "replica"
SENTENCE_CHARS = 600  # of a refusal that another end sent, in our log


class Busy(PeerRefused):
    """There is a better connection between these two servers already; nothing is wrong."""


class Told(PeerRefused):
    """The other end refused us; it knows already."""

    busy = False  # or not yet
    lost = False  # we were declared lost, says one who has proved the secret of the bus


@dataclass(slots=True)
class Login:
    """A handshake that went well: who is at the other end, and the frames that still have to be sent first."""

    role: str
    peer: str
    hello: Hello | None = None
    last: list[Any] = field(default_factory=list)


# Yields the frames to send, is sent the frame that came in, returns the Login.
Handshake = Generator[list[Any], Any, Login]


def refusal(error: Exception, peer: str = "") -> list[Any]:
    """The frame that tells the other end why it is refused."""
    lost = "lost" if isinstance(error, DeclaredLost) and error.server == peer else ""
    return ["refused", "busy" if isinstance(error, Busy | NotYet) else lost, str(error)]


def dialer(
    me: str,
    peer: str,
    role: str,
    key: bytes,
    nonce: bytes,
    greet: Callable[[str], Hello] | None = None,
    admit: Callable[[Hello], None] | None = None,
) -> Handshake:
    """The side that connects to `peer`. Raises PeerRefused (also when it is told so) or PeerError."""
    frame = yield [["mom", VERSION, role, me, peer, nonce]]
    name, other = _first(frame, me, peer or "the listener", str, bytes)
    if role == JOIN and not peer:
        peer = name
    if name != peer:
        raise PeerRefused(f"{name} answers where {peer} was expected; compare `listen` of both in the topology file")
    _check_nonce(other)
    frame = yield [["proof", _proof(key, "dialer", role, me, peer, nonce, other)]]
    proof, *rest = _frame(frame, "proof", peer, bytes, *((dict,) if role == PEER else ()))
    if not hmac.compare_digest(proof, _proof(key, "listener", role, me, peer, nonce, other)):
        raise PeerRefused(_wrong_key(role, me, peer))
    if role != PEER:
        return Login(role, peer)
    assert greet and admit, "a peer has a hello"
    hello = hello_of(rest[0], peer)
    admit(hello)
    frame = yield [["hello", greet(peer).values()]]
    _frame(frame, "welcome", peer)
    return Login(role, peer, hello)


def listener(
    me: str,
    nonce: bytes,
    key_of: Callable[[str, str], bytes],
    accept: Callable[[str], None],
    greet: Callable[[str], Hello],
    admit: Callable[[Hello], None],
) -> Handshake:
    """The side that was connected to.

    key_of(role, peer)  the key that the dialer has to prove
    accept(peer)        raises PeerRefused when the peer, whose key is proved, must not connect (now)
    """
    frame = yield []
    role, peer, wanted, other = _first(frame, me, "the dialer", str, str, str, bytes)
    if role not in (PEER, ADMIN, JOIN, REPLICA) or not SERVER_NAME.fullmatch(peer):
        raise PeerError("a login names no role or no server")
    if wanted != me and (wanted or role != JOIN):
        raise PeerRefused(f"this is {me}, not {wanted}; compare `listen` of both in the topology file")
    if role == REPLICA and peer != me:
        raise PeerRefused(f"this is {me}, and {peer} is no replica of it")
    _check_nonce(other)
    key = key_of(role, peer)
    frame = yield [["mom", VERSION, me, nonce]]
    (proof,) = _frame(frame, "proof", peer, bytes)
    if not hmac.compare_digest(proof, _proof(key, "dialer", role, peer, me, other, nonce)):
        raise PeerRefused(_wrong_key(role, peer, me))
    mine = _proof(key, "listener", role, peer, me, other, nonce)
    if role != PEER:
        return Login(role, peer, None, [["proof", mine]])
    accept(peer)
    frame = yield [["proof", mine, greet(peer).values()]]
    (values,) = _frame(frame, "hello", peer, dict)
    hello = hello_of(values, peer)
    accept(peer)  # again: another connection may have come up meanwhile
    admit(hello)
    return Login(role, peer, hello, [["welcome"]])


def _proof(key: bytes, side: str, role: str, dialer: str, listener: str, first: bytes, second: bytes) -> bytes:
    text = msgpack.packb(["mom", VERSION, side, role, dialer, listener, first, second])
    return hmac.new(key, text, hashlib.sha256).digest()


def _wrong_key(role: str, dialer: str, listener: str) -> str:
    if role == ADMIN:
        return f"the token is not that of the running server {listener}; read it from the data folder of {listener}"
    return f"{dialer} and {listener} have different secrets; `secret_file` must hold the same on both"


def _check_nonce(nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise PeerError(f"a nonce has {NONCE_BYTES} bytes")


def _first(frame: Any, me: str, who: str, *types: type) -> list[Any]:
    """The rest of a `mom` frame."""
    _told(frame, who)
    if not isinstance(frame, list) or len(frame) < 2 or frame[0] != "mom" or type(frame[1]) is not int:
        raise PeerError("no login: whoever speaks there is no agent server")
    if frame[1] != VERSION:
        raise PeerRefused(
            f"{who} speaks version {frame[1]} of the link protocol, {me} speaks {VERSION}; upgrade the older"
        )
    return _shape(frame[2:], "mom", types)


def _frame(frame: Any, kind: str, who: str, *types: type) -> list[Any]:
    """The fields of a frame of this kind."""
    _told(frame, who, kind in ("hello", "welcome"))
    if not isinstance(frame, list) or not frame or frame[0] != kind:
        raise PeerError(f"a login frame is not the expected {kind}")
    return _shape(frame[1:], kind, types)


def _shape(fields: list[Any], kind: str, types: tuple[type, ...]) -> list[Any]:
    if tuple(map(type, fields)) != types:
        raise PeerError(f"a {kind} frame has other fields than expected")
    return fields


def _told(frame: Any, who: str, proved: bool = False) -> None:
    if isinstance(frame, list) and len(frame) == 3 and frame[0] == "refused":
        text = "".join(c if c.isprintable() else " " for c in str(frame[2])[:SENTENCE_CHARS])
        told = Told(f"{who} refuses: {text}")
        told.busy, told.lost = frame[1] == "busy", proved and frame[1] == "lost"
        raise told
