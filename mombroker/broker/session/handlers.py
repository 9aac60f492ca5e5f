"""What each command of a client does: a handler executes it, raises Wait (again when the key changes) or MomError."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mombroker.broker.commands import (
    MAX_PREFETCH,
    Disconnect,
    Disposition,
    Flow,
    Receipt,
    Send,
    Subscribe,
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of, subscription_name
from mombroker.broker.protocol import Spec
from mombroker.broker.queue.queue import Queue
from mombroker.broker.selectors import message_filter
from mombroker.broker.session.session import Session
from mombroker.broker.topic.patterns import segments_of
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.wire import NOTHING
from mombroker.core import times
from mombroker.core.errors import MomError
from mombroker.core.message import BOUNCE

if TYPE_CHECKING:
    from mombroker.broker.session.service import Sessions

NAME_S = 5.0  # until a name must be decided
START_S = 2.0  # until a subscription of another server must have answered; then the commands go on
OVERFULL = "this server takes no work, it is short of room: {}; see `mom status`"
MAX_TEMPORARY = 1_000  # queues of one connection


class Wait(Exception):
    """A command waits for `key`; after a time it is refused for this reason, or goes on if there is none."""

    def __init__(self, key: str, seconds: float, reason: str, room: bool = False):
        self.key, self.seconds, self.reason, self.room = key, seconds, reason, room
        super().__init__(reason)


class Handlers:
    """What is raised is raised before anything has changed: Wait, or MomError."""

    def __init__(self, service: Sessions):
        self.service, self.server = service, service.server
        self.policies, self.topics = service.policies, service.topics
        self.of: dict[type, Callable[[Session, Any], None]] = {
            Send: self._send, Disposition: self.settle, Transact: self._transact, Sync: self._sync,
            Disconnect: self._disconnect, Uncommitted: self._uncommitted, Flow: self._flow,
            Subscribe: self._subscribe, Unsubscribe: self._unsubscribe,
        }  # fmt: skip

    def _send(self, proxy: Session, command: Send) -> None:
        server, destination = self.server, command.destination
        limits = server.limits
        where = server.names.known.get(name_of(destination), "") if destination.startswith("queue:") else ""
        where = where or self._where(proxy, destination)
        if len(command.body) > limits.max_message or server.alarms.full():
            self._not_too_large(command)
        put = self._put(proxy, command)
        if where:
            queue: Any = server.natives.agents.get(where)
            if queue is None or queue.limited:
                self._admit(where, put)
            if queue is not None and self.service.direct:
                server.send_now(proxy.id, queue, put)
            else:
                server.send(server.note_to(proxy.id, (where,), put, 0, BOUNCE))
        else:
            self.topics.publish(put, proxy.id)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _go(self, proxy: Session, where: str, put: ClientMessage) -> None:
        if where:
            self.server.send(self.server.note_to(proxy.id, (where,), put, 0, BOUNCE))
        else:
            self.topics.publish(put, proxy.id)

    def _put(self, proxy: Session, command: Send) -> ClientMessage:
        sent = now = self.server.now
        expires = command.expires
        if ahead := self.server.ahead:  # the client has another clock than we
            sent -= ahead
            expires = expires and times.within(expires + ahead)
        producer, counter = command.dedup or ("", 0)
        return ClientMessage(
            command.destination, command.shown, command.headers, command.priority, sent, expires,
            times.after(now, command.delay) if command.delay else 0, command.persistent, command.kind, command.group,
            command.group_seq, producer, counter, proxy.sender, command.message, command.typed, NOTHING, command.body,
        )  # fmt: skip

    def _not_too_large(self, command: Send) -> None:
        limit = self.server.limits.max_message
        if len(command.body) > limit:  # the protocol bounds the headers
            raise MomError(f"a body is over {limit} bytes: send less, or raise max_message in [limits]")
        if self.server.full():
            raise Wait(
                "store",
                self.policies.of(command.destination).block_seconds,
                OVERFULL.format(", ".join(self.server.alarms.why())),
            )

    def _where(self, proxy: Session, destination: str) -> str:
        """The agent of a queue; empty for a topic. May have to wait until its name is decided."""
        if destination.startswith("queue:"):
            return self._queue(destination)
        if destination.startswith("temp-"):
            return self._temporary(proxy, destination)
        self._allowed(destination)
        return ""

    def _allowed(self, topic: str) -> None:
        if not self.policies.of(topic).create and name_of(topic) not in self.server.names.known:
            raise MomError(f"{topic} does not exist, and its policy has create = false: see `mom topic create`")

    def _queue(self, destination: str) -> str:
        name = name_of(destination)
        id = self.server.names.known.get(name)
        return id if id is not None else self._decided(name, destination, Queue, b"")

    def _decided(self, name: str, shown: str, cls: type[Queue], state: bytes) -> str:
        """Have somebody made that has this name."""
        if not self.policies.of(shown).create:
            raise MomError(f"{shown} does not exist, and its policy has create = false: see `mom queue create`")
        self.server.names.declare(name, cls.path, state)
        id = self.server.names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            registry = self.server.topology.registry
            raise Wait(name, NAME_S, f"{shown} is new, and {registry}, which decides names, does not answer: try again")
        return id

    def _temporary(self, proxy: Session, destination: str) -> str:
        """As `_where`. One of this connection is made by being used; of others only they know whether it is there."""
        kind, _, name = destination.partition(":")
        home, *rest = name.split("/", 2)
        self.server.distance(home)  # raises for a server that is not on this bus
        if len(rest) < 2:
            raise MomError(f"{destination} is nobody's: write it as the reply-to of a message has it")
        if kind == "temp-topic":
            return ""
        id = f"{home}/{TEMPORARY}{name_of(name)}"
        if name.startswith(f"{proxy.session}/") and id not in proxy.temporary:
            if len(proxy.temporary) >= MAX_TEMPORARY:
                raise MomError(f"{MAX_TEMPORARY} temporary queues of one connection: no more are made")
            proxy.temporary.add(id)
            self.server.natives.agents[id] = Queue(self.service.natives, id, volatile=True)
        return id

    def _admit(self, where: str, put: ClientMessage) -> None:
        """Let a message into a queue, or wait until it has room."""
        policy, reason = self.policies.of(put.destination), f"{put.destination} is full"
        if policy.max_bytes and put.size > policy.max_bytes:
            raise MomError(
                f"a message of {put.size} bytes never has room in {put.destination}: send less, or raise max_bytes of "
                f"its policy, now {policy.max_bytes}"
            )
        queue: Any = self.server.natives.agents.get(where)
        if queue is None:
            self.server.names.present(where, put.destination)
        if queue.admit(put) if queue is not None else where not in self.service.full:
            return
        if policy.overflow == "reject":
            raise MomError(f"{reason}: let somebody take messages from it, or raise the limit of its policy")
        raise Wait(where, policy.block_seconds, f"{reason}, and was so for {policy.block_seconds:g} s", room=True)

    def _transact(self, proxy: Session, command: Transact) -> None:
        """All of it in this batch, or nothing."""
        for each in command.commands:
            if not isinstance(each, Send) and each.tag not in proxy.tags:
                raise MomError("the transaction settles what is settled already, or was never delivered here")
        sends: list[tuple[str, ClientMessage]] = []
        for each in command.commands:
            if isinstance(each, Send):
                self._not_too_large(each)
                sends.append((self._where(proxy, each.destination), self._put(proxy, each)))
        self._not_too_many(sends)
        try:
            for where, put in sends:
                if where:
                    self._admit(where, put)
        except (Wait, MomError):
            for where, put in sends:
                if put.reserved:
                    queue: Any = self.server.natives.agents[where]
                    queue.release_room(put)
            raise
        going = iter(sends)
        for each in command.commands:
            if isinstance(each, Send):
                self._go(proxy, *next(going))
            elif each.tag in proxy.tags:  # unless an earlier one has settled it too
                proxy.settle(each)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _not_too_many(self, sends: list[tuple[str, ClientMessage]]) -> None:
        """What never fits into a queue need not wait until there is room."""
        puts: dict[str, list[ClientMessage]] = {}
        for where, put in sends:
            if where:
                puts.setdefault(where, []).append(put)
        for those in puts.values():
            shown, size = those[0].destination, sum(put.size for put in those)
            policy = self.policies.of(shown)
            if policy.overflow != "drop-head" and (0 < policy.max_messages < len(those) or 0 < policy.max_bytes < size):
                raise MomError(
                    f"{len(those)} messages of {size} bytes in one transaction never have room in {shown}: commit "
                    f"sooner, or raise max_messages and max_bytes of its policy, now {policy.max_messages} and "
                    f"{policy.max_bytes}"
                )

    def settle(self, proxy: Session, command: Disposition) -> None:
        proxy.settle(command)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _uncommitted(self, proxy: Session, command: Uncommitted) -> None:
        proxy.count_uncommitted(command.tag)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _flow(self, proxy: Session, command: Flow) -> None:
        proxy.flow(command.sub, command.credit, command.drain)
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _sync(self, proxy: Session, command: Sync) -> None:
        if command.receipt is not None:
            proxy.reply(Receipt(command.receipt))

    def _disconnect(self, proxy: Session, command: Disconnect) -> None:
        self._sync(proxy, Sync(command.receipt))
        self.service.close(proxy)

    def _subscribe(self, proxy: Session, command: Subscribe) -> None:
        if command.sub in proxy.subs:
            raise MomError(f"there is a subscription {command.sub!r} already: end it first")
        if command.credit is not None and not 0 <= command.credit <= MAX_PREFETCH:
            raise MomError(f"a subscription begins with a credit of 0 to {MAX_PREFETCH}, not {command.credit}")
        first = command.destinations[0]
        no_local = proxy.sender if command.no_local else ""
        wants = message_filter(command.selector, no_local)
        for destination in command.destinations:
            if destination.startswith("topic:") and not segments_of(destination):
                self._allowed(destination)
        if first.startswith("temp-"):
            self._only_owner(proxy, first)
        if not first.startswith(("topic:", "temp-topic:")):
            id = self._where(proxy, first)
            self.server.names.present(id, first)
            proxy.consume(command, id)
        elif not command.durable:
            proxy.listen(command, wants)
        else:
            spec = Spec(list(command.destinations), command.selector, no_local, command.shared, not command.transient)
            name = subscription_name(proxy.client_id, command.durable, command.transient)
            home = self.server.names.known.get(name)
            if home is None:
                home = self._decided(name, unquote(name), Subscription, Subscription.new(spec))
            self.server.names.present(home, unquote(name))
            proxy.consume(command, home, spec)
            if not home.startswith(f"{self.server.name}/"):  # if its topics change, they must before anything later
                self.service.hold(proxy, Wait(home, START_S, ""))

    def _only_owner(self, proxy: Session, destination: str) -> None:
        if not destination.partition(":")[2].startswith(f"{proxy.session}/"):
            raise MomError(f"{destination} belongs to another connection, which alone may consume from it")

    def _unsubscribe(self, proxy: Session, command: Unsubscribe) -> None:
        id = ""
        if command.delete:
            id = self.server.names.known.get(subscription_name(proxy.client_id, command.durable), "")
            if not id:
                raise MomError(f"there is no durable subscription {command.durable!r}")
            self.server.names.present(id, f"the durable subscription {command.durable!r}")
        if command.sub:
            proxy.unsubscribe(command.sub)
        if command.temporary:
            proxy.delete_temporary(self._temporary(proxy, command.temporary), command.temporary)
        if id:
            proxy.end_subscription(id, command.receipt)
            self.service.hold(proxy, Wait(id, START_S, ""))
        elif command.receipt is not None:
            proxy.reply(Receipt(command.receipt))
