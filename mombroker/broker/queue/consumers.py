"""The consumers of a queue: by priority and turn, exclusive ones, message groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.consumer import Consumer, Key
from mombroker.broker.queue.groups import MAX_GROUPS, MessageGroup
from mombroker.broker.queue.item import QueuedMessage


class Consumers:
    """1. Of one group only one consumer has messages, until a message closes the group.
    2. Nothing of a group is given while an earlier message of it waits to be given again.

    changed     somebody is to search again what it has searched
    sole        the only one that may get messages
    selective   some consumer has a filter
    draining    consumers and browsers that get what is ready and then lose their credit
    """

    __slots__ = ("consumers", "turns", "sole", "groups", "changed", "selective", "draining")

    def __init__(self) -> None:
        self.consumers: dict[Key, Consumer] = {}
        self.turns: tuple[deque[Consumer], ...] = ()  # those that may get messages, by falling priority
        self.sole: Consumer | None = None
        self.groups: dict[str, MessageGroup] = {}
        self.changed = self.selective = False
        self.draining: tuple[Key, ...] = ()

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self.consumers.values())

    def add(self, consumer: Consumer) -> None:
        self.consumers[consumer.key] = consumer
        self._line_up()

    def remove(self, key: Key) -> Consumer | None:
        consumer = self.consumers.pop(key, None)
        self.drained(key)
        if consumer:
            self._line_up()
            for group in self.groups.values():
                if group.owner is consumer:
                    group.owner = None
                    self._released(group)
        return consumer

    def drained(self, key: Key) -> None:
        self.draining = tuple(each for each in self.draining if each != key)

    def _line_up(self) -> None:
        consumers = sorted(self, key=lambda c: -c.note.priority)  # stable: the first to come is the first of its kind
        exclusive = next((c for c in consumers if c.note.exclusive), None)
        self.selective = any(c.matches is not None for c in consumers)
        turns: list[deque[Consumer]] = []
        for consumer in [exclusive] if exclusive else consumers:
            if not turns or turns[-1][0].note.priority != consumer.note.priority:
                turns.append(deque())
            turns[-1].append(consumer)
        self.turns = tuple(turns)
        self.sole = turns[0][0] if len(turns) == 1 and len(turns[0]) == 1 else None

    def hungry(self) -> bool:
        for turn in self.turns:
            for consumer in turn:
                if consumer.credit > 0 and consumer.room > 0:
                    return True
        return False

    def waiting(self, first: int = 0) -> list[Consumer]:
        """Those that would take another message, by falling priority; `first` turns those of the same one round."""
        found: list[Consumer] = []
        for turn in self.turns:
            hungry = [each for each in turn if each.hungry]
            at = first % len(hungry) if hungry else 0
            found += hungry[at:] + hungry[:at]
        return found

    def choose(self, item: QueuedMessage, message: ClientMessage) -> Consumer | None:
        """Whose turn it is to take this message; nobody's, if None."""
        sole = self.sole
        if sole is not None and sole.matches is None and not item.group:
            return sole if sole.credit > 0 and sole.room > 0 else None
        if item.group:
            owner = self._owner(item, message)
            if owner is not None:
                return owner if owner.credit > 0 and owner.room > 0 and self.may(owner, item, message) else None
        for turn in self.turns:
            several = len(turn)
            for _ in range(several):
                consumer = turn[0]
                if several > 1:
                    turn.rotate(-1)
                if consumer.credit <= 0 or consumer.room <= 0:
                    continue
                if consumer.matches is None or consumer.matches(message, item.message_id, item.count + 1):
                    return consumer if not item.group or self.may(consumer, item, message) else None
        return None

    def taker(self, count: int, size: int) -> Consumer | None:
        """Who takes so many messages at once, of so many bytes together, because there is nobody else, and it takes
        whatever comes."""
        consumer = self.sole
        if consumer is None:
            return None
        takes = consumer.matches is None and not consumer.single and consumer.credit >= count and consumer.room >= size
        return consumer if takes else None

    def _owner(self, item: QueuedMessage, message: ClientMessage) -> Consumer | None:
        group = self.groups.get(item.group)
        if group is None or group.owner is None:
            return None
        matches = group.owner.matches
        if not group.out and matches is not None and not matches(message, item.message_id, item.count + 1):
            return None  # somebody else's from now on
        return group.owner

    def may(self, consumer: Consumer, item: QueuedMessage, message: ClientMessage) -> bool:
        """May it have this one? Its group remembers if it is the group that forbids it."""
        if consumer.matches is not None and not consumer.matches(message, item.message_id, item.count + 1):
            return False
        if item.group and (group := self.groups.get(item.group)) is not None:
            if group.late and group.waits(item.id):
                group.passed = _lower(group.passed, item.id)
                return False
            owner = group.owner
            if owner is not None and owner is not consumer and self._owner(item, message) is not None:
                if owner.matches is None or owner.matches(message, item.message_id, item.count + 1):
                    group.kept = _lower(group.kept, item.id)
                else:
                    group.passed = _lower(group.passed, item.id)
                return False
        return True

    def could(self, item: QueuedMessage, message: ClientMessage) -> Consumer | None:
        """One that waits and might have this one; for a look from outside, that changes nothing."""
        group = self.groups.get(item.group) if item.group else None
        remembered = (group.passed, group.kept) if group else (0, 0)
        try:
            return next((each for each in self.waiting() if self.may(each, item, message)), None)
        finally:
            if group:
                group.passed, group.kept = remembered

    # -- groups ----------------------------------------------------------------------------------------------------

    def given(self, item: QueuedMessage, message: ClientMessage, consumer: Consumer | None) -> None:
        """A message of a group was given."""
        group = self.groups.get(item.group)
        if group is None:
            group = self.groups[item.group] = MessageGroup()
            if len(self.groups) > MAX_GROUPS:
                self._forget_idle()
        owner = None if message.group_seq < 0 else consumer
        group.out += 1
        if item.id in group.late:
            group.on_time(item.id)
            self._moved_on(group)
        if group.owner is not owner:
            group.owner = owner
            self._released(group)

    def returned(self, item: QueuedMessage) -> None:
        group = self.groups.get(item.group)
        if group is None:
            group = self.groups[item.group] = MessageGroup()
        group.returned(item.id)
        if not group.out:
            self._moved_on(group)

    def ended(self, item: QueuedMessage, was_out: bool) -> None:
        """It is not in the queue any more, or waits like one that was never given."""
        group = self.groups.get(item.group)
        if group is not None:
            if was_out:
                group.out = max(0, group.out - 1)
                if not group.out and group.owner is not None and group.owner.matches is not None:
                    self._moved_on(group)
            elif item.id in group.late:
                group.on_time(item.id)
                self._moved_on(group)
            if not (group.owner or group.out or group.late):
                self._released(group)
                del self.groups[item.group]

    def _forget_idle(self) -> None:
        name = next((name for name, group in self.groups.items() if not group.out and not group.late), None)
        if name is not None:
            self._released(self.groups.pop(name))

    def _moved_on(self, group: MessageGroup) -> None:
        """What consumers had to pass over of a group may be for them now."""
        if group.passed:
            self._search_again_from(group.passed)
            group.passed = 0

    def _released(self, group: MessageGroup) -> None:
        """It has another owner, or none: the same for what they had to leave to the former one."""
        group.passed, group.kept = _lower(group.passed, group.kept), 0
        self._moved_on(group)

    def _search_again_from(self, id: int) -> None:
        self.changed = True
        for consumer in self:
            consumer.search_again_from(id)

    def came_back(self, lane: int, id: int) -> None:
        """A message waits again at a place that some have searched already."""
        for consumer in self:
            consumer.came_back(lane, id)


def _lower(one: int, other: int) -> int:
    """The lower id; 0 is none."""
    return min(one, other) if one and other else one or other
