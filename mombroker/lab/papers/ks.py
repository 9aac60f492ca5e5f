"""Paper 002: Chandra, Gambhire, Kshemkalyani, *Performance of the Optimal Causal Multicast Algorithm*, figures 3-8."""

from collections.abc import Sequence

from mombroker.lab import domain as lab
from mombroker.lab.domain_workloads import Choose, Poisson, broadcasts, multicasts, shares
from mombroker.lab.networks import Exponential
from mombroker.lab.observers import Delay, Held, LogSize
from mombroker.lab.papers.base import Figure, Panel, Paper, Params, Point, Result
from mombroker.lab.papers.ks_claims import CLAIMS, FLOOR
from mombroker.ordering import Packet
from mombroker.ordering.ks import KS
from mombroker.sim.world import MS, World

MULTICASTS, SHARES, BROADCASTS = "M/T", "|Dests|/n", "B/T"  # what a ratio is the ratio of
SPREADS = {"7": SHARES, "8": BROADCASTS}  # by figure
HEADER = 4  # integers of a message's own, beside its destinations
SEND_S, COPY_S = (42e-6, 1.6e-6), (28e-6, 0.8e-6)  # CPU seconds of a send and of a copy, and more for each member


class Sizes(lab.Observer):
    """Entries on a copy, members named in them, entries that name nobody, and destinations: means over all copies, and
    over sends, of which each counts once with the mean of its copies."""

    def __init__(self, first: int):
        super().__init__(first)
        self.copies = self.sends = 0
        self.over_copies = [0.0] * 4
        self.over_sends = [0.0] * 4

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        if number <= self.first or not packets:
            return
        core = self.domain.members[me]
        assert isinstance(core, KS)
        e = d = n = 0
        for packet in packets:
            entries, named, empty = core.totals(packet)
            e += entries
            d += named
            n += empty
        count = len(packets)
        self.copies += count
        self.sends += 1
        for at, total in enumerate((e, d, n, count * count)):
            self.over_copies[at] += total
            self.over_sends[at] += total / count

    def result(self, size: int) -> Result:
        """Per cent of n², the matrix of RST."""
        e, d, n, dests = (total / self.copies for total in self.over_copies)
        whole = 100 / size**2
        found = {"entries": e, "named": d, "empty": n, "dests": dests, "copies": self.copies}
        found |= {
            "ks": whole * (HEADER + dests + 3 * e + d), "ks_bare": whole * (3 * e + d),
            "ks_bitmap": whole * (size * size / 32 + d + n),
        }  # fmt: skip
        e, d, n, dests = (total / self.sends for total in self.over_sends)
        return found | {
            "ks_sends": whole * (HEADER + dests + 3 * e + d),
            "ks_bitmap_sends": whole * (size * size / 32 + d + n),
        }


def log_integers(core: KS) -> int:
    e, d, _ = core.log_totals()
    return 3 * e + d


def choice(params: Params) -> Choose:
    kind, ratio = params["spread"], params["ratio"]
    if kind == MULTICASTS:
        return multicasts(ratio, params["itself"])
    return shares(ratio) if kind == SHARES else broadcasts(ratio)


def copies_per_send(params: Params) -> float:
    """In the mean."""
    n, ratio = params["n"], params["ratio"]
    if params["spread"] == SHARES:
        return float(min(max(round(ratio * n), 1), n - 1))
    return float(1 + ratio * ((n / 2 if params["spread"] == MULTICASTS else n - 1) - 1))


def run(params: Params) -> Result:
    """One run of the study. It measures KS and KS' at once: they differ in how large the same dependencies are."""
    size, first, sends = params["n"], params["first"], params["sends"]
    if params["count_copies"]:
        first = round(first / copies_per_send(params))
    world = World(params["seed"])
    sizes, delay, held, log = Sizes(first), Delay(first), Held(first), LogSize(log_integers, first)
    members, network = lab.cores("ks", size), Exponential(world, params["mtt"] * MS)
    domain = lab.Domain(
        world, members, network, [sizes, delay, held, log], wire=False, slot=params["slot_ms"] * MS
    )  # fmt: skip
    Poisson(params["seed"], params["mimt"] * MS, choice(params), sends, params["count_copies"]).start(domain)
    domain.finish()
    return sizes.result(size) | delay.result() | held.result() | {"log": 100 * log.result()["log"] / size**2}


def cost(params: Params) -> float:
    """CPU seconds, about: fitted to runs at n = 10 to 30 on the machine of docs/papers.md."""
    n, copies = params["n"], copies_per_send(params)
    sends = params["sends"] / copies if params["count_copies"] else params["sends"]
    of_send, of_copy = (least + n * more for least, more in (SEND_S, COPY_S))
    return float(sends * (of_send + copies * of_copy))


# -- the figures: (MTT, MIMT, ratio, n) of each curve; one of them is x ------------------------------------------------

PARAMETERS = ("MTT", "MIMT", "M/T", "n")
Curves = dict[str, tuple[int | None, int | None, float | None, int | None]]

