"""Deliveries of a session that its client has not settled, and their outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mombroker.broker.commands import ACCEPTED, MODIFIED, RELEASED, REQUEUED, Disposition
from mombroker.broker.message import MessageRun
from mombroker.broker.protocol import Flow, Settle
from mombroker.broker.queue.rounds import FEW, Settled
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.topic_feed import TopicFeed
from mombroker.core.errors import MomError

# Deliveries that open transactions settle; bytes of bodies of those that only we keep.
MAX_UNCOMMITTED, MAX_UNCOMMITTED_BYTES = 10_000, 32 << 20
UNCOMMITTED, UNDELIVERABLE_HERE = "uncommitted", "undeliverable_here"  # beside outcomes, as in Settle
NONE: list[int] = []  # that nobody changes
TOLD = 100  # messages of one outcome that are settled by one reaction of their queue


class Deliveries:
    """1. A tag is in `tags` as long as its delivery is not settled.

    consumers  of the session, by number; those that have left end with their last delivery
    autos      tags that are settled by being written
    settling   consumers with outcomes that their home has not heard of
    uncommitted   deliveries that open transactions settle; `uncommitted_bytes` are those of plain topics
    """

    __slots__ = (
        "consumers", "feed", "tag", "tags", "autos", "settling", "uncommitted", "uncommitted_bytes", "_post", "_touch",
        "_post_round",
    )  # fmt: skip

    def __init__(
        self,
        consumers: dict[int, SessionConsumer],
        feed: TopicFeed,
        post: Callable[[str, Settle | Flow], None],
        touch: Callable[[], None],
        post_round: Callable[[list[Settled]], bool],
    ):
        self.consumers, self.feed = consumers, feed
        self.tag = 0  # of the last delivery
        self.tags: dict[int, SessionConsumer] = {}
        self.autos: deque[int] = deque()
        self.settling: list[SessionConsumer] = []
        self.uncommitted = self.uncommitted_bytes = 0
        self._post, self._touch, self._post_round = post, touch, post_round

    def settle(self, command: Disposition) -> None:
        """Raises MomError for a delivery that is not there to be settled."""
        tag, outcome, here = command.tag, command.outcome, not command.undeliverable_here
        if outcome == MODIFIED and not command.failed:
            outcome = RELEASED
        consumer = self.tags.get(tag)
        if consumer is None:
            raise MomError("what was acknowledged is settled already, or was never delivered here")
        if consumer.ack == "client":
            self._settle_upto(consumer, tag, outcome, here)
        else:
            self._settle(consumer, tag, outcome, here)

    def accept(self, tags: list[int]) -> bool:
        """Accept all of these, each by itself. False: some are not there to be settled so, and nothing was done."""
        known, last = self.tags, None
        for tag in tags:
            consumer = known.get(tag)
            if consumer is None:
                return False
            if consumer is not last and (consumer.ack == "client" or not consumer.home or consumer.uncommitted):
                return False
            last = consumer
        last, rows = None, NONE
        for tag in tags:
            consumer = known.pop(tag)
            if consumer is not last:
                last, rows = consumer, self._settled(consumer, ACCEPTED)
            rows.append(consumer.unsettled.pop(tag))
            if not consumer.open and not consumer.unsettled:
                del self.consumers[consumer.number]
        return True

    def _settled(self, consumer: SessionConsumer, outcome: str) -> list[Any]:
        """The rows of this outcome of which the consumer's home is to hear."""
        outcomes = consumer.outcomes
        if outcome not in outcomes:
            if not outcomes:
                self.settling.append(consumer)
                self._touch()
            outcomes[outcome] = []
        return outcomes[outcome]

    def _settle_upto(self, consumer: SessionConsumer, tag: int, outcome: str, here: bool) -> None:
        if consumer.former is not None:
            self._settle_upto(consumer.former, tag, outcome, here)
        for each in list(consumer.unsettled):
            if each > tag:
                break
            self._settle(consumer, each, outcome, here)

    def wrote(self, upto: int) -> None:
        """Deliveries up to this tag were handed to a live socket."""
        autos = self.autos
        while autos and autos[0] <= upto:
            tag = autos.popleft()
            consumer = self.tags.get(tag)
            if consumer is not None:
                self._settle(consumer, tag, ACCEPTED)

    def _settle(self, consumer: SessionConsumer, tag: int, outcome: str, here: bool = True) -> None:
        del self.tags[tag]
        row = consumer.unsettled.pop(tag)
        if not consumer.open and not consumer.unsettled:
            del self.consumers[consumer.number]
        if consumer.uncommitted:
            self._recount(consumer, tag, row)
        if consumer.home:
            self._settled(consumer, outcome).append(row)
            if not here:
                self._settled(consumer, UNDELIVERABLE_HERE).append(row)
        elif type(row) is MessageRun:
            consumer.credit += len(row.ids)
            consumer.room += row.size
            self.feed.hand_out()
        else:
            if not consumer.explicit:
                consumer.credit += 1
            consumer.room += len(row[0].body)
            if outcome in (MODIFIED, REQUEUED) and here:
                self.feed.again(consumer, row)
            elif outcome == RELEASED and here and consumer.open:
                self.feed.wait(consumer, row, True)
            self.feed.hand_out()

    def forget(self, consumer: SessionConsumer) -> None:
        """What it has is taken from it, and nothing can be settled any more."""
        for tag, row in consumer.unsettled.items():
            self._recount(consumer, tag, row)
            del self.tags[tag]
        consumer.unsettled, consumer.outcomes = {}, {}
        consumer.recounted = 0

    # -- transactions that are open --------------------------------------------------------------------------------

    def count_uncommitted(self, tag: int) -> None:
        """An open transaction is to settle it. Raises MomError when that is too much."""
        consumer = self.tags.get(tag)
        if consumer is None or not consumer.open:
            return
        tags = range(consumer.uncommitted_to + 1, tag + 1) if consumer.ack == "client" else (tag,)
        new = [each for each in tags if each in consumer.unsettled and each not in consumer.uncommitted]
        size = 0 if consumer.home else sum(len(consumer.unsettled[each][0].body) for each in new)
        if self.uncommitted + len(new) > MAX_UNCOMMITTED or self.uncommitted_bytes + size > MAX_UNCOMMITTED_BYTES:
            raise MomError(
                f"transactions that are open, or were aborted, settle over {MAX_UNCOMMITTED} deliveries or "
                f"{MAX_UNCOMMITTED_BYTES} bytes of topics: COMMIT sooner, or settle what was aborted"
            )
        consumer.uncommitted_to = max(consumer.uncommitted_to, tag)
        for each in new:
            self._count_uncommitted(consumer, each)

    def _count_uncommitted(self, consumer: SessionConsumer, tag: int) -> None:
        consumer.uncommitted.add(tag)
        self.uncommitted += 1
        row = consumer.unsettled[tag]
        if consumer.home:
            self._settled(consumer, UNCOMMITTED).append(row)
        else:
            if not consumer.explicit:
                consumer.credit += 1
            consumer.room += len(row[0].body)
            self.uncommitted_bytes += len(row[0].body)
            self.feed.hand_out()

    def _recount(self, consumer: SessionConsumer, tag: int, row: Any) -> None:
        """If its credit was given back, settling it does not do so again."""
        if tag not in consumer.uncommitted:
            return
        consumer.uncommitted.remove(tag)
        self.uncommitted -= 1
        if consumer.home:
            consumer.recounted += 1
        else:
            if not consumer.explicit:
                consumer.credit -= 1
            consumer.room -= len(row[0].body)
            self.uncommitted_bytes -= len(row[0].body)

    # -- to the queues ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        settling, self.settling = self.settling, []
        if len(settling) > 1 and self._tell_all(settling):
            return
        for consumer in settling:
            self.tell(consumer)

    def _tell_all(self, settling: list[SessionConsumer]) -> bool:
        """In one piece, if all have accepted a few messages, and that is all. False: nothing was done."""
        round = list[Settled]()
        for consumer in settling:
            accepted = consumer.outcomes.get(ACCEPTED, NONE)
            if len(consumer.outcomes) != 1 or not 0 < len(accepted) <= FEW or not consumer.open or consumer.recounted:
                return False
            round.append((consumer.home, consumer.number, accepted, 0 if consumer.explicit else len(accepted)))
        if not self._post_round(round):
            return False
        for consumer in settling:
            consumer.outcomes = {}
        return True

    def tell(self, consumer: SessionConsumer) -> None:
        """Let its home know what was settled."""
        outcomes: dict[str, Any] = consumer.outcomes
        consumer.outcomes = {}
        accepted = outcomes.get(ACCEPTED, NONE) if len(outcomes) == 1 else NONE
        if 0 < len(accepted) <= TOLD and consumer.open and not consumer.recounted:  # as mostly
            credit = 0 if consumer.explicit else len(accepted)
            settled = Settle(consumer.number, accepted, NONE, NONE, NONE, NONE, credit, False, NONE, NONE)
            self._post(consumer.home, settled)
            return
        credit = 0
        if not consumer.explicit and (consumer.open or consumer.heir is not None):
            credit = sum(map(len, outcomes.values())) - len(outcomes.get(UNDELIVERABLE_HERE, ())) - consumer.recounted
        consumer.recounted = 0
        if not consumer.open:
            if credit and (heir := consumer.last_heir()):
                self._post(heir.home, Flow(heir.number, credit))
            credit = 0
        while max(map(len, outcomes.values()), default=0) > TOLD:  # not all of it in one reaction
            part = {name: ids[:TOLD] for name, ids in outcomes.items()}
            outcomes = {name: ids[TOLD:] for name, ids in outcomes.items()}
            self._post(consumer.home, Settle(consumer.number, **part))
        if outcomes:
            self._post(consumer.home, Settle(consumer.number, **outcomes, credit=credit))

    def frees(self, tag: int, queue: str) -> bool:
        """Does settling this make room in a queue?"""
        consumer = self.tags.get(tag)
        return consumer is not None and consumer.home == queue

    def in_hand(self) -> dict[str, list[int]]:
        """By home: of each consumer the message that it most likely was at work on. One that takes the client down with
        it must not be delivered for ever, and what was only waiting behind it has done nothing.

        It is the oldest that the client has not settled, not even in a transaction that was open.
        """
        found: dict[str, list[int]] = {}
        for each in self.consumers.values():
            if each.home and each.ack != "auto" and each.unsettled:
                tag = next((tag for tag in each.unsettled if tag not in each.uncommitted), min(each.unsettled))
                found.setdefault(each.home, []).append(each.unsettled[tag])
        return found

    def check(self) -> None:
        consumers = self.consumers.values()
        assert self.uncommitted == sum(len(each.uncommitted) for each in consumers), "uncommitted ones miscounted"
        assert set(self.tags) == {tag for each in consumers for tag in each.unsettled}, "tags"
