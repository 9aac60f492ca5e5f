"""The rules of a STOMP session as a pure machine: bytes in; a login, commands and bytes out. No sockets, no clock.

Frames become commands for the broker's session of the connection, and its replies become frames (broker/commands.py).
Open transactions live here, and which deliveries the client may still settle; consumers and credit live in the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mombroker.broker import destinations, selectors
from mombroker.broker.commands import (
    Ask,
    BrowseEnd,
    Command,
    Delivery,
    DeliveryRun,
    Disconnect,
    Disposition,
    Login,
    Receipt,
    Receipts,
    Refused,
    Reply,
    Send,
    SendRound,
    SendRun,
    Subscribe,
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
    accepted,
)
from mombroker.broker.destinations import AGENT, QUEUE, DestinationError
from mombroker.broker.properties import PropertyError
from mombroker.broker.transactions import Step, TransactionError, Transactions
from mombroker.core.times import MS
from mombroker.stomp import foreign, replies, requests
from mombroker.stomp.frames import BEFORE_LOGIN, Frame, FrameError, Known, Parser, encode
from mombroker.stomp.headers import V10, V11, V12, head_of
from mombroker.stomp.requests import CONTROL, OPTIONS, Model, Now, flag, model_of
from mombroker.stomp.settings import Settings
from mombroker.stomp.unsettled import Unsettled

VERSIONS = (V10, V11, V12)
MAX_EARLY = 128 * 1024  # bytes behind CONNECT before the login is answered
MAX_RUN = 100  # messages that are one command, behind the first
MAX_NOTED = 20  # headers of other brokers that a session speaks of
MARK_BYTES = 256 * 1024  # of input between two marks
MAX_MARKS = 4  # without an answer; then the session is full
MAX_MARKS_SETTLING = 64  # as long as the client holds deliveries: what settles them may be behind what waits

# Receipts that we ask for ourselves; no client can, since no header holds a NUL.
LAST, MARK = "\0last", "\0mark"


@dataclass(slots=True)
class Sub:
    """A subscription. `named`: by the client, which then gets the name with each MESSAGE; `implied`: by a reply-to."""

    shown: str
    durable: str = ""
    named: bool = True
    implied: bool = False


class Session:
    """A session as the gateway wants it (gateway/session.py).

    1. Nothing is obeyed before the login is accepted, nothing after DISCONNECT or a fault.
    2. What ends a session, ERROR or the RECEIPT of DISCONNECT, follows the answers to all frames before it, but those
       that other servers owe to a SUBSCRIBE or UNSUBSCRIBE.
    3. What is kept is bounded: input that waits, transactions, subscriptions, and of what the client was given only
       what it may still settle.

    id        of the connection, `SERVER/...`; unique, and part of the names of its temporary destinations
    now       wall clock in ns, for expiry
    login     set when the client wants in
    commands  for the broker, and `output`, bytes for the client: the owner takes them after each call
    written   the highest tag in the output of a delivery that is settled by being written
    notes     lines for the log, each worth saying once, and `fault`, what the client was told was wrong
    """

    beat = b"\n"
    first = "CONNECT frame"

    def __init__(self, id: str, now: Callable[[], int], settings: Settings | None = None):
        self.id, self.now = id, now
        self.settings = settings or Settings()
        self.parser = Parser(BEFORE_LOGIN)
        self.version = V10
        self.state = "new"  # new, login, open, leaving, closed
        self.login: Login | None = None
        self.commands: list[Command] = []
        self.output: list[bytes] = []
        self.written = 0
        self.notes: list[str] = []
        self.fault = ""
        self.client_id = ""
        self.send_every = self.expect_every = 0  # agreed beats in ms; 0 = none
        self.subs: dict[str, Sub] = {}
        self.unsettled = Unsettled()
        self.transactions = Transactions(self.settings.transactions)
        self._stamp = f"/{id.rpartition('/')[2]}."  # of the ids of deliveries: no other connection ever has it
        self._now = Now(lambda: self.now())
        self._noted: set[str] = set()
        self._since_mark = self._marks = 0
        self._farewell = b""

    @property
    def full(self) -> bool:
        """So much input waits for the broker that no more should be read."""
        marks = self._marks
        return marks >= MAX_MARKS and (marks >= MAX_MARKS_SETTLING or not self.unsettled.given)

    @property
    def closed(self) -> bool:
        """The output is the last."""
        return self.state == "closed"

    @property
    def unfinished(self) -> int:
        """Bytes of frames that are not whole yet."""
        return self.parser.waiting

    @property
    def uncommitted(self) -> int:
        """Bytes in open transactions."""
        return self.transactions.bytes

    def counts(self) -> dict[str, Any]:
        """What it holds, for the operator."""
        return {
            "subscriptions": len(self.subs), "unsettled": len(self.unsettled.given),
            "transactions": len(self.transactions.open),
        }  # fmt: skip

    # -- in --------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.state in ("leaving", "closed"):
            return
        if self.state == "open":
            self._read(data)
            self._since_mark += len(data)
            if self._since_mark >= MARK_BYTES and self.state == "open":
                self._since_mark = 0
                self._marks += 1
                self.commands.append(Sync(MARK))
            return
        self.parser.feed(data)
        try:
            if self.state == "new" and (frame := self.parser.next()) is not None:
                self._connect(frame)
            if self.state == "login" and self.parser.waiting > MAX_EARLY:
                raise FrameError(f"more than {MAX_EARLY} bytes before the login was answered")
        except FrameError as error:
            self.end(str(error))

    def _read(self, data: bytes = b"") -> None:
        """Obey the frames that are whole with these bytes."""
        self.parser.feed(data)
        while self.state == "open":
            frame = None
            try:
                frame = self.parser.next()
                if frame is None:
                    return
                handler = _HANDLERS.get(frame.command)
                if handler is None:
                    raise FrameError(f"{frame.command} in a session that is open already")
                handler(self, frame)
            except (FrameError, DestinationError, TransactionError) as error:
                receipt = frame.headers.get("receipt") if frame else error.receipt
                self._leave(Sync(LAST), self._error(str(error), receipt))

    def _leave(self, last: Command, farewell: bytes) -> None:
        """Close the session once all that came before is answered."""
        self.commands.append(last)
        self._farewell = farewell
        self.state = "leaving"
        self.transactions.clear()

    def _error(self, text: str, receipt: str | None = None, sub: str = "", elsewhere: bool = False) -> bytes:
        self.fault = text
        more = [("subscription", sub)] if sub else []
        if elsewhere:
            more.append(("elsewhere", "true"))
        return replies.error(text, receipt, self.version, more)

    def _close(self, farewell: bytes) -> None:
        if farewell:
            self.output.append(farewell)
        self.state, self.login = "closed", None
        self.transactions.clear()

    def end(self, reason: str) -> None:
        """Tell the client why it must go, at once."""
        if not self.closed:
            self._close(self._error(reason))

    def forget(self) -> None:
        """Drop what is unfinished: nothing more is read."""
        self.parser = Parser(BEFORE_LOGIN)

    def hurry(self) -> None:
        """The broker has not answered for long: let a client that leaves go without."""
        if self.state == "leaving":
            self._close(self._farewell)

    # -- login -----------------------------------------------------------------------------------------------------

    def _connect(self, frame: Frame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise FrameError(f"the first frame must be CONNECT or STOMP, not {frame.command}")
        headers = frame.headers
        if (asked := headers.get("accept-version")) is None:
            headers = {name: value.strip(" ") for name, value in headers.items()}
        else:
            wanted = [version.strip(" ") for version in asked.split(",")]
            common = [version for version in VERSIONS if version in wanted]
            if not common:
                ours = ",".join(VERSIONS)
                self.fault = f"this server speaks STOMP {ours}, not {asked[:40]!r}"
                self._close(replies.error(self.fault, None, V10, [("version", ours)]))
                return
            self.version = common[-1]
            if frame.body and self.version != V10:
                raise FrameError(f"a {frame.command} frame has no body")
        cx, cy = requests.heart_beat(headers.get("heart-beat", "0,0"))
        sx, sy = self._beats()
        self.expect_every = max(cx, sy) if cx and sy else 0
        self.send_every = max(sx, cy) if sx and cy else 0
        client_id, exclusive = headers.get("client-id", ""), flag(headers, "exclusive-client-id")
        requests.check_name("a client-id", client_id)
        if exclusive and not client_id:
            raise FrameError("exclusive-client-id needs a client-id")
        self.login = Login(headers.get("login", ""), headers.get("passcode", ""), client_id, exclusive)
        self.state = "login"

    def _beats(self) -> tuple[int, int]:
        """What we offer: 1.0 has no heart-beats."""
        return (0, 0) if self.version == V10 else (self.settings.beat_send, self.settings.beat_expect)

    def accept(self) -> None:
        """The login is good: the frames behind it are obeyed."""
        assert self.state == "login" and self.login is not None, "a login is accepted that was not asked for"
        headers = [("version", self.version), ("session", self.id)]
        if self.settings.server:
            headers.append(("server", self.settings.server))
        headers.append(("heart-beat", "{},{}".format(*self._beats())))
        headers += [("limits", self.settings.told()), ("time", str(self.now() // MS))]
        self.output.append(encode("CONNECTED", headers))
        self.client_id = self.login.client_id
        self.parser.agree(self.version, self.settings.limits)
        self.state, self.login = "open", None
        self._read()

    # -- frames ----------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        known = self.parser.known
        model: Model | None = None
        if known is not None and (model := known.memo) is not None and model[0] is not known.told:
            model = self._elsewhere(known, model)
        if known is not None and model is not None:
            _, before, between, behind = model
            receipt = self.parser.receipt
            command = Send(*(*before, frame.body, *between, receipt, *behind))
            if receipt is None or not self.parser.waiting:
                self.commands.append(command)
            elif more := self.parser.like(known, MAX_RUN):
                receipts = [receipt, *[name.decode() for name, _ in more]]
                self.commands.append(SendRun(command, [frame.body, *[body for _, body in more]], receipts))
            else:
                self.commands.append(self._round(known, command) or command)
            return
        headers = frame.headers
        shown = headers.get("destination")
        if not shown:
            raise FrameError("SEND needs a destination")
        if destinations.is_temporary(shown):
            destination, _ = destinations.temporary(shown, self.id)
        else:
            destination = destinations.one(shown)
        kind = Ask if destination.startswith(AGENT) else Send
        command = kind(destination, frame.body, persistent=self.settings.persistent, shown=shown)
        command.typed = self.settings.type_headers
        if "content-length" not in headers:
            command.kind = "text"
        if not OPTIONS.isdisjoint(headers):
            now = self._now
            now.asked = False
            requests.options(command, headers, now)
            self._note_ignored(frame)
            if now.asked:
                known = None  # an equal frame will mean something else
        if not headers.keys() <= CONTROL:
            self._said(command, {name: text for name, text in headers.items() if name not in CONTROL})
        if "transaction" in headers:
            self._into(headers, command, command.size)
        else:
            command.receipt = headers.get("receipt")
            self.commands.append(command)
            if known is not None:
                simple = kind is Send and "reply-to" not in headers  # which may need a subscription
                known.memo = model_of(known.told, command) if simple else None

    def _round(self, known: Known, first: Send) -> SendRound | None:
        """Messages to queues in turn, if such come next."""
        if first.receipt is None or not first.destination.startswith(QUEUE) or "destination-type" in known.headers:
            return None
        places, receipts, bodies = [(first.destination, first.shown)], [first.receipt], [first.body]
        for place, receipt, body in self.parser.in_turn(known, destinations.queue, MAX_RUN):
            places.append(place)
            receipts.append(receipt)
            bodies.append(body)
        return SendRound(first, places, bodies, receipts) if len(places) > 1 else None

    def _elsewhere(self, known: Known, model: Model) -> Model | None:
        """What frames mean that differ from those of the model in their destination. None: they need a closer look.
        Raises DestinationError."""
        shown = known.told["destination"]
        if not shown or destinations.is_temporary(shown) or "destination-type" in known.headers:
            return None
        destination = destinations.one(shown)
        if destination.startswith(AGENT):
            return None
        known.memo = made = known.told, (destination,), (*model[2][:-1], shown), model[3]
        return made

    def _said(self, command: Send, headers: dict[str, str]) -> None:
        """What the sender says of its message."""
        reply_to = headers.get("reply-to")
        if reply_to is not None and destinations.is_temporary(reply_to):
            headers["reply-to"] = self._reply_to(reply_to)
        try:
            head = head_of(headers, command.typed)
        except PropertyError as error:
            raise FrameError(str(error)) from None
        command.content_type, command.type, command.correlation, command.reply_to = head[:4]
        command.properties, command.form = head.properties, head.form

    def _reply_to(self, reply_to: str) -> str:
        """Name a temporary destination as others must; a queue that nothing listens to yet gets a subscription."""
        name, public = destinations.temporary(reply_to, self.id)
        if name.startswith("temp-queue:") and not any(sub.shown == reply_to for sub in self.subs.values()):
            self._new_sub(reply_to, Sub(reply_to, implied=True))
            self.commands.append(Subscribe(reply_to, (name,)))
        return public

    def _new_sub(self, name: str, sub: Sub) -> None:
        if name in self.subs:
            raise FrameError(f"there is a subscription {name!r} already: UNSUBSCRIBE it first")
        if len(self.subs) >= self.settings.subscriptions:
            raise FrameError(f"{self.settings.subscriptions} subscriptions on one connection: no more are taken")
        self.subs[name] = sub

    def _subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        shown = headers.get("destination")
        if not shown:
            raise FrameError("SUBSCRIBE needs a destination")
        name = headers.get("id")
        if name is None and self.version != V10:
            raise FrameError("SUBSCRIBE needs an id")
        wanted = requests.wanted(headers, self.id)
        command = requests.subscribe(headers, f"/{shown}" if name is None else requests.key("id", name), wanted)
        if command.durable and not command.shared and not self.client_id:
            raise FrameError("a durable subscription needs a client-id in CONNECT, or shared:true")
        if command.selector:
            try:
                selectors.compile(command.selector)
            except selectors.SelectorError as error:
                raise FrameError(str(error)) from None
        implied = self.subs.get(shown)
        if implied is not None and implied.implied:
            del self.subs[shown]
            self.commands.append(Unsubscribe(shown))
        durable = "" if command.transient else command.durable
        self._new_sub(command.sub, Sub(shown, durable, name is not None))
        self._note_ignored(frame)
        self.commands.append(command)

    def _note_ignored(self, frame: Frame) -> None:
        """What other brokers would do, each name once."""
        for name, line in foreign.ignored(frame.command, frame.headers).items():
            if name not in self._noted and len(self._noted) < MAX_NOTED:
                self._noted.add(name)
                self.notes.append(line)

    def _unsubscribe(self, frame: Frame) -> None:
        """Only with the header that made it durable does a subscription end for good."""
        headers = frame.headers
        name = headers.get("id")
        if name is None and "delete" in headers and flag(headers, "delete"):
            self._delete(headers)
            return
        if name is None and self.version == V10:
            shown = headers.get("destination")
            name = next((name for name, sub in self.subs.items() if sub.shown == shown), None)
        durable, ends = requests.durable_name(headers), requests.ends_durable(headers)
        sub = self.subs.get(name) if name is not None else None
        if sub is None:
            if not durable and ends and name is not None and "destination" in headers:
                durable = requests.named_by_flag(name, headers)
            if not durable:
                raise FrameError(
                    "UNSUBSCRIBE needs the id of the subscription" if name is None else f"no subscription {name!r}"
                )
            self.commands.append(Unsubscribe("", durable, True, headers.get("receipt")))
            return
        if durable and durable != sub.durable:
            raise FrameError(f"subscription {name!r} is not the durable {durable!r}")
        assert name is not None, "a subscription without a name"
        delete = bool(sub.durable) and (bool(durable) or ends)
        del self.subs[name]
        self.commands.append(Unsubscribe(name, sub.durable if delete else "", delete, headers.get("receipt")))

    def _delete(self, headers: dict[str, str]) -> None:
        """A temporary queue of this connection is to go before that does."""
        shown = headers.get("destination", "")
        if not shown.startswith("/temp-queue/"):
            raise FrameError("UNSUBSCRIBE with delete:true, and without an id, deletes a destination /temp-queue/NAME")
        for name in [name for name, sub in self.subs.items() if sub.shown == shown]:
            if not self.subs[name].implied:
                raise FrameError(f"{shown[:80]!r} has the subscription {name!r}: UNSUBSCRIBE that first")
            del self.subs[name]
            self.commands.append(Unsubscribe(name))
        queue, _ = destinations.temporary(shown, self.id)
        self.commands.append(Unsubscribe("", receipt=headers.get("receipt"), temporary=queue))

    def _settle(self, frame: Frame) -> None:
        headers = frame.headers
        if self.version == V12 and len(headers) == 1 and frame.command == "ACK" and "id" in headers:
            self._settle_row([headers["id"], *self.parser.acks()])
            return
        tag = self._tag(frame.command, headers)
        command = Disposition(tag)
        if frame.command == "NACK":
            command.outcome = requests.given_back(headers)
        if "transaction" in headers:
            self._into(headers, command)
            self.commands.append(Uncommitted(tag))
        else:
            self.unsettled.settle(tag)
            command.receipt = headers.get("receipt")
            self.commands.append(command)

    def _settle_row(self, ids: list[str]) -> None:
        tags = self.unsettled.settle_row(ids)
        self.commands += accepted(tags)
        for id in ids[len(tags) :]:
            tag = self._given(id)
            self.unsettled.settle(tag)
            self.commands.append(Disposition(tag))

    def _tag(self, command: str, headers: dict[str, str]) -> int:
        """The delivery that an ACK or NACK names."""
        key = "id" if self.version == V12 else "message-id"
        message_id = headers.get(key)
        if message_id is None:
            raise FrameError(f"{command} needs {'the ack header of the MESSAGE as id' if key == 'id' else key}")
        tag = self._given(message_id, command)
        if self.version == V11:
            sub, given = headers.get("subscription"), self.unsettled.given[tag][0]
            if sub is None:
                raise FrameError(f"{command} needs a subscription")
            if sub != given:
                raise FrameError(
                    f"{command} of {message_id[:80]!r}: subscription {given[:80]!r} has it, not {sub[:80]!r}"
                )
        return tag

    def _given(self, message_id: str, command: str = "ACK") -> int:
        tag = self.unsettled.find(message_id)
        if tag is None:
            shown = repr(message_id[:80])
            raise FrameError(f"{command} of {shown}, which is no delivery of this connection, or is settled already")
        return tag

    def _begin(self, frame: Frame) -> None:
        self.transactions.begin(requests.transaction_of(frame))
        self._sync(frame.headers)

    def _commit(self, frame: Frame) -> None:
        steps: list[Step] = []
        for step in self.transactions.end(requests.transaction_of(frame)):
            if not isinstance(step, Send):
                if step.tag not in self.unsettled.given:
                    continue  # settled meanwhile, or by a later cumulative one of this transaction
                self.unsettled.settle(step.tag)
            steps.append(step)
        self.commands.append(Transact(steps, frame.headers.get("receipt")))

    def _abort(self, frame: Frame) -> None:
        self.transactions.end(requests.transaction_of(frame))
        self._sync(frame.headers)

    def _into(self, headers: dict[str, str], step: Step, size: int = 0) -> None:
        self.transactions.add(headers["transaction"], step, size)
        self._sync(headers)

    def _sync(self, headers: dict[str, str]) -> None:
        if "receipt" in headers:
            self.commands.append(Sync(headers["receipt"]))

    def _disconnect(self, frame: Frame) -> None:
        receipt = frame.headers.get("receipt")
        farewell = replies.receipt(Receipt(receipt), self.version) if receipt is not None else b""
        self._leave(Disconnect(LAST), farewell)

    # -- out -------------------------------------------------------------------------------------------------------

    def reply(self, said: list[Reply]) -> None:
        """Frames for what the broker says. A client that is leaving gets no more messages: they go back."""
        out, version = self.output, self.version
        heads: replies.Heads = {}
        row: list[Delivery] = []
        for reply in said:
            if type(reply) is Delivery:
                row.append(reply)
                continue
            if row:
                self._deliver(row, heads)
                row = []
            if self.state == "closed":
                return
            if type(reply) is Receipt:
                if not reply.receipt.startswith("\0"):
                    out.append(replies.receipt(reply, version))
                elif reply.receipt == LAST:
                    self._close(self._farewell)
                else:
                    self._marks -= 1
            elif type(reply) is Receipts:
                out.append(replies.receipts(reply, version))
            elif type(reply) is DeliveryRun:
                if self.state == "open":
                    self.written = reply.tag
                    out.append(replies.messages(reply, version, self._named(reply.sub)))
            elif isinstance(reply, Refused):
                self._close(self._error(reply.message, reply.receipt, reply.sub, reply.elsewhere))
            elif isinstance(reply, BrowseEnd):
                shown = self.subs[reply.sub].shown if reply.sub in self.subs else ""
                out.append(replies.browse_end(reply.sub, shown, version))
        if row:
            self._deliver(row, heads)

    def _deliver(self, row: list[Delivery], heads: replies.Heads) -> None:
        if self.state != "open":
            return
        out, version, stamp, unsettled = self.output, self.version, self._stamp, self.unsettled
        given, known, named = unsettled.given, "", self._named("")
        for delivery in row:
            name, tag, id, _, _, _, mode, _ = delivery
            if name != known:
                known, named = name, self._named(name)
            if mode == "auto":
                message_id = replies.settled_id(delivery)
                self.written = tag
            else:
                message_id = f"{id}{stamp}{tag}"
                if mode == "client":
                    unsettled.add(tag, name, message_id)
                else:
                    given[tag] = (name, message_id, False)
            out.append(replies.message(delivery, message_id, version, named, heads))

    def _named(self, sub: str) -> bool:
        """Is it told the name of a subscription?"""
        known = self.subs.get(sub)
        return known is None or known.named

    def check(self) -> None:
        """Assert the invariants."""
        self.unsettled.check()
        self.transactions.check()
        assert self.state == "open" or not self.transactions.open, "transactions outlive the session"


_HANDLERS: dict[str, Callable[[Session, Frame], None]] = {
    "SEND": Session._send,
    "SUBSCRIBE": Session._subscribe,
    "UNSUBSCRIBE": Session._unsubscribe,
    "ACK": Session._settle,
    "NACK": Session._settle,
    "BEGIN": Session._begin,
    "COMMIT": Session._commit,
    "ABORT": Session._abort,
    "DISCONNECT": Session._disconnect,
}
