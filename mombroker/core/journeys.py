"""Which part of an agent's life a record of a server's log belongs to: agents move, and each server has its own log."""

from __future__ import annotations

from mombroker.core.ids import home_of
from mombroker.core.trace import Record

NOT_HERE = -1


class Journeys:
    """The agents of one server, while its log is read in order.

    here   agents that have come or left -> the part that is under way here, NOT_HERE if it is elsewhere
    """

    __slots__ = ("server", "here")

    def __init__(self, server: str):
        self.server = server
        self.here: dict[str, int] = {}

    def follow(self, kind: str, number: int, agent: str, detail: str) -> None:
        """A record is read."""
        if kind == "move":
            self.here[agent] = number if detail == "came" else NOT_HERE

    def part(self, agent: str) -> int:
        """The part of its life that an agent is in; parts come in the order of their numbers. NOT_HERE: whatever is
        done here in its name is done by the server."""
        found = self.here.get(agent)
        return found if found is not None else 0 if home_of(agent) == self.server else NOT_HERE


def lives(server: str, log: list[Record]) -> list[tuple[Record, int]]:
    """Each record of a server's log, with the part of its agent's life."""
    journeys, found = Journeys(server), []
    for record in log:
        journeys.follow(record.kind, record.number, record.agent, record.detail)
        found.append((record, journeys.part(record.agent) if record.agent else 0))
    return found
