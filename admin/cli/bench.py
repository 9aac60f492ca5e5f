"""`mom bench`: what a bus costs on this machine, beside what its disk and its CPU cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, output_options, show, whole
from mombroker.admin.cli.progress import Bar

F = TypeVar("F", bound=Callable[..., Any])


class Numbers(click.ParamType[list[int]]):
    """Numbers with commas between."""

    name = "N,N"

    def __init__(self, least: int):
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            found = [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of numbers like 10,20", param, ctx)
        if min(found) < self.least:
            self.fail(f"{min(found)} is less than {self.least}", param, ctx)
        return found


class Words(click.ParamType[list[str]]):
    """Words of a set, with commas between."""

    name = "A,B"

    def __init__(self, *known: str):
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        found: list[str] = value.split(",")
        for word in found:
            if word not in self.known:
                self.fail(f"{word!r} is none of {', '.join(self.known)}", param, ctx)
        return found


def folder_option(command: F) -> F:
    return click.option(
        "--folder", type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Measure the disk of this folder. [default: that of temporary files]",
    )(command)  # fmt: skip


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure: pingpong, hop, desk, table, commit, recover, orderings, domain, loop, stomp, growth, order, group, replicas, catchup, chaos, failover, peers.

    Without a command all but `domain` and the last seven run, in short. Beside each figure stand two yardsticks of the same round:
    f_ms, the time that the disk takes to make a small record durable, and c_us, the CPU time that Python takes to make
    a small object (which grows while others use the machine). Columns that end in _f and _c are ratios to them.
    Figures are medians of rounds in which the cases take turns. The first line, on stderr, says which Python this is,
    and how it was built.

    \b
    Example:
      mom bench
      mom bench hop --rounds 9
    """  # noqa: E501
    from mombroker.admin.bench.figures import python

    click.echo(f"python: {python()}", err=True)
    if ctx.invoked_subcommand is None:
        for title, command, short in SHORT:
            click.echo(title)
            ctx.invoke(command, **short)
            click.echo()


@bench.command()
@click.option("--servers", type=Numbers(2), default="2,10", show_default=True, help="Sizes of the bus.")
@click.option(
    "--layout", "layouts", type=Words("flat", "bus", "chain", "tree"), default="flat", show_default=True,
    help="Splits into domains: flat (none), bus, daisy, tree.",
)  # fmt: skip
@click.option(
    "--clock", "clocks", type=Words("ours", "full-image"), default="ours", show_default=True,
    help="How clocks are written: ours (what has changed) or, as in the paper, full-image (all of it, each time).",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=33, show_default=True, help="Round trips in each pass.")
