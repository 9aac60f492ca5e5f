"""Requests of the operator on the listen port: [number, verb, arguments] in, [number, done, result] out."""

from collections.abc import Callable
from typing import Any

from mombroker.core.errors import PeerError
from mombroker.core.events import Admin
from mombroker.core.topology_verbs import MAY_JOIN
from mombroker.net import wire
from mombroker.net.connection import Connection
from mombroker.net.handshake import JOIN, Login

MAX_OPEN = 64  # unanswered requests of one connection; beyond it the connection is not read


class AdminPort:
    """Hands requests to the agent server and its replies back.

    after   verb -> what is done with its reply, which is durable (core/requests.py)
    """

    def __init__(self, post: Callable[[Any], None], after: dict[str, Callable[[dict[str, Any]], None]]):
        self.post, self.after = post, after
        self._tickets = 0
        self._open: dict[int, tuple[Connection | None, int, str]] = {}
        self._counts: dict[Connection, int] = {}
        self._joining: set[Connection] = set()  # those that show the secret of the bus, and no token

    def opened(self, conn: Connection, login: Login) -> None:
        conn.transport.setTcpKeepAlive(True)  # the operator may think for long
        self._counts[conn] = 0
        if login.role == JOIN:
            self._joining.add(conn)

    def received(self, conn: Connection, frames: list[Any]) -> None:
        for frame in frames:
            if not (type(frame) is list and [type(each) for each in frame] == [int, str, dict]):
                raise PeerError("a request is not [number, verb, arguments]")
            number, verb, args = frame
            if conn in self._joining and verb not in MAY_JOIN:
                self._answer(conn, number, False, f"{verb} is for who has the token of this server, in its data folder")
                continue
            self._tickets += 1
            self._open[self._tickets] = conn, number, verb
            self._counts[conn] += 1
            if self._counts[conn] == MAX_OPEN:
                conn.transport.pauseProducing()
            self.post(Admin(self._tickets, verb, args))

    def post_own(self, verb: str, args: dict[str, Any]) -> None:
        """A request of the process itself: its answer is completed as all are, and goes nowhere."""
        self._tickets += 1
        self._open[self._tickets] = None, 0, verb
        self.post(Admin(self._tickets, verb, args))

    def reply(self, ticket: int, result: dict[str, Any] | str) -> None:
        """The agent server's answer, durable now. A string is a refusal."""
        conn, number, verb = self._open.pop(ticket)
        done = not isinstance(result, str)
        if not isinstance(result, str) and verb in self.after:
            self.after[verb](result)  # also when whoever asked has gone
        if conn is None or conn not in self._counts:
            return
        if self._counts[conn] == MAX_OPEN:
            conn.transport.resumeProducing()
        self._counts[conn] -= 1
        self._answer(conn, number, done, result)

    def _answer(self, conn: Connection, number: int, done: bool, result: dict[str, Any] | str) -> None:
        try:
            data = wire.encode([number, done, result])
        except (TypeError, ValueError, OverflowError) as error:
            data = wire.encode([number, False, f"the answer cannot be packed: {error}"])
        conn.send([], [data])

    def closed(self, conn: Connection) -> None:
        del self._counts[conn]
        self._joining.discard(conn)
