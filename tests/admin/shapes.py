"""Thirty workloads with a structure that names and order say nothing of: five of each shape. All start from one domain
for all, or from √n of √n in file order."""

from collections.abc import Callable
from random import Random

from mombroker.lab.bus_workloads import Send
from mombroker.sim.world import EPOCH, MS

Choose = Callable[[Random], tuple[str, tuple[str, ...]]]
EACH = 40  # messages of a server


def _groups(names, sizes):
    found, at = [], 0
    for size in sizes:
        found.append(names[at : at + size])
        at += size
    return found


def _mixed(groups, inside, busy=1.0):
    """So much stays in its group."""
    home = {name: group for group in groups for name in group}
    names = [*home]
    weights = [busy if home[name][0] == name else 1.0 for name in names]

    def choose(rng):
        (a,) = rng.choices(names, weights)
        near = [name for name in home[a] if name != a]
        far = [name for name in names if name not in home[a]]
        return a, (rng.choice(near if near and (rng.random() < inside or not far) else far),)

    return choose


def unequal(names, rng):
    sizes, left = [], len(names)
    while left > 0:
        sizes.append(min(rng.choice((2, 3, 5, 9)), left))
        left -= sizes[-1]
    return _mixed(_groups(names, sizes), rng.uniform(0.75, 0.95))


def star(names, rng):
    """All talk with the first, a few with each other."""
    share = rng.uniform(0.85, 0.98)

    def choose(dice):
        if dice.random() > share:
            a, b = dice.sample(names[1:], 2)
        else:
            a, b = names[0], dice.choice(names[1:])
            a, b = (a, b) if dice.random() < 0.5 else (b, a)
        return a, (b,)

    return choose


def chain(names, rng):
    """Each talks with the next one; some steps are taken on."""
    stay = rng.uniform(0.6, 0.95)

    def choose(dice):
        at, step = dice.randrange(len(names)), dice.choice((-1, 1))
        to = at + step
        while dice.random() > stay:
            to += step
        to = min(max(to, 0), len(names) - 1)
        return (names[at], (names[to],)) if to != at else (names[at], (names[at - 1 if at else 1],))

    return choose


def hierarchy(names, rng):
    """Sites of three in regions of three."""
    site, region = rng.uniform(0.6, 0.75), rng.uniform(0.15, 0.22)

    def choose(dice):
        at, draw = dice.randrange(len(names)), dice.random()
        size = 3 if draw < site else 9 if draw < site + region else len(names)
        start = at // size * size
        others = [each for each in range(start, min(start + size, len(names))) if each != at] or [at - 1]
        return names[at], (names[dice.choice(others)],)

    return choose


def multicast(names, rng):
    """In communities of four, to all others of these, or to two of another."""
    groups, share = _groups(names, [4] * (len(names) // 4 + 1)), rng.uniform(0.85, 0.97)
    groups = [group for group in groups if len(group) > 1]

    def choose(dice):
        group = dice.choice(groups)
        a = dice.choice(group)
        if dice.random() < share or len(groups) == 1:
            return a, tuple(name for name in group if name != a)
        return a, tuple(dice.sample(dice.choice([each for each in groups if each is not group]), 2))

    return choose


def clients(names, rng):
    """Many clients ask their server; servers now and then each other."""
    size, among = rng.choice((3, 4, 6)), rng.uniform(0.0, 0.1)
    groups = [group for group in _groups(names, [size] * (len(names) // size + 1)) if len(group) > 1]

    def choose(dice):
        if len(groups) > 1 and dice.random() < among:
            a, b = dice.sample([group[0] for group in groups], 2)
        else:
            group = dice.choice(groups)
            a, b = group[0], dice.choice(group[1:])
        return (a, (b,)) if dice.random() < 0.5 else (b, (a,))

    return choose


SHAPES = {each.__name__: each for each in (unequal, star, chain, hierarchy, multicast, clients)}
ALL = [(shape, number) for shape in SHAPES for number in range(5)]


def workload(shape, number, count=0):
    """(servers in the order of a file, messages) of so many servers; 14 to 32, if not given"""
    rng = Random(f"{shape} {number}")
    drawn = rng.randint(14, 32)
    count = count or drawn - drawn % 2
    names = [f"s{at + 1}" for at in range(count)]
    placed = list(names)
    rng.shuffle(placed)
    choose, sends, at = SHAPES[shape](placed, rng), [], float(EPOCH)
    for _ in range(EACH * count):
        at += rng.expovariate(count / (100 * MS))
        sends.append(Send(int(at), *choose(rng), 100))
    return names, sends


def renamed(names, sends, seed):
    """The same under other names, in another order of the file, and the names back."""
    rng = Random(seed)
    others = [f"x{at}" for at in range(len(names))]
    rng.shuffle(others)
    new = dict(zip(names, others, strict=True))
    moved = [each._replace(origin=new[each.origin], dests=tuple(sorted(map(new.get, each.dests)))) for each in sends]
    order = list(others)
    rng.shuffle(order)
    return order, moved, new
