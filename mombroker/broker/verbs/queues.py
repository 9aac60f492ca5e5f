"""What operators may ask about queues, and about subscriptions as the queues that they are."""

from __future__ import annotations

from mombroker.broker.names import name_of
from mombroker.broker.queue.queue import Queue
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.verbs.base import MAX_PAGE, DestinationVerbs
from mombroker.broker.verbs.subscriptions import described
from mombroker.core.errors import MomError, short
from mombroker.core.requests import Reply, changes, reads


class QueueVerbs(DestinationVerbs):
    @reads
    def queues(self, after: str = "", limit: int = MAX_PAGE, match: str = "", fullest: bool = False) -> Reply:
        """The queues of the server with what is in them, those behind `after`, with `match` in their names; or the
        `fullest`, one page of them."""
        if fullest:
            found, after = self.fullest("queue", "temp-queue", limit=limit, match=match), ""
        else:
            found, after = self.page("queue", "temp-queue", after=after, limit=limit, match=match)
        return {"queues": [queue.describe() for queue in found], "after": after}

    @reads
    def destination(self, destination: str) -> Reply:
        """One queue or subscription with its consumers and its policy."""
        queue = self.find(destination)
        about = described(queue) if isinstance(queue, Subscription) else queue.describe()
        consumers = [
            {
                "session": each.key[0], "credit": each.credit, "selector": each.note.selector,
                "priority": each.note.priority, "exclusive": each.note.exclusive,
                "unacked": len(queue.messages.unacked.get(each.key[0], ())),
            }
            for each in queue.consumers
        ]  # fmt: skip
        return {**about, "consumers": consumers, "policy": queue.settings.policy.as_dict()}

    @changes
    def create_queue(self, ticket: int, destination: str) -> None:
        """Create a queue on this server."""
        if not destination.startswith("queue:"):
            raise MomError(f"{short(destination)} is no queue: write queue:NAME")
        self.names.create(ticket, name_of(destination), Queue.path, b"", self.tx.name)

    @changes
    def delete_destination(self, destination: str) -> Reply:
        """Delete a queue or subscription with what is in it."""
        queue = self.find(destination)
        queue.not_moving()
        self.delete(queue.id)
        return {"deleted": self.sessions.shown(queue.name), "messages": queue.messages.count}

    @changes
    def move_destination(self, destination: str, to: str, release: bool = False) -> Reply:
        """Move a queue or durable subscription with all that is in it to another server, while clients use it.

        The answer comes when that is begun; `destination` tells how far it is. With `release` it does not wait for what
        consumers have: that is given out again, marked as redelivered.
        """
        queue = self.find(destination)
        self.names.distance(to)
        shown = queue.settings.destination
        if to == self.tx.name:
            raise MomError(f"{shown} lives on {to} already")
        if not queue.movable():
            raise MomError(f"{shown} ends with the clients that use it: there is nothing to move")
        queue.depart(to)
        released = queue.hurry() if release else 0
        return {"destination": shown, "from": self.tx.name, "to": to, "released": released, **queue.moving()}

    @changes
    def purge(self, destination: str) -> Reply:
        """Drop all messages of a queue or subscription that no consumer has."""
        queue = self.find(destination)
        queue.not_moving()
        return {"destination": self.sessions.shown(queue.name), "purged": queue.expiry.start_purge()}

    @changes
    def release(self, destination: str, holder: str) -> Reply:
        """Take back what the clients of a dead server have of a queue or subscription."""
        queue = self.find(destination)
        self.names.distance(holder)  # raises for one that is not on this bus
        if holder == self.tx.name:
            raise MomError(f"{holder} runs: what its clients hold comes back when their connections end")
        returned = queue.release(lambda session: self.names.homes.home(session) == holder)
        return {"destination": self.sessions.shown(queue.name), "released": returned}
