"""What operators may ask about a server that is to hold nothing any more."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from urllib.parse import unquote

from mombroker.broker.groups.group import Group
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.service import Sessions
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.broker.verbs.base import DestinationVerbs
from mombroker.core.errors import MomError
from mombroker.core.meta import DRAINING
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.verbs import AgentVerbs
from mombroker.core.words import many

PAGE = 1_000  # agents read at once
AT_ONCE = 200  # that are on their way
GONE = "-"  # no class has this name


def counted(kind: str, count: int) -> str:
    """What has no names, in words."""
    return f"{many(count, kind.removesuffix('s'))}{' of clients' if kind == 'connections' else ''}"


class DrainVerbs(DestinationVerbs):
    def __init__(self, sessions: Sessions, letters: Sized, agents: AgentVerbs):
        super().__init__(sessions)
        self.letters, self.agents = letters, agents

    @reads
    def holdings(self) -> Reply:
        """All that lives on this server, and would be lost with it: queues, subscriptions, topics, groups, agents,
        connections, dead letters of agents. The name of an agent that was deleted is none of it."""
        return {"server": self.tx.name, "draining": self.names.elsewhere, "holdings": list(self._holdings())}

    def holds(self) -> list[str]:
        """The same in words."""
        named = {id: name for name, id in self.names.known.items()}
        rows = sorted(self._holdings(), key=lambda row: not row["name"])
        return [
            named.get(row["name"], str(row["name"])) if row["name"] else counted(row["kind"], row["messages"])
            for row in rows
        ]

    def _holdings(self) -> Iterator[Reply]:
        natives, own = self.natives.agents, f"{self.tx.name}/conn:"
        for native in sorted(natives.values(), key=lambda each: each.id):
            if isinstance(native, Queue):
                kind = "subscription" if isinstance(native, Subscription) else "queue"
                yield {
                    "kind": kind, "name": native.settings.destination, "messages": native.messages.count,
                    **native.moving(),
                }  # fmt: skip
            elif isinstance(native, Topic | Group):
                kind = "topic" if isinstance(native, Topic) else "group"
                yield {"kind": kind, "name": unquote(native.id.partition("/")[2])}
        for id, path in self._agents():
            yield {"kind": "agent", "name": id, "class": path, **self.agents.moving(id)}
        clients = sum(id.startswith(own) for id in natives)
        for kind, count in (("connections", clients), ("dead letters", len(self.letters))):
            if count:
                yield {"kind": kind, "name": "", "messages": count}

    def _agents(self) -> Iterator[tuple[str, str]]:
        """Those of authors that are here, as of the open batch, or on their way here."""
        found, after = dict.fromkeys(self.agents.arrivals.coming, ""), ""
        while rows := self.tx.reader.agents(after, PAGE):
            after = rows[-1][0]
            found.update(rows)
        found.update({id: row[0] if row else GONE for id, row in self.tx.rows.agents.items()})
        yield from ((id, path) for id, path in sorted(found.items()) if path != GONE and not self.sessions.owns(path))

    @changes
    def drain(self, to: str = "", release: bool = False, end: bool = False) -> Reply:
        """Move all queues, topics, durable subscriptions and agents to another server, some of the agents at a time;
        what is new is made there, too, and no client may connect here, from now on, also after a restart, until this is
        asked with `end`. It is asked again for the next agents, and for what has come meanwhile."""
        if end:
            self.names.elsewhere = ""
            self.tx.rows.meta[DRAINING] = None
            return {"server": self.tx.name, "draining": "", "moving": 0}
        to = to or self.names.elsewhere
        if not to:
            raise MomError(f"where {self.tx.name} is to be drained to is not said: name a server by --to")
        self.names.distance(to)
        if to == self.tx.name:
            raise MomError(f"{to} cannot be drained to itself: name another server")
        agents = self.agents.departures
        if self.names.elsewhere != to:
            agents.refused.clear()
        self.names.elsewhere = to
        self.tx.rows.meta[DRAINING] = to
        moving = 0
        for native in list(self.natives.agents.values()):
            if isinstance(native, Queue) and native.movable() and self.names.known.get(native.name) == native.id:
                if native.move is None:
                    native.depart(to)
                if release:
                    native.hurry()
                moving += 1
            elif isinstance(native, Topic) and self.names.known.get(native.name) == native.id:
                if native.move is None:
                    native.depart(to)
                moving += 1
        for id, path in self._agents():
            if id not in agents.refused and id not in self.agents.arrivals.coming:
                if id not in agents.leaving and len(agents.leaving) < AT_ONCE:
                    agents.begin(id, path, to)
                moving += 1
        return {"server": self.tx.name, "draining": to, "moving": moving}