CURVES: dict[str, Curves] = {
    "3": {"S1": (50, 100, 0.1, None), "S2": (400, 100, 0.1, None), "S3": (50, 1600, 0.1, None),
          "S4": (50, 400, 0.99, None)},
    "4": {"S1": (None, 1600, 0.1, 15), "S2": (None, 400, 0.1, 15), "S3": (None, 400, 0.1, 40),
          "S4": (None, 1600, 0.9, 15)},
    "5": {"S1": (50, None, 0.1, 40), "S2": (50, None, 0.1, 20), "S3": (400, None, 0.1, 20),
          "S4": (50, None, 0.9, 20)},
}  # fmt: skip
CURVES["6"] = CURVES["7"] = CURVES["8"] = {
    "S1": (75, 500, None, 12), "S2": (50, 500, None, 40), "S3": (50, 400, None, 20), "S4": (50, 1600, None, 15)
}  # fmt: skip
CURVES[FLOOR] = {"MTT 0": (0, 100, 0.1, None)}

TENTHS = [at / 10 for at in range(1, 11)]
FAR, NEAR = [20, 50, 100, 200, 400, 800, 1500, 3000, 4500, 6000], [50, 100, 200, 400, 600, 800, 1000]
LONG, SHORT = [50, 100, 200, 400, 800, 1200, 3000, 12000], [50, 100, 200, 400, 800, 1200]

# figure, curve ("": all others) -> (x of a quick run, x of a full one)
TO_100 = [10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100]
BEYOND = [*TO_100, 200, 350, 500]  # where most sends are unicasts
XS: dict[tuple[str, str], tuple[Sequence[float], Sequence[float]]] = {
    ("3", "S1"): ([10, 15, 20, 30], BEYOND), ("3", "S3"): ([10, 15, 20, 30], BEYOND),
    ("3", ""): ([10, 15, 20, 30], TO_100),
    ("4", "S1"): ([20, 200, 1000, 6000], FAR), ("4", "S2"): ([20, 200, 1000, 6000], FAR),
    ("4", ""): ([50, 400, 1000], NEAR),
    ("5", "S3"): ([50, 400, 1200], LONG), ("5", "S4"): ([50, 400, 1200], LONG), ("5", ""): ([50, 400, 1200], SHORT),
    ("6", ""): ([0.1, 0.5, 1.0], TENTHS), ("7", ""): ([0.1, 0.5, 1.0], TENTHS), ("8", ""): ([0.1, 0.5, 1.0], TENTHS),
}  # fmt: skip
FLOORS = {"3": [15, 100], "4": [15, 40], "5": [20]}  # figure -> sizes whose floor its claims speak of
QUICK, FULL = (4_000, 1_000), (30_000, 5_000)  # sends, and how many of them are not measured
LONG_TRANSIT = 6_000  # ms: a quick run sees few messages from their sending to their delivery, so it is longer,
TIMES = 4  # by so much
MOST_QUICK = 40  # members


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    sends, first = FULL if full else QUICK
    common = {"sends": sends, "first": first, "itself": False, "count_copies": False, "slot_ms": 0} | reading
    found = []

    def add(name: str, curve: str, xs: Sequence[float]) -> None:
        mtt, mimt, ratio, n = CURVES[name][curve]
        for x in xs:
            for seed in seeds:
                params: Params = {"n": x if n is None else n, "mtt": x if mtt is None else mtt}
                params |= {"mimt": x if mimt is None else mimt, "spread": SPREADS.get(name, MULTICASTS)}
                params |= {"ratio": x if ratio is None else ratio, "seed": seed}
                if params["mtt"] == LONG_TRANSIT and not full:
                    params |= {"sends": sends * TIMES, "first": first * TIMES}
                found.append(Point(name, curve, x, common | params))

    for curve in CURVES[figure]:
        add(figure, curve, XS.get((figure, curve), XS[figure, ""])[full])
    if figure in SPREADS:  # their claims compare them with the figure over M/T
        for curve in CURVES["6"]:
            add("6", curve, XS["6", ""][full])
    add(FLOOR, "MTT 0", [n for n in FLOORS.get(figure, []) if full or n <= MOST_QUICK])
    return found


def picture(name: str, what: str, x: str, log_x: bool = False, log_y: bool = False) -> Figure:
    """`log_y`: once more by powers of ten, beside the axis of the paper."""
    lines = {"ks": "KS", "ks_bitmap": "KS'"}
    panels = [Panel("% of n² integers (RST)", lines, log) for log in (False, True)[: 1 + log_y]]
    curves = [
        f"{setting}: "
        + ", ".join(f"{each} {at:g}" for each, at in zip(PARAMETERS, values, strict=True) if at is not None)
        for setting, values in CURVES[name].items()
    ]
    title = f"Average message space overhead as a function of {what}"
    return Figure(title, x, panels, log_x, "sends", ["MTT and MIMT in ms", *curves])


PAPER = Paper(
    name="ks",
    number="002",
    title="Performance of the Optimal Causal Multicast Algorithm: A Statistical Analysis",
    figures={
        "3": picture("3", "n", "n", log_x=True, log_y=True),
        "4": picture("4", "MTT", "MTT, ms", log_x=True),
        "5": picture("5", "MIMT", "MIMT, ms", log_x=True),
        "6": picture("6", "M/T", "M/T"),
        "7": picture("7", "|Dests|/n", "|Dests|/n"),
        "8": picture("8", "B/T", "B/T"),
    },
    points=points,
    run=run,
    cost=cost,
    backends=("ks",),
    claims=CLAIMS,
    readings={"itself": {"itself": True}, "copies": {"count_copies": True}, "slots": {"slot_ms": 500}},
)
