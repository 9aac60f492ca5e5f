"""What operators may ask about the process that a server runs in."""

from __future__ import annotations

from collections.abc import Callable

from mombroker.core.errors import MomError
from mombroker.core.requests import Reply, changes, reads


class ProcessVerbs:
    """stop, reload, clients and hang_up are the process's own: its end, its settings, its connections as rows, and the
    end of some of them: their numbers, and why."""

    def __init__(
        self,
        name: str,
        stop: Callable[[], object],
        reload: Callable[[], list[str]],
        clients: Callable[[], list[Reply]],
        hang_up: Callable[[list[int], str], None],
    ):
        self.name, self._stop, self._reload, self._clients, self._hang_up = name, stop, reload, clients, hang_up

    @changes
    def stop(self) -> Reply:
        """End the process, with all servers in it."""
        self._stop()
        return {"stopping": self.name}

    @changes
    def reload(self) -> Reply:
        """Read certificates, limits and the bounds of the log anew."""
        return {"server": self.name, "notes": self._reload()}

    @reads
    def connections(self) -> Reply:
        """The clients that are connected now."""
        return {"server": self.name, "connections": self._clients()}

    @changes
    def close_connections(
        self, number: int = 0, user: str = "", client_id: str = "", host: str = "", reason: str = ""
    ) -> Reply:
        """End connections of clients: all that are as named. What they had not settled goes back to where it was."""
        asked = {"number": number, "user": user, "client_id": client_id, "host": host}
        named = {name: value for name, value in asked.items() if value}
        if not named:
            raise MomError("which connections are to end? Name a number, a user, a client id or a host")
        found = [row for row in self._clients() if all(row[name] == value for name, value in named.items())]
        self._hang_up([row["number"] for row in found], f"closed by an operator{f': {reason}' if reason else ''}")
        return {"server": self.name, "closed": [{name: row[name] for name in asked} for row in found]}
