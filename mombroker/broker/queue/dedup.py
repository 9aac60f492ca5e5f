"""Deduplication: a destination remembers which messages of which producers it has had, and drops a repeat."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgpack

from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.transaction import Transaction

MAX_PRODUCERS = 10_000  # of one destination; the one that was silent for longest is forgotten
MAX_RANGES = 64  # of counters; then the lowest is forgotten: better one message twice than one never
PRODUCERS = "u"
ROWS_ARE = {PRODUCERS: "what a producer has sent, of which a repeat is not noticed now, in the duplicate list of"}
PAGE = 100  # producers that are told to a new home in one piece


class Dedup:
    """Each producer's counters, as ranges: most often one.

    Counters rise, but they may come out of order: after a failover a producer repeats by a new server what the old one
    has already, or will bring later. A producer that counts what it sends to several destinations together leaves gaps
    in each of them, which cannot be told from what is still to come.
    """

    __slots__ = ("tx", "agent", "rows", "seen")

    def __init__(self, tx: Transaction, agent: str, rows: str = PRODUCERS):
        """`rows`: the collection of the agent that it has."""
        self.tx, self.agent, self.rows = tx, agent, rows
        self.seen: OrderedDict[str, tuple[int, list[int]]] = OrderedDict()  # -> row, [first, last, first, last, ...]
        after = None
        while page := tx.reader.items(agent, rows, after, 1_000):
            for row in page:
                self.seen[row.head.decode()] = (row.id, msgpack.unpackb(row.body))
            after = (page[-1].key, page[-1].id)

    def adopt(self, producer: str, ranges: list[int]) -> None:
        """What the destination had of a producer when it lived elsewhere."""
        row, _ = self.seen.get(producer) or (self.tx.new_id(), [])
        self.seen[producer] = (row, ranges)
        self.tx.rows.items[row] = ItemRow(row, self.agent, self.rows, 0, producer.encode(), pack(ranges))

    def merge(self, producer: str, ranges: list[int]) -> None:
        """The same, beside what it has had of it here."""
        mine = self.seen.get(producer, (0, list[int]()))[1]
        merged = list[int]()
        for first, last in sorted([*pairs(mine), *pairs(ranges)]):
            if merged and first <= merged[-1] + 1:
                merged[-1] = max(merged[-1], last)
            else:
                merged += [first, last]
        self.adopt(producer, merged[-2 * MAX_RANGES :])

    def pages(self) -> Iterator[list[tuple[str, list[int]]]]:
        """All that it has, for a new home."""
        seen = [(producer, ranges) for producer, (_, ranges) in self.seen.items()]
        for at in range(0, len(seen), PAGE):
            yield seen[at : at + PAGE]

    def fresh(self, producer: str, counter: int) -> bool:
        """False for a repeat."""
        tx = self.tx
        found = self.seen.get(producer)
        row, ranges = found if found is not None else (tx.new_id(), [])
        new = _add(ranges, counter)
        self.seen[producer] = (row, ranges)
        self.seen.move_to_end(producer)
        if new:
            tx.rows.items[row] = ItemRow(row, self.agent, self.rows, 0, producer.encode(), pack(ranges))
            if len(self.seen) > MAX_PRODUCERS:
                _, (oldest, _) = self.seen.popitem(last=False)
                tx.rows.items[oldest] = None
        return new


def pairs(ranges: list[int]) -> Iterable[tuple[int, int]]:
    """First and last of each."""
    return zip(ranges[::2], ranges[1::2], strict=True)


def _add(ranges: list[int], counter: int) -> bool:
    """Put a counter into [first, last, ...], sorted and apart; False if it is there."""
    at = bisect_right(ranges, counter)
    if at % 2 or (at and ranges[at - 1] == counter):
        return False
    before = at > 0 and ranges[at - 1] == counter - 1
    behind = at < len(ranges) and ranges[at] == counter + 1
    if before and behind:
        del ranges[at - 1 : at + 1]
    elif before:
        ranges[at - 1] = counter
    elif behind:
        ranges[at] = counter
    else:
        ranges[at:at] = [counter, counter]
        if len(ranges) > 2 * MAX_RANGES:
            del ranges[:2]
    return True
