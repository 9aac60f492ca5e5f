"""`mom bench` between agents and servers: what hops, reactions, commits, back ends, topics and groups cost."""

from pathlib import Path

import click

from mombroker.admin.cli.bench_params import Numbers, Words, folder_option
from mombroker.admin.cli.output import Target, output_options, show, whole
from mombroker.admin.cli.progress import Bar


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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
