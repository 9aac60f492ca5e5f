"""A server's part in a change of the domains of a running bus (protocols §8.7).

S are the domains that change, a connected part of the forest, and the servers inside are those of S.

1. READY   the registry asks the servers inside whether they can; each says so, and keeps the plan.
2. FREEZE  one multicast to them. From here on nobody is needed who is not inside, and each step is a reaction.
3. gate    who delivers it sends MARK to all inside and closes its gate: what enters S there waits, one entry a message.
           What is inside S goes on from domain to domain.
4. switch  who has the mark of each has all that is older. Once its out-queues are acknowledged, too, it takes over the
           new domains, in one batch, and lets in what waits, in order.

A server inside that is lost for good is waited for by nobody, once the operator has said so to each that is left
(core/lost_inside.py). When nothing is under way between these they are told to end it: each switches, and what waits
for what only the lost one had becomes dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from mombroker.core import owners, revision, undelivered
from mombroker.core.changes import Change, Kind, difference
from mombroker.core.channel import Channel
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.link import Link
from mombroker.core.loss_reports import counted
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.meta import LOSS, MARK, PLAN
from mombroker.core.neighbours import Moving
from mombroker.core.replicated import Replication
from mombroker.core.topology import listed
from mombroker.core.transaction import COMMIT
from mombroker.core.truth import Truth, read_more
from mombroker.core.words import many

AGENT = "_change"
READY, ANSWER, FORGET, FREEZE, MARKED, SWITCHED = "_ready", "_answer", "_unplan", "_freeze", "_mark", "_switched"
ASKED, FROZEN, DRAINING, DONE = "ready", "frozen", "draining", "switched"  # phases
LAST = (1 << 63) - 1


@dataclass(slots=True)
class Plan:
    """A change, as a server inside keeps it until it is over.

    id       of this attempt
    number   of the revision that it brings, with its text, in force since `since`; the text goes at the switch
    inside   the servers that it concerns
    behind   the domains that the gate is before: S, and from the switch on those in place of S; none once all is let in
    leavers  those of `inside` that are not of the bus any more then
    over     all inside have switched
    drop     leavers give up what they hold
    lost     servers that are lost for good, and not inside any more
    seen     of those that were lost meanwhile, and have a link with us: the last packet that each can have received
    ended    whatever can arrive is there
    """

    id: int
    number: int
    since: int
    text: str
    phase: str = ASKED
    inside: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    leavers: list[str] = field(default_factory=list)
    over: bool = False
    drop: bool = False
    lost: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    ended: bool = False


class Reconfiguration:
    """1. Between FREEZE and the switch the gate is before S, and after it before what is in place of S while anything
    waits there.
    2. A server switches with the marks of all that are inside, and nothing of its own under way in S.
    3. One that leaves does so last: it takes what its neighbours have for it until these have switched.

    ahead   servers inside that have switched, as their greeting says
    holds   what the server has that would go with it, in words. Nobody else judges that: a name is known everywhere,
            and whether its agent is still there at its home alone
    given_up   called when the registry has given a change up
    fence   has a server that is lost be refused, whatever it comes back with of before an epoch
    """

    def __init__(self, replication: Replication, channel: Channel, truth: Truth):
        self.tx, self._send, _, handle = replication
        self.channel, self.truth = channel, truth
        self.ahead: set[str] = set()
        self.holds: Callable[[], list[str]]
        self.given_up: Callable[[], None]
        self.fence: Callable[[str, int], None]
        self._sought: set[str] = set()  # by a server that leaves: neighbours that do not talk to it, how they stand
        plan, marks = self.tx.reader.meta(PLAN).get(PLAN), self.tx.reader.meta(MARK)
        self.plan = None if plan is None else Plan(**json.loads(str(plan)))
        self.marks = {key.removeprefix(MARK) for key, id in marks.items() if self._mine(id)}
        handle(READY, _read_plan, self._asked)
        handle(FORGET, read_id, self._forgotten)
        handle(FREEZE, _read_plan, self._frozen)
        handle(MARKED, read_id, self._marked)
        truth.ended = self._ended
        if self.plan is not None and self.plan.phase != ASKED:
            self._guard(self.plan)

    def _mine(self, id: object) -> bool:
        return self.plan is not None and id == self.plan.id

    def _guard(self, plan: Plan) -> None:
        self.channel.gate.close(AGENT, plan.behind, plan.phase == DRAINING)
        switched = plan.phase != FROZEN
        self.channel.neighbours.moving = Moving(plan.number, frozenset(plan.inside), switched)
        for link in self._links() if plan.lost and not switched else ():
            link.unheld = True  # what is held may wait for what is lost
            link.touch()

    # -- before it begins ----------------------------------------------------------------------------------------

    def _asked(self, message: Message) -> None:
        plan = _plan(message)
        if message.origin != self.tx.topology.registry:
            return
        refusal = self._refusal(plan)
        if not refusal:
            self._keep(plan)
        self._tell((message.origin,), ANSWER, [plan.id, refusal])

    def _refusal(self, plan: Plan) -> str:
        """Why we cannot; empty if we can."""
        me = self.tx.name
        if self.plan is not None and self.plan.phase != ASKED:
            return f"{me} has not finished the change to revision {self.plan.number}: see `mom topology status`"
        if plan.number != self.truth.number + 1:
            return f"{me} is at revision {self.truth.number} of the topology: run `mom topology plan` again"
        if self.tx.reader.meta(LOSS):
            return f"{me} is just going on without a server that is lost: see `mom topology status`, and apply again"
        if self.tx.full:
            return f"{me} takes no work, since it lacks room: see `mom status`"
        try:
            self.truth.check_agents(self._work_out(plan))
        except MomError as error:
            return f"{me} cannot do it: {error}"
        if me in plan.leavers and not plan.drop and (held := self.holds()):
            return cannot_leave(me, held)
        return ""

    def _work_out(self, plan: Plan) -> Change:
        """What the change is, and what it is for us. Raises MomError for one that we cannot carry out."""
        new = revision.read(plan.text)
        change = difference(revision.read(self.truth.text), new)
        if change.kind is not Kind.FREEZE or self.tx.name not in change.inside:
            raise MomError("the plan does not concern it")
        for domain in new.domains_of(self.tx.name) if self.tx.name in new.servers else ():
            if domain.name in change.replacing and (reason := self.channel.refusal(domain)):
                raise MomError(reason)
        if clash := owners.clash(self.tx.name, new.domains_of(self.tx.name) if self.tx.name in new.servers else ()):
            raise MomError(clash)
        plan.inside = [server for server in change.inside if server not in plan.lost]
        plan.behind = list(change.frozen)
        plan.leavers = [server for server in change.leavers if server not in plan.lost]
        return change

    def _keep(self, plan: Plan | None) -> None:
        self.plan = plan
        self.tx.rows.meta[PLAN] = None if plan is None else json.dumps(asdict(plan), ensure_ascii=False)

    def _forgotten(self, message: Message) -> None:
        """The registry has given it up."""
        if self._mine(read_id(message)) and self.plan is not None and self.plan.phase == ASKED:
            self._keep(None)
        if message.origin == self.tx.topology.registry:
            self.given_up()

    # -- the freeze ------------------------------------------------------------------------------------------------

    def _frozen(self, message: Message) -> None:
        """Its forwards are stamped: what is sent from here on comes after it everywhere."""
        plan = _plan(message)
        if message.origin != self.tx.topology.registry or plan.number != self.truth.number + 1:
            return
        if self.plan is None or self.plan.phase == ASKED:  # else it is told again
            self._freeze(plan)

    def _freeze(self, plan: Plan) -> None:
        try:
            self._work_out(plan)
        except MomError as error:  # it was asked, and said that it could
            self.tx.note(f"cannot change to revision {plan.number} of the topology: {error}")
            return
        plan.phase = FROZEN
        self._keep(plan)
        self._tell(tuple(plan.inside), MARKED, [plan.id])
        self._guard(plan)
        self.tx.note(f"changes to revision {plan.number} of the topology: {', '.join(plan.behind)} stop for it")

    def _marked(self, message: Message) -> None:
        """The server of the mark lets nothing more into S."""
        id = read_id(message)
        self.tx.rows.meta[f"{MARK}{message.origin}"] = id
        if self._mine(id):
            self.marks.add(message.origin)

    def switched(self, peer: str) -> None:
        """A neighbour inside greets as one that has switched: it has received all of ours that it needs."""
        self.ahead.add(peer)
        self.tx.urgency = self.tx.urgency or COMMIT

    def leaving(self) -> bool:
        """We are to leave the bus, and take no new work: it could go nowhere. Nothing comes into being here either: the
        registry makes nobody here from before READY on, and what others send for it is refused."""
        return self.plan is not None and self.tx.name in self.plan.leavers

    def turn(self) -> bool:
        """Go on as far as is possible now. True if that was not all."""
        plan = self.plan
        if plan is None or plan.phase == ASKED:
            return False
        self.channel.announce()
        if plan.phase == FROZEN and self._may_switch(plan):
            self._switch(plan)
        return plan.phase == DRAINING and self.channel.gate.draining and not self._drained()

    def _may_switch(self, plan: Plan) -> bool:
        if any(link.durable < link.sent for link in self._links() if link.peer in plan.lost):
            return False  # what waits for them could not be read yet
        if plan.ended:
            return True
        arrived = self.marks.issuperset(plan.inside) and not any(self._under_way())
        return arrived and (self.tx.name not in plan.leavers or self._is_last(plan))

    def _links(self) -> Iterator[Link]:
        """Those with servers inside."""
        return (link for part in self._parts() for link in part.links.values())

    def _parts(self) -> Iterator[DomainChannel]:
        behind, _ = self.channel.gate.closed.get(AGENT, (frozenset(), False))
        return (part for part in self.channel.domains.values() if part.name in behind)

    def _under_way(self) -> Iterator[str]:
        """What of ours is still in S, in words."""
        for part in self._parts():
            if part.pending:
                yield f"{many(part.pending, 'copy', 'copies')} of its own in domain {part.name}"
            if count := len(part.core.held()) + len(part.core.parked()):
                yield f"{many(count, 'packet that waits', 'packets that wait')} in domain {part.name}"
            for link in part.links.values():
                if link.waiting() and link.peer not in self.ahead and link.peer not in self._lost():
                    packets = many(link.sent - link.acked, "packet")
                    yield f"{link.peer}, to acknowledge {packets} in domain {part.name}"

    def _lost(self) -> list[str]:
        return self.plan.lost if self.plan is not None else []

    def _is_last(self, plan: Plan) -> bool:
        """We leave: have all switched that have links with us? Else ask them."""
        out = {*self.ahead, *plan.leavers, *plan.lost}
        left = [link for link in self._links() if link.peer not in out]
        for link in left:
            if link.conn:
                self._sought.discard(link.peer)  # to be asked when it hangs up
            elif link.peer not in self._sought:
                self._sought.add(link.peer)
                self.channel.links.meet.append(link.peer)
                self.tx.urgency = COMMIT
        return not left

    def _switch(self, plan: Plan) -> None:
        change = difference(revision.read(self.truth.text), revision.read(plan.text))
        tx, dead, own = self.tx, 0, list[Message]()
        for part in self._parts() if plan.lost else ():
            dead += undelivered.without(self.channel, part, plan.lost, plan.seen)
            own += part.own_left()
        self.truth.take(plan.number, plan.since, plan.text, anew={*change.frozen, *change.replacing})
        for message in own:  # what another one was to order
            self.channel.hand_over_own(message)
        if plan.seen:
            died = many(dead, "message is a dead letter", "messages are dead letters")
            tx.note(f"has not waited for {listed(plan.lost)}, lost for good: {died} here")
        for server in [*plan.inside, *plan.lost]:
            tx.rows.meta[f"{MARK}{server}"] = None
        plan.phase, plan.text, plan.behind = DRAINING, "", list(change.replacing)
        self.marks, self.ahead = set(), set()
        self._guard(plan)
        self._keep(plan)
        if tx.name in plan.leavers:
            tx.note(f"has left the bus with revision {plan.number} of the topology: stop it; its store can be archived")
            return
        if not plan.over:
            self._tell((tx.topology.registry or tx.name,), SWITCHED, [plan.id])

    def _drained(self) -> bool:
        """Let in what waits; True if all of it is."""
        plan = self.plan
        assert plan is not None, "nobody waits"
        if not self.channel.drain():
            return False
        plan.phase, plan.behind = DONE, []
        self._over(plan)
        return True

    def _ended(self, number: int) -> None:
        """All inside have switched."""
        plan = self.plan
        if plan is not None and plan.phase != ASKED and plan.number <= number:
            plan.over = True
            self._over(plan)

    def _over(self, plan: Plan) -> None:
        over = plan.over and plan.phase == DONE
        self._guard(plan)
        self._keep(None if over else plan)
        if over:
            self.channel.neighbours.moving = None

    # -- without servers that are lost -----------------------------------------------------------------------------

    def without(self, id: int, servers: list[str]) -> None:
        """Wait no longer for servers inside that are lost for good, in the change `id`, which has begun, whether we
        know that or not. Raises MomError."""
        plan = self.plan
        if plan is None or plan.id != id:
            return
        me = self.tx.name
        if plan.phase not in (ASKED, FROZEN):  # it is not to be let into the new domains either
            self._fence(plan, [name for name in servers if name in plan.inside])
            return
        if strange := [name for name in servers if name == me or name not in {*plan.inside, *plan.lost}]:
            raise MomError(f"{me} cannot go on without {strange[0]!r}: name others of {listed(plan.inside, 12)}")
        lost = [name for name in servers if name not in plan.lost]
        links = [part.link(name) for part in self._near(plan) for name in lost if name in part.members]
        if up := [link.peer for link in links if link.conn]:
            raise MomError(f"{up[0]} is connected to {me}, so it is not lost: stop it by `mom server stop {up[0]}`")
        if not lost:
            return
        plan.lost += lost
        if plan.phase == ASKED:
            self._freeze(plan)
        plan.inside = [name for name in plan.inside if name not in lost]
        plan.leavers = [name for name in plan.leavers if name not in lost]
        plan.seen |= {link.peer: link.seen() for link in links}
        self._fence(plan, lost)
        self._guard(plan)
        self._keep(plan)
        self.tx.urgency = COMMIT
        self.tx.note(f"changes to revision {plan.number} of the topology without {listed(lost)}, lost for good")

    def _fence(self, plan: Plan, lost: list[str]) -> None:
        parts = self.channel.domains.values()
        if up := [name for part in parts for name in lost if name in part.links and part.links[name].conn]:
            raise MomError(
                f"{up[0]} is connected to {self.tx.name}, so it is not lost: stop it by `mom server stop {up[0]}`"
            )
        for name in lost:
            self.fence(name, (plan.number << revision.EPOCH_BITS) + 1)  # it may have switched, and nobody knows
        self.tx.urgency = COMMIT

    def _near(self, plan: Plan) -> list[DomainChannel]:
        """Our parts of S."""
        change = difference(revision.read(self.truth.text), revision.read(plan.text))
        return [part for part in self.channel.domains.values() if part.name in change.frozen]

    def end(self, id: int) -> None:
        """Whatever can arrive is there, says the operator, who has asked all that are left: switch."""
        plan = self.plan
        if plan is not None and plan.id == id and plan.phase == FROZEN and plan.lost:
            plan.ended = True
            self._keep(plan)
            self.tx.urgency = COMMIT

    def lost(self, server: str) -> None:
        """It was decided that a server is lost, and so may be what went over it: the word that nothing has begun, and
        that we have switched."""
        plan = self.plan
        if plan is not None and plan.phase == ASKED:
            self._keep(None)
        elif plan is not None and plan.phase != FROZEN and self.tx.name not in plan.leavers:
            self._tell((self.tx.topology.registry or self.tx.name,), SWITCHED, [plan.id])

    def close(self, over: bool) -> None:
        """For stores whose servers are stopped, when all have told each other what they have. If the change is `over`,
        since one of its servers has switched, switch, too; else go back: what waits at the gate enters the domains as
        they are."""
        plan = self.plan
        if plan is None:
            return
        if over and plan.phase in (ASKED, FROZEN):
            if plan.phase == ASKED:
                self._freeze(plan)
            plan.over = True
            self._switch(plan)
        elif plan.phase == ASKED:
            self._keep(None)
            return
        elif plan.phase == FROZEN:
            for server in self.marks:
                self.tx.rows.meta[f"{MARK}{server}"] = None
            self.marks = set()
            plan.phase, plan.number, plan.inside = DRAINING, self.truth.number, []
        plan.over = True
        self._over(plan)

    def report(self, id: int) -> dict[str, Any]:
        """How far the server is in the change `id`, and how much it has sent and received in S while it is frozen."""
        plan = self.plan
        if plan is None or plan.id != id:
            return {"revision": self.truth.number, "phase": "", "lost": [], "domains": {}}
        counts = {part.name: counted(part) for part in self._parts()} if plan.phase == FROZEN else {}
        return {"revision": self.truth.number, "phase": plan.phase, "lost": plan.lost, "domains": counts}

    def _tell(self, servers: tuple[str, ...], type: str, values: list[Any]) -> None:
        dests = tuple(f"{name}/{AGENT}" for name in servers)
        payload = json.dumps(values, ensure_ascii=False).encode()
        self._send(new_message(self.tx, f"{self.tx.name}/{AGENT}", dests, type, payload, flags=BOUNCE))

    # -- for operators -----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The phase, how much waits at the gate, what the server waits for, and before the switch what it leads to."""
        plan = self.plan
        row = {
            "revision": self.truth.number, "phase": "", "change": 0, "digest": "", "gate": len(self.channel.gate),
            "waits_for": [],
        }  # fmt: skip
        if plan is None:
            return row
        waits = [f"the mark of {server}" for server in plan.inside if server not in self.marks]
        if plan.phase == FROZEN:
            waits += self._under_way()
            if self._sought:
                waits.append("its neighbours, to switch before it leaves")
        return row | {
            "phase": plan.phase, "change": plan.number, "digest": revision.digest_of(plan.text) if plan.text else "",
            "waits_for": waits if plan.phase == FROZEN else [],
        }  # fmt: skip

    def check(self) -> None:
        plan, (behind, _) = self.plan, self.channel.gate.closed.get(AGENT, (frozenset(), False))
        closed = plan is not None and plan.phase != ASKED
        assert behind == (frozenset(plan.behind) if plan is not None and closed else frozenset()), "1: the wrong gate"
        self.channel.gate.check()


def cannot_leave(servers: str, held: Iterable[str]) -> str:
    """Why a server stays on the bus that holds something."""
    return (
        f"{servers} cannot leave, and holds {listed(held)}: move that or delete it first, or give it up by "
        "`mom topology apply --drop`"
    )


def _read_plan(message: Message) -> object:
    plan = _plan(message)
    try:
        return revision.read(plan.text)
    except MomError as error:
        raise UnknownNotification(f"{message.type} came with a wrong topology: {error}") from None


def _plan(message: Message) -> Plan:
    """Raises UnknownNotification."""
    match read_values(message):
        case [int(id), int(number), int(since), str(text), *more] if 0 < id <= LAST and 0 < number < LAST:
            if since >= 0 and (read := read_more(more)) is not None:
                return Plan(id, number, since, text, drop=read[0], lost=read[1])
    raise UnknownNotification(f"{message.type} came with what is no plan")


def read_id(message: Message) -> int:
    match read_values(message):
        case [int(id)] if 0 < id <= LAST:
            return id
    raise UnknownNotification(f"{message.type} came without the number of a plan")


def read_values(message: Message) -> object:
    try:
        return json.loads(message.payload)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None
