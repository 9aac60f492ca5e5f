"""A server is lost for good: what those that are left of each of its domains do, by themselves (protocols §8.9).

1. fence     who learns of it closes its link to the lost server for ever, and its gate before the domain. What is under
             way among the others in the domain goes on.
2. reports   each tells each other, on the link and past all order, how much it has sent to whom, and received. When all
             that was sent is received, nothing is under way between them, nor ever will be.
3. told      what waits for the lost server, or for what only that had, becomes dead letters, and its senders are told.
4. switch    the domain begins anew, under the epoch that the operator has named: in it the place of the lost server is
             empty, for a successor with a new store. What waits at the gate is let in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from mombroker import ordering
from mombroker.core import times, undelivered
from mombroker.core.channel import Channel
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import DeclaredLost, MomError, NotYet, PeerError, Switched, short
from mombroker.core.hello import Hello
from mombroker.core.link import Link
from mombroker.core.loss_reports import LAST, Loss, Reports, read_report
from mombroker.core.message import Message, decode
from mombroker.core.meta import LOSS, PLAN
from mombroker.core.reconfiguration import FROZEN
from mombroker.core.topology import listed
from mombroker.core.transaction import COMMIT
from mombroker.core.words import many

FENCED, TELLING, DRAINING, DONE = "fenced", "telling", "draining", "switched"  # phases
CHANGING = (
    "takes part in a change of the domains that has begun, and that the registry has to end: start that if it is down, "
    "see `mom topology status`, and ask again"
)
PAGE = 64  # packets that become dead letters at once
ANSWER_NS = 4 * times.SECOND  # for all to be connected; whoever is up takes a round trip


class DeadLetters(Protocol):
    def undeliverable(self, message: Message, agent: str, reason: str) -> bool: ...


class Fences(Protocol):
    """Who is lost."""

    def fenced(self, server: str) -> int: ...  # the epoch that a successor begins under, 0 if it was never lost
    def fence(self, server: str, epoch: int) -> None: ...  # here, before that is decided
    def declare(self) -> None: ...  # have the registry decide that


@dataclass(slots=True)
class Asked:
    """A loss that begins when all are connected."""

    epoch: int
    servers: set[str] = field(default_factory=set)
    tickets: list[int] = field(default_factory=list)


class Losses:
    """1. From the fence to the switch nothing enters the domain, and a lost server is not connected.
    2. Who switches knows that nothing is under way between those that are left.

    losses    by domain
    reports   by domain, of this epoch
    ahead     domain -> the epoch under which one of its members works already
    until     when those that a loss is asked of have to be connected
    """

    def __init__(
        self, channel: Channel, dead_letters: DeadLetters, fences: Fences,
        answer: Callable[[int, Any], None], ring: Callable[[int], None],
    ):  # fmt: skip
        self.tx, self.channel, self.links = channel.tx, channel, channel.links
        self.dead_letters, self.fences, self._answer, self._ring = dead_letters, fences, answer, ring
        rows = self.tx.reader.meta(LOSS)
        self.losses = {key.removeprefix(LOSS): Loss(**json.loads(str(row))) for key, row in rows.items()}
        self.reports = {name: Reports(channel, name) for name in self.losses}
        self.ahead: dict[str, int] = {}
        self.until = 0
        self._asked: dict[str, Asked] = {}  # by domain
        channel.heard, channel.neighbours.judge = self.heard, self.judge
        self._guard()

    # -- what is asked ---------------------------------------------------------------------------------------------

    def lose(self, ticket: int, domain: str, servers: list[str], epoch: int) -> None:
        """Begin, once all that are left are connected. Raises MomError for what cannot be."""
        me, topology = self.tx.name, self.tx.topology
        if domain not in self.channel.domains:
            inside = listed(self.channel.domains)
            raise MomError(f"{me} is not in domain {short(domain)}, but in {inside}: ask a member of it")
        members = topology.domains[domain].members
        if strange := [server for server in servers if server == me or server not in members] or not servers and [""]:
            raise MomError(f"{me} cannot lose {strange[0]!r} in domain {domain}: name others of {listed(members)}")
        if topology.registry in servers:
            raise MomError(
                f"{topology.registry} is the registry, which decides names: stop all servers and run `mom domain "
                "reset` for it"
            )
        if self._frozen():
            raise MomError(f"{me} {CHANGING}")
        if up := [server for server in servers if self._link(domain, server).conn]:
            raise MomError(
                f"{up[0]} is connected to {me}, so it is not lost: stop it by `mom server stop {up[0]}`, or have it "
                "leave by `mom topology apply`"
            )
        loss, now = self.losses.get(domain), self.channel.neighbours.epochs[domain]
        if loss is not None and loss.phase in (FENCED, TELLING) and {*loss.lost} >= {*servers}:
            self._answer(ticket, {"domain": domain, "epoch": loss.epoch})
            return
        if not now < epoch <= LAST:
            raise MomError(f"the clocks of domain {domain} are at epoch {now}: name a later one, not {epoch}")
        asked = self._asked.setdefault(domain, Asked(epoch))
        asked.servers |= {*servers}
        asked.tickets.append(ticket)
        self.until = times.after(self.tx.now, ANSWER_NS)
        self._ring(self.until)
        self._look(domain)

    def _frozen(self) -> bool:
        """Do we take part in a change of the domains that has begun?"""
        row = self.tx.written("meta", PLAN)
        return row is not None and json.loads(str(row))["phase"] == FROZEN

    def _away(self, domain: str) -> list[str]:
        """Those that are left, and are not connected."""
        loss = self.losses.get(domain)
        lost = self._asked[domain].servers | {*(loss.lost if loss and loss.phase in (FENCED, TELLING) else ())}
        return [link.peer for link in Reports(self.channel, domain).others(lost) if not link.conn]

    def _look(self, domain: str) -> None:
        """Are all connected that are left of a domain? Then the loss that was asked for begins."""
        now = self.channel.neighbours.epochs[domain]
        if now < self._asked[domain].epoch and (away := self._away(domain)):
            self.links.meet += away
            self.tx.urgency = COMMIT
            return
        asked = self._asked.pop(domain)
        begins = now < asked.epoch  # else it was begun by another one, and is over
        refused = f"{self.tx.name} {CHANGING}" if begins and self._frozen() else ""  # since it was asked
        if begins and not refused:
            self._begin(domain, asked.epoch, asked.servers)
        for ticket in asked.tickets:
            self._answer(ticket, refused or {"domain": domain, "epoch": max(now, asked.epoch)})

    def hurry(self) -> None:
        """Nobody waits for ever for a server that is down."""
        if not 0 < self.until <= self.tx.now:
            return
        self.until = 0
        for domain in list(self._asked):
            away = listed(self._away(domain))
            asked = self._asked.pop(domain)
            sentence = (
                f"{away} must be up to go on without {listed(sorted(asked.servers))}, and cannot be reached: start "
                "what is down, or declare it lost as well by `mom server lost`; nothing has changed"
            )
            for ticket in asked.tickets:
                self._answer(ticket, sentence)

    # -- the fence -------------------------------------------------------------------------------------------------

    def _begin(self, domain: str, epoch: int, lost: Iterable[str]) -> None:
        loss = self.losses.get(domain)
        if loss is None or loss.phase in (DRAINING, DONE):
            loss = Loss(domain, epoch, [], FENCED)
        loss.epoch, loss.phase = max(loss.epoch, epoch), FENCED
        loss.lost = sorted({*loss.lost, *lost})
        self.losses[domain], self.reports[domain] = loss, Reports(self.channel, domain)
        for server in loss.lost:
            link = self._link(domain, server)
            loss.seen.setdefault(server, link.seen())
            self.channel.neighbours.conns.pop(link.conn, None)
            self.links.cut(link)
            self.fences.fence(server, loss.epoch)
        self._keep(loss)
        self.tx.note(
            f"goes on without {listed(loss.lost)}, which is lost: domain {domain} stops until all that is under way is "
            "there"
        )
        self._guard()

    def _guard(self) -> None:
        for loss in self.losses.values():
            closed = [] if loss.phase == DONE else [loss.domain]
            self.channel.gate.close(f"{LOSS}{loss.domain}", closed, loss.phase == DRAINING)
            for link in self.reports[loss.domain].others(loss.lost) if loss.phase == FENCED else ():
                link.unheld = True
                link.touch()

    def _keep(self, loss: Loss) -> None:
        self.tx.rows.meta[f"{LOSS}{loss.domain}"] = json.dumps(asdict(loss))
        self.tx.urgency = COMMIT

    def _link(self, domain: str, peer: str) -> Link:
        return self.channel.domains[domain].link(peer)

    def judge(self, hello: Hello, domain: str) -> None:
        """Raises DeclaredLost, whatever domains both have, and NotYet where one end has switched, not the other."""
        peer, mine, loss = hello.server, self.channel.neighbours.epochs[domain], self.losses.get(domain)
        if hello.fenced > mine:
            raise DeclaredLost(self.tx.name)
        if hello.domain != domain:
            return
        if hello.epoch < self.fences.fenced(peer):
            raise DeclaredLost(peer)
        if loss is None:
            return
        if peer in loss.lost and loss.phase in (FENCED, TELLING):
            raise NotYet(f"{self.tx.name} is not done yet with the loss of {peer}")
        if hello.epoch > mine:
            self.ahead[domain] = max(hello.epoch, self.ahead.get(domain, 0))
            raise Switched(f"{peer} has begun domain {domain} anew, and {self.tx.name} not yet")
        if hello.epoch < mine:
            raise NotYet(f"{self.tx.name} has begun domain {domain} anew, and {peer} not yet")

    # -- reports -----------------------------------------------------------------------------------------------------

    def met(self, peer: str) -> None:
        """A neighbour is connected."""
        domain = self.tx.topology.shared_domain(self.tx.name, peer)
        if domain is None:
            return
        loss = self.losses.get(domain.name)
        if loss is not None:
            self.reports[domain.name].met(peer)
            if loss.phase in (DRAINING, DONE) and peer in loss.left:
                loss.left.remove(peer)
                self._keep(loss)
            self.tx.urgency = COMMIT
        if domain.name in self._asked:
            self._look(domain.name)

    def apart(self, peer: str) -> None:
        """A connection is gone; what it lacks is told on another one."""
        for reports in self.reports.values():
            reports.apart(peer)
        if self.losses:
            self.tx.urgency = COMMIT

    def switched(self, peer: str) -> bool:
        """A neighbour works under another epoch of our domain already. False if that is not due to a loss."""
        domain = self.tx.topology.shared_domain(self.tx.name, peer)
        if domain is None or domain.name not in self.ahead:
            return False
        self.tx.urgency = COMMIT
        return True

    def heard(self, peer: str, domain: str, epoch: int, value: object) -> None:
        """The report of a member of a domain, which may be the first word of a loss. Raises PeerError."""
        lost, counts = read_report(peer, value, self.channel.domains[domain].members)
        if self.tx.name in lost or peer in lost or not self.channel.neighbours.epochs[domain] < epoch <= LAST:
            raise PeerError(f"{peer} tells of a loss in domain {domain} that cannot be")
        loss = self.losses.get(domain)
        known = (
            loss is not None and loss.phase in (FENCED, TELLING) and epoch <= loss.epoch and set(lost) <= {*loss.lost}
        )
        if not known:
            self._begin(domain, epoch, lost)
        loss = self.losses[domain]
        if (epoch, lost) == (loss.epoch, loss.lost):
            self.reports[domain].heard[peer] = counts
        self.tx.urgency = COMMIT

    # -- what goes on ------------------------------------------------------------------------------------------------

    def _settled(self, loss: Loss) -> bool:
        """Is nothing under way among those that are left, nor ever will be?"""
        part = self.channel.domains[loss.domain]
        if any(part.link(server).durable < part.link(server).sent for server in loss.lost):
            return False
        return loss.domain in self.ahead or self.reports[loss.domain].settled(loss)

    def recover(self) -> None:
        """A restart: all is told anew."""
        for loss in self.losses.values():
            self.links.meet += loss.left
            self.tx.urgency = COMMIT

    def turn(self) -> bool:
        """Go on as far as is possible now. True if that was not all."""
        more = False
        if self.losses:
            self.channel.announce()
        for loss in list(self.losses.values()):
            if loss.phase == FENCED:
                self.reports[loss.domain].say(loss)
                if self._settled(loss):
                    loss.phase = TELLING
            if loss.phase == TELLING:
                if self._tell(loss):
                    self._switch(loss)
                else:
                    more = True
            if loss.phase == DRAINING and self.channel.gate.draining:
                if self.channel.drain():
                    for each in self.losses.values():
                        each.phase = DONE if each.phase == DRAINING else each.phase
                        self._keep(each)
                    self._guard()
                else:
                    more = True
            if loss.phase == DONE and not loss.left:
                del self.losses[loss.domain], self.reports[loss.domain]
                self.tx.rows.meta[f"{LOSS}{loss.domain}"] = None
        return more

    def _tell(self, loss: Loss) -> bool:
        """What waits for the lost servers is undeliverable, a page at a time. True if that was all of it."""
        part = self.channel.domains[loss.domain]
        relays = ordering.backend(part.domain.backend).relays
        reached = part.core.reach([part.numbers[server] for server in loss.lost])
        for server in loss.lost:
            link = part.link(server)
            if packets := undelivered.page(part, link, link.acked, PAGE):
                for seq, packet in packets:
                    concerns = packet.body and (relays or link.member in packet.dests)
                    if concerns and self.reports[loss.domain].tells(packet, server):
                        ways = {server} | {part.members[at] for at in packet.dests if relays and at not in reached}
                        self._bury(loss, decode(packet.body), part, ways, seq > loss.seen[server] and not relays)
                link.acknowledged(packets[-1][0], 0)
                self._keep(loss)
                return False
        return True

    def _bury(self, loss: Loss, message: Message, part: DomainChannel, ways: set[str], unsent: bool) -> None:
        """The copies of a message that were to go these ways."""
        for agent, sure in undelivered.copies(self.channel, message, part.name, ways):
            known = "it was not delivered" if unsent and sure else "whether it was delivered is unknown"
            way = f"its way {'led' if sure else 'may have led'} to {listed(loss.lost)}, which is lost"
            self._dead(loss, message, agent, f"{way}: {known}", not (unsent and sure))

    def _dead(self, loss: Loss, message: Message, agent: str, reason: str, unknown: bool) -> None:
        if self.dead_letters.undeliverable(message, agent, reason):
            loss.dead += 1
            loss.unknown += unknown

    def _switch(self, loss: Loss) -> None:
        part, channel = self.channel.domains[loss.domain], self.channel
        epoch = self.ahead.pop(loss.domain, loss.epoch)
        relays = part.core.relays
        known = "whether it was delivered is unknown" if relays else "it was not delivered"
        for message, agent in undelivered.held(channel, part):
            reason = f"it waited for what only {listed(loss.lost)} had, which is lost: {known}"
            self._dead(loss, message, agent, reason, relays)
        own = part.own_left()
        channel.install(self.tx.topology, {loss.domain}, epoch, loss.lost)
        for message in own:  # what another one was to order
            channel.hand_over_own(message)
        again = epoch < loss.epoch
        loss.phase = FENCED if again else DRAINING
        self.reports[loss.domain] = Reports(channel, loss.domain)
        loss.left = [link.peer for link in self.reports[loss.domain].others(loss.lost)]
        self.links.meet += loss.left
        self._guard()
        self._keep(loss)
        if not again:
            self.tx.note(
                f"domain {loss.domain} has begun anew without {listed(loss.lost)}: "
                f"{many(loss.dead, 'message', 'messages')} on the way "
                f"{'is a dead letter' if loss.dead == 1 else 'are dead letters'} here"
            )
            self.fences.declare()

    # -- for operators -------------------------------------------------------------------------------------------------

    def status(self) -> list[dict[str, Any]]:
        """How far each loss is here, and what it waits for."""
        rows = []
        for name, loss in self.losses.items():
            waits = {FENCED: self.reports[name].missing(loss), DONE: loss.left}.get(loss.phase, [])
            rows.append({
                "domain": name, "lost": loss.lost, "epoch": loss.epoch, "phase": loss.phase, "dead": loss.dead,
                "unknown": loss.unknown, "waits_for": waits,
            })  # fmt: skip
        return rows

    def check(self) -> None:
        for domain, loss in self.losses.items():
            if loss.phase in (FENCED, TELLING):
                assert domain in self.channel.gate.behind, "1: the gate is open"
                assert not any(self._link(domain, server).conn for server in loss.lost), "1: a lost server is connected"
                if loss.phase == TELLING:
                    assert self._settled(loss), "2: something is under way"
