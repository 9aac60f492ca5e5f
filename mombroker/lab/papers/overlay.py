"""Paper 000: Friedman, Manor, *Causal Ordering in Deterministic Overlay Networks*, figures 3-17."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import fmean, stdev

from mombroker.lab import domain as lab
from mombroker.lab.domain_workloads import Constant, everybody
from mombroker.lab.networks import Multicast, Physical, density, random_graph
from mombroker.lab.observers import Delay, Held
from mombroker.lab.papers.base import CONTROL, FORETOLD, Figure, Panel, Paper, Params, Point, Result
from mombroker.lab.papers.overlay_claims import CLAIMS, MULTICAST, OVERLAY, SUSTAINED, UNICASTS
from mombroker.ordering import Packet
from mombroker.ordering.hypercube import hypercube
from mombroker.sim.world import EPOCH, MS, World

SENDERS = 10
INTEGER = 4  # bytes
HOP_S = 3.5e-6  # CPU seconds of a fragment on a link; and of a packet in a core:
RECEIVE_S = 22e-6
GRAPH_S, TREE_S = 30e-6, 2e-6  # of a node of a graph that is drawn; and of a tree of paths over it


def drawn(params: Params, graph: int, world: World) -> tuple[Physical, list[int]]:
    """A random graph, and who sends: the same for every protocol and size of data."""
    n = params["n"]
    lots = Random(f"overlay {params['seed']} {graph} {n}")
    chance = params["degree"] / (n - 1) if params["degree"] else density(n)
    near, senders = random_graph(lots, n, chance), sorted(lots.sample(range(n), SENDERS))
    return (Multicast if params["protocol"] == MULTICAST else Physical)(world, near, lots), senders


def loads(protocol: str, network: Physical, senders: Sequence[int]) -> Result:
    """What the graph alone foretells, up to a factor: by how many of a message's packets each link will carry, if every
    sender sends one. A burst fills the links at once, so that the most loaded link of a path decides its delay."""
    size = len(network.near)
    near = hypercube(size) if protocol == OVERLAY else {root: range(size) for root in senders}
    trees = {root: network.parents(root) for root in (range(size) if protocol == OVERLAY else senders)}
    load: Counter[tuple[int, int]] = Counter()
    came: Counter[tuple[int, int, int]] = Counter()  # the part of it that comes over each link before
    for root, parents in trees.items():
        below = dict.fromkeys(parents, 0) | dict.fromkeys(near[root], 1)  # by node: packets that pass it or end there
        for node, parent in reversed(parents.items()):
            if node != root and below[node]:
                packets = 1 if protocol == MULTICAST else below[node]
                load[parent, node] += packets
                below[parent] += below[node]
                if parent != root:
                    came[parents[parent], parent, node] += packets
    most, squares = max(load.values()), sum(each * each for each in load.values())
    queue = squares / len(network.links) / most
    # What comes over one link comes no faster than it leaves; and a sender puts so many unicasts on its links at once
    # that what comes over others adds nothing.
    over: dict[tuple[int, int], list[int]] = {link: [0] for link in load}
    for (_, parent, node), packets in came.items():
        over[parent, node].append(packets)
    leaves = sum if protocol == UNICASTS else max
    waits = max(load[link] - leaves(parts) for link, parts in over.items())
    found = {"hops": load.total(), "queue": queue, "queue_bytes": queue, "queue_most": waits, "queue_most_bytes": waits}
    if protocol == OVERLAY:  # what comes first counts, over whichever way: its greatest delay is not foretold
        return found | {"delay_ms": (squares / load.total()) ** 0.5}  # in runs it grows about so
    total = 0
    for parents in trees.values():
        worst: dict[int, int] = {-1: 0}  # on the way to each node
        for node, parent in parents.items():
            worst[node] = max(worst[parent], load[parent, node]) if parent >= 0 else 0
        total += sum(worst.values())
    return found | {"delay_ms": total / len(trees) / size, "delay_max_ms": most}


def foretell(params: Params) -> Result:
    """The means of `loads` over many graphs, and their standard errors: with them the few graphs that are run for a
    point say more (control variates)."""
    found = [
        loads(params["protocol"], *drawn(params, graph, World(0))) for graph in range(1, params["graphs"] + 1)
    ]  # fmt: skip
    values = {column: [each[column] for each in found] for column in found[0]}
    return {column: fmean(each) for column, each in values.items()} | {
        f"{column}_error": stdev(each) / len(each) ** 0.5 for column, each in values.items()
    }


def run(params: Params) -> Result:
    """One burst over one random graph, until all is delivered."""
    if "graph" not in params:
        return foretell(params)
    n, seed, protocol = params["n"], params["seed"], params["protocol"]
    world = World(seed)
    network, senders = drawn(params, params["graph"], world)
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
        **delay.result(), **held.result(), **held.queues(ns), **network.queues(ns),
        "sends": SENDERS * each, "messages": network.messages, "bytes": network.bytes, "hops": network.hops,
        "ms": ns / MS, "degree_mean": sum(map(len, network.near)) / n,
    } | (
        {FORETOLD + column: value for column, value in loads(protocol, network, senders).items()}
        if params["foretell"] else {}
    )  # fmt: skip


def cost(params: Params) -> float:
    """CPU seconds, about: fitted to runs at n = 100 to 600 on the machine of docs/papers.md."""
    n, protocol = params["n"], params["protocol"]
    if "graph" not in params:
        return float(params["graphs"] * n * (GRAPH_S + (n if protocol == OVERLAY else SENDERS) * TREE_S))
    sends = SENDERS * round(params["per_ms"] * params["burst_ms"])
    copies = n * max(n - 1, 1).bit_length() if protocol == OVERLAY else n
    fragments = 1 if protocol == OVERLAY else -(-(INTEGER * n + params["d"]) // 1500)
    hops = fragments * (1 if protocol == MULTICAST else 3.3)
    return float(sends * copies * (RECEIVE_S + HOP_S * hops))


# -- the figures -------------------------------------------------------------------------------------------------------

PROTOCOLS = (OVERLAY, UNICASTS, MULTICAST)
SIZES = (0, 100, 1000)  # bytes
QUICK, FULL = [100, 200, 300], [100, 200, 300, 400, 500, 600]
RATE = {"per_ms": 10, "burst_ms": 1, "degree": 0, "foretell": True}
SLOW = {"per_ms": 0.1, "burst_ms": 300, "foretell": False}
# Random graphs for each seed: this many nodes in all are run, more where they are cheap and where the loads do not
# foretell much; so many graphs at the slow rate; and of so many the loads are counted.
QUICK_GRAPHS, FULL_GRAPHS = (
    {OVERLAY: 300, UNICASTS: 1500, MULTICAST: 2000},
    {OVERLAY: 8000, UNICASTS: 3000, MULTICAST: 5000},
)
QUICK_SLOW, FULL_SLOW = 3, 10
QUICK_COUNTED, FULL_COUNTED = (
    {OVERLAY: 60, UNICASTS: 1000, MULTICAST: 200},
    {OVERLAY: 200, UNICASTS: 2000, MULTICAST: 400},
)


KINDS = {
    "Message delay": (
        (Panel("mean delay, ms", {"delay_ms": ""}, True), Panel("maximum delay, ms", {"delay_max_ms": ""}, True)), 3,
    ),
    "Message count": ((Panel("fragments sent", {"messages": ""}, True), Panel("bytes sent", {"bytes": ""}, True)), 6),
    "Hop count": ((Panel("fragments on physical links", {"hops": ""}, True),), 9),
    "Node message queue size": (
        (
            Panel("messages held by a node, mean", {"held": ""}),
            Panel("messages held by a node, maximum", {"held_most_here": ""}),
        ), 12,
    ),
    "Network load": (
        (
            Panel("fragments queued on a link, mean", {"queue": ""}, True),
            Panel("fragments queued on a link, maximum", {"queue_most": ""}, True),
            Panel("bytes queued on a link, mean", {"queue_bytes": ""}, True),
            Panel("bytes queued on a link, maximum", {"queue_most_bytes": ""}, True),
        ), 15,
    ),
}  # fmt: skip


def size_of(figure: str) -> int:
    """The bytes of data that a figure is about."""
    return SIZES[int(figure) % 3]


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    """With those of the other sizes of data, and with those at a slow rate: the claims compare them."""
    found: list[Point] = []

    def add(figure: str, protocol: str, d: int, n: int, runs: int, changed: Params) -> None:
        params = {"n": n, "d": d, "protocol": protocol} | RATE | reading | changed
        found.extend(
            Point(figure, protocol, n, params | {"seed": seed, "graph": graph})
            for seed in seeds
            for graph in range(1, runs + 1)
        )

    graphs, slow, counted = (
        (FULL_GRAPHS, FULL_SLOW, FULL_COUNTED) if full else (QUICK_GRAPHS, QUICK_SLOW, QUICK_COUNTED)
    )
    for n in FULL if full else QUICK:
        if figure in ("12", "13", "14", SUSTAINED):
            add(SUSTAINED, MULTICAST, 0, n, slow, SLOW)
        for protocol in PROTOCOLS if figure != SUSTAINED else ():
            for at, d in enumerate(SIZES):
                add(str(int(figure) // 3 * 3 + at), protocol, d, n, max(graphs[protocol] // n, 1), {})
            if (RATE | reading)["foretell"]:
                params = {"n": n, "protocol": protocol, "degree": (RATE | reading)["degree"]}
                params["graphs"] = counted[protocol]
                found += [Point(CONTROL, protocol, n, params | {"seed": seed}) for seed in seeds]
    return found


PAPER = Paper(
    name="overlay",
    number="000",
    title="Causal Ordering in Deterministic Overlay Networks",
    figures={
        str(first + at): Figure(f"{what} as a function of system size when data size is {d}", "nodes", panels)
        for what, (panels, first) in KINDS.items()
        for at, d in enumerate(SIZES)
    }
    | {
        SUSTAINED: Figure(
            "Node message queue size, data size 0, at 0.1 messages a ms of each sender",
            "nodes",
            KINDS["Node message queue size"][0],
        )
    },
    points=points,
    run=run,
    cost=cost,
    backends=("overlay", "vector"),
    claims=CLAIMS,
    readings={"sustained": SLOW, "sparse": {"degree": 2}},
)
