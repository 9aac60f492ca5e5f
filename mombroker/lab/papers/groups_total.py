"""Paper 003, tables I and III, figure 7, §5.2, §5.5 and §6.7: ABCAST, flushes and several groups, by the members of
`mombroker/lab/isis`.

Hosts, wire and what a packet costs are those of table II (`mombroker/lab/papers/groups.py`).
"""

from collections.abc import Callable
from typing import Any

from mombroker.lab.ethernet import LINGER, Ethernet
from mombroker.lab.isis import patterns
from mombroker.lab.isis.group import Group
from mombroker.lab.isis.messages import ABCAST, COORDINATOR, EACH, SETS_ORDER, Cast, Multicast, Step
from mombroker.lab.isis.overlap import Overlap
from mombroker.lab.isis.overlap import play as play_several
from mombroker.lab.isis.several import ALL, CONSERVATIVE, Out
from mombroker.lab.networks import Exponential
from mombroker.lab.papers.base import Params, Result
from mombroker.sim.world import EPOCH, MS, SECOND, World

SMALL = 8  # bytes of a null message, and of one that puts others in order for each of them


class Transport:
    """Multicasts go over the Ethernet; what it takes to know that they have come is in the cost of a packet already.

    `event`: ns of a processor for each multicast that comes, and `sent` for each that puts others in order.
    """

    def __init__(self, world: World, ethernet: Ethernet, payload: int, event: int, sent: int):
        self.world, self.ethernet, self.payload, self.event, self.sent = world, ethernet, payload, event, sent
        self.last: Cast | None = None

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        packet = args[-1]
        if not isinstance(packet, Multicast):
            self.world.after(0, arrive, *args)
            return
        ethernet, orders = self.ethernet, packet.cast.orders
        if orders and packet.cast is not self.last:
            self.last = packet.cast
            ethernet.work(frm, self.sent)
        size = SMALL * len(orders) or max(self.payload, SMALL)
        ethernet.carry(frm, to, size, self._come, to, arrive, args)

    def _come(self, to: int, arrive: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.event:
            self.world.after(self.ethernet.work(to, self.event), arrive, *args)
        else:
            arrive(*args)


def ordered_rpc(params: Params, ethernet: Callable[[World], Ethernet], event: int) -> Result:
    """An ABCAST of a member that does not hold the token, and a null reply of each other to it; until the last is
    there. The holder is one of the others."""
    world, n = World(params["seed"]), params["n"]
    network = ethernet(world)
    group = Group(world, Transport(world, network, params["bytes"], event, event), n + 1)
    sender, replies, times = n, 0, list[int]()

    def call() -> None:
        world.after(network.work(sender, event), group.cast, sender, ABCAST)

    def replied() -> None:
        nonlocal replies
        replies += 1
        if replies % n == 0:
            times.append(world.now)
            if len(times) < params["rounds"]:
                call()

    def reply(me: int) -> None:
        network.carry(me, sender, 0, lambda: world.after(network.work(sender, event), replied))

    def look(me: int, step: Step) -> None:
        for each in step.deliver:
            if isinstance(each, Cast) and me != sender:
                world.after(network.work(me, event), reply, me)

    group.observe = look
    call()
    world.run()
    assert len(times) == params["rounds"] and not group.faults()
    return {"ms": (times[-1] - EPOCH) / len(times) / MS}


def ordered_stream(params: Params, ethernet: Callable[[World], Ethernet], streamed: int, pack: int) -> Result:
    """A member that does not hold the token sends as fast as its processor allows; until all is delivered everywhere.
    The holder tells the order of so many at a time as a packet has room for."""
    world, n = World(params["seed"]), params["n"]
    network = ethernet(world)
    transport = Transport(world, network, params["bytes"], 0, streamed)
    group = Group(world, transport, n + 1, batch=pack, linger=LINGER)

    def send(left: int) -> None:
        group.cast(n, ABCAST)
        if left:
            world.after(network.work(n, streamed), send, left - 1)

    done = 0

    def look(me: int, step: Step) -> None:
        nonlocal done
        if step.deliver:
            done = world.now

    group.observe = look
    send(params["rounds"] - 1)
    world.run()
    assert not group.faults()
    rate = params["rounds"] * SECOND / (done - EPOCH)
    return {"per_s": rate, "kb_per_s": rate * params["bytes"] / 1024}


def ordering_cost(params: Params) -> Result:
    """All members but the first, which holds the token at first, send ABCASTs in turn, or one of them does: multicasts
    for one that is delivered."""
    n, rounds = params["n"], params["rounds"]
    world = World(params["seed"])
    group = Group(world, Exponential(world, MS), n, batch=params["batch"], follow=params["follow"], linger=SECOND)
    for at in range(rounds):
        group.world.after(at * 10 * MS, group.cast, 1 if params["follow"] else 1 + at % (n - 1), ABCAST)
    world.run()
    assert not group.faults()
    return {"multicasts": (group.packets[ABCAST] + group.packets[SETS_ORDER]) / (n - 1) / rounds}


def flushing(params: Params) -> Result:
    """One joins a group that is at rest: packets of the flush, for a group of n afterwards, and with those that tell
    the view."""
    world, n = World(params["seed"]), params["n"]
    group = Group(world, Exponential(world, MS), n - 1, COORDINATOR if params["coordinator"] else EACH)
    group.join()
    world.run()
    assert not group.faults() and {*group.packets} == {"flush"}
    return {"flushes": group.packets["flush"], "packets": group.packets["flush"] + n}


SERVERS, PART = 3, 4  # of a service; members of a part of a hierarchy
STYLES = ("peers", "one group for all clients", "a group for each client", "diffusion", "a hierarchy")


def sizes(params: Params) -> Result:
    """So many clients of a service, or parts of a hierarchy, or more peers: the most fields that a multicast has."""
    style, clients, world = params["style"], params["n"], World(params["seed"])
    groups = {
        "peers": lambda: patterns.peer(SERVERS + clients),
        "one group for all clients": lambda: patterns.collapsed(SERVERS, clients),
        "a group for each client": lambda: patterns.client_server(SERVERS, clients),
        "diffusion": lambda: patterns.diffusion(SERVERS, clients),
        "a hierarchy": lambda: patterns.hierarchical(clients, PART),
    }[style]()
    rule = CONSERVATIVE if style == "a hierarchy" else ALL
    overlap = Overlap(world, Exponential(world, MS), groups, rule)
    most = 0

    def look(me: int, out: Out) -> None:
        nonlocal most
        for gid, step in out:
            for _, packet in step.send:
                if isinstance(packet, Multicast):
                    others = sum(len(vector) for _, vector in packet.cast.others.values())
                    most = max(most, len(overlap.processes[me].groups[gid].told) + others)

    overlap.observe = look
    places = [
        (me, gid) for gid, members in groups.items() for me in (members[:SERVERS] if style == "diffusion" else members)
    ]
    for at in range(params["rounds"]):
        world.after(at * MS, overlap.cast, *world.rng.choice(places))
    world.run()
    assert not overlap.faults()
    return {"fields": most}


def waiting(params: Params) -> Result:
    """Four groups of four in a ring: from send to delivery; the next is sent in the same group with this chance."""
    world = World(params["seed"])
    ring = {f"g{at}": [3 * at, 3 * at + 1, 3 * at + 2, (3 * at + 3) % 12] for at in range(4)}
    overlap = Overlap(world, Exponential(world, 10 * MS), ring, params["rule"])
    play_several(overlap, params["rounds"], 0.0, 5 * MS, stays=params["stays"])
    assert not overlap.faults()
    return {"ms": sum(ns for _, ns in overlap.delays) / len(overlap.delays) / MS}
