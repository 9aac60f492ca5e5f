"""Topic: one that an operator has created. It is a name: what is published does not pass here, see routing.py."""

from __future__ import annotations

from typing import ClassVar

from mombroker.broker.native import Native
from mombroker.broker.queue.service import QueueService


class Topic(Native):
    """Known on all servers; needed only where a policy has `create = false`."""

    path: ClassVar[str] = "mombroker.agents.topic:Topic"
    deletable = True

    def __init__(self, service: QueueService, id: str, state: bytes = b""):
        super().__init__(service.natives, id)

    def deleted(self) -> None:
        self.natives.names.forget(self.id[self.id.index("/") + 1 :], self.id)
