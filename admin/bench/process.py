"""Run servers of a topology file in this process: `python -m mombroker.admin.bench.process --file FILE [NAME ...]`."""

import resource
import time
from pathlib import Path

import click

from mombroker.admin.bench import clocks
from mombroker.admin.cli import options


def slow_down(seconds: float) -> None:
    """As if the disk of replicas in this process were slow."""
    from mombroker.store.replica import ReplicaStore

    finish = ReplicaStore.finish

    def late(store: ReplicaStore) -> None:
        time.sleep(seconds)
        finish(store)

    ReplicaStore.finish = late  # type: ignore[assignment, method-assign]


@click.command()
@options.file_option
@click.argument("names", nargs=-1)
@click.option("--clock", type=click.Choice(clocks.CLOCKS), default="ours", help="How matrix clocks are written.")
@click.option("--slow", type=click.IntRange(0), default=0, help="Each write of a replica takes so many ms longer.")
def run(file: Path, names: tuple[str, ...], clock: str, slow: int) -> None:
    """Serve until SIGTERM."""
    from mombroker.net import service

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # many servers have many files
    clocks.use(clock)
    if slow:
        slow_down(slow / 1e3)
    topology = options.load(file)
    raise SystemExit(service.serve(topology, *(names or topology.servers)))


if __name__ == "__main__":
    run()
