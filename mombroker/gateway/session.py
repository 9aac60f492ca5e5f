"""What the gateway needs of a protocol: a session for each client, which is a pure machine without sockets or clock."""

from __future__ import annotations

from typing import Any, Protocol

from mombroker.broker.commands import Command, Login, Reply


class Session(Protocol):
    """Bytes in; a login, commands and bytes out.

    id            of the connection, `SERVER/...`
    login         what the client says it is, in state login: answer by `accept` or `end`
    commands      for the agent server: the gateway takes them, and the output, after each call
    notes         lines for the log, each worth saying once; taken like them
    written       the highest tag in the output of a delivery that is settled by being written
    fault         what the client was told was wrong
    send_every    agreed heart-beats in ms, ours and (`expect_every`) the client's; 0 = none
    beat          the bytes of one of ours
    first         what a client has to say first, in words
    version       of the protocol, as agreed
    """

    id: str
    login: Login | None
    commands: list[Command]
    notes: list[str]
    written: int
    fault: str
    send_every: int
    expect_every: int
    beat: bytes
    first: str
    version: str
    client_id: str

    @property
    def state(self) -> str:
        """new, login, open, leaving (the end waits for the answers before it), closed (the output is the last)"""

    @property
    def output(self) -> list[bytes]:
        """Bytes for the client; whoever takes them clears the list."""

    @property
    def full(self) -> bool:
        """So much input waits for answers that no more should be read."""

    @property
    def closed(self) -> bool:
        """The output is the last."""

    @property
    def unfinished(self) -> int:
        """Bytes of frames that are not whole yet."""

    @property
    def uncommitted(self) -> int:
        """Bytes in open transactions."""

    def receive(self, data: bytes) -> None:
        """Bytes of the client."""

    def accept(self) -> None:
        """The login is good."""

    def reply(self, said: list[Reply]) -> None:
        """What the agent server says; durable."""

    def end(self, reason: str) -> None:
        """Tell the client why it must go, at once."""

    def hurry(self) -> None:
        """No answer has come for long: let a client that leaves go without."""

    def forget(self) -> None:
        """Drop what is unfinished: nothing more is read."""

    def counts(self) -> dict[str, Any]:
        """What the session holds, for the operator."""


class PartedSession(Session, Protocol):
    """One of a protocol whose connections have parts, each a session of its own at the agent server. It gives no
    `commands`, and is not refused what its parts are.

    asked     (part, its commands): the first ones begin it. The gateway takes them after each call
    claim     the client id that it wants, if it is not part of the login: answered by `claimed`
    written   a number of its own, which rises
    """

    @property
    def asked(self) -> list[tuple[int, list[Command]]]: ...

    @property
    def wants(self) -> bool:
        """`asked` has something."""

    @property
    def claim(self) -> Login | None: ...

    def claimed(self, refusal: str) -> None:
        """It has the client id; or not, and why."""

    def reply_to(self, part: int, said: list[Reply]) -> bool:
        """What the agent server says to a part; False once that has ended."""

    def took(self, upto: int) -> list[tuple[int, int]]:
        """Parts, and their highest tags, that are settled by being written, up to a number as `written` has it."""


class Sessions(Protocol):
    """A protocol, as the listener sees it.

    name      as people write it
    setting   of the topology file: where to listen for it, and with `_tls` behind it, where with TLS
    parted    its sessions are PartedSessions
    """

    name: str
    setting: str
    parted: bool

    def session(self, id: str) -> Session:
        """Of a new client."""
