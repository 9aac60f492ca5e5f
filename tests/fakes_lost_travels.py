"""Losses of servers that agents come from or go to, broken on purpose: the outsider must notice."""

from collections.abc import Callable
from typing import Any

from mombroker.core.departures import Departures
from mombroker.core.server import AgentServer


def waits_for_ever(_: Callable[..., None]) -> Callable[..., None]:
    """Who takes an agent that is not offered any more hears nothing."""
    return lambda departures, id, to: None


def stays_in_pieces(_: Callable[..., None]) -> Callable[..., None]:
    """An agent whose new home is lost goes on with what is left of it, and who begins there is not told."""

    def stays(departures: Departures, server: str) -> None:
        for id, departure in list(departures.leaving.items()):
            if departure.to == server:
                departures._stays(id, f"{server} has left the bus")
                departures._thaw(id)
            else:
                departures._answered(id, server, departure.phase)

    return stays


def moved_to_the_lost_one(lost: Callable[..., None]) -> Callable[..., None]:
    """Who begins in the place of a lost server believes that what lived on that lives here."""

    def applied(server: AgentServer, name: str, *more: Any) -> None:
        if name != server.name:
            lost(server, name, *more)

    return applied
