"""Model checking of an ordering back end: every schedule of a small domain, not only those that chance draws.

    explore(MyOrdering)

plays all that 3 members can do with up to 3 messages, each to one or to both others, with packets that arrive in every
order that the links allow, and judges each state that can be reached:

safe     nobody delivers a message before another of its causes that is for it too; nothing comes twice
live     when nothing is on its way any more, everything is delivered and nothing is held
prompt   what could be delivered by causal order alone is delivered at once
total    members deliver what they share in one order, if the back end claims that; then a message waits at none that
         has got all that was sent to it, once somebody else has delivered it

With `own`, a message may be for its sender, too.

The judge knows who sent and who delivered what, by the definition in protocols §0.2, and nothing of stamps.

A state is what the members' stores hold, what is on the links, and what the judge knows. Schedules that reach the same
state are followed from there once, so the work grows with the states and not with the schedules.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from mombroker.ordering.base import Ordering, Packet, Rows, Step

Action = tuple[Any, ...]  # ("send", member, dests) or ("arrive", from, to, at which place of the link)
MEMBERS, SENDS = 3, 3


class Broken(AssertionError):
    """A schedule that the back end does not stand, as text: its steps, and what is wrong after the last."""


class Sent(NamedTuple):
    """A message: who sent it to whom, and the messages that happened before."""

    origin: int
    dests: tuple[int, ...]
    past: frozenset[int]


class Member(NamedTuple):
    """One member: its core, what its store holds, and what the judge knows of it.

    past        messages that happened before its next event
    delivered   messages, and `arrived` those of which it has had a packet
    """

    core: Ordering
    rows: Rows
    past: frozenset[int] = frozenset()
    delivered: frozenset[int] = frozenset()
    arrived: frozenset[int] = frozenset()
    order: tuple[int, ...] = ()  # as `delivered`, under a back end that claims a total order


class State(NamedTuple):
    """A domain between two steps. Links hold packets, oldest first: the message of each, and its bytes."""

    members: tuple[Member, ...]
    links: Mapping[tuple[int, int], tuple[tuple[int, bytes], ...]]
    sent: tuple[Sent, ...] = ()
    steps: tuple[Action, ...] = ()


@dataclass(slots=True)
class Explored:
    """What `explore` visited: different states, those of them at rest, and deliveries in all."""

    states: int = 0
    ends: int = 0
    deliveries: int = 0


@dataclass
class Explorer:
    """`restarts`: each member is restored from its rows before each of its steps."""

    backend: type[Ordering]
    size: int
    sends: int
    options: Mapping[str, Any]
    restarts: bool
    prompt: bool
    found: Explored = field(default_factory=Explored)

    def run(self, progress: Callable[[int], None]) -> Explored:
        first = State(tuple(Member(self.backend(me, self.size, **self.options), {}) for me in range(self.size)), {})
        left, seen = deque([first]), {self._key(first)}
        while left:  # the shortest schedules first, so that a fault is told by as few steps as show it
            state = left.popleft()
            self.found.states += 1
            if self.found.states % 1_000 == 0:
                progress(self.found.states)
            self._judge(state)
            for action in self._actions(state):
                after = self._after(state, action)
                key = self._key(after)
                if key not in seen:
                    seen.add(key)
                    left.append(after)
        return self.found

    @staticmethod
    def _key(state: State) -> tuple[Any, ...]:
        members = tuple((frozenset(m.rows.items()), m.past, m.delivered, m.arrived, m.order) for m in state.members)
        return members, frozenset(state.links.items()), state.sent

    def _actions(self, state: State) -> Iterator[Action]:
        for (frm, to), queue in state.links.items():
            for at in range(1 if self.backend.fifo else len(queue)):
                yield "arrive", frm, to, at
        if len(state.sent) < self.sends:
            for me in range(self.size):
                others = [each for each in range(self.size) if each != me or self.backend.own]
                for count in range(1, len(others) + 1):
                    for dests in combinations(others, count):
                        yield "send", me, dests

    def _after(self, state: State, action: Action) -> State:
        links = dict(state.links)
        me = action[1] if action[0] == "send" else action[2]
        member = state.members[me]
        sent = state.sent
        steps = (*state.steps, action)
        core = self._copy(me, member)
        try:
            if action[0] == "send":
                number = len(sent)
                sent = (*sent, Sent(me, action[2], member.past))
                step = Step(core.send(action[2], b"%d" % number))
                member = member._replace(past=member.past | {number})
            else:
                frm, at = action[1], action[3]
                queue = links[frm, me]
                number, data = queue[at]
                links[frm, me] = queue[:at] + queue[at + 1 :]
                if not links[frm, me]:
                    del links[frm, me]
                step = core.receive(frm, core.decode(frm, data))
                member = member._replace(arrived=member.arrived | {number})
            core.check()
            packets = [*step.send, *core.announce()]
            for packet in step.deliver:
                member = self._deliver(me, member, packet, sent, steps)
            for packet in packets:
                if packet.to == me and self.backend.own:  # in the same transaction
                    step = core.receive(me, packet)
                    packets += step.send
                    for done in step.deliver:
                        member = self._deliver(me, member, done, sent, steps)
                    continue
                way = me, packet.to
                links[way] = (*links.get(way, ()), (int(packet.body or number), core.encode(packet)))
            put, gone = core.dirty()
        except Exception as error:  # whatever a back end raises, its author wants the steps
            if isinstance(error, Broken):
                raise
            raise Broken(_told(steps, repr(error))) from error
        rows = {key: blob for key, blob in (member.rows | put).items() if key not in gone}
        member = member._replace(core=core, rows=rows)
        members = (*state.members[:me], member, *state.members[me + 1 :])
        return State(members, links, sent, steps)

    def _copy(self, me: int, member: Member) -> Ordering:
        if self.restarts:
            return self.backend.restore(me, self.size, dict(member.rows), **self.options)
        return deepcopy(member.core)

    def _deliver(
        self, me: int, member: Member, packet: Packet, sent: tuple[Sent, ...], steps: tuple[Action, ...]
    ) -> Member:
        """Judge a delivery: safe."""
        number = int(packet.body)
        self.found.deliveries += 1
        if me not in sent[number].dests:
            raise Broken(_told(steps, f"member {me} delivers message {number}, which is not for it"))
        if number in member.delivered:
            raise Broken(_told(steps, f"member {me} delivers message {number} again"))
        for cause in sorted(sent[number].past - member.delivered):
            if me in sent[cause].dests:
                raise Broken(_told(steps, f"member {me} delivers message {number} before its cause {cause}"))
        member = member._replace(delivered=member.delivered | {number}, past=member.past | sent[number].past | {number})
        return member._replace(order=(*member.order, number)) if self.backend.total else member

    def _judge(self, state: State) -> None:
        """Judge a state: live, if it is at rest, and prompt."""
        for me, member in enumerate(state.members):
            if not state.links:
                missing = {n for n, each in enumerate(state.sent) if me in each.dests} - member.delivered
                if missing or member.core.held() or member.core.parked():
                    what = f"message {min(missing)} is not delivered" if missing else "packets are held"
                    raise Broken(_told(state.steps, f"nothing is on its way, and at member {me} {what}"))
            if self.prompt and self.backend.total:
                self._judge_late(state, me, member)
            elif self.prompt:
                self._judge_held(state, me, member)
        if self.backend.total:
            self._judge_order(state)
        self.found.ends += not state.links

    def _judge_order(self, state: State) -> None:
        """Judge a state: total. Causes come before their effects in the one order, whoever they are for."""
        before = {number: set(message.past) for number, message in enumerate(state.sent)}
        for member in state.members:
            for former, number in pairwise(member.order):
                before[number].add(former)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            raise Broken(_told(state.steps, f"no one order of messages {error.args[1]}")) from None

    def _judge_late(self, state: State, me: int, member: Member) -> None:
        """Nothing is on its way to a member: then it has delivered what anybody has that is for it."""
        if any(to == me for _, to in state.links):
            return
        for other in state.members:
            for number in sorted(other.delivered - member.delivered):
                if me in state.sent[number].dests:
                    raise Broken(_told(state.steps, f"member {me} holds message {number}, though nothing is missing"))

    def _judge_held(self, state: State, me: int, member: Member) -> None:
        """A packet without a body is taken for one of the message that its sender had just sent or received."""
        for number in sorted(member.arrived - member.delivered):
            if me not in state.sent[number].dests:
                continue
            ready = free(self.backend, me, state.sent[number].past, state.sent, member.delivered, member.arrived)
            if ready and not member.core.parked():
                raise Broken(_told(state.steps, f"member {me} holds message {number}, though nothing is missing"))


def free(
    backend: type[Ordering], me: int, past: Collection[int], sent: Sequence[tuple[int, Collection[int], Any]],
    delivered: Collection[int], arrived: Collection[int],
) -> bool:  # fmt: skip
    """Does causal order let `me` deliver a message with this past? `sent`: of each message its origin and destinations.

    A core whose packets go to all may wait for all that happened before, whomever it is for.
    """
    if backend.spreads:
        return all(cause in arrived or sent[cause][0] == me for cause in past)
    return all(cause in delivered or me not in sent[cause][1] for cause in past)


def explore(
    backend: type[Ordering],
    *,
    size: int = MEMBERS,
    sends: int = SENDS,
    options: Mapping[str, Any] | None = None,
    restarts: bool = False,
    prompt: bool = True,
    progress: Callable[[int], None] = lambda states: None,
) -> Explored:
    """Visit every state. Raises Broken with the fewest steps that lead to a bad one.

    `options` are those of `__init__`. A core that may deliver later than it could is spared by `prompt = False`.
    `progress` hears the number of states so far.
    """
    return Explorer(backend, size, sends, options or {}, restarts, prompt).run(progress)


def _told(steps: tuple[Action, ...], wrong: str) -> str:
    lines, number = [], 0
    for step in steps:
        if step[0] == "send":
            lines.append(f"{step[1]} sends message {number} to {', '.join(map(str, step[2]))}")
            number += 1
        else:
            lines.append(f"a packet from {step[1]} arrives at {step[2]}" + (f", past {step[3]} others" * bool(step[3])))
    return "; ".join([*lines, wrong])
