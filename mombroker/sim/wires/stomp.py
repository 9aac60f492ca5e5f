"""The wire of a client of STOMP 1.2."""

from __future__ import annotations

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
from mombroker.sim.wires.wire import Said, Wire
from mombroker.stomp.frames import SERVER, Frame, Limits, Parser, encode
from mombroker.stomp.headers import V12
from mombroker.stomp.session import Session


class StompWire(Wire):
    def begin(self) -> None:
        world = self.world
        self.machine = Session(f"{self.node.name}/x{self.conn}", lambda: world.now)
        self.machine.receive(encode("CONNECT", [("accept-version", V12), ("host", "/")]))
        self.machine.accept()
        self.machine.output.clear()
        self.parser = Parser(Limits(), commands=SERVER)
        self.parser.agree(V12, Limits())
        self.acks: dict[int, str] = {}  # tag -> what settles it

    def say(self, command: Said) -> None:
        headers = [("receipt", command.receipt)] if command.receipt is not None else []
        if isinstance(command, Send):
            self.put(encode("SEND", [("destination", shown_as(command.destination)), *headers], command.body))
        elif isinstance(command, Subscribe):
            named = [("id", command.sub), ("destination", ",".join(map(shown_as, command.destinations)))]
            self.put(encode("SUBSCRIBE", [*named, ("ack", f"client-{command.ack}"), *headers]))
        elif isinstance(command, Unsubscribe):
            self.put(encode("UNSUBSCRIBE", [("id", command.sub), *headers]))
        elif isinstance(command, Disposition):
            self.put(encode("ACK", [("id", self.acks.pop(command.tag)), *headers]))
        else:
            self.put(encode("DISCONNECT", headers))

    def hear(self, data: bytes) -> list[Reply]:
        self.parser.feed(data)
        found = list[Reply]()
        while (frame := self.parser.next()) is not None:
            found.append(self._reply(frame))
        return found

    def _reply(self, frame: Frame) -> Reply:
        headers = frame.headers
        if frame.command == "RECEIPT":
            return Receipt(headers["receipt-id"], headers.get("unconfirmed", ""))
        if frame.command == "ERROR":
            return Refused(headers["message"])
        tag = int(headers["message-id"].rpartition(".")[2])
        self.acks[tag] = headers["ack"]
        message = ClientMessage("", "", body=frame.body)
        return Delivery(headers["subscription"], tag, "", message, int(headers["JMSXDeliveryCount"]), ack="individual")

    def write(self, replies: list[Reply]) -> None:
        self.machine.reply(replies)
        self.machine.check()

    def taken(self) -> tuple[list[Command], bytes]:
        machine = self.machine
        commands, machine.commands = machine.commands, []
        output, machine.output = b"".join(machine.output), []
        return commands, output
