"""The policies in force: the file's, and those that operators have set at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from mombroker.broker.policy import DECIDED, DEFAULT, META, SET, TEMPORARY, _read, policy, stored
from mombroker.core.errors import MomError
from mombroker.core.message import BOUNCE, Message

if TYPE_CHECKING:
    from mombroker.broker.policy import Policy
    from mombroker.core.server import AgentServer


class Policies:
    """Those of the topology file, and before them those set at run time, the last one first.

    The registry server puts the changes of all servers into one order and tells everybody.
    """

    def __init__(self, server: AgentServer, changed: Callable[[], None] = lambda: None):
        self.server, self.changed = server, changed
        self.declared = [policy(values) for values in server.topology.policies]
        meta = server.reader.meta()
        numbers = sorted((int(key[len(META) :]) for key in meta if key.startswith(META)), reverse=True)
        self.set = {number: stored(json.loads(str(meta[f"{META}{number}"]))) for number in numbers}
        self.version = 1  # rises with each change
        self.tickets: list[tuple[int, str]] = []  # of operators here, and the pattern that each has asked for
        self._found: dict[str, Policy] = {}
        server.handlers.update({SET: self._decide, DECIDED: self._decided})
        server.at_once |= {SET, DECIDED}
        server.readers.update({SET: partial(_read, [str]), DECIDED: partial(_read, [int, str])})

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
        server = self.server
        if ticket:
            self.tickets.append((ticket, match))
        registry = server.topology.registry or server.name
        text = json.dumps([match, values])
        source = f"{server.name}/_policies"
        server.send(server.message(source, (f"{registry}/_registry",), SET, text.encode(), flags=BOUNCE))

    def _decide(self, message: Message) -> None:
        server = self.server
        everyone = tuple(f"{other}/_policies" for other in server.topology.servers)
        number = max(server.new_id(), 1 + max(self.set, default=0))  # the former registry may have been ahead of us
        text = json.dumps([number, *_read([str], message)])
        server.send(server.message(f"{server.name}/_registry", everyone, DECIDED, text.encode(), flags=BOUNCE))

    def _decided(self, message: Message) -> None:
        number, match, values = _read([int, str], message)
        meta = self.server.batch.meta
        for old in [old for old, each in self.set.items() if each.match == match]:
            del self.set[old]
            meta[f"{META}{old}"] = None
        if values is not None:
            values["match"] = match
            self.set = {number: stored(values), **self.set}
            meta[f"{META}{number}"] = json.dumps(values)
        self.version += 1
        self._found.clear()
        for ticket in [ticket for ticket, asked in self.tickets if asked == match]:
            self.server.requests.tickets.answer(ticket, {"match": match, "policy": values})
        self.tickets = [(ticket, asked) for ticket, asked in self.tickets if asked != match]
        self.changed()