@click.option("--passes", type=click.IntRange(1), default=3, show_default=True, help="Passes over all cases.")
@click.option("--csv", "table", type=Target("csv"), help="Write the rows here too.")
@click.option("--png", type=Target("png", "svg", "pdf"), help="Draw the paper's figures here (needs matplotlib).")
@folder_option
@output_options
def pingpong(
    servers: list[int],
    layouts: list[str],
    clocks: list[str],
    rounds: int,
    passes: int,
    table: Path | None,
    png: Path | None,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """Round trips between agents, as in the paper on domains of causality.

    All servers of a bus run in one process and speak TCP. An agent on the first sends to an echo on its own server
    (local), on the farthest one (remote), or to the echoes of all servers (broadcast), and waits for the answers.
    Every domain has a matrix clock. Beside the times stands what a round trip costs in all servers together: CPU, hops,
    control integers (entries) and control bytes on the wire, and the rows and bytes of clocks that were written.

    With three sizes or more two rows for each layout and clock follow: as which power of the number of servers each
    figure grows, and how far off that may be either way, with 95 % confidence.

    \b
    Example:
      mom bench pingpong
      mom bench pingpong --servers 10,20,50,100,150 --layout flat,bus,chain,tree --clock full-image,ours --csv all.csv
    """
    from mombroker.admin.bench import pingpong, plot

    cases = [(clock, layout, n) for n in servers for layout in layouts for clock in clocks]
    with Bar("cases") as bar:
        rows = pingpong.measure(cases, rounds, passes, folder=folder, progress=bar.at)
    if table:
        with whole(table) as draft:
            pingpong.write_csv(draft, rows)
    if png:
        with whole(png) as draft:
            plot.draw(draft, rows)
    show(rows + pingpong.powers(rows), output, columns)


@bench.command()
@click.option("--messages", type=click.IntRange(128), default=20_000, show_default=True, help="Messages per round.")
@click.option("--window", "windows", type=Numbers(64), default="64,512", show_default=True, help="Messages in flight.")
@click.option("--bytes", "size", type=click.IntRange(0), default=100, show_default=True, help="Size of a message.")
@click.option("--ordering", default="matrix", show_default=True, help="Ordering back end of the domain.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds, log on and off by turns.")
@folder_option
@output_options
def hop(
    messages: int,
    windows: list[int],
    size: int,
    ordering: str,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """Messages from one process to another, durable at both ends.

    source_us and sink_us are the CPU time of either process per message, with everything: the agents' reactions, the
    stamp, the rows, the commits, the sockets.

    \b
    Example:
      mom bench hop
      mom bench hop --window 512 --messages 100000
    """
    from mombroker.admin.bench import hop

    with Bar("rounds") as bar:
        rows = hop.measure(messages, windows, rounds, size, ordering, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Messages per round.")
@click.option("--bytes", "sizes", type=Numbers(0), default="100", show_default=True, help="Sizes of a message.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all sizes.")
@folder_option
@output_options
def desk(messages: int, sizes: list[int], rounds: int, folder: Path | None, output: str, columns: str) -> None:
    """An agent that takes messages from a queue and answers each to another one.

    All messages wait in the queue when it begins, and all answers in the other when it is done. agent_us is the CPU
    time of its server for each, with everything between the two: the dispatch, the reaction, the answer, the rows and
    the commits. What clients send and receive is not in it: see `mom bench stomp`.

    \b
    Example:
      mom bench desk
      mom bench desk --bytes 100,1024 --rounds 9
    """
    from mombroker.admin.bench import desk

    with Bar("rounds") as bar:
        rows = desk.measure(messages, sizes, rounds, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="Of the table.")
@click.option("--turns", type=click.IntRange(1), default=20_000, show_default=True, help="Reactions per round.")
@click.option("--window", type=click.IntRange(1), default=512, show_default=True, help="Turns that wait at once.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds of each kind of turn.")
@folder_option
@output_options
def table(rows: int, turns: int, window: int, rounds: int, folder: Path | None, output: str, columns: str) -> None:
    """The table of an agent: what a reaction takes that gets a row, sets one, or both, beyond one that does neither.

    Rows are drawn; what is set is changed. beyond_us is CPU time with everything, the commits, too; more_mb the memory
    that the process takes in the end beyond that with an empty table.

    \b
    Example:
      mom bench table
      mom bench table --rows 1000000
    """
    from mombroker.admin.bench import desk

    with Bar("rows and rounds") as bar:
        found = desk.table(rows, turns, window, rounds, folder, bar.at)
    show(found, output, columns)


@bench.command()
@click.option("--messages", "sizes", type=Numbers(1), default="1,16,64,512", show_default=True, help="In one commit.")
@click.option("--bytes", "size", type=click.IntRange(0), default=100, show_default=True, help="Size of a message.")
@click.option("--commits", type=click.IntRange(1), default=100, show_default=True, help="Commits in each round.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all sizes.")
@folder_option
@output_options
def commit(
    sizes: list[int], size: int, commits: int, rounds: int, folder: Path | None, output: str, columns: str
) -> None:
    """Commits of the store, each of so many new messages in place of as many old ones.

    \b
    Example:
      mom bench commit
      mom bench commit --messages 1,4096 --bytes 1024
    """
    from mombroker.admin.bench import commit

    with Bar("rounds") as bar:
        rows = commit.measure(sizes, commits, rounds, size, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--queued", type=click.IntRange(1), default=1_000_000, show_default=True, help="Messages in the queue.")
@click.option("--servers", type=click.IntRange(2), default=150, show_default=True, help="Servers in one process.")
@click.option("--bytes", "size", type=click.IntRange(0), default=100, show_default=True, help="Size of a message.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Starts of each kind.")
@folder_option
@output_options
def recover(queued: int, servers: int, size: int, rounds: int, folder: Path | None, output: str, columns: str) -> None:
    """Starting a server, one with a deep queue that a crash left, and many in one process.

    ready_s counts from the start of the process, Python's own start included, until all servers answer; private_mb is
    the memory that the process shares with no other, memory_mb all of it. each_us and each_kb are what one more
    message, or one more server, costs in ready_s and private_mb beside an idle server alone.

    \b
    Example:
      mom bench recover
      mom bench recover --queued 100000 --servers 50 --rounds 1
    """
    from mombroker.admin.bench import recover

    with Bar("starts") as bar:
        rows = recover.measure(queued, servers, rounds, size, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--ordering", "names", default="", help="Back ends, with commas between. [default: all]")
@click.option("--members", "sizes", type=Numbers(3), default="10,30", show_default=True, help="Sizes of the domain.")
@click.option(
    "--pattern", "patterns", type=Words("pair", "pingpong", "any", "mixed", "all"),
    default="pair,pingpong,any,mixed,all", show_default=True,
    help="Traffic: one message at a time between the first member and another, always the same or drawn anew; each "
    "member to any other; the same with one multicast in ten messages, as in the study of KS; each member to all.",
)  # fmt: skip
@click.option("--copies", type=click.IntRange(5), default=50, show_default=True, help="Deliveries at each member.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds over all cases.")
@output_options
def orderings(
    names: str, sizes: list[int], patterns: list[str], copies: int, rounds: int, output: str, columns: str
) -> None:
    """The ordering back ends beside each other: one domain in one process, without disk and network.

    packets are those of a message. Of each one on a link: control_bytes as encoded, integers in the measure of the
    papers, and packet_us. Of each copy that is delivered: copy_us, the CPU time of stamping, packing, reading and
    ordering at all members that it passes; rows_us, the same with the changed rows taken after every step, and
    row_bytes, the size of these. held_pct of the copies had to wait. ks-bitmap is ks with encoding = "bitmap".

    \b
    Example:
      mom bench orderings
      mom bench orderings --ordering ks,ks-bitmap,rst --members 10,50,100 --pattern mixed --copies 100
    """
    from mombroker.admin.bench import orderings

    chosen = names.split(",") if names else orderings.names()
    with Bar("cases") as bar:
        cases = [(name, pattern, size) for pattern in patterns for size in sizes for name in chosen]
        rows = orderings.measure(cases, copies, rounds, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--ordering", "names", default="matrix,abcast", show_default=True, help="Back ends, with commas between.")
@click.option("--members", type=click.IntRange(4), default=5, show_default=True, help="Servers, each a process.")
@click.option("--seconds", type=click.FloatRange(1), default=6.0, show_default=True, help="Of each round.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds over all back ends.")
@folder_option
@output_options
def domain(
    names: str, members: int, seconds: float, rounds: int, folder: Path | None, output: str, columns: str
) -> None:
    """A domain of servers, each in a process of its own, under one back end after the other.

    An agent on each talks to one other, or to several, without end: 16 conversations each. copies_s is how many copies
    they hear in a second, all together: the median of the rounds; of_first is that beside the first back end's.

    \b
    Example:
      mom bench domain
      mom bench domain --ordering matrix,vector,abcast --rounds 5
    """
    from mombroker.admin.bench import domain as bench_domain

    with Bar("rounds") as bar:
        rows = bench_domain.measure(names.split(","), members, seconds, rounds, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option(
    "--messages", type=click.IntRange(1), default=20_000, show_default=True, help="To each topic, each round."
)
@click.option("--window", type=click.IntRange(1), default=2_000, show_default=True, help="Without a receipt at a time.")
@click.option("--size", type=click.IntRange(1), default=100, show_default=True, help="Bytes of a body.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over both topics.")
@folder_option
@output_options
def order(messages: int, window: int, size: int, rounds: int, folder: Path | None, output: str, columns: str) -> None:
    """What total order costs: a publisher's pipeline to a topic in total order, beside that to a plain one.

    Of three servers the publisher is at the first, the home of the topic is the second, and the reader is at the third.
    of_plain is the rate as a part of that to the plain topic.

    \b
    Example:
      mom bench order
      mom bench order --window 200 --messages 5000
    """
    from mombroker.admin.bench import order

    with Bar("rounds") as bar:
        rows = order.measure(messages, window, size, rounds, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="Of the table.")
@click.option("--rate", type=click.IntRange(1), default=1_000, show_default=True, help="Casts a second meanwhile.")
@click.option("--before", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds without one.")
@folder_option
@output_options
def group(rows: int, rate: int, before: float, folder: Path | None, output: str, columns: str) -> None:
    """For how long others stop while a new member of a group is given a large table, and casts go on.

    Three servers with a process each: the giver's, another member's, which casts, and the new member's. worst_ms is
    the longest time between two reactions of an agent that has something to do every 10 ms, during the transfer;
    before_ms the same in the seconds before; cast_ms the longest time from a cast to its delivery. In the end all have
    the same rows.

    \b
    Example:
      mom bench group
      mom bench group --rows 1000000 --rate 200
    """
    from mombroker.admin.bench import group

    with Bar("steps") as bar:
        found = group.measure(rows, rate, before, folder, bar.at)
    show(found, output, columns)


@bench.command()
@click.option(
    "--waiting", type=Numbers(1), default="1,100,1000,10000", show_default=True, help="Events that wait at a time."
)
@click.option("--events", type=click.IntRange(1), default=300_000, show_default=True, help="In each round.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all cases.")
@output_options
def loop(waiting: list[int], events: int, rounds: int, output: str, columns: str) -> None:
    """The simulator's loop: empty events a second of CPU time, in virtual time as far apart as chance has it.

    \b
    Example:
      mom bench loop
      mom bench loop --waiting 100000 --events 1000000
    """
    from mombroker.admin.bench import loop

    with Bar("cases") as bar:
        rows = loop.measure(waiting, events, rounds, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--url", "urls", multiple=True, metavar="URL", help="A broker; more than one take turns. [default: ours]")
@click.option(
    "--pid", "pids", multiple=True, type=Numbers(1), metavar="PID,PID",
    help="Processes of the broker, with all their children, for its CPU time; once for each --url, in order.",
)  # fmt: skip
@click.option(
    "--kind", "kinds", type=Words("flow", "fan-out", "backlog"), default="flow", show_default=True,
    help="flow: in and out at once; fan-out: one topic; backlog: all in, then all out.",
)  # fmt: skip
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Sent in each round.")
@click.option(
    "--window", "windows", type=Numbers(1), default="1,64,512", show_default=True, help="Receipts outstanding."
)
@click.option("--bytes", "sizes", type=Numbers(0), default="100", show_default=True, help="Sizes of a message.")
@click.option(
    "--ack", type=click.Choice(["auto", "client", "client-individual"]), default="client-individual", show_default=True,
    help="How consumers settle; those of a topic: auto.",
)  # fmt: skip
@click.option("--volatile", is_flag=True, help="Messages that the broker may lose with a crash.")
@click.option("--producers", type=click.IntRange(1), default=1, show_default=True, help="Connections that send.")
@click.option("--consumers", type=click.IntRange(1), default=1, show_default=True, help="Connections that receive.")
@click.option("--queues", type=click.IntRange(1), default=1, show_default=True, help="That they are spread over.")
@click.option("--prefetch", type=click.IntRange(1), default=1_000, show_default=True, help="Of each consumer.")
@click.option("--ids", is_flag=True, help="Each message of STOMP has a JMSMessageID, as each of AMQP has its id.")
@click.option("--amqp", is_flag=True, help="Our own server by AMQP 1.0, too, where consumers accept one by one.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all cases.")
@folder_option
@output_options
def stomp(
    urls: tuple[str, ...],
    pids: tuple[list[int], ...],
    kinds: list[str],
    messages: int,
    windows: list[int],
    sizes: list[int],
    ack: str,
    volatile: bool,
    producers: int,
    consumers: int,
    queues: int,
    prefetch: int,
    ids: bool,
    amqp: bool,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """Clients and a STOMP broker, ours or another's: messages a second, and the broker's CPU time for each.

    A URL amqp://... is one of AMQP 1.0, nats://... a JetStream, with three copies in a cluster.

    rate counts what is received, fill_rate what a backlog is sent at. broker_us is the CPU time of the broker's
    processes per message received, client_us that of this command. p50_ms and p99_ms are from a SEND to its RECEIPT.
    Each SEND asks for a receipt, and at most --window are outstanding at a time.

    \b
    Example:
      mom bench stomp
      mom bench stomp --amqp --window 512
      mom bench stomp --kind fan-out --volatile --consumers 10 --window 512
      mom bench stomp --url stomp://127.0.0.1:61613 --pid 4711 --url stomp://guest:guest@127.0.0.1:61614 --pid 815
    """
    from mombroker.admin.bench import stomp

    cases = [
        stomp.Case(
            kind, window, size, "auto" if kind == "fan-out" else ack, not volatile, producers, consumers, queues,
            prefetch, ids,
        )
        for kind in kinds for size in sizes for window in windows
    ]  # fmt: skip
    with Bar("rounds") as bar:
        rows = stomp.measure(stomp.targets(urls, pids), cases, messages, rounds, folder, bar.at, amqp)
    show(rows, output, columns, BRIEF_STOMP)


@bench.command()
@click.option(
    "--peer", "peers", type=Words("rabbitmq", "jetstream"), help="That are to be started. [default: what is installed]"
)
@click.option(
    "--artemis", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder of an unpacked release of Artemis, which takes part, too, by AMQP.",
)  # fmt: skip
@click.option(
    "--python", "pythons", multiple=True, type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A Python with a mombroker of its own, such as a compiled one, which takes part, too.",
)  # fmt: skip
@click.option(
    "--case", "cases", type=Words("flow", "1KiB", "W=64", "W=1", "10x10x10", "fan-out", "backlog"),
    default="flow,1KiB,W=64,W=1,10x10x10,fan-out,backlog", show_default=True, help="What is measured.",
)  # fmt: skip
@click.option("--messages", type=click.IntRange(100), default=20_000, show_default=True, help="Sent in each round.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all cases.")
@folder_option
@output_options
def peers(
    peers: list[str] | None,
    artemis: Path | None,
    pythons: tuple[Path, ...],
    cases: list[str],
    messages: int,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """Other brokers beside ours, each started for it with its files in a folder that is deleted.

    RabbitMQ (with its STOMP plug-in) and ours by STOMP, a JetStream by NATS' own protocol, Artemis by AMQP 1.0. All
    messages are durable but those of the fan-out, and each is receipted; a JetStream receipts before its disk has them.
    flow: one producer and one consumer of a queue, 100 B, 512 receipts outstanding; 1KiB, W=64 and W=1 differ from it
    in this; 10x10x10: producers, consumers, queues; fan-out: a topic with ten subscribers; backlog: all in, then all
    out. W=1 takes a twentieth of the messages, fan-out a quarter; a JetStream takes part in flows only. rate_x and
    broker_x are ratios to ours, medians of those of the rounds, the other columns as of `mom bench stomp`.

    \b
    Example:
      mom bench peers
      mom bench peers --case flow,W=1 --python compiled/bin/python --artemis apache-artemis-2.40.0
    """
    from mombroker.admin.bench import peers as others

    found = others.installed() if peers is None else peers
    with Bar("rounds") as bar:
        rows = others.measure(
            found, cases, messages, rounds, pythons=pythons, release=artemis, folder=folder, progress=bar.at
        )
    show(rows, output, columns, BRIEF_PEERS)


@bench.command()
@click.option("--destinations", type=Numbers(1), default="1,100,10000", show_default=True, help="Queues, in turn.")
@click.option(
    "--selectors", type=Numbers(1), default="1,50,500", show_default=True,
    help="Subscribers of a topic, each with another selector.",
)  # fmt: skip
@click.option("--connections", type=Numbers(0), default="0,1000", show_default=True, help="That say nothing.")
@click.option(
    "--backlog", type=Numbers(1), default="10000,100000", show_default=True, help="Messages that wait in a queue."
)
@click.option(
    "--curve", "curves", type=Words("destinations", "selectors", "connections", "backlog"),
    default="destinations,selectors,connections,backlog", show_default=True, help="Those to be measured.",
)  # fmt: skip
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Of each case and round.")
@click.option("--window", type=click.IntRange(1), default=512, show_default=True, help="Receipts outstanding.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all cases.")
@folder_option
@output_options
def growth(
    destinations: list[int],
    selectors: list[int],
    connections: list[int],
    backlog: list[int],
    curves: list[str],
    messages: int,
    window: int,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """How the cost of a message grows with what else its server has.

    broker_us is the broker's CPU time for a message of 100 bytes, from SEND to settlement. times is the ratio to the
    first size of the same curve, in the median of the rounds. A message of `selectors` fits one of the subscribers.
    Backlogs are compared with one that is in memory: what has waited costs more than what is delivered at once.

    \b
    Example:
      mom bench growth
      mom bench growth --curve backlog --backlog 10000,1000000 --rounds 3
    """
    from mombroker.admin.bench import growth

    sizes = {"destinations": destinations, "selectors": selectors, "connections": connections, "backlog": backlog}
    with Bar("cases") as bar:
        rows = growth.measure({name: sizes[name] for name in curves}, messages, window, rounds, folder, bar.at)
    show(rows, output, columns)


@bench.command()
@click.option("--changes", type=click.IntRange(1), default=10, show_default=True, help="Of the topology, one by one.")
@click.option(
    "--pause", type=click.FloatRange(0.05), default=2.0, show_default=True, help="Between two kills, mean, s."
)
@click.option("--kills/--no-kills", default=True, show_default=True, help="Kill servers and clients meanwhile.")
@click.option(
    "--rate", type=click.FloatRange(0), default=0.0, show_default=True,
    help="Messages a second, of clients and agents; 0: each waits for others.",
)  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Of what is changed, and who is killed when.")
@folder_option
@output_options
def chaos(
    changes: int, pause: float, kills: bool, rate: float, seed: int, folder: Path | None, output: str, columns: str
) -> None:
    """Change a bus under load and kill -9; exit code 4 if a message is lost, repeated or out of order.

    Seven servers in three domains of random back ends, an agent on each, STOMP clients with queues and topics. Changes
    are new servers, splits, merges, moved servers, other back ends, other routers, and settings. Servers and clients
    are killed at random. In the end the logs are judged over all revisions, as by `mom check`, beside what clients
    wrote down and agents counted; clients may lose no connection but to a server that was killed. pause_p50_ms and
    pause_p99_ms are of single servers, from when what enters the domains waits until the new ones are there.
    per_s is what clients have sent and agents have heard. With --rate a probe on each server tells what its receipts
    and messages take while no change is under way (calm), while its server holds what enters domains that change
    (inside), while only others do (outside), and while a server is attached (attach).

    \b
    Example:
      mom bench chaos
      mom bench chaos --changes 100 --seed 7
      mom bench chaos --changes 30 --no-kills --rate 3000
    """
    from tempfile import TemporaryDirectory

    from mombroker.admin.bench import changechaos
    from mombroker.net.exit_codes import ExitCode

    with TemporaryDirectory(prefix="changes-", dir=folder) as place, Bar("changes") as bar:
        row = changechaos.run(changes, pause, seed, Path(place), bar.at, rate, kills)
    show([row], output, columns)
    if not row["clean"]:
        raise SystemExit(ExitCode.WRONG)


@bench.command()
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Of leaders, by kill -9.")
@click.option("--delete/--keep", default=True, show_default=True, help="Delete the folder of who was killed, too.")
@click.option("--transfers", type=click.IntRange(0), default=5, show_default=True, help="Leaders asked to hand over.")
@click.option(
    "--pause", type=click.FloatRange(0.05), default=1.0, show_default=True, help="Between two of these, mean, s."
)
@click.option("--seed", default=1, show_default=True, help="Of what happens when.")
@folder_option
@output_options
def failover(
    kills: int, delete: bool, transfers: int, pause: float, seed: int, folder: Path | None, output: str, columns: str
) -> None:
    """Take leaders away under load; exit code 4 if a message is lost, repeated or out of order.

    Seven servers in three domains, three of them with three replicas each, STOMP clients with queues and topics.
    Leaders are killed, with their disks, or asked to let another one lead; a disk that is lost is replaced. In the end
    the logs are judged, as by `mom check`, beside what clients wrote down; plain servers may lose no client, and no
    neighbour may refuse another. kill_p99_ms and the like are of a client with one message at a time: from the last
    receipt of the old leader to the first of the new one, with its own retries each 10 ms. unplanned counts
    connections to leaders that nobody had struck. If messages still wait when nobody is struck any more, what every
    server says of itself is told before.

    \b
    Example:
      mom bench failover
      mom bench failover --kills 50 --transfers 0
      mom bench failover --kills 100 --keep -o json
    """
    from tempfile import TemporaryDirectory

    from mombroker.admin.bench import failover
    from mombroker.net.exit_codes import ExitCode

    with TemporaryDirectory(prefix="failover-", dir=folder) as place, Bar("deeds") as bar:
        row = failover.run(kills, transfers, delete, pause, seed, Path(place), bar.at)
    for line in row["scene"]:
        click.echo(line, err=True)
    show([row], output, columns, BRIEF_FAILOVER)
    if not row["clean"]:
        raise SystemExit(ExitCode.WRONG)


@bench.command()
@click.option(
    "--state", "states", type=Words("plain", "whole", "stopped", "slow", "full"), default="plain,whole",
    show_default=True,
    help="A server without replicas; one with three; and with three of which one standby does not run, takes 50 ms "
    "longer for each write, or has ended because its disk was full.",
)  # fmt: skip
@click.option("--url", "urls", multiple=True, metavar="URL", help="Another broker that takes turns with them.")
@click.option("--pid", "pids", multiple=True, type=Numbers(1), metavar="PID,PID", help="As in `mom bench stomp`.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Of each SEND and SUBSCRIBE to those of --url."
)
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Messages per round.")
@click.option("--window", "windows", type=Numbers(1), default="1,512", show_default=True, help="Receipts outstanding.")
@click.option("--bytes", "size", type=click.IntRange(0), default=100, show_default=True, help="Size of a message.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds over all cases.")
@folder_option
@output_options
def replicas(
    states: list[str],
    urls: tuple[str, ...],
    pids: tuple[list[int], ...],
    headers: tuple[str, ...],
    messages: int,
    windows: list[int],
    size: int,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """What replicas cost: a server with three beside a plain one, and with a standby that is ill.

    All run on this machine. broker_us is the CPU time of all three replicas together for a message, p50_ms and p99_ms
    are from a SEND to its RECEIPT, with --window of them outstanding; one durable queue, one producer, one consumer.

    \b
    Example:
      mom bench replicas
      mom bench replicas --state whole,stopped,slow,full --window 512
      mom bench replicas --url stomp://guest:guest@127.0.0.1:61613 --pid 815 --header x-queue-type:quorum
    """
    from mombroker.admin.bench import replicas, stomp

    others = stomp.targets(urls, pids)
    for other in others:
        other.headers = dict(each.split(":", 1) for each in headers)
    cases = [stomp.Case(window=window, size=size) for window in windows]
    with Bar("rounds") as bar:
        rows = replicas.measure(states, others, cases, messages, rounds, folder, bar.at)
    show(rows, output, columns, BRIEF_STOMP)


@bench.command()
@click.option("--messages", type=click.IntRange(1), default=100_000, show_default=True, help="That wait in a queue.")
@click.option("--bytes", "size", type=click.IntRange(0), default=100, show_default=True, help="Size of a message.")
@folder_option
@output_options
def catchup(messages: int, size: int, folder: Path | None, output: str, columns: str) -> None:
    """Replace a replica that has lost its disk, with many messages in the queue, while others go on.

    replace_s is from its start with an empty folder until it votes and has all; rate and rate_meanwhile are messages a
    second through another queue before and during that, with 64 receipts outstanding. Memory is what processes have in
    RAM: leader_mb and new_mb before the loss, of the leader and of the replica that is lost, the peaks from then on.

    \b
    Example:
      mom bench catchup
      mom bench catchup --messages 1000000
    """
    from mombroker.admin.bench import replicas

    with Bar("messages") as bar:
        row = replicas.catch_up(messages, size, folder, bar.at)
    show([row], output, columns)


BRIEF_FAILOVER = (
    "kills,kill_p50_ms,kill_p99_ms,transfers,transfer_p50_ms,transfer_p99_ms,sent,receipts,repeats,unplanned,clean,"
    "faults"
)
BRIEF_PEERS = (
    "broker,kind,window,bytes,producers,consumers,f_ms,c_us,rate,rate_x,broker_us,broker_c,broker_x,p50_ms,p99_ms"
)
BRIEF_STOMP = "broker,kind,window,bytes,f_ms,c_us,rate,fill_rate,broker_us,broker_c,client_us,p50_ms,p99_ms"
COMMON: dict[str, Any] = {"folder": None, "output": "table", "columns": ""}
SHORT: list[tuple[str, click.Command, dict[str, Any]]] = [
    ("commit", commit, {"sizes": [1, 64, 512], "size": 100, "commits": 50, "rounds": 3, **COMMON}),
    ("hop", hop, {"messages": 10_000, "windows": [512], "size": 100, "ordering": "matrix", "rounds": 3, **COMMON}),
    ("desk", desk, {"messages": 10_000, "sizes": [100], "rounds": 3, **COMMON}),
    ("table", table, {"rows": 50_000, "turns": 10_000, "window": 512, "rounds": 3, **COMMON}),
    (
        "pingpong",
        pingpong,
        {
            "servers": [2, 20], "layouts": ["flat", "bus"], "clocks": ["ours"], "rounds": 20, "passes": 1,
            "table": None, "png": None, **COMMON,
        },
    ),
    (
        "stomp",
        stomp,
        {
            "urls": (), "pids": (), "kinds": ["flow"], "messages": 20_000, "windows": [1, 512], "sizes": [100],
            "ack": "client-individual", "volatile": False, "producers": 1, "consumers": 1, "queues": 1,
            "prefetch": 1_000, "rounds": 3, **COMMON,
        },
    ),
    (
        "growth",
        growth,
        {
            "destinations": [1, 1_000], "selectors": [1, 100], "connections": [0, 100], "backlog": [10_000, 50_000],
            "curves": ["destinations", "selectors", "connections", "backlog"], "messages": 10_000, "window": 512,
            "rounds": 3, **COMMON,
        },
    ),
    ("recover", recover, {"queued": 100_000, "servers": 50, "size": 100, "rounds": 1, **COMMON}),
    (
        "orderings",
        orderings,
        {
            "names": "", "sizes": [10], "patterns": ["mixed"], "copies": 50, "rounds": 1, "output": "table",
            "columns": "",
        },
    ),
    ("loop", loop, {"waiting": [1, 1000], "events": 300_000, "rounds": 3, "output": "table", "columns": ""}),
]  # fmt: skip
