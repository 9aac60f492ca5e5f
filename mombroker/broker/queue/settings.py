"""The policy of one destination, as of now."""

from __future__ import annotations

from mombroker.broker.policies import Policies
from mombroker.broker.policy import Policy

UNKNOWN = Policy()  # of a destination that has not looked for its own yet


class Settings:
    """destination   its name, as people know it
    policy        looked up again after each change of policies
    limited       is there a limit that could keep a message out?
    """

    __slots__ = ("destination", "_policies", "_version", "_policy", "_limited")

    def __init__(self, policies: Policies, destination: str):
        self._policies, self.destination = policies, destination
        self._version = 0
        self._policy = UNKNOWN
        self._limited = False

    @property
    def policy(self) -> Policy:
        if self._version != self._policies.version:
            self._look_up()
        return self._policy

    @property
    def limited(self) -> bool:
        if self._version != self._policies.version:
            self._look_up()
        return self._limited

    def _look_up(self) -> None:
        self._version, self._policy = self._policies.version, self._policies.of(self.destination)
        self._limited = bool(self._policy.max_messages or self._policy.max_bytes)
