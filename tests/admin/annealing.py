"""A judge of advice that shares none of its search: simulated annealing over forests of domains, for so many
steps or CPU seconds.

It begins at one domain for all, at a star of pairs, and at random; its steps are random, too. What it finds is judged
by the model; from the best on there are steps that the model judges each.
"""

from dataclasses import replace
from math import exp
from random import Random
from time import process_time

from mombroker.admin.topology import costs, split
from mombroker.core.topology import Domain

WEIGHTS = (20.0, 200.0, 2000.0)  # of a packet
HOT, COLD = 0.1, 0.0005  # of the price: steps that are worse by so much are often taken at the begin, and at the end
KEPT = 4
REFINED = 0.4  # of the CPU seconds, if these are given: in which the model judges each step


def anneal(topology, load, packet, steps=0, refined=0, seed=0, share=1 / 3, seconds=0.0):
    """The best topologies that it finds where a packet weighs so much: [(topology, cost)], the best first. Either
    `steps` and `refined`, which the model judges, or CPU `seconds` are given."""
    servers = list(topology.servers)
    by_size = costs.BySize(costs.DIRECT, packet)
    search = split.Search(servers, costs.matrix(load.flows), by_size, split.Bounds(0, share))
    rng, found = Random(f"anneal {seed} {packet}"), {}
    everyone = frozenset(range(len(servers)))
    begins = [
        (everyone,),
        tuple(frozenset((0, each)) for each in range(1, len(servers))),
        _random(rng, len(servers)),
    ]  # fmt: skip
    for domains in begins:
        price = search.price(domains)
        found[_key(domains)] = price, domains
        scale = price
        for done in _until(steps // len(begins), seconds * (1 - REFINED) / len(begins)):
            other = _step(rng, domains, len(servers))
            if other is None:
                continue
            heat = scale * HOT * (COLD / HOT) ** done
            cost = search.price(other)
            if cost < price or rng.random() < exp((price - cost) / heat):
                domains, price = other, cost
                scale = min(scale, price)
                found[_key(domains)] = price, domains
                if len(found) > 400:
                    found = dict(sorted(found.items(), key=lambda each: each[1][0])[:100])
    best = [domains for _, domains in sorted(found.values(), key=lambda each: each[0])[:KEPT]]
    judged = sorted((_judge(topology, load, packet, search, each) for each in best), key=lambda each: each[0])
    seen = {_key(each) for each in best}
    for _ in _until(refined, seconds * REFINED):
        other = _step(rng, judged[0][1], len(servers))
        if other is None or search.price(other) >= 1.3 * search.price(judged[0][1]) or _key(other) in seen:
            continue
        seen.add(_key(other))
        judged = sorted([*judged, _judge(topology, load, packet, search, other)], key=lambda each: each[0])[:KEPT]
    return [(made, cost) for _, _, made, cost in judged]


def _until(steps, seconds):
    """So many steps, or so many seconds of CPU: which share of them is done."""
    if not seconds:
        yield from (step / steps for step in range(steps))
        return
    begin = process_time()
    while (done := (process_time() - begin) / seconds) < 1:
        yield done


def _judge(topology, load, packet, search, domains):
    plain = {f"d{at}": Domain(f"d{at}", members) for at, members in enumerate(search.named(domains))}
    made, cost = costs.choose(replace(topology, domains=plain, checked=True), load, costs.DIRECT, packet)
    return cost.price(packet), domains, made, cost


def _key(domains):
    return frozenset(domains)


def _random(rng, size):
    domains, placed, left = [], [0], list(range(1, size))
    rng.shuffle(left)
    while left:
        count = rng.randint(1, 6)
        domains.append(frozenset([rng.choice(placed), *left[:count]]))
        placed, left = placed + left[:count], left[count:]
    return tuple(domains)


def _step(rng, domains, size):
    """Another forest, or None if this step leads to none."""
    what = rng.random()
    if what < 0.3:  # two servers change places
        a, b = rng.sample(range(size), 2)
        swap = {a: b, b: a}
        return tuple(frozenset(swap.get(each, each) for each in domain) for domain in domains)
    at = [[number for number, domain in enumerate(domains) if server in domain] for server in range(size)]
    if what < 0.55:  # a server that is no router moves
        server, to = rng.randrange(size), rng.randrange(len(domains))
        if len(at[server]) != 1 or (own := at[server][0]) == to or len(domains[own]) < 3:
            return None
        return _changed(domains, {own: domains[own] - {server}, to: domains[to] | {server}})
    if what < 0.7:  # a domain becomes two that share a server
        number = rng.randrange(len(domains))
        members = rng.sample(sorted(domains[number]), len(domains[number]))
        if len(members) < 3:
            return None
        cut = rng.randint(1, len(members) - 2)
        shared = members[cut]
        halves = frozenset(members[: cut + 1]), frozenset([shared, *members[cut + 1 :]])
        return (*_changed(domains, {number: halves[0]}), halves[1])
    routers = [server for server in range(size) if len(at[server]) > 1]
    if not routers:
        return None
    router = rng.choice(routers)
    one, other = rng.sample(at[router], 2)
    if what < 0.82:  # two that share a router become one
        kept = [domain for number, domain in enumerate(domains) if number not in (one, other)]
        return (*kept, domains[one] | domains[other])
    # all that hangs on a router's domain `one` goes elsewhere, by whichever of its servers
    branch, stack = {one}, [one]
    while stack:
        for server in domains[stack.pop()]:
            if server != router:
                for number in at[server]:
                    if number not in branch:
                        branch.add(number)
                        stack.append(number)
    into = rng.choice(sorted({*range(len(domains))} - branch))
    hangs = rng.choice(sorted(domains[into]))
    if rng.random() < 0.5:  # another server of the rest is its router
        return _changed(domains, {one: domains[one] - {router} | {hangs}}) if hangs != router else None
    inside = sorted(frozenset().union(*(domains[number] for number in branch)) - {router})  # it becomes a member there
    rest = domains[one] - {router}
    gateway = rng.choice(inside)
    if len(rest) < 2:
        return None
    return _changed(domains, {one: rest, into: domains[into] | {gateway}})


def _changed(domains, new):
    return tuple(new.get(number, domain) for number, domain in enumerate(domains))
