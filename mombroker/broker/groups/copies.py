"""Copies of casts, until all members have them: if a sender's server is lost, others send on what some lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgpack

from mombroker.broker.wire import pack
from mombroker.core.batch import ItemRow
from mombroker.core.transaction import Transaction

COPIES = "copies"


class Copy(NamedTuple):
    """payload   of the cast, as it was sent
    row       where it is kept
    """

    payload: bytes
    row: int


class Copies:
    """1. What somebody may still lack is here, at all servers that have it; what is stable is not.

    of    by group and view, by sender: its casts by their numbers, the first one first
    """

    __slots__ = ("tx", "id", "of")

    def __init__(self, tx: Transaction, id: str):
        self.tx, self.id = tx, id
        self.of: dict[tuple[str, int], dict[str, dict[int, Copy]]] = {}

    def load(self, row: ItemRow) -> None:
        group, view, sender, seq = msgpack.unpackb(row.head)
        self.of.setdefault((group, view), {}).setdefault(sender, {})[seq] = Copy(row.body, row.id)

    def add(self, group: str, view: int, sender: str, seq: int, payload: bytes) -> bool:
        """False if it is here already."""
        those = self.of.setdefault((group, view), {}).setdefault(sender, {})
        if seq in those:
            return False
        id = self.tx.new_id()
        head: bytes = pack([group, view, sender, seq])
        self.tx.rows.items[id] = ItemRow(id, self.id, COPIES, 0, head, payload)
        self.tx.rows.bytes += len(payload)
        those[seq] = Copy(payload, id)
        return True

    def count(self, group: str, view: int, sender: str) -> int:
        """How many of a member's casts in a view are not stable."""
        return len(self.of.get((group, view), {}).get(sender, ()))

    def behind(self, group: str, view: int, sender: str, seq: int) -> Iterator[tuple[int, bytes]]:
        """The casts of a sender behind one of them, in their order."""
        for number, copy in sorted(self.of.get((group, view), {}).get(sender, {}).items()):
            if number > seq:
                yield number, copy.payload

    def stable(self, group: str, view: int, casts: Mapping[str, int]) -> None:
        """All members have so many of each in this view."""
        for sender, those in self.of.get((group, view), {}).items():
            for seq in [seq for seq in those if seq <= casts.get(sender, 0)]:
                self.tx.rows.items[those.pop(seq).row] = None

    def forget(self, group: str, before: int) -> None:
        """All that is of views before this one is stable, or of no use."""
        for of, view in [key for key in self.of if key[0] == group and key[1] < before]:
            for those in self.of.pop((of, view)).values():
                for copy in those.values():
                    self.tx.rows.items[copy.row] = None

    def of_group(self, group: str) -> int:
        """How many there are."""
        senders = [senders for key, senders in self.of.items() if key[0] == group]
        return sum(len(those) for each in senders for those in each.values())
