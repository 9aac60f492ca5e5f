"""The limits of a queue: which messages it accepts, which servers it blocks when it is full, what it drops for room."""

from __future__ import annotations

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.policy import Policy
from mombroker.broker.protocol import Full
from mombroker.broker.queue.dead_letter import DeadLetters
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.settings import Settings
from mombroker.broker.queue.work import LOOK, Work
from mombroker.core import times
from mombroker.core.ids import OURS

AGAIN_NS = times.SECOND  # until a server whose messages still come is told again: it may have started anew
FREE = 0.9  # of its limit: a queue that was full takes work again below that


class QueueLimits:
    """reserved         messages that were let in and are on their way
    blocked_servers  servers that were told to block producers, in the order in which they go on
    told_at          when one of them was told so last, by this process
    """

    __slots__ = (
        "queue", "service", "settings", "messages", "dead_letters", "work", "reserved", "blocked_servers", "told_at",
    )  # fmt: skip

    def __init__(
        self, queue: Native, service: QueueService, settings: Settings, messages: QueueMessages,
        dead_letters: DeadLetters, work: Work,
    ):  # fmt: skip
        self.queue, self.service, self.settings, self.messages = queue, service, settings, messages
        self.dead_letters, self.work = dead_letters, work
        self.reserved = self.told_at = 0
        self.blocked_servers: tuple[str, ...] = ()

    def has_room(self, count: int, size: int) -> bool:
        """May so many messages, of so many bytes in all, be let in?"""
        policy = self.settings.policy
        if policy.overflow == "drop-head":  # what is there makes room for one that ever has it
            return not policy.max_bytes or size <= policy.max_bytes
        return not self.over(policy, self.reserved + count, size)

    def admit(self, message: ClientMessage) -> bool:
        """May a client's message be let in? Its room is reserved until it is here."""
        if not self.settings.limited or self.settings.policy.overflow == "drop-head":
            return True
        if not self.has_room(1, message.size):
            return False
        self.reserved += 1
        message.reserved = True
        return True

    def release_room(self, message: ClientMessage) -> None:
        """It does not come after all."""
        self.reserved -= 1
        message.reserved = False

    def over(self, policy: Policy, more: int, size: int) -> bool:
        """Would so much more be too much?"""
        messages = self.messages
        return bool(
            (policy.max_messages and messages.count + more > policy.max_messages)
            or (policy.max_bytes and messages.bytes + size > policy.max_bytes)
        )

    def overflow(self, item: QueuedMessage, source: str) -> bool:
        """A message came though the queue is full. False: it is refused."""
        policy = self.settings.policy
        if policy.overflow == "drop-head":
            if policy.max_bytes and item.size > policy.max_bytes:
                self.messages.dropped += 1
                return False
            self.work.begin()
            self._drop_head(1, item.size)
            return True
        home, _, kind = source.partition("/")
        if home == self.queue.tx.name:
            if policy.overflow == "block" or kind.startswith(("_", *OURS)):
                return True  # our clients were let in, or stopped before
            self.dead_letters.send(item, f"{self.settings.destination} is full")  # of an author's agent
            return False
        now, known = self.queue.tx.now, home in self.blocked_servers
        smaller = policy.overflow == "reject" and not self._full()  # for such there is room
        if not smaller and (
            not known or now - self.told_at >= AGAIN_NS
        ):  # let it hold back its clients; it may have forgotten
            self.told_at = now
            self.queue.post(f"{home}/_clients", Full(self.queue.id, True))
            if not known:
                self.blocked_servers += (home,)
                self.queue.change()
        if policy.overflow == "block":
            return True  # what is under way is taken
        self.dead_letters.send(item, f"{self.settings.destination} is full")
        return False

    def drop_surplus(self) -> None:
        """What consumers have does not count; has too much of it come back?"""
        messages = self.messages
        if self.settings.policy.overflow == "drop-head":
            self._drop_head(-messages.count_unacked(), -messages.unacked_bytes)

    def _drop_head(self, more: int, size: int) -> None:
        """Drop the oldest, as far as nobody has them, until so much more has room."""
        policy, work = self.settings.policy, self.work
        while self.over(policy, more, size) and not work.spent():
            work.spend(LOOK, 0)
            if not self.messages.drop_oldest():
                if self.messages.ready:  # it is not durable yet, and cannot be read
                    self.queue.turns.late[self.queue] = None
                return

    @property
    def wanted(self) -> bool:
        """Somebody waits, perhaps for room."""
        return bool(self.blocked_servers or self.service.waiting)

    def made(self) -> None:
        """A message has left, and made room."""
        if self.blocked_servers or self.service.waiting:
            self.free()

    def free(self) -> None:
        """Does a queue that was full take work again?"""
        if self._full():
            return
        if self.blocked_servers:
            self.queue.change()
        for home in self.blocked_servers:
            self.queue.post(f"{home}/_clients", Full(self.queue.id, False))
        self.blocked_servers = ()
        self.service.freed(self.queue.id)

    def _full(self) -> bool:
        policy, messages = self.settings.policy, self.messages
        return policy.overflow != "drop-head" and bool(
            (policy.max_messages and messages.count > FREE * policy.max_messages)
            or (policy.max_bytes and messages.bytes > FREE * policy.max_bytes)
        )

    def check(self) -> None:
        """Nobody waits for room that there is."""
        assert not self.blocked_servers or self._full(), "servers are blocked, and there is room"
        unlimited = not self.settings.limited or self.settings.policy.overflow == "drop-head"
        if unlimited or not self.messages.count + self.reserved:
            assert not self.service.waits_for(self.queue.id), "somebody waits for room, and there is some"
