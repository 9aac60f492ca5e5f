"""Topic: one that an operator has created. It is a name: what is published does not pass here, see routing.py."""

from __future__ import annotations

from mombroker.broker.native import Native


class Topic(Native):
    """Known on all servers; needed only where a policy has `create = false`."""

    path = "mombroker.agents.topic:Topic"
    deletable = True

    def deleted(self) -> None:
        self.server.names.forget(self.id[self.id.index("/") + 1 :], self.id)
