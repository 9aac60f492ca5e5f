"""Paper 001: Baldoni, Beraldi, Friedman, van Renesse, *The hierarchical daisy architecture*, figures 6-9."""

from collections.abc import Sequence
from random import Random

from mombroker.lab import campus
from mombroker.lab import domain as lab
from mombroker.lab.domain_workloads import Poisson, everybody
from mombroker.lab.observers import Control, Delay, Held, Waits
from mombroker.lab.papers.base import Figure, Panel, Paper, Params, Point, Result
from mombroker.lab.papers.daisy_claims import CLAIMS
from mombroker.lab.papers.daisy_groups import BUILDING, DAISY, FLAT, LAN, PROCESSES, groups
from mombroker.lab.stability import Stability
from mombroker.sim.world import SECOND, World

DATA = 300  # bytes
CONTROL = {DAISY: 20, FLAT: PROCESSES * 4 + PROCESSES / 8}  # bytes
POINT_S = {DAISY: 1.8e-3, FLAT: 2.4e-3}  # CPU seconds of a message


def over_campus(origin: int, me: int) -> bool:
    """Campus, building: in different buildings, and the receiver is not on the LAN that is on the campus."""
    return origin // BUILDING != me // BUILDING and me % BUILDING >= LAN


def three_hops(origin: int, me: int) -> bool:
    """Building, campus, building, also in the daisy: nor is the sender."""
    return over_campus(origin, me) and origin % BUILDING >= LAN


def run(params: Params) -> Result:
    """One run of so many messages, each for all.

    The mean delay is what messages have waited, and what the network takes in the mean. With what it has taken in this
    run (column `delay_drawn_ms`) it would be the same in the mean, and depend more on chance, above all at a low load.
    `delay_three_ms` is that of messages which take three hops in the daisy, too.
    """
    architecture, first, rate = params["architecture"], params["first"], params["mbit"] * 1_000_000
    world, size = World(params["seed"]), round(CONTROL[architecture])

    def network(name: str) -> campus.Tiers:
        wires = world, Random(f"{name} {params['seed']}"), LAN, BUILDING, rate
        return campus.Tiers(*wires) if architecture == DAISY else campus.Routed(*wires, params["joined"])

    def under_way(origin: int, me: int) -> int:
        """Ns that it takes in the mean. A process that is a server is on its LAN's way out, and on a building's."""
        direct = architecture == DAISY or params["joined"]
        lans = 2 if architecture == FLAT else (origin % LAN > 0) + (me % LAN > 0)
        buildings = 1 if direct and origin % BUILDING < LAN else 2
        network = buildings * campus.BUILDING + campus.CAMPUS + lans * campus.LAN
        took: int = network + (buildings + 1) * size * 8 * SECOND // rate
        return took

    delay = Delay(first, over_campus)
    waits, waits_three = (Waits(first, among, under_way) for among in (over_campus, three_hops))
    held, control, stability = Held(first), Control(first, encode=True), Stability(network("acks"), size, first)
    members = lab.cores("daisy", PROCESSES, groups=groups(architecture))
    observers = [delay, waits, waits_three, held, control, stability]
    domain = lab.Domain(world, members, network("data"), observers, wire=False, measure=lambda packet: size)
    Poisson(params["seed"], round(SECOND / params["load"]), everybody, params["sends"]).start(domain)
    domain.finish()
    found = delay.result() | held.result() | control.result() | stability.result()
    found |= {"delay_drawn_ms": found["delay_ms"], "delay_ms": waits.delay_ms()}
    found["delay_three_ms"] = waits_three.delay_ms()
    # By Little's law: so many messages a second of each process, and so long each is there
    each = params["load"] / 1000
    measured = params["sends"] - first
    waiting = found["held_ms"] * held.held / measured * each
    kilobytes = (CONTROL[architecture] + DATA) / 1000
    return found | {
        "buffered": waiting, "buffered_kb": waiting * kilobytes,
        "unstable_kb": found["kept_ms"] * each * kilobytes,
        "unstable_senders_kb": found["kept_by_senders_ms"] * each * kilobytes,
    }  # fmt: skip


def cost(params: Params) -> float:
    return float(params["sends"] * POINT_S[params["architecture"]])


LOADS, FULL_LOADS = [1, 2, 5, 10, 20], [1, 2, 3, 4, 5, 7, 10, 13, 16, 20]  # messages a second of each process
# Sends, and how many of them are not measured. In the flat group, and at a high load, what waits now has much to do
# with what waited before.
QUICK, BUSY_QUICK = (1_300, 300), (2_600, 300)
FULL = {DAISY: (6_000, 1_000), FLAT: (12_000, 1_000)}


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    def params(architecture: str, load: float, seed: int) -> Params:
        sends, first = FULL[architecture] if full else BUSY_QUICK if load >= 20 else QUICK
        run = {"architecture": architecture, "load": load, "seed": seed, "sends": sends, "first": first, "mbit": 100}
        return run | {"joined": False} | reading

    return [
        Point(figure, setting, load, params(setting, load, seed))
        for setting in (FLAT, DAISY)
        for load in (FULL_LOADS if full else LOADS)
        for seed in seeds
    ]


LOAD = "messages a second of each process"


def picture(title: str, y: str, column: str) -> Figure:
    return Figure(title, LOAD, (Panel(y, {column: ""}),), unit="sends")


PAPER = Paper(
    name="daisy",
    number="001",
    title="The hierarchical daisy architecture for causal delivery",
    figures={
        "6": Figure(
            "End-to-end delay versus load",
            LOAD,
            (
                Panel("mean delay over the campus, ms", {"delay_ms": ""}),
                Panel("mean delay over three hops, ms", {"delay_three_ms": ""}),
            ),
            unit="sends",
        ),
        "7": picture("Resequencing buffer versus load", "kB in each process, mean", "buffered_kb"),
        "8": picture("Stability delay versus load", "mean delay until the sender knows, ms", "stable_ms"),
        "9": picture("Storage for unstable messages", "kB in each process, mean", "unstable_kb"),
    },
    points=points,
    run=run,
    cost=cost,
    backends=("daisy",),
    claims=CLAIMS,
    readings={"slow": {"mbit": 10}, "joined": {"joined": True}},
    seeds=5,
)
