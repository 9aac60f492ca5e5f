"""Run servers of a topology file in this process: `python -m mombroker.admin.bench.process --file FILE [NAME ...]`."""

import resource
from pathlib import Path

import click

from mombroker.admin.bench import clocks
from mombroker.admin.cli import options


@click.command()
@options.file_option
@click.argument("names", nargs=-1)
@click.option("--clock", type=click.Choice(clocks.CLOCKS), default="ours", help="How matrix clocks are written.")
def run(file: Path, names: tuple[str, ...], clock: str) -> None:
    """Serve until SIGTERM."""
    from mombroker.net import service

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # many servers have many files
    clocks.use(clock)
    topology = options.load(file)
    raise SystemExit(service.serve(topology, *(names or topology.servers)))


if __name__ == "__main__":
    run()
