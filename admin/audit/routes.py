"""The stores along a message's route, in the order of the route, and the messages that each of them holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from mombroker import ordering
from mombroker.core.batch import InRow, ItemRow, LinkRow
from mombroker.core.errors import MomError, PeerError
from mombroker.core.gate import GATE, WAITING
from mombroker.core.message import decode
from mombroker.core.meta import DIGEST
from mombroker.core.topology import Domain, RoutingTable, Topology
from mombroker.core.trace import Record

PAGE = 10_000
LAST = (1 << 40) - 1  # above every id and sequence

MessageId = tuple[str, int]  # server of the send, its counter


class Store(Protocol):
    """What is read of one server's store."""

    def meta(self) -> Mapping[str, str | int]: ...
    def log(self, after: int, limit: int) -> list[tuple[int, Record]]: ...
    def links(self) -> list[LinkRow]: ...
    def core(self, domain: str) -> dict[tuple[int, int], bytes]: ...
    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]: ...
    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]: ...
    def items(self, agent: str, collection: str, after: tuple[int, int] | None, limit: int) -> list[ItemRow]: ...


def records(store: Store, after: int) -> Iterator[tuple[int, Record]]:
    while page := store.log(after, PAGE):
        yield from page
        after = page[-1][0]


def servers(revisions: Sequence[Topology], origin: str, final: str) -> set[str]:
    """All on the ways between two servers."""
    found = {origin}
    for server in (origin, final):
        if not any(server in topology.servers for topology in revisions):
            raise MomError(
                f"messages from or for {server} are in the logs, which the topology file has not; give the file that "
                f"these logs were written by, or call {server} so again, if it was renamed"
            )
    for topology in revisions:
        found.update(server for _, server in _path(topology, origin, final))
    return found


def _path(topology: Topology, origin: str, final: str) -> list[tuple[str, str]]:
    """The hops from one server to another, none if one of them is not on the bus."""
    if origin == final or not {origin, final} <= topology.servers.keys():
        return []
    return RoutingTable(topology, origin).path(final)


def places(revisions: Sequence[Topology], origin: str, final: str) -> set[str]:
    """The servers where a message may be on its way: where members pass on for others, all of the domain."""
    found = servers(revisions, origin, final)
    for topology in revisions:
        for name, _ in _path(topology, origin, final):
            if ordering.backend(topology.domains[name].backend).relays:
                found.update(topology.domains[name].members)
    return found


def underway(
    revisions: Sequence[Topology], stores: Mapping[str, Store], origin: str, final: str
) -> Iterator[set[MessageId]]:
    """The messages in each place on the way from `origin` to `final`, place after place. While domains change a message
    goes on the former way, then perhaps waits at a gate, then goes on the new one."""
    for topology in revisions:
        here = origin
        for name, peer in _path(topology, origin, final):
            domain = topology.domains[name]
            if ordering.backend(domain.backend).relays:
                # A packet may take any way through the members; each round in which it is not seen, it has gone on.
                for member in domain.members * len(domain.members):
                    yield _held(stores[member], domain, member)
                    yield _outgoing(stores, domain, member)
            else:
                yield _outgoing(stores, domain, here, peer)
                yield _held(stores[peer], domain, peer)
            here = peer
        for server in [origin, *(server for _, server in _path(topology, origin, final))]:
            yield _at_the_gate(stores[server], server)


def _at_the_gate(store: Store, server: str) -> set[MessageId]:
    """Messages that wait until domains have changed."""
    found: set[MessageId] = set()
    place = None
    while rows := store.items(f"{server}/{GATE}", WAITING, place, PAGE):
        found |= ids(row.body for row in rows)
        place = (rows[-1].key, rows[-1].id)
    return found


def _is_of(store: Store, domain: Domain) -> bool:
    """Does the server work under this domain, now?"""
    digest = store.meta().get(DIGEST + domain.name)
    return digest is None or digest == domain.digest()


def _outgoing(stores: Mapping[str, Store], domain: Domain, me: str, peer: str = "") -> set[MessageId]:
    """Messages in the out-queue of `me` to `peer`, or in all of its out-queues of this domain."""
    found: set[MessageId] = set()
    if not _is_of(stores[me], domain):
        return found
    for link in stores[me].links():
        if link.domain == domain.name and link.peer == (peer or link.peer):
            packets: list[bytes] = []
            seq = 0
            while page := stores[me].queue_out(link.id, seq, LAST, PAGE):
                packets += [data for _, data in page]
                seq = page[-1][0]
            if packets and _is_of(stores[link.peer], domain):  # else its receiver has taken them all
                found |= _unpacked(stores[link.peer], domain, link.peer, me, packets)
    return found


def _unpacked(store: Store, domain: Domain, peer: str, me: str, packets: list[bytes]) -> set[MessageId]:
    """A packet is decoded by its receiver, who may find that it speaks of what he has never sent: hence his own core,
    read after the packets."""
    core = _core(domain, peer, store.core(domain.name))
    try:
        return ids(core.decode(domain.index(me), data).body for data in packets)
    except ValueError as error:
        raise MomError(
            f"{peer} cannot read a packet that waits for it on {me} ({error}): the store of one of them was wiped or "
            "restored from an old copy; run `mom domain reset` for that one (docs/operate.md)"
        ) from None


def _held(store: Store, domain: Domain, me: str) -> set[MessageId]:
    """Messages that came in and wait for their causes, or to be passed on."""
    if not _is_of(store, domain):
        return set()
    core = _core(domain, me, store.core(domain.name))
    return ids(packet.body for packet, _ in [*core.held(), *core.parked()])


def _core(domain: Domain, me: str, rows: dict[tuple[int, int], bytes]) -> ordering.Ordering:
    options = ordering.backend(domain.backend).resolve(domain.members, domain.options)
    return ordering.restore(domain.backend, domain.index(me), len(domain.members), rows, **options)


def ids(bodies: Iterable[bytes]) -> set[MessageId]:
    found = set()
    for body in bodies:
        try:
            message = decode(body)
        except PeerError:
            continue  # a packet that only carries clocks
        found.add((message.origin, message.number))
    return found
