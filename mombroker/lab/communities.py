"""Traffic with a structure that nobody is told: servers in communities that talk a lot among themselves.

Names, order and addresses say nothing of it; only the traffic does. `split` is the topology of someone who knows.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from mombroker.core import layouts
from mombroker.core.layouts import Split
from mombroker.core.topology import Topology
from mombroker.lab.bus_workloads import Send
from mombroker.sim.world import EPOCH, MS

SMALLEST, LARGEST = 3, 8  # servers of a community
SHAPES = ("backbone", "tree", "chain")
PAYLOAD = 100
GAP = 100 * MS  # between two sends of one server, in the mean

Choose = Callable[[Random], tuple[str, tuple[str, ...]]]


@dataclass(slots=True)
class Traffic:
    """Who sends to whom: `sends` draws as many messages as one likes, the same ones each time."""

    seed: int
    servers: tuple[str, ...]
    choose: Choose
    hidden: Split = field(default_factory=dict)  # the domains that fit; empty: none fits better than another

    def sends(self, count: int) -> list[Send]:
        """Messages at exponential gaps."""
        rng = Random(f"sends {self.seed}")
        at, made = float(EPOCH), []
        for _ in range(count):
            at += rng.expovariate(len(self.servers) / GAP)
            made.append(Send(int(at), *self.choose(rng), PAYLOAD))
        return made

    def split(self) -> Topology:
        """The hidden communities as domains, under the default back ends."""
        return layouts.build(self.hidden, name="hidden", servers=self.servers)

    def flat(self) -> Topology:
        return layouts.build(layouts.flat(self.servers), name="flat", servers=self.servers)


@dataclass(slots=True)
class _Community:
    members: list[str]
    gateway: str
    inside: float  # share of what its members send that stays in it
    others: list[float] = field(default_factory=list)  # weights of the communities, for what does not


def uniform(n: int, seed: int) -> Traffic:
    """Each server to any other."""
    servers = tuple(f"s{at}" for at in range(1, n + 1))

    def choose(rng: Random) -> tuple[str, tuple[str, ...]]:
        a, b = rng.sample(servers, 2)
        return a, (b,)

    return Traffic(seed, servers, choose)


def communities(seed: int, n: int = 0) -> Traffic:
    """Hidden communities among `n` servers (24 to 120, if not given), joined in one of SHAPES."""
    rng = Random(f"communities {seed}")
    n = n or rng.randint(24, 120)
    servers = [f"s{at}" for at in range(1, n + 1)]
    groups = _groups(rng, servers)
    made = [_Community(group, rng.choice(group), rng.uniform(0.8, 0.95)) for group in groups]
    shape = rng.choice(SHAPES)
    parents = [-1, *(at - 1 if shape == "chain" else rng.randrange(at) for at in range(1, len(made)))]
    for at, each in enumerate(made):
        if shape == "backbone":
            each.others = [rng.uniform(0.2, 1.0) for _ in made]
        else:
            each.others = [0.25 ** _steps(parents, at, other) for other in range(len(made))]
        each.others[at] = 0.0
    split = {f"d{at + 1}": tuple(each.members) for at, each in enumerate(made)}
    if shape == "backbone":
        split["backbone"] = tuple(each.gateway for each in made)
    else:
        for child, parent in enumerate(parents[1:], 1):
            split[f"d{parent + 1}"] += (made[child].gateway,)
    return Traffic(seed, tuple(servers), _chooser(rng, made), split)


def _groups(rng: Random, servers: Sequence[str]) -> list[list[str]]:
    left = list(servers)
    rng.shuffle(left)
    groups = []
    while len(left) > LARGEST:
        size = min(rng.randint(SMALLEST, LARGEST), len(left) - SMALLEST)
        groups.append(left[:size])
        left = left[size:]
    return [*groups, left]


def _steps(parents: Sequence[int], a: int, b: int) -> int:
    """Communities between two of a tree, the second one included."""
    steps = 0
    while a != b:
        if a < b:
            a, b = b, a
        a, steps = parents[a], steps + 1
    return steps


def _chooser(rng: Random, made: list[_Community]) -> Choose:
    """Some servers are busier than others, each likes some of its neighbours more, and half of what leaves a
    community goes to the gateway of another."""
    home = {server: each for each in made for server in each.members}
    servers = list(home)
    busy = list(accumulate(rng.lognormvariate(0, 0.6) * (2 if home[s].gateway == s else 1) for s in servers))
    liked = {
        s: list(accumulate(0.0 if other == s else rng.uniform(0.1, 1.0) for other in home[s].members)) for s in servers
    }
    abroad = {each.gateway: list(accumulate(each.others)) for each in made}

    def pick(dice: Random, weights: Sequence[float]) -> int:
        return bisect(weights, dice.random() * weights[-1])

    def choose(dice: Random) -> tuple[str, tuple[str, ...]]:
        server = servers[pick(dice, busy)]
        here = home[server]
        if len(made) > 1 and dice.random() > here.inside:
            there = made[pick(dice, abroad[here.gateway])]
            return server, (there.gateway if dice.random() < 0.5 else dice.choice(there.members),)
        if dice.random() < 0.9:
            return server, (here.members[pick(dice, liked[server])],)
        others = [other for other in here.members if other != server]
        return server, tuple(dice.sample(others, dice.randint(2, min(4, len(others)))))

    return choose
