"""Paper 000: Friedman, Manor, *Causal Ordering in Deterministic Overlay Networks*, figures 3-17."""

from collections.abc import Sequence
from random import Random

from mombroker.ordering import Packet
from mombroker.sim.lab import domain as lab
from mombroker.sim.lab.networks import Multicast, Physical, density, random_graph
from mombroker.sim.lab.observers import Backlog, Delay, Held
from mombroker.sim.lab.workloads import Constant, everybody
from mombroker.sim.papers.base import Figure, Panel, Paper, Params, Point, Result
from mombroker.sim.papers.overlay_claims import CLAIMS, MULTICAST, OVERLAY, SUSTAINED, UNICASTS
from mombroker.sim.world import EPOCH, MS, World

SENDERS = 10
INTEGER = 4  # bytes
HOP_S = 10e-6  # CPU seconds of a fragment on a link; and of a packet in a core:
RECEIVE_S = 30e-6


def run(params: Params) -> Result:
    """One burst over one random graph, until all is delivered."""
    n, seed, protocol = params["n"], params["seed"], params["protocol"]
    lots = Random(f"overlay {seed} {n}")
    chance = params["degree"] / (n - 1) if params["degree"] else density(n)
    near, senders = random_graph(lots, n, chance), sorted(lots.sample(range(n), SENDERS))
    world = World(seed)
    network = (Multicast if protocol == MULTICAST else Physical)(world, near, lots)
    delay, held = Delay(), Held()
    control = INTEGER if protocol == OVERLAY else INTEGER * n

    def measure(packet: Packet) -> int:
        return control + int(params["d"])

    members = lab.cores("overlay" if protocol == OVERLAY else "vector", n)
    domain = lab.Domain(world, members, network, [delay, held], wire=False, measure=measure)
    gap, each = round(MS / params["per_ms"]), round(params["per_ms"] * params["burst_ms"])
    Constant(seed, senders, gap, everybody, each).start(domain)
    domain.finish()
    ns = world.now - EPOCH
    return {
        **delay.result(), **held.result(), **held.queues(ns), **Backlog.result(network.backlogs(), ns),
        "sends": SENDERS * each, "messages": network.messages, "bytes": network.bytes, "hops": network.hops,
        "ms": ns / MS, "degree_mean": sum(map(len, near)) / n,
    }  # fmt: skip


def cost(params: Params) -> float:
    """CPU seconds, about: fitted to runs at n = 100 to 600 on the machine of docs/papers.md."""
    n, protocol = params["n"], params["protocol"]
    sends = SENDERS * round(params["per_ms"] * params["burst_ms"])
    copies = n * max(n - 1, 1).bit_length() if protocol == OVERLAY else n
    fragments = 1 if protocol == OVERLAY else -(-(INTEGER * n + params["d"]) // 1500)
    hops = fragments * (1 if protocol == MULTICAST else 3.3)
    return float(sends * copies * (RECEIVE_S + HOP_S * hops))


# -- the figures -------------------------------------------------------------------------------------------------------

PROTOCOLS = (OVERLAY, UNICASTS, MULTICAST)
SIZES = (0, 100, 1000)  # bytes
QUICK, FULL = [100, 200, 300], [100, 200, 300, 400, 500, 600]
RATE = {"per_ms": 10, "burst_ms": 1, "degree": 0}
SLOW = {"per_ms": 0.1, "burst_ms": 300}

KINDS = {
    "Message delay": (
        (Panel("mean delay, ms", {"delay_ms": ""}, True), Panel("maximum delay, ms", {"delay_max_ms": ""}, True)), 3,
    ),
    "Message count": ((Panel("fragments sent", {"messages": ""}, True), Panel("bytes sent", {"bytes": ""}, True)), 6),
    "Hop count": ((Panel("fragments on physical links", {"hops": ""}, True),), 9),
    "Node message queue size": (
        (Panel("messages held by a node, mean", {"held": ""}), Panel("maximum", {"held_most_here": ""})), 12,
    ),
    "Network load": (
        (
            Panel("fragments queued on a link, mean", {"queue": ""}), Panel("maximum", {"queue_most": ""}),
            Panel("bytes queued on a link, mean", {"queue_bytes": ""}), Panel("maximum", {"queue_most_bytes": ""}),
        ), 15,
    ),
}  # fmt: skip


def size_of(figure: str) -> int:
    """The bytes of data that a figure is about."""
    return SIZES[int(figure) % 3]


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    """With those of the other sizes of data: the claims compare them."""
    first = int(figure) // 3 * 3
    found = [
        Point(str(first + at), protocol, n, {"n": n, "d": d, "protocol": protocol, "seed": seed} | RATE | reading)
        for at, d in enumerate(SIZES)
        for protocol in PROTOCOLS
        for n in (FULL if full else QUICK)
        for seed in seeds
    ]
    if first == 12:
        found += [
            Point(
                SUSTAINED, MULTICAST, n, {"n": n, "d": 0, "protocol": MULTICAST, "seed": seed} | RATE | reading | SLOW
            )
            for n in (FULL if full else QUICK)
            for seed in seeds
        ]
    return found


PAPER = Paper(
    name="overlay",
    number="000",
    title="Causal Ordering in Deterministic Overlay Networks",
    figures={
        str(first + at): Figure(f"{what} as a function of system size when data size is {d}", "nodes", panels)
        for what, (panels, first) in KINDS.items()
        for at, d in enumerate(SIZES)
    },
    points=points,
    run=run,
    cost=cost,
    backends=("overlay", "vector"),
    claims=CLAIMS,
    readings={"sustained": SLOW, "sparse": {"degree": 2}},
)
