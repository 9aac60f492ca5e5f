"""What operators may ask about subscriptions that are not plain."""

from __future__ import annotations

from urllib.parse import unquote

from mombroker.broker import destinations, selectors
from mombroker.broker.names import MAX_NAME, subscription_name
from mombroker.broker.protocol import Spec
from mombroker.broker.queue.queue import Queue
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.verbs.base import MAX_PAGE, DestinationVerbs
from mombroker.core.errors import MomError
from mombroker.core.requests import Reply, changes, reads


class SubscriptionVerbs(DestinationVerbs):
    @reads
    def subscriptions(self, after: str = "", limit: int = MAX_PAGE, brief: bool = False, match: str = "") -> Reply:
        """The durable and shared subscriptions of the server with what waits for them, those behind `after`, with
        `match` in their names. `brief`: only what queues have, too, which takes no look at the disk."""
        found, after = self.page("sub", "share", after=after, limit=limit, match=match)
        rows = [each.describe() if brief else described(each) for each in found if isinstance(each, Subscription)]
        return {"subscriptions": rows, "after": after}

    @changes
    def create_subscription(
        self,
        ticket: int,
        name: str,
        topics: list[str],
        client_id: str | None = None,
        selector: str | None = None,
        shared: bool = False,
    ) -> None:
        """Create a durable subscription on this server."""
        client_id, named = client_id or "", [f"topic:{topic}" for topic in topics]
        if not topics:
            raise MomError("a subscription needs a topic: name one or several")
        for topic in topics:
            destinations.check_words(topic)
        if not shared and not client_id:
            raise MomError("a durable subscription needs the client id of its consumer, or has to be shared")
        selectors.compile(selector or "")
        if max(len(client_id), len(name)) > MAX_NAME:
            raise MomError(f"the name of a client or subscription has at most {MAX_NAME} characters")
        state = Subscription.new(Spec(named, selector or "", "", shared))
        self.names.create(ticket, subscription_name(client_id, name), Subscription.path, state, self.tx.name)


def described(each: Subscription) -> Reply:
    spec, kind, ahead = each.spec, each.name.partition(":"), each.natives.clock.ahead
    client, _, name = kind[2].partition(":")
    return {
        **each.describe(), "name": unquote(name), "client_id": unquote(client), "topics": spec.topics,
        "selector": spec.selector, "shared": spec.shared, "durable": spec.durable, "oldest": _oldest(each),
        "last_seen": (each.seen or each.tx.now) - ahead,
    }  # fmt: skip


def _oldest(queue: Queue) -> int:
    """When the message was sent that waits for longest, in ns; 0 if none waits."""
    firsts = [item for lane in queue.messages.lanes.values() for item in lane.after(queue.messages.purged, 1)]
    return queue.messages.loaded(min(firsts, key=lambda item: item.id)).timestamp if firsts else 0
