"""What operators may ask about agents, dead letters and the log of a server. requests.py has the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mombroker.core import times
from mombroker.core.arrivals import Arrivals
from mombroker.core.batch import ROWS_BY_KEY, ItemRow
from mombroker.core.collection import Collection
from mombroker.core.departures import Departures
from mombroker.core.engine import Engine
from mombroker.core.errors import MomError, Overloaded
from mombroker.core.message import decode, new_message
from mombroker.core.meta import EXPORTED
from mombroker.core.natives import Natives
from mombroker.core.passage import shown
from mombroker.core.reaction import DELETE, Program
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.table import LAST
from mombroker.core.transaction import Transaction

MAX_PAGE = 10_000  # rows of an answer
FIRST_ITEMS = 5  # of a collection that are shown with its agent


class AgentVerbs:
    """closed tells why no work is taken from outside; empty if it is."""

    def __init__(
        self, natives: Natives, engine: Engine, program: Program, closed: Callable[[], str], departures: Departures,
        arrivals: Arrivals,
    ):  # fmt: skip
        self.tx, self.names, self.send_message = natives.tx, natives.names, natives.send
        self.engine, self.program, self.closed = engine, program, closed
        self.departures, self.arrivals = departures, arrivals

    @reads
    def agents(self, after: str = "", limit: int = 1_000) -> Reply:
        """The agents of the server in the order of their ids, those behind `after`."""
        rows = self.tx.reader.agents(after, min(limit, MAX_PAGE))
        names = {id: name for name, id in self.names.known.items()}
        return {"agents": [{"agent": id, "class": path, "name": names.get(id, "")} for id, path in rows]}

    @reads
    def agent(self, agent: str) -> Reply:
        """One agent that lives here, with its fields and the first items of its collections."""
        me, inboxes = self.tx.name, self.engine.inboxes
        id = self.names.address(agent)
        row = self.tx.written("agents", id)
        home, name = self.names.homes.home(id), id.partition("/")[2]
        if row is None and home == me:
            on_its_way = (
                f": it is on its way from {self.arrivals.coming[id].source}" if id in self.arrivals.coming else ""
            )
            raise MomError(f"there is no agent {id}{on_its_way or '; see `mom agent list`'}")
        if row is None:
            raise MomError(f"{id} does not live on {me}; ask its home server {home}")
        path, state = row
        box, native = inboxes.boxes.get(id), self.engine.clients.owns(path)
        return {
            "agent": id, "name": name if self.names.known.get(name) == id else "", "class": path,
            "waiting": inboxes.count(box) if box else 0, "blocked": bool(box and box.blocked()),
            "fields": {} if native else self.program.describe(path, state),
            "items": {} if native else self._items(id, path),
            "tables": {} if native else self._tables(id, path),
            "consumes": self.engine.clients.authors.describe(id), **self.moving(id),
        }  # fmt: skip

    def moving(self, id: str) -> Reply:
        """Where an agent of ours is on its way to or from, and what that waits for."""
        if (departure := self.departures.leaving.get(id)) is not None:
            return {"moving": f"to {departure.to}", "waits_for": self.departures.why(id)}
        if (arrival := self.arrivals.coming.get(id)) is not None:
            return {"moving": f"from {arrival.source}", "waits_for": ""}
        return {"moving": "", "waits_for": self.departures.refused.get(id, "")}

    def _items(self, agent: str, path: str) -> dict[str, Reply]:
        """How many rows each collection of an agent has, and the first of them, as they are on disk."""
        program, reader = self.program, self.tx.reader
        found = {}
        for name in program.collections(path):
            rows = reader.items(agent, name, None, FIRST_ITEMS)
            first = [{"id": shown(row), "key": row.key, "value": program.value(row.body)} for row in rows]
            found[name] = {"rows": reader.item_count(agent, name), "first": first}
        return found

    def _tables(self, agent: str, path: str) -> dict[str, Reply]:
        """The same of its tables."""
        program, reader, found = self.program, self.tx.reader, {}
        for name in program.tables(path):
            first = f"{ROWS_BY_KEY}{name}:"
            rows = reader.range(agent, first, first + LAST, FIRST_ITEMS, False)
            shown = [
                {"key": program.key(row.collection[len(first) :]), "value": program.value(row.body)} for row in rows
            ]
            found[name] = {"rows": reader.range_count(agent, first, first + LAST), "first": shown}
        return found

    @reads
    def home(self, agent: str) -> Reply:
        """The server where the agent of this name or id lives."""
        return {"home": self.names.homes.home(self.names.address(agent))}

    @changes
    def move_agent(self, agent: str, to: str) -> Reply:
        """Have an agent that lives here live on another server, with all that it has; it works on meanwhile. Its id
        stays. `agent` tells how far it is."""
        id = self.names.address(agent)
        row = self.tx.written("agents", id)
        if row is None:
            return self.agent(agent)  # which says why not
        if self.engine.clients.owns(row[0]) or id.startswith(f"{self.tx.name}/_"):
            raise MomError(f"{id} is the server's own: queues and subscriptions have `mom queue move`")
        if id in self.arrivals.coming:
            raise MomError(f"{id} has not come yet from {self.arrivals.coming[id].source}: ask again in a moment")
        if groups := self.engine.clients.groups.has(id):
            raise MomError(f"{id} is a member of group {groups[0]}: it moves once it has left that")
        return self.departures.begin(id, row[0], to)

    @changes
    def send(self, to: list[str], type: str, fields: dict[str, Any] | None = None, ttl_ns: int = 0) -> Reply:
        """Send a notification to agents."""
        self._open()
        tx = self.tx
        dests = tuple(dict.fromkeys(map(self.names.address, to)))
        if not dests:
            raise MomError("a message needs a receiver: name an agent")
        payload = self.program.compose(type, fields or {})
        size = len(payload) + sum(map(len, dests[1:]))
        if size > tx.limits.max_message:
            raise MomError(f"{size} bytes are over max_message = {tx.limits.max_message}")
        expires = times.after(tx.now, ttl_ns) if ttl_ns else 0
        message = new_message(tx, f"{tx.name}/_admin", dests, type, payload, expires)
        self.send_message(message)
        return {"message": f"{message.origin}#{message.number}", "to": list(dests)}

    @changes
    def deploy(
        self, ticket: int, class_: str, name: str, fields: dict[str, Any] | None = None, server: str | None = None
    ) -> None:
        """Make an agent of a class under a new name, here or on another server."""
        self._open()
        most = self.tx.limits.max_message
        self.program.allowed(class_, remote=True)
        state = self.program.initial(class_, fields or {})
        if len(state) > most:
            raise MomError(f"{len(state)} bytes of fields are over max_message = {most}")
        self.names.deploy(ticket, name, class_, state, server or self.tx.name)

    @changes
    def delete(self, agent: str) -> Reply:
        """Delete an agent with its state, wherever it lives."""
        self._stays()
        id = self.names.address(agent)
        self.send_message(new_message(self.tx, f"{self.tx.name}/_admin", (id,), DELETE, b""))
        self.engine.give_up(id)
        return {"agent": id}

    def _stays(self) -> None:
        if self.arrivals.leaving():
            raise MomError(
                f"{self.tx.name} is leaving its bus, and what it is asked for could be lost: ask another server"
            )

    def _open(self) -> None:
        self._stays()
        if reason := self.closed():
            raise Overloaded(f"{self.tx.name} {reason}")


class LetterVerbs:
    """Messages that no agent could take."""

    def __init__(self, letters: Collection, program: Program):
        self.letters, self.program = letters, program

    @reads
    def deadletters(self, after: list[int] | None = None, limit: int = 100) -> Reply:
        """Dead letters of agents in the order of their times, those behind [time, id]."""
        if after and len(after) != 2:
            raise MomError("dead letters are listed after [time, id]")
        rows = self.letters.scan((after[0], after[1]) if after else None, min(limit, MAX_PAGE))
        letters = [{k: v for k, v in letter_of(row).items() if k != "traceback"} for row in rows]
        return {"count": len(self.letters), "letters": letters}

    @reads
    def deadletter(self, id: int) -> Reply:
        """One dead letter of an agent, with its message and the traceback."""
        row = self.row(id)
        try:
            message = decode(row.body)
        except MomError:
            return {**letter_of(row), "payload": {"packed": row.body}}
        return {**letter_of(row), "payload": self.program.read(message.type, message.payload)}

    @changes
    def drop(self, id: int) -> Reply:
        """Forget a dead letter of an agent."""
        self.remove(self.row(id))
        return {"dropped": id}

    def row(self, id: int) -> ItemRow:
        row = self.letters.get(id)
        if row is None:
            raise MomError(f"no dead letter {id} here; see `mom agent deadletters list`")
        return row

    def remove(self, row: ItemRow) -> None:
        self.letters.remove(row.id)
        self.letters.accept()


def letter_of(row: ItemRow) -> Reply:
    try:
        return {"id": row.id, **json.loads(row.head)}
    except (TypeError, ValueError):
        raise MomError(f"dead letter {row.id} is damaged: `mom agent deadletters drop {row.id}`") from None


class LogVerbs:
    def __init__(self, tx: Transaction):
        self.tx = tx

    @changes
    def exported(self, seq: int) -> Reply:
        """Log records up to this one are somewhere else too, and may go when their time is over."""
        mark = self.tx.rows.meta[EXPORTED] = max(seq, int(self.tx.written("meta", EXPORTED) or 0))
        return {"exported": mark}
