"""What clients have done and seen, and what must be true of it: nothing is lost, repeated unsaid, or out of order.

The model knows only what clients sent, what they were told, and when; it looks at no server, clock or store.
Happens-before runs through a connection, and from the sending of a message to each of its deliveries. Every send and
every new subscription has a bit; the past of an event is a set of such bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Sent:
    """A message.

    at        when it was sent
    exists    its sender has a receipt, or somebody has seen it
    together  those of its transaction, which `settles` these deliveries
    mortal    it may expire, and then be a dead letter
    losable   it may come to nothing: a row of it was damaged, or a policy may drop it
    due       nobody is to see it before
    """

    id: int
    destination: str
    past: int
    at: int
    exists: bool = False
    together: "list[Sent]" = field(default_factory=list)
    settles: "list[Given]" = field(default_factory=list)
    mortal: bool = False
    losable: bool = False
    due: int = 0
    color: str = ""

    @property
    def bit(self) -> int:
        return 1 << self.id


@dataclass(slots=True, eq=False)
class Stream:
    """Deliveries that belong together: of a queue, or of a subscription.

    kind      "queue", "plain", "durable", "shared"
    order     what was seen, each message once, in order; all plain subscriptions of a connection are one order
    begun     bits of the SUBSCRIBE frames that surely began it
    past      what came before it for sure
    known     when a client was told that all servers know it; 0 = never
    complete  it is there to the end
    received  of a queue: taken by one consumer after all is sent, so that what is seen is in the order of its arrival
    seen      message -> counts of its deliveries
    settled   message -> its delivery that was surely settled
    """

    destinations: tuple[str, ...]
    kind: str
    order: "list[tuple[Stream, Sent]]" = field(default_factory=list)
    begun: int = 0
    past: int | None = None
    known: int = 0
    complete: bool = True
    received: bool = False
    seen: dict[int, set[int]] = field(default_factory=dict)
    settled: "dict[int, Given]" = field(default_factory=dict)

    def wants(self, destination: str) -> bool:
        return destination in self.destinations or ("topic:*" in self.destinations and destination.startswith("topic:"))

    def __str__(self) -> str:
        return f"{self.kind} {','.join(self.destinations)}"


@dataclass(slots=True, eq=False)
class Given:
    """A delivery.

    passed_on  messages to queues that its connection sent before it settled this one
    accepted   its client has said so; perhaps nobody has heard it
    void       an operator has given it out again meanwhile
    """

    stream: Stream
    sent: Sent
    count: int
    ack: str
    connection: int = 0
    passed_on: list[Sent] = field(default_factory=list)
    accepted: bool = False
    void: bool = False


class Model:
    def __init__(self) -> None:
        self.bits = 0
        self.messages: dict[int, Sent] = {}
        self.streams: dict[Stream, None] = {}
        self.last: dict[tuple[Stream, int], Given] = {}  # with the highest count
        self.wrong: list[str] = []

    # -- what clients do ---------------------------------------------------------------------------------------------

    def event(self) -> int:
        """The bit of something new."""
        self.bits += 1
        return 1 << self.bits

    def sent(self, destination: str, past: int, at: int) -> Sent:
        self.event()
        sent = self.messages[self.bits] = Sent(self.bits, destination, past, at)
        return sent

    def subscribed(self, stream: Stream, past: int) -> None:
        """Somebody asks for it. An earlier attempt may have come to nothing, or not."""
        self.streams[stream] = None
        stream.past = past if stream.past is None else stream.past & past

    # -- what they are told ------------------------------------------------------------------------------------------

    def exists(self, sent: Sent) -> None:
        for each in sent.together or [sent]:
            each.exists = True
        for given in sent.settles:
            self.settled(given)

    def settled(self, given: Given) -> None:
        if not given.void:
            given.stream.settled[given.sent.id] = given

    def released(self, stream: Stream) -> None:
        """An operator gives out again what consumers have: that they settle it counts no more."""
        for (each, id), given in self.last.items():
            if each is stream and id not in stream.settled:
                given.void = True

    def saw(self, given: Given) -> None:
        stream, sent, count = given.stream, given.sent, given.count
        self.streams[stream] = None
        self.exists(sent)
        counts = stream.seen.setdefault(sent.id, set())
        if not counts:
            stream.order.append((stream, sent))
        elif count in counts:
            self.wrong.append(f"{stream} saw {sent.id} again with the count {count}")
        settled = stream.settled.get(sent.id)
        if settled and count > settled.count and not self._taken_over(settled, given):
            self.wrong.append(f"{stream} saw {sent.id} again after its acknowledgement was confirmed")
        counts.add(count)
        last = self.last.get((stream, sent.id))
        if last is None or last.count < count:
            self.last[stream, sent.id] = given

    def _taken_over(self, settled: Given, given: Given) -> bool:
        """Whoever takes a durable subscription over may get again what is settled, but not at its home yet."""
        return given.stream.kind == "durable" and given.connection != settled.connection

    # -- the verdict -------------------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """What is wrong once everything has been taken."""
        wrong = self.wrong[:3]
        for stream in self.streams:
            wrong += list(self._missing(stream))[:2]
        ordered = [each for each in self.streams if each.kind in ("plain", "durable") or each.received]
        orders = {id(stream.order): stream.order for stream in ordered}
        for order in orders.values():
            wrong += list(self._disorder(order))[:2]
        return wrong + list(self._half_done())[:2]

    def _missing(self, stream: Stream) -> Iterator[str]:
        seen = sum(1 << id for id in stream.seen)
        for sent in self.messages.values():
            if sent.id in stream.seen:
                if (stream.past or 0) & sent.bit:
                    yield f"{stream} saw {sent.id}, which precedes it"
            elif stream.complete and self._required(stream, sent, seen):
                yield f"{stream} missed {sent.id} to {sent.destination}"

    def _required(self, stream: Stream, sent: Sent, seen: int) -> bool:
        """Must a stream that has seen so much, and is there, see this message?"""
        if not sent.exists or sent.mortal or sent.losable or not stream.wants(sent.destination):
            return False
        if stream.kind == "queue" or sent.past & (stream.begun | seen):
            return True
        return 0 < stream.known < sent.at

    def _disorder(self, order: list[tuple[Stream, Sent]]) -> Iterator[str]:
        """What a message depends on comes before it, if any of these streams has to see it."""
        seen = {stream: 0 for stream, _ in order}
        wanted = {stream: self._wanted(stream) for stream in seen}
        for stream, sent in order:
            for other, before in seen.items():
                for id in _ids(sent.past & wanted[other] & ~before & ~(other.past or 0)):
                    cause = self.messages[id]
                    there = other is stream or other.complete
                    if id in other.seen or (there and self._required(other, cause, before)):
                        what = "before" if id in other.seen else "without"
                        yield f"{stream} saw {sent.id} {what} {id}, on which it depends, of {other}"
            seen[stream] |= sent.bit

    def _wanted(self, stream: Stream) -> int:
        return sum(sent.bit for sent in self.messages.values() if stream.wants(sent.destination))

    def _half_done(self) -> Iterator[str]:
        """What was passed on before it was settled must be somewhere: else settling it was too early."""
        somewhere = {id for stream, id in self.last if stream.kind == "queue"}
        for (stream, id), given in self.last.items():
            lasts = stream.kind != "plain" and stream.complete and not (given.sent.mortal or given.sent.losable)
            for sent in given.passed_on if lasts else ():
                if sent.id not in somewhere and not sent.losable:
                    yield f"{stream} did not give {id} again, though {sent.id}, as which it was passed on, is lost"


def _ids(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
