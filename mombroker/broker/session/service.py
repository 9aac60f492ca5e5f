"""The sessions of a server's clients. It obeys their commands in order, each when its turn has come.

What must wait, waits here, before the proxy, and all later commands of its connection behind it: a name that is being
decided, a full queue, a full store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from mombroker.broker.commands import COMMAND, CONNECTION, Disposition, Refused, Send
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of
from mombroker.broker.native import Native
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import Consume, Dispatch, End, Ended, Full, Publish, Refuse, Settle
from mombroker.broker.queue.dedup import PRODUCERS
from mombroker.broker.queue.lane import Pool
from mombroker.broker.queue.messages import LANES
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.schedule import DELAYED, EXPIRING
from mombroker.broker.session.forwarder import Forwarder
from mombroker.broker.session.handlers import Handlers, Wait
from mombroker.broker.session.session import Session, connection_lost
from mombroker.broker.topic.routing import Topics
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.topic.topic import Topic
from mombroker.broker.wire import KINDS, note_of
from mombroker.core import times
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.core.message import BOUNCE, Message
from mombroker.core.natives import Natives
from mombroker.core.times import SECOND

if TYPE_CHECKING:
    pass

KNOWN_NS = 2 * SECOND  # until all servers must know a subscription; then its receipt names those that may not
POLL_NS = SECOND // 5  # how often a full store is looked at while somebody waits for it
SHARE = 1_000  # commands of a client that are obeyed until others have their turn: some 15 ms
PAGE = 256  # of held messages read at once
WAITING = "_to:"
NATIVES: dict[str, type[Native]] = {cls.path: cls for cls in (Queue, Subscription, Topic)}
TABLES = ("_topics", "_names", "_policies", "_clients")  # what every server has, and is told again when it is new
KEPT = {*LANES, DELAYED, EXPIRING, PRODUCERS}  # the collections of a queue
OWNED = ("queue:", "sub:", "share:", "topic:")


class Connection:
    __slots__ = ("proxy", "commands", "key", "until", "reason", "room", "gone")

    def __init__(self, proxy: Session):
        self.proxy = proxy
        self.commands: deque[Any] = deque()  # not obeyed yet
        self.key = ""  # what the first of them waits for
        self.until = 0
        self.reason = ""
        self.room = False  # it waits for room in a queue, which its own settlements may make
        self.gone = False  # the client has left behind the commands that it still has its turns for


class Sessions(Native):
    """1. Commands of one connection are obeyed in order.
    2. What a command causes, and its reply, is in the batch that was open when it was obeyed.
    3. Who sends many at once is obeyed a share a turn, and others between.
    """

    def __init__(self, natives: Natives):
        super().__init__(natives, f"{natives.tx.name}/_clients")
        server = natives.server
        self.policies = Policies(natives.replication, self.relieve)
        self.topics = Topics(server, self)
        self.pool = Pool()
        self.orders = Handlers(self)
        self.connections: dict[int, Connection] = {}
        self.by_proxy: dict[str, Connection] = {}
        self.waiting: dict[Connection, None] = {}
        self.going: dict[Connection, None] = {}  # they go on in the next turn, the longest waiting first
        self.full: set[str] = set()  # queues of other servers that take nothing
        self.receipts: list[tuple[int, list[int], Callable[[list[str]], None]]] = []  # that wait until all know entries
        self._speaking: list[Session] = []  # with replies in the open batch
        self.direct = False  # the command at hand has just come, and no agent is at work
        natives.agents[self.id] = self
        server.readers.update(dict.fromkeys(KINDS, note_of))

    # -- from the server -----------------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        return path in NATIVES or path == Session.path

    def native(self, path: str, agent: str, state: bytes) -> Native:
        """Raises UnknownNotification for a class or a state that no new one has."""
        cls = NATIVES.get(path)
        if cls is None:
            raise UnknownNotification(f"{path} is not created by a message")
        cls.check_new(state)
        return cls(self.natives, agent, state)

    def recover(self) -> None:
        """Take up queues and subscriptions; end the connections of the last process."""
        server, me = self.server, self.server.name
        for kind in OWNED:
            for id, path in self._stored(f"{me}/{kind}"):
                state = server.reader.agent(id)
                assert state is not None, "a row that was just read"
                if id not in server.natives.agents and path in NATIVES:
                    server.natives.agents[id] = NATIVES[path](self.natives, id, state[1])
        self._regain()
        self._strays()
        for native in list(server.natives.agents.values()):
            if isinstance(native, Queue):
                native.recovered()
        self.topics.recover()
        for id, _ in self._stored(f"{me}/conn:"):
            row = server.reader.agent(id)
            assert row is not None, "a row that was just read"
            connection_lost(server, id, row[1])

    def _strays(self) -> None:
        """Read the items that no queue will: the store names those that are damaged in whose they are."""
        reader, natives = self.server.reader, self.server.natives.agents
        for agent, collection in reader.places():
            if agent in natives and collection in KEPT:
                continue
            after = None
            while (agent in natives or reader.agent(agent) is None) and (
                rows := reader.items(agent, collection, after, PAGE)
            ):
                after = (rows[-1].key, rows[-1].id)

    def _regain(self) -> None:
        """Give the queues back what somebody had when the server stopped."""
        agents, after = self.server.natives.agents, 0
        while rows := self.server.reader.held(after, PAGE):
            for row in rows:
                queue = agents.get(row.agent)
                if isinstance(queue, Queue):
                    queue.regain(row)
            after = rows[-1].id

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
                if connection in self.going:
                    return
                if not connection.key:
                    self.direct = True
                    self._obey(connection, SHARE)
                    self.direct = False
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
            if connection is not None and connection in self.going:
                connection.gone = True
            elif connection is not None:
                self._close(connection)

    def _open(self, event: ClientOpened) -> None:
        server = self.server
        id = f"{server.name}/conn:{server.new_id()}"
        proxy = Session(self.natives, id, self, event)
        server.natives.agents[id] = proxy
        self.connections[event.conn] = self.by_proxy[id] = Connection(proxy)

    def _close(self, connection: Connection, lost: bool = True) -> None:
        proxy = connection.proxy
        self.connections.pop(proxy.conn, None)
        self.by_proxy.pop(proxy.id, None)
        self.waiting.pop(connection, None)
        self.going.pop(connection, None)
        connection.commands.clear()
        proxy.end(lost)

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

    def speaking(self, proxy: Session) -> None:
        self._speaking.append(proxy)
        self.server.mark(2)

    # -- commands ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """A turn of those that have more commands than a share."""
        going, self.going = self.going, {}
        natives, late = self.server.natives, dict[Connection, None]()
        left = SHARE
        self.direct = True
        for connection in going:
            if left > 0:
                left = self._obey(connection, left)
            else:
                late[connection] = None
        self.direct = False
        self.going = late | self.going
        if self.going:
            natives.next_turn(self)
        natives.work -= SHARE - left

    def _obey(self, connection: Connection, left: int) -> int:
        """Obey so many commands of it at most, the rest in the next turn; how many of `left` are left."""
        commands, proxy, orders = connection.commands, connection.proxy, self.orders.of
        while commands and not connection.key:
            if not left:
                self.going[connection] = None
                self.server.natives.next_turn(self)
                return 0
            left -= 1
            command = commands[0]
            try:
                orders[type(command)](proxy, command)
            except Wait as wait:
                self._hold(connection, wait)
                break
            except MomError as error:
                self.refuse(proxy, str(error), command.receipt)
                if proxy.strict:
                    return left
            if commands:
                commands.popleft()
            if not connection.key:
                connection.until = 0
        if connection.gone and self.by_proxy.get(proxy.id) is connection:
            self._close(connection)
        return left

    def refuse(self, proxy: Session, reason: str, receipt: str | None, sub: str = "", scope: str = COMMAND) -> None:
        """One sentence, which ends what `scope` says, or the connection where its protocol knows nothing else."""
        connection = self.by_proxy.get(proxy.id)
        if connection is not None:
            proxy.reply(Refused(reason, receipt, sub, CONNECTION if proxy.strict else scope))
            if proxy.strict:
                self._close(connection)

    def close(self, proxy: Session) -> None:
        """It ends in good order."""
        self._close(self.by_proxy[proxy.id], lost=False)

    # -- waiting -------------------------------------------------------------------------------------------------

    def hold(self, proxy: Session, wait: Wait) -> None:
        """The commands behind the one at hand wait."""
        self._hold(self.by_proxy[proxy.id], wait)

    def _hold(self, connection: Connection, wait: Wait) -> None:
        if not connection.until:
            connection.until = times.after(self.server.now, times.of_seconds(wait.seconds))
        connection.key, connection.reason, connection.room = wait.key, wait.reason, wait.room
        self.waiting[connection] = None
        self.server.natives.alarm(connection.until, self)
        if wait.key == "store":
            self.server.natives.alarm(self.server.now + POLL_NS, self)
        if wait.room:
            self._settle_ahead(connection)

    def _settle_ahead(self, connection: Connection) -> None:
        """A full queue must not wait for the very client that empties it: what settles its messages passes what is sent
        to it. It passes nothing else, or who passes a message on and then settles it might lose it."""
        commands, proxy = connection.commands, connection.proxy
        for command in self._freeing(connection):
            commands.remove(command)
            try:
                self.orders.settle(proxy, command)
            except MomError as error:
                self.refuse(proxy, str(error), command.receipt)
                if proxy.strict:
                    return

    def _freeing(self, connection: Connection) -> list[Disposition]:
        """What settles messages of the queue that the first command waits for, behind nothing but sends to it."""
        commands, found = connection.commands, list[Disposition]()
        for command in commands:
            if isinstance(command, Disposition):
                if connection.proxy.frees(command.tag, connection.key):
                    found.append(command)
            elif not isinstance(command, Send) or command.destination != commands[0].destination:
                break
        return found

    def wake(self, key: str) -> None:
        """What was waited for has come: see again."""
        for connection in [each for each in self.waiting if each.key == key]:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        connection.key, connection.room = "", False
        self.waiting.pop(connection, None)
        self._obey(connection, SHARE)

    def named(self, name: str) -> None:
        self.wake(name)

    def lost(self, server: str) -> None:
        """Another server starts anew: its clients hold nothing any more, and it is told of all entries otherwise."""
        for native in list(self.server.natives.agents.values()):
            if isinstance(native, Queue):
                native.release(lambda proxy: proxy.startswith(f"{server}/"))
        self.topics.known_to(server)

    def freed(self, queue: str) -> None:
        self.wake(queue)

    def relieve(self) -> None:
        """Policies have changed: what was full may not be so any more."""
        for native in list(self.server.natives.agents.values()):
            if isinstance(native, Queue):
                native.free()
            if isinstance(native, Subscription):
                native.idle()

    def resume(self, proxy: Session, home: str) -> None:
        """A subscription of another server has answered."""
        connection = self.by_proxy.get(proxy.id)
        if connection is not None and connection.key == home and not connection.reason:
            connection.until = 0
            self._go_on(connection)

    def alarm(self) -> None:
        now = self.server.now
        for connection in list(self.waiting):
            if connection.key == "store" and not self.server.full():
                self._go_on(connection)
            elif connection.key == "store":
                self.server.natives.alarm(now + POLL_NS, self)
            if connection.key and connection.until <= now:
                if not connection.reason:
                    connection.proxy.unanswered(connection.key)
                    connection.until = 0
                    self._go_on(connection)
                else:
                    self.refuse(connection.proxy, connection.reason, connection.commands[0].receipt)
                    if not connection.proxy.strict:
                        connection.commands.popleft()
                        connection.until = 0
                        self._go_on(connection)
        self.confirm()

    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None:
        """Call `tell` with nobody once all servers know these entries, or after a while with those that may not."""
        if not self.topics.unknown(epochs):
            tell([])
            return
        until = self.server.now + KNOWN_NS
        self.receipts.append((until, epochs, tell))
        self.server.natives.alarm(until, self)

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

    def set_by_our_clock(self, put: ClientMessage, message: Message) -> None:
        """Times that another server has set, if a clock was once far ahead."""
        if put.expires:
            put.expires = self.server.by_our_clock(put.expires, message)
        if put.due:
            put.due = self.server.by_our_clock(put.due, message)

    def send_to_queue(self, put: ClientMessage, source: str) -> None:
        """Send a dead letter; its queue is made if need be."""
        name = name_of(put.destination)
        id = self.server.names.known.get(name) or f"{self.server.name}/{WAITING}{name}"
        self.server.send(self.server.note_to(source, (id,), put, 0, BOUNCE))

    def forget(self, queue: Queue) -> None:
        if not queue.volatile:
            self.server.names.forget(queue.name, queue.id)

    @property
    def dropped(self) -> int:
        return self.topics.dropped

    def describe(self, conn: int) -> dict[str, int]:
        """What waits here for a connection to take it, and what it has not taken in time."""
        connection = self.connections.get(conn)
        proxy = connection.proxy if connection is not None else None
        return {
            "pending": len(proxy.pending) + len(proxy.later) if proxy else 0, "dropped": proxy.dropped if proxy else 0,
        }  # fmt: skip

    def queue_full(self, note: Full, message: Message) -> None:
        if note.full:
            self.full.add(note.queue)
        else:
            self.full.discard(note.queue)
            self.wake(note.queue)

    handlers: ClassVar[Any] = {Full.wire: queue_full}

    # -- for the engine ------------------------------------------------------------------------------------------

    def host(self, agent: str) -> Native | None:
        return Forwarder(self.natives, agent) if agent.startswith(f"{self.server.name}/{WAITING}") else None

    def orphan(self, message: Message, agent: str) -> bool:
        """Nobody is there any more: give back what can be given back. True: the message itself is of no use."""
        server = self.server
        home, _, kind = agent.partition("/")
        if kind.startswith("conn:"):
            if message.type == Dispatch.wire:
                note: Dispatch = note_of(message)
                if back := [item[0] for item in note.items if item[0]]:
                    server.send(
                        server.note_to(agent, (message.source,), Settle(note.consumer, released=back), 0, BOUNCE)
                    )
            return True
        if kind.startswith(OWNED):
            if message.type == Consume.wire:
                reason = server.names.departed(agent, self.shown(kind))
                reason = reason or f"{self.shown(kind)} has just ended: subscribe again"
                refusal = Refuse(note_of(message).consumer, reason)
                server.send(server.note_to(agent, (message.source,), refusal, 0, BOUNCE))
            elif message.type == End.wire:
                ended = Ended(note_of(message).number)
                server.send(server.note_to(agent, (message.source,), ended, 0, BOUNCE))
            return message.type in KINDS and (message.type != ClientMessage.wire or not kind.startswith("queue:"))
        return kind in TABLES and message.type != Publish.wire
