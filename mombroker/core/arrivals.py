"""An agent that comes from another server while it works: the part of its new home (protocols §8.10).

What is sent here directly waits, in order, until all of the agent is here; it comes behind what was sent to the former
home.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mombroker.core import passage
from mombroker.core.batch import TaskRow
from mombroker.core.collection import Collection
from mombroker.core.engine import Engine
from mombroker.core.errors import MomError, PeerError, UnknownNotification
from mombroker.core.homes import Homes
from mombroker.core.ids import home_of, identity
from mombroker.core.inbox import Inbox
from mombroker.core.message import Message, decode
from mombroker.core.meta import ARRIVING
from mombroker.core.natives import Natives
from mombroker.core.passage import KEPT_IDS, MOVING, Chunk
from mombroker.core.table import Table
from mombroker.core.transaction import COMMIT

PAGE = 128  # messages that are let in at once


@dataclass(slots=True)
class Arrival:
    """source   its former home
    all_here   all of it is
    batch      that brought the last of it
    open, tables   what it has brought, until that is durable
    """

    source: str
    all_here: bool = False
    batch: int = 0
    open: dict[str, Collection] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)


class Arrivals:
    """1. Until all of an agent is here, and what has waited was let in, what is sent to it directly waits behind that.
    2. It reacts to nothing before all of it is here.

    coming   by id
    leaving  is it us who leaves the bus?
    """

    leaving: Callable[[], bool]

    def __init__(self, natives: Natives, engine: Engine, homes: Homes):
        self.tx, self.natives, self.engine, self.homes = natives.tx, natives, engine, homes
        self._tell = passage.sender(self.tx, natives.send)
        rows = self.tx.reader.meta(ARRIVING)
        self.coming = {key.removeprefix(ARRIVING): Arrival(*json.loads(str(row))) for key, row in rows.items()}
        engine.guests |= {id for id, home in homes.moved.items() if home == self.tx.name}
        engine.guests |= self.coming.keys()
        engine.admit = self.admit
        natives.types.obey(passage.OFFER, lambda message: passage.texts(message, 2), self._offered)
        natives.types.obey(passage.PAGE, passage.page_of, self._came)

    def recover(self) -> None:
        for id, arrival in self.coming.items():
            if not arrival.all_here:
                self._hold(id)

    def _keep(self, id: str) -> None:
        arrival = self.coming.get(id)
        row = None if arrival is None else json.dumps([arrival.source, arrival.all_here], ensure_ascii=False)
        self.tx.rows.meta[f"{ARRIVING}{id}"] = row
        self.tx.urgency = COMMIT

    # -- what comes ------------------------------------------------------------------------------------------------

    def _offered(self, message: Message) -> None:
        id, path = passage.texts(message, 2)
        known = self.coming.get(id)
        if known is not None and known.source == message.origin and not known.all_here:  # it asks again
            self._tell((message.origin,), passage.TAKEN, [id, ""])
            return
        refusal = self._refusal(id, path)
        if not refusal:
            self.coming[id] = Arrival(message.origin)
            self.engine.guests.add(id)
            self._keep(id)
        self._tell((message.origin,), passage.TAKEN, [id, refusal])

    def _refusal(self, id: str, path: str) -> str:
        me, names = self.tx.name, self.natives.names
        if self.leaving():
            return f"{me} is leaving its bus: choose another server"
        if names.elsewhere:
            return f"{me} is drained, and takes nothing new: move it to {names.elsewhere}"
        if self.tx.full:
            return f"{me} takes no work, since it lacks room: see `mom status`"
        if id in self.coming or self.tx.written("agents", id) is not None:
            return f"{me} has {id} already"
        try:
            self.engine.program.allowed(path, remote=False)
        except MomError as error:
            return f"{me} cannot run it: {error}; bring its class there first"
        return ""

    def admit(self, message: Message, agents: Iterable[str], domain: str, peer: str, received: int) -> list[str]:
        """The ids of those of these agents that react here; for those that are still coming it is kept."""
        found = []
        for agent in agents:
            id = identity(agent)
            if id in self.coming:
                behind = self._behind(id)
                data = message.copy_for(id) + message.payload
                behind.add(0, json.dumps([domain, peer, received]).encode(), data)
                behind.accept()
                self.tx.urgency = COMMIT
            else:
                found.append(id)
        return found

    def _behind(self, id: str) -> Collection:
        return self._collection(self.coming[id], f"{self.tx.name}/{passage.AGENT}", id)

    def _rest(self, id: str) -> Collection:
        """Of the record at hand."""
        return self._collection(self.coming[id], f"{self.tx.name}/{passage.AGENT}", f"rest {id}")

    def _collection(self, arrival: Arrival, agent: str, name: str) -> Collection:
        found = arrival.open.get(f"{agent} {name}")
        if found is None:
            found = arrival.open[f"{agent} {name}"] = self.natives.collection(agent, name)
        return found

    def _came(self, message: Message) -> None:
        """A piece of it. What is wrong with it is found before anything changes but the piece of a record."""
        page = passage.page_of(message)
        id, tx = page.id, self.tx
        arrival = self.coming.get(id)
        if arrival is None or message.origin != arrival.source or arrival.all_here:
            return
        if page.upto > tx.new_id():
            tx.new_id = count(page.upto).__next__  # ids of here are above those that it brings
        for chunk in page.chunks:
            self._take_chunk(id, arrival, chunk, message)
        if page.end:
            arrival.all_here, arrival.batch = True, tx.rows.number
            self._keep(id)
            tx.record("move", number=tx.new_id(), agent=id, peer=arrival.source, done=tx.now, detail="came")
        else:
            self._tell((message.origin,), passage.GOT, [id])

    def _take_chunk(self, id: str, arrival: Arrival, chunk: Chunk, message: Message) -> None:
        whole, data = chunk
        rest = self._rest(id)
        if not whole:
            rest.add(0, b"", data)
        elif len(rest):
            rows = rest.scan(None, len(rest))
            for row in rows:
                rest.remove(row.id)
            data = b"".join([*(row.body for row in rows), data])
        if whole:
            self._take(id, arrival, *passage.read_record(message, data), message)
        rest.accept()

    def _take(self, id: str, arrival: Arrival, head: Any, body: bytes, message: Message) -> None:
        match head:
            case ["item", str(name), int(shown), int(key)]:
                items, ids = (self._collection(arrival, id, each) for each in (name, KEPT_IDS))
                row = items.add(key, shown.to_bytes(8), body)
                ids.add(shown, row.to_bytes(8))
                items.accept()
                ids.accept()
            case ["row", str(name), str(key)]:
                table = arrival.tables.get(name)
                if table is None:
                    table = arrival.tables[name] = self.engine.collections.table(id, name)
                table.put(key, body)
                table.accept()
            case ["task", str(sort), int(shown), int(due)]:
                due = self.natives.clock.by_ours(due, message)
                self.engine.timers.add(TaskRow(self.tx.new_id(), id, f"{sort}:{shown}", due, body))
            case ["consumer"]:
                self.engine.clients.authors.brought(id, body)
            case ["asked", str(producer)]:
                self.engine.clients.questions.brought(id, producer, body)
            case ["in", int(attempts), str(domain), str(peer), int(received)]:
                self._hold(id)
                self._add(id, body, domain, peer, received, attempts)
            case ["state", str(path)]:
                self.tx.rows.agents[id] = (path, body)
            case _:
                raise UnknownNotification(f"{message.type} came with what is nothing of an agent")

    def _hold(self, id: str) -> None:
        boxes = self.engine.inboxes.boxes
        box = boxes.get(id)
        if box is None:
            box = boxes[id] = Inbox(id, self.tx.new_id())
        box.name = MOVING

    def _add(
        self, id: str, data: bytes, domain: str, peer: str, received: int, attempts: int = 0, *, enters: bool = False
    ) -> None:
        """`enters`: its former home has not seen it."""
        try:
            message = decode(data)
        except PeerError as error:
            self.engine.dead.unreadable(data, id, error)
            return
        enter = self.engine.entering.get(message.type) if enters else None
        if enter is None or enter(message, id):
            self.engine.inboxes.add(message, id, domain, peer, received, 0, attempts)

    # -- when all is here --------------------------------------------------------------------------------------------

    def due(self) -> bool:
        return any(self._ready(arrival) for arrival in self.coming.values())

    def _ready(self, arrival: Arrival) -> bool:
        return arrival.all_here and arrival.batch <= self.tx.durable_batch

    def turn(self) -> bool:
        """Let in what has waited. True if there is more to let in now."""
        for id, arrival in list(self.coming.items()):
            if self._ready(arrival) and not self._let_in(id):
                return True
        return False

    def _let_in(self, id: str) -> bool:
        box = self.engine.inboxes.boxes.get(id)
        if box is not None and box.name == MOVING:
            box.name = ""
            self.engine.inboxes.wake(box)
        behind = self._behind(id)
        while rows := behind.scan(None, PAGE):
            for row in rows:
                if self.tx.filled():
                    behind.accept()
                    return False
                behind.remove(row.id)
                self._add(id, row.body, *json.loads(row.head), enters=True)
        behind.accept()
        gone = self.tx.written("agents", id) is None  # it was deleted, or lost, on its way
        box = self.engine.inboxes.boxes.get(id)
        if gone and box is not None and (box.queue or box.on_disk()):
            return True  # what waits becomes dead letters first, before others are to send elsewhere
        del self.coming[id]
        self._keep(id)
        if gone:
            self.homes.forget(id)
            self.engine.guests.discard(id)
        elif home_of(id) == self.tx.name:
            self.engine.guests.discard(id)
        return True

    def left(self, server: str) -> None:
        """A server is not of this bus any more: who was still to come from there does not. What has come of it goes,
        and its messages are for nobody."""
        for id, arrival in self.coming.items():
            if arrival.source == server and not arrival.all_here:
                rest = self._rest(id)
                for row in rest.scan(None, len(rest)):
                    rest.remove(row.id)
                rest.accept()
                self.engine.vanish(id)
                arrival.all_here, arrival.batch = True, self.tx.rows.number
                self._keep(id)

    def again(self) -> None:
        """A server is lost, and what was on its way over it: our answers, and that agents are gone."""
        for id, arrival in self.coming.items():
            if not arrival.all_here:
                self._tell((arrival.source,), passage.TAKEN, [id, ""])
        for id, home in list(self.homes.moved.items()):
            if home == self.tx.name and id not in self.coming and self.tx.written("agents", id) is None:
                self.homes.forget(id)

    def check(self) -> None:
        boxes = self.engine.inboxes.boxes
        for id, arrival in self.coming.items():
            assert id in self.engine.guests, "1: what is sent to it does not wait"
            box = boxes.get(id)
            assert arrival.all_here or box is None or box.name == MOVING, "2: it reacts too early"
