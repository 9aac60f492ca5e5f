"""Paper 004: Laumay, Bruneton, De Palma, Krakowiak, *Preserving Causality in a Scalable Message-Oriented Middleware*,
figures 8, 9, 11, 12, in a model of cost; the same round trips are run live by `mom bench pingpong`.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import Any

from mombroker.core.layouts import generate
from mombroker.lab.bus import Bus
from mombroker.lab.domain import Observer
from mombroker.lab.observers import Control, Written
from mombroker.lab.papers.base import Figure, Panel, Paper, Params, Point, Result
from mombroker.lab.papers.domains_claims import BROADCAST, CLAIMS, LOCAL, REMOTE
from mombroker.ordering import Packet, Step
from mombroker.sim.world import EPOCH, MS, World

MICRO = MS // 1000
HOP_S = 6e-5  # CPU seconds of a hop, and more for each server to which it carries stamps of a round's other hops:
ENTRY_S = 6e-7


class Hops:
    """A hop in a domain of s servers takes a + b s² of the processors of both ends, each half: to serialize and to send
    a message, and to stamp it with a matrix of s² cells that is saved. A server does one thing after another.
    """

    def __init__(self, world: World, busy: dict[int, int], cost: int):
        self.world, self.busy, self.half = world, busy, cost // 2

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        self.world.after(self._work(frm), self._come, to, arrive, args)

    def _come(self, to: int, arrive: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.world.after(self._work(to), arrive, *args)

    def _work(self, server: int) -> int:
        """How long until it has done this, too."""
        now = self.world.now
        done = self.busy[server] = max(now, self.busy.get(server, 0)) + self.half
        return done - now


class Compared(Observer):
    """Cells of stamps that receivers compare with their own: those of the own column, to decide; all, to learn them."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = 0

    def received(self, me: int, packet: Packet, step: Step) -> None:
        size, stamp = len(self.domain.members), packet.stamp
        if isinstance(stamp, dict):  # a matrix's: cell -> value; others have none
            self.cells += len(stamp) + sum(cell % size == me for cell in stamp)


class PingPong:
    """The main agent is on server 0, an echo on each; a round is over when all echoes are back."""

    def __init__(self, bus: Bus, finals: Sequence[int], rounds: int):
        self.bus, self.finals, self.rounds = bus, finals, rounds
        self.times: list[int] = []
        self.left = 0
        self.pings: set[int] = set()
        self.begin = 0
        bus.on_arrival = self._arrived

    def play(self) -> None:
        self.begin, self.left = self.bus.world.now, len(self.finals)
        self.bus.world.after(0, self._ping)

    def _ping(self) -> None:
        self.pings.add(len(self.bus.born))
        self.bus.send(0, self.finals)

    def _arrived(self, number: int, origin: int, me: int) -> None:
        if number in self.pings:
            self.bus.world.after(0, self.bus.send, me, (0,))
            return
        self.left -= 1
        if not self.left:
            self.times.append(self.bus.world.now - self.begin)
            if len(self.times) < self.rounds:
                self.play()


def run(params: Params) -> Result:
    """So many round trips; means of one. `clock_ms` is the part of a unicast's time that depends on the clocks."""
    layout, kind, rounds, ordering = params["layout"], params["kind"], params["rounds"], params["ordering"]
    topology = generate(CALLED.get(layout) or layout, params["n"], ordering=ordering)
    world, busy = World(params["seed"]), dict[int, int]()
    watchers = {name: (Control(), Written(), Compared()) for name in topology.domains}

    def network(name: str) -> Hops:
        size = len(topology.domains[name].members)
        return Hops(world, busy, round((params["a_us"] + params["b_us"] * size**2) * MICRO))

    bus = Bus(world, topology, network, watchers.__getitem__)
    distances = [bus.routes(0).distance(name) for name in bus.names]
    finals = {LOCAL: [0], REMOTE: [max(range(len(distances)), key=lambda at: (distances[at], at))],
              BROADCAST: [*range(len(distances))]}[kind]  # fmt: skip
    game = PingPong(bus, finals, rounds)
    game.play()
    bus.finish()
    assert len(game.times) == rounds and world.now - EPOCH == sum(game.times)
    hops = sum(control.packets for control, _, _ in watchers.values())
    return {
        "rtt_ms": sum(game.times) / rounds / MS,
        "hops": hops / rounds,
        "hops_one_way": max(distances[at] for at in finals),
        "entries": sum(control.integers for control, _, _ in watchers.values()) / rounds,
        "control_bytes": sum(control.bytes for control, _, _ in watchers.values()) / rounds,
        "compared": sum(compared.cells for _, _, compared in watchers.values()) / rounds,
        "rows": sum(written.rows for _, written, _ in watchers.values()) / rounds,
        "row_bytes": sum(written.bytes for _, written, _ in watchers.values()) / rounds,
        "clock_ms": (sum(game.times) / rounds - (params["a_us"] * MICRO * hops / rounds if kind == REMOTE else 0)) / MS,
    }  # fmt: skip


