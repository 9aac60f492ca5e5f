"""WebSocket (RFC 6455), a server's side, without sockets: the handshake, frames in and out.

A payload is handed on in the pieces in which it comes. Nothing of it is kept here, so it needs no bound of its own:
those of the protocol inside count.
"""

from __future__ import annotations

import codecs
import hashlib
import math
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from mombroker.core.errors import MomError
from mombroker.gateway.web.http import Request

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, WRONG, NO_TEXT, REFUSED = 1000, 1002, 1007, 1008  # why a connection ends
LAST, MASKED, RESERVED = 0x80, 0x80, 0x70
CONTROL_BYTES = 125  # of the payload of a control frame
SHORT, MIDDLE = 126, 1 << 16  # from here on a length takes 2 bytes, and 8
VERSION = "13"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Broken(Exception):
    """What a client sent is no WebSocket. `code`: what it is told."""

    def __init__(self, code: int, text: str):
        self.code = code
        super().__init__(text)


def accepts(request: Request, protocols: tuple[str, ...]) -> list[tuple[str, str]]:
    """The headers that grant the handshake, with the first of our protocols that the client offers; none if it offers
    none. Raises MomError."""
    headers = request.headers
    if not request.upgrades or "upgrade" not in _listed(headers.get("connection", "").lower()):
        raise MomError("this is the address of a WebSocket: open it as ws://HOST:PORT/ws")
    if headers.get("sec-websocket-version") != VERSION:
        raise MomError(f"this server speaks WebSocket version {VERSION}")
    key = headers.get("sec-websocket-key", "")
    try:
        if len(b64decode(key, validate=True)) != 16:
            raise MomError("Sec-WebSocket-Key is not of 16 bytes")
    except (Base64Error, ValueError):
        raise MomError("Sec-WebSocket-Key is no base64") from None
    offered = _listed(headers.get("sec-websocket-protocol", ""))
    chosen = next((each for each in protocols if each in offered), "")
    if offered and not chosen:
        raise MomError(f"this server speaks {', '.join(protocols)}: offer one of them as subprotocol")
    digest = hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()
    granted = [("upgrade", "websocket"), ("connection", "upgrade")]
    granted.append(("sec-websocket-accept", b64encode(digest).decode()))
    return granted + ([("sec-websocket-protocol", chosen)] if chosen else [])


def _listed(header: str) -> list[str]:
    return [each.strip() for each in header.split(",") if each.strip()]


def frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < SHORT:
        return bytes((LAST | opcode, size)) + payload
    if size < MIDDLE:
        return struct.pack(">BBH", LAST | opcode, 126, size) + payload
    return struct.pack(">BBQ", LAST | opcode, 127, size) + payload


def closing(code: int, reason: str = "") -> bytes:
    """The last frame of one side."""
    return frame(CLOSE, struct.pack(">H", code) + _cut(reason.encode(errors="replace"), CONTROL_BYTES - 2))


def message(payload: bytes) -> bytes:
    """A text where it is one: some clients take nothing else."""
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            return frame(BINARY, payload)
    return frame(TEXT, payload)


def _cut(text: bytes, most: int) -> bytes:
    return text[:most].decode(errors="ignore").encode()


class Frames:
    """The frames of a client.

    ping    the payload of the last one that is not answered yet; None: there is none
    most    how many frames may come from now on
    closed  the code with which the client ended, or NORMAL if it gave none; 0: it goes on
    """

    __slots__ = (
        "ping",
        "most",
        "closed",
        "_kept",
        "_left",
        "_mask",
        "_inside",
        "_text",
        "_last",
        "_decoder",
        "_split",
    )

    def __init__(self, most: float = math.inf):
        self.most = most
        self.ping: bytes | None = None
        self.closed = 0
        self._kept = b""  # of a head or a control frame that is not whole: less than CONTROL_BYTES + 14
        self._left = 0  # bytes of a payload that are still to come
        self._mask = b""
        self._inside = self._text = self._last = False  # a message has begun; it is a text; this is its last frame
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._split = False  # the last piece of a text ended within a character

    def feed(self, data: bytes) -> bytes:
        """What these bytes bring of messages, one behind the other. Raises Broken; nothing after a close is read."""
        if self._kept:
            data, self._kept = self._kept + data, b""
        at, end, pieces = 0, len(data), []
        while at < end and not self.closed:
            if not self._left:
                body = self._head(data, at, end)
                if body < 0:
                    self._kept = data[at:]
                    break
                at = body
                self.most -= 1
                if self.most < 0:
                    raise Broken(REFUSED, "too many frames before the login")
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                if piece:
                    pieces.append(self._piece(piece))
            if not self._left and self._inside and self._last:
                self._end()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _head(self, data: bytes, at: int, end: int) -> int:
        """Where what follows the head at `at` begins; of a control frame, what follows it. -1: it is not whole."""
        if end - at < 2:
            return -1
        first, second = data[at], data[at + 1]
        opcode, size = first & 15, second & 127
        if first & RESERVED:
            raise Broken(WRONG, "a reserved bit is set in a frame, though no extension was agreed")
        if not second & MASKED:
            raise Broken(WRONG, "the frames of a client must be masked")
        if opcode >= CLOSE:
            return self._control(opcode, size, bool(first & LAST), data, at, end)
        body = at + (6 if size < 126 else 8 if size == 126 else 14)
        if end < body:
            return -1
        if size >= 126:
            size = int.from_bytes(data[at + 2 : body - 4], "big")
            if size < (SHORT if body == at + 8 else MIDDLE) or size >> 63:
                raise Broken(WRONG, f"a frame gives its length, {size}, in a form that is not for it")
        if opcode > BINARY or (opcode == CONTINUED) is not self._inside:
            raise Broken(WRONG, f"a frame of kind {opcode} is out of place")
        if opcode:
            self._text, self._inside = opcode == TEXT, True
        self._last, self._left, self._mask = bool(first & LAST), size, data[body - 4 : body]
        return body

    def _control(self, opcode: int, size: int, last: bool, data: bytes, at: int, end: int) -> int:
        if opcode > PONG or not last or size > CONTROL_BYTES:
            raise Broken(WRONG, f"a control frame of kind {opcode} is cut, too long or not known")
        body = at + 6
        if end < body + size:
            return -1
        payload = _unmasked(data[body : body + size], data[at + 2 : body])
        if opcode == PING:
            self.ping = payload
        elif opcode == CLOSE:
            self.closed = _code(payload)
        return body + size

    def _piece(self, piece: bytes) -> bytes:
        size, mask = len(piece), self._mask
        self._left -= size
        clear = _unmasked(piece, mask)
        if self._left:
            turn = size & 3
            self._mask = mask[turn:] + mask[:turn]
        if self._text and (self._split or not clear.isascii()):
            self._decode(clear, False)
            self._split = bool(self._decoder.getstate()[0])
        return clear

    def _end(self) -> None:
        """A message is over."""
        self._inside = self._last = False
        if self._split:
            self._decode(b"", True)

    def _decode(self, piece: bytes, last: bool) -> None:
        try:
            self._decoder.decode(piece, last)
        except UnicodeDecodeError:
            raise Broken(NO_TEXT, "a text is not UTF-8: send it as a binary message") from None


def _unmasked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


def _code(payload: bytes) -> int:
    """Why the client ends."""
    if not payload:
        return NORMAL
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000):
        raise Broken(WRONG, "a close has a code that is none")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise Broken(NO_TEXT, "the reason of a close is not UTF-8") from None
    return code
