"""What the agents of a simulated bus do: wander, move money, play ping-pong. And what must be true of them at the end.

Every agent keeps a chain of checksums over the ids of all that it has reacted to, in order. It is part of its state,
so an effect that happened twice, not at all or in another order than the log says breaks the chain.
"""

from random import Random
from typing import Any
from zlib import crc32

from mombroker.agents import (
    Agent,
    DeferDone,
    DeferFailed,
    Expired,
    Items,
    ReactionFailed,
    Undeliverable,
    UnknownAgent,
    notification,
    reacts,
)
from mombroker.core.topology import AgentDecl
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.faults import Mood
from mombroker.sim.world import SECOND

HERE = __name__


class Moody(Exception):
    """This reaction fails; the next attempt may not."""


class Witness(Agent):
    """An agent whose state tells what it has reacted to."""

    reactions: int = 0
    chain: int = 0

    def _saw(self) -> None:
        self.reactions += 1
        self.chain = crc32(self.message_id.encode(), self.chain)
        if Mood.failing and Mood.rng.random() < Mood.failing:
            raise Moody("not now")

    def on_create(self) -> None:
        self._saw()

    @reacts
    def told(self, note: ReactionFailed | UnknownAgent | Expired | Undeliverable | DeferDone | DeferFailed) -> None:
        self._saw()


# -- wandering -----------------------------------------------------------------------------------------------------


@notification(name="sim.walk")
class Walk:
    """Go on at random for `left` steps; `met` is an agent to remember."""

    seed: int
    left: int
    met: str = ""


def echo(value: int) -> int:
    return value


def refuse(value: int) -> int:
    raise ValueError(f"{value} is not to my taste")


