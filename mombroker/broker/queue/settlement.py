"""Settlement: a consumer settles a delivered message, returns it, or is lost while it has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mombroker.broker.native import Native
from mombroker.broker.protocol import Settle
from mombroker.broker.queue.consumer import Key
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dead_letter import EXPIRED, DeadLetters
from mombroker.broker.queue.dispatch import RETURNING, Dispatcher
from mombroker.broker.queue.item import QueuedMessage, readable
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.settings import Settings
from mombroker.broker.queue.work import MOVE, Work
from mombroker.core.batch import HeldRow
from mombroker.core.words import many

SETTLED = 8  # messages that cost as much as looking at one
NONE: Mapping[str, int] = MappingProxyType({})  # an idle queue is small


class Settlement:
    """1. While something of `returning` sessions is not back at its place, nothing is given.

    returning   sessions that have gone, and some of what they had is still unacked
    first       of a session, the first consumer whose settlements count: all that those before it had was taken back
    """

    __slots__ = (
        "queue",
        "settings",
        "messages",
        "consumers",
        "dead_letters",
        "dispatcher",
        "work",
        "returning",
        "first",
    )

    def __init__(
        self, queue: Native, settings: Settings, messages: QueueMessages, consumers: Consumers,
        dead_letters: DeadLetters, dispatcher: Dispatcher, work: Work,
    ):  # fmt: skip
        self.queue, self.settings, self.messages, self.consumers = queue, settings, messages, consumers
        self.dead_letters, self.dispatcher, self.work = dead_letters, dispatcher, work
        self.returning: dict[str, None] = {}
        self.first: Mapping[str, int] = NONE

    # -- outcomes ------------------------------------------------------------------------------------------------

    def settle(self, note: Settle, session: str) -> None:
        if note.consumer < self.first.get(session, 0):
            return
        messages = self.messages
        held, freed = messages.unacked.get(session, {}), 0
        if note.undeliverable_here:
            freed += self._shun(note, held, (session, note.consumer))
        if note.accepted:
            items = [item for id in note.accepted if (item := held.pop(id, None)) is not None]
            freed += messages.end_all(items)
        if len(note.accepted) > SETTLED:
            self.work.spend(len(note.accepted) // SETTLED, 0)
        for id in note.released:
            if item := held.pop(id, None):
                freed += item.size
                self._release(item)
        for id in note.modified:
            if item := held.pop(id, None):
                freed += item.size
                self._fail(item, self.settings.policy.on_nack == "dead-letter")
        for id in note.requeued:
            if item := held.pop(id, None):
                freed += item.size
                self._fail(item, False)
        for id in note.rejected:
            if item := held.pop(id, None):
                freed += item.size
                self._reject(item)
        messages.unacked_bytes -= freed
        key = (session, note.consumer)
        if consumer := self.consumers.consumers.get(key):
            consumer.settled(note, freed, held)
            if messages.ready or self.consumers.draining:  # else there is nothing to give for the credit
                self.queue.touch()
            if consumer.remote:
                self.queue.change()
        elif browser := self.dispatcher.browsers.get(key):
            browser.settled(note)
            self.queue.touch()

    def accept(self, number: int, accepted: list[int], credit: int, session: str) -> None:
        """As `settle` of a note that tells of nothing else, and of few messages."""
        if number < self.first.get(session, 0):
            return
        messages = self.messages
        held = messages.unacked.get(session, {})
        freed = messages.end_all([item for id in accepted if (item := held.pop(id, None)) is not None])
        messages.unacked_bytes -= freed
        if consumer := self.consumers.consumers.get((session, number)):
            consumer.accepted(accepted, freed, credit)
            if messages.ready or self.consumers.draining:  # else there is nothing to give for the credit
                self.queue.touch()
            if consumer.remote:
                self.queue.change()
        elif browser := self.dispatcher.browsers.get((session, number)):
            browser.settled(Settle(number, accepted, credit=credit))
            self.queue.touch()

    def _shun(self, note: Settle, held: dict[int, QueuedMessage], key: Key) -> int:
        """Not for this consumer again; to the dead letters what is too much to be remembered. Returns their bytes."""
        freed, consumer = 0, self.consumers.consumers.get(key)
        if consumer is None:
            return 0
        self.consumers.selective = True
        for id in note.undeliverable_here:
            if id in held and not consumer.shun(held[id].message_id):
                item = held.pop(id)
                freed += item.size
                self._reject(item)
        return freed

    def _release(self, item: QueuedMessage) -> None:
        """Its client never saw it: as if it had not been given."""
        item.count -= 1
        self.work.spend(MOVE, item.size)
        self._return(item)

    def _fail(self, item: QueuedMessage, at_once: bool, lost: bool = False) -> None:
        """Its consumer gave it back, or was lost with it: then it is offered again at once."""
        self.work.spend(MOVE, item.size)
        if not self.messages.whole(item, True):
            return
        policy, dead = self.settings.policy, "dead-letter-reason" in self.messages.loaded(item).annotations
        item.failures += 1
        if not dead and (at_once or item.failures > policy.max_redeliveries):
            last = ", at last by the loss of its consumer's connection" if lost else ""
            self.dead_letters.take(item, f"given back {many(item.failures, 'time')}{last}", True)
        else:
            self._return(item, 0 if lost else self.queue.tx.now + policy.backoff_ns(item.failures))

    def _reject(self, item: QueuedMessage) -> None:
        self.work.spend(MOVE, item.size)
        self.dead_letters.take(item, "refused by its consumer", True)

    def _return(self, item: QueuedMessage, due: int = 0) -> None:
        """Back to its place, at once or after a while."""
        messages = self.messages
        if not messages.whole(item, True):
            return
        message, now = messages.loaded(item), self.queue.tx.now
        item.holder, item.due = "", due
        if item.group:
            self.consumers.returned(item)
            self.queue.touch()
        if item.id <= messages.purged:
            messages.add_stale(1, item)
            messages.end(item)
        elif message.expires and message.expires <= max(now, due):
            self.dead_letters.take(item, EXPIRED)
        elif due > now:
            messages.back_off(item, due)
        else:
            messages.ready_again(item)

    # -- consumers that leave ------------------------------------------------------------------------------------

    def begin(self, key: Key) -> None:
        """A consumer joins. If its session has nothing, what it still settles for former consumers is of no effect: it
        may have the same messages again."""
        session, number = key
        if all(each != session for each, _ in [*self.consumers.consumers, *self.dispatcher.browsers]):
            if session in self.returning or not self.messages.unacked.get(session):
                self.first = {**self.first, session: number}

    def leave(self, key: Key) -> None:
        """A consumer wants no more. What it was sent stays with it until that is settled, or its session has gone."""
        self.dispatcher.browsers.pop(key, None)
        consumer = self.consumers.remove(key)
        if consumer:
            held = self.messages.unacked
            for item in consumer.pending:
                del held[key[0]][item.id]
                self.messages.unacked_bytes -= item.size
                item.count -= 1
                self._return(item)
            self.queue.change()
            self.queue.touch()

    def lost(self, session: str, failed: list[int]) -> None:
        """A session has gone, and `failed` were in its client's hands."""
        held = self.messages.unacked.get(session, {})
        for id in failed:
            if item := held.pop(id, None):
                self.messages.unacked_bytes -= item.size
                self._fail(item, False, lost=True)
        self.release(lambda each: each == session)

    def release(self, whose: Callable[[str], bool]) -> int:
        """Take back what these sessions hold, and let their consumers go. Returns how many messages that were."""
        for key in [key for key in [*self.consumers.consumers, *self.dispatcher.browsers] if whose(key[0])]:
            self.leave(key)
        if self.first:
            self.first = {session: number for session, number in self.first.items() if not whose(session)}
        gone = [session for session in self.messages.unacked if whose(session)]
        count = sum(len(self.messages.unacked[session]) for session in gone)
        self.returning.update(dict.fromkeys(gone))
        self.work.begin()
        self.take_back()
        return count

    def take_back(self) -> None:
        """What lost sessions had returns to its place, some of it at a time."""
        messages, work = self.messages, self.work
        for session in list(self.returning):
            held = messages.unacked.get(session, {})
            while held:
                if work.enough() or work.spent():
                    self.pause()
                    self.queue.change()
                    return
                item = held.pop(next(iter(held)))
                work.spend(MOVE, item.size)
                messages.unacked_bytes -= item.size
                self._return(item)
                work.moved += item.size
            messages.unacked.pop(session, None)
            del self.returning[session]
        self.dispatcher.resume(RETURNING)
        self.queue.change()

    def pause(self) -> None:
        """Nothing is given while something is still to be taken back to its place, which is before what is there."""
        self.dispatcher.pause(RETURNING, expected=lambda: bool(self.returning))

    # -- after a restart -----------------------------------------------------------------------------------------

    def regain(self, row: HeldRow, counted: bool) -> None:
        """Somebody had this one, or it was backing off, when the server stopped. `counted`: its bytes are."""
        messages = self.messages
        found = readable(self.queue.tx.reader, [row])
        if not found:
            return
        item = found[0]
        messages.count += 1
        messages.bytes += 0 if counted else item.size
        messages.held += item.size
        if item.holder:
            messages.unacked.setdefault(item.holder, {})[item.id] = item
            messages.unacked_bytes += item.size
            if item.group:
                owner = next((each for each in self.consumers if each.key[0] == item.holder), None)
                self.consumers.given(item, messages.loaded(item), owner)
            item.message = None
        else:
            self._return(item, item.due)
