"""Why a message had to come before another one: the messages by which the one became a cause of the other."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mombroker.admin.audit.export import Event, _Logs, _Pass
from mombroker.admin.audit.routes import MessageId
from mombroker.core.topology import Topology

CARRIED = 1_000_000  # messages that are looked at for one chain

Wanted = tuple[MessageId, MessageId]  # a message, and one that it is a cause of
Chain = list[tuple[str, MessageId]]  # the message and who has sent it, from the first to the last


def chains(topology: Topology, target: Path, wanted: Collection[Wanted]) -> Mapping[Wanted, Chain]:
    """From an export of the logs, of each pair (late, before) of a violation a chain that begins with `late` and ends
    with `before`: who sent a message of it had sent the one in front of it, or reacted to that, before.

    One pass over the logs, whatever is wanted. Not in the result are pairs with more than CARRIED messages between
    them, and such as the log does not tell of.
    """
    if not wanted:
        return {}
    logs = _Logs(topology, target, {}, True, lambda _: None)
    logs.survey()
    looking = _Looking(logs, wanted)
    looking.run()
    return looking.complete


def explain(findings: Sequence[dict[str, Any]], topology: Topology, target: Path) -> None:
    """Findings of a report get `causes`: of a violation its chain, as `[{"agent": ..., "message": "server#number"}]`;
    empty for others, and where the log does not tell."""
    pairs = [(_id(row["message"]), _id(row["before"])) for row in findings if row["before"]]
    known = chains(topology, target, pairs)
    for row in findings:
        chain = known.get((_id(row["message"]), _id(row["before"])), []) if row["before"] else []
        row["causes"] = [{"agent": agent, "message": f"{server}#{number}"} for agent, (server, number) in chain]


def _id(message: str) -> MessageId:
    server, _, number = message.rpartition("#")
    return server, int(number)


@dataclass(slots=True)
class _Trail:
    """All that has `late` among its causes, until that is `before`."""

    late: MessageId
    before: MessageId
    via: dict[str, MessageId] = field(default_factory=dict)  # the message by which an agent first had it
    carried: dict[MessageId, str] = field(default_factory=dict)  # messages that were sent since, and by whom

    def event(self, kind: str, process: str, id: MessageId) -> bool:
        """True once it is complete."""
        if kind == "react":
            if id in self.carried:
                self.via.setdefault(process, id)
        elif id == self.late or process in self.via:
            self.via.setdefault(process, self.late)
            self.carried.setdefault(id, process)
        return self.before in self.carried

    def chain(self) -> Chain:
        found, id = [], self.before
        while id != self.late:
            found.append((self.carried[id], id))
            id = self.via[self.carried[id]]
        return [(self.carried[id], id), *reversed(found)]


class _Looking(_Pass):
    """The events once more, in an order in which they can have happened."""

    def __init__(self, logs: _Logs, wanted: Collection[Wanted]) -> None:
        super().__init__(logs)
        self.trails = [_Trail(*pair) for pair in sorted(set(wanted))]
        self.complete: dict[Wanted, Chain] = {}

    def _apply(self, event: Event) -> None:
        super()._apply(event)
        kind, process, id, _ = event
        for trail in list(self.trails):
            if trail.event(kind, process, id):
                self.complete[trail.late, trail.before] = trail.chain()
                self.trails.remove(trail)
            elif len(trail.carried) > CARRIED:
                self.trails.remove(trail)
