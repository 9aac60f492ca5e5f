"""One client's talk with servers as a pure machine: what is not answered yet, and what a new connection must be told.

No sockets, no threads, no clock. The owner takes `output` after each call and gives it to the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mombroker.jms.destinations import Destination
from mombroker.jms.errors import ConnectionLost, IllegalState, JmsError, LoginRefused, MessageFormat, Refused
from mombroker.stomp.frames import SERVER, Frame, FrameError, Limits, Parser, encode
from mombroker.stomp.headers import V12

Headers = Mapping[str, str | Destination]
LIMITS = Limits(headers=2_000, line=1 << 20, head=4 << 20, body=1 << 30)  # of what a server may send
MAX_TEMPORARY = 1_000  # queues of a connection
NO_LIMIT = 1 << 62
SPARE = {"receipt": "r" + "9" * 18, "transaction": "t" + "9" * 18}  # what a SEND may get beside its own headers
MAX_FAULTS = 3  # of unknown cause without any answer between them; then it is the fault of what was asked first

# What becomes of a call that was sent and not answered when the connection is lost.
AGAIN, FAIL, DONE = "again", "fail", "done"


@dataclass(slots=True)
class Part:
    """One frame to be sent."""

    command: str
    headers: Headers
    body: bytes = b""


@dataclass(slots=True, eq=False)
class Call:
    """Something asked that has one answer, a receipt for its last part."""

    parts: list[Part]
    loss: str
    receipt: str
    size: int
    sent: bool = False
    done: bool = False
    error: JmsError | None = None
    unconfirmed: str = ""
    watched: bool = True  # somebody waits for it
    then: tuple[Callable[[], None], ...] = ()  # to be called when it is done


@dataclass(slots=True, eq=False)
class Subscription:
    """`take` gets each MESSAGE; `lost` is told that the connection is, `end` that the server wants it no more."""

    id: str
    headers: Headers
    take: Callable[[Frame], None]
    lost: Callable[[], None]
    end: Callable[[JmsError], None]
    call: Call | None = None


@dataclass(slots=True)
class Settings:
    """What CONNECT says. Heart-beats in ms. `exclusive`: nobody else may have the client id."""

    client_id: str = ""
    beat: int = 10_000
    exclusive: bool = False


@dataclass(slots=True)
class Taken:
    """What a server takes, as CONNECTED says: headers of a frame, bytes of a line, of all headers and of a body;
    transactions that are open on a connection, and its subscriptions."""

    headers: int = NO_LIMIT
    line: int = NO_LIMIT
    head: int = NO_LIMIT
    body: int = NO_LIMIT
    transactions: int = NO_LIMIT
    subscriptions: int = NO_LIMIT


@dataclass(slots=True, eq=False)
class Machine:
    """1. Calls are sent, and sent again, in the order in which they were made, behind the subscriptions.
    2. A call is in `calls` until it is done; `size` is the sum of their sizes.
    3. Nothing that a lost connection has brought is settled on another: `epoch` tells them apart.

    state    down, login, up, leaving; over: for good
    final    why it is over
    time     of the server's clock when it let us in, in ms since 1970; 0 if it does not say
    faults   what went wrong without anybody waiting for it; the owner takes them
    """

    settings: Settings
    state: str = "down"
    epoch: int = 0
    session: str = ""
    time: int = 0
    taken: Taken = field(default_factory=Taken)
    beats: tuple[int, int] = (0, 0)  # ms between those we send, those we expect
    calls: dict[str, Call] = field(default_factory=dict)
    size: int = 0
    subs: dict[str, Subscription] = field(default_factory=dict)
    temporary: list[tuple[Destination, Call]] = field(default_factory=list)  # queues, made anew on each connection
    output: list[bytes] = field(default_factory=list)
    faults: list[JmsError] = field(default_factory=list)
    final: JmsError | None = None
    farewell: str = ""  # what the server said last
    elsewhere: bool = False  # and that another one would take us
    _number: int = 0
    _blind: int = 0  # faults without a known cause since the last answer
    _parser: Parser = field(default_factory=lambda: Parser(LIMITS, V12, SERVER))

    # -- the connection --------------------------------------------------------------------------------------------

    def opened(self, host: str, user: str, passcode: str) -> None:
        """There is a connection to a server."""
        assert self.state == "down", "two connections at once"
        self._parser = Parser(LIMITS, V12, SERVER)
        self.state, self.farewell, self.elsewhere = "login", "", False
        headers = {"accept-version": V12, "host": host, "heart-beat": f"{self.settings.beat},{self.settings.beat}"}
        if self.settings.client_id:
            headers["client-id"] = self.settings.client_id
        if self.settings.exclusive:
            headers["exclusive-client-id"] = "true"
        if user:
            headers |= {"login": user, "passcode": passcode}
        self.output.append(encode("CONNECT", headers.items()))

    def receive(self, data: bytes) -> None:
        """Bytes of the server. Raises FrameError: it does not speak STOMP."""
        self._parser.feed(data)
        while self.state not in ("down", "over") and (frame := self._parser.next()) is not None:
            self.HANDLERS[frame.command](self, frame)

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        if self.state in ("down", "over"):
            return
        self.output.clear()
        self.epoch += 1
        leaving, self.state = self.state == "leaving", "down"
        for sub in list(self.subs.values()):
            sub.lost()
        for call in list(self.calls.values()):
            if call.sent and call.loss != AGAIN:
                why = f"the connection was lost before the answer came: {reason}"
                self._finish(call, ConnectionLost(why) if call.loss == FAIL else None)
            call.sent = False
        if leaving:
            self.give_up(ConnectionLost("closed"), wanted=True)

    def give_up(self, error: JmsError, wanted: bool = False) -> None:
        """There will be no other connection."""
        self.state, self.final = "over", error
        if self.subs and not wanted:
            self.faults.append(error)
        for call in list(self.calls.values()):
            self._finish(call, error)
        for sub in list(self.subs.values()):
            sub.end(error)
        self.subs.clear()

    @property
    def up(self) -> bool:
        return self.state in ("up", "leaving")

    # -- out -------------------------------------------------------------------------------------------------------

    def ask(self, parts: list[Part], loss: str) -> Call:
        """Ask for something, now or as soon as there is a connection. Raises MessageFormat, and then asks nothing."""
        call = Call(parts, loss, f"r{self._number + 1}", sum(len(part.body) + 200 for part in parts))
        output = self._frames(call, self._fitting)
        self._number += 1
        self.calls[call.receipt] = call
        self.size += call.size
        if self.state == "over":
            assert self.final is not None, "it is over for no reason"
            self._finish(call, self.final)
        elif self.state == "up":
            call.sent = True
            self.output += output
        return call

    def fits(self, part: Part) -> int:
        """The bytes of this, if the server takes it, as a part of a transaction, too. Raises MessageFormat."""
        return len(self._fitting(Part(part.command, {**part.headers, **SPARE}, part.body)))

    def tell(self, command: str, headers: Headers, epoch: int) -> None:
        """Say something that only means something on that connection."""
        if epoch == self.epoch and self.state == "up":
            self.output.append(self._encode(Part(command, headers)))

    def subscribe(self, sub: Subscription) -> Call:
        """Raises MessageFormat, IllegalState."""
        if len(self.subs) >= (most := self.taken.subscriptions):
            raise IllegalState(f"a connection has at most {most} consumers: close one, or connect again")
        sub.call = self.ask([Part("SUBSCRIBE", sub.headers)], AGAIN)
        self.subs[sub.id] = sub
        return sub.call

    def unsubscribe(self, sub: Subscription) -> Call | None:
        """No MESSAGE of it is taken from now on. None: the server need not be told."""
        if self.subs.pop(sub.id, None) is None:
            return None
        if sub.call is not None and not sub.call.done:
            sub.call.loss = DONE
            if not sub.call.sent:
                self._finish(sub.call)
        if self.state != "up":
            return None
        return self.ask([Part("UNSUBSCRIBE", {"id": sub.id})], DONE)

    def leave(self) -> Call:
        """Say good-bye; the answer is the last thing that comes."""
        call = self.ask([Part("DISCONNECT", {})], DONE)
        if self.state == "up":
            self.state = "leaving"
        else:
            self._finish(call)
            self.give_up(ConnectionLost("closed"), wanted=True)
        return call

    def make_temporary(self, queue: Destination) -> Call:
        """Have a queue of this connection; from the answer on messages may come before there is a consumer. Raises
        IllegalState."""
        if len(self.temporary) >= MAX_TEMPORARY:
            raise IllegalState(
                f"a connection has at most {MAX_TEMPORARY} temporary queues: delete one, or connect again"
            )
        call = self.ask(_making(queue), AGAIN)
        self.temporary.append((queue, call))
        return call

    def delete_temporary(self, queue: Destination) -> Call | None:
        """Have it no more. None: the server need not be told."""
        self.temporary = [pair for pair in self.temporary if pair[0] != queue]
        if self.state != "up":
            return None
        return self.ask([Part("UNSUBSCRIBE", {"destination": queue.wire, "delete": "true"})], DONE)

    def _post(self, call: Call) -> None:
        call.sent = True
        self.output += self._frames(call, self._encode)

    def _frames(self, call: Call, encoded: Callable[[Part], bytes]) -> list[bytes]:
        """The last asks for the receipt."""
        *parts, last = call.parts
        return [*map(encoded, parts), encoded(Part(last.command, {**last.headers, "receipt": call.receipt}, last.body))]

    def _encode(self, part: Part) -> bytes:
        pairs = [(name, text if isinstance(text, str) else text.public) for name, text in part.headers.items()]
        return encode(part.command, pairs, part.body)

    def _fitting(self, part: Part) -> bytes:
        """The frame, if a server takes one of this size: else it would end the connection, for all who share it."""
        frame, most = self._encode(part), self.taken
        if len(part.headers) > most.headers:
            raise MessageFormat(
                f"{len(part.headers)} headers, and a server takes {most.headers}: have fewer properties, or put them "
                "into the body"
            )
        size = len(frame) - len(part.body)
        if size > most.line:
            if size > most.head:
                raise MessageFormat(f"headers of {size} bytes, and a server takes {most.head}: put them into the body")
            longest = max(frame[:size].split(b"\n"), key=len)
            if len(longest) > most.line:
                raise MessageFormat(
                    f"{longest.partition(b':')[0].decode()!r} is a header of {len(longest)} bytes, and a server takes "
                    f"{most.line}: put it into the body"
                )
        if len(part.body) > most.body:
            raise MessageFormat(
                f"a body of {len(part.body)} bytes, and the server takes {most.body}: send less, or raise max_message "
                "in its [limits]"
            )
        return frame

    # -- in --------------------------------------------------------------------------------------------------------

    def _connected(self, frame: Frame) -> None:
        """Say again what another connection has to know."""
        sends, expects = _beats(frame.headers.get("heart-beat", "0,0"))
        self.taken, self.time = _taken(frame.headers.get("limits", "")), _number(frame.headers.get("time", ""), 0)
        self.state, self.session = "up", frame.headers.get("session", "")
        mine = self.settings.beat
        self.beats = (max(mine, expects) if mine and expects else 0, max(mine, sends) if mine and sends else 0)
        self._parser.version = V12
        others = self.calls
        self.calls = {}
        for queue, call in self.temporary:
            if call.done:
                self.output += map(self._encode, _making(queue))
            else:
                self.calls[call.receipt] = others.pop(call.receipt)
                self._post(call)
        for sub in self.subs.values():
            if sub.call is None or sub.call.done:
                sub.call = self.ask([Part("SUBSCRIBE", sub.headers)], AGAIN)
                sub.call.watched = False
            else:
                self.calls[sub.call.receipt] = others.pop(sub.call.receipt)
                self._post(sub.call)
        for call in others.values():
            self.calls[call.receipt] = call
            self._post(call)

    def _message(self, frame: Frame) -> None:
        sub = self.subs.get(frame.headers.get("subscription", ""))
        if sub is not None:
            sub.take(frame)
        elif ack := frame.headers.get("ack"):  # it was under way when we unsubscribed
            self.tell("NACK", {"id": ack, "unseen": "true"}, self.epoch)

    def _receipt(self, frame: Frame) -> None:
        self._blind = 0
        call = self.calls.get(frame.headers.get("receipt-id", ""))
        if call is not None:
            call.unconfirmed = frame.headers.get("unconfirmed", "")
            self._finish(call)

    def _error(self, frame: Frame) -> None:
        """The last that this connection says. What came before the cause is answered, what came behind is not done."""
        text = frame.headers.get("message", "the server ended the connection")
        self.farewell, self.elsewhere = text, frame.headers.get("elsewhere") == "true"
        if self.elsewhere:
            return
        if self.state == "login":
            if not (self.settings.exclusive and self.session):  # else it is our own, which that server has not missed
                self.give_up(LoginRefused(text))
            return
        call = self.calls.get(frame.headers.get("receipt-id", ""))
        name = frame.headers.get("subscription", "")
        subs = [self.subs[name]] if name in self.subs else []
        if call is None and not subs:
            self._blind += 1
            if self._blind >= MAX_FAULTS and self.calls:
                call = next(iter(self.calls.values()))
            else:
                self.faults.append(Refused(text))
        if call is not None:
            self._blind = 0
            self._finish(call, Refused(text))
            subs = [sub for sub in self.subs.values() if sub.call is call]
        for sub in subs:  # it is taken no more, or no longer
            del self.subs[sub.id]
            sub.end(Refused(text))

    def _finish(self, call: Call, error: JmsError | None = None) -> None:
        if self.calls.pop(call.receipt, None) is not None:
            self.size -= call.size
        call.done, call.error = True, error
        for each in call.then:
            each()
        if error is not None and not call.watched:
            self.faults.append(error)

    HANDLERS = {"CONNECTED": _connected, "MESSAGE": _message, "RECEIPT": _receipt, "ERROR": _error}

    def check(self) -> None:
        """Assert the invariants."""
        assert self.size == sum(call.size for call in self.calls.values()), "sizes do not add up"
        assert not any(call.done for call in self.calls.values()), "a call that is done is kept"


def _making(queue: Destination) -> list[Part]:
    name = f"make {queue.name}"
    return [Part("SUBSCRIBE", {"id": name, "destination": queue.wire}), Part("UNSUBSCRIBE", {"id": name})]


def _taken(text: str) -> Taken:
    """What the header `limits` says of what we know, as `headers=1000,body=8388608`."""
    told = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
    return Taken(**{name: _number(told.get(name, ""), NO_LIMIT) for name in Taken.__slots__})


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else default


def _beats(text: str) -> tuple[int, int]:
    """What a server offers. Raises FrameError."""
    first, _, second = text.partition(",")
    try:
        return int(first), int(second)
    except ValueError:
        raise FrameError(f"heart-beat must be two numbers, not {text[:40]!r}") from None
