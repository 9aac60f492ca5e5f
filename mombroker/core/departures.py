"""An agent that leaves for another server while it works: the part of its former home (protocols §8.10).

It works here until all servers have passed; then nothing of it happens any more, and it leaves in pages, each in the
transaction that deletes its rows: items, timers and deferred functions, waiting messages, what clients have asked it,
and its state at the end.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mombroker.core import passage
from mombroker.core.batch import ROWS_BY_KEY, ItemRow, TaskRow
from mombroker.core.collection import Collection
from mombroker.core.engine import Engine
from mombroker.core.errors import MomError
from mombroker.core.homes import Homes
from mombroker.core.ids import home_of
from mombroker.core.inbox import Inbox
from mombroker.core.message import Message
from mombroker.core.meta import DEPARTING
from mombroker.core.natives import Natives
from mombroker.core.passage import KEPT_IDS, MOVING, Page
from mombroker.core.requests import Reply
from mombroker.core.table import LAST, Table
from mombroker.core.transaction import COMMIT

OFFERED, POLLS, TURNS, ENDS, SENDS = range(5)  # how far it has come
ROWS, PAGE_BYTES = 128, 256 << 10  # read at once; of a page
SHARE = 4  # pages of a turn
PATIENT = 1_000  # refusals that are kept


@dataclass(slots=True)
class Departure:
    """waits       servers that have still to say that they are there, or to pass
    offset      bytes that have left of the record at hand
    under_way   pages without a receipt
    names, rows, tables, tasks   collections that are left, their next rows, and tables and tasks; not stored
    late        the batch that must be durable before more can be read
    """

    to: str
    phase: int = OFFERED
    waits: list[str] = field(default_factory=list)
    offset: int = 0
    under_way: int = 0
    names: list[str] | None = None
    open: Collection | None = None
    rows: deque[ItemRow] = field(default_factory=deque)
    tables: list[Table] | None = None
    tasks: list[TaskRow] | None = None
    late: int = 0

    def values(self) -> list[Any]:
        return [self.to, self.phase, self.waits, self.offset, self.under_way]


Piece = tuple[bytes, Callable[[], object]]  # a record, and what deletes it here


class Departures:
    """1. Nothing is sent before all servers have passed, and from then on the agent reacts to nothing here.
    2. At most `window` pages are without a receipt.

    page      records in a page
    leaving   by id
    refused   why one that was to leave stays
    """

    page, window = 128, 16

    def __init__(self, natives: Natives, engine: Engine, homes: Homes):
        self.tx, self.natives, self.engine, self.homes = natives.tx, natives, engine, homes
        self._tell = passage.sender(self.tx, natives.send)
        rows = self.tx.reader.meta(DEPARTING)
        self.leaving = {key.removeprefix(DEPARTING): Departure(*json.loads(str(row))) for key, row in rows.items()}
        engine.guests |= {id for id in self.leaving if home_of(id) != self.tx.name}
        self.refused: dict[str, str] = {}
        obey = natives.types.obey
        obey(passage.TAKEN, lambda message: passage.texts(message, 2), self._taken)
        obey(passage.POLL, lambda message: passage.texts(message, 2), self._polled)
        obey(passage.HERE, lambda message: passage.texts(message, 2), self._is_here, at_once=False)
        obey(passage.PASSED, _one, self._passed, at_once=False)
        obey(passage.GOT, _one, self._got)

    def recover(self) -> None:
        for id, departure in self.leaving.items():
            if departure.phase == SENDS:
                self._freeze(id)

    # -- until it leaves -------------------------------------------------------------------------------------------

    def begin(self, id: str, path: str, to: str) -> Reply:
        """An agent of ours is to live on another server. Raises MomError."""
        self.natives.names.distance(to)  # raises for a server that is not on this bus
        if (known := self.leaving.get(id)) is not None and known.to != to:
            raise MomError(f"{id} is on its way to {known.to}: move it when it is there")
        if to == self.tx.name:
            raise MomError(f"{id} lives on {to} already")
        if known is None:
            self.refused.pop(id, None)
            self.leaving[id] = Departure(to)
            self._keep(id)
        self._ask(id, path)
        return {"agent": id, "from": self.tx.name, "to": to}

    def again(self) -> None:
        """A server is lost, and what was on its way over it: ask anew."""
        for id in self.leaving:
            if (row := self.tx.written("agents", id)) is not None:
                self._ask(id, row[0])

    def _ask(self, id: str, path: str) -> None:
        """What its move waits for. In ENDS an answer to POLL is as good as PASSED: POLL comes behind RELOCATED, so the
        answer comes behind all that was sent to this home."""
        departure = self.leaving[id]
        if departure.phase == OFFERED:
            self._tell((departure.to,), passage.OFFER, [id, path])
        elif departure.phase == TURNS:
            self.homes.relocate(id, departure.to)
        elif departure.waits:
            self._tell(tuple(departure.waits), passage.POLL, [id, str(departure.phase)])

    def _keep(self, id: str) -> None:
        departure = self.leaving.get(id)
        row = None if departure is None else json.dumps(departure.values(), ensure_ascii=False)
        self.tx.rows.meta[f"{DEPARTING}{id}"] = row
        self.tx.urgency = COMMIT

    def _taken(self, message: Message) -> None:
        """The new home takes it, or says why not."""
        id, refusal = passage.texts(message, 2)
        departure = self.leaving.get(id)
        if departure is None or message.origin != departure.to:
            if not refusal:  # it was offered to who was lost before that came
                self._nothing(id, message.origin)
            return
        if departure.phase != OFFERED:
            return
        if refusal:
            self._stays(id, refusal)
            return
        departure.phase, departure.waits = POLLS, list(self.tx.topology.servers)
        self._keep(id)
        self._ask(id, "")

    def _stays(self, id: str, reason: str) -> None:
        del self.leaving[id]
        self._keep(id)
        if len(self.refused) < PATIENT:
            self.refused[id] = reason
        self.tx.note(f"{id} does not move: {reason}")

    def _polled(self, message: Message) -> None:
        self._tell((message.origin,), passage.HERE, passage.texts(message, 2))

    def _is_here(self, message: Message) -> None:
        id, phase = passage.texts(message, 2)
        for asked in (POLLS, ENDS):
            if phase == str(asked):
                self._answered(id, message.origin, asked)

    def _answered(self, id: str, server: str, phase: int) -> None:
        departure = self.leaving.get(id)
        if departure is None or departure.phase != phase or server not in departure.waits:
            return
        departure.waits.remove(server)
        if not departure.waits:
            departure.phase += 1
            if departure.phase == TURNS:
                self.homes.relocate(id, departure.to)
        self._keep(id)

    def relocated(self, id: str, source: str, to: str) -> None:
        """What is sent to an agent from here goes to its new home, from now on."""
        departure = self.leaving.get(id)
        if departure is not None and departure.phase == TURNS and source == self.tx.name:
            departure.phase, departure.waits = ENDS, list(self.tx.topology.servers)
            self._keep(id)
        elif source == self.tx.name and self.tx.written("agents", id) is not None:
            self.natives.remove(id)  # a new store has made it anew, as the topology says, and did not know yet
            self.engine.residents.loaded.pop(id, None)
        if source in self.tx.topology.servers:
            self._tell((source,), passage.PASSED, [id])

    def _passed(self, message: Message) -> None:
        """Nothing more comes from that server to this home."""
        self._answered(passage.texts(message, 1)[0], message.origin, ENDS)

    def left(self, server: str) -> None:
        """A server is not of this bus any more: nothing more comes from there, and nobody moves there."""
        for id, departure in list(self.leaving.items()):
            if departure.to == server and departure.phase < SENDS and self.homes.home(id) == self.tx.name:
                self._stays(id, f"{server} has left the bus")
                if departure.phase != OFFERED and server in self.tx.topology.servers:
                    self._nothing(id, server)  # whoever is in its place may have taken it
            elif departure.to == server:
                self._lost(id)
            else:
                self._answered(id, server, departure.phase)

    def _lost(self, id: str) -> None:
        """It lived at its new home, which is not there any more: what is still here of it goes, too, and what waits for
        it becomes dead letters."""
        to = self.leaving.pop(id).to
        self._keep(id)
        self.engine.vanish(id)
        self.engine.guests.discard(id)
        self._thaw(id)
        self.tx.record("move", agent=id, peer=to, done=self.tx.now, detail="left")
        self.tx.note(f"{id} is lost with {to}, to which it was moving")

    def _nothing(self, id: str, to: str) -> None:
        """It does not come: what waits for it there is for nobody."""
        self._tell((to,), passage.PAGE, Page(id, self.tx.new_id(), [], True).pack())

    def deleted(self, id: str) -> None:
        """An agent is gone: what waits for it at its new home is for nobody."""
        departure = self.leaving.pop(id, None)
        if departure is not None:
            self._keep(id)
            self._nothing(id, departure.to)

    # -- it leaves ---------------------------------------------------------------------------------------------------

    def due(self) -> bool:
        """Is there something to be sent now?"""
        durable = self.tx.durable_batch
        return any(
            departure.phase == SENDS and departure.under_way < self.window and departure.late <= durable
            for departure in self.leaving.values()
        )

    def turn(self) -> bool:
        """Send a few pages. True if there is more to send now."""
        left, durable = SHARE, self.tx.durable_batch
        for id, departure in list(self.leaving.items()):
            if departure.phase != SENDS or departure.late > durable:
                continue
            self._freeze(id)
            if self.engine.clients.groups.waits(id):  # what it has sent goes first
                continue
            while departure.under_way < self.window and departure.late <= durable and id in self.leaving:
                if not left or self.tx.filled():
                    return True
                left -= 1
                self._send(id, departure)
        return False

    def _freeze(self, id: str) -> None:
        """Nothing of it happens here any more."""
        engine = self.engine
        box = engine.inboxes.boxes.get(id)
        if box is None:
            box = engine.inboxes.boxes[id] = Inbox(id, self.tx.new_id())
        if box.name == MOVING:
            return
        if box.name:
            engine.waiting[box.name].remove(box)
        box.until, box.stuck, box.name = 0, None, MOVING

    def _thaw(self, id: str) -> None:
        box = self.engine.inboxes.boxes.get(id)
        if box is not None and box.name == MOVING:
            box.name = ""
            self.engine.inboxes.wake(box)

    def _send(self, id: str, departure: Departure) -> None:
        chunks, size, end = list[passage.Chunk](), 0, False
        for data, delete in self._pieces(id, departure):
            part = data[departure.offset : departure.offset + PAGE_BYTES - size]
            size += len(part)
            departure.offset += len(part)
            whole = departure.offset == len(data)
            chunks.append((whole, part))
            if whole:
                departure.offset = 0
                end = delete() is True
            if end or not whole or size >= PAGE_BYTES or len(chunks) >= self.page:
                break
        if chunks:
            departure.under_way += 1
            self._tell((departure.to,), passage.PAGE, Page(id, self.tx.new_id(), chunks, end).pack())
        self._keep(id)

    def _pieces(self, id: str, departure: Departure) -> Iterator[Piece]:
        """What is left of it here, piece by piece, the state last; each is deleted before the next is asked for. It
        ends early where rows have to be durable first."""
        yield from self._items(id, departure)
        if departure.late > self.tx.durable_batch:
            return
        yield from self._tables(id, departure)
        yield from self._tasks(id, departure)
        for number, data in self.engine.clients.authors.packed(id):
            yield passage.record(["consumer"], data), partial(self.engine.clients.authors.left, id, number)
        box = self.engine.inboxes.boxes[id]
        while box.queue or box.on_disk():
            if box.queue:
                yield self._waiting(box)
            elif not self.engine.inboxes.refill(box, False):
                departure.late = self.tx.rows.number
                self.tx.urgency = COMMIT
                return
        for producer, data, delete in self.engine.clients.questions.packed(id):
            yield passage.record(["asked", producer], data), delete
        row = self.tx.written("agents", id)
        assert row is not None, "it is here until its state has left"
        yield passage.record(["state", row[0]], row[1]), lambda: self._gone(id)

    def _items(self, id: str, departure: Departure) -> Iterator[Piece]:
        if departure.names is None:
            departure.names = self._collections(id)
        while departure.rows or departure.names:
            if not departure.rows:
                name = departure.names[0]
                if departure.open is None:
                    departure.open = self._collection(id, name)
                departure.rows += departure.open.scan(None, ROWS)
                if not departure.rows:
                    departure.names.pop(0)
                    departure.open = None
                continue
            row, collection = departure.rows[0], departure.open
            assert collection is not None, "rows are of a collection"

            def delete(row: ItemRow = row, collection: Collection = collection) -> None:
                departure.rows.popleft()
                collection.remove(row.id)
                collection.accept()
                self.tx.urgency = COMMIT

            if collection.name == KEPT_IDS:  # which is made anew there
                delete()
                if self.tx.filled():
                    departure.late = self.tx.rows.number
                    return
            else:
                yield passage.record(["item", collection.name, passage.shown(row), row.key], row.body), delete

    def _tables(self, id: str, departure: Departure) -> Iterator[Piece]:
        if departure.tables is None:
            departure.tables = self._tables_of(id)
        while departure.tables:
            table = departure.tables[0]
            while page := table.range("", LAST, ROWS):
                for key, row in page:

                    def delete(table: Table = table, key: str = key) -> None:
                        table.remove(key)
                        table.accept()
                        self.tx.urgency = COMMIT

                    yield passage.record(["row", table.name, key], row.body), delete
            departure.tables.pop(0)

    def _tables_of(self, id: str) -> list[Table]:
        resident = self.engine.residents.loaded.get(id)
        found = dict(resident.tables) if resident else {}
        first = ROWS_BY_KEY
        while rows := self.tx.reader.range(id, first, ROWS_BY_KEY + LAST, 1, False):
            name = rows[0].collection[len(ROWS_BY_KEY) :].partition(":")[0]
            first = f"{ROWS_BY_KEY}{name}:{LAST}"
            if name not in found:
                found[name] = self.engine.collections.table(id, name)
        return [found[name] for name in sorted(found)]

    def _collections(self, id: str) -> list[str]:
        """Its own, those that the broker has for it aside; the one that is made anew there comes last."""
        resident = self.engine.residents.loaded.get(id)
        fresh = resident.collections if resident else ()
        names = {name for name in (*self.tx.reader.collections(id), *fresh) if not name.startswith("_")}
        return sorted(names, key=lambda name: (name == KEPT_IDS, name))

    def _collection(self, id: str, name: str) -> Collection:
        resident = self.engine.residents.loaded.get(id)
        found = resident.collections.get(name) if resident else None
        return found or self.natives.collection(id, name)

    def _tasks(self, id: str, departure: Departure) -> Iterator[Piece]:
        timers = self.engine.timers
        if departure.tasks is None:
            mine = [task for task in timers.tasks.values() if task.agent == id]
            departure.tasks = sorted(mine, key=lambda task: task.id)
        while departure.tasks:
            task = departure.tasks[0]
            tasks = departure.tasks

            def delete(task: TaskRow = task, tasks: list[TaskRow] = tasks) -> None:
                tasks.pop(0)
                timers.drop_task(task)

            if task.id in timers.tasks:  # else it has rung
                yield passage.record(["task", task.sort, task.shown, task.due], task.data), delete
            else:
                tasks.pop(0)

    def _waiting(self, box: Inbox) -> Piece:
        entry = box.queue[0]
        head = ["in", entry.attempts, entry.domain, entry.peer, entry.received]
        data = entry.message.copy_for(box.agent) + entry.message.payload
        return passage.record(head, data), lambda: self.engine.inboxes.finish(box, entry)

    def _gone(self, id: str) -> bool:
        """All of it has left."""
        to = self.leaving.pop(id).to
        self.tx.rows.agents[id] = None
        self.engine.clients.questions.left(id)
        self.engine.residents.loaded.pop(id, None)
        self.engine.inboxes.forget(self.engine.inboxes.boxes[id])
        self.engine.guests.discard(id)
        self.tx.record("move", agent=id, peer=to, done=self.tx.now, detail="left")
        return True

    def _got(self, message: Message) -> None:
        id = passage.texts(message, 1)[0]
        departure = self.leaving.get(id)
        if departure is not None and message.origin == departure.to:
            departure.under_way -= 1
            self._keep(id)

    # -- for operators -----------------------------------------------------------------------------------------------

    def why(self, id: str) -> str:
        """What one that leaves waits for; empty: it is at work."""
        departure = self.leaving[id]
        if departure.phase == OFFERED:
            return f"{departure.to} has not answered"
        if departure.phase == TURNS:
            return f"{self.tx.topology.registry} to decide"
        others: Iterable[str] = sorted(departure.waits)
        return f"{', '.join(others)} to {'answer' if departure.phase == POLLS else 'learn of it'}" if others else ""

    def check(self) -> None:
        for id, departure in self.leaving.items():
            box = self.engine.inboxes.boxes.get(id)
            frozen = box is not None and box.name == MOVING
            assert departure.phase == SENDS or not (frozen or departure.offset or departure.under_way), "1: too early"
            assert departure.phase != SENDS or not departure.waits, "1: it does not wait for all"
            assert frozen or not (departure.offset or departure.under_way), "1: it reacts while it leaves"
            assert 0 <= departure.under_way <= self.window, "2: too many pages"


def _one(message: Message) -> object:
    return passage.texts(message, 1)