class Walker(Witness):
    """Reacts by sending to others, to many at once, to agents that it has just made, to itself later, to nobody."""

    known: list[str]
    names: list[str]
    servers: list[str]
    kept: Items

    @reacts
    def walk(self, note: Walk) -> None:
        self._saw()
        if note.met and note.met not in self.known:
            self.known.append(note.met)
        if note.left <= 0:
            if note.seed % 20 == 0 and self.id.count("/") == 2:  # somebody made it during the run
                self.delete()
            return
        rng = Random(note.seed)
        dice = rng.random()
        if dice < 0.07:
            self._spread(rng, note.left)
        elif dice < 0.12:
            self.timer(rng.random() / 100, self._next(rng, note.left))
        elif dice < 0.16:
            self.defer(rng.choice((echo, refuse)), note.left)
            self.send(rng.choice(self.known), self._next(rng, note.left))
        elif dice < 0.19:
            self.send(f"{rng.choice(self.servers)}/nobody", self._next(rng, 0))
            self.send(rng.choice(self.known), self._next(rng, note.left))
        elif dice < 0.22 and self.names:
            self.send(rng.choice(self.names), self._next(rng, note.left))
        elif dice < 0.26:
            self.send(rng.choice(self.known), self._next(rng, 0), ttl=rng.random() / 50)
            self.send(rng.choice(self.known), self._next(rng, note.left))
        elif dice < 0.34:
            self._keep(rng)
            self.send(rng.choice(self.known), self._next(rng, note.left))
        elif dice < 0.60:
            several = rng.sample(self.known, min(len(self.known), rng.randint(2, 4)))
            self.send(several, self._next(rng, note.left // 2))
        else:
            self.send(rng.choice(self.known), self._next(rng, note.left))
            if dice > 0.9:
                self.send(rng.choice(self.known), self._next(rng, note.left // 2))

    def _next(self, rng: Random, left: int, met: str = "") -> Walk:
        return Walk(rng.getrandbits(32), left - 1, met)

    def _spread(self, rng: Random, left: int) -> None:
        """Create, send to it at once, and let a third one know it, which may send to it as well."""
        new = self.create(type(self), server=rng.choice(self.servers), known=self.known, names=[], servers=self.servers)
        self.send(new, self._next(rng, left // 2))
        self.send(rng.choice(self.known), self._next(rng, left, new))

    def _keep(self, rng: Random) -> None:
        for _ in range(rng.randint(1, 3)):
            self.kept.add(self.message_id, rng.randrange(10))
        if rng.random() < 0.5:
            first = self.kept.first()
            assert first is not None, "something was just added"
            self.kept.remove(first.id)


@notification(name="sim.alarm")
class Alarm:
    message: str  # in whose reaction it was set


class Pilgrim(Walker):
    """Knows its items and timers by their ids, wherever it has come to meanwhile; `wrong` tells what it has found."""

    ids: dict[str, str] = {}  # noqa: RUF012 - its state
    timers: dict[str, int] = {}  # noqa: RUF012
    due: dict[str, int] = {}  # noqa: RUF012
    wrong: list[str] = []  # noqa: RUF012

    @reacts
    def walk(self, note: Walk) -> None:
        super().walk(note)
        rng = Random(note.seed + 1)
        if note.left > 0:
            if rng.random() < 0.3:
                self._keep(rng)
            if rng.random() < 0.3:
                self.timers[self.message_id] = self.timer(100 + rng.random(), Alarm(self.message_id))
                self.due[self.message_id] = self.now + 100 * SECOND
            if rng.random() < 0.3 and self.timers:
                first = next(iter(self.timers))
                if self.now < self.due[first] - 50 * SECOND:  # else it may have rung, and be under way
                    self.cancel(self.timers.pop(first))

    @reacts
    def alarm(self, note: Alarm) -> None:
        self._saw()
        if self.timers.pop(note.message, None) is None:
            self.wrong.append(f"the timer of {note.message} was cancelled, and has rung")

    def _keep(self, rng: Random) -> None:
        super()._keep(rng)
        found = {str(item.id): item.value for item in self.kept}
        gone = [id for id in self.ids if id not in found]
        if len(found) != len(self.kept) or len(gone) > 1 or any(found.get(id, v) != v for id, v in self.ids.items()):
            self.wrong.append("items have other ids than they had")
        for id, value in found.items():
            item = self.kept.get(int(id))
            if item is None or item.value != value:
                self.wrong.append("an item is not found by its id")
        if gone and (self.kept.get(int(gone[0])) is not None or self.kept.remove(int(gone[0]))):
            self.wrong.append("an item that was removed is there")
        self.ids = found


# -- money ---------------------------------------------------------------------------------------------------------


@notification(name="sim.pay")
class Pay:
    """Pay `amount` to another account, which passes a part of it on to the next for `left` steps."""

    to: list[str]
    amount: int
    left: int


@notification(name="sim.paid")
class Paid:
    amount: int
    to: list[str]
    left: int


class Account(Witness):
    """Money leaves one account with the reaction that sends it, and is in the other with the one that receives it."""

    balance: int

    @reacts
    def pay(self, note: Pay) -> None:
        self._saw()
        self._pass_on(note.to, note.amount, note.left)

    @reacts
    def paid(self, note: Paid) -> None:
        self._saw()
        self.balance += note.amount
        self._pass_on(note.to, note.amount * 2 // 3, note.left)

    def _pass_on(self, to: list[str], amount: int, left: int) -> None:
        amount = min(amount, self.balance)
        if to and left > 0 and amount > 0:
            self.balance -= amount
            self.send(to[0], Paid(amount, to[1:] + to[:1], left - 1))


# -- ping-pong (paper 004, section 6) ------------------------------------------------------------------------------


@notification(name="sim.ping")
class Ping:
    round: int


@notification(name="sim.pong")
class Pong:
    round: int


class Echo(Witness):
    rounds: list[int]

    @reacts
    def ping(self, note: Ping) -> None:
        self._saw()
        self.rounds.append(note.round)
        self.reply(Pong(note.round))


class Main(Witness):
    """Broadcasts, waits for every answer, broadcasts again."""

    others: list[str]
    rounds: int
    round: int = 0
    missing: int = 0

    def on_create(self) -> None:
        self._saw()
        self._serve()

    @reacts
    def pong(self, note: Pong) -> None:
        self._saw()
        assert note.round == self.round, "an answer to a round that is over"
        self.missing -= 1
        if not self.missing:
            self._serve()

    def _serve(self) -> None:
        if self.round < self.rounds:
            self.round += 1
            self.missing = len(self.others)
            self.send(self.others, Ping(self.round))


# -- what a run does with them -------------------------------------------------------------------------------------


class Wander(Workload):
    """Walkers on all servers; some names are decided only during the run."""

    def __init__(self, rng: Random, messages: int):
        self.rng = Random(rng.getrandbits(32))
        self.messages = messages
        self.late = [f"late{n}" for n in range(rng.choice((0, 0, 1, 2)))]

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        self.servers = servers
        homes = [*servers, *rng.choices(servers, k=rng.randint(0, len(servers)))]
        names = [f"w{n}" for n in range(len(homes))]
        ids = [f"{home}/{name}" for home, name in zip(homes, names, strict=True)]
        self.ids = ids
        fields = {"known": ids, "names": [*names, *self.late], "servers": servers}
        self.fields = {"known": ids, "names": names, "servers": servers}
        return [AgentDecl(n, home, f"{HERE}:Walker", fields) for n, home in zip(names, homes, strict=True)]

    def begin(self, cluster: Cluster, span: int) -> None:
        rng = self.rng
        starts = max(1, self.messages // 30)
        for _ in range(starts):
            several = rng.sample(self.ids, min(len(self.ids), rng.choice((1, 1, 3))))
            fields = {"seed": rng.getrandbits(32), "left": rng.randint(4, 14)}
            self._ask(cluster, int(rng.random() * span), "send", to=several, type="sim.walk", fields=fields)
        for name in self.late:
            self._deploy(cluster, name, int(rng.random() * span))

    def _ask(self, cluster: Cluster, delay: int, verb: str, **args: Any) -> None:
        cluster.world.after(delay, cluster.ask, self.rng.choice(self.servers), verb, args)

    def _deploy(self, cluster: Cluster, name: str, delay: int) -> None:
        home = self.rng.choice(self.servers)
        self._ask(cluster, delay, "deploy", name=name, server=home, fields=self.fields, **{"class": f"{HERE}:Walker"})

    def settle(self, cluster: Cluster) -> None:
        if self.late:
            cluster.make_room()  # full servers would refuse
        for name in self.late:
            self._deploy(cluster, name, 0)


class Bank(Workload):
    def __init__(self, rng: Random, messages: int):
        self.rng = Random(rng.getrandbits(32))
        self.messages = messages

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        homes = rng.choices(servers, k=max(3, len(servers)))
        self.ids = [f"{home}/a{n}" for n, home in enumerate(homes)]
        self.total = 1000 * len(homes)
        return [AgentDecl(f"a{n}", home, f"{HERE}:Account", {"balance": 1000}) for n, home in enumerate(homes)]

    def begin(self, cluster: Cluster, span: int) -> None:
        rng = self.rng
        for _ in range(max(1, self.messages // 10)):
            payer, *others = rng.sample(self.ids, min(len(self.ids), 4))
            fields = {"to": others, "amount": rng.randint(1, 1500), "left": rng.randint(1, 9)}
            args = {"to": [payer], "type": "sim.pay", "fields": fields}
            cluster.world.after(int(rng.random() * span), cluster.ask, payer.partition("/")[0], "send", args)

    def faults(self, cluster: Cluster) -> list[str]:
        money = sum(cluster.state(id)["balance"] for id in self.ids)
        return [] if money == self.total else [f"{money} of {self.total} are left in the bank"]


class PingPong(Workload):
    def __init__(self, rng: Random, messages: int):
        self.messages = messages

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        homes = rng.sample(servers, len(servers))
        self.others = [f"{home}/e{n}" for n, home in enumerate(homes)]
        self.rounds = max(2, self.messages // (2 * len(self.others)))
        self.main = f"{rng.choice(servers)}/main"
        fields = {"others": self.others, "rounds": self.rounds}
        echoes = [AgentDecl(f"e{n}", home, f"{HERE}:Echo", {"rounds": []}) for n, home in enumerate(homes)]
        return [AgentDecl("main", self.main.partition("/")[0], f"{HERE}:Main", fields), *echoes]

    def faults(self, cluster: Cluster) -> list[str]:
        main = cluster.state(self.main)
        wrong = [] if (main["round"], main["missing"]) == (self.rounds, 0) else [f"ping-pong stopped at {main}"]
        for id in self.others:
            seen = cluster.state(id)["rounds"]
            if seen != list(range(1, self.rounds + 1)):
                wrong.append(f"{id} saw the rounds {seen}")
        return wrong
