"""Copies of what our agents have cast, until all members have it: a sender that is out of the next view gets back what
nobody else has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

import msgpack

from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.transaction import Transaction

COPIES = "copies"
SHARE = 16  # a server acknowledges casts, and the home passes that on, by so many parts of a member's window


def acks_every(tx: Transaction) -> int:
    """Casts of a group from one acknowledgement to the next: with more than its window has, a member would wait."""
    return max(1, tx.limits.cast_window // SHARE)


class Copy(NamedTuple):
    """payload   of the cast, as it was sent
    row       where it is kept
    """

    payload: bytes
    row: int


class Copies:
    """1. What is here has a row, and nothing else has one.

    of    by group and sender: its casts in the view that it is in, by their numbers
    """

    __slots__ = ("tx", "id", "of")

    def __init__(self, tx: Transaction, id: str):
        self.tx, self.id = tx, id
        self.of: dict[tuple[str, str], dict[int, Copy]] = {}

    def load(self, row: ItemRow) -> None:
        group, sender, seq = msgpack.unpackb(row.head)
        self.of.setdefault((group, sender), {})[seq] = Copy(row.body, row.id)

    def add(self, group: str, sender: str, seq: int, payload: bytes) -> None:
        id = self.tx.new_id()
        head: bytes = pack([group, sender, seq])
        self.tx.rows.items[id] = ItemRow(id, self.id, COPIES, 0, head, payload)
        self.tx.rows.bytes += len(payload)
        self.of.setdefault((group, sender), {})[seq] = Copy(payload, id)

    def count(self, group: str, sender: str) -> int:
        """How many are not stable."""
        return len(self.of.get((group, sender), ()))

    def of_group(self, group: str) -> int:
        return sum(len(those) for (of, _), those in self.of.items() if of == group)

    def behind(self, group: str, sender: str, seq: int) -> Iterator[bytes]:
        """Those behind one of them, in their order."""
        for number, copy in sorted(self.of.get((group, sender), {}).items()):
            if number > seq:
                yield copy.payload

    def stable(self, group: str, sender: str, seq: int) -> None:
        """All members have so many."""
        those = self.of.get((group, sender), {})
        for number in list(takewhile(seq.__ge__, those)):
            self.tx.rows.items[those.pop(number).row] = None

    def forget(self, group: str, sender: str) -> None:
        """The view is over."""
        for copy in self.of.pop((group, sender), {}).values():
            self.tx.rows.items[copy.row] = None

    def check(self) -> None:
        for those in self.of.values():
            for copy in those.values():
                assert self.tx.written("items", copy.row) is not None, "1: a copy has no row"
