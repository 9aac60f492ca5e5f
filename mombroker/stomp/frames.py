"""The frame codec: bytes in, frames out, at any split of the bytes; limits are checked before anything is buffered.

Specification: STOMP 1.0, 1.1, 1.2 (stomp.github.io).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from mombroker.core.errors import MomError
from mombroker.stomp.headers import V10, V12, escape, unescape

CLIENT = frozenset("CONNECT STOMP SEND SUBSCRIBE UNSUBSCRIBE ACK NACK BEGIN COMMIT ABORT DISCONNECT".split())
SERVER = frozenset("CONNECTED MESSAGE RECEIPT ERROR".split())
BODIES = frozenset(("SEND", "MESSAGE", "ERROR"))
LITERAL = frozenset(("CONNECT", "STOMP", "CONNECTED"))  # whose headers are never escaped

END = b"\0\n"  # of what a server says: line ends may follow a NUL, and some clients read a line there
LENGTH_DIGITS = 12
MAX_KNOWN, MAX_KNOWN_BYTES = 64, 1_024  # heads that a parser remembers, and the length of each
MAX_RECEIPT, MAX_SHOWN = 200, 256  # of a receipt, and of a destination, that are read in a shorter way
MAX_STRANGE, SAMPLE = 256, 16  # after so many new heads in a row, one of so many is remembered, until one comes again
_NOTHING = re.compile(rb"(?!)")
_DESTINATION = b"\ndestination:"
_LINE_ENDS = re.compile(rb"(?:\r?\n)+")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_PLAIN = re.compile(rb"[!-9;-\[\]-~]*")  # a value that means itself in every version
_ACK = re.compile(rb"(N?ACK)\nid:([!-9;-\[\]-~]{1,200})\n\n\0")
_ACKS = re.compile(rb"(?:ACK\nid:[!-9;-\[\]-~]{1,200}+\n\n\0)++")
_ACK_ID, _ACK_END = "ACK\nid:", "\n\n\0"
_BETWEEN = _ACK_END + _ACK_ID


class FrameError(MomError):
    """The peer broke the rules of STOMP or a limit: it gets an ERROR frame, and the connection is closed.

    receipt   that of the frame, if it had one and so much of it was read
    """

    def __init__(self, text: str, receipt: str | None = None):
        super().__init__(text)
        self.receipt = receipt


@dataclass(slots=True)
class Limits:
    """Bytes and counts of one frame."""

    headers: int = 1_000
    line: int = 65_536
    head: int = 262_144
    body: int = 8 << 20


BEFORE_LOGIN = Limits(headers=20, line=8_192, head=16_384, body=1_024)


class Frame(NamedTuple):
    """`headers` hold all of them, the first of each name."""

    command: str
    headers: dict[str, str]
    body: bytes


_frame = tuple.__new__  # half the time of Frame(...)


def encode(command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: str = V12) -> bytes:
    """One frame."""
    if command in LITERAL:
        version = V10
    head = "".join([f"{escape(name, version)}:{escape(value, version)}\n" for name, value in headers])
    end = END if command in SERVER else b"\0"
    return b"".join((command.encode(), b"\n", head.encode(), b"\n", body, end))


class Known:
    """What heads of SENDs have in common that differ in receipt and destination alone: between `before` and `after` is
    the receipt, where the last one had one. `memo` is for whoever reads the frames.

    headers  those that all have
    told     the destination of the last one, if it is not among these; another object for another destination
    """

    __slots__ = ("command", "headers", "told", "length", "before", "after", "memo", "_match", "_elsewhere")

    def __init__(self, command: str, headers: dict[str, str], length: int | None):
        self.command, self.headers, self.length = command, headers, length
        self.told: dict[str, str] = {}
        self.before = self.after = b""
        self.memo: Any = None
        self._match: Any = None
        self._elsewhere: Any = None

    def tell(self, shown: str) -> None:
        """The last one's destination, if that was cut out. Where it is new, nothing is `before` a receipt yet."""
        if self.told.get("destination") != shown:
            self.told, self.before = {"destination": shown}, b""

    def between(self, before: bytes, after: bytes) -> None:
        self.before = before
        if after != self.after:
            self.after, self._match = after, None

    def match(self) -> Callable[[bytes | bytearray, int], re.Match[bytes] | None]:
        """What finds receipt and body of such a frame, if one is whole whose receipt begins there."""
        if self._match is None:
            self._match = re.compile(self._rest()).match
        match: Callable[[bytes | bytearray, int], re.Match[bytes] | None] = self._match
        return match

    def elsewhere(self, data: bytes | bytearray, at: int) -> re.Match[bytes] | None:
        """Destination, receipt and body of such a frame, if one begins there and is whole."""
        if self._elsewhere is None:
            start, line, behind = self.before.partition(_DESTINATION)
            if not line or not self.told:
                self._elsewhere = _NOTHING.match
            else:
                behind = re.escape(behind[behind.index(b"\n") :])
                pattern = re.escape(start + line) + rb"([!-9;-\[\]-~]{0,%d}+)" % MAX_SHOWN + behind + self._rest()
                self._elsewhere = re.compile(pattern).match
        found: re.Match[bytes] | None = self._elsewhere(data, at)
        return found

    def _rest(self) -> bytes:
        """Of a frame, from its receipt on."""
        body = rb"((?s:.{%d}))\0" % self.length if self.length is not None else rb"([^\0]*+)\0"
        return rb"([!-9;-\[\]-~]{0,%d}+)" % MAX_RECEIPT + re.escape(self.after) + body


