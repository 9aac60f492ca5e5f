"""A bus in the laboratory: the domains of a topology, each with the cores of its members, and routers between them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mombroker import ordering
from mombroker.core.topology import RoutingTable, Topology
from mombroker.lab.domain import NUMBER, Caster, Cores, Domain, Network, Observer, number_of
from mombroker.ordering import Packet
from mombroker.sim.world import World

Arrived = Callable[[int, int, int], None]  # message, the server that sent it, and the one that it is for
Progress = Callable[[int], None]  # told how many copies have arrived, now and then
LOOK = 100  # calls of the world between two times that it is told


class Placed:
    """A network of servers, as the members of one domain see it."""

    def __init__(self, network: Network, places: Sequence[int]):
        self.network, self.places = network, places

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        self.network.carry(self.places[frm], self.places[to], size, arrive, *args)


class PlacedCaster(Placed):
    """The same of a network that copies by itself."""

    network: Caster

    def cast(self, frm: int, size: int, arrive: Callable[..., Any], copies: Mapping[int, tuple[Any, ...]]) -> None:
        places = self.places
        self.network.cast(places[frm], size, arrive, {places[to]: args for to, args in copies.items()})


class Bus:
    """Servers are numbered in the order of the topology. A message goes from router to router, in each domain under the
    stamps of that domain alone; all its packets that leave a server in one domain are one multicast there.
    """

    def __init__(
        self,
        world: World,
        topology: Topology,
        network_of: Callable[[str], Network],
        observers_of: Callable[[str], Iterable[Observer]] = lambda domain: (),
        backends: Mapping[str, str] | None = None,
        payload: int = NUMBER,
    ):
        """By domain: its network (of servers) and its observers. `backends` replace those of the topology; such a
        domain has no options. `payload`: bytes of a message whose sender does not say them."""
        self.world, self.topology, self.payload = world, topology, payload
        self.names = list(topology.servers)
        self.places = {name: at for at, name in enumerate(self.names)}
        self.born = [0]
        self.sizes = [0]
        self.origins = [-1]
        self.finals: list[tuple[int, ...]] = [()]
        self.delays: list[tuple[int, int, int]] = []  # message, server, ns from send to delivery there
        self.on_arrival: Arrived | None = None
        self.domains: dict[str, Domain] = {}
        self._routes: dict[int, RoutingTable] = {}
        for domain in topology.domains.values():
            backend = (backends or {}).get(domain.name) or domain.backend
            kind = ordering.backend(backend)
            own = backend == domain.backend and domain.name not in (backends or {})
            options = kind.resolve(domain.members, domain.options) if own else {}
            network = network_of(domain.name)
            placed = PlacedCaster if isinstance(network, Caster) else Placed
            made = Domain(
                world, Cores(backend, len(domain.members), **options),
                placed(network, [self.places[name] for name in domain.members]),
                observers_of(domain.name),
            )  # fmt: skip
            made.born, made.sizes = self.born, self.sizes
            made.on_deliver = partial(self._delivered, domain.name)
            self.domains[domain.name] = made

    def send(self, me: int, finals: Sequence[int], payload: int | None = None) -> int:
        """The number of the message, of so many bytes. What is for the sender itself is there at once."""
        number = len(self.born)
        self.born.append(self.world.now)
        self.sizes.append(self.payload if payload is None else payload)
        self.origins.append(me)
        self.finals.append(tuple(finals))
        self._forward(number, me, "")
        return number

    def _forward(self, number: int, me: int, came: str) -> None:
        """Hand over what is for this server, send on what is beyond it, seen from the domain in which it came."""
        finals, name = self.finals[number], self.names[me]
        for into, peers in onward(self.routes(me), name, (self.names[final] for final in finals), came).items():
            domain = self.topology.domains[into]
            self.domains[into].stamp(domain.index(name), tuple(map(domain.index, peers)), number)
        if me in finals:
            self.delays.append((number, me, self.world.now - self.born[number]))
            if self.on_arrival:
                self.on_arrival(number, self.origins[number], me)

    def _delivered(self, domain: str, member: int, packet: Packet) -> None:
        self._forward(number_of(packet), self.places[self.topology.domains[domain].members[member]], domain)

    def routes(self, me: int) -> RoutingTable:
        if me not in self._routes:
            self._routes[me] = RoutingTable(self.topology, self.names[me])
        return self._routes[me]

    def hops(self, first: int = 0) -> int:
        """Links that all copies of messages after the `first` have crossed on their routes, relays in a domain not
        counted."""
        return sum(
            self.routes(self.origins[number]).distance(self.names[me])
            for number, me, _ in self.delays
            if number > first
        )

    def finish(self, progress: Progress = lambda arrived: None) -> None:
        """Run until nothing is under way any more: every message is at every server that it is for."""
        while not self.world.run(calls=LOOK):
            progress(len(self.delays))
        for domain in self.domains.values():
            domain.check()
        assert len(self.delays) == sum(map(len, self.finals)), "a message did not come to all that it is for"


def onward(route: RoutingTable, me: str, dests: Iterable[str], came: str) -> dict[str, dict[str, list[str]]]:
    """The step of a router: domain -> next server there -> those of `dests` that are there or beyond it. Nothing goes
    back into the domain that it came in."""
    leaving: dict[str, dict[str, list[str]]] = {}
    for dest in dests:
        if dest != me:
            into, peer = route.hop(dest)
            if into != came:
                leaving.setdefault(into, {}).setdefault(peer, []).append(dest)
    return leaving
