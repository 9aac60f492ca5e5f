"""The policies in force: the file's, and those that operators have set at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from mombroker.broker.policy import DEFAULT, TEMPORARY, Policy, policy, stored
from mombroker.broker.shapes import LAST
from mombroker.core.changes import Change
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import Message
from mombroker.core.meta import POLICY
from mombroker.core.replicated import Replicated, Replication
from mombroker.core.topology import Topology

SET, DECIDED = "_policy", "_policies"
MATCH_CHARS = 1_024


class Policies(Replicated):
    """First the policies set at run time, the last one first, then those of the topology file.

    set       by number, which rises with each decision
    changed   called after each change here
    """

    agent, prefix = "_policies", POLICY

    def __init__(self, replication: Replication, changed: Callable[[], None] = lambda: None):
        super().__init__(replication)
        self.changed = changed
        self.declared = [stored(values) for values in self.tx.topology.policies]
        rows = sorted(((int(number), row) for number, row in self.rows().items()), reverse=True)
        self.set = {number: stored(json.loads(row)) for number, row in rows}
        self._found: dict[str, Policy] = {}
        self.define(SET, partial(_read, [str]), self._decide, DECIDED, partial(_read, [int, str]), self._decided)

    def all(self) -> list[Policy]:
        return [*self.set.values(), *self.declared]

    def of(self, destination: str) -> Policy:
        found = self._found.get(destination)
        if found is None:
            default = TEMPORARY if destination.startswith("temp-") else DEFAULT
            found = next((each for each in self.all() if fnmatchcase(destination, each.match)), default)
            if len(self._found) > 10_000:
                self._found.clear()
            self._found[destination] = found
        return found

    def change(self, match: str, values: dict[str, Any] | None, ticket: int = 0) -> None:
        """Set the policy of a pattern anew, or delete it, on all servers; the reply to `ticket` follows when this one
        has it. Raises MomError."""
        if values is not None:
            policy({**values, "match": match})
        elif all(each.match != match for each in self.set.values()):
            raise MomError(f"no policy was set for {match!r} at run time; see `mom policy list`")
        if ticket:
            self.wait(match, ticket)
        self.ask(SET, json.dumps([match, values]).encode())

    def revised(self, change: Change) -> None:
        """Another revision of the topology is in force."""
        if any(setting.what == "policies" for setting in change.settings):
            self.declared = [stored(values) for values in self.tx.topology.policies]
            self._found.clear()
            self.changed()

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all that were set; see Newcomers.tables."""
        for number in sorted(self.set):
            values = json.loads(self.tx.written("meta", f"{POLICY}{number}"))
            payload = json.dumps([number, values["match"], values]).encode()
            yield self.tx.topology.registry or self.tx.name, DECIDED, payload

    def _decide(self, asker: str, match: str, values: dict[str, Any] | None) -> bytes:
        number = max(self.tx.new_id(), 1 + max(self.set, default=0))  # the former registry may have been ahead of us
        return json.dumps([number, match, values]).encode()

    def _decided(self, number: int, match: str, values: dict[str, Any] | None) -> None:
        for old in [old for old, each in self.set.items() if each.match == match]:
            del self.set[old]
            self.keep(old, None)
        if values is not None:
            values["match"] = match
            self.set = {number: stored(values), **self.set}
            self.keep(number, json.dumps(values))
        self._found.clear()
        self.settle(match, {"match": match, "policy": values})
        self.changed()


def check(topology: Topology) -> None:
    """Raises MomError for a policy of a topology that is none."""
    for values in topology.policies:
        policy(values)


def _read(kinds: list[type], message: Message) -> tuple[Any, ...]:
    """What another server says of a policy: so much, then its values or None. Raises UnknownNotification."""
    try:
        *found, values = json.loads(message.payload)
        fits = [type(each) for each in found] == kinds and len(found[-1]) <= MATCH_CHARS
        if not fits or not (kinds[0] is str or 0 < found[0] <= LAST):
            raise ValueError("its number or pattern does not fit")
        if any(type(each) not in (bool, int, float, str) for each in (values or {}).values()):
            raise ValueError("a setting is no number or text")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no policy: {error}") from None
    return *found, values
