"""A topic in total order on its way from its home to another server, while clients publish (protocols §8.11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any, ClassVar, Protocol

from mombroker.broker.protocol import Opens, Passed, Ready
from mombroker.broker.queue.dedup import Dedup
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.topic.delays import Delays
from mombroker.broker.wire import pack
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, new_message
from mombroker.core.names import CREATE
from mombroker.core.natives import Natives
from mombroker.core.transaction import Transaction
from mombroker.core.turns import Turns

ASKED, POLLS, TURNS, ENDS, GIVES = range(5)  # how far it has come


class Topic(Protocol):
    """What a move needs of a topic."""

    id: str
    name: str
    path: ClassVar[str]
    natives: Natives
    tx: Transaction
    turns: Turns
    delays: Delays | None
    move: Any

    @property
    def destination(self) -> str: ...
    @property
    def dedup(self) -> Dedup: ...
    def post(self, to: str, note: Any) -> None: ...
    def flush(self) -> None: ...
    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None: ...
    def change(self) -> None: ...


class TopicDeparture:
    """At the former home, which places what comes to it to the end.

    1. It waits for servers only to hear that they are there, or that they have passed.
    2. It ends at once, unless it has to give what is not due yet.

    to      the id of the new home
    waits   servers that have still to say that they are there, or to pass; then our own is the last
    """

    __slots__ = ("topic", "to", "phase", "waits")

    def __init__(self, topic: Topic, to: str, phase: int = ASKED, waits: Iterable[str] = ()):
        self.topic, self.to, self.phase, self.waits = topic, to, phase, set(waits)

    def values(self) -> list[Any]:
        return ["to", self.to, self.phase, sorted(self.waits)]

    def shown(self) -> str:
        return f"to {home_of(self.to)}"

    def invite(self) -> None:
        """Have the new home made."""
        topic = self.topic
        payload = topic.path.encode() + b"\n" + pack(["from", topic.id])
        topic.natives.send(new_message(topic.tx, topic.id, (self.to,), CREATE, payload, flags=BOUNCE))

    def taken(self, source: str) -> None:
        """The new home is there."""
        if self.phase == ASKED and source == self.to:
            self.phase, self.waits = POLLS, {*self.topic.tx.topology.servers}
            self._ask(self.waits)
            self.topic.change()

    def refused(self, source: str, reason: str) -> None:
        """The new home is not made."""
        if self.phase == ASKED and source == self.to:
            self._stays(reason)

    def _stays(self, reason: str) -> None:
        topic = self.topic
        topic.move = None
        topic.tx.note(f"{topic.destination} stays on {topic.tx.name}: {reason}")
        topic.change()

    def _ask(self, servers: Set[str]) -> None:
        topic = self.topic
        if servers:
            asked = tuple(f"{name}/_clients" for name in sorted(servers))
            topic.natives.cast(topic.id, asked, Ready(topic.id, self.phase == ENDS))

    def answered(self, server: str, passed: bool) -> None:
        """A server is there; or it has passed, as it says again."""
        if passed:
            self.passed(server)
        elif self.phase == POLLS and server in self.waits:
            self.waits.discard(server)
            self._turns()

    def _turns(self) -> None:
        if self.phase == POLLS and not self.waits:  # what is sent directly waits for all: not while one is down
            self.phase = TURNS
            self.topic.natives.names.move(self.topic.name, self.topic.id, self.to)
        self.topic.change()

    def decided(self) -> None:
        """The name is that of the new home from now on."""
        self.phase, self.waits = ENDS, {*self.topic.tx.topology.servers}
        self.passed(self.topic.tx.name)

    def passed(self, server: str) -> None:
        """Nothing more comes from a server. Our own says so behind all others, and behind all that it has for us."""
        topic = self.topic
        if self.phase == POLLS:
            self.answered(server, passed=False)
        if self.phase != ENDS:
            return
        me = topic.tx.name
        last = self.waits == {me}
        if last or server != me:
            self.waits.discard(server)
        topic.change()
        if self.waits == {me} and not last:
            topic.natives.post(f"{me}/_clients", topic.id, Passed(self.to))
        elif not self.waits:
            self.phase = GIVES
            for page in topic.dedup.pages():
                topic.post(self.to, Opens(self.to, more=True, producers=page))
            topic.flush()
            if topic.delays is None:
                self._open()

    def give(self, delays: Delays) -> None:
        """What is not due yet goes to the new home, page by page."""
        topic, page = self.topic, delays.page()
        topic.turns.soon[topic] = None
        self._open(page, len(delays) > 0)

    def _open(self, page: Sequence[QueuedMessage] = (), more: bool = False) -> None:
        topic = self.topic
        later = {id(item): item.message for item in page if item.message is not None}
        sources = [(item.holder, item.message_id) for item in page if id(item) in later]
        topic.post(self.to, Opens(self.to, [*later.values()], more, sources))
        if not more:
            topic.natives.remove(topic.id)

    def again(self, servers: Set[str]) -> None:
        """What was under way between this server and these may be lost: it is asked anew."""
        topic, to = self.topic, home_of(self.to)
        if self.phase < ENDS and to not in topic.tx.topology.servers:  # it stays
            topic.move = None
        elif self.phase < ENDS and to in servers:
            self.phase, self.waits = ASKED, set()
            self.invite()
        elif self.phase == TURNS and topic.tx.topology.registry in servers:
            topic.natives.names.move(topic.name, topic.id, self.to)
        elif self.phase in (POLLS, ENDS):
            self._ask(self.waits & servers)
        topic.change()

    def lost(self, server: str) -> None:
        """Nothing more comes from a server, which begins anew, or has left."""
        if self.phase >= ENDS:
            self.passed(server)
        elif home_of(self.to) == server:  # whoever is in its place would take us for one who has not heard of that
            self._stays(f"{server}, to which it moved, is lost")
        else:
            if server not in self.topic.tx.topology.servers:
                self.waits.discard(server)
            self.again({server})
            if self.topic.move is self:
                self._turns()

    def check(self) -> None:
        assert bool(self.waits) == (self.phase in (POLLS, ENDS)), "1: it waits for nobody, or for no reason"
        assert self.phase < GIVES or self.topic.delays, "2: it has nothing to give, and does not end"


class TopicArrival:
    """At the new home. What comes to it waits in its inbox."""

    __slots__ = ("topic", "source")

    def __init__(self, topic: Topic, source: str):
        self.topic, self.source = topic, source

    def values(self) -> list[Any]:
        return ["from", self.source]

    def shown(self) -> str:
        return f"from {home_of(self.source)}"

    def reason(self) -> str:
        return f"{home_of(self.source)}, its former home, has sent on all that has come there"

    def check(self) -> None: ...


class TopicEnd:
    """A topic that was deleted, while it kept what was not due. What comes meanwhile waits in its inbox.

    anew   who has asked for the topic to be made again, to live here then; empty: nobody
    """

    __slots__ = ("topic", "anew")

    def __init__(self, topic: Topic, anew: str = ""):
        self.topic, self.anew = topic, anew

    def values(self) -> list[Any]:
        return ["ends", self.anew]

    def shown(self) -> str:
        return "to nowhere: it was deleted"

    def reason(self) -> str:
        return "what it keeps that is not due is given up: it was deleted"

    def check(self) -> None:
        assert self.topic.delays is not None, "it has nothing to give up, and does not end"
