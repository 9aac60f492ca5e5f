"""The outsider: says from a list of events alone whether an execution was causal. It knows no clock, stamp or core.

A process is whatever reacts one thing at a time: all agents, or all servers, never some of both. Of a server "deliver"
is the hand-over to the inbox, of an agent it is the reaction.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

Process = Hashable
MessageId = Hashable
Event = tuple[Any, ...]  # ("send", process, message, dests) or ("deliver", process, message)
_LENGTH = {"send": 4, "deliver": 3}


@dataclass(slots=True)
class Verdict:
    """What `check` found. Every list names the process first.

    violations  (process, late, before): `process` delivered `before` although `late`, which is addressed to it too and
                whose send happened before the send of `before`, was not delivered there yet; once per process and late
                message, with the first message that overtook it. What was overtaken can never be made good, so this
                judges unfinished executions too.
    duplicates  delivered again at the same process, or (process of the later send) sent again under the same id: then
                the send that is first in the list counts
    unsent      delivered without a send to this process, or before its own send in every possible order
    lost        sent to this process and not delivered by the end of the list: lost if the execution has ended, else
                still on its way
    """

    violations: list[tuple[Process, MessageId, MessageId]] = field(default_factory=list)
    duplicates: list[tuple[Process, MessageId]] = field(default_factory=list)
    unsent: list[tuple[Process, MessageId]] = field(default_factory=list)
    lost: list[tuple[Process, MessageId]] = field(default_factory=list)
    sends: int = 0
    deliveries: int = 0
    processes: int = 0

    @property
    def safe(self) -> bool:
        return not (self.violations or self.duplicates or self.unsent)


@dataclass(slots=True, eq=False)
class _Message:
    id: MessageId
    sender: int  # component in the vectors
    number: int  # of this send among the sender's
    dests: tuple[Process, ...]
    waiting: set[Process] | None = None  # destinations that have not delivered it; None before the send
    late: frozenset[Process] = frozenset()  # destinations at which it was reported as overtaken
    past: int = 0  # vector: the sends that happened before the send; its own process's only once `full`
    full: bool = False  # `past` holds this send too


@dataclass(slots=True, eq=False)
class _Process:
    name: Process
    component: int = -1  # in the vectors; -1 when it never sends
    past: int = 0  # vector: the sends of others that happened before its next event
    clear: int = 0  # vector: all sends up to here that are addressed to it are delivered (or reported)
    inbox: dict[int, deque[_Message]] = field(default_factory=dict)  # by sender, from the first one not clear
    blocked: deque[Event] | None = None  # its events from the first delivery whose send was not seen yet


def check(events: Iterable[Event]) -> Verdict:
    """Judge an execution. The list holds each process's events in order; processes may be interleaved in any way, also
    with a delivery before its send. Raises ValueError for what is no event.

    Why it is exact. Number the sends of each process 1, 2, ... in its order. What precedes an event of a process
    precedes all its later events, so of each process's sends always the first so many happened before a given event:
    let S(m), a vector over the processes that send, be those numbers for send(m). Then send(m1) -> send(m2) if and only
    if number(m1) <= S(m2)[sender(m1)]. By the definition of happens-before S grows in two ways only: by a send of the
    process itself, and at a delivery to the elementwise maximum with S(m) and the message's own number.

    Let clear[q][p] be the largest number such that each send of p up to it that is addressed to q was delivered at q.
    When q delivers m2, a message m1 that is addressed to q is overtaken only if number(m1) > clear[q][sender(m1)], and
    there is such an m1 with send(m1) -> send(m2) if and only if S(m2) <= clear[q] fails in some component: the next
    send of p to q after clear[q][p] is then itself overtaken. So one comparison judges a delivery; only if it fails are
    messages looked at one by one, and what is reported counts as clear from there on, so each is reported once.

    A vector is one int with a field for each process that sends, as wide as the largest number of sends and a guard
    bit, so that a comparison or a merge is a handful of operations on big ints (microseconds for 1,000 processes). The
    memory is two such ints for each process and one for each message in flight; messages that were sent with no
    delivery between them share it until they are delivered.
    """
    return _Judge(list(events)).run()


class _Judge:
    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.verdict = Verdict()
        self.messages: dict[MessageId, _Message] = {}
        self.processes: dict[Process, _Process] = {}
        self.senders: list[_Process] = []
        self.waiters: dict[MessageId, list[_Process]] = {}  # blocked on a message that is sent later in the list
        totals: list[int] = []
        for event in events:
            self._read(event, totals)
        self.width = max(totals, default=0).bit_length() + 1
        self.field = (1 << (self.width - 1)) - 1
        self.guards = sum(1 << (n * self.width + self.width - 1) for n in range(len(totals)))
        everything = sum(total << (n * self.width) for n, total in enumerate(totals))
        self.totals = totals
        for process in self.processes.values():
            process.clear = everything
            for sender, queue in process.inbox.items():
                process.clear -= (totals[sender] - queue[0].number + 1) << (sender * self.width)

    def _read(self, event: Event, totals: list[int]) -> None:
        """First pass: who sends how many, and what each process is to deliver."""
        if _LENGTH.get(event[0]) != len(event):
            raise ValueError(f"not an event: {event!r}")
        process = self._process(event[1])
        if event[0] == "deliver" or event[2] in self.messages:
            return
        if process.component < 0:
            process.component = len(totals)
            self.senders.append(process)
            totals.append(0)
        totals[process.component] += 1
        message = _Message(event[2], process.component, totals[process.component], tuple(dict.fromkeys(event[3])))
        self.messages[event[2]] = message
        for dest in message.dests:
            self._process(dest).inbox.setdefault(process.component, deque()).append(message)

    def _process(self, name: Process) -> _Process:
        process = self.processes.get(name)
        if process is None:
            process = self.processes[name] = _Process(name)
        return process

    def run(self) -> Verdict:
        verdict = self.verdict
        for event in self.events:
            process = self.processes[event[1]]
            if process.blocked is not None:
                process.blocked.append(event)
            elif self._must_wait(event):
                process.blocked = deque((event,))
                self.waiters.setdefault(event[2], []).append(process)
            else:
                self._apply(process, event)
        while self.waiters:
            self._break_cycle()
        verdict.processes = len(self.processes)
        for message in self.messages.values():
            if message.waiting:
                verdict.lost += ((dest, message.id) for dest in message.dests if dest in message.waiting)
        return verdict

    def _must_wait(self, event: Event) -> bool:
        if event[0] == "send":
            return False
        message = self.messages.get(event[2])
        return message is not None and message.waiting is None

    def _apply(self, process: _Process, event: Event) -> None:
        if event[0] == "deliver":
            self._deliver(process, event[2])
        else:
            self._send(process, event[2])
            if event[2] in self.waiters:
                self._resume(self.waiters.pop(event[2]))

    def _resume(self, woken: list[_Process]) -> None:
        """Let blocked processes go on, each to its next delivery that must wait; their sends wake others."""
        while woken:
            process = woken.pop()
            assert process.blocked is not None, "only a blocked process waits for a send"
            while process.blocked and not self._must_wait(process.blocked[0]):
                event = process.blocked.popleft()
                if event[0] == "deliver":
                    self._deliver(process, event[2])
                else:
                    self._send(process, event[2])
                    woken += self.waiters.pop(event[2], ())
            if process.blocked:
                self.waiters.setdefault(process.blocked[0][2], []).append(process)
            else:
                process.blocked = None

    def _break_cycle(self) -> None:
        """All that is left waits for each other: some message was delivered in the past of its own send. Blame one."""
        process = next(iter(self.waiters.values()))[0]
        seen: set[Process] = set()
        while process.name not in seen:
            seen.add(process.name)
            assert process.blocked, "a process whose send is missing is blocked"
            process = self.senders[self.messages[process.blocked[0][2]].sender]
        assert process.blocked, "it was walked over just now"
        id = process.blocked.popleft()[2]
        self.verdict.unsent.append((process.name, id))
        self.verdict.deliveries += 1
        self.waiters[id].remove(process)
        if not self.waiters[id]:
            del self.waiters[id]
        self._resume([process])

    def _send(self, process: _Process, id: MessageId) -> None:
        self.verdict.sends += 1
        message = self.messages[id]
        if message.waiting is not None or message.sender != process.component:
            self.verdict.duplicates.append((process.name, id))
            return
        message.waiting = set(message.dests)
        message.past = process.past

    def _deliver(self, process: _Process, id: MessageId) -> None:
        self.verdict.deliveries += 1
        message = self.messages.get(id)
        if message is None or process.name not in message.dests:
            self.verdict.unsent.append((process.name, id))
            return
        waiting = message.waiting
        assert waiting is not None, "a delivery before its send waits"
        if process.name not in waiting:
            self.verdict.duplicates.append((process.name, id))
            return
        waiting.remove(process.name)
        if not message.full:
            message.full = True
            message.past |= message.number << (message.sender * self.width)
        past, guards = message.past, self.guards
        queue = process.inbox[message.sender]
        if queue and queue[0] is message:
            self._advance(process, message.sender)
        if ((process.clear | guards) - past) & guards != guards:
            self._report(process, message)
        below = ((process.past | guards) - past) & guards  # guard set where the process knows as much
        if below != guards:
            mask = below - (below >> (self.width - 1))
            merged = past ^ ((process.past ^ past) & mask)
            if process.component >= 0:
                merged &= ~(self.field << (process.component * self.width))
            process.past = merged
        if not waiting:
            message.past = 0

    def _advance(self, process: _Process, sender: int) -> None:
        """Drop what is delivered or reported from the head of an inbox, and raise `clear` to before the new head."""
        queue = process.inbox[sender]
        old = queue[0].number - 1
        while queue and (waiting := queue[0].waiting) is not None:
            if process.name in waiting and process.name not in queue[0].late:
                break
            queue.popleft()
        new = queue[0].number - 1 if queue else self.totals[sender]
        process.clear += (new - old) << (sender * self.width)

    def _report(self, process: _Process, message: _Message) -> None:
        """Name every message that `message` overtakes at `process`."""
        wrong = ~((process.clear | self.guards) - message.past) & self.guards
        while wrong:
            bit = wrong & -wrong
            wrong ^= bit
            sender = bit.bit_length() // self.width - 1
            upto = (message.past >> (sender * self.width)) & self.field
            for late in process.inbox[sender]:
                if late.number > upto:
                    break
                assert late.waiting is not None, "what happened before a message that was sent was sent"
                if process.name in late.waiting and process.name not in late.late:
                    late.late |= {process.name}
                    self.verdict.violations.append((process.name, late.id, message.id))
            self._advance(process, sender)