def cost(params: Params) -> float:
    n, layout = params["n"], params["layout"]
    far = {"flat": 1.0, "bus": 2.0, "daisy": n**0.5, "tree": log2(n)}[layout]
    if params["kind"] != BROADCAST:
        return float(params["rounds"] * 2 * far * HOP_S + n * n * 1e-7)
    return float(params["rounds"] * n * (1 + far) * (HOP_S + ENTRY_S * (n if layout == "flat" else n**0.5)))


# -- the figures -------------------------------------------------------------------------------------------------------

FLAT_N, WIDE_N = [10, 20, 30, 40, 50], [10, 25, 49, 100, 150, 400, 1000]
FULL_FLAT = [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]
FULL_WIDE = [10, 25, 49, 75, 100, 125, 150, 200, 300, 400, 500, 700, 1000]
COMMON = {"ordering": "matrix", "a_us": 1000.0, "b_us": 10.0, "seed": 1}
LAYOUTS = ("bus", "daisy", "tree")
CALLED = {"daisy": "chain"}  # here: `daisy` is an ordering back end
MOST_FLAT = {REMOTE: 1000, BROADCAST: 150}  # servers in one domain, where a broadcast has a matrix for each


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    """Nothing is drawn by chance: one seed is enough."""
    found = []
    rounds = 100 if full else 20

    def add(name: str, layout: str, kind: str, sizes: Sequence[int]) -> None:
        for n in sizes:
            params: Params = {"n": n, "layout": layout, "kind": kind, "rounds": rounds} | COMMON | reading
            setting = layout if name != "12" or kind == REMOTE else f"{layout}, to all"
            found.append(Point(name, setting if name != "8" or kind == REMOTE else kind, n, params))

    flat, wide = (FULL_FLAT, FULL_WIDE) if full else (FLAT_N, WIDE_N)
    if figure == "8":
        add("8", "flat", REMOTE, flat)
        add("8", "flat", LOCAL, flat)
    elif figure == "9":
        add("9", "flat", BROADCAST, flat)
    elif figure == "11":
        add("11", "bus", REMOTE, wide)
    else:
        for layout in ("flat", *LAYOUTS):
            for kind in (REMOTE, BROADCAST):
                sizes = [n for n in wide if layout != "flat" or n <= MOST_FLAT[kind]]
                add("12", layout, kind, sizes if kind == REMOTE else [n for n in sizes if full or n <= 400])
    return found


def picture(title: str, log: bool = False) -> Figure:
    panels = (
        Panel("round trip in the model, ms", {"rtt_ms": ""}, log),
        Panel("bytes of this bus's stamps a round trip", {"control_bytes": ""}, log),
    )
    return Figure(title, "servers", panels, log, "rounds")


PAPER = Paper(
    name="domains",
    number="004",
    title="Preserving Causality in a Scalable Message-Oriented Middleware",
    figures={
        "8": picture("Remote unicast without domains of causality"),
        "9": picture("Broadcast without domains of causality"),
        "11": picture("Remote unicast with domains of causality, bus"),
        "12": picture("Comparison of the cost with and without domains of causality", log=True),
    },
    points=points,
    run=run,
    cost=cost,
    backends=("matrix", "fifo", "ks"),
    claims=CLAIMS,
    readings={"ks": {"ordering": "ks"}, "heavy": {"b_us": 100.0}},
    seeds=1,
)
