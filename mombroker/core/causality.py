"""The outsider: judges from a list of events alone whether an execution was causal. It uses no clock, stamp or core.

A process is whatever reacts one thing at a time: all agents, or all servers, never some of both. Of a server "deliver"
is the hand-over to the inbox, of an agent it is the reaction.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
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
    waiting: set[Process]  # destinations that have not delivered it
    late: frozenset[Process] = frozenset()  # destinations at which it was reported as overtaken
    past: int = 0  # vector: the sends that happened before the send; its own process's only once `full`
    full: bool = False  # `past` holds this send too


@dataclass(slots=True, eq=False)
class _Process:
    name: Process
    component: int = -1  # in the vectors; -1 when it never sends
    past: int = 0  # vector: the sends of others that happened before its next event
    clear: int = 0  # vector: all sends up to here that are addressed to it are delivered (or reported)
    inbox: dict[int, deque[_Message]] = field(default_factory=dict)  # by sender, sent to it, from the first not clear
    sends: int = 0


def blamed(waits: Mapping[Any, Any]) -> Any:
    """Each of these waits for another of them: the least of those that in the end wait for themselves."""
    found: list[Any] = []
    passed: set[Any] = set()
    for each in waits:
        path: dict[Any, None] = {}
        while each not in passed and each not in path:
            path[each] = None
            each = waits[each]
        if each in path:
            circle = list(path)
            found.append(min(circle[circle.index(each) :]))
        passed.update(path)
    return min(found)


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
    return _Listed(list(events)).run()


class Judge:
    """Judges an execution while it happens: each event after all that happened before it.

    It remembers of a message what is needed until its last destination has delivered it; `check` says why that is
    enough. `totals`: how often each process sends, at most; who is not in it never does.
    """

    def __init__(self, totals: Mapping[Any, int]) -> None:
        self.verdict = Verdict()
        self.messages: dict[MessageId, _Message] = {}  # that somebody has not delivered yet
        self.processes: dict[Process, _Process] = {}
        self.totals = list(totals.values())
        self.width = max(self.totals, default=0).bit_length() + 1
        self.field = (1 << (self.width - 1)) - 1
        self.guards = sum(1 << (n * self.width + self.width - 1) for n in range(len(self.totals)))
        self.everything = sum(total << (n * self.width) for n, total in enumerate(self.totals))
        for component, name in enumerate(totals):
            self._process(name).component = component

    def _process(self, name: Process) -> _Process:
        process = self.processes.get(name)
        if process is None:
            process = self.processes[name] = _Process(name, clear=self.everything)
        return process

    def send(self, name: Process, id: MessageId, dests: Iterable[Process]) -> None:
        """The id is new."""
        self.verdict.sends += 1
        process = self._process(name)
        process.sends += 1
        sender, number = process.component, process.sends
        message = _Message(id, sender, number, set(dests), past=process.past)
        for dest in message.waiting:
            receiver = self._process(dest)
            queue = receiver.inbox.get(sender)
            if queue is None:
                queue = receiver.inbox[sender] = deque()
            if not queue:
                receiver.clear -= (self.totals[sender] - number + 1) << (sender * self.width)
            queue.append(message)
        if message.waiting:
            self.messages[id] = message

    def deliver(self, name: Process, id: MessageId) -> bool:
        """False, and nothing else, if no message of this id is on its way to this process."""
        message = self.messages.get(id)
        if message is None or name not in message.waiting:
            return False
        self.verdict.deliveries += 1
        process = self._process(name)
        waiting = message.waiting
        waiting.remove(name)
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
            del self.messages[id]
        return True

    def _advance(self, process: _Process, sender: int) -> None:
        """Drop what is delivered or reported from the head of an inbox, and raise `clear` to before the new head."""
        queue = process.inbox[sender]
        old = queue[0].number - 1
        while queue and (process.name not in queue[0].waiting or process.name in queue[0].late):
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
                if process.name in late.waiting and process.name not in late.late:
                    late.late |= {process.name}
                    self.verdict.violations.append((process.name, late.id, message.id))
            self._advance(process, sender)


class _Listed(Judge):
    """Judges a list in which processes may be interleaved in any way: each waits where its causes are still to come."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.first: dict[MessageId, tuple[Process, tuple[Process, ...]]] = {}  # of each id: the send that counts
        self.sent: set[MessageId] = set()
        self.blocked: dict[Process, deque[Event]] = {}  # events from the first delivery whose send was not seen yet
        self.waiters: dict[MessageId, list[Process]] = {}  # blocked on a message that is sent later in the list
        totals: dict[Process, int] = {}
        for event in events:
            if _LENGTH.get(event[0]) != len(event):
                raise ValueError(f"not an event: {event!r}")
            if event[0] == "send" and event[2] not in self.first:
                self.first[event[2]] = event[1], tuple(dict.fromkeys(event[3]))
                totals[event[1]] = totals.get(event[1], 0) + 1
        super().__init__(totals)

    def run(self) -> Verdict:
        verdict = self.verdict
        for event in self.events:
            process = event[1]
            if process in self.blocked:
                self.blocked[process].append(event)
            elif self._must_wait(event):
                self.blocked[process] = deque((event,))
                self.waiters.setdefault(event[2], []).append(process)
            else:
                self._apply(event)
                if event[0] == "send" and event[2] in self.waiters:
                    self._resume(self.waiters.pop(event[2]))
        while self.waiters:
            self._break_cycle()
        verdict.processes = len(self.processes)
        for id, (_, dests) in self.first.items():
            if message := self.messages.get(id):
                verdict.lost += ((dest, id) for dest in dests if dest in message.waiting)
        return verdict

    def _must_wait(self, event: Event) -> bool:
        return event[0] == "deliver" and event[2] in self.first and event[2] not in self.sent

    def _apply(self, event: Event) -> None:
        kind, process, id, *_ = event
        self._process(process)
        if kind == "send":
            if id in self.sent or self.first[id][0] != process:
                self.verdict.sends += 1
                self.verdict.duplicates.append((process, id))
            else:
                self.sent.add(id)
                self.send(process, id, self.first[id][1])
        elif not self.deliver(process, id):
            self.verdict.deliveries += 1
            known = id in self.first and process in self.first[id][1]
            (self.verdict.duplicates if known else self.verdict.unsent).append((process, id))

    def _resume(self, woken: list[Process]) -> None:
        """Let blocked processes go on, each to its next delivery that must wait; their sends wake others."""
        while woken:
            process = woken.pop()
            left = self.blocked[process]
            while left and not self._must_wait(left[0]):
                event = left.popleft()
                self._apply(event)
                if event[0] == "send":
                    woken += self.waiters.pop(event[2], ())
            if left:
                self.waiters.setdefault(left[0][2], []).append(process)
            else:
                del self.blocked[process]

    def _break_cycle(self) -> None:
        """All that is left waits for each other: some message was delivered in the past of its own send. Blame one."""
        process = blamed({each: self.first[left[0][2]][0] for each, left in self.blocked.items()})
        id = self.blocked[process].popleft()[2]
        self.verdict.unsent.append((process, id))
        self.verdict.deliveries += 1
        self.waiters[id].remove(process)
        if not self.waiters[id]:
            del self.waiters[id]
        self._resume([process])
