"""What the watchdog sees of a replica: the server, while it is here."""

from __future__ import annotations

from typing import Any, Protocol

from mombroker.net.node import Node


class Serving(Protocol):
    node: Node | None


class Watched:
    def __init__(self, on: Serving):
        self.on = on

    def _engine(self, what: str) -> Any:
        node = self.on.node
        return getattr(node.server.engine, what) if node is not None else 0

    @property
    def running(self) -> str:
        return self._engine("running") or ""

    @property
    def reactions(self) -> int:
        return int(self._engine("reactions"))

    @property
    def failures(self) -> int:
        return int(self._engine("failures"))

    @property
    def parked(self) -> int:
        return int(self._engine("parked"))

    @property
    def committing(self) -> int:
        node = self.on.node
        return node.driver.committing if node is not None else 0
