"""Topics: the subscription table that every server has, and the expansion of what is published.

A publisher's server sends one copy to each server that has subscriptions; there it is expanded to them in this one
place, in delivery order. Everything that decides who gets a message of a topic is in this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import Publish, Seen, Table
from mombroker.broker.selectors import lookup
from mombroker.broker.topic.order import Order, Submitted
from mombroker.broker.topic.patterns import Patterns, segments_of
from mombroker.broker.topic.subscribers import Epoch, Subscriber, Subscribers
from mombroker.broker.wire import Note, note_of
from mombroker.core.message import Message
from mombroker.core.meta import TOPIC
from mombroker.core.natives import Natives

MAX_ROUTES = 10_000  # remembered ways of topics
TOLD_AT_ONCE = 500  # entries


class Moving(Subscriber, Protocol):
    """A subscription that is on its way from one server to another."""

    def takes(self, knew: Mapping[str, Epoch], /) -> bool: ...  # of a publisher that knew these entries


class Service(Protocol):
    """What topics ask of the broker around them."""

    policies: Policies

    def confirm(self) -> None: ...  # servers have said that they know entries
    def set_by_our_clock(self, message: ClientMessage, envelope: Message, /) -> None: ...
    def send_by_name(self, message: ClientMessage, source: str, /) -> None: ...
    def placed(self, told: Mapping[str, int], gone: bool = False, /) -> None: ...  # see Placed


class Entry:
    """One of our own entries: its subscribers, and the servers that may not know it yet."""

    __slots__ = ("epoch", "pattern", "subscribers", "unknown")

    def __init__(self, epoch: Epoch, pattern: str, unknown: Iterable[str]):
        self.epoch, self.pattern, self.unknown = epoch, pattern, set(unknown)
        self.subscribers = Subscribers()


class Topics:
    """A topic is `topic:NAME` or `temp-topic:SESSION/NAME`, a pattern one of these, with wildcards in the former.

    1. An entry is a server's, has a pattern and an epoch, and never changes; epochs of a server only rise.
    2. Entries are announced before anything that their server sends later, and apply at delivery: a publisher that
       knows one knows all earlier ones of that server that still hold.
    3. The epoch of a subscription is the last one of its entries. It takes a copy only if the publisher knew that, and
       thus all of them: else it could get this message and miss another one of a topic that the publisher did not know.
       One whose topics all have copies that go everywhere misses none of these, and takes whatever comes so.
    4. What is published while a subscription moves it takes at one of its two homes: at the new one if the publisher
       knew the entry that this has announced for the move, else at the former one.

    moving   subscriptions with two homes, of which one is here
    """

    def __init__(self, natives: Natives, service: Service):
        self.natives, self.tx, self.service = natives, natives.tx, service
        self.agent = f"{self.tx.name}/_topics"
        self.table: dict[str, dict[Epoch, str]] = {}  # server -> its entries
        self.latest: dict[str, Epoch] = {}  # server -> the last epoch that we know of it
        self.patterns: Patterns[tuple[str, Epoch]] = Patterns()
        self.routes: dict[str, tuple[list[str], list[Epoch]]] = {}  # topic -> servers, own entries; remembered
        self.own: dict[str, Entry] = {}  # by pattern
        self.entries: dict[Epoch, Entry] = {}  # the same, by epoch
        self.published = self.copies = self.unheard = 0  # unheard: copies without a subscription
        self.moving: dict[Moving, None] = {}
        self.dropped = 0  # messages that connections did not take in time
        self.order = Order(natives, service)
        natives.types.obey(Publish.wire, note_of, self._publish, at_once=False)
        natives.types.obey(Table.wire, note_of, self._table)
        natives.types.obey(Seen.wire, note_of, self._seen)
        for key, value in self.tx.reader.meta(TOPIC).items():
            self._restore(key[len(TOPIC) :], str(value))

    def _restore(self, key: str, value: str) -> None:
        home, _, epoch = key.rpartition(":")
        if home not in self.tx.topology.servers:  # it has left the bus
            self.tx.rows.meta[TOPIC + key] = None
            return
        pattern, _, unknown = value.partition("\n")
        self._put(home, int(epoch), pattern)
        if home == self.tx.name:
            entry = Entry(int(epoch), pattern, self.tx.topology.servers.keys() & unknown.split(","))
            self.own[pattern] = self.entries[entry.epoch] = entry

    def recover(self) -> None:
        """Durable subscriptions have taken up their entries; the others were of connections that are gone."""
        self._withdraw([entry for entry in self.entries.values() if not entry.subscribers])

    # -- subscriptions of this server ----------------------------------------------------------------------------

    def hold(self, subscriber: Subscriber, patterns: Iterable[str]) -> list[Epoch]:
        """From now on `subscriber` gets copies of these topics. Returns the entries that it holds."""
        fresh = []
        entries = []
        for pattern in patterns:
            entry = self.own.get(pattern)
            if entry is None:
                others = [name for name in self.tx.topology.servers if name != self.tx.name]
                entry = self.own[pattern] = Entry(self.tx.new_id(), pattern, others)
                self.entries[entry.epoch] = entry
                fresh.append(entry)
            entries.append(entry)
        since = max(entry.epoch for entry in entries)
        for entry in entries:
            entry.subscribers.add(subscriber, since)
        if fresh:
            self._announce(Table([(entry.epoch, entry.pattern) for entry in fresh], []))
        return [entry.epoch for entry in entries]

    def epoch_of(self, server: str, pattern: str) -> Epoch:
        """The entry of a server for this very pattern, 0 if it has none."""
        return next((epoch for epoch, each in self.table.get(server, {}).items() if each == pattern), 0)

    def release(self, subscriber: Subscriber, epochs: Iterable[Epoch]) -> None:
        ended = []
        for epoch in epochs:
            entry = self.entries[epoch]
            entry.subscribers.remove(subscriber)
            if not entry.subscribers:
                ended.append(entry)
        self._withdraw(ended)

    def _withdraw(self, ended: list[Entry]) -> None:
        for entry in ended:
            del self.entries[entry.epoch]
            if self.own.get(entry.pattern) is entry:  # else another one is there in its place
                del self.own[entry.pattern]
        if ended:
            self._announce(Table([], [entry.epoch for entry in ended]))

    def _announce(self, table: Table) -> None:
        self._send(self.tx.topology.servers, table)

    def tell_again(self, servers: Iterable[str]) -> None:
        """Tell servers of all our entries: a word of some may have been lost on its way."""
        rows = iter([(entry.epoch, entry.pattern) for entry in self.entries.values()])
        while some := list(islice(rows, TOLD_AT_ONCE)):
            self._send(servers, Table(some, []))

    def _send(self, servers: Iterable[str], note: Note) -> None:
        dests = tuple(f"{name}/_topics" for name in servers)
        self.natives.cast(self.agent, dests, note)

    def unknown(self, epochs: Iterable[Epoch]) -> list[str]:
        """Servers of which a subscription with these entries may miss something."""
        found = set(self.natives.newcomers.unmet)
        held = [epoch for epoch in epochs if epoch in self.entries]
        unknown: set[str] = set().union(*(self.entries[epoch].unknown for epoch in held))
        if unknown and not self._all_come(held):
            found |= unknown
        return sorted(found)

    def _all_come(self, epochs: Iterable[Epoch]) -> bool:
        """Do copies of all topics of these entries go everywhere? Topics of a pattern may have several policies."""
        patterns = (self.entries[epoch].pattern for epoch in epochs)
        return all(not segments_of(pattern) and self._everywhere(pattern) for pattern in patterns)

    def _everywhere(self, topic: str) -> bool:
        return self.service.policies.of(topic).announce == "everywhere"

    # -- the table -----------------------------------------------------------------------------------------------

    def _table(self, message: Message) -> None:
        note: Table = note_of(message)
        home, meta = message.origin, self.tx.rows.meta
        for epoch, pattern in note.added:
            entry = self.entries.get(epoch)
            if home == self.tx.name and entry is None:
                continue  # it has ended since, and who tells all again does not know yet
            self._put(home, epoch, pattern)
            meta[f"{TOPIC}{home}:{epoch}"] = _packed(entry) if home == self.tx.name and entry else pattern
        for epoch in note.removed:
            self._drop(home, epoch)
            meta[f"{TOPIC}{home}:{epoch}"] = None
        if home != self.tx.name:
            self.natives.newcomers.pass_on(message)
            if note.added:
                self._send((home,), Seen([epoch for epoch, _ in note.added]))

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all entries; see Newcomers.tables."""
        for home, entries in self.table.items():
            rows = iter(entries.items())
            while some := list(islice(rows, TOLD_AT_ONCE)):
                yield home, Table.wire, Table(some, []).pack()

    def joined(self, servers: Iterable[str]) -> None:
        """Servers are new on this bus: they do not know our entries yet."""
        for entry in self.entries.values():
            entry.unknown.update(servers)
            self.tx.rows.meta[f"{TOPIC}{self.tx.name}:{entry.epoch}"] = _packed(entry)

    def _put(self, home: str, epoch: Epoch, pattern: str) -> None:
        self.table.setdefault(home, {})[epoch] = pattern
        self.latest[home] = max(epoch, self.latest.get(home, 0))
        self.patterns.add(pattern, (home, epoch))
        self._forget_routes(pattern)

    def _drop(self, home: str, epoch: Epoch) -> None:
        pattern = self.table.get(home, {}).pop(epoch, None)
        if pattern is not None:
            self.patterns.remove(pattern, (home, epoch))
            self._forget_routes(pattern)

    def _forget_routes(self, pattern: str) -> None:
        if segments_of(pattern):
            self.routes.clear()
        else:
            self.routes.pop(pattern, None)

    def _seen(self, message: Message) -> None:
        note: Seen = note_of(message)
        for epoch in note.epochs:
            if epoch in self.entries:
                self._known_to(message.origin, self.entries[epoch])
        self.service.confirm()

    def known_to(self, server: str) -> None:
        """A server knows all our entries."""
        for entry in self.entries.values():
            self._known_to(server, entry)

    def left(self, server: str) -> None:
        """A server is not of this bus any more."""
        for epoch in list(self.table.get(server, ())):
            self._drop(server, epoch)
            self.tx.rows.meta[f"{TOPIC}{server}:{epoch}"] = None
        self.table.pop(server, None)
        self.latest.pop(server, None)

    def _known_to(self, server: str, entry: Entry) -> None:
        if server in entry.unknown:
            entry.unknown.discard(server)
            self.tx.rows.meta[f"{TOPIC}{self.tx.name}:{entry.epoch}"] = _packed(entry)

    # -- messages ------------------------------------------------------------------------------------------------

    def publish(self, message: ClientMessage, source: str, direct: bool = False) -> Submitted | None:
        """Send a client's message to a topic on its way: one copy to each server that has subscriptions; or, in total
        order, to its home, which does that. See Order.submit for that and `direct`."""
        policy = self.service.policies.of(message.destination)
        if policy.order and self.order.total(message.destination):
            return self.order.submit(message, source, direct)
        self.send_out((message,), source, policy.announce == "everywhere")
        return None

    def send_out(self, messages: Sequence[ClientMessage], source: str, everywhere: bool) -> None:
        """Messages of one topic. A run of them is expanded in one piece, if it goes no further than this server, to all
        who take whatever comes."""
        servers, _ = self._route(messages[0].destination)
        self.published += len(messages)
        epochs: dict[str, Epoch] = {name: self.latest[name] for name in servers}
        if everywhere:
            servers = list(self.tx.topology.servers)
        if not servers:
            self.unheard += len(messages)
            return
        if len(messages) > 1 and servers == [self.tx.name] and not everywhere and self._send_run(messages, source):
            return
        dests = tuple([f"{name}/_topics" for name in servers])
        for message in messages:
            self.natives.cast(source, dests, Publish(message, None, epochs) if everywhere else Publish(message, epochs))

    def _send_run(self, messages: Sequence[ClientMessage], source: str) -> bool:
        """What `cast` and `_publish` would do with each of them; False if that has to be asked of each."""
        first = messages[0]
        alike = first.alike
        if alike is None or first.expires or first.due or any(message.alike is not alike for message in messages):
            return False
        takers = self._takers(first.destination)
        if takers is None:
            return False
        sizes = [message.size for message in messages]
        numbers = self.natives.sent_here(source, self.agent, Publish.wire, sizes)
        if numbers is None:
            return False
        self.copies += len(messages)
        if not takers:
            self.unheard += len(messages)
        ids = [message.message or f"{self.tx.name}#{number}" for message, number in zip(messages, numbers, strict=True)]
        run = MessageRun(list(messages), ids, sum(len(message.body) for message in messages))
        for taker in takers:
            taker.copy_run(run)
        return True

    def _takers(self, topic: str) -> list[Subscriber] | None:
        """Who takes whatever comes of a topic, if these are all, and no two of one connection: then it is the same for
        each whether messages come to all in turn, or all messages to one after the other."""
        known, takers = self.latest[self.tx.name], dict[Subscriber, None]()
        for epoch in self._route(topic)[1]:
            entry = self.entries.get(epoch)
            if entry is not None:
                takers.update((each, None) for each, since in entry.subscribers.all() if known >= since)
        feeds = {each.feed for each in takers}
        return None if None in feeds or len(feeds) < len(takers) or self.moving else list(takers)

    def _route(self, topic: str) -> tuple[list[str], list[Epoch]]:
        """The servers that have entries for a topic, and those of our own."""
        route = self.routes.get(topic)
        if route is None:
            found = sorted(self.patterns.fit(topic))
            servers = list(dict.fromkeys(home for home, _ in found))
            route = servers, [epoch for home, epoch in found if home == self.tx.name]
            if len(self.routes) >= MAX_ROUTES:
                self.routes.clear()
            self.routes[topic] = route
        return route

    def _publish(self, envelope: Message) -> None:
        """Expand the copy that has come to this server."""
        note: Publish = note_of(envelope)
        message = note.message
        if message.expires or message.due:
            self.service.set_by_our_clock(message, envelope)
        knew = note.known if note.epochs is None else note.epochs
        known = knew.get(self.tx.name, 0)
        id = message.message or f"{envelope.origin}#{envelope.number}"
        get = lookup(message, 1, id)
        subscribers: dict[Subscriber, None] = {}
        for epoch in self._route(message.destination)[1]:
            entry = self.entries.get(epoch)
            if entry is not None:
                for subscriber, since in entry.subscribers.fit(get):
                    if known >= since or (note.epochs is None and self._all_come(subscriber.epochs)):
                        subscribers[subscriber] = None
        for each in self.moving:
            if each in subscribers and not each.takes(knew):
                del subscribers[each]
        self.copies += 1
        if not subscribers:
            self.unheard += 1
        for subscriber in subscribers:
            subscriber.copy(message, id)

    def check(self) -> None:
        for entry in self.entries.values():
            entry.subscribers.check()


def _packed(entry: Entry) -> str:
    return entry.pattern + "\n" + ",".join(sorted(entry.unknown)) if entry.unknown else entry.pattern
