"""What each command of a client does: a handler executes it, raises Wait (again when the key changes) or MomError."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import unquote

from mombroker.broker.access.guard import needs
from mombroker.broker.access.permission import CREATE
from mombroker.broker.commands import (
    MAX_PREFETCH,
    AcceptRun,
    Ask,
    Command,
    Denied,
    Disconnect,
    Disposition,
    Find,
    Flow,
    MakeTemporary,
    Missing,
    NoRoom,
    Receipt,
    Receipts,
    Send,
    SendRound,
    SendRun,
    Subscribe,
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.destinations import AGENT, answered
from mombroker.broker.groups.deeds import Deeds
from mombroker.broker.message import USER, Alike, ClientMessage, in_turn, maker
from mombroker.broker.names import TEMPORARY, name_of, subscription_name
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import Run, Spec
from mombroker.broker.queue import rounds
from mombroker.broker.queue.queue import Queue
from mombroker.broker.selectors import message_filter
from mombroker.broker.session.placing import PLACE, WINDOW, Unplaced
from mombroker.broker.session.questions import question, refusal
from mombroker.broker.session.session import Session
from mombroker.broker.session.waiting import PACE, STORE, Wait
from mombroker.broker.topic.order import Submitted
from mombroker.broker.topic.patterns import segments_of
from mombroker.broker.topic.routing import Topics
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.wire import NOTHING
from mombroker.core import times, trace
from mombroker.core.errors import MomError, UnknownName
from mombroker.core.groups.bus import PLACE as PLACE_IT
from mombroker.core.groups.bus import PUT, SEND
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.words import many

NAME_S = 5.0  # until a name must be decided
START_S = 2.0  # until a subscription of another server must have answered; then the commands go on
OVERFULL = "this server takes no work, it is short of room: {}; see `mom status`"
PASSES = (Disposition, AcceptRun, Flow, Uncommitted)  # what waits for no place
MAX_TEMPORARY = 1_000  # queues of one connection
_made = maker(Send, "timestamp", "expires", "due", "producer", "counter", "sender", "annotations")


class Service(Protocol):
    """What the handlers ask of the broker around them."""

    policies: Policies
    topics: Topics
    groups: Deeds

    def send_by_name(self, message: ClientMessage, source: str) -> None: ...


class Handlers:
    """What is raised is raised before anything has changed: Wait, or MomError.

    direct   the command at hand has just come, and no agent is at work
    full     queues of other servers that take nothing
    lacks    says what this server is short of, so that it takes no work
    """

    def __init__(
        self,
        natives: Natives,
        service: Service,
        temporary_queue: Callable[[str], Queue],
        hold: Callable[[Session, Wait], None],
        close: Callable[[Session], None],
        lacks: Callable[[], list[str]],
    ):
        self.natives, self.tx, self.clock, self.names = natives, natives.tx, natives.clock, natives.names
        self.agents, self.known, self.limits = natives.agents, natives.names.known, natives.tx.limits
        self.service, self.policies, self.topics = service, service.policies, service.topics
        self.direct = False
        self.full: set[str] = set()
        self._temporary_queue, self._hold, self._close, self._lacks = temporary_queue, hold, close, lacks
        self.of: dict[type, Callable[[Session, Any], None]] = {
            Send: self._send, SendRun: self._send_run, SendRound: self._send_round, Disposition: self.settle,
            AcceptRun: self._accept, Transact: self._transact,
            Sync: self._done, Disconnect: self._disconnect, Uncommitted: self._uncommitted, Flow: self._flow,
            Subscribe: self._subscribe, Unsubscribe: self._unsubscribe, Ask: self._ask,
            Find: self._find, MakeTemporary: self._make_temporary,
        }  # fmt: skip

    def _send(self, session: Session, command: Send) -> None:
        if command.parent:
            self._send_traced(session, command)
            return
        destination = command.destination
        if session.guard is not None:
            self._may_send(session, destination)
            self._pace(session, 1)
        where = self.known.get(name_of(destination), "") if destination.startswith("queue:") else ""
        where = where or self._where(session, destination)
        if len(command.body) > self.limits.max_message or self.tx.full:
            self._not_too_large(command)
        message = self._message(session, command)
        if where:
            queue: Any = self.agents.get(where)
            if queue is None or queue.settings.limited:
                self._admit(where, message)
            if queue is not None and self.direct:
                self.natives.send_now(session.id, queue, message)
            else:
                self.natives.post(session.id, where, message)
        elif submitted := self.topics.publish(message, session.id, self.direct):
            self._await_place(session, destination, submitted, command.receipt)
            return
        if command.receipt is not None:
            session.reply(Receipt(command.receipt))

    def _send_traced(self, session: Session, command: Send) -> None:
        log = self.tx.rows.log
        begin = trace.begin(log)
        self._send(session, replace(command, parent=""))
        trace.parents(log, begin, session.id, command.parent)

    def _send_run(self, session: Session, run: SendRun) -> None:
        """In one piece, if nothing that may happen to one of them concerns the others; else one by one."""
        to, guard = self._takes_all(run), session.guard
        large = max(map(len, run.bodies)) > self.limits.max_message
        if to is None or large or self.tx.full or (guard is not None and run.destination not in guard.sends):
            _one_by_one(session, run)
            return
        if guard is not None:
            self._pace(session, len(run.bodies))
        if not to and self.topics.order.total(run.destination):
            self._send_in_order(session, run)
            return
        messages = self._messages(session, run)
        if not to:
            self.topics.send_out(messages, session.id, self.policies.of(run.destination).announce == "everywhere")
        elif isinstance(to, str):
            for message in messages:
                self.natives.post(session.id, to, message)
        else:
            if to.settings.limited:
                for message in messages:
                    to.limits.admit(message)
            if not to.take_run(messages, session.id):
                for message in messages:
                    self.natives.send_now(session.id, to, message)
        session.reply(Receipts(run.receipts))

    def _send_round(self, session: Session, run: SendRound) -> None:
        """One after the other, if nothing that may happen to one of them concerns the others; else one by one."""
        queues = self._take_all(session, run)
        if not queues or max(map(len, run.bodies)) > self.limits.max_message or self.tx.full:
            _one_by_one(session, run)
            return
        if session.guard is not None:
            self._pace(session, run.count)
        messages = list(in_turn(self._message(session, run.model), run.places, run.bodies))
        if not rounds.put(queues, messages, session.id):
            for queue, message in zip(queues, messages, strict=True):
                self.natives.send_now(session.id, queue, message)
        session.reply(Receipts(run.receipts))

    def _take_all(self, session: Session, run: SendRound) -> list[Any]:
        """The queues of a round, if all are here and take whatever comes; else none."""
        known, agents, guard, found = self.known, self.agents, session.guard, list[Any]()
        if not self.direct or run.model.parent:
            return found
        for destination, _ in run.places:
            queue: Any = agents.get(known.get(name_of(destination), ""))
            if queue is None or queue.settings.limited or (guard is not None and destination not in guard.sends):
                return []
            found.append(queue)
        return found

    def _send_in_order(self, session: Session, run: SendRun) -> None:
        """The home places all of it at once."""
        note = Run(self._message(session, run.model), run.bodies, run.heads)
        if submitted := self.topics.order.submit(note, session.id, self.direct):
            self._await_place(session, run.destination, submitted, *run.receipts)
        else:
            session.reply(Receipts(run.receipts))

    def _await_place(self, session: Session, topic: str, submitted: Submitted, *receipts: str | None) -> None:
        """The receipts of what was published follow when it has its place."""
        if session.unplaced is None:
            session.unplaced = Unplaced(topic, submitted.home)
        session.unplaced.add(submitted.mark, *receipts)

    def in_turn(self, session: Session, command: Command) -> None:
        """What a client does behind what it has published in total order waits until that has its place, or it might
        overtake that. What settles and asks for messages tells nobody anything, and the home keeps the order of those
        that follow to the same topic, as long as its policy sends them there."""
        unplaced = session.unplaced
        if unplaced is None or isinstance(command, PASSES):
            return
        topic, home = unplaced.topic, unplaced.home.partition("/")[0]
        if not home:
            topic, home = self.service.groups.placing(session.id) or (topic, home)
        same = isinstance(command, Send | SendRun) and command.destination == unplaced.topic
        policy = self.policies.of(topic)
        if (
            same and policy.order and len(unplaced.marks) < WINDOW
            and self.known.get(name_of(unplaced.topic)) == unplaced.home
        ):  # fmt: skip
            return
        whose = f"{home}, its home," if home else "its home"
        reason = f"what was published to {topic} has no place in its order yet: is {whose} up?"
        raise Wait(PLACE, policy.block_seconds, reason)

    def _may_send(self, session: Session, destination: str) -> None:
        guard = session.guard
        if guard is not None and destination not in guard.sends and not _is_own(session, destination):
            guard.may_send(destination)

    def _may_ask(self, session: Session, command: Ask) -> None:
        """An agent can be named by its id, too, behind whose server is its name; its answers are the asker's."""
        if session.guard is not None:
            name = command.destination.removeprefix(AGENT)
            self._may_send(session, AGENT + (name.partition("/")[2] or name))
            if command.reply_to:
                self._may_send(session, answered(command.reply_to))

    def _pace(self, session: Session, count: int) -> None:
        """Messages of a user who may send so many a second only."""
        guard = session.guard
        if guard is not None and guard.pace is not None and (early := guard.pace.wait(self.tx.now, count)):
            raise Wait(PACE, early / times.SECOND, "")

    def _takes_all(self, run: SendRun) -> Queue | str | None:
        """Where a run is to go if all of it can, at once: a queue that is here, the id of one on another server, empty
        for a topic. None: it cannot."""
        destination, count = run.destination, len(run.bodies)
        if run.model.parent:
            return None
        if destination.startswith("topic:"):
            policy = self.policies.of(destination)
            there = not policy.order or (name_of(destination) in self.known and run.size <= self.limits.max_message)
            return "" if policy.create and there else None
        where = self.known.get(name_of(destination), "") if destination.startswith("queue:") else ""
        queue: Any = self.agents.get(where)
        size = run.size
        if queue is not None:
            takes = self.direct and (not queue.settings.limited or queue.limits.has_room(count, size))
            return queue if takes else None
        most, home = self.policies.of(destination).max_bytes, where.partition("/")[0]
        there = home in self.tx.topology.servers and home != self.tx.name and where not in self.full
        return where if there and (not most or size <= most) else None

    def _messages(self, session: Session, run: SendRun) -> list[ClientMessage]:
        first = self._message(session, run.model)
        if first.expires or first.due:  # which may be set by another clock, message by message
            heads = run.heads or [(first.message, first.form)] * len(run.bodies)
            every = zip(run.bodies, heads, strict=True)
            return [replace(first, body=body, message=id, form=form) for body, (id, form) in every]
        alike = Alike(first, bool(run.heads))
        return list(map(alike.headed, run.heads, run.bodies) if run.heads else map(alike.message, run.bodies))

    def _ask(self, session: Session, command: Ask) -> None:
        self._askable(session, command)
        self._pace(session, 1)
        try:
            self._put_question(self._question(session, command), command.parent)
        except MomError as error:
            if not refusal(self.natives, self.service, command, error):
                raise
        self._done(session, command)

    def _put_question(self, message: Message, parent: str) -> None:
        log = self.tx.rows.log
        begin = trace.begin(log)
        self.natives.send(message)
        if parent:
            trace.parents(log, begin, message.source, parent)

    def _askable(self, session: Session, command: Ask) -> None:
        """It may be asked and has room, and its answer a place."""
        self._may_ask(session, command)
        self._not_too_large(command)
        if command.reply_to:
            self._where(session, answered(command.reply_to))

    def _question(self, session: Session, command: Ask) -> Message:
        expires = command.expires and times.within(command.expires + self.clock.ahead)
        return question(self.natives, session.id, command, expires)

    def _message(self, session: Session, command: Send) -> ClientMessage:
        sent = now = self.tx.now
        expires = command.expires
        if ahead := self.clock.ahead:  # the client has another clock than we
            sent -= ahead
            expires = expires and times.within(expires + ahead)
        due = times.after(now, command.delay) if command.delay else 0
        producer, counter = command.dedup or ("", 0)
        added = {USER: session.user} if command.stamp_user and session.user else NOTHING
        return _made(command, sent, expires, due, producer, counter, session.sender, added)

    def _not_too_large(self, command: Send) -> None:
        limit = self.limits.max_message
        if len(command.body) > limit:  # the protocol bounds the headers
            raise MomError(f"a body is over {limit} bytes: send less, or raise max_message in [limits]")
        if self.tx.full:
            seconds = self.policies.of(command.destination).block_seconds
            raise Wait(STORE, seconds, OVERFULL.format(", ".join(self._lacks())))

    def _where(self, session: Session, destination: str) -> str:
        """The agent of a queue; empty for a topic. May have to wait until its name is decided."""
        if destination.startswith("queue:"):
            return self._queue(session, destination)
        if destination.startswith("temp-"):
            return self._temporary(session, destination)
        self._allowed(destination)
        if self.topics.order.total(destination):
            try:
                self.topics.order.home(destination)
            except UnknownName as error:
                raise self._undecided(error.name, destination) from None
        return ""

    def _undecided(self, name: str, shown: str) -> Wait:
        registry = self.tx.topology.registry
        return Wait(name, NAME_S, f"{shown} is new, and {registry}, which decides names, does not answer: try again")

    def _allowed(self, topic: str) -> None:
        if not self.policies.of(topic).create and name_of(topic) not in self.known:
            raise Missing(f"{topic} does not exist, and its policy has create = false: see `mom topic create`")

    def _queue(self, session: Session, destination: str) -> str:
        name = name_of(destination)
        id = self.known.get(name)
        return id if id is not None else self._decided(session, name, destination, Queue, b"")

    def _decided(self, session: Session, name: str, shown: str, cls: type[Queue], state: bytes) -> str:
        """Have somebody made that has this name."""
        if not self.policies.of(shown).create:
            raise Missing(f"{shown} does not exist, and its policy has create = false: see `mom queue create`")
        if session.guard is not None:
            session.guard.judge(CREATE, shown)
        self.names.declare(name, cls.path, state)
        id = self.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            raise self._undecided(name, shown)
        return id

    def _temporary(self, session: Session, destination: str) -> str:
        """As `_where`. One of this connection is made by being used; of others only they know whether it is there."""
        kind, _, name = destination.partition(":")
        home, *rest = name.split("/", 2)
        self.names.distance(home)  # raises for a server that is not on this bus
        if len(rest) < 2:
            raise MomError(f"{destination} is nobody's: write it as the reply-to of a message has it")
        if kind == "temp-topic":
            return ""
        id = f"{home}/{TEMPORARY}{name_of(name)}"
        if _is_own(session, destination) and id not in self.agents:
            if session.guard is not None:
                session.guard.judge(CREATE, destination)
            if len(session.temporary) >= MAX_TEMPORARY:
                raise MomError(f"{MAX_TEMPORARY} temporary queues of one connection: no more are made")
            session.temporary.add(id)
            self.natives.add(self._temporary_queue(id))
        return id

    def _admit(self, where: str, message: ClientMessage) -> None:
        """Let a message into a queue, or wait until it has room."""
        policy, reason = self.policies.of(message.destination), f"{message.destination} is full"
        if policy.max_bytes and message.size > policy.max_bytes:
            raise MomError(
                f"a message of {message.size} bytes never has room in {message.destination}: send less, or raise "
                f"max_bytes of its policy, now {policy.max_bytes}"
            )
        queue: Any = self.agents.get(where)
        if queue is None:
            self.names.present(where, message.destination)
        if queue.limits.admit(message) if queue is not None else where not in self.full:
            return
        if policy.overflow == "reject":
            raise NoRoom(f"{reason}: let somebody take messages from it, or raise the limit of its policy")
        raise Wait(where, policy.block_seconds, f"{reason}, and was so for {policy.block_seconds:g} s", room=True)

    def _transact(self, session: Session, command: Transact) -> None:
        """All of it in this batch, or nothing."""
        deliveries = session.deliveries
        for each in command.commands:
            if not isinstance(each, Send) and each.tag not in deliveries.tags:
                raise MomError("the transaction settles what is settled already, or was never delivered here")
        sends: list[tuple[str, ClientMessage]] = []
        questions: deque[Message] = deque()
        for each in command.commands:
            if isinstance(each, Ask):
                self._askable(session, each)
                questions.append(self._question(session, each))
            elif isinstance(each, Send):
                self._may_send(session, each.destination)
                self._not_too_large(each)
                sends.append((self._where(session, each.destination), self._message(session, each)))
        self._not_too_many(sends)
        self._pace(session, len(sends) + len(questions))
        try:
            for where, message in sends:
                if where:
                    self._admit(where, message)
        except (Wait, MomError):
            for where, message in sends:
                if message.reserved:
                    queue: Any = self.agents[where]
                    queue.limits.release_room(message)
            raise
        going = iter(sends)
        if any(self.topics.order.total(message.destination) for _, message in sends):
            self._transact_in_turn(session, command, going, questions)
            return
        log = self.tx.rows.log
        for each in command.commands:
            if isinstance(each, Ask):
                self._put_question(questions.popleft(), each.parent)
            elif isinstance(each, Send):
                where, message = next(going)
                begin = trace.begin(log) if each.parent else 0
                if where:
                    self.natives.post(session.id, where, message)
                else:
                    self.topics.publish(message, session.id)
                if each.parent:
                    trace.parents(log, begin, session.id, each.parent)
            elif each.tag in deliveries.tags:  # unless an earlier one has settled it too
                deliveries.settle(each)
        self._done(session, command)

    def _transact_in_turn(
        self, session: Session, command: Transact, going: Iterator[tuple[str, ClientMessage]], questions: deque[Message]
    ) -> None:
        """Some of it is in total order: what is sent behind that waits in rows, and is sent though the client goes."""
        outbox = self.service.groups
        for each in command.commands:
            if isinstance(each, Ask):
                outbox.act(session.id, SEND, questions.popleft())
            elif isinstance(each, Send):
                where, message = next(going)
                total = self.topics.order.total(message.destination)
                outbox.act(session.id, PLACE_IT if total else PUT, (where, message))
            elif each.tag in session.deliveries.tags:
                session.deliveries.settle(each)
        if not outbox.waits(session.id):
            self._done(session, command)
            return
        session.unplaced = Unplaced("a topic of the transaction", "")
        session.unplaced.add(0, command.receipt)

    def _not_too_many(self, sends: list[tuple[str, ClientMessage]]) -> None:
        """What never fits into a queue need not wait until there is room."""
        messages: dict[str, list[ClientMessage]] = {}
        for where, message in sends:
            if where:
                messages.setdefault(where, []).append(message)
        for those in messages.values():
            shown, size = those[0].destination, sum(message.size for message in those)
            policy = self.policies.of(shown)
            if policy.overflow != "drop-head" and (0 < policy.max_messages < len(those) or 0 < policy.max_bytes < size):
                raise MomError(
                    f"{shown} never has room for {many(len(those), 'message')} of {size} bytes in one transaction: "
                    f"commit sooner, or raise max_messages and max_bytes of its policy, now {policy.max_messages} and "
                    f"{policy.max_bytes}"
                )

    def settle(self, session: Session, command: Disposition) -> None:
        session.deliveries.settle(command)
        if command.receipt is not None:
            session.reply(Receipt(command.receipt))

    def _accept(self, session: Session, run: AcceptRun) -> None:
        if not session.deliveries.accept(run.tags):
            _one_by_one(session, run)

    def _uncommitted(self, session: Session, command: Uncommitted) -> None:
        session.deliveries.count_uncommitted(command.tag)
        self._done(session, command)

    def _flow(self, session: Session, command: Flow) -> None:
        session.flow(command.sub, command.credit, command.drain)
        self._done(session, command)

    def _done(self, session: Session, command: Command) -> None:
        if command.receipt is not None:
            session.reply(Receipt(command.receipt))

    def _disconnect(self, session: Session, command: Disconnect) -> None:
        self._done(session, command)
        self._close(session)

    def _subscribe(self, session: Session, command: Subscribe) -> None:
        if command.sub in session.subs:
            raise MomError(f"there is a subscription {command.sub!r} already: end it first")
        if command.credit is not None and not 0 <= command.credit <= MAX_PREFETCH:
            raise MomError(f"a subscription begins with a credit of 0 to {MAX_PREFETCH}, not {command.credit}")
        first = command.destinations[0]
        no_local = session.sender if command.no_local else ""
        matches = message_filter(command.selector, no_local)
        for destination in command.destinations:
            if destination.startswith("topic:") and not segments_of(destination):
                self._allowed(destination)
        if first.startswith("temp-") and not _is_own(session, first):
            raise MomError(f"{first} belongs to another connection, which alone may consume from it")
        if session.guard is not None and (lack := session.guard.lacks(needs(command, _owner(session, command)))):
            raise Denied(lack)
        if not first.startswith(("topic:", "temp-topic:")):
            id = self._where(session, first)
            self.names.present(id, first)
            session.consume(command, id)
        elif not command.durable:
            session.listen(command, matches)
        else:
            spec = Spec(list(command.destinations), command.selector, no_local, command.shared, not command.transient)
            name = subscription_name(_owner(session, command), command.durable, command.transient)
            home = self.known.get(name)
            if home is None:
                home = self._decided(session, name, unquote(name), Subscription, Subscription.new(spec))
            self.names.present(home, unquote(name))
            session.consume(command, home, spec)
            if not home.startswith(f"{self.tx.name}/"):  # if its topics change, they must before anything later
                self._hold(session, Wait(home, START_S, ""))

    def _unsubscribe(self, session: Session, command: Unsubscribe) -> None:
        id = ""
        if command.delete:
            if session.guard is not None:
                session.guard.judge(CREATE, unquote(subscription_name(_owner(session, command), command.durable)))
            id = self._durable(session, command)
            self.names.present(id, f"the durable subscription {command.durable!r}")
        if command.sub:
            session.unsubscribe(command.sub)
        if command.temporary:
            session.delete_temporary(self._temporary(session, command.temporary), command.temporary)
        if id:
            session.end_subscription(id, command.receipt)
            self._hold(session, Wait(id, START_S, ""))
        else:
            self._done(session, command)

    def _durable(self, session: Session, command: Find | Unsubscribe) -> str:
        """The agent of a durable subscription."""
        id = self.known.get(subscription_name(_owner(session, command), command.durable))
        if id is None:
            raise Missing(f"there is no durable subscription {command.durable!r}")
        return id

    def _find(self, session: Session, command: Find) -> None:
        self._durable(session, command)
        self._done(session, command)

    def _make_temporary(self, session: Session, command: MakeTemporary) -> None:
        self._temporary(session, command.temporary)
        self._done(session, command)


def _owner(session: Session, command: Subscribe | Unsubscribe | Find) -> str:
    """The client id that is part of the name of a durable or shared subscription."""
    return "" if command.common else session.client_id


def _is_own(session: Session, destination: str) -> bool:
    """Is it a temporary destination of this connection?"""
    kind, _, name = destination.partition(":")
    return kind.startswith("temp-") and name.startswith(f"{session.name}/")


def _one_by_one(session: Session, run: SendRun | SendRound | AcceptRun) -> None:
    """What a run consists of comes next."""
    commands = session.commands
    commands.popleft()
    commands.extendleft(reversed(run.singles()))
    commands.appendleft(run)  # which has been obeyed
