"""A connection of AMQP 1.0 as a pure machine: bytes in; a login, commands and bytes out (parts 2.4 and 5.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mombroker import __version__
from mombroker.amqp import performatives, reading
from mombroker.amqp.codec import FORCED, FRAMING, INVALID, NOT_ALLOWED, NULL, AmqpError, Symbol
from mombroker.amqp.frames import AMQP_FRAME, EMPTY, MAX_FRAME, PLAIN, SASL, SASL_FRAME, Parser, frame
from mombroker.amqp.performatives import Attach, Begin, Close, Detach, Disposition, End, Flow, Init, Open
from mombroker.amqp.session import Session
from mombroker.broker.commands import CONNECTION, Command, Login, Refused, Reply
from mombroker.broker.names import MAX_NAME

IDLE_MS = 60_000  # a client that is silent for longer is gone
BEATS = 2.5  # the gateway's tolerance, in intervals
MAX_BEAT_MS = 86_400_000
MAX_SESSIONS = 1_000
MAX_EARLY = 128 << 10  # bytes behind the login before its answer; the gateway stops to read long before
MARK_BYTES = 256 << 10  # of input between two marks
MAX_MARKS = 64  # without an answer; then the connection is full
MIN_FRAME = 512
SOLE = "sole-connection-for-container"
SASL_OK, SASL_AUTH = 0, 1
CAPABILITIES = ["ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", SOLE]


@dataclass(slots=True)
class Settings:
    """What a listener grants its connections.

    server       how it calls itself; empty: not at all
    anonymous    clients may come in without a user
    external     they may show a certificate
    max_message  bytes of a body
    """

    server: str = f"mombroker/{__version__}"
    anonymous: bool = False
    external: bool = False
    max_message: int = 8 << 20

    def mechanisms(self) -> list[str]:
        offered = ["PLAIN"]
        if self.anonymous:
            offered.append("ANONYMOUS")
        if self.external:
            offered.append("EXTERNAL")
        return offered


class Connection:
    """A session as the gateway wants it (gateway/session.py), with parts that are sessions of their own at the server.

    1. Nothing is obeyed before the login is accepted, nothing after the end.
    2. What is kept is bounded: frames, deliveries that are not whole, sessions, links, input that waits.

    asked    (part, its commands), for the server: the gateway takes them after each call
    claim    the client id that it wants to have now: answered by `claimed`
    """

    beat = EMPTY
    first = "AMQP header"
    version = "1.0"

    def __init__(self, id: str, now: Callable[[], int], settings: Settings):
        self.id, self.now, self.settings = id, now, settings
        self.state = "new"  # new, login, open, leaving, closed
        self.login: Login | None = None
        self.claim: Login | None = None
        self.commands: list[Command] = []
        self.output: list[bytes] = []
        self.notes: list[str] = []
        self.fault = self.client_id = ""
        self.send_every = 0
        self.expect_every = 0
        self.written = 0
        self.sessions: dict[int, Session] = {}  # by the client's channel
        self.parts: dict[int, Session] = {}
        self._ended: set[int] = set()  # channels whose session we have ended, and the client has not yet
        self.most_out, self._most_channel = MIN_FRAME, 0
        self.unfinished_deliveries = 0
        self.temporaries: set[str] = set()  # destinations of ours that are there
        self._parser = Parser()
        self._take = self._header
        self._parted = 0
        self._opened = False  # our open was said
        self._autos: deque[tuple[int, int, int]] = deque()  # number, part and tag of what is settled by being written
        self._marks = self._since_mark = 0

    # -- for the gateway -------------------------------------------------------------------------------------------

    @property
    def max_message(self) -> int:
        return self.settings.max_message

    @property
    def links(self) -> int:
        """How many there are."""
        return sum(
            len(each.inbound.links) + len(each.outbound.links) + len(each.detached) for each in self.sessions.values()
        )

    @property
    def full(self) -> bool:
        return self._marks >= MAX_MARKS

    @property
    def closed(self) -> bool:
        return self.state == "closed"

    @property
    def unfinished(self) -> int:
        return self._parser.waiting + self.unfinished_deliveries

    @property
    def asked(self) -> list[tuple[int, list[Command]]]:
        """What the parts have for the server; whoever reads it has taken it."""
        found = []
        for part, session in list(self.parts.items()):
            if session.commands:
                found.append((part, session.commands))
                session.commands = []
        return found

    @property
    def uncommitted(self) -> int:
        """Bytes in open transactions."""
        return sum(each.coordinator.transactions.bytes for each in self.sessions.values())

    @property
    def wants(self) -> bool:
        """`asked` has something."""
        return any(session.commands for session in self.parts.values())

    def took(self, upto: int) -> list[tuple[int, int]]:
        """What is settled by being written, up to a number of ours: part and tag, the last of each."""
        last: dict[int, int] = {}
        while self._autos and self._autos[0][0] <= upto:
            _, part, tag = self._autos.popleft()
            last[part] = tag
        return list(last.items())

    def counts(self) -> dict[str, Any]:
        sessions = self.sessions.values()
        return {
            "subscriptions": sum(len(each.outbound.links) for each in sessions),
            "unsettled": sum(len(each.outbound.unsettled) for each in sessions),
            "transactions": sum(len(each.coordinator.transactions.open) for each in sessions),
        }  # fmt: skip

    def receive(self, data: bytes) -> None:
        if self.state in ("leaving", "closed"):
            return
        self._parser.feed(data)
        try:
            if self.state == "login":
                if self._parser.waiting > MAX_EARLY:
                    raise AmqpError(f"more than {MAX_EARLY} bytes before the login was answered", FRAMING)
                return
            self._read()
        except AmqpError as error:
            self.fail(error)
        self._since_mark += len(data)
        if self._since_mark >= MARK_BYTES and self.state == "open":
            self._since_mark = 0
            self._mark()

    def _mark(self) -> None:
        """Each session that has work says when that is done."""
        for session in self.parts.values():
            if session.commands:
                self._marks += 1
                session.mark(self._unmark)

    def _unmark(self) -> None:
        self._marks -= 1

    def _read(self) -> None:
        while self.state in ("new", "open") and self._take():
            pass
        for session in self.sessions.values():
            session.finish()

    def put(self, data: bytes) -> None:
        self.output.append(data)

    def put_auto(self, data: bytes, part: int, tag: int) -> None:
        self.output.append(data)
        self.written += 1
        self._autos.append((self.written, part, tag))

    def note(self, line: str) -> None:
        self.notes.append(line)

    # -- headers and SASL --------------------------------------------------------------------------------------------

    def _header(self) -> bool:
        """The first header: with SASL, or without for who is nobody. Whoever begins otherwise is told ours (§2.2)."""
        try:
            header = self._parser.header()
        except AmqpError:
            self.put(SASL)
            raise
        if header is None:
            return False
        if header == SASL:
            self.put(SASL)
            self.put(frame(performatives.mechanisms(self.settings.mechanisms()), kind=SASL_FRAME))
            self._take = self._sasl
        elif header == PLAIN:
            self._take = self._open
            self.put(PLAIN)
            self._wants_in(Login("", ""))
        else:
            self.put(SASL)
            raise AmqpError(f"this server speaks AMQP 1.0, and not {header[4:].hex()}", FRAMING)
        return True

    def _wants_in(self, login: Login) -> None:
        self.login, self.state = login, "login"

    def _sasl(self) -> bool:
        found = self._parser.next()
        if found is None:
            return False
        if found.kind != SASL_FRAME:
            raise AmqpError("a frame before the login that is none of SASL", FRAMING)
        said, _ = reading.decode(found.body)
        if not isinstance(said, Init):
            raise AmqpError("a client begins SASL by sasl-init", FRAMING)
        if said.mechanism not in self.settings.mechanisms():
            self._refuse_login(f"no SASL mechanism {said.mechanism[:40]!r} here")
            return False
        try:
            user, passcode = _credentials(said)
        except ValueError:
            self._refuse_login("a PLAIN login is NUL, user, NUL, passcode")
            return False
        self._wants_in(Login(user, passcode))
        self._take = self._second
        return True

    def _refuse_login(self, why: str) -> None:
        self.fault = why
        self.put(frame(performatives.sasl_outcome(SASL_AUTH), kind=SASL_FRAME))
        self._close()

    def accept(self) -> None:
        assert self.state == "login", "a login is accepted that was not asked for"
        self.login, self.state = None, "open"
        self.expect_every = int(IDLE_MS / BEATS)  # for its open, too
        if self._take == self._second:
            self.put(frame(performatives.sasl_outcome(SASL_OK), kind=SASL_FRAME))
        try:
            self._read()
        except AmqpError as error:
            self.fail(error)

    def _second(self) -> bool:
        """The header behind SASL."""
        header = self._parser.header()
        if header is None:
            return False
        if header != PLAIN:
            raise AmqpError("behind SASL comes the header of AMQP 1.0", FRAMING)
        self.put(PLAIN)
        self._take = self._open
        return True

    # -- the connection ----------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        found = self._parser.next()
        if found is None:
            return False
        said = None
        if found.body:
            said, _ = reading.decode(found.body)
        if not isinstance(said, Open):
            raise AmqpError("a connection begins with open", NOT_ALLOWED)
        if len(said.container) > MAX_NAME or not said.container.isprintable():
            raise AmqpError(f"a container-id has at most {MAX_NAME} printable characters", INVALID)
        self.most_out, self._most_channel = min(MAX_FRAME, max(MIN_FRAME, said.max_frame)), said.channel_max
        if said.idle_ms:
            self.send_every = max(1_000, min(MAX_BEAT_MS, said.idle_ms // 2))
        self.claim = Login("", "", said.container, SOLE in said.desired)
        self._take = self._waiting
        return False

    def _waiting(self) -> bool:
        """For the answer to our claim."""
        return False

    def claimed(self, refusal: str) -> None:
        """The client id is ours, or is not, and why."""
        assert self.claim is not None, "nobody has claimed an id"
        claim, self.claim = self.claim, None
        if refusal:
            info = {"invalid-field": Symbol("container-id")}
            self._shut(refusal, performatives.error(INVALID, refusal, info))
            return
        self.client_id = claim.client_id
        self._say_open({})
        self._parser.most = MAX_FRAME
        self._take = self._frame
        try:
            self._read()
        except AmqpError as error:
            self.fail(error)

    def redirect(self, why: str, host: str, port: int) -> None:
        """In place of `claimed`: who is looked for is there; without a port, nobody knows where."""
        self.claim = None
        self._shut(why, performatives.redirect(why, host, port) if port else performatives.error(FORCED, why))

    def _shut(self, fault: str, error: bytes) -> None:
        """An open that is no more than the words for a close."""
        self._say_open({"amqp:connection-establishment-failed": True})
        self._end(fault, error)

    def _say_open(self, more: dict[str, Any]) -> None:
        if not self._opened:
            self._opened = True
            server = self.settings.server
            product, _, version = server.partition("/")
            about = {"product": product, "version": version} if server else {}
            self.put(frame(performatives.open_(self.id, MAX_FRAME, IDLE_MS, CAPABILITIES, about | more)))

    def _frame(self) -> bool:
        found = self._parser.next()
        if found is None:
            return False
        if found.kind != AMQP_FRAME:
            raise AmqpError("a frame that is none of AMQP", FRAMING)
        if not found.body:
            return True  # a sign of life
        said, at = reading.decode(found.body)
        session = self.sessions.get(found.channel)
        kind = type(said)
        if kind is Begin:
            self._begin(found.channel, said, session)
        elif kind is Close:
            self._leave()
        elif session is None:
            self._unmapped(found.channel, kind)
        elif kind is End:
            self._end_session(session)
        elif kind is performatives.Transfer or kind is Disposition or kind in _OF_SESSION:
            try:
                if kind is performatives.Transfer:
                    session.transfer(said, found.body[at:], self._parser)
                elif kind is Disposition:
                    session.disposition(said, self._parser.accepted(found))
                else:
                    _OF_SESSION[kind](session, said)
            except AmqpError as error:  # its session has broken the rules, and no other has to bear it
                self.note(str(error))
                self._ended.add(found.channel)
                self._end_session(session, performatives.error(error.condition, str(error)))
        else:
            raise AmqpError(f"{kind.__name__.lower()} has no place here", NOT_ALLOWED)
        return True

    def _unmapped(self, channel: int, kind: type[Any]) -> None:
        """No session has the channel. What a client said before it heard that we ended its session, is passed over."""
        if channel not in self._ended:
            raise AmqpError(f"channel {channel} has no session", NOT_ALLOWED)
        if kind is End:
            self._ended.remove(channel)

    def _begin(self, channel: int, said: Begin, session: Session | None) -> None:
        if session is not None or channel in self._ended:
            raise AmqpError(f"channel {channel} has a session already", NOT_ALLOWED)
        if len(self.sessions) + len(self._ended) >= MAX_SESSIONS:
            raise AmqpError(f"{MAX_SESSIONS} sessions in one connection: no more are taken", NOT_ALLOWED)
        self._parted += 1
        session = Session(self, self._parted, self._channel(channel), channel, said)
        self.sessions[channel] = self.parts[self._parted] = session

    def _channel(self, theirs: int) -> int:
        """The client's number, but where we have not yet said the end of another session that has it: a free one."""
        taken = {each.channel for each in self.parts.values()}
        if theirs not in taken:
            return theirs
        return next((each for each in range(self._most_channel + 1) if each not in taken), theirs)

    def _end_session(self, session: Session, error: bytes = NULL) -> None:
        del self.sessions[session.theirs]
        session.end(lambda: self.put(frame(performatives.end(error), session.channel)))

    def _leave(self) -> None:
        """Close once all that came before is done."""
        self.state = "leaving"
        for session in list(self.sessions.values()):
            session.end(lambda: None)
        self.sessions.clear()
        self._left()

    def _left(self) -> None:
        if self.state == "leaving" and not self.parts:
            self.put(frame(performatives.close()))
            self._close()

    def reply(self, said: list[Reply]) -> None:
        """To the connection itself, which asks for nothing: it must go."""
        for reply in said:
            if isinstance(reply, Refused):
                self._end(reply.message, performatives.error(FORCED, reply.message))

    def reply_to(self, part: int, said: list[Reply]) -> bool:
        """To one of its parts; False when that has ended."""
        session = self.parts.get(part)
        if session is None or self.closed:
            return False
        for reply in said:
            if isinstance(reply, Refused) and reply.scope == CONNECTION:
                self.reply([reply])
                return False
        session.reply(said)
        if session.over:
            del self.parts[part]
            self._left()
        return not session.over

    # -- the end -----------------------------------------------------------------------------------------------------

    def fail(self, error: AmqpError) -> None:
        """The client has broken the rules."""
        if self._take == self._sasl:
            self._refuse_login(str(error))
        elif self._take == self._header:
            self.fault = str(error)
            self._close()
        else:
            self._end(str(error), performatives.error(error.condition, str(error)))

    def _end(self, fault: str, error: bytes) -> None:
        if self.closed:
            return
        self.fault = fault
        self._say_open({})
        self.put(frame(performatives.close(error)))
        self._close()

    def _close(self) -> None:
        self.state, self.login = "closed", None

    def end(self, reason: str) -> None:
        if self.closed:
            return
        if self.state == "login" and self._take == self._second:
            self._refuse_login(reason)
        elif self._take in (self._header, self._sasl):
            self.fail(AmqpError(reason))
        else:
            self._end(reason, performatives.error(FORCED, reason))

    def hurry(self) -> None:
        if self.state == "leaving":
            self.put(frame(performatives.close()))
            self._close()

    def forget(self) -> None:
        self._parser = Parser()
        for session in self.sessions.values():
            session.forget()

    def check(self) -> None:
        """Assert the invariants."""
        for session in self.sessions.values():
            session.check()


_OF_SESSION: dict[type[Any], Callable[[Session, Any], None]] = {
    Attach: Session.attach, Flow: Session.flow, Detach: Session.detach,
}  # fmt: skip


def _credentials(said: Init) -> tuple[str, str]:
    """User and passcode. Raises ValueError."""
    if said.mechanism == "PLAIN":
        _, user, passcode = said.response.decode().split("\0")
        return user, passcode
    if said.mechanism == "EXTERNAL":
        return said.response.decode(), ""
    return "", ""
