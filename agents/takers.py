"""Who takes a queue's messages: consumers by priority and turn, exclusive ones, groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from mombroker.agents.lane import Item
from mombroker.agents.traffic import Consume, Put, Settle
from mombroker.agents.wanted import Wants

MAX_AGAIN = 1_000  # messages that a consumer is to look at again, one by one
MAX_GROUPS = 10_000  # that are remembered though nothing of them is with their consumer
PREFETCH_BYTES = 4 << 20  # of unsettled messages: who has so many gets no more; a larger one comes alone

Key = tuple[str, int]  # a consumer: its proxy, and the proxy's number for it


class Consumer:
    """credit   how many more messages it takes, while `room`, what is left of PREFETCH_BYTES, is above 0
    lent     sizes, by id, of what it has without that taking room; see Settle
    seen     up to which id, per lane, nothing waits for it, as things stand,
    again    but for these: they have come back, in a heap per lane
    """

    __slots__ = ("key", "note", "credit", "room", "lent", "wants", "pending", "seen", "again")

    def __init__(self, proxy: str, note: Consume, wants: Wants | None):
        self.key = (proxy, note.consumer)
        self.note, self.wants, self.credit, self.room = note, wants, note.credit, PREFETCH_BYTES
        self.lent: dict[int, int] = {}
        self.pending: list[Item] = []  # given, to be dispatched in one message
        self.seen: dict[int, int] = {}
        self.again: dict[int, list[int]] = {}

    @property
    def hungry(self) -> bool:
        return self.credit > 0 and self.room > 0

    def came_back(self, lane: int, id: int) -> None:
        if id > self.seen.get(lane, 0):
            return
        heap = self.again.setdefault(lane, [])
        heappush(heap, id)
        if len(heap) > MAX_AGAIN:
            self.look_again(heap[0])

    def look_again(self, id: int) -> None:
        """What waits from `id` on may be for it now."""
        for lane, upto in self.seen.items():
            if upto >= id:
                self.seen[lane] = id - 1
                self.again[lane] = [each for each in self.again.get(lane, ()) if each < id]

    def settled(self, note: Settle, freed: int, held: dict[int, Item]) -> None:
        """It has settled so many bytes, and still has what is `held`."""
        if self.lent:
            for ids in (note.taken, note.back, note.failed, note.again, note.refused):
                freed -= sum(self.lent.pop(id, 0) for id in ids)
        for id in note.lent:
            if id in held and id not in self.lent:
                self.lent[id] = held[id].size
                freed += held[id].size
        self.credit += note.credit
        self.room = min(self.room + freed, PREFETCH_BYTES)  # of what it had at a restart, room knows nothing


class Group:
    """The messages of one JMSXGroupID: `out` are with `owner`, `late` wait to be given again, in the order of `heap`,
    which may still have some that do not.

    passed   the lowest id that consumers had to pass over as things stand with the group, 0 = none,
    kept     and the lowest that they had to leave to its owner
    """

    __slots__ = ("owner", "out", "late", "heap", "passed", "kept")

    def __init__(self) -> None:
        self.owner: Consumer | None = None
        self.out = 0
        self.late: set[int] = set()
        self.heap: list[int] = []
        self.passed = self.kept = 0

    def returned(self, id: int) -> None:
        self.out = max(0, self.out - 1)
        if id not in self.late:
            self.late.add(id)
            heappush(self.heap, id)

    def on_time(self, id: int) -> None:
        """It waits no more to be given again."""
        self.late.discard(id)
        if not self.late:
            self.heap.clear()

    def waits(self, id: int) -> bool:
        """Does an earlier one wait to be given again?"""
        heap, late = self.heap, self.late
        while heap and heap[0] not in late:
            heappop(heap)
        return bool(heap) and heap[0] < id


class Takers:
    """1. Of one group only one consumer has messages, until a message closes the group.
    2. Nothing of a group is given while an earlier message of it waits to be given again.

    changed     somebody is to look again at what it has seen
    selective   somebody does not want everything
    """

    __slots__ = ("consumers", "turns", "groups", "changed", "selective")

    def __init__(self) -> None:
        self.consumers: dict[Key, Consumer] = {}
        self.turns: list[deque[Consumer]] = []  # those that may get messages, by falling priority
        self.groups: dict[str, Group] = {}
        self.changed = self.selective = False

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self.consumers.values())

    def add(self, consumer: Consumer) -> None:
        self.consumers[consumer.key] = consumer
        self._line_up()

    def remove(self, key: Key) -> Consumer | None:
        consumer = self.consumers.pop(key, None)
        if consumer:
            self._line_up()
            for group in self.groups.values():
                if group.owner is consumer:
                    group.owner = None
                    self._released(group)
        return consumer

    def _line_up(self) -> None:
        consumers = sorted(self, key=lambda c: -c.note.priority)  # stable: the first to come is the first of its kind
        exclusive = next((c for c in consumers if c.note.exclusive), None)
        self.selective = any(c.wants is not None for c in consumers)
        self.turns = []
        for consumer in [exclusive] if exclusive else consumers:
            if not self.turns or self.turns[-1][0].note.priority != consumer.note.priority:
                self.turns.append(deque())
            self.turns[-1].append(consumer)

    def hungry(self) -> bool:
        return any(consumer.credit > 0 and consumer.room > 0 for turn in self.turns for consumer in turn)

    def waiting(self, first: int = 0) -> list[Consumer]:
        """Those that would take another message, by falling priority; `first` turns those of the same one round."""
        found: list[Consumer] = []
        for turn in self.turns:
            hungry = [each for each in turn if each.hungry]
            at = first % len(hungry) if hungry else 0
            found += hungry[at:] + hungry[:at]
        return found

    def choose(self, item: Item, put: Put) -> Consumer | None:
        """Whose turn it is to take this message; nobody's, if None."""
        if item.group:
            owner = self._owner(item, put)
            if owner is not None:
                return owner if owner.credit > 0 and owner.room > 0 and self.may(owner, item, put) else None
        for turn in self.turns:
            for _ in range(len(turn)):
                consumer = turn[0]
                turn.rotate(-1)
                if consumer.credit <= 0 or consumer.room <= 0:
                    continue
                if consumer.wants is None or consumer.wants(put, item.message, item.count + 1):
                    return consumer if not item.group or self.may(consumer, item, put) else None
        return None

    def _owner(self, item: Item, put: Put) -> Consumer | None:
        group = self.groups.get(item.group)
        if group is None or group.owner is None:
            return None
        wants = group.owner.wants
        if not group.out and wants is not None and not wants(put, item.message, item.count + 1):
            return None  # somebody else's from now on
        return group.owner

    def may(self, consumer: Consumer, item: Item, put: Put) -> bool:
        """May it have this one? Its group remembers if it is the group that forbids it."""
        if consumer.wants is not None and not consumer.wants(put, item.message, item.count + 1):
            return False
        if item.group and (group := self.groups.get(item.group)) is not None:
            if group.late and group.waits(item.id):
                group.passed = _lower(group.passed, item.id)
                return False
            owner = group.owner
            if owner is not None and owner is not consumer and self._owner(item, put) is not None:
                if owner.wants is None or owner.wants(put, item.message, item.count + 1):
                    group.kept = _lower(group.kept, item.id)
                else:
                    group.passed = _lower(group.passed, item.id)
                return False
        return True

    def could(self, item: Item, put: Put) -> Consumer | None:
        """One that waits and might have this one; for a look from outside, that changes nothing."""
        group = self.groups.get(item.group) if item.group else None
        remembered = (group.passed, group.kept) if group else (0, 0)
        try:
            return next((each for each in self.waiting() if self.may(each, item, put)), None)
        finally:
            if group:
                group.passed, group.kept = remembered

    # -- groups ----------------------------------------------------------------------------------------------------

    def given(self, item: Item, put: Put, consumer: Consumer | None) -> None:
        """A message of a group was given."""
        group = self.groups.get(item.group)
        if group is None:
            group = self.groups[item.group] = Group()
            if len(self.groups) > MAX_GROUPS:
                self._forget_idle()
        owner = None if put.group_seq < 0 else consumer
        group.out += 1
        if item.id in group.late:
            group.on_time(item.id)
            self._moved_on(group)
        if group.owner is not owner:
            group.owner = owner
            self._released(group)

    def returned(self, item: Item) -> None:
        group = self.groups.get(item.group)
        if group is None:
            group = self.groups[item.group] = Group()
        group.returned(item.id)
        if not group.out:
            self._moved_on(group)

    def ended(self, item: Item, was_out: bool) -> None:
        """It is not in the queue any more, or waits like one that was never given."""
        group = self.groups.get(item.group)
        if group is not None:
            if was_out:
                group.out = max(0, group.out - 1)
                if not group.out and group.owner is not None and group.owner.wants is not None:
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

    def _moved_on(self, group: Group) -> None:
        """What consumers had to pass over of a group may be for them now."""
        if group.passed:
            self._look_again(group.passed)
            group.passed = 0

    def _released(self, group: Group) -> None:
        """It has another owner, or none: the same for what they had to leave to the former one."""
        group.passed, group.kept = _lower(group.passed, group.kept), 0
        self._moved_on(group)

    def _look_again(self, id: int) -> None:
        self.changed = True
        for consumer in self:
            consumer.look_again(id)

    def came_back(self, lane: int, id: int) -> None:
        """A message waits again at a place that some have seen already."""
        for consumer in self:
            consumer.came_back(lane, id)


def _lower(one: int, other: int) -> int:
    """The lower id; 0 is none."""
    return min(one, other) if one and other else one or other
