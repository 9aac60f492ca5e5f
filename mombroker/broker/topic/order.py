"""Topics in total order: what is published goes to the topic's home, which sends it on (topic.py, protocols §8.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.names import name_of
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import Placed, Run
from mombroker.broker.topic.topic import Topic
from mombroker.broker.wire import note_of
from mombroker.core.errors import UnknownName
from mombroker.core.message import Message
from mombroker.core.natives import Natives


class Service(Protocol):
    """What this asks of the broker around it."""

    policies: Policies

    def send_by_name(self, message: ClientMessage, source: str, /) -> None: ...
    def placed(self, told: Mapping[str, int], gone: bool = False, /) -> None: ...


class Submitted(NamedTuple):
    """What was published, and has no place yet. It has one when its home has placed a number above `mark`."""

    home: str
    mark: int


class Order:
    """On the publishers' servers."""

    __slots__ = ("natives", "tx", "names", "service")

    def __init__(self, natives: Natives, service: Service):
        self.natives, self.tx, self.names, self.service = natives, natives.tx, natives.names, service
        natives.types.obey(Placed.wire, note_of, self._placed, at_once=False)

    def total(self, destination: str) -> bool:
        return destination.startswith("topic:") and self.service.policies.of(destination).order == "total"

    def home(self, topic: str) -> str:
        """The agent that is the home of a topic, which is made if need be. Raises UnknownName until it is there, and
        NoRoute for one whose server has left the bus."""
        name = name_of(topic)
        id = self.names.known.get(name)
        if id is None:
            self.names.declare(name, Topic.path, b"")
            id = self.names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            raise UnknownName(name)
        self.names.present(id, topic)
        return id

    def submit(self, message: ClientMessage | Run, source: str, direct: bool = False) -> Submitted | None:
        """Send a message, or a run of them, to the home of the topic. None: it has its place, or nobody can wait for
        that, since there is no home yet. `direct`: no agent is at work."""
        home = self.names.known.get(name_of(message.destination))
        if home is None:
            for each in message.messages() if isinstance(message, Run) else [message]:
                self.service.send_by_name(each, source)
            return None
        mark, here = self.tx.new_id(), self.natives.agents.get(home)
        if not direct or not isinstance(here, Topic) or not here.open:
            self.natives.post(source, home, message)
        else:
            self.natives.send_now(source, here, message)
            if here.has_placed(source, mark):
                return None
        return Submitted(home, mark)

    def _placed(self, message: Message) -> None:
        note: Placed = note_of(message)
        self.service.placed(note.told, note.gone)
