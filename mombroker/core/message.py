"""The message: what travels from an agent to one or many agents, encoded once at the send and never again."""

from dataclasses import dataclass
from typing import Any

from mombroker.core.errors import PeerError

BOUNCE = 1  # this message tells of a failure: its own failure is not told to anybody
VOLATILE = 2  # the row at the destination may be spared


@dataclass(slots=True)
class Message:
    """One send. `data` is its wire form, the same bytes on every hop.

    origin, number  the id: the server of the send and its counter
    source, dests   agent ids; a multicast names all its agents
    type, payload   the notification's wire name and its packed fields
    sent, expires   wall-clock nanoseconds; 0 = never expires
    flags           BOUNCE, VOLATILE
    note            the notification itself while it stays on this server, where destinations and proxies talk to
                    each other: packed only if it leaves or must wait on disk
    size            bytes of the packed fields (of what counts of them, in a note)
    """

    origin: str
    number: int
    source: str
    dests: tuple[str, ...]
    type: str
    payload: bytes
    sent: int = 0
    expires: int = 0
    flags: int = 0
    data: bytes = b""
    note: Any = None
    size: int = 0

    def encode(self) -> bytes:
        """4-byte length of the head, the head as lines of text, then the payload."""
        if not self.data:
            if self.note is not None:
                self.payload = self.note.pack()
            dests = "\n".join(self.dests)
            head = (
                f"{self.origin}\n{self.number}\n{self.source}\n{self.type}\n{self.sent}\n{self.expires}\n"
                f"{self.flags}\n{dests}"
            ).encode()
            self.data = len(head).to_bytes(4, "big") + head + self.payload
        return self.data


def ident(data: bytes) -> tuple[str, int]:
    """Origin and number of a wire form that has been decoded before; the rest is not read."""
    origin, number, _ = data[4:512].split(b"\n", 2)
    return origin.decode(), int(number)


def decode(data: bytes) -> Message:
    """The message whose wire form is `data`. Raises PeerError when it is none."""
    end = 4 + int.from_bytes(data[:4], "big")
    try:
        origin, number, source, type_, sent, expires, flags, *dests = data[4:end].decode().split("\n")
        if end > len(data) or not dests or "/" not in dests[0]:
            raise ValueError("cut short")
        return Message(
            origin, int(number), source, tuple(dests), type_, data[end:], int(sent), int(expires), int(flags), data,
            None, len(data) - end,
        )  # fmt: skip
    except ValueError as error:
        raise PeerError(f"not a message: {error}") from None