class Parser:
    """Bytes of one connection to frames: `feed` them, then ask for the `next` frame until there is none.

    1. Frames and faults are the same at every split of the bytes.
    2. What is kept of an unfinished frame is within the limits, and no byte of it is searched again and again.

    commands         those of the other side: CLIENT, SERVER
    version, limits  change by `agree` between two frames; until the first one has been read both line ends are good
    known, receipt   of the last frame, if its head is remembered; where that has a memo, `headers` may lack what is not
                     of all of them
    """

    __slots__ = (
        "version", "limits", "commands", "first", "known", "receipt", "_data", "_at", "_seen", "_lines", "_head",
        "_heads", "_last", "_quick", "_strange",
    )  # fmt: skip

    def __init__(self, limits: Limits, version: str = V10, commands: frozenset[str] = CLIENT):
        self.commands = commands
        self.first = True
        self.known: Known | None = None
        self.receipt: str | None = None
        self._data: bytes | bytearray = b""
        self._at = 0  # what is before it has been read
        self._seen = 0  # up to here there is no end of the head or body that is being read
        self._lines = 0  # in an unfinished head
        self._head: tuple[str, dict[str, str], int | None, int] | None = None  # and where its body starts
        self.agree(version, limits)

    def agree(self, version: str, limits: Limits) -> None:
        """From the next frame on."""
        self.version, self.limits = version, limits
        self._heads: dict[bytes, Known] = {}  # without their receipt
        self._last: Known | None = None  # with one
        self._strange = 0  # new heads in a row
        roomy = limits.line >= MAX_KNOWN_BYTES and limits.head >= 2 * MAX_KNOWN_BYTES and limits.headers > 0
        self._quick = roomy and self.commands is CLIENT  # what is read in a shorter way cannot be over a limit

    @property
    def waiting(self) -> int:
        """Bytes that were fed and not read."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        at, rest = self._at, self._data
        if at == len(rest):  # as usual
            self._data, self._at = data, 0
            return
        if len(rest) - at <= len(data):
            self._data = rest[at:] + data
        else:  # it grows by small pieces: no copy for each of them
            if isinstance(rest, bytes):
                rest = self._data = bytearray(memoryview(rest)[at:])
            else:
                del rest[:at]
            rest += data
        self._at, self._seen = 0, max(0, self._seen - at)
        if self._head is not None:
            self._head = (*self._head[:3], self._head[3] - at)

    def next(self) -> Frame | None:
        """The next whole frame. Raises FrameError; the parser is then of no more use."""
        data, at = self._data, self._at
        size = len(data)
        if self._head is None:
            if at == size:  # as after the last frame of what came
                self._data, self._at = b"", 0
                return None
            if self._quick and not self.first:
                last = self._last
                if last is not None and (before := last.before):
                    like = self._like if data.startswith(before, at) else self._like_elsewhere
                    if (frame := like(last, data, at)) is not None:
                        return frame
                if ack := _ACK.match(data, at):
                    self._at, self._seen, self._lines, self.known = ack.end(), 0, 0, None
                    return _frame(Frame, (ack[1].decode(), {"id": ack[2].decode()}, b""))
            if at < size and data[at] < 14:
                at = self._at = self._skip_line_ends(data, at)
            if at == size:
                self._data, self._at = b"", 0
                return None
            if data[at] == 13 and at + 1 == size:
                return None
            start = self._seen - 2 if self._seen > at + 2 else at
            both = self.version == V12 or self.first
            returns = both and data.find(b"\r\n", at, data.find(b"\n", at) + 1) >= 0  # on its first line
            if not returns:  # else "\n\n" may be nowhere, and all that has come would be searched for each frame
                end = data.find(b"\n\n", start)
                returns = both and data.find(b"\r", start, end if end >= 0 else size) >= 0
            if not returns:
                start = end + 2
            else:
                end, start = found.span() if (found := _BLANK_LINE.search(data, start)) else (-1, 0)
            if end < 0:
                self._check_unfinished(data, at)
                return None
            head = data[at:end]
            self.known = None
            known = data.startswith(b"SEND\n", at) and not self.first
            command, headers, length = self._known_head(bytes(head)) if known else self._read_head(head)
            seen = start
        else:
            command, headers, length, start = self._head
            seen = self._seen
        if length is None:
            end = data.find(0, seen)
            if end != start:
                self._check_body(command, headers, (size if end < 0 else end) - start)
        else:
            end = start + length
            if end >= size:
                end = -1
            elif data[end]:
                raise FrameError("no NUL after the body: content-length does not fit", headers.get("receipt"))
        if end < 0:
            self._head, self._seen = (command, headers, length, start), size
            return None
        self._at, self._seen, self._lines, self._head, self.first = end + 1, 0, 0, None, False
        body = data[start:end]
        return _frame(Frame, (command, headers, body if type(body) is bytes else bytes(body)))

    def like(self, known: Known, most: int) -> list[tuple[bytes, bytes]]:
        """Receipts and bodies of the SENDs that come next and are like the last one, at most so many."""
        found: list[tuple[bytes, bytes]] = []
        data, at = self._data, self._at
        before, limit = known.before, self.limits.body
        if self._head is None and self._quick and before and data.startswith(before, at):
            past, match, begins = len(before), known.match(), data.startswith
            while len(found) < most and begins(before, at):
                frame = match(data, at + past)
                if frame is None or len(frame[2]) > limit:
                    break
                found.append((frame[1], frame[2]))
                at = frame.end()
            self._at = at
        return found

    def in_turn(
        self, known: Known, queue: Callable[[str], str | None], most: int
    ) -> list[tuple[tuple[str, str], str, bytes]]:
        """Of the SENDs that come next and are like the last one, but each to another `queue` than the one before it, at
        most so many: that and its name in the frame, receipt and body."""
        found: list[tuple[tuple[str, str], str, bytes]] = []
        if self._head is not None or not self._quick:
            return found
        data, at, limit, last = self._data, self._at, self.limits.body, known.told.get("destination")
        while len(found) < most and (frame := known.elsewhere(data, at)) is not None and len(frame[3]) <= limit:
            shown = frame[1].decode()
            if shown == last or (name := queue(shown)) is None:
                break
            found.append(((name, shown), frame[2].decode(), frame[3]))
            self._at, last, before, at = frame.end(), shown, (at, frame.start(2)), frame.end()
        if found:
            known.tell(found[-1][0][1])
            known.before = bytes(data[slice(*before)])
        return found

    def acks(self) -> list[str]:
        """The ids of the ACKs that come next, as far as they have no other header; such come in long rows."""
        if self._at == len(self._data) or not self._quick or self._head is not None:
            return []
        if not (row := _ACKS.match(self._data, self._at)):
            return []
        found = self._data[row.start() + len(_ACK_ID) : row.end() - len(_ACK_END)].decode().split(_BETWEEN)
        self._at, self._seen, self._lines, self.known = row.end(), 0, 0, None
        return found

    def _like(self, known: Known, data: bytes | bytearray, at: int) -> Frame | None:
        """The frame that begins there, if it is whole and only its receipt and its body are new."""
        cut = at + len(known.before)
        end = data.find(known.after, cut, cut + MAX_KNOWN_BYTES)
        if end < 0 or not _PLAIN.fullmatch(data, cut, end):
            return None
        start = end + len(known.after)
        if known.length is None:
            stop = data.find(0, start)
            if not start <= stop <= start + self.limits.body:
                return None
        else:
            stop = start + known.length
            if stop >= len(data) or data[stop]:
                return None
        self._at, self._seen, self._lines, self.known = stop + 1, 0, 0, known
        self.receipt = receipt = data[cut:end].decode()
        headers = known.headers if known.memo is not None else {**known.headers, **known.told, "receipt": receipt}
        return _frame(Frame, (known.command, headers, bytes(data[start:stop])))

    def _like_elsewhere(self, known: Known, data: bytes | bytearray, at: int) -> Frame | None:
        """The same, but for its destination."""
        found = known.elsewhere(data, at)
        if found is None or len(found[3]) > self.limits.body:
            return None
        known.tell(found[1].decode())
        known.before = bytes(data[at : found.start(2)])
        self._at, self._seen, self._lines, self.known = found.end(), 0, 0, known
        self.receipt = receipt = found[2].decode()
        return _frame(Frame, (known.command, {**known.headers, **known.told, "receipt": receipt}, found[3]))

    def _known_head(self, head: bytes) -> tuple[str, dict[str, str], int | None]:
        """Command, headers and content-length: remembered, if only receipt and destination are new."""
        self._strange = strange = self._strange + 1
        if len(head) > MAX_KNOWN_BYTES or (strange > MAX_STRANGE and strange % SAMPLE):
            return self._read_head(head)
        key, receipt, shown = head, None, None
        if (cut := head.find(b"\nreceipt:")) >= 0:
            end = head.find(b"\n", cut + 9)
            key, receipt = (head[:cut], head[cut + 9 :]) if end < 0 else (head[:cut] + head[end:], head[cut + 9 : end])
            if not _PLAIN.fullmatch(receipt):
                return self._read_head(head)
        if (at := key.find(_DESTINATION)) >= 0:
            at += len(_DESTINATION)
            end = key.find(b"\n", at)
            value = key[at:] if end < 0 else key[at:end]
            if _PLAIN.fullmatch(value):
                key, shown = key[:at] if end < 0 else key[:at] + key[end:], value.decode()
        known = self._heads.get(key)
        if known is None:
            command, headers, length = self._read_head(head)
            if b"\r" in head or b"\nreceipt:" in key or len(headers) >= self.limits.headers:
                return command, headers, length
            if len(self._heads) >= MAX_KNOWN:
                self._heads.clear()
            own = ("receipt",) if shown is None else ("receipt", "destination")
            mine = {name: value for name, value in headers.items() if name not in own}
            known = self._heads[key] = Known(command, mine, length)
        else:
            self._strange = 0
        if shown is not None:
            known.tell(shown)
        self.known, self.receipt = known, None
        if receipt is None:
            return known.command, {**known.headers, **known.told}, known.length
        self.receipt = receipt.decode()
        known.between(head[: cut + 9], head[cut + 9 + len(receipt) :] + b"\n\n")
        self._last = known
        return known.command, {**known.headers, **known.told, "receipt": self.receipt}, known.length

    def _skip_line_ends(self, data: bytes | bytearray, at: int) -> int:
        ends = _LINE_ENDS.match(data, at)
        return ends.end() if ends else at

    def _check_unfinished(self, data: bytes | bytearray, at: int) -> None:
        """The limits of a head that is not whole, and what can no longer become right."""
        limits, size, seen = self.limits, len(data), max(at, self._seen)
        if seen - at < 16:
            line, ended, _ = bytes(data[at : at + 16]).partition(b"\n")
            name = line.removesuffix(b"\r") if self.version == V12 or self.first else line
            commands = [command.encode() for command in self.commands]
            if name not in commands if ended else not any(command.startswith(name) for command in commands):
                raise self._unknown(line)
        if size - at > limits.head + 2:
            raise FrameError(f"the headers of a frame are over {limits.head} bytes: put it into the body")
        if size - max(at, data.rfind(b"\n", at) + 1) > limits.line + 1:
            raise FrameError(f"a header line is over {limits.line} bytes: put it into the body")
        self._lines += data.count(b"\n", seen)
        if self._lines > limits.headers + 1:
            raise FrameError(f"a frame has more than {limits.headers} headers: put them into the body")
        if data.find(0, seen) >= 0:
            raise FrameError("a NUL among the headers: a blank line must follow them")
        self._seen = size

    def _unknown(self, line: bytes) -> FrameError:
        if line[:2] == b"\x16\x03":
            return FrameError("these bytes are TLS: this port takes plain text")
        shown = repr(line[:40].decode(errors="replace"))
        hint = ": a line ends in LF alone here" if line.endswith(b"\r") else ""
        return FrameError(f"unknown command {shown}{hint}")

    def _read_head(self, head: bytes | bytearray) -> tuple[str, dict[str, str], int | None]:
        """Command, headers and content-length."""
        limits, version = self.limits, self.version
        if len(head) > limits.head:
            raise FrameError(f"the headers of a frame are over {limits.head} bytes: put it into the body")
        try:
            text = head.decode()
        except UnicodeDecodeError:
            raise FrameError("headers must be UTF-8") from None
        if "\r" in text and (version == V12 or self.first):
            text = text.replace("\r\n", "\n").removesuffix("\r")
        lines = text.split("\n")
        command = lines.pop(0)
        if command not in self.commands:
            raise self._unknown(command.encode())
        if "\0" in text:
            raise FrameError("a NUL among the headers: a blank line must follow them")
        if len(lines) > limits.headers:
            raise FrameError(f"a frame has more than {limits.headers} headers: put them into the body")
        if len(head) > limits.line and any(len(line.encode()) > limits.line for line in lines):
            raise FrameError(f"a header line is over {limits.line} bytes: put it into the body")
        headers: dict[str, str] = {}
        odd = "\\" in text or "\r" in text or (version == V10 and " " in text)
        if not odd and text.count(":") == len(lines):
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    break
                headers[name] = value
        if len(headers) != len(lines) or "" in headers:  # something to unescape, to trim, to pass over, or to refuse
            headers = _read_lines(lines, version, command in LITERAL)
        length = None
        if "content-length" in headers:
            text = headers["content-length"].strip(" ")
            if not (text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS):
                raise FrameError(f"content-length must be a number of bytes, not {text[:40]!r}", headers.get("receipt"))
            length = int(text)
            if length:
                self._check_body(command, headers, length)
        return command, headers, length

    def _check_body(self, command: str, headers: dict[str, str], size: int) -> None:
        if size > self.limits.body:
            raise FrameError(
                f"a body is over {self.limits.body} bytes: send less, or raise max_message in [limits]",
                headers.get("receipt"),
            )
        if size and command not in BODIES and self.version != V10:
            raise FrameError(f"a {command} frame has no body", headers.get("receipt"))


def _read_lines(lines: list[str], version: str, literal: bool) -> dict[str, str]:
    """The headers in any lines."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            shown = "" if literal else f", not {line[:40]!r}"  # it may hold a passcode
            raise FrameError(f"a header is name:value{shown}")
        if not literal:
            if version == V10:
                value = value.strip(" ")
            else:
                try:
                    name, value = unescape(name, version), unescape(value, version)
                except ValueError as error:
                    raise FrameError(str(error)) from None
        headers.setdefault(name, value)
    return headers
