"""Run servers of a topology file in this process: `python -m mombroker.admin.bench.process --file FILE [NAME ...]`."""

import resource
import time
from pathlib import Path
from typing import Any

import click

from mombroker.admin.bench import clocks
from mombroker.admin.cli import options


class Late:
    """What a committer writes to, on a disk that takes so many seconds longer."""

    def __init__(self, store: Any, seconds: float):
        self.store, self.seconds, self.begin = store, seconds, store.begin

    def finish(self) -> None:
        self.store.finish()
        time.sleep(self.seconds)


class Slow:
    """A committer on such a disk."""

    def __init__(self, committer: Any, seconds: float):
        self.committer, self.seconds = committer, seconds

    def submit(self, store: Any, batch: Any, done: Any) -> None:
        self.committer.submit(Late(store, self.seconds), batch, done)


def slow_down(seconds: float) -> None:
    """As if the disk of this process were slow."""
    from mombroker.net import node

    ours: Any = node
    usual = ours.Adaptive
    ours.Adaptive = lambda *place: Slow(usual(*place), seconds)


@click.command()
@options.file_option
@click.argument("names", nargs=-1)
@click.option("--clock", type=click.Choice(clocks.CLOCKS), default="ours", help="How matrix clocks are written.")
@click.option("--slow", type=click.FloatRange(0), default=0, help="Each COMMIT takes so many ms longer.")
def run(file: Path, names: tuple[str, ...], clock: str, slow: float) -> None:
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
