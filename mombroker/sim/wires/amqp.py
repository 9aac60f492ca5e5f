"""The wire of a client of AMQP 1.0: one session, a link for each destination or an anonymous relay, and a window that
is shut now and then."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mombroker.amqp import codec, messages, performatives, reading
from mombroker.amqp.codec import NULL, performative, string
from mombroker.amqp.connection import Connection, Settings
from mombroker.amqp.frames import MAX_FRAME, PLAIN, Parser, frame
from mombroker.amqp.performatives import (
    ACCEPTED,
    RECEIVER,
    SENDER,
    SPACE,
    Attach,
    Close,
    Detach,
    Flow,
    Outcome,
    Terminus,
    Transfer,
)
from mombroker.broker.commands import (
    Command,
    Delivery,
    Disposition,
    Receipt,
    Refused,
    Reply,
    Send,
    Subscribe,
    Unsubscribe,
)
from mombroker.broker.destinations import shown_as
from mombroker.broker.message import ClientMessage
from mombroker.core.times import MS
from mombroker.sim.wires.wire import Said, Wire

CREDIT = 5_000  # never used up: who has none is passed over
WINDOWS = (1, 2, 5, 1_000)  # frames
_TAKEN = performatives.described_outcome(Outcome(ACCEPTED))


@dataclass(slots=True)
class Sending:
    """A link to send by."""

    handle: int
    credit: int = 0
    count: int = 0


class AmqpWire(Wire):
    """1. What the client says is in the order in which it was to be said, though links have to wait for credit."""

    def begin(self) -> None:
        world = self.world
        self.machine = Connection(f"{self.node.name}/x{self.conn}", lambda: world.now, Settings(anonymous=True))
        self.most = self.rng.choice(WINDOWS)
        self.relays = self.rng.random() < 0.3
        self.ids = self.rng.random() < 0.7  # its messages have such, as those of JMS
        self.parser = Parser(MAX_FRAME)
        opened = performatives.open_(f"box{self.conn}", MAX_FRAME, 0, [], {})
        begun = performatives.begin(0, 0, self.most, SPACE - 1, performatives.MAX_HANDLE)
        self.machine.receive(PLAIN)
        self.machine.accept()
        self.machine.receive(frame(opened))
        self.machine.claimed("")
        self.machine.receive(frame(begun))
        self.machine.output.clear()
        self.session = self.machine.sessions[0]
        self.waiting: deque[Said] = deque()
        self.sending: dict[str, Sending] = {}  # by address
        self.handles = self.sent = 0
        self.receiving: dict[int, str] = {}  # of subscriptions, by handle
        self.confirmed: dict[int, str] = {}  # handle -> receipt
        self.outcomes: dict[tuple[bool, int], str] = {}  # role, delivery-id -> receipt
        self.seen, self.left = 0, self.most
        self.bye = ""
        self.asked: dict[str, int] = {}  # of the server's end: receipt of a subscription -> handle
        self.unconfirmed: dict[int, str] = {}

    # -- the client's end --------------------------------------------------------------------------------------------

    def say(self, command: Said) -> None:
        self.waiting.append(command)
        self._go()

    def _go(self) -> None:
        while self.waiting and self._said(self.waiting[0]):
            self.waiting.popleft()

    def _put(self, body: bytes) -> bool:
        self.put(frame(body))
        return True

    def _said(self, command: Said) -> bool:
        """False: it has to wait for credit."""
        if isinstance(command, Send):
            return self._send(command)
        if isinstance(command, Subscribe):
            return self._subscribe(command)
        if isinstance(command, Unsubscribe):
            handle = next(handle for handle, name in self.receiving.items() if name == command.sub)
            return self._put(performatives.detach(handle, True))
        if isinstance(command, Disposition):
            if command.receipt is not None:
                self.outcomes[SENDER, command.tag] = command.receipt
            parts = [codec.boolean(RECEIVER), codec.uint(command.tag), NULL, codec.boolean(command.receipt is None)]
            return self._put(bytes((0, 0x53, performatives.DISPOSITION)) + codec.listed([*parts, _TAKEN]))
        self.bye = command.receipt or ""
        return self._put(performatives.close())

    def _link(self) -> int:
        self.handles += 1
        return self.handles

    def _send(self, command: Send) -> bool:
        shown = shown_as(command.destination)
        address = None if self.relays else shown
        link = self.sending.get(address or "")
        if link is None:
            link = self.sending[address or ""] = Sending(self._link())
            source, target = Terminus(None).source(), Terminus(address).target()
            self._put(performatives.attach(f"l{link.handle}", link.handle, SENDER, 2, 0, source, target, 0, []))
            return False
        if not link.credit:
            return False
        link.credit, link.count, id = link.credit - 1, link.count + 1, self.sent
        self.sent += 1
        if command.receipt is not None:
            self.outcomes[RECEIVER, id] = command.receipt
        named = string(f"ID:{self.conn}-{id}"), codec.timestamp(self.world.now // MS)
        name, time = named if self.ids else (NULL, NULL)
        said = [name, NULL, string(shown), NULL, NULL, NULL, NULL, NULL, NULL, time]
        head = performative(messages.HEADER, [codec.boolean(True)]) + performative(messages.PROPERTIES, said)
        body = head + codec.described(messages.DATA, codec.binary(command.body))
        settled = command.receipt is None
        return self._put(performatives.transfer(link.handle, id, id.to_bytes(4, "big"), settled, False) + body)

    def _subscribe(self, command: Subscribe) -> bool:
        handle = self._link()
        self.receiving[handle] = command.sub
        self.confirmed[handle] = command.receipt or ""
        source = Terminus(",".join(map(shown_as, command.destinations))).source()
        target = Terminus(None).target()
        attach = performatives.attach(f"l{handle}", handle, RECEIVER, 0, 0, source, target, 0, [])
        flow = performatives.flow(self.seen, self.left, 0, SPACE - 1, handle, 0, CREDIT)
        self.put(frame(attach) + frame(flow), whole=True)  # what comes to a link without credit is passed over
        return True

    def _open_window(self) -> None:
        self.left = self.most
        if self.open:
            self._put(performatives.flow(self.seen, self.left, 0, SPACE - 1))

    def hear(self, data: bytes) -> list[Reply]:
        self.parser.feed(data)
        found = list[Reply]()
        while (one := self.parser.next()) is not None:
            said, at = reading.decode(one.body)
            if isinstance(said, Transfer):
                found.append(self._delivery(said, one.body[at:]))
            elif isinstance(said, Attach):
                if said.handle in self.receiving and said.source is not None:
                    found.append(Receipt(self.confirmed.pop(said.handle), self.unconfirmed.pop(said.handle)))
            elif isinstance(said, Flow):
                self._flow(said)
            elif isinstance(said, performatives.Disposition):
                found += self._outcomes(said)
            elif isinstance(said, Detach):
                if said.error:
                    found.append(Refused(said.error))
            elif isinstance(said, Close):
                found.append(Receipt(self.bye) if self.bye and not said.error else Refused(said.error))
        return found

    def _delivery(self, said: Transfer, payload: bytes) -> Delivery:
        self.seen += 1
        self.left -= 1
        if self.left <= 0:
            self.world.after(self.client.pause(), self._open_window)
        split = messages.split(payload)
        before = split.header[4] if len(split.header) > 4 else None
        assert said.delivery_id is not None, "a delivery has a number"
        message = ClientMessage("", "", body=split.body)
        return Delivery(self.receiving[said.handle], said.delivery_id, "", message, (before or 0) + 1, ack="individual")

    def _flow(self, said: Flow) -> None:
        for link in self.sending.values():
            if said.handle == link.handle:
                link.credit = (said.delivery_count or 0) + (said.credit or 0) - link.count
        self._go()

    def _outcomes(self, said: performatives.Disposition) -> list[Reply]:
        found = list[Reply]()
        for id in range(said.first, said.last + 1):
            receipt = self.outcomes.pop((said.role, id), None)
            if not isinstance(said.state, Outcome) or said.state.code != ACCEPTED:
                found.append(Refused(f"delivery {id} is {said.state}"))
            elif receipt is not None:
                found.append(Receipt(receipt))
            else:
                self.wrong(f"delivery {id} has an outcome that nobody asked for, or two")
        return found

    # -- the server's end --------------------------------------------------------------------------------------------

    def write(self, replies: list[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Receipt) and reply.receipt in self.asked:  # AMQP has no word for that
                self.unconfirmed[self.asked.pop(reply.receipt)] = reply.unconfirmed
        self.machine.reply_to(1, replies)
        self.machine.check()

    def taken(self) -> tuple[list[Command], bytes]:
        commands = [each for _, asked in self.machine.asked for each in asked]
        for command in commands:
            if isinstance(command, Subscribe) and command.receipt is not None:
                self.asked[command.receipt] = int(command.sub.partition(".")[0])
        output, self.machine.output = b"".join(self.machine.output), []
        if self.machine.fault:
            self.wrong(self.machine.fault)
        return commands, output
