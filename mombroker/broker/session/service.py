"""The sessions of a server's clients: it opens and closes them, and has their commands obeyed, each when its turn has
come. It is also where queues, topics and the engine meet the broker as a whole.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from mombroker.broker.access.guard import Access
from mombroker.broker.authors.consumers import AgentConsumers
from mombroker.broker.commands import COMMAND, CONNECTION, RUNS, Receipt, Receipts, Refused
from mombroker.broker.groups.deeds import Deeds
from mombroker.broker.groups.group import Group
from mombroker.broker.groups.members import Members
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of
from mombroker.broker.native import Native
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import (
    Full,
    Opens,
    Passed,
    Ready,
)
from mombroker.broker.queue.departure import Departure
from mombroker.broker.queue.lane import Pool
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session import topic_feed
from mombroker.broker.session.forwarder import Forwarder
from mombroker.broker.session.handlers import Handlers
from mombroker.broker.session.judging import Change, Judging
from mombroker.broker.session.orphans import Orphans
from mombroker.broker.session.placing import PLACE
from mombroker.broker.session.questions import REPLY, Asker, Questions
from mombroker.broker.session.recovery import NATIVES, recover
from mombroker.broker.session.session import Session
from mombroker.broker.session.waiting import STORE, Wait, Waiting
from mombroker.broker.shapes import LAST
from mombroker.broker.topic.moving import TopicArrival, TopicDeparture, TopicEnd
from mombroker.broker.topic.routing import Topics
from mombroker.broker.topic.topic import Topic
from mombroker.broker.wire import KINDS, note_of
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.words import many

SHARE = 1_000  # commands of a client that are obeyed until others have their turn: some 15 ms
WAITING = "_to:"
JOINING, JOIN_SECONDS = "join", 60.0  # what is waited for on a server that is new on the bus, and for how long
TOO_EARLY = "{} is new on the bus and has not been told its names and topics yet: see `mom status`, and try again"
LOST = "{} has its home on {}, and that is lost, or a server on the way: whether this was published is unknown"


class Sessions(Native):
    """1. What a command causes, and its reply, is in the batch that was open when it was obeyed.
    2. A client that sends many commands at once has a share of them obeyed in each turn, and others in between.
    3. Nobody takes from where its user may not, by what this server knows: a change ends that where it is delivered,
    and until it has been looked at nothing is given.

    sessions   by the number of their connection
    going      those that go on in the next turn, the longest waiting first
    waiting    those whose first command waits
    replies    of the open batch, by the number of the connection
    access     who may do what
    """

    leaving: Callable[[], bool]

    def __init__(self, natives: Natives, lacks: Callable[[], list[str]]):
        super().__init__(natives, f"{natives.tx.name}/_clients")
        self.policies = Policies(natives.replication, self.relieve)
        self.access, self.judging = Access(natives.replication, self._access_changed), Judging()
        self._obeys: dict[type, Callable[[Session, Any], None]] | None = None  # once it has been told all
        for kind in KINDS:
            natives.types.check(kind, note_of)
        self.topics = Topics(natives, self)
        self.authors = AgentConsumers(natives, self.policies, self.topics)
        self.members = Members(natives)
        self.groups = Deeds(natives, self.members, self.authors.send, self.topics.order)
        self.members.emptied = self._emptied
        self.orphans = Orphans(natives, self.id, self.authors, self.members, self.shown)
        natives.types.obey(Opens.wire, note_of, self._opens, at_once=False)
        self.pool = Pool()
        self.questions = Questions(natives)
        self.commands = Handlers(natives, self, self._temporary_queue, self._hold, self._leave, lacks)
        newcomers = natives.newcomers
        newcomers.tables += [self.policies.told, self.access.users.told, self.access.permissions.told, self.topics.told]
        newcomers.joined, newcomers.met = self.topics.joined, self._met
        if newcomers.waiting:
            self._obeys, self.commands.of = self.commands.of, dict.fromkeys(self.commands.of, self._too_early)
        self.held_back = Waiting(self.tx, self.topics, self.alarm_at, self._go_on, self.commands.settle, self.refuse)
        self.waiting = self.held_back.sessions
        self.sessions: dict[int, Session] = {}
        self.going: dict[Session, None] = {}
        self.replies: dict[int, list[Any]] = defaultdict(list)
        natives.add(self)
        natives.names.on_move, natives.names.on_pair = self.moved, self.paired

    def _temporary_queue(self, id: str) -> Queue:
        return Queue(self, id, volatile=True)

    # -- from the server -----------------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        return path in NATIVES or path == Session.path

    def native(self, path: str, agent: str, state: bytes) -> Native:
        """Raises UnknownNotification for a class or a state that no new one has."""
        cls = NATIVES.get(path)
        if cls is None:
            raise UnknownNotification(f"{path} is not created by a message")
        cls.check_new(state)
        return cls(self, agent, state)

    def recover(self) -> None:
        recover(self, self.topics)
        self.authors.recover()
        self.members.recover()
        for native in [each for each in self.natives.agents.values() if isinstance(each, Group)]:
            native.recovered()
        self.access.users.recover()

    def step(self, event: Any) -> None:
        if type(event) is ClientCommands:
            session = self.sessions.get(event.conn)
            if session is not None:
                session.commands.extend(event.commands)
                if session in self.going:
                    return
                if not session.key:
                    self.commands.direct = True
                    self._obey(session, SHARE)
                    self.commands.direct = False
                elif session.room:
                    self.held_back.settle_ahead(session)
        elif type(event) is ClientWrote:
            session = self.sessions.get(event.conn)
            if session is not None:
                session.deliveries.wrote(event.tag)
        elif type(event) is ClientOpened:
            self._open(event)
        elif type(event) is ClientClosed:
            session = self.sessions.get(event.conn)
            if session is not None and session in self.going:
                session.gone = True
            elif session is not None:
                self.close(session)

    def _send_away(self, session: Session, reason: str) -> None:
        session.reply(Refused(f"{self.tx.name} {reason}: connect to another server", elsewhere=True))
        self.close(session)

    def depart(self) -> None:
        """This server leaves its bus now, with all that it holds; what its clients had is given back by the others."""
        for session in list(self.sessions.values()):
            self._send_away(session, "is leaving its bus")

    def _open(self, event: ClientOpened) -> None:
        id = f"{self.tx.name}/conn:{self.tx.new_id()}"
        session = Session(self.natives, id, self, event)
        self.sessions[event.conn] = session
        self.natives.add(session)
        said = json.dumps({"user": event.user, "client_id": event.client_id})
        self.tx.record("client", agent=id, done=self.tx.now, detail=said)
        self._judge_by(session)
        if reason := self._closed():
            self._send_away(session, reason)
        elif most := self.access.limits(session.user).connections:
            if len({each.name for each in self.sessions.values() if each.user == session.user}) > most:
                self._dismiss(
                    session,
                    f"user {session.user[:80]!r} has {many(most, 'connection')} to {self.tx.name}, as many as it may",
                )

    def check(self) -> None:
        self.topics.check()
        for session in self.sessions.values():
            guard = self.access.guard(session.user)
            waiting = self.judging.pending(session)
            for consumer in session.subs.values():
                may = guard is None or consumer in waiting or not guard.lacks(consumer.needs)
                assert may, "3: somebody takes who may not"
        self.judging.check(self.sessions.values())

    def _closed(self) -> str:
        """Why no client may connect; empty if one may."""
        if self.leaving():
            return "is leaving its bus"
        return "is drained" if self.natives.names.elsewhere else ""

    def close(self, session: Session, lost: bool = True) -> None:
        """`lost`: its connection has not ended in good order."""
        self.sessions.pop(session.conn, None)
        self.waiting.pop(session, None)
        self.going.pop(session, None)
        self.judging.forget(session)
        session.end(lost)

    def _leave(self, session: Session) -> None:
        self.close(session, lost=False)

    def _dismiss(self, session: Session, reason: str) -> None:
        """End its connection."""
        session.reply(Refused(reason))
        self.close(session)

    # -- who may do what -------------------------------------------------------------------------------------------

    def _judge_by(self, session: Session) -> None:
        """By what its user may do now."""
        session.guard = self.access.guard(session.user)
        session.feed.most_bytes = self.access.limits(session.user).pending_bytes or topic_feed.PENDING_BYTES

    def _access_changed(self, concerns: Callable[[str], bool], why: str) -> None:
        """Some users may do other things than before, or may not be connected any more: `why`."""
        change = Change()
        for session in [each for each in self.sessions.values() if concerns(each.user)]:
            if why:
                self._dismiss(session, why)
                continue
            self._judge_by(session)
            if session.subs:
                self.judging.begin(session, change)
        if self.judging.waiting:
            self.touch()

    def hurry(self, session: Session) -> None:
        """Too much waits for it while its subscriptions are judged again."""
        self.judging.urgent[session] = None
        self.touch()

    # -- commands ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """A turn of subscriptions that are to be judged, and of those that have more commands than a share."""
        self.judging.go_on(self.turns)
        if self.judging.waiting:
            self.turns.soon[self] = None
        going, self.going = self.going, {}
        late = dict[Session, None]()
        left = SHARE
        self.commands.direct = True
        for session in going:
            if left > 0:
                left = self._obey(session, left)
            else:
                late[session] = None
        self.commands.direct = False
        self.going = late | self.going
        if self.going:
            self.turns.soon[self] = None
        self.turns.work -= SHARE - left

    def _obey(self, session: Session, left: int) -> int:
        """Obey so many commands of it at most, the rest in the next turn; how many of `left` are left."""
        commands, handlers = session.commands, self.commands.of
        while commands and not session.key:
            if not left:
                self.going[session] = None
                self.turns.soon[self] = None
                return 0
            command = commands[0]
            if isinstance(command, RUNS):
                left = max(0, left - command.count)
            else:
                left -= 1
            try:
                if session.unplaced is not None:
                    self.commands.in_turn(session, command)
                handlers[type(command)](session, command)
            except Wait as wait:
                self._hold(session, wait)
                break
            except MomError as error:
                self.refuse(session, Refused(str(error), command.receipt, scope=COMMAND, cause=error.cause))
            if commands:
                commands.popleft()
            if not session.key:
                session.until = 0
        if session.gone and not session.ended:
            self.close(session)
        return left

    def _go_on(self, session: Session) -> None:
        self._obey(session, SHARE)

    def _hold(self, session: Session, wait: Wait) -> None:
        self.held_back.hold(session, wait)

    def refuse(self, session: Session, refused: Refused) -> None:
        """It ends what its scope says, or the session where its protocol knows nothing else."""
        if not session.ended:
            session.reply(replace(refused, scope=CONNECTION) if session.strict else refused)
            if session.strict:
                self.close(session)

    def resume(self, session: Session, home: str) -> None:
        self.held_back.answered(session, home)

    def alarm(self) -> None:
        self.held_back.alarm()

    # -- what others have to say -----------------------------------------------------------------------------------

    def named(self, name: str) -> None:
        queue = self.natives.agents.get(self.natives.names.known.get(name, ""))
        if isinstance(queue, Queue):
            queue.named()
        self.held_back.wake(name)
        self.groups.named(name)
        self.authors.named(name)

    def paired(self, id: str) -> None:
        """A queue or subscription is to have another home, too."""
        queue = self.natives.agents.get(id)
        if isinstance(queue, Queue):
            queue.touch()

    def moved(self, name: str, id: str, to: str, there: bool) -> None:
        """A queue or subscription lives elsewhere: what comes from here goes there from now on. `there`: is somebody at
        its former home, to hear of that?"""
        queue = self.natives.agents.get(id)
        if isinstance(queue, Queue | Topic) and isinstance(queue.move, Departure | TopicDeparture):
            queue.move.decided()
        if there and home_of(id) != self.tx.name:
            self.natives.post(self.id, id, Passed(to))
        self.commands.full.discard(id)
        self.held_back.wake(id)
        self.authors.named(name)

    def room(self) -> None:
        """The server takes work again."""
        self.held_back.wake(STORE)

    def freed(self, queue: str) -> None:
        self.held_back.wake(queue)

    def waits_for(self, queue: str) -> bool:
        """Does somebody wait for room in a queue?"""
        return any(session.room and session.key == queue for session in self.waiting)

    def queue_full(self, note: Full, message: Message) -> None:
        if note.full:
            self.commands.full.add(note.queue)
        else:
            self.commands.full.discard(note.queue)
            self.held_back.wake(note.queue)

    def ready(self, note: Ready, message: Message) -> None:
        """A queue asks. Who has not heard yet that it has moved says that it has passed when it does."""
        if not note.passed or self.natives.names.known.get(note.queue.partition("/")[2]) != note.queue:
            self.post(note.queue, note)

    def lost(self, server: str) -> None:
        """Another server starts anew: its clients hold nothing any more, and it is told of all entries otherwise."""
        lives = self.natives.names.homes.home
        for native in list(self.natives.agents.values()):
            if isinstance(native, Queue):
                native.release(lambda holder: lives(holder) == server)
                if native.move is not None:  # nothing more comes from there
                    native.move.lost(server)
            elif isinstance(native, Topic):
                native.lost(server)
        for session in list(self.sessions.values()):
            if any(each.home.startswith(f"{server}/") for each in session.consumers.values()):
                gone = f"what it takes from lived on {server}, which is not there any more"
                self._dismiss(session, f"{gone}: connect again")
        self.topics.known_to(server)
        self.authors.lost(server)
        self._unplaced({server})
        self._groups_lost({server})

    def _groups_lost(self, servers: set[str]) -> None:
        for native in list(self.natives.agents.values()):
            if isinstance(native, Group):
                native.lost(servers)
        self.members.lost(servers)

    def cut_off(self, servers: set[str]) -> None:
        """What was under way between this server and others may be lost: their clients hold nothing of here any more,
        ours that have consumers there begin anew, and they are told of all entries again."""
        for native in list(self.natives.agents.values()):
            if isinstance(native, Queue):
                native.release(lambda holder: home_of(holder) in servers)
                if native.move is not None:
                    native.move.again(servers)
            elif isinstance(native, Topic):
                native.again(servers)
        for session in list(self.sessions.values()):
            if far := sorted({home_of(home) for home in session.homes} & servers):
                reason = (
                    f"what {', '.join(far)} had for this connection may be lost with a server between: connect again"
                )
                session.reply(Refused(reason))
                self.close(session)
        self.topics.tell_again(sorted(servers))
        self._unplaced(servers)
        self._groups_lost(servers)

    def left(self, server: str) -> None:
        """Another server has left the bus: its clients hold nothing any more, and nobody subscribes there."""
        self.lost(server)
        self.topics.left(server)
        self.confirm()

    def _too_early(self, session: Session, command: object) -> None:
        raise Wait(JOINING, JOIN_SECONDS, TOO_EARLY.format(self.tx.name))

    def _met(self) -> None:
        """Others have learned of this server, or it has their tables."""
        self.confirm()
        if self._obeys and not self.natives.newcomers.waiting:
            self.commands.of, self._obeys = self._obeys, None
            self.held_back.wake(JOINING)

    def relieve(self) -> None:
        """Policies have changed: whatever waits because of one is looked at again."""
        queues = [native for native in self.natives.agents.values() if isinstance(native, Queue)]
        for queue in queues:
            queue.settings.look_up()
        for queue in queues:  # one that has room again may let messages into others
            queue.policy_changed()
        self.held_back.policy_changed()

    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None:
        self.held_back.when_known(epochs, tell)

    def confirm(self) -> None:
        """Servers have said that they know entries."""
        self.held_back.confirm()

    # -- for queues ----------------------------------------------------------------------------------------------

    def shown(self, name: str) -> str:
        """What people call an agent's name."""
        name = unquote(name)
        return f"temp-queue:{name[len(TEMPORARY) :]}" if name.startswith(TEMPORARY) else name

    def set_by_our_clock(self, client_message: ClientMessage, message: Message) -> None:
        """Times that another server has set, if a clock was once far ahead."""
        by_ours = self.natives.clock.by_ours
        if client_message.expires:
            client_message.expires = by_ours(client_message.expires, message)
        if client_message.due:
            client_message.due = by_ours(client_message.due, message)

    # -- topics in total order -------------------------------------------------------------------------------------

    def placed(self, told: Mapping[str, int], gone: bool = False) -> None:
        """See Placed."""
        for source, number in told.items():
            session, waited = self.natives.agents.get(source), self.groups.placed(source, number)
            if isinstance(session, Session) and session.unplaced is not None:
                if gone:
                    self._told(session, f"{session.unplaced.topic} has no home there any more, and nobody gets this")
                elif not waited:
                    self._placed(session, number)

    def _placed(self, session: Session, number: int) -> None:
        assert session.unplaced is not None, "it waits for a place"
        receipts = session.unplaced.placed(number)
        if receipts:
            session.reply(Receipt(receipts[0]) if len(receipts) == 1 else Receipts(receipts))
        self._in_place(session)

    def _in_place(self, session: Session) -> None:
        if session.unplaced is not None and not session.unplaced.marks:
            session.unplaced = None
        if session.key == PLACE:
            self.held_back.go_on(session)

    def _emptied(self, agent: str) -> None:
        """All that an agent, or a session, was to send in its turn is sent."""
        session = self.natives.agents.get(agent)
        if isinstance(session, Session) and session.unplaced is not None:
            self._placed(session, LAST)

    def reason(self, agent: str) -> str:
        """What it waits for that has a home of a topic, or of a group, to do something: it waits until this is so."""
        topic = self.natives.agents.get(agent)
        if isinstance(topic, Topic) and isinstance(topic.move, TopicArrival | TopicEnd):
            return topic.move.reason()
        return self.groups.reason(agent)

    def why(self) -> list[dict[str, Any]]:
        """What clients have published in total order, and has no place yet; and the views that wait."""
        counts = Counter[tuple[str, str]]()
        for session in self.sessions.values():
            if (mine := session.unplaced) is not None and (
                found := (mine.topic, home_of(mine.home)) if mine.home else self.groups.placing(session.id)
            ):
                counts[found] += len(mine.marks)
        places = [
            {"kind": "place", "topic": topic, "home": home, "messages": count}
            for (topic, home), count in counts.items()
        ]  # fmt: skip
        return places + self.groups.why()

    def _unplaced(self, servers: set[str]) -> None:
        """What was on its way to homes on these servers may be lost."""
        outboxes = self.groups.unplaced(servers)
        for session in list(self.sessions.values()):
            mine = session.unplaced
            home = outboxes.get(session.id, mine.home) if mine is not None else ""
            if mine is not None and home and home_of(home) in servers:
                self._told(session, LOST.format(mine.topic, home_of(home)))

    def _told(self, session: Session, reason: str) -> None:
        """What a session has published may come to nothing."""
        assert session.unplaced is not None, "it waits for a place"
        receipts: list[str | None] = [*session.unplaced.placed(LAST)]
        again, session.unplaced.told = session.unplaced.told, True
        for receipt in receipts or [None] * (not again):
            self.refuse(session, Refused(reason, receipt, scope=COMMAND))
        if self.groups.waits(session.id):  # the rest of a transaction
            session.unplaced.add(0, None)
        if not session.ended:
            self._in_place(session)

    def _opens(self, message: Message) -> None:
        note: Opens = note_of(message)
        topic = self.natives.agents.get(note.topic)
        if isinstance(topic, Topic) and isinstance(topic.move, TopicArrival) and topic.move.source == message.source:
            topic.opened(note, message)

    def send_by_name(self, message: ClientMessage, source: str) -> None:
        """Send a dead letter, or an answer; its queue, or the home of its topic, is made if need be."""
        name = name_of(message.destination)
        undecided = f"{self.tx.name}/{WAITING}{name}"
        id = self.natives.names.known.get(name, undecided)
        if self.natives.waits(undecided):  # what has waited for the name has not been sent on yet
            id = undecided
        self.natives.post(source, id, message)

    # -- for the engine ------------------------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        return self.topics.dropped

    def describe(self, conn: int) -> dict[str, int]:
        """What waits here for a connection to take it, and what it has not taken in time."""
        session = self.sessions.get(conn)
        if session is None:
            return {"pending": 0, "dropped": 0}
        return {"pending": session.feed.count, "dropped": session.feed.dropped}

    def host(self, agent: str) -> Native | None:
        kind = agent.partition("/")[2]
        if kind.startswith(REPLY):
            return Asker(self.natives, agent, self)
        return Forwarder(self.natives, agent) if kind.startswith(WAITING) else None


Sessions.handlers = {Full.wire: Sessions.queue_full, Ready.wire: Sessions.ready}
