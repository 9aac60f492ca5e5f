"""A connection whose bytes pass the machine that reads sockets; what its client hears are bytes, too."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from mombroker.broker.commands import (
    Command,
    Disconnect,
    Disposition,
    Reply,
    Send,
    SendRound,
    SendRun,
    Subscribe,
    Unsubscribe,
)
from mombroker.core.events import ClientCommands
from mombroker.sim.clients import ClientNode, Connection

if TYPE_CHECKING:
    from mombroker.sim.clients import Client

Said = Send | Subscribe | Unsubscribe | Disposition | Disconnect  # by a client


class Wire(Connection):
    """Commands become frames, those of a while together, and frames are told as replies. A protocol says how.

    out       of the client, not sent yet, and whether it must come in one piece
    machine   the server's end
    """

    machine: Any

    def __init__(self, client: Client, node: ClientNode, conn: int):
        super().__init__(client, node, conn)
        self.rng = Random(client.rng.getrandbits(32))
        self.out: list[tuple[bytes, bool]] = []
        self.begin()

    def do(self, *commands: Any) -> None:
        for command in commands:
            for each in command.singles() if isinstance(command, SendRun | SendRound) else (command,):
                self.say(each)

    def put(self, data: bytes, whole: bool = False) -> None:
        """Say that with whatever else is said until it leaves."""
        if not self.out:
            self.world.after(self.world.about(self.client.pause() // 8 + 1), self._leave)
        self.out.append((data, whole))

    def _leave(self) -> None:
        """In pieces, as sockets have them."""
        out, self.out = self.out, []
        piece = b""
        for data, whole in out if self.open else ():
            if not whole and self.rng.random() < 0.2:
                cut = self.rng.randint(0, len(data))
                self._later(0, self._came, piece + data[:cut])
                piece, data = b"", data[cut:]
            piece += data
        if piece:
            self._later(0, self._came, piece)

    def _came(self, data: bytes) -> None:
        if self.node.up and self.node.epoch == self.epoch:
            self.machine.receive(data)
            self._take()

    def _take(self) -> None:
        commands, output = self.taken()
        if commands:
            self.node.post(ClientCommands(self.conn, commands))
        if output:
            self._later(1, self._heard, output)

    def to_client(self, replies: list[Any]) -> None:
        self.write(replies)
        self._take()

    def _heard(self, data: bytes) -> None:
        for reply in self.hear(data) if self.open else ():
            if self.open:
                self.client.told(self, reply)

    def wrong(self, what: str) -> None:
        self.model.wrong.append(f"{type(self).__name__}: {what}")

    # -- of a protocol: the client's end, and the server's -----------------------------------------------------------

    def begin(self) -> None:
        """Both ends have logged in."""
        raise NotImplementedError

    def say(self, command: Said) -> None:
        """The client puts frames for a command."""
        raise NotImplementedError

    def hear(self, data: bytes) -> list[Reply]:
        """The client reads."""
        raise NotImplementedError

    def write(self, replies: list[Reply]) -> None:
        """The server replies."""
        raise NotImplementedError

    def taken(self) -> tuple[list[Command], bytes]:
        """Of the machine: what is to be done, and what is said."""
        raise NotImplementedError
