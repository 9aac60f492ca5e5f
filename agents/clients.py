"""ClientService: the connections of a server's clients. It obeys their commands in order, each when its turn has come.

What must wait, waits here, before the proxy, and all later commands of its connection behind it: a name that is being
decided, a full queue, a full store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from mombroker.agents.commands import (
    Ack,
    Disconnect,
    Nack,
    Receipt,
    Refused,
    Send,
    Subscribe,
    Sync,
    Transact,
    Unsubscribe,
)
from mombroker.agents.lane import Pool
from mombroker.agents.native import Native
from mombroker.agents.policy import SECOND, Policies
from mombroker.agents.proxy import AGAIN, BACK, FAILED, REFUSED, TAKEN, Proxy, connection_lost
from mombroker.agents.queue import Queue
from mombroker.agents.subscription import Subscription
from mombroker.agents.topics import Topics
from mombroker.agents.traffic import (
    KINDS,
    NOTHING,
    Consume,
    Dispatch,
    End,
    Full,
    Put,
    Refuse,
    Settle,
    Spec,
    note_of,
)
from mombroker.agents.wanted import wanted
from mombroker.core.errors import MomError
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.core.message import BOUNCE, Message

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

NAME_S = 5.0  # until a name must be decided
START_S = 2.0  # until a subscription of another server must have answered; then the commands go on
KNOWN_NS = 2 * SECOND  # until all servers must know a subscription; then its receipt names those that may not
POLL_NS = SECOND // 5  # how often a full store is looked at while somebody waits for it
OVERFULL = "the store of this server has reached max_store, and no work is taken: see `mom status`"
TEMPORARY, WAITING = "_temp:", "_to:"
MARGIN = 64 * 1024  # bytes that the broker may add to a message
SAFE = " !$&'()*+,;=:@~._-"  # kept in names as they are
NATIVES: dict[str, type[Queue]] = {cls.path: cls for cls in (Queue, Subscription)}
OWNED = ("queue:", "sub:", "share:")


@lru_cache(10_000)
def name_of(destination: str) -> str:
    """The name of a destination on the bus."""
    return quote(destination, safe=SAFE)


class Wait(Exception):
    """A command waits for `key`; after a time it is refused for this reason, or goes on if there is none."""

    def __init__(self, key: str, seconds: float, reason: str, room: bool = False):
        self.key, self.seconds, self.reason, self.room = key, seconds, reason, room
        super().__init__(reason)


class Connection:
    __slots__ = ("proxy", "commands", "key", "until", "reason", "room")

    def __init__(self, proxy: Proxy):
        self.proxy = proxy
        self.commands: deque[Any] = deque()  # not obeyed yet
        self.key = ""  # what the first of them waits for
        self.until = 0
        self.reason = ""
        self.room = False  # it waits for room in a queue, which its own settlements may make


class ClientService(Native):
    """1. Commands of one connection are obeyed in order.
    2. What a command causes, and its reply, is in the batch that was open when it was obeyed.
    """

    def __init__(self, server: AgentServer):
        super().__init__(server, f"{server.name}/_clients")
        self.policies = Policies(server, self.relieve)
        self.topics = Topics(server, self)
        self.pool = Pool()
        self.connections: dict[int, Connection] = {}
        self.by_proxy: dict[str, Connection] = {}
        self.waiting: dict[Connection, None] = {}
        self.full: set[str] = set()  # queues of other servers that take nothing
        self.receipts: list[tuple[int, list[int], Callable[[list[str]], None]]] = []  # that wait until all know entries
        self._speaking: list[Proxy] = []  # with replies in the open batch
        server.engine.natives.agents[self.id] = self

    # -- from the server -----------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take up queues and subscriptions; end the connections of the last process."""
        server, me = self.server, self.server.name
        for kind in OWNED:
            for id, path in self._stored(f"{me}/{kind}"):
                if id not in server.engine.natives.agents and path in NATIVES:
                    state = server.reader.agent(id)
                    assert state is not None, "a row that was just read"
                    native = NATIVES[path](server, id, state[1])
                    server.engine.natives.agents[id] = native
                    native.recovered()
        self.topics.recover()
        for id, _ in self._stored(f"{me}/conn:"):
            row = server.reader.agent(id)
            assert row is not None, "a row that was just read"
            connection_lost(server, id, row[1])

    def _stored(self, prefix: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        after = prefix
        while rows := self.server.reader.agents(after, 1_000):
            mine = [row for row in rows if row[0].startswith(prefix)]
            found += mine
            if len(mine) < len(rows):
                break
            after = rows[-1][0]
        return found

    def step(self, event: Any) -> None:
        if type(event) is ClientCommands:
            connection = self.connections.get(event.conn)
            if connection is not None:
                connection.commands.extend(event.commands)
                if not connection.key:
                    self._obey(connection)
                elif connection.room:
                    self._settle_ahead(connection)
        elif type(event) is ClientWrote:
            connection = self.connections.get(event.conn)
            if connection is not None:
                connection.proxy.wrote(event.tag)
        elif type(event) is ClientOpened:
            self._open(event)
        elif type(event) is ClientClosed:
            connection = self.connections.get(event.conn)
            if connection is not None:
                self._close(connection)

    def _open(self, event: ClientOpened) -> None:
        server = self.server
        id = f"{server.name}/conn:{server.new_id()}"
        proxy = Proxy(server, id, self, event.conn, event.client_id, event.session or id)
        server.engine.natives.agents[id] = proxy
        self.connections[event.conn] = self.by_proxy[id] = Connection(proxy)

    def _close(self, connection: Connection) -> None:
        proxy = connection.proxy
        self.connections.pop(proxy.conn, None)
        self.by_proxy.pop(proxy.id, None)
        self.waiting.pop(connection, None)
        connection.commands.clear()
        proxy.end()

    def replies(self) -> list[tuple[int, list[Any]]]:
        """Of the batch that closes, per connection."""
        if not self._speaking:
            return []
        found = []
        for proxy in self._speaking:
            found.append((proxy.conn, proxy.replies))
            proxy.replies = []
        self._speaking = []
        return found

    def speaking(self, proxy: Proxy) -> None:
        self._speaking.append(proxy)
        self.server.mark(2)

    # -- commands ------------------------------------------------------------------------------------------------

    def _obey(self, connection: Connection) -> None:
        commands, proxy = connection.commands, connection.proxy
        while commands and not connection.key:
            command = commands[0]
            try:
                self.orders[type(command)](self, proxy, command)
            except Wait as wait:
                self._hold(connection, wait)
                return
            except MomError as error:
                self.refuse(proxy, str(error), command.receipt)
                return
            if commands:
                commands.popleft()
            connection.until = 0

    def _send(self, proxy: Proxy, command: Send) -> None:
        where = self._where(command.destination)
        self._not_too_large(command)
        put = self._put(proxy, command)
        if where:
            self._admit(where, put)
        self._go(proxy, where, put)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _go(self, proxy: Proxy, where: str, put: Put) -> None:
        if where:
            self.server.send(self.server.note_to(proxy.id, (where,), put, 0, BOUNCE))
        else:
            self.topics.publish(put, proxy.id)

    def _put(self, proxy: Proxy, command: Send) -> Put:
        now = self.server.now
        producer, counter = command.dedup or ("", 0)
        return Put(
            command.destination, command.shown, command.headers, command.priority, now, command.expires,
            now + command.delay if command.delay else 0, command.persistent, command.kind, command.group,
            command.group_seq, producer, counter, proxy.sender, "", command.typed, NOTHING, command.body,
        )  # fmt: skip

    def _not_too_large(self, command: Send) -> None:
        limit = self.server.limits.max_message - MARGIN
        if len(command.headers) + len(command.body) > limit:
            raise MomError(f"a message of more than {limit} bytes: send less, or raise max_message in [limits]")
        if self.server.full():
            raise Wait("store", self.policies.of(command.destination).block_seconds, OVERFULL)

    def _where(self, destination: str) -> str:
        """The agent of a queue; empty for a topic. May have to wait until its name is decided."""
        if destination.startswith("queue:"):
            return self._queue(destination)
        if destination.startswith("temp-queue:"):
            return self._temporary(destination)
        return ""

    def _queue(self, destination: str) -> str:
        name = name_of(destination)
        id = self.server.names.known.get(name)
        return id if id is not None else self._decided(name, destination, Queue, b"")

    def _decided(self, name: str, shown: str, cls: type[Queue], state: bytes) -> str:
        """Have somebody made that has this name."""
        if not self.policies.of(shown).create:
            raise MomError(f"{shown} does not exist, and its policy has create = false: see `mom queue create`")
        self.server.names.want(name, cls.path, state)
        id = self.server.names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            registry = self.server.topology.registry
            raise Wait(name, NAME_S, f"{shown} is new, and {registry}, which decides names, does not answer: try again")
        return id

    def _temporary(self, destination: str) -> str:
        name = destination[len("temp-queue:") :]
        home = name.partition("/")[0]
        self.server.distance(home)  # raises for a server that is not on this bus
        return f"{home}/{TEMPORARY}{name_of(name)}"

    def _admit(self, where: str, put: Put) -> None:
        """Let a message into a queue, or wait until it has room."""
        queue: Any = self.server.engine.natives.agents.get(where)
        if queue.admit(put) if queue is not None else where not in self.full:
            return
        policy, reason = self.policies.of(put.destination), f"{put.destination} is full"
        if policy.full == "reject":
            raise MomError(f"{reason}: let somebody take messages from it, or raise the limit of its policy")
        raise Wait(where, policy.block_seconds, f"{reason}, and was so for {policy.block_seconds:g} s", room=True)

    def _transact(self, proxy: Proxy, command: Transact) -> None:
        """All of it in this batch, or nothing."""
        for each in command.commands:
            if not isinstance(each, Send) and each.tag not in proxy.tags:
                raise MomError("the transaction settles what is settled already, or was never delivered here")
        sends: list[tuple[str, Put]] = []
        for each in command.commands:
            if isinstance(each, Send):
                self._not_too_large(each)
                sends.append((self._where(each.destination), self._put(proxy, each)))
        try:
            for where, put in sends:
                if where:
                    self._admit(where, put)
        except (Wait, MomError):
            for where, put in sends:
                if put.let_in:
                    self.server.engine.natives.agents[where].leave_out(put)
            raise
        going = iter(sends)
        for each in command.commands:
            if isinstance(each, Send):
                self._go(proxy, *next(going))
            elif each.tag in proxy.tags:  # unless an earlier one has settled it too
                proxy.settle(each.tag, _fate(each))
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _settle(self, proxy: Proxy, command: Ack | Nack) -> None:
        proxy.settle(command.tag, _fate(command))
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _sync(self, proxy: Proxy, command: Sync) -> None:
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _disconnect(self, proxy: Proxy, command: Disconnect) -> None:
        self._sync(proxy, Sync(command.receipt))
        self._close(self.by_proxy[proxy.id])

    def _subscribe(self, proxy: Proxy, command: Subscribe) -> None:
        if command.sub in proxy.subs:
            raise MomError(f"there is a subscription {command.sub!r} already: end it first")
        first = command.destinations[0]
        no_local = proxy.sender if command.no_local else ""
        wants = wanted(command.selector, no_local)
        if first.startswith("temp-"):
            self._only_owner(proxy, first)
        if not first.startswith(("topic:", "temp-topic:")):
            proxy.consume(command, self._where(first))
        elif not command.durable:
            proxy.listen(command, wants)
        else:
            spec = Spec(list(command.destinations), command.selector, no_local, command.shared, not command.transient)
            name = _subscription(proxy, command.durable, command.transient)
            id = self.server.names.known.get(name)
            if id is None:
                id = self._decided(name, unquote(name), Subscription, Subscription.new(spec))
            proxy.consume(command, id, spec)
            if not id.startswith(f"{self.server.name}/"):  # if its topics change, they must before anything later
                self._hold(self.by_proxy[proxy.id], Wait(id, START_S, ""))

    def _only_owner(self, proxy: Proxy, destination: str) -> None:
        kind, _, name = destination.partition(":")
        if not name.startswith(f"{proxy.session}/"):
            raise MomError(f"{destination} belongs to another connection, which alone may consume from it")
        if kind == "temp-queue" and (id := self._temporary(destination)) not in proxy.temporary:
            proxy.temporary.add(id)
            self.server.engine.natives.agents[id] = Queue(self.server, id, volatile=True)

    def _unsubscribe(self, proxy: Proxy, command: Unsubscribe) -> None:
        id = ""
        if command.delete:
            id = self.server.names.known.get(_subscription(proxy, command.durable), "")
            if not id:
                raise MomError(f"there is no durable subscription {command.durable!r}")
        if command.sub:
            proxy.unsubscribe(command.sub)
        if id:
            proxy.post(id, End())
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    orders: ClassVar[dict[type, Callable[[ClientService, Proxy, Any], None]]] = {
        Send: _send, Ack: _settle, Nack: _settle, Transact: _transact, Sync: _sync, Disconnect: _disconnect,
        Subscribe: _subscribe, Unsubscribe: _unsubscribe,
    }  # fmt: skip

    def refuse(self, proxy: Proxy, reason: str, receipt: str | None, sub: str = "") -> None:
        """The connection ends with one sentence."""
        connection = self.by_proxy.get(proxy.id)
        if connection is not None:
            proxy.reply(Refused(reason, receipt, sub))
            self._close(connection)

    # -- waiting -------------------------------------------------------------------------------------------------

    def _hold(self, connection: Connection, wait: Wait) -> None:
        if not connection.until:
            connection.until = self.server.now + int(wait.seconds * SECOND)
        connection.key, connection.reason, connection.room = wait.key, wait.reason, wait.room
        self.waiting[connection] = None
        self.server.engine.alarm(connection.until, self)
        if wait.key == "store":
            self.server.engine.alarm(self.server.now + POLL_NS, self)
        if wait.room:
            self._settle_ahead(connection)

    def _settle_ahead(self, connection: Connection) -> None:
        """A full queue must not wait for the very client that empties it: what settles its messages passes what waits
        for it. Other settlements do not: who passes a message on and then settles it would lose it."""
        commands, proxy, queue = connection.commands, connection.proxy, connection.key
        ahead = [each for each in commands if isinstance(each, Ack | Nack) and proxy.frees(each.tag, queue)]
        for command in ahead:
            commands.remove(command)
            try:
                self._settle(proxy, command)
            except MomError as error:
                self.refuse(proxy, str(error), command.receipt)
                return

    def wake(self, key: str) -> None:
        """What was waited for has come: see again."""
        for connection in [each for each in self.waiting if each.key == key]:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        connection.key, connection.room = "", False
        self.waiting.pop(connection, None)
        self._obey(connection)

    def named(self, name: str) -> None:
        self.wake(name)

    def freed(self, queue: str) -> None:
        self.wake(queue)

    def relieve(self) -> None:
        """Policies have changed: what was full may not be so any more."""
        for native in list(self.server.engine.natives.agents.values()):
            if isinstance(native, Queue):
                native.free()

    def resume(self, proxy: Proxy, home: str) -> None:
        """A subscription of another server has answered."""
        connection = self.by_proxy[proxy.id]
        if connection.key == home and not connection.reason:
            connection.until = 0
            self._go_on(connection)

    def alarm(self) -> None:
        now = self.server.now
        for connection in list(self.waiting):
            if connection.key == "store" and not self.server.full():
                self._go_on(connection)
            elif connection.key == "store":
                self.server.engine.alarm(now + POLL_NS, self)
            if connection.key and connection.until <= now:
                if not connection.reason:
                    connection.proxy.unanswered(connection.key)
                    connection.until = 0
                    self._go_on(connection)
                else:
                    self.refuse(connection.proxy, connection.reason, connection.commands[0].receipt)
        self.confirm()

    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None:
        """Call `tell` with nobody once all servers know these entries, or after a while with those that may not."""
        if not self.topics.unknown(epochs):
            tell([])
            return
        until = self.server.now + KNOWN_NS
        self.receipts.append((until, epochs, tell))
        self.server.engine.alarm(until, self)

    def confirm(self) -> None:
        receipts, self.receipts = self.receipts, []
        for until, epochs, tell in receipts:
            unknown = self.topics.unknown(epochs)
            if unknown and until > self.server.now:
                self.receipts.append((until, epochs, tell))
            else:
                tell(unknown)

    # -- for queues ----------------------------------------------------------------------------------------------

    def shown(self, name: str) -> str:
        """What people call an agent's name."""
        name = unquote(name)
        return f"temp-queue:{name[len(TEMPORARY) :]}" if name.startswith(TEMPORARY) else name

    def send_to_queue(self, put: Put, source: str) -> None:
        """Send a dead letter; its queue is made if need be."""
        name = name_of(put.destination)
        id = self.server.names.known.get(name) or f"{self.server.name}/{WAITING}{name}"
        self.server.send(self.server.note_to(source, (id,), put, 0, BOUNCE))

    def forget(self, queue: Queue) -> None:
        if not queue.volatile:
            self.server.names.forget(queue.name, queue.id)

    def queue_full(self, note: Full, message: Message) -> None:
        if note.full:
            self.full.add(note.queue)
        else:
            self.full.discard(note.queue)
            self.wake(note.queue)

    handlers: ClassVar[Any] = {Full.wire: queue_full}

    # -- for the engine ------------------------------------------------------------------------------------------

    def host(self, agent: str) -> Native | None:
        return Forwarder(self.server, agent) if agent.startswith(f"{self.server.name}/{WAITING}") else None

    def orphan(self, message: Message, agent: str) -> bool:
        """Nobody is there any more: give back what can be given back. True: the message itself is of no use."""
        server, kind = self.server, agent[len(self.server.name) + 1 :]
        if kind.startswith("conn:"):
            if message.type == Dispatch.wire:
                note: Dispatch = note_of(message)
                if back := [item[0] for item in note.items if item[0]]:
                    server.send(server.note_to(agent, (message.source,), Settle(note.consumer, back=back), 0, BOUNCE))
            return True
        if kind.startswith(OWNED):
            if message.type == Consume.wire:
                refusal = Refuse(note_of(message).consumer, f"{self.shown(kind)} has just ended: subscribe again")
                server.send(server.note_to(agent, (message.source,), refusal, 0, BOUNCE))
            return message.type in KINDS and (message.type != Put.wire or not kind.startswith("queue:"))
        return False


class Forwarder(Native):
    """Messages to a queue whose name is not decided yet wait in its inbox."""

    def put(self, put: Put, message: Message) -> None:
        names, name = self.server.names, name_of(put.destination)
        names.want(name, Queue.path, b"")
        self.server.send(self.server.note_to(self.id, (names.resolve(name),), put, 0, BOUNCE))

    handlers: ClassVar[Any] = {Put.wire: put}


def _fate(command: Ack | Nack) -> str:
    if isinstance(command, Ack):
        return TAKEN
    if command.unseen:
        return BACK
    return FAILED if command.requeue is None else AGAIN if command.requeue else REFUSED


def _subscription(proxy: Proxy, name: str, transient: bool = False) -> str:
    """The name of a durable or shared subscription on the bus."""
    return f"{'share' if transient else 'sub'}:{quote(proxy.client_id, safe='')}:{name_of(name)}"
