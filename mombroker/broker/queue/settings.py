"""The policy of one destination, as of now."""

from __future__ import annotations

from mombroker.broker.policies import Policies


class Settings:
    """destination   its name, as people know it
    policy        looked up again after each change of policies
    limited       is there a limit that could keep a message out?
    """

    __slots__ = ("destination", "policy", "limited", "_policies")

    def __init__(self, policies: Policies, destination: str):
        self._policies, self.destination = policies, destination
        self.look_up()

    def look_up(self) -> None:
        self.policy = policy = self._policies.of(self.destination)
        self.limited = bool(policy.max_messages or policy.max_bytes)
