"""What a replica that does not lead says to those who look for the server: who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mombroker.core.errors import MomError, NotYet
from mombroker.core.events import Admin
from mombroker.core.hello import Hello
from mombroker.core.places import Place
from mombroker.core.topology import Server, Topology
from mombroker.net.adminport import AdminPort
from mombroker.net.connection import Connection
from mombroker.net.replicas.health import Health, Visits
from mombroker.net.replicas.redirect import Redirect, listen

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


class Doors(Standby):
    """That for neighbours; that for probes; and, where the server wants it, one for clients, who are told who leads."""

    def __init__(
        self, reactor: Any, at: Server, topology: Topology, leader: Callable[[], Place | None],
        figures: Callable[[], dict[str, Any]] = dict,
    ):  # fmt: skip
        super().__init__(topology, lambda: self.where()[0])
        self.reactor, self.at, self.leader = reactor, at, leader
        self._health = Health(reactor, at.name, self.says, figures)
        self._redirect: Redirect | None = None
        self._ports: list[Any] = []

    def where(self, setting: str = "stomp") -> tuple[str, str]:
        """Who leads, in a sentence, and where clients of a setting find it; empty if nobody knows."""
        place = self.leader()
        if place is None:
            return f"standby: {self.at.label} does not know who leads {self.at.name} now", ""
        where = (place.stomp or place.stomp_tls if setting.startswith("stomp") else getattr(place, setting)) or ""
        return f"standby: the leader is {place.name} at {where or place.listen}", where

    def listen(self) -> str:
        """Where servers find the one that leads; empty if nobody knows."""
        place = self.leader()
        return place.listen if place is not None else ""

    def open(self) -> None:
        """Raises MomError."""
        if not self._ports:
            for setting in ("http", "http_tls"):
                if getattr(self.at, setting):
                    visits = Visits(self._health, setting == "http_tls")
                    self._ports.append(listen(self.reactor, self.at, setting, visits))
        if self.at.redirect and self._redirect is None:
            self._redirect = Redirect(self.reactor, self.at, self.where)
            self._redirect.listen()

    def close(self) -> bool:
        """The ports are for the server now. True if one was open: it is closed from the next turn on."""
        redirect, self._redirect = self._redirect, None
        ports, self._ports = self._ports, []
        for listening in ports:
            listening.stopListening()
        self._health.close()
        if redirect is not None:
            redirect.close()
        return redirect is not None or bool(ports)


class StandbyPort(AdminPort):
    """Operators ask what a replica can answer without its server; `verbs` by name. Who shows the secret of the bus
    alone is told where to ask: `listen` is the leader's, empty if that is not known (net/joining.py)."""

    def __init__(self, verbs: dict[str, Verb], says: Callable[[], str], listen: Callable[[], str]):
        super().__init__(self._asked, {})
        self.verbs, self.says, self.listen = verbs, says, listen

    def received(self, conn: Connection, frames: list[Any]) -> None:
        super().received(conn, [frame for frame in frames if not self._elsewhere(conn, frame)])

    def _elsewhere(self, conn: Connection, frame: Any) -> bool:
        if conn not in self._joining or type(frame) is not list or type(frame[0] if frame else None) is not int:
            return False
        self._answer(conn, frame[0], True, {"standby": self.says(), "leader": self.listen()})
        return True

    def _asked(self, event: Admin) -> None:
        try:
            if event.verb not in self.verbs:
                raise MomError(self.says())
            result: dict[str, Any] | str = self.verbs[event.verb](**event.args)
        except (MomError, TypeError) as error:
            result = str(error)
        self.reply(event.ticket, result)
