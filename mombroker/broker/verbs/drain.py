"""What operators may ask about a server that is to hold nothing any more."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.service import Sessions
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.broker.verbs.base import DestinationVerbs
from mombroker.core.errors import MomError
from mombroker.core.meta import DRAINING
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.verbs import AgentVerbs

PAGE = 1_000  # agents read at once
AT_ONCE = 200  # that are on their way


class DrainVerbs(DestinationVerbs):
    def __init__(self, sessions: Sessions, letters: Sized, agents: AgentVerbs):
        super().__init__(sessions)
        self.letters, self.agents = letters, agents

    @reads
    def holdings(self) -> Reply:
        """All that lives on this server, and would be lost with it: queues, subscriptions, agents, connections, dead
        letters of agents."""
        return {"server": self.tx.name, "draining": self.names.elsewhere, "holdings": list(self._holdings())}

    def _holdings(self) -> Iterator[Reply]:
        for native in sorted(self.natives.agents.values(), key=lambda each: each.id):
            if isinstance(native, Queue):
                kind = "subscription" if isinstance(native, Subscription) else "queue"
                yield {
                    "kind": kind, "name": native.settings.destination, "messages": native.messages.count,
                    **native.moving(),
                }  # fmt: skip
        for id, path in self._agents():
            yield {"kind": "agent", "name": id, "class": path, **self.agents.moving(id)}
        for kind, count in (("connections", len(self.sessions.sessions)), ("dead letters", len(self.letters))):
            if count:
                yield {"kind": kind, "name": "", "messages": count}

    def _agents(self) -> Iterator[tuple[str, str]]:
        """Those of authors."""
        after = ""
        while rows := self.tx.reader.agents(after, PAGE):
            after = rows[-1][0]
            yield from ((id, path) for id, path in rows if not self.sessions.owns(path))

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
