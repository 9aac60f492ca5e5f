"""What comes for agents that are not there any more, or live elsewhere: what it brings or holds is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mombroker.broker.authors.consumers import AgentConsumers
from mombroker.broker.groups.members import Members
from mombroker.broker.groups.notes import Ended as GroupEnded
from mombroker.broker.groups.notes import Join, Place
from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import (
    Consume,
    Dispatch,
    End,
    Ended,
    Moved,
    Opens,
    Page,
    Placed,
    Publish,
    Refuse,
    Run,
    Settle,
    Taken,
)
from mombroker.broker.queue.item import readable
from mombroker.broker.queue.movable import CLOSED
from mombroker.broker.session.recovery import OWNED
from mombroker.broker.wire import KINDS, note_of
from mombroker.core.batch import ItemRow
from mombroker.core.groups.bus import TYPES as MEMBERS
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.names import CREATE
from mombroker.core.natives import Natives
from mombroker.core.reaction import DELETE

KEEPS = ("queue:", "topic:")  # what comes for one that is not there becomes a dead letter
TABLES = (
    "_topics",
    "_names",
    "_policies",
    "_users",
    "_permissions",
    "_clients",
    "_newcomers",
    "_homes",
    "_moves",
)  # what every server has, and is told again when it is new


class Orphans:
    """Settles what nobody is there for.

    id     of the agent in whose name it tells others
    shown  what people call an agent's name
    """

    def __init__(
        self, natives: Natives, id: str, authors: AgentConsumers, members: Members, shown: Callable[[str], str]
    ):
        self.natives, self.id, self.authors, self.members, self.shown = natives, id, authors, members, shown
        self.tx = natives.tx

    def inside(self, message: Message, agent: str) -> Iterator[Message]:
        """The messages of a page or run, each as if its queue or topic was sent it."""
        tx = self.tx
        if message.type == Run.wire:
            for put in note_of(message).messages():
                number = tx.new_id()
                yield Message(tx.name, number, message.source, (agent,), put.wire, b"", tx.now, 0, BOUNCE, b"", put)
        if message.type == Page.wire:
            rows = [ItemRow(0, agent, "", 0, head, body) for head, body, _ in note_of(message).items]
            for item in readable(self.tx.reader, rows):
                assert item.message is not None, "a row has a message"
                note = item.message
                note.message = item.message_id
                number = tx.new_id()
                yield Message(tx.name, number, message.source, (agent,), note.wire, b"", tx.now, 0, BOUNCE, b"", note)

    def settle(self, message: Message, agent: str) -> bool:
        """Nobody is there any more: give back what can be given back. True: the message itself is of no use."""
        post = self.natives.post
        _, _, kind = agent.partition("/")
        if message.type in MEMBERS:
            return True
        if kind.startswith("conn:") or message.type in self.authors.types:
            if message.type == Dispatch.wire:
                note: Dispatch = note_of(message)
                if rows := [item[0] for item in note.items if item[0]]:
                    post(agent, message.source, Settle(note.consumer, released=rows))
            return True
        if kind.startswith(OWNED):
            self.natives.names.outdated(kind, agent, message.origin)
        if kind.startswith("group:"):
            self.natives.names.nobodys(kind, agent)
            if message.type in (Join.wire, Place.wire):
                ended = GroupEnded(agent, message.source, message.type == Place.wire, message.number)
                for server in self.members.servers([message.source]):
                    post(self.id, server, ended)
            return message.type in KINDS
        if kind.startswith(OWNED):
            if (to := self.natives.names.successor(agent)) and self._follow(message, agent, to):
                return True
            if message.type == Taken.wire:
                if home_of(agent) == self.tx.name and agent not in self.natives.agents:  # else it is lost on its way
                    topic = kind.startswith("topic:")
                    post(agent, message.source, Opens(message.source) if topic else Page(step=CLOSED))
            elif message.type in (ClientMessage.wire, Run.wire) and kind.startswith("topic:"):
                post(agent, f"{message.origin}/_topics", Placed({message.source: message.number}, gone=True))
            elif message.type == Consume.wire:
                reason = self.natives.names.departed(agent, self.shown(kind))
                reason = reason or f"{self.shown(kind)} has just ended: subscribe again"
                post(agent, message.source, Refuse(note_of(message).consumer, reason))
            elif message.type == End.wire:
                post(agent, message.source, Ended(note_of(message).number))
            if message.type == CREATE and home_of(agent) == self.tx.name and "/_" not in message.source:
                post(agent, message.source, Refuse(0, f"{self.tx.name} is leaving its bus: choose another server"))
            if message.type in (DELETE, CREATE):
                return True  # by two operators at once; or it is asked for anew
            return message.type in KINDS and (message.type != ClientMessage.wire or not kind.startswith(KEEPS))
        return kind in TABLES and message.type != Publish.wire

    def _follow(self, message: Message, agent: str, to: str) -> bool:
        """What was for an agent that lives elsewhere now; False if that is of no use there. A message is not sent on:
        it would come behind what its sender has sent there since."""
        if message.type == End.wire:
            self.natives.post(message.source, to, note_of(message))
        elif message.type == Consume.wire:
            self.natives.post(agent, message.source, Moved(note_of(message).consumer, to))
        elif message.type == DELETE:
            self.natives.send(new_message(self.tx, message.source, (to,), DELETE, b"", flags=BOUNCE))
        else:
            return False
        return True
