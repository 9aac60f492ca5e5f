"""Sending dead letters of agents anew."""

from __future__ import annotations

from dataclasses import replace

from mombroker.broker import destinations
from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Publish
from mombroker.broker.session.service import Sessions
from mombroker.broker.verbs.base import DestinationVerbs
from mombroker.broker.wire import note_of
from mombroker.core.errors import MomError, short
from mombroker.core.ids import home_of
from mombroker.core.message import Message, decode, new_message
from mombroker.core.reaction import ASK
from mombroker.core.requests import Reply, changes
from mombroker.core.verbs import LetterVerbs, letter_of


class RetryVerbs(DestinationVerbs):
    def __init__(self, sessions: Sessions, letters: LetterVerbs):
        super().__init__(sessions)
        self.letters = letters

    @changes
    def retry(self, id: int, target: str = "") -> Reply:
        """Send a dead letter anew: to whoever has the name now that its agent had, or to another queue or agent."""
        row, tx = self.letters.row(id), self.tx
        letter, message = letter_of(row), decode(row.body)
        agents = (letter["agent"],) if letter["agent"] else message.dests
        number = tx.new_id() + 1  # of what is sent
        if message.type in (ClientMessage.wire, Publish.wire):
            where = self._again(message, agents, target)
        else:
            where = [self.names.address(target)] if target else [self._successor(agent) for agent in agents]
            payload = replace(note_of(message), producer="").pack() if message.type == ASK else message.payload
            again = new_message(tx, message.source, tuple(where), message.type, payload)
            self.natives.send(again)
        self.letters.remove(row)
        return {"message": f"{tx.name}#{number}", "to": where}

    def _again(self, message: Message, agents: tuple[str, ...], to: str) -> list[str]:
        """A client's message, to a queue or a topic."""
        note = note_of(message)
        sent = note.message if message.type == Publish.wire else note
        sent.expires = sent.due = 0
        if to:
            sent.destination = to if to.startswith("queue:") else destinations.one(to)
            sent.producer = ""
            if not sent.destination.startswith("queue:"):
                raise MomError(f"{short(to)} is no queue: write NAME or /queue/NAME")
        if to or message.type == ClientMessage.wire:
            name = agents[0].partition("/")[2]
            ours = not to and name.startswith(("sub:", "share:"))  # it was there already when that moved
            where = self.sessions.shown(name) if ours else sent.destination
            self.put(sent, self.home(where), message.source)
            return [where]
        homes = [agent for agent in agents if home_of(agent) in self.tx.topology.servers]
        latest = self.sessions.topics.latest  # as if it were published now
        epochs = {home: latest.get(home, 0) for home in map(home_of, homes)}
        self.natives.cast(message.source, tuple(homes), Publish(sent, epochs))
        return homes

    def _successor(self, agent: str) -> str:
        """Whoever has the name now that an agent had; itself if it had none."""
        home, _, name = agent.partition("/")
        if "/" in name or name.startswith("_"):
            self.names.distance(self.names.homes.home(agent))  # raises for a server that has left the bus
            return agent
        id = self.names.known.get(name)
        if id is None and home == self.tx.name and self.tx.written("agents", agent) is not None:
            return agent
        if id is None:
            raise MomError(f"no agent is named {name} on this bus any more: deploy it, or name another by --to")
        self.names.present(id, name)
        return id
