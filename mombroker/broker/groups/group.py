"""Group: the home of a group of agents. It decides the views, and places the casts that are in total order."""

from __future__ import annotations

import json
from typing import ClassVar, Protocol
from urllib.parse import unquote

import msgpack

from mombroker.broker.groups.copies import acks_every
from mombroker.broker.groups.lookout import Lookout
from mombroker.broker.groups.notes import (
    Ack,
    Ended,
    Flush,
    Here,
    Join,
    Leave,
    Place,
    Placed,
    Prepare,
    Restored,
    Returned,
    Stable,
    Told,
    Viewed,
)
from mombroker.broker.native import Native
from mombroker.broker.wire import Note, pack
from mombroker.core.groups.home import JOIN, Home
from mombroker.core.groups.view import View
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.meta import VIEWS
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

NOBODY = "the group had no members"
SERVERS = "_groups"  # who has the members of a server


class Around(Protocol):
    natives: Natives


class Group(Native):
    """1. Its row says all that its home has decided.

    A group that is made again has none of the numbers of views that it had before: what was said of those, and comes
    late, speaks of none of its own.

    placed    casts in total order that its members were sent, since it was made
    ends      it is to be no more
    """

    path: ClassVar[str] = "mombroker.broker.groups.group:Group"

    __slots__ = ("name", "home", "lookout", "placed", "ends")

    def __init__(self, service: Around, id: str, state: bytes = b""):
        super().__init__(service.natives, id)
        self.name = name_of_group(id)
        self.home = Home(self._where, self._prepare, self._announce)
        self.lookout = Lookout(self, self.name)
        self.placed = 0
        self.ends = False
        if state:
            values, self.ends, *more = msgpack.unpackb(state)
            self.home.load(values)
            self.placed = more[1] if len(more) > 1 else self.home.placed  # an older program has kept those of the view
            if more:
                self.lookout.load(more[0])
                self.lookout.go_on(self._keeps)

    def created(self) -> None:
        if last := self._last_view():
            self.home.number = last
            self._changed()

    def _last_view(self) -> int:
        """The greatest number of a view that groups removed from here, or lost with a former store, can have had."""
        return int(self.tx.written("meta", VIEWS) or 0)

    def repeated(self, source: str) -> bool:
        """Its name was forgotten while a loss was dealt with, and it is here."""
        return True

    def pack(self) -> bytes:
        packed: bytes = pack([self.home.values(), self.ends, self.lookout.values(), self.placed])
        return packed

    # -- what its home says ------------------------------------------------------------------------------------------

    def _where(self, agent: str) -> str:
        return self.natives.names.homes.home(agent)

    def _prepare(self, servers: list[str], number: int, attempt: int, out: list[str]) -> None:
        dests = tuple(f"{server}/{SERVERS}" for server in servers)
        self._send(dests, Prepare(number, attempt, out))

    def _announce(self, view: View, agents: list[str]) -> None:
        note = Viewed(
            self.name, view.number, view.members, view.joined, view.left, view.giver, view.lacking, view.cut,
            view.heard, view.placed,
        )  # fmt: skip
        servers = self.tx.topology.servers
        self._send(tuple(agent for agent in agents if self._where(agent) in servers), note)

    def _send(self, dests: tuple[str, ...], note: Note) -> None:
        if dests:
            self.natives.send(new_message(self.tx, self.id, dests, note.wire, note.pack(), flags=BOUNCE))

    def recovered(self) -> None:
        """Who has which casts is known in memory alone: all are asked."""
        self._tell_stable({})

    def _stable(self, note: Ack, message: Message) -> None:
        if casts := self.home.acked(home_of(message.source), note.number, note.casts, acks_every(self.tx)):
            self._tell_stable(casts)

    def _tell_stable(self, casts: dict[str, int]) -> None:
        servers, there = dict.fromkeys(map(self._where, self.home.members)), self.tx.topology.servers
        dests = tuple(f"{server}/{SERVERS}" for server in servers if server in there)
        if len(servers) > 1:
            self._send(dests, Stable(self.name, self.home.number, casts))

    def late(self) -> dict[str, list[str]]:
        """Members whose casts have not come to some servers, and to which: so many that the member may wait. What it
        has heard of it tells in steps, and so does who has the casts."""
        window = self.tx.limits.cast_window
        return self.home.late(max(1, window - 2 * acks_every(self.tx) + 1))

    # -- what it is told ---------------------------------------------------------------------------------------------

    def joins(self, note: Join, message: Message) -> None:
        if self._where(message.source) in self.tx.topology.servers:
            self.lookout.joins(message.source, note.patience, note.told)
            self.home.wish(JOIN, message.source, note.needs, message.number)
        self._changed()

    def leaves(self, note: Leave, message: Message) -> None:
        self.home.leave(message.source, not note.gone)
        self._changed()

    def flushes(self, note: Flush, message: Message) -> None:
        self.home.flushed(home_of(message.source), note.number, note.attempt, note.casts)
        self._changed()

    def restored(self, note: Restored, message: Message) -> None:
        self.home.restored(message.source, note.number)
        self._changed()

    def places(self, note: Place, message: Message) -> None:
        """Here is its place: what we send to the members is delivered in the order in which we send it."""
        members, source = self.home.members, message.source
        if members:
            self.placed += 1
            number, place = self.home.number, self.home.place()
            told = Told(self.name, number, source, note.type, note.payload, asked=message.number, place=place)
            self.change()
            send_cast(self.natives, self.id, tuple(members), told, self.id, BOUNCE)
        if source not in members:
            self.natives.post(self.id, f"{self._where(source)}/{SERVERS}", Placed(source, message.number))
        if not members:
            self._send((source,), Returned(self.name, note.type, note.payload, NOBODY))
        self.tx.urgency = COMMIT

    def lost(self, servers: set[str]) -> None:
        """Nothing more comes from these servers."""
        home = self.home
        members = [*home.members, *(home.change.joined if home.change else ()), *(agent for _, agent, _ in home.wishes)]
        if gone := [agent for agent in members if self._where(agent) in servers]:
            number, there = home.number, self.tx.topology.servers
            home.exclude(gone, lost=True)
            for agent in gone:  # what we have told it before may come yet
                if (server := self._where(agent)) in there:
                    self.natives.post(self.id, f"{server}/{SERVERS}", Ended(self.id, agent, view=number))
            self._changed()

    def exclude(self, agent: str) -> None:
        """Nobody waits for a member any more."""
        self.home.exclude([agent])
        self._changed()

    def end(self) -> None:
        """All members leave, and the group is gone."""
        self.ends = True
        self.home.close()
        self._changed()

    # -- who is down -------------------------------------------------------------------------------------------------

    def servers_of_members(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for agent in self.home.members:
            if (server := self._where(agent)) in self.tx.topology.servers and server != self.tx.name:
                found.setdefault(server, []).append(agent)
        return found

    def ask(self, server: str, note: Note) -> None:
        self.natives.post(self.id, f"{server}/{SERVERS}", note)

    def tell_members(self, agents: list[str], note: Note) -> None:
        there = self.tx.topology.servers
        self._send(tuple(each for each in agents if each in self.home.members and self._where(each) in there), note)

    def here(self, note: Here, message: Message) -> None:
        self.lookout.answers(home_of(message.source))

    def alarm(self) -> None:
        self.lookout.alarm(self._keeps)

    def _keeps(self, agent: str) -> bool:
        home = self.home
        joins = home.change is not None and agent in home.change.joined
        return joins or agent in home.members or any(agent == wish for _, wish, _ in home.wishes)

    def _changed(self) -> None:
        self.lookout.go_on(self._keeps)
        self.change()
        self.tx.urgency = COMMIT
        if self.ends and not (self.home.members or self.home.change):
            self.natives.names.forget(self.id[self.id.index("/") + 1 :], self.id)
            self.natives.remove(self.id)
            self.tx.rows.meta[VIEWS] = max(self.home.number, self._last_view())

    def check(self) -> None:
        self.home.check()
        self.lookout.check()


Group.handlers = {
    Join.wire: Group.joins,
    Leave.wire: Group.leaves,
    Flush.wire: Group.flushes,
    Restored.wire: Group.restored,
    Place.wire: Group.places,
    Ack.wire: Group._stable,
    Here.wire: Group.here,
}


def send_cast(natives: Natives, source: str, to: tuple[str, ...], note: Told, home: str, flags: int) -> None:
    """Send a cast of the view that it names."""
    tx, detail = natives.tx, json.dumps({"home": home, "number": note.number})
    message = new_message(tx, source, to, note.wire, note.pack(), flags=flags)
    tx.record(
        "cast", origin=message.origin, number=message.number, agent=source, sent=message.sent, done=tx.now,
        detail=detail,
    )  # fmt: skip
    natives.send(message)


def name_of_group(id: str) -> str:
    """The name of a group, as authors write it."""
    return unquote(id.partition("/")[2].partition(":")[2])
