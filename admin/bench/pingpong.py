"""Round trips as in paper 004 §6: on the own server, to the farthest one, to all; over sizes, layouts and clocks."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from mombroker import store
from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.core.errors import MomError
from mombroker.core.layouts import generate
from mombroker.core.topology import AgentDecl, RoutingTable, Topology
from mombroker.lab.papers.base import power
from mombroker.store.reader import SqliteReader

AGENTS = "mombroker.admin.bench.agents"
KINDS = ("local", "remote", "broadcast")
GROWING = ("rtt_ms", "cpu_ms", "hops", "entries", "control_bytes", "clock_rows", "clock_bytes")

Case = tuple[str, str, int]  # clock, layout, servers


def topology_of(layout: str, servers: int) -> Topology:
    """Every domain has a matrix clock; the main agent is on the first server, and every server has an echo."""
    made = generate(layout, servers, ordering="matrix")
    names = list(made.servers)
    made.agents.append(AgentDecl("main", names[0], f"{AGENTS}:Main"))
    made.agents += [AgentDecl(f"echo-{name}", name, f"{AGENTS}:Echo") for name in names]
    return made


def targets(topology: Topology) -> dict[str, list[str]]:
    """The echoes of each kind of round trip; remote is one of the farthest servers."""
    names = list(topology.servers)
    routes = RoutingTable(topology, names[0])
    farthest = max(names, key=lambda name: (routes.distance(name), names.index(name)))
    chosen = {"local": names[:1], "remote": [farthest], "broadcast": names}
    return {kind: [f"echo-{name}" for name in servers] for kind, servers in chosen.items()}


def measure(
    cases: Sequence[Case],
    rounds: int,
    passes: int,
    kinds: Sequence[str] = KINDS,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """`passes` times each case in turn, with `rounds` round trips of each kind."""
    times: dict[tuple[Case, str], list[float]] = {}
    counts: dict[tuple[Case, str], list[dict[str, float]]] = {}
    looks: dict[Case, Rounds] = {}
    for number in range(passes):
        for at, case in enumerate(cases):
            progress(number * len(cases) + at, passes * len(cases))
            clock, layout, servers = case
            topology = topology_of(layout, servers)
            with Bus(topology, [list(topology.servers)], clock=clock, folder=folder) as bus:
                looks.setdefault(case, Rounds(bus.folder)).folder = bus.folder
                warm_up(bus, kinds)
                for kind in kinds:
                    looks[case].look(kind)
                    found = play(bus, kind, rounds)
                    times.setdefault((case, kind), []).extend(time / 1e6 for time in found["times"])
                    counts.setdefault((case, kind), []).append(found["counts"])
    progress(1, 1)
    return [row(case, kind, looks[case], times[case, kind], counts[case, kind]) for kind in kinds for case in cases]


def row(case: Case, kind: str, looks: Rounds, times: list[float], counts: list[dict[str, float]]) -> Row:
    clock, layout, servers = case
    middle = median(times)
    return {
        "kind": kind, "clock": clock, "layout": layout, "servers": servers, **looks.yardsticks(kind),
        "rtt_ms": round(middle, 3), "rtt_min_ms": round(min(times), 3), "rtt_f": round(middle / looks.f_ms(kind), 2),
        **{name: round(median(each[name] for each in counts), 2) for name in counts[0]},
    }  # fmt: skip


def warm_up(bus: Bus, kinds: Sequence[str]) -> None:
    """Links are made when they are needed first: not while we measure."""
    for kind in kinds:
        play(bus, kind, 2)


def play(bus: Bus, kind: str, rounds: int) -> Row:
    """One game: the times of its round trips, and what each cost apart from time, on average."""
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(store.read(server.data))) for server in bus.topology.servers.values()]
        marks = [reader.log_end() for reader in readers]
        fields = game(bus, kind, rounds)
        hops = ints = control = 0
        for reader, mark in zip(readers, marks, strict=True):
            for _, _, bytes, integers in stamped(reader, mark):
                hops, ints, control = hops + 1, ints + integers, control + bytes
    counts = {
        "cpu_ms": fields["cpu"] / 1e6, "hops": hops, "entries": ints, "control_bytes": control,
        "clock_rows": fields["clock_rows"], "clock_bytes": fields["clock_bytes"],
    }  # fmt: skip
    return {"times": fields["times"], "counts": {name: count / rounds for name, count in counts.items()}}


def game(bus: Bus, kind: str, rounds: int) -> Row:
    bus.send("main", "bench.Play", to=targets(bus.topology)[kind], rounds=rounds)
    return bus.until("main", lambda fields: len(fields["times"]) == rounds and not fields["left"])


def stamped(reader: SqliteReader, after: int) -> Iterator[tuple[str, str, int, int]]:
    """What the log says of each packet: its domain, receiver, control bytes and control integers."""
    while page := reader.log(after, 10_000):
        for _, record in page:
            yield from record.out
        after = page[-1][0]


# -- what becomes of the rows ------------------------------------------------------------------------------------------

POWER, EITHER_WAY = "power", "power ±"  # in the place of a number of servers


def powers(rows: Sequence[Row]) -> list[Row]:
    """Two rows for each kind, clock and layout of three sizes or more: as which power of the number of servers each
    figure grows, and half of the 95 % interval of that."""
    series: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        series.setdefault((row["kind"], row["clock"], row["layout"]), {})[row["servers"]] = row
    found = []
    for (kind, clock, layout), sizes in series.items():
        if len(sizes) < 3:
            continue
        fits = {
            name: power({servers: row[name] for servers, row in sizes.items()})
            for name in GROWING
            if all(row[name] > 0 for row in sizes.values())
        }
        for at, what in enumerate((POWER, EITHER_WAY)):
            fitted = {name: round(fit[at], 2) for name, fit in fits.items()}
            found.append({"kind": kind, "clock": clock, "layout": layout, "servers": what, **fitted})
    return found


# Figures of the paper: the kind of round trip, and the layouts.
FIGURES = {"8": ("remote", "flat"), "9": ("broadcast", "flat"), "11": ("remote", "bus"), "12": ("remote", "")}
TOLD = {"rtt_ms": "the time", "cpu_ms": "CPU", "control_bytes": "bytes of stamps", "clock_rows": "rows of clocks"}


def live(file: Path) -> dict[str, str]:
    """By figure of the paper: as which powers of n its round trips grew on a bus that ran, from what `mom bench
    pingpong -o json` has printed. Raises MomError for another file."""
    try:
        cases = [row for row in json.loads(file.read_text()) if row["servers"] not in (POWER, EITHER_WAY)]
        fits = powers(cases)
        least, most = min(row["servers"] for row in cases), max(row["servers"] for row in cases)
    except (OSError, ValueError, TypeError, KeyError):
        raise MomError(f"{file} is not what mom bench pingpong -o json prints: make it anew, or delete it") from None
    found = {}
    for figure, (kind, layout) in FIGURES.items():
        told = [
            f"{fit['layout']}, clock {fit['clock']}: "
            + ", ".join(f"{text} {fit[name]:.2f} ± {either[name]:.2f}" for name, text in TOLD.items() if name in fit)
            for fit, either in zip(fits[::2], fits[1::2], strict=True)
            if fit["kind"] == kind and layout in ("", fit["layout"])
        ]
        if told:
            found[figure] = f"Live, as powers of n = {least} to {most}: {'; '.join(told)}."
    return found


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    with open(file, "w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
