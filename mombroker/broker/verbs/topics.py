"""What operators may ask about topics."""

from __future__ import annotations

from urllib.parse import unquote

from mombroker.broker.names import name_of
from mombroker.broker.topic.patterns import segments_of
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.broker.verbs.base import MAX_PAGE, DestinationVerbs
from mombroker.core.errors import MomError, short
from mombroker.core.requests import Reply, changes, reads


class TopicVerbs(DestinationVerbs):
    @reads
    def topics(self, after: str = "", limit: int = MAX_PAGE) -> Reply:
        """The topics that were created, and the patterns that somebody listens to, as this server knows them; with
        `limit` 0 what was counted of all of them alone."""
        topics = self.sessions.topics
        counts = {
            "published": topics.published, "copies": topics.copies, "unheard": topics.unheard,
            "dropped": topics.dropped,
        }  # fmt: skip
        if not limit:
            return {"topics": [], "after": "", **counts}
        servers: dict[str, list[str]] = {}
        for home, entries in topics.table.items():
            for pattern in entries.values():
                servers.setdefault(pattern, []).append(home)
        limit = min(limit, MAX_PAGE)
        created = {unquote(name): id for name, id in self.names.known.items() if name.startswith("topic:")}
        names = sorted(name for name in {*servers, *created} if name > after)
        rows = []
        for name in names[:limit]:
            entry = topics.own.get(name)
            rows.append({
                "topic": name, "servers": sorted(servers.get(name, ())), "created": name in created,
                "subscribers_here": len(entry.subscribers) if entry else 0,
                "unknown_to": sorted(entry.unknown) if entry else [],
                "dropped_here": sum(subscriber.dropped for subscriber in entry.subscribers) if entry else 0,
            })  # fmt: skip
        more = names[limit - 1] if len(names) > limit else ""
        return {"topics": rows, "after": more, **counts}

    @reads
    def topic(self, destination: str) -> Reply:
        """Who listens to a topic, as this server knows them, and its policy; `delayed` is what its home keeps that is
        not due yet."""
        name, topics = _topic(destination), self.sessions.topics
        found = sorted(topics.patterns.fit(name))
        here = {each for _, epoch in found if (entry := topics.entries.get(epoch)) for each in entry.subscribers}
        home = self.names.known.get(name_of(name), "")
        mine = self.natives.agents.get(home) or self.natives.agents.get(f"{self.tx.name}/{name_of(name)}")
        kept = sorted(self.sessions.shown(each.name) for each in here if isinstance(each, Subscription))
        return {
            "topic": name, "created": home.partition("/")[0],
            "moving": mine.move.shown() if isinstance(mine, Topic) and mine.move else "",
            "delayed": len(mine.delays) if isinstance(mine, Topic) and mine.delays else 0,
            "patterns": sorted({topics.table[home][epoch] for home, epoch in found}),
            "servers": sorted({home for home, _ in found}), "subscribers_here": len(here), "subscriptions_here": kept,
            "policy": self.sessions.policies.of(name).as_dict(),
        }  # fmt: skip

    @changes
    def create_topic(self, ticket: int, destination: str) -> None:
        """Create a topic on this server, which is there though nobody uses it."""
        self.names.create(ticket, name_of(_topic(destination)), Topic.path, b"", self.tx.name)

    @changes
    def move_topic(self, destination: str, to: str) -> Reply:
        """Let another server be the home of a topic that was created, or is in total order, while clients use it. It is
        done when `created` says so; asked again it says how far it is."""
        name = _topic(destination)
        id = self.names.known.get(name_of(name))
        if id is None:
            raise MomError(f"{short(name)} has no home: nobody has created it, or published to it in total order")
        self.names.present(id, name)
        self.names.distance(to)
        home = id.partition("/")[0]
        if home == to:
            return {"topic": name, "created": home, "moving": ""}
        here = self.natives.agents.get(id)
        if not isinstance(here, Topic):
            raise MomError(f"{name} does not live on {self.tx.name}; ask its home server {home}")
        here.depart(to)
        return {"topic": name, "created": home, "moving": here.move.shown() if here.move else ""}

    @changes
    def delete_topic(self, destination: str) -> Reply:
        """Delete a topic that was created; who listens goes on, unless its policy has create = false. What its home
        keeps that is not due becomes dead letters; `delayed` is how much that is, if the home is this server."""
        name = _topic(destination)
        id = self.names.known.get(name_of(name))
        if id is None:
            raise MomError(f"nobody has created {short(name)}: it is there as long as somebody listens")
        self.names.present(id, name)
        here = self.natives.agents.get(id)
        delayed = len(here.delays) if isinstance(here, Topic) and here.delays else 0
        self.delete(id)
        return {"deleted": name, "delayed": delayed}


def _topic(name: str) -> str:
    if not name.startswith("topic:") or segments_of(name):
        raise MomError(f"{short(name)} is no topic: a topic has no wildcards")
    return name
