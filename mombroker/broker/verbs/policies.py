"""What operators may ask about policies."""

from __future__ import annotations

from typing import Any

from mombroker.broker.policies import Policies
from mombroker.core.requests import Reply, changes, reads


class PolicyVerbs:
    def __init__(self, policies: Policies):
        self.table = policies

    @reads
    def policies(self) -> Reply:
        """The policies in force: those set at run time, and those of the topology file."""
        rows = [{"from": "mom policy set", **each.as_dict()} for each in self.table.set.values()]
        return {"policies": rows + [{"from": "topology file", **each.as_dict()} for each in self.table.declared]}

    @changes
    def set_policy(self, ticket: int, match: str, values: dict[str, Any] | None = None) -> None:
        """Set the policy of a pattern on all servers, or delete it, without `values`."""
        self.table.change(match, values, ticket)
