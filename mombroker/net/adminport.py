"""Requests of the operator on the listen port: [number, verb, arguments] in, [number, done, result] out."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mombroker.core.errors import PeerError
from mombroker.core.events import Admin
from mombroker.core.topology_verbs import MAY_JOIN
from mombroker.net import wire
from mombroker.net.connection import Connection
from mombroker.net.handshake import JOIN, Login

Result = dict[str, Any] | str  # a string is a refusal
Answer = Callable[[Result], None]

MAX_OPEN = 64  # unanswered requests of one connection; beyond it the connection is not read


class AdminPort:
    """Hands requests to the agent server and its replies back.

    after   verb -> what is done with its reply, which is durable (core/requests.py)
    """

    def __init__(self, post: Callable[[Any], None], after: dict[str, Callable[[dict[str, Any]], None]]):
        self.post, self.after = post, after
        self._tickets = 0
        self._open: dict[int, tuple[str, Answer]] = {}
        self._counts: dict[Connection, int] = {}
        self._who: dict[Connection, tuple[str, str]] = {}
        self._joining: set[Connection] = set()  # those that show the secret of the bus, and no token

    def opened(self, conn: Connection, login: Login) -> None:
        conn.transport.setTcpKeepAlive(True)  # the operator may think for long
        self._counts[conn] = 0
        self._who[conn] = login.peer, str(getattr(conn.transport.getPeer(), "host", ""))
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
            self._counts[conn] += 1
            if self._counts[conn] == MAX_OPEN:
                conn.transport.pauseProducing()
            who, where = self._who[conn]
            self.ask(verb, args, partial(self._answered, conn, number), who, where)

    def ask(
        self,
        verb: str,
        args: dict[str, Any],
        answer: Answer = lambda result: None,
        who: str = "the server",
        where: str = "",
    ) -> None:
        """A request of the process itself, or of another port, which says who asks it, and from where. `answer` gets
        the result, or the sentence of a refusal, while the agent server lets go of its outputs: what is asked because
        of it is asked later."""
        self._tickets += 1
        self._open[self._tickets] = verb, answer
        self.post(Admin(self._tickets, verb, args, who, where))

    def reply(self, ticket: int, result: Result) -> None:
        """The agent server's answer, durable now. A string is a refusal."""
        verb, answer = self._open.pop(ticket)
        if not isinstance(result, str) and verb in self.after:
            self.after[verb](result)  # also when whoever asked has gone
        answer(result)

    def _answered(self, conn: Connection, number: int, result: Result) -> None:
        if conn not in self._counts:
            return
        if self._counts[conn] == MAX_OPEN:
            conn.transport.resumeProducing()
        self._counts[conn] -= 1
        self._answer(conn, number, not isinstance(result, str), result)

    def _answer(self, conn: Connection, number: int, done: bool, result: Result) -> None:
        try:
            data = wire.encode([number, done, result])
        except (TypeError, ValueError, OverflowError) as error:
            data = wire.encode([number, False, f"the answer cannot be packed: {error}"])
        conn.send([], [data])

    def closed(self, conn: Connection) -> None:
        del self._counts[conn], self._who[conn]
        self._joining.discard(conn)
