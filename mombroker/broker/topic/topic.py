"""Topic: one that an operator has created, or the home of one that is in total order.

Else a topic is but a name: what is published does not pass here, see routing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import repeat
from typing import ClassVar, Protocol

import msgpack

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import Opens, Passed, Placed, Ready, Refuse, Run, Taken, Undeliverable
from mombroker.broker.queue.dead_letter import dead_letter
from mombroker.broker.queue.dedup import ROWS_ARE, Dedup
from mombroker.broker.queue.movable import CLOSED
from mombroker.broker.queue.schedule import DELAYED
from mombroker.broker.topic.delays import Delays
from mombroker.broker.topic.moving import GIVES, TopicArrival, TopicDeparture, TopicEnd
from mombroker.broker.wire import pack
from mombroker.core.batch import Damage
from mombroker.core.errors import MomError, UnknownName, UnknownNotification
from mombroker.core.groups.bus import ORDER_OF
from mombroker.core.ids import home_of, is_id
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.natives import Natives


class SendsOut(Protocol):
    """What sends messages to whoever subscribes to their topic."""

    def send_out(self, messages: Sequence[ClientMessage], source: str, everywhere: bool, /) -> None: ...


class Wakes(Protocol):
    """What lets those go on that wait for something."""

    wake: Callable[[str], None]


class Service(Protocol):
    """What it asks of the broker around it."""

    natives: Natives
    policies: Policies

    @property
    def topics(self) -> SendsOut: ...
    @property
    def members(self) -> Wakes: ...
    def shown(self, name: str, /) -> str: ...
    def send_by_name(self, message: ClientMessage, source: str, /) -> None: ...
    def set_by_our_clock(self, message: ClientMessage, envelope: Message, /) -> None: ...
    def placed(self, told: Mapping[str, int], gone: bool = False, /) -> None: ...


class Topic(Native):
    """Known on all servers. What comes is sent on in the order in which it comes, by one sender: so the causal order of
    the bus gives it to all in that order.

    1. What was sent on since the last flush is told to the servers of its publishers, behind it.
    2. While it arrives from another server, or ends, nothing is sent on.

    told     by server and publisher, the number of its last message that was sent on, or waits until it is due
    delays   what is not due yet, if there was such
    dedup    what its producers have published here; made when it is needed
    move     its way to another server, or from one; or its end
    """

    path: ClassVar[str] = "mombroker.agents.topic:Topic"
    deletable = True
    rows_are = ROWS_ARE

    __slots__ = ("service", "name", "told", "delays", "move", "_dedup")

    def __init__(self, service: Service, id: str, state: bytes = b""):
        super().__init__(service.natives, id)
        self.service, self.name = service, id[id.index("/") + 1 :]
        self.told: dict[str, dict[str, int]] = {}
        self.delays: Delays | None = None
        self._dedup: Dedup | None = None
        self.move: TopicDeparture | TopicArrival | TopicEnd | None = None
        if state:
            way, *rest = msgpack.unpackb(state)
            self.move = {"to": TopicDeparture, "from": TopicArrival, "ends": TopicEnd}[way](self, *rest)

    @classmethod
    def check_new(cls, state: bytes) -> None:
        try:
            fits = not state or (
                isinstance(values := msgpack.unpackb(state), list) and values[0] == "from" and is_id(values[1])
                and len(values) == 2
            )  # fmt: skip
        except (ValueError, TypeError, IndexError, msgpack.UnpackException):
            fits = False
        if not fits:
            raise UnknownNotification("a new topic came with a state that cannot be read")

    def pack(self) -> bytes:
        packed: bytes = pack(self.move.values()) if self.move is not None else b""
        return packed

    @property
    def destination(self) -> str:
        return self.service.shown(self.name)

    @property
    def dedup(self) -> Dedup:
        if self._dedup is None:
            self._dedup = Dedup(self.tx, self.id)
        return self._dedup

    @property
    def open(self) -> bool:
        return self.move is None or isinstance(self.move, TopicDeparture)

    # -- what is published ---------------------------------------------------------------------------------------

    def place(self, message: ClientMessage, envelope: Message) -> None:
        self._place([message], envelope)

    def place_run(self, run: Run, envelope: Message) -> None:
        self._place(run.messages(), envelope)

    def _place(self, messages: list[ClientMessage], envelope: Message) -> None:
        if not self.open:
            raise UnknownName(self.awaited)
        first = messages[0]
        fresh = self._fresh(messages) if first.producer else messages
        if first.expires or first.due:
            for message in [each.copy() for each in fresh]:
                self.service.set_by_our_clock(message, envelope)
                if message.due > self.tx.now:
                    self._delay(message, envelope.source, f"{envelope.origin}#{envelope.number}")
                else:
                    message.due = 0  # nobody waits any more, by whatever clock
                    self._send_out(message)
        elif fresh:
            self._send_out(*fresh)
        self.told.setdefault(envelope.origin, {})[envelope.source] = envelope.number
        self.turns.work -= len(messages) - 1
        self.touch()

    def _fresh(self, messages: list[ClientMessage]) -> list[ClientMessage]:
        """Without what producers repeat."""
        return [each for each in messages if self.dedup.fresh(each.producer, each.counter)]

    def _delay(self, message: ClientMessage, source: str, id: str) -> None:
        if self.delays is None:
            self.delays = Delays(self)
        self.delays.add(message, source, id)

    def _send_out(self, *messages: ClientMessage) -> None:
        everywhere = self.service.policies.of(messages[0].destination).announce == "everywhere"
        self.service.topics.send_out(messages, self.id, everywhere)

    def has_placed(self, source: str, mark: int) -> bool:
        """Was a message from here with a number above `mark` sent on? Then nobody need be told."""
        mine = self.told.get(self.tx.name, {})
        if placed := mine.get(source, 0) > mark:
            del mine[source]
        return placed

    def alarm(self) -> None:
        self.touch()

    def flush(self) -> None:
        if self.delays is not None:
            self._go_on(self.delays)
        told, self.told = self.told, {}
        for server, numbers in told.items():
            if server == self.tx.name:
                self.service.placed(numbers)
            else:
                self.post(f"{server}/_topics", Placed(numbers))

    def _go_on(self, delays: Delays) -> None:
        """What is due has its place now. On the way to another server the rest goes there."""
        if isinstance(self.move, TopicDeparture) and self.move.phase == GIVES:
            self.move.give(delays)
        elif isinstance(self.move, TopicEnd):
            self._give_up(delays, self.move)
        elif due := delays.due():
            for message in due:
                message.due = 0
            self._send_out(*due)
            self.turns.work -= len(due)
            self.turns.go_on(self)

    def _give_up(self, delays: Delays, end: TopicEnd) -> None:
        """What is not due becomes dead letters, and agents are told of theirs."""
        reason, now = f"{self.destination} was deleted", self.tx.now - self.natives.clock.ahead
        policy, servers = self.service.policies.of(self.destination), self.tx.topology.servers
        for item in (page := delays.page()):
            if item.message is not None:
                dead = dead_letter(item, item.message, reason, self.destination, now)
                dead.destination = policy.dead_letter or f"queue:DLQ.{self.destination.partition(':')[2]}"
                self.service.send_by_name(dead, self.id)
            home, _, local = item.holder.partition("/")
            if home in servers and local and not local.startswith(("conn:", "_")):
                origin, _, number = item.message_id.partition("#")
                note = Undeliverable(self.id, ClientMessage.wire, reason, origin, int(number))
                self.natives.send(new_message(self.tx, self.id, (item.holder,), note.wire, note.pack(), flags=BOUNCE))
        self.turns.work -= len(page)
        if len(delays):
            self.turns.go_on(self)
            return
        self.delays = None
        if not end.anew:
            self.natives.remove(self.id)
            self.service.members.wake(self.awaited)
        elif end.anew.partition("/")[2] == self.name:  # from where it moves here
            self.move = TopicArrival(self, end.anew)
            self.change()
            self.created()
        else:
            self.opens()

    def damaged(self, damage: Damage) -> None:
        super().damaged(damage)
        if self.delays is not None:
            self.delays.await_next()

    # -- its life ------------------------------------------------------------------------------------------------

    def created(self) -> None:
        if isinstance(self.move, TopicArrival):
            self.post(self.move.source, Taken())

    def recovered(self) -> None:
        if len(self.collection(DELAYED)) or isinstance(self.move, TopicEnd):
            self.delays = Delays(self)
            self.touch()
        else:
            self.collections.clear()

    def repeated(self, source: str) -> bool:
        if isinstance(self.move, TopicEnd):
            self.move.anew = source
            self.change()
            return True
        asks = isinstance(self.move, TopicArrival) and self.move.source == source
        if asks:
            self.created()
        return asks

    def deleted(self) -> None:
        if isinstance(self.move, TopicEnd):
            return
        self.not_moving()
        self.natives.names.forget(self.name, self.id)
        if self.delays is None or not len(self.delays):
            super().deleted()
        else:
            self.move = TopicEnd(self)
            self.change()
            self.touch()

    def not_moving(self) -> None:
        """Raises MomError."""
        if self.move is not None:
            raise MomError(f"{self.destination} is on its way {self.move.shown()}: wait until it is there")

    # -- to another server ---------------------------------------------------------------------------------------

    @property
    def awaited(self) -> str:
        """What waits for it to be open waits for this."""
        return ORDER_OF + self.id

    def depart(self, server: str) -> None:
        """Begin to move to another server, unless it does already. Raises MomError."""
        to = f"{server}/{self.name}"
        if to == self.id or (isinstance(self.move, TopicDeparture) and self.move.to == to):
            return
        self.not_moving()
        self.move = TopicDeparture(self, to)
        self.move.invite()
        self.change()

    def taken(self, note: Taken, message: Message) -> None:
        """The new home is there; or it asks whether something is still to come, and hears of that."""
        if isinstance(self.move, TopicDeparture) and note.step != CLOSED:
            self.move.taken(message.source)

    def refused(self, note: Refuse, message: Message) -> None:
        if isinstance(self.move, TopicDeparture):
            self.move.refused(message.source, note.reason)

    def ready(self, note: Ready, message: Message) -> None:
        if isinstance(self.move, TopicDeparture):
            self.move.answered(home_of(message.source), note.passed)

    def passed(self, note: Passed, message: Message) -> None:
        if isinstance(self.move, TopicDeparture):
            self.move.passed(home_of(message.source))

    def opened(self, note: Opens, envelope: Message) -> None:
        """The former home has placed all that has come to it, or gives what it knows, and what is not due yet."""
        for producer, ranges in note.producers:
            self.dedup.merge(producer, ranges)
        nobody = ("", "")  # an older home does not say it
        for message, (source, id) in zip(note.later, [*note.sources, *repeat(nobody, len(note.later))], strict=False):
            self.service.set_by_our_clock(message, envelope)
            self._delay(message, source, id)
        if not note.more:
            self.opens()

    def opens(self) -> None:
        self.move = None
        self.change()
        self.service.members.wake(self.awaited)

    def again(self, servers: Set[str]) -> None:
        """What was under way between this server and these may be lost."""
        move = self.move
        if isinstance(move, TopicDeparture):
            move.again(servers)
        elif isinstance(move, TopicArrival) and home_of(move.source) in servers:
            self.post(move.source, Taken(CLOSED))

    def lost(self, server: str) -> None:
        """Nothing more comes from a server, and nobody there knows of us."""
        move = self.move
        if isinstance(move, TopicDeparture):
            move.lost(server)
        elif isinstance(move, TopicArrival) and home_of(move.source) == server:
            if self.natives.names.known.get(self.name) == self.id:
                self.opens()
            else:
                self.natives.remove(self.id)

    def check(self) -> None:
        assert not self.told or self in self.turns.touched, "1: publishers are not told"
        assert self.open or not self.told, "2: it sends on before it has arrived"
        if self.move is not None:
            self.move.check()
        if self.delays is not None:
            self.delays.check()


Topic.handlers = {
    ClientMessage.wire: Topic.place,
    Run.wire: Topic.place_run,
    Taken.wire: Topic.taken,
    Refuse.wire: Topic.refused,
    Ready.wire: Topic.ready,
    Passed.wire: Topic.passed,
}
