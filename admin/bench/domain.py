"""The throughput of one domain of servers, each in a process of its own, whose agents talk to one or to several."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.chaos import TALKER
from mombroker.admin.bench.figures import Row
from mombroker.core.layouts import build
from mombroker.core.topology import AgentDecl, Topology

STARTS = 16  # conversations that each agent begins, all of which go on
WARM_UP_S = 2.0


def topology_of(ordering: str, members: int) -> Topology:
    names = [f"s{number}" for number in range(1, members + 1)]
    made = build({"d1": names}, name="domain", ordering=ordering)
    ids = [f"{name}/t-{name}" for name in names]
    for number, name in enumerate(names):
        others = [id for id in ids if not id.startswith(f"{name}/")]
        made.agents.append(AgentDecl(f"t-{name}", name, TALKER, {"others": others, "seed": number, "starts": STARTS}))
    return made


def measure(
    names: Sequence[str],
    members: int,
    seconds: float,
    rounds: int,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """The back ends by turns, in a bus of its own each time; the median of the rounds."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for at, name in enumerate(names):
            progress(number * len(names) + at, rounds * len(names))
            rates[name].append(_rate(name, members, seconds, folder))
    progress(1, 1)
    first = median(rates[names[0]])
    return [
        {
            "ordering": name, "members": members, "copies_s": round(median(found)), "least": round(min(found)),
            "most": round(max(found)), "of_first": round(median(found) / first, 2),
        }
        for name, found in rates.items()
    ]  # fmt: skip


def _rate(name: str, members: int, seconds: float, folder: Path | None) -> float:
    """Copies that the agents have heard in a second, all together."""
    topology = topology_of(name, members)
    with ExitStack() as stack:
        bus = stack.enter_context(Bus(topology, [[server] for server in topology.servers], folder=folder))
        for each in topology.agents:
            bus.until(each.name, lambda fields: fields["heard"])
        time.sleep(WARM_UP_S)
        begun, before = time.monotonic(), _heard(bus, topology)
        after = before
        while after == before:  # on a machine that is very slow
            time.sleep(seconds)
            ended, after = time.monotonic(), _heard(bus, topology)
    return (after - before) / (ended - begun)


def _heard(bus: Bus, topology: Topology) -> int:
    return sum(sum(bus.fields(each.name)["heard"].values()) for each in topology.agents)
