"""`mom bench` with clients: brokers side by side, what a message grows with, replicas."""

from pathlib import Path

import click

from mombroker.admin.cli.bench_params import Numbers, Words, folder_option
from mombroker.admin.cli.output import output_options, show
from mombroker.admin.cli.progress import Bar

BRIEF_PEERS = (
    "broker,kind,window,bytes,producers,consumers,f_ms,c_us,rate,rate_x,broker_us,broker_c,broker_x,disk_bytes,p50_ms,"
    "p99_ms"
)
BRIEF_REPLICAS = "broker,window,bytes,f_ms,c_us,rate,rate_x,broker_us,broker_c,broker_x,first_us,first_x,p50_ms,p99_ms"
BRIEF_STOMP = "broker,kind,window,bytes,f_ms,c_us,rate,fill_rate,broker_us,broker_c,client_us,disk_bytes,p50_ms,p99_ms"


@click.command()
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
@click.option(
    "--ids/--no-ids", default=None, help="Have messages ids of their own? [default: those of AMQP, as Qpid JMS does it]"
)
@click.option("--amqp", is_flag=True, help="Our own server by AMQP 1.0, too, where consumers accept one by one.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Each producer sends so many a second.")
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
    ids: bool | None,
    amqp: bool,
    rate: float | None,
    rounds: int,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """Clients and a STOMP broker, ours or another's: messages a second, and the broker's CPU time for each.

    A URL amqp://... is one of AMQP 1.0, nats://... a JetStream, with three copies in a cluster.

    rate counts what is received, fill_rate what a backlog is sent at. broker_us is the CPU time of the broker's
    processes per message received, disk_bytes what they have had written to disks for it, client_us the CPU time of
    this command. p50_ms, p99_ms and p999_ms are from a SEND to its RECEIPT. Each SEND asks for a receipt, and at most
    --window are outstanding at a time; with --rate it is sent when it is due, and its time begins then.

    \b
    Example:
      mom bench stomp
      mom bench stomp --amqp --window 512
      mom bench stomp --rate 500 --messages 5000
      mom bench stomp --kind fan-out --volatile --consumers 10 --window 512
      mom bench stomp --url stomp://127.0.0.1:61613 --pid 4711 --url stomp://guest:guest@127.0.0.1:61614 --pid 815
    """
    from mombroker.admin.bench import stomp

    cases = [
        stomp.Case(
            kind, window, size, "auto" if kind == "fan-out" else ack, not volatile, producers, consumers, queues,
            prefetch, ids, rate=rate or 0.0,
        )
        for kind in kinds for size in sizes for window in (windows if rate is None else [0])
    ]  # fmt: skip
    with Bar("rounds") as bar:
        rows = stomp.measure(stomp.targets(urls, pids), cases, messages, rounds, folder, bar.at, amqp)
    show(rows, output, columns, BRIEF_STOMP)


@click.command()
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


@click.command()
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


@click.command()
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
@click.option(
    "--disk", "disk_ms", type=click.FloatRange(0), default=0.0, metavar="MS",
    help="As if each process had a disk of its own: stores are in memory, and each COMMIT takes so much longer.",
)  # fmt: skip
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
    disk_ms: float,
    folder: Path | None,
    output: str,
    columns: str,
) -> None:
    """What replicas cost: a server with three beside a plain one, and with a standby that is ill.

    All run on this machine, and share its disk unless --disk is given. broker_us is the CPU time of all three replicas
    together for a message, first_us that of the leader, first_x its ratio to that of the first state, in the median
    round. p50_ms and p99_ms are from a SEND to its RECEIPT, with --window of them outstanding; one durable queue, one
    producer, one consumer.

    \b
    Example:
      mom bench replicas
      mom bench replicas --state whole,stopped,slow,full --window 512
      mom bench replicas --window 1 --disk 0.2
      mom bench replicas --url stomp://guest:guest@127.0.0.1:61613 --pid 815 --header x-queue-type:quorum
    """
    from mombroker.admin.bench import replicas, stomp

    others = stomp.targets(urls, pids)
    for other in others:
        other.headers = dict(each.split(":", 1) for each in headers)
    cases = [stomp.Case(window=window, size=size) for window in windows]
    with Bar("rounds") as bar:
        rows = replicas.measure(states, others, cases, messages, rounds, folder, bar.at, disk_ms)
    show(rows, output, columns, BRIEF_REPLICAS)


@click.command()
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
