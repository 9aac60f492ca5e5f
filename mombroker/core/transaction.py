"""Transaction: the open batch, and the only thing that a part of a server holds of it.

`Commits` is the server's own side: it closes a batch, and knows which one is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from mombroker.core import trace
from mombroker.core.batch import Batch, Reader
from mombroker.core.errors import line
from mombroker.core.limits import Limits
from mombroker.core.meta import NEXT, NOW
from mombroker.core.topology import Topology

LINGER, COMMIT = 1, 2  # how much a batch hurries: it may wait for more; at once
ID_CHUNK = 100_000
MAX_NOTES = 100


class Transaction:
    """What a part asks of its server while it reacts to an event. All that it changes is durable together.

    rows          the open batch: a part puts and deletes its rows in its tables
    durable_id    the last id of rows that are durable; durable_batch likewise
    new_id()      the next id of rows and messages; ids rise over all restarts
    urgency       how much the open batch hurries: 0 not at all, LINGER, COMMIT; a part raises it, and never lowers it
    record        appends a record to the log: record(kind, field=value, ...), see trace.py
    """

    __slots__ = (
        "name", "topology", "limits", "reader", "now", "rows", "durable_id", "durable_batch", "full", "record",
        "urgency", "new_id", "_notes", "_in_flight",
    )  # fmt: skip

    def __init__(self, name: str, topology: Topology, limits: Limits, reader: Reader, now: int):
        self.name, self.topology, self.limits, self.reader = name, topology, limits, reader
        self.now = now  # ns of our clock, which never goes back
        self.full = False  # true while the server lacks room and takes no work from outside
        self.durable_id = int(reader.meta(NEXT).get(NEXT, 0))
        self.rows = Batch(number=1, above=self.durable_id)
        self.record = trace.recorder(self)
        self.durable_batch = 0
        self.new_id = count(self.durable_id + 1).__next__  # so often that a method of ours would be felt
        self.urgency = COMMIT
        self._notes: list[str] = []  # lines for the operator's log
        self._in_flight: Batch | None = None

    def note(self, text: str) -> None:
        """One line for the operator's log."""
        if len(self._notes) < MAX_NOTES:
            self._notes.append(line(text))

    def filled(self) -> bool:
        """True when the open batch has reached its size: no further reaction joins it."""
        rows, limits = self.rows, self.limits
        return rows.bytes >= limits.batch_bytes or len(rows.queue_out) >= limits.batch_rows

    def written(self, table: str, id: Any) -> Any:
        """The row of `id` in `table` (meta, agents, items, held) as of the open batch; None if there is none. One of
        another table must not be durable yet."""
        for batch in (self.rows, self._in_flight):
            if batch is not None:
                rows = getattr(batch, table)
                if id in rows:
                    return rows[id]
        return _READ[table](self.reader, id)


_READ: dict[str, Callable[[Reader, Any], Any]] = {
    "meta": lambda reader, id: reader.meta(id).get(id),
    "agents": lambda reader, id: reader.agent(id),
    "items": lambda reader, id: reader.item(id),
    "held": lambda reader, id: reader.held_row(id),
}


class Commits(Transaction):
    """1. At most one batch is under way; the next one is open meanwhile.
    2. Batches are durable in their order.

    notes       lines for the operator's log
    in_flight   the batch under way
    """

    __slots__ = ("_id_limit", "_closed", "_times")

    def __init__(self, name: str, topology: Topology, limits: Limits, reader: Reader, now: int):
        super().__init__(name, topology, limits, reader, now)
        self._id_limit = self.durable_id  # a restart begins above it
        self._closed = 0  # when it was closed, if it has records,
        self._times = (0, 0)  # and of the last such batch, until the log has it, when it was known to be durable

    @property
    def notes(self) -> list[str]:
        return self._notes

    @property
    def in_flight(self) -> Batch | None:
        return self._in_flight

    def close(self, last: bool = False) -> None:
        """Close the open batch, which is under way from now on, and open the next one."""
        assert self._in_flight is None, "one batch is under way"
        batch = self._in_flight = self.rows
        last_id = self.new_id()  # it stands for all those before
        if last_id > self._id_limit:
            self._id_limit = last_id + ID_CHUNK
            batch.meta[NEXT] = self._id_limit
        closed, durable = self._times
        if durable and (batch.log or last):  # what one row of the log cannot say of itself is in the next
            batch.log.insert(0, trace.commit(closed, durable))
            self._times = (0, 0)
        self._closed = self.now if batch.log else 0
        if not batch.empty():
            batch.meta[NOW] = self.now
        self.rows = Batch(number=batch.number + 1, above=last_id)
        self.urgency = 0

    def committed(self, batch: Batch, now: int) -> None:
        """The batch that was under way is durable, and was so when its outputs began to leave, at `now`."""
        assert batch is self._in_flight, "another batch is under way"
        self._in_flight = None
        self.durable_batch, self.durable_id = batch.number, self.rows.above
        if self._closed:
            self._times = (self._closed, max(now, self._closed))
