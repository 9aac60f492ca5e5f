"""What operators may ask about the process that a server runs in."""

from __future__ import annotations

from collections.abc import Callable

from mombroker.core.requests import Reply, changes, reads


class ProcessVerbs:
    """stop, reload and clients are the process's own: its end, its settings, and its connections as rows."""

    def __init__(
        self, name: str, stop: Callable[[], object], reload: Callable[[], list[str]], clients: Callable[[], list[Reply]]
    ):
        self.name, self._stop, self._reload, self._clients = name, stop, reload, clients

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
