"""`mom bench` of what is killed: changes, and leaders that fail, under load."""

from pathlib import Path

import click

from mombroker.admin.cli.bench_params import folder_option
from mombroker.admin.cli.output import output_options, show
from mombroker.admin.cli.progress import Bar

BRIEF_FAILOVER = (
    "kills,kill_p50_ms,kill_p99_ms,transfers,transfer_p50_ms,transfer_p99_ms,sent,receipts,repeats,unplanned,clean,"
    "faults"
)


@click.command()
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


@click.command()
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
