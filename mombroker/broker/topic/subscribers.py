"""The subscribers of one entry of the table, and which of them a message may be for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.selectors import NUMBERS, Lookup, Required, Value

Epoch = int
Key = tuple[bool, Value]  # a value, and whether it is a number: True equals 1 for Python alone


class Subscriber(Protocol):
    """A plain subscription of a connection, or a durable or shared one.

    epochs     of the entries that it holds
    requires   see selectors.required
    feed       hands out what it takes, if it takes whatever comes: a run in one piece, in one order with what others of
               that feed take
    """

    @property
    def epochs(self) -> Sequence[Epoch]: ...
    @property
    def dropped(self) -> int: ...
    @property
    def requires(self) -> Required: ...
    @property
    def feed(self) -> object | None: ...
    def copy(self, message: ClientMessage, id: str, /) -> None: ...
    def copy_run(self, run: MessageRun, /) -> None: ...  # if it has a feed


class Subscribers:
    """Subscribers in the order in which they came, each with its epoch. One whose selector requires that a property has
    a value is found by that value, so that the others cost a message nothing.

    1. Each is in exactly one place: `_any`, or under one of the values that it requires.
    """

    __slots__ = ("_since", "_any", "_by", "_at", "_last")

    def __init__(self) -> None:
        self._since: dict[Subscriber, Epoch] = {}
        self._any: dict[Subscriber, int] = {}  # who is to see all messages, each with its number in order
        self._by: dict[str, dict[Key, dict[Subscriber, int]]] = {}
        self._at: dict[Subscriber, tuple[str, Key]] = {}  # those in `_by`
        self._last = 0

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(self._since)

    def add(self, subscriber: Subscriber, since: Epoch) -> None:
        """One that is there already may require something else now."""
        if subscriber in self._since:
            self.remove(subscriber)
        self._since[subscriber] = since
        self._last += 1
        at = min(((name, _key(value)) for name, value in subscriber.requires), key=self._crowd, default=None)
        if at is None:
            self._any[subscriber] = self._last
        else:
            name, key = self._at[subscriber] = at
            self._by.setdefault(name, {}).setdefault(key, {})[subscriber] = self._last

    def _crowd(self, at: tuple[str, Key]) -> int:
        name, key = at
        return len(self._by.get(name, {}).get(key, ()))

    def remove(self, subscriber: Subscriber) -> None:
        del self._since[subscriber]
        if subscriber in self._any:
            del self._any[subscriber]
            return
        name, key = self._at.pop(subscriber)
        values = self._by[name]
        del values[key][subscriber]
        if not values[key]:
            del values[key]
            if not values:
                del self._by[name]

    def all(self) -> Iterable[tuple[Subscriber, Epoch]]:
        return self._since.items()

    def fit(self, get: Lookup) -> Iterable[tuple[Subscriber, Epoch]]:
        """Those that a message with these values may be for, in order. Their selectors are still to be asked."""
        if not self._by:
            return self._since.items()
        found = list(self._any.items())
        for name, values in self._by.items():
            found += values.get(_key(get(name)), {}).items()
        found.sort(key=_number)
        return [(subscriber, self._since[subscriber]) for subscriber, _ in found]

    def check(self) -> None:
        places = [{*self._any}, *({*those} for values in self._by.values() for those in values.values())]
        assert sum(map(len, places)) == len(self._since) and set().union(*places) == {*self._since}, "not in one place"
        assert all(places[1:]), "an empty place is kept"


def _key(value: Value) -> Key:
    return type(value) in NUMBERS, value


def _number(found: tuple[Subscriber, int]) -> int:
    return found[1]
