"""What a replica that does not lead says to those who look for the server: who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mombroker.core.errors import MomError, NotYet
from mombroker.core.events import Admin
from mombroker.core.hello import Hello
from mombroker.core.topology import Topology
from mombroker.net.adminport import AdminPort
from mombroker.net.connection import Connection
from mombroker.net.handshake import JOIN, Login

Verb = Callable[..., dict[str, Any]]


class Standby:
    """The door for neighbours, in place of a channel (net/links.py): it is shut, and nothing is wrong."""

    def __init__(self, topology: Topology, says: Callable[[], str]):
        self.topology, self.says = topology, says
        self.trouble: dict[str, str] = {}

    def greet(self, peer: str) -> Hello:
        raise NotYet(self.says())

    def admit(self, hello: Hello) -> None:
        raise NotYet(self.says())

    def post(self, event: Any) -> None:
        """Nobody is let in from whom something could come."""


class StandbyPort(AdminPort):
    """Operators ask what a replica can answer without its server; `verbs` by name. Whoever wants to join looks on."""

    def __init__(self, verbs: dict[str, Verb], says: Callable[[], str]):
        super().__init__(self._asked, {})
        self.verbs, self.says = verbs, says

    def opened(self, conn: Connection, login: Login) -> None:
        super().opened(conn, login)
        if login.role == JOIN:
            conn.close()

    def _asked(self, event: Admin) -> None:
        try:
            if event.verb not in self.verbs:
                raise MomError(self.says())
            result: dict[str, Any] | str = self.verbs[event.verb](**event.args)
        except (MomError, TypeError) as error:
            result = str(error)
        self.reply(event.ticket, result)
