"""`mom sim`: a bus in virtual time, with the ordering cores of the broker: what it costs, and what happens in it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, output_options, show, write
from mombroker.admin.cli.progress import Bar
from mombroker.admin.cli.sim_groups import ISIS, Settings, known_ordering, play
from mombroker.core.errors import MomError
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mombroker.core.topology import Topology
    from mombroker.lab.bus import Bus
    from mombroker.lab.bus_workloads import Send
    from mombroker.lab.domain import Network
    from mombroker.lab.stories import Story
    from mombroker.lab.whatif import Id, Traffic
    from mombroker.sim.world import World
    from mombroker.store.reader import SqliteReader

DRAWN = ("exponential", "uniform", "wires", "multicast")  # of the mean that --transit says
NETWORKS = (*DRAWN, "campus", "logs")
SIZED = ("wires", "multicast", "campus")  # where large packets take longer
SEEDS = 50  # that a picture is looked for in
DAY = 86_400_000  # ms: longer is no delay of a link, and no gap
PINGPONG = "ping-pong"
MOST = 1_000_000  # sends: each takes about a kB of memory, if it is for one other
LARGEST = 8 << 20  # bytes of a message; as on a bus, if its limits do not say otherwise
LAN, BUILDING, RATE = 5, 20, 10_000_000  # of `campus`: servers, servers, bits a second


@click.group(cls=Group)
def sim() -> None:
    """A bus in virtual time: run, explore, diagram, compare, change.

    What a topology costs, what happens in a domain, what the traffic of a real bus would cost elsewhere. The ordering
    cores are those of the broker; there are no agents, disks or faults. The same seed gives the same run.

    \b
    Example:
      mom sim run bus.toml --workload bursts --seed 7
    """


@sim.command()
@options.file_option
@click.option(
    "--workload", default="poisson", show_default=True, metavar="NAME|FILE|DIR",
    help="poisson, constant, bursts; ping-pong: the first server asks all others, and again once all have answered; a "
    "CSV file of ms, server, and destinations with spaces between; or a folder of data folders, for their logs.",
)  # fmt: skip
@click.option(
    "--sends", type=click.IntRange(1, MOST), default=1000, show_default=True,
    help="Messages in all; ping-pong goes on to the end of its round.",
)  # fmt: skip
@click.option(
    "--bytes", type=click.IntRange(0, LARGEST), default=100, show_default=True,
    help=f"Size of a message, without what the ordering adds; it matters with {', '.join(SIZED)}. Logs have their own.",
)  # fmt: skip
@click.option(
    "--gap", type=options.Number(0.001, DAY), default=100.0, show_default=True, help="ms between two of a server."
)
@click.option("--multicasts", type=options.Number(0, 1), default=0.1, show_default=True, help="Share of all sends.")
@click.option(
    "--local", type=options.Number(0, 1), default=0.0, show_default=True,
    help="Share of all sends that stay in the sender's own domains.",
)  # fmt: skip
@click.option(
    "--network", default="exponential", show_default=True, metavar="NAME|FILE",
    help="Delays that are exponential, or uniform; wires of 10 Mbit/s with queues, on a random graph; multicast: such "
    "wires that copy what goes to many; campus: LANs of 5 servers, buildings of 20; logs: delays as in the logs that "
    "are the workload; or a CSV file of server, server, and ms: a link that is not in it takes the delays of all, in "
    "turn.",
)  # fmt: skip
@click.option(
    "--transit", type=options.Number(0, DAY), default=20.0, show_default=True,
    help=f"Mean delay of a link, ms; of {', '.join(DRAWN)}.",
)  # fmt: skip
@click.option(
    "--ordering", default="",
    help=f"This back end in all domains, instead of those of the file; or {ISIS}: each domain is a process group.",
)  # fmt: skip
@click.option(
    "--total", type=options.Number(0, 1), default=0.5, show_default=True, help=f"{ISIS}: share of sends in total order."
)
@click.option(
    "--batch", type=click.IntRange(1, 1000), default=1, show_default=True,
    help=f"{ISIS}: so many are put in order at a time.",
)  # fmt: skip
@click.option(
    "--flush", type=click.Choice(["each", "coordinator"]), default="each", show_default=True,
    help=f"{ISIS}: whom a member tells that it is ready for a new view.",
)  # fmt: skip
@click.option(
    "--changes", type=click.IntRange(0, 100), default=0, show_default=True,
    help=f"{ISIS}: joins, leaves and crashes, in a topology of one domain.",
)  # fmt: skip
@click.option(
    "--rule", type=click.Choice(["all", "structure", "own", "conservative", "epochs"]), default="all",
    show_default=True,
    help=f"{ISIS}: what a multicast says of other groups: the vectors of all, of those on circles with its sender's, "
    "of its sender's; or nothing, and it waits until nothing of them is unstable, or until all groups are flushed.",
)  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Of all that is drawn by chance.")
@output_options
def run(
    file: Path, workload: str, sends: int, bytes: int, gap: float, multicasts: float, local: float, network: str,
    transit: float, ordering: str, total: float, batch: int, flush: str, changes: int, rule: str, seed: int,
    output: str, columns: str,
) -> None:  # fmt: skip
    """Play a workload on a topology, and show what each domain and the whole had to do.

    \b
    packets        on links, and control_bytes and integers of one of them in the mean
    held_pct       of those that came, the share that waited for its causes, and held_ms for how long
    rows           of clocks that were written, and row_bytes
    p50_ms, p99_ms from send to delivery, and hops; in the row of the whole
    fragments      of packets on wires, for every 1500 bytes one, wire_hops of one in the mean, and on a wire waiting or
                   being sent: queue in the mean, queue_most at a time; there too, with --network wires or multicast

    With --ordering isis, paper 003, a multicast goes to all members of one domain of its sender, and the run is judged
    from outside: one that is wrong is told with its seed, and the exit code is 4.

    \b
    views          that came, and flushes for them; copies of what was said again
    cbcast, abcast, sets_order, ack, stable
                   packets on links: multicasts, what tells the total order, what it takes to know what all have
    fields         of vectors on a multicast, in the mean

    \b
    Example:
      mom sim run bus.toml --workload poisson --seed 1
      mom sim run bus.toml --ordering ks --local 0.9 -o json
      mom sim run bus.toml --network wires --bytes 60000
      mom sim run bus.toml --workload ping-pong --network campus
      mom sim run bus.toml --workload var --network logs
      mom sim run bus.toml --ordering isis --changes 3 --flush coordinator
    """
    from mombroker.lab import bus_workloads, whatif
    from mombroker.lab.observers import Control, Held, Written

    topology = _two_or_more(file)
    if ordering == ISIS:
        _untaken(f"--ordering {ISIS}", ["workload", "bytes", "multicasts", "local"])
        settings = Settings(sends, round(gap * 1e6), network, round(transit * 1e6), total, batch, flush, changes, rule)
        show(play(topology, settings, seed), output, columns)
        return
    if ordering:
        known_ordering(ordering)
    _untaken(f"an ordering that is not {ISIS}", ["total", "batch", "flush", "changes", "rule"])
    names = list(topology.servers)
    traffic = None
    made: list[Send] = []
    if workload in bus_workloads.WORKLOADS:
        choose = bus_workloads.near(topology, multicasts, local)
        made = bus_workloads.WORKLOADS[workload](Random(f"load {seed}"), names, sends, round(gap * 1e6), choose)
    elif Path(workload).is_file():
        made = bus_workloads.trace(Path(workload), topology)
    elif Path(workload).is_dir():
        traffic = _traffic(file, topology, Path(workload))
    elif workload != PINGPONG:
        known = ", ".join([*bus_workloads.WORKLOADS, PINGPONG])
        raise click.UsageError(f"there is no workload, file or folder {workload!r}; there are {known}")
    if workload not in bus_workloads.WORKLOADS:
        others = ["sends"] * (workload != PINGPONG) + ["bytes"] * bool(traffic)
        _untaken(f"--workload {workload}", ["gap", "multicasts", "local", *others])
    if network in NETWORKS or Path(network).is_file():
        _untaken(f"--network {network}", ["transit"] * (network not in DRAWN) + ["bytes"] * (network not in SIZED))
    watchers = {name: (Control(), Held(), Written()) for name in topology.domains}
    ids: list[whatif.Id] = [("", 0)]
    bus = _bus(topology, seed, network, transit, ordering, watchers, traffic, ids, bytes)
    with Bar("copies have arrived") as bar:
        if traffic:
            copies = sum(len(send.dests) for send in traffic.sends)
            whatif.Player(bus, traffic.sends, ids).play(_moving(bar, copies))
        elif workload == PINGPONG:
            _ping_pong(bus, sends, bar)
        else:
            copies = sum(len(send.dests) for send in made)
            bus_workloads.play(bus, (send._replace(payload=bytes) for send in made), _moving(bar, copies))
    rows: list[dict[str, Any]] = []
    for name, (control, held, written) in watchers.items():
        found = control.result() | held.result() | written.result()
        backend = bus.domains[name].members.backend  # type: ignore[attr-defined]
        rows.append(
            {"domain": name, "ordering": backend, "members": len(topology.domains[name].members)} | _rounded(found)
        )
    rows.append({"domain": "all", "members": len(names)} | _whole(bus, rows) | _wires(bus))
    show(rows, output, columns)


@sim.command()
@click.argument("orderings", nargs=-1, metavar="[ORDERING]...")
@click.option("--members", type=click.IntRange(2, 5), default=3, show_default=True, help="Of the domain.")
@click.option(
    "--sends", type=click.IntRange(1, 6), default=2, show_default=True,
    help="Messages in all; one more takes some thirty times as long.",
)  # fmt: skip
@click.option("--restarts", is_flag=True, help="Restore each member from its rows before each of its steps.")
@output_options
def explore(orderings: tuple[str, ...], members: int, sends: int, restarts: bool, output: str, columns: str) -> None:
    """Play every schedule of a small domain, and judge every state: safe, live, prompt.

    All back ends, or those that are named. Each message goes to one or to several members, and packets arrive in every
    order that the links of the back end allow. A fault is told as the steps that lead to it, and the exit code is 4.

    \b
    states      different states that were visited, and `ends` those of them at rest
    deliveries  on the ways to all of them

    \b
    Example:
      mom sim explore
      mom sim explore matrix ks --sends 3 --restarts
    """
    from mombroker import ordering
    from mombroker.ordering.explore import Broken
    from mombroker.ordering.explore import explore as visit

    rows: list[dict[str, Any]] = []
    for name in orderings or ordering.names():
        backend = ordering.backend(name)
        size = 2 if name == "fifo" else members
        settings = backend.resolve(tuple(f"s{n}" for n in range(1, size + 1)), {})
        with Bar(f"states of {name}") as bar:
            try:
                found = visit(backend, size=size, sends=sends, options=settings, restarts=restarts, progress=bar.at)
            except Broken as error:
                raise options.Failure(ExitCode.WRONG, f"{name}: {error}") from None
        rows.append({
            "ordering": name, "members": size, "sends": sends, "states": found.states, "ends": found.ends,
            "deliveries": found.deliveries, "verdict": "safe, live, prompt",
        })  # fmt: skip
    show(rows, output, columns)


def _two_or_more(file: Path) -> "Topology":
    topology = options.load(file)
    if len(topology.servers) < 2:
        raise MomError("a bus of one server sends nothing over a link: name a topology of two or more")
    return topology


def _untaken(choice: str, options: list[str]) -> None:
    """Refuse what this workload or network does not take, where it was said."""
    said = click.get_current_context().get_parameter_source
    found = [f"--{each}" for each in options if said(each) is not ParameterSource.DEFAULT]
    if found:
        raise click.UsageError(f"{choice} does not take {', '.join(found)}")


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {
        "packets": int(found["packets"]), "control_bytes": round(found["bytes"], 1),
        "integers": round(found["integers"], 1), "held_pct": round(found["held_pct"], 2),
        "held_ms": round(found["held_ms"], 2), "rows": int(found["rows"]), "row_bytes": int(found["row_bytes"]),
    }  # fmt: skip


def _whole(bus: "Bus", rows: list[dict[str, Any]]) -> dict[str, Any]:
    packets = sum(row["packets"] for row in rows)
    delays = sorted(ns for _, _, ns in bus.delays) or [0]
    means = {
        name: round(sum(row[name] * row["packets"] for row in rows) / max(packets, 1), 2)
        for name in ("control_bytes", "integers", "held_pct")
    }
    return {
        "ordering": "", "packets": packets, **means, "rows": sum(row["rows"] for row in rows),
        "row_bytes": sum(row["row_bytes"] for row in rows), "messages": len(bus.born) - 1,
        "hops": round(bus.hops() / max(len(bus.delays), 1), 2),
        "p50_ms": round(delays[(len(delays) - 1) // 2] / 1e6, 2),
        "p99_ms": round(delays[(len(delays) - 1) * 99 // 100] / 1e6, 2),
    }  # fmt: skip


def _wires(bus: "Bus") -> dict[str, Any]:
    """What a network of wires has to tell; nothing of others."""
    from mombroker.lab.networks import Physical
    from mombroker.sim.world import EPOCH

    wires = next(iter(bus.domains.values())).network.network  # type: ignore[attr-defined]
    if not isinstance(wires, Physical):
        return {}
    queues = wires.queues(bus.world.now - EPOCH)
    return {
        "fragments": wires.messages, "wire_hops": round(wires.hops / max(wires.messages, 1), 2),
        "queue": round(queues["queue"], 4), "queue_most": queues["queue_most"],
    }  # fmt: skip


def _moving(bar: Bar, copies: int) -> Callable[[int], None]:
    """Moves the bar at every half per cent: to draw it takes as long as hundreds of steps."""
    shown = -1

    def moved(arrived: int) -> None:
        nonlocal shown
        if (part := 200 * arrived // max(copies, 1)) > shown:
            shown = part
            bar.at(arrived, copies)

    return moved


def _ping_pong(bus: "Bus", sends: int, bar: Bar) -> None:
    from mombroker.lab.papers.domains import PingPong

    others = range(1, len(bus.names))
    rounds = -(-sends // (1 + len(others)))
    PingPong(bus, others, rounds).play()
    bus.finish(_moving(bar, 2 * rounds * len(others)))


def _bus(
    topology: "Topology", seed: int, network: str, transit: float, ordering: str, watchers: dict[str, Any],
    traffic: "Traffic | None", ids: "list[Id]", size: int,
) -> "Bus":  # fmt: skip
    from mombroker.lab import whatif
    from mombroker.lab.bus import Bus
    from mombroker.sim.world import World

    world = World(seed)
    backends = dict.fromkeys(topology.domains, ordering) if ordering else {}
    whatif.fit(topology, backends)
    if network == "logs":
        if traffic is None:
            raise click.UsageError("--network logs is for a workload that is a folder of data folders")
        start, names = traffic.sends[0].at, list(topology.servers)
        links = {name: whatif.Links(world, names, traffic.delays, ids, start) for name in topology.domains}
        return Bus(world, topology, links.__getitem__, lambda name: (*watchers[name], links[name]), backends)
    net = _network(world, network, transit, list(topology.servers), seed)
    return Bus(world, topology, lambda domain: net, watchers.__getitem__, backends, size)


def _network(world: "World", kind: str, transit: float, names: list[str], seed: int) -> "Network":
    from mombroker.lab import campus, links, networks
    from mombroker.sim.world import MS

    mean, size = round(transit * 1e6), len(names)
    if kind == "exponential":
        return networks.Exponential(world, mean)
    if kind == "uniform":
        return networks.Uniform(world, 0, 2 * mean)
    if kind == "campus":
        return links.InOrder(campus.Tiers(world, Random(f"campus {seed}"), LAN, BUILDING, RATE))
    if kind in ("wires", "multicast"):
        lots, made = Random(f"wires {seed}"), networks.Physical if kind == "wires" else networks.Multicast
        return made(world, networks.random_graph(lots, size, networks.density(size)), lots, delay=2 * mean + 1)
    if Path(kind).is_file():
        delays = links.measured(Path(kind), names)
        for (a, b), some in delays.items():
            if a == b:
                raise MomError(f"{kind}: {a} has no link to itself")
            if max(some) > DAY * MS:
                raise MomError(f"{kind}: from {a} to {b} it takes longer than a day")
        return links.Measured(world, names, delays)
    raise click.UsageError(f"there is no network and no file {kind!r}; there are {', '.join(NETWORKS)}")


@sim.command()
@click.argument("ordering")
@click.option("--servers", type=click.IntRange(2, 12), default=4, show_default=True, help="In one domain.")
@click.option("--sends", type=click.IntRange(1), default=6, show_default=True, help="Messages in all.")
@click.option("--multicasts", type=options.Number(0, 1), default=0.3, show_default=True, help="Share of all sends.")
@click.option(
    "--total", type=options.Number(0, 1), default=0.5, show_default=True, help=f"{ISIS}: share of sends in total order."
)
@click.option(
    "--changes", type=click.IntRange(0, 10), default=1, show_default=True, help=f"{ISIS}: joins, leaves and crashes."
)
@click.option("--around", default="", metavar="mN", help="A message. [default: the first that waits, or the first]")
@click.option(
    "--seed", type=int, help="Of all that is drawn by chance. [default: the first from 1 on in which something waits]"
)
@click.option("--to", "target", type=Target("svg"), required=True, help="The SVG file.")
def diagram(
    ordering: str, servers: int, sends: int, multicasts: float, total: float, changes: int, around: str,
    seed: int | None, target: Path,
) -> None:  # fmt: skip
    """Draw what happens in one domain: servers, messages, what waits and for what, deliveries.

    ORDERING is matrix, rst, ks, vector, overlay, daisy, abcast, fifo, or a back end of another package; or isis: a
    process group of paper 003, with its views and the places of multicasts in total order.

    \b
    Example:
      mom sim diagram ks --servers 4 --seed 3 --to ks.svg
      mom sim diagram isis --changes 2 --to isis.svg
    """
    from mombroker.lab import stories
    from mombroker.lab.isis.story import played as group_story

    known_ordering(ordering)
    if ordering == ISIS and servers < 3 and changes:
        raise click.UsageError("a group that changes has three servers or more: add --servers 3 or --changes 0")
    _untaken(ordering, ["multicasts"] if ordering == ISIS else ["total", "changes"])
    if ordering == "fifo" and servers != 2:
        raise click.UsageError("fifo is for two servers: add --servers 2")

    def played(seed: int) -> "Story":
        if ordering == ISIS:
            return group_story(servers, sends, total, changes, seed)
        return stories.played(ordering, servers, sends, multicasts, seed)

    seeds = range(1, SEEDS + 1) if seed is None else [seed]
    for seed in seeds:
        story = played(seed)
        if any(arrow.held for arrow in story.arrows):
            break
    else:  # nothing waits in any
        seed = seeds[0]
        story = played(seed)
    _draw(target, story, around, f"{ordering}, {servers} servers, seed {seed}")


def _draw(target: Path, story: Any, around: str, title: str) -> None:
    from mombroker.lab import diagram as drawing

    held = [arrow.message for arrow in story.arrows if arrow.held]
    message = around or (held or [story.arrows[0].message])[0]
    if message not in {arrow.message for arrow in story.arrows}:
        last = max(story.arrows, key=lambda arrow: arrow.left).message
        raise MomError(f"there is no message {message}; the last is {last}")
    write(target, drawing.svg(story.around(message), f"{title}: around {message}", message))


@sim.command()
@click.argument("change", type=click.Choice(["split", "merge", "handover", "join", "leave"]))
@click.option("--members", type=click.IntRange(6, 64), default=16, show_default=True, help="Before the change.")
@click.option(
    "--gap", type=options.Number(1, DAY), default=100.0, show_default=True, help="ms between two of a member."
)
@click.option("--bytes", type=click.IntRange(8, LARGEST), default=100, show_default=True, help="Of a message.")
@click.option(
    "--transit", type=options.Number(1, DAY), default=20.0, show_default=True, help="Mean delay of a link, ms."
)
@click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Of so many seeds, the means.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of all that is drawn by chance; the first one.")
@output_options
def change(
    change: str, members: int, gap: float, bytes: int, transit: float, runs: int, seed: int, output: str, columns: str
) -> None:
    """Change a group under load, by its paper's protocol and by the freeze of the bus, and show what each costs.

    split, merge, handover: of the last group of a daisy, paper 001. join, leave: of the last member of an overlay,
    paper 000; by the freeze it joins from a domain of two, or leaves for one. Every run is judged from outside: one
    that is not causal, or loses or repeats anything, is told with its seed, and the exit code is 4. A bus changes by
    the freeze alone; the protocols are here to be held against it. All times are in mean delays of a link.

    \b
    took               until whoever ordered it knows that it is over
    packets, bytes     of the change: orders, answers, marks, flushes, state, what is said again
    paused, pause      members that may not send meanwhile, and the longest of their pauses
    p99_before, p99    from send to delivery, before, and of what was sent in the 50 delays after the order
    slowest            of these
    message_packets    of a message while nothing changes, acknowledgements included; message_bytes without its body

    \b
    Example:
      mom sim change split --members 8 --seed 3
      mom sim change join --members 16 --runs 5 -o json
    """
    from dataclasses import asdict

    from mombroker.lab.dynamic.change import WAYS, Wrong, measure
    from mombroker.lab.dynamic.course import Load

    load = Load(seed, round(gap * 1e6), bytes, round(transit * 1e6))
    rows: list[dict[str, Any]] = []
    with Bar("runs") as bar:
        for way in WAYS:
            try:
                found = measure(change, way, members, load, runs, lambda: bar.at(runs * len(rows), runs * len(WAYS)))
            except Wrong as error:
                raise options.Failure(ExitCode.WRONG, str(error)) from None
            figures = {name: round(each, 1) for name, each in asdict(found).items()}
            rows.append({"change": change, "by": way, "members": members, "runs": runs} | figures)
    show(rows, output, columns)


@sim.command()
@options.file_option
@click.option(
    "--log", "logs", type=click.Path(path_type=Path, exists=True), required=True,
    help="The servers' logs: a folder of data folders, or a topology file whose stores are here.",
)  # fmt: skip
@click.option("--ordering", "orderings", default="matrix,ks,rst,vector", show_default=True, metavar="A,B",
              help="Back ends to try, in domains of three servers or more.")  # fmt: skip
@click.option("--layout", "layouts", default="flat,bus", show_default=True, metavar="A,B", help="Domains to try.")
@output_options
def compare(file: Path, logs: Path, orderings: str, layouts: str, output: str, columns: str) -> None:
    """Play the traffic of a real bus, from its logs, on other back ends and other domains.

    Every message goes from and to the same servers, when it did; an answer waits for its question. A message takes as
    long over a link as in the logs; one that did not go there, as long as the next that did. On a link that is not in
    the logs it takes as long as what left at nearly the same time out of its sender, or into its receiver, whichever
    took longer: how busy the servers would be in these domains is not known. All but the delays and the state is per
    message. The first row is what the bus has paid, if the logs of all servers are there.

    Where old records are gone, only messages that were sent once all logs begin are counted, in all rows. Those before
    are played, too; but clocks begin at zero with them, so that control_bytes and state_bytes of the plans are low, by
    what the clocks of the bus had counted before. Nor is a message counted that a log should have and has not, as where
    it ends before the others.

    \b
    packets, control_bytes   on links, what passes on included
    hops, p50_ms, p99_ms     of a copy, from its send to its delivery
    held_pct                 of the packets
    state_bytes              of clocks, on the disks of all servers at the end

    \b
    Example:
      mom sim compare bus.toml --log var
      mom sim compare bus.toml --log var --ordering ks,daisy --layout bus
    """
    from mombroker.lab import whatif

    topology = _two_or_more(file)
    traffic = _traffic(file, topology, logs)
    if early := len(traffic.sends) - len(traffic.counted) - traffic.missed:
        said = f"{early} messages that were sent before are played, but not counted; {len(traffic.counted)} are"
        click.echo(f"mom: {said}", err=True)
    if traffic.missed:
        why = "are not in all logs that they must be in: one ends before the others, or they are on their way"
        click.echo(f"mom: {traffic.missed} messages {why}; they are played, but not counted", err=True)
    rows = [{"plan": "the logs", **whatif.recorded(traffic)}] if traffic.whole else []
    if not traffic.delays:
        click.echo("mom: of no link both ends are in the logs: a message takes 1 ms on each", err=True)
    words = [[word.strip() for word in each.split(",") if word.strip()] for each in (orderings, layouts)]
    for name, (each, backends) in whatif.plans(topology, *words).items():
        rows.append({"plan": name, **whatif.replay(each, traffic, backends)})
    show(rows, output, columns)


def _traffic(file: Path, topology: "Topology", logs: Path) -> "Traffic":
    """What the logs say, of a bus that has run this topology."""
    from mombroker import store
    from mombroker.admin.analysis import stores
    from mombroker.admin.cli.log import beginning, every
    from mombroker.core.topology import listed
    from mombroker.lab import whatif

    found = stores.find(logs)
    readers = {name: store.read(data) for name, data in found.items()}
    cut = [name for name, reader in readers.items() if beginning(reader) > 1]
    traffic = whatif.read({name: every(reader) for name, reader in readers.items()}, cut)
    named = found.keys() | {dest for send in traffic.sends for dest in send.dests}
    if strangers := named - topology.servers.keys():
        raise MomError(f"{', '.join(sorted(strangers))}: no server of {file}; name the topology that the bus has run")
    if not traffic.sends:
        raise MomError(f"the logs in {logs} have no message: let the bus run, or take another folder")
    traffic.state_bytes = sum(
        len(blob) for each in readers.values() for name in topology.domains for blob in each.core(name).values()
    )
    silent = [name for name in topology.servers if name not in found]
    for said, names in ((f"{logs} has no store of", silent), ("there is nothing in the log of", sorted(traffic.empty))):
        if names:
            click.echo(f"mom: {said} {', '.join(names)}: what they sent and what they paid is left out", err=True)
    if other := _other_domains(topology, traffic, readers):
        click.echo(f"mom: the bus has not run the domains of {file}: there {listed(other)}", err=True)
    if cut:
        said = f"{traffic.gone} messages are left out, whose sends are gone"
        click.echo(f"mom: the oldest records of {', '.join(cut)} are gone: {said}", err=True)
        low = "the bytes of control and of state are low, by what clocks had counted before"
        click.echo(f"mom: clocks begin at zero: {low}", err=True)
    elif traffic.gone:
        click.echo(f"mom: {traffic.gone} messages are left out, whose sends are not in the logs", err=True)
    if not traffic.whole:
        click.echo("mom: no message is in all logs: what the bus has paid is left out", err=True)
    traffic.whole = traffic.whole and not silent and not traffic.empty
    return traffic


def _other_domains(topology: "Topology", traffic: "Traffic", readers: "Mapping[str, SqliteReader]") -> list[str]:
    """How the file's domains differ from those that the stores are of, or the logs."""
    from mombroker.core.identity import identity
    from mombroker.store.base import difference

    found: dict[str, None] = {}
    for name, reader in readers.items():
        found |= dict.fromkeys(filter(None, difference(reader.meta(), identity(topology, name)).split(", ")))
    if found:  # what the logs name differs by the same
        return [*found]
    return [
        f"domain {domain} is without {server}"
        for domain, server in sorted(traffic.members)
        if domain not in topology.domains or server not in topology.domains[domain]
    ]
