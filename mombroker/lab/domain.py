"""The members of one domain, each with its core: messages in, packets over the network, messages out."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Protocol, runtime_checkable

from mombroker import ordering
from mombroker.ordering import Ordering, Packet, Step
from mombroker.sim.world import World

NUMBER = 8  # bytes of a body: the message's number; what else it would have is not made, but the network is told
_NUMBER = Struct("<Q")


class Network(Protocol):
    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        """`arrive(*args)` when a packet of `size` bytes (0: not known) has got from one member to the other."""


@runtime_checkable
class Caster(Network, Protocol):
    """A network that copies by itself what goes to many."""

    def cast(self, frm: int, size: int, arrive: Callable[..., Any], copies: Mapping[int, tuple[Any, ...]]) -> None:
        """To each of these members one of the packets of a message, `arrive(*args)` with its own arguments."""


class Observer:
    """Watches a domain and counts; it changes nothing. Messages up to `first` are not measured."""

    domain: "Domain"  # set by the domain that it is given to

    def __init__(self, first: int = 0):
        self.first = first

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        """A member has sent a message, in these packets."""

    def announced(self, me: int, packets: Sequence[Packet]) -> None:
        """A member tells others what is of no message, in these packets."""

    def received(self, me: int, packet: Packet, step: Step) -> None:
        """A packet has come to a member, and this is what its core made of it."""


class Cores(Sequence[Ordering]):
    """The cores of a domain, each made when it is first asked for: most of a large bus may take no part in a run.

    To walk through them is to see those that are made.
    """

    def __init__(self, backend: str, size: int, **options: Any):
        self.backend, self.size, self.options = backend, size, options
        self.made: dict[int, Ordering] = {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, me: Any) -> Any:
        if me not in self.made:
            self.made[me] = ordering.create(self.backend, me=me, size=self.size, **self.options)
        return self.made[me]

    def __iter__(self) -> Iterator[Ordering]:
        return iter(self.made.values())


def cores(backend: str, size: int, **options: Any) -> list[Ordering]:
    return [ordering.create(backend, me=me, size=size, **options) for me in range(size)]


class Domain:
    """With `wire`, packets travel as bytes, as on the bus. Without, the objects themselves are handed over, which is
    quicker and right for a core whose packets share nothing that a receiver changes, such as `ks`, `rst`, `vector` and
    `overlay`, or only within one step, such as `daisy` where it passes on at once; then nobody knows bytes. `measure`
    says them instead, in a paper's own measure.

    1. Every message comes to each of its destinations once (asserted by `finish`).
    """

    def __init__(
        self,
        world: World,
        members: Sequence[Ordering],
        network: Network,
        observers: Iterable[Observer] = (),
        wire: bool = True,
        payload: int = NUMBER,
        slot: int = 0,
        measure: Callable[[Packet], int] | None = None,
    ):
        """`payload`: bytes of a body. `slot`: members look at what has come only at multiples of so many ns (paper 002,
        §3.3); 0: at once."""
        self.world, self.members, self.network = world, members, network
        self.observers = list(observers)
        self.wire, self.slot, self.measure, self.payload = wire, slot, measure, payload
        self._caster = network if isinstance(network, Caster) else None
        self.born = [0]  # by number: when the message was sent
        self.sizes = [0]  # by number: bytes of its body
        self.copies = 0  # for others than the sender
        self.delivered = 0
        self.on_deliver: Callable[[int, Packet], None] | None = None  # given all deliveries, after what is passed on
        self._looks: dict[int, list[tuple[int, Packet | bytes]]] = {}  # by member: what waits for its next slot
        for observer in self.observers:
            observer.domain = self

    def send(self, me: int, dests: tuple[int, ...]) -> None:
        """One message. A destination that is the sender itself has it at once, and no packet is made for it."""
        if me in dests:
            dests = tuple(d for d in dests if d != me)
        self.born.append(self.world.now)
        self.sizes.append(self.payload)
        self.stamp(me, dests, len(self.born) - 1)

    def stamp(self, me: int, dests: tuple[int, ...], number: int) -> None:
        """Send a message that has a number; none of `dests` is its sender."""
        self.copies += len(dests)
        packets = self.members[me].send(dests, _NUMBER.pack(number)) if dests else []
        for observer in self.observers:
            observer.sent(me, number, packets)
        self._post(me, packets)
        self._announce(me)

    def _announce(self, me: int) -> None:
        """Each step is a batch of its own."""
        core = self.members[me]
        if core.due:
            packets = core.announce()
            for observer in self.observers:
                observer.announced(me, packets)
            self._post(me, packets)

    def _post(self, me: int, packets: Sequence[Packet]) -> None:
        arrive = self._queue if self.slot else self._arrive
        measure, encode, wire, caster = self.measure, self.members[me].encode, self.wire, self._caster
        sizes = self.sizes
        carry = self.network.carry
        data: Packet | bytes
        copies: dict[int, tuple[int, int, Packet | bytes]] = {}
        size = most = 0
        for packet in packets:
            if wire:
                data = encode(packet)
                size = len(data)
                if packet.body:
                    size += sizes[number_of(packet)] - NUMBER
            else:
                packet.frm, data = me, packet
            if measure:
                size = measure(packet)
            if caster:
                copies[packet.to] = packet.to, me, data
                most = max(most, size)
            else:
                carry(me, packet.to, size, arrive, packet.to, me, data)
        if caster and copies:
            caster.cast(me, most, arrive, copies)

    def _arrive(self, me: int, frm: int, packet: Packet | bytes) -> None:
        core = self.members[me]
        if isinstance(packet, bytes):
            packet = core.decode(frm, packet)
        step = core.receive(frm, packet)
        self.delivered += len(step.deliver)
        for observer in self.observers:
            observer.received(me, packet, step)
        if step.send:
            self._post(me, step.send)
        self._announce(me)
        if self.on_deliver:
            for done in step.deliver:
                self.on_deliver(me, done)

    def _queue(self, me: int, frm: int, packet: Packet | bytes) -> None:
        if me not in self._looks:
            self._looks[me] = []
            self.world.after(-self.world.now % self.slot, self._look, me)
        self._looks[me].append((frm, packet))

    def _look(self, me: int) -> None:
        for frm, packet in self._looks.pop(me):
            self._arrive(me, frm, packet)

    def finish(self) -> None:
        """Run until nothing is under way any more."""
        self.world.run(calls=sys.maxsize)
        self.check()

    def check(self) -> None:
        assert self.delivered == self.copies, f"{self.copies} copies for others, but {self.delivered} deliveries"
        for core in self.members:
            assert not core.held(), f"member {core} still holds packets"


def number_of(packet: Packet) -> int:
    """The number of its message."""
    number: int = _NUMBER.unpack_from(packet.body)[0]
    return number
