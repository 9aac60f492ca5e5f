"""`mom demo`: a project's history on a bus that changes and whose routers are killed, judged at the end."""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin import demo as show
from mombroker.admin.cli import options
from mombroker.admin.cli.output import show_one, whole
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from examples.git_history import Line
    from mombroker.core.topology import Topology

DEMO_FILE, HISTORY_FILE = "demo.toml", "history.jsonl"


@click.command()
@click.option(
    "-f", "--file", "--topology", "file", type=click.Path(path_type=Path),
    help="Use the servers and domains of this file. [default: seven servers in three domains]",
)  # fmt: skip
@click.option(
    "--git", "repository", type=click.Path(path_type=Path),
    help="Use the history of this repository. [default: the one in examples/data]",
)  # fmt: skip
@click.option("--commits", type=click.IntRange(min=1), help="Only the first so many commits.")
@click.option("--kills", type=click.IntRange(min=0), default=2, show_default=True, help="Routers to kill on the way.")
@click.option(
    "--changes", type=click.IntRange(0, len(show.CHANGES)), default=len(show.CHANGES), show_default=True,
    help="Changes of the bus on the way: a site joins, a domain is split, a router moves.",
)  # fmt: skip
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Keep the topology file and the stores here, for `mom check` and others. [default: nothing is kept]",
)  # fmt: skip
def demo(
    file: Path | None, repository: Path | None, commits: int | None, kills: int, changes: int, folder: Path | None
) -> None:
    """Run a project's history on a bus, kill routers and change domains, and judge the result.

    Every author of the history is an agent on one of the servers, which are processes that talk TCP and keep SQLite
    files. An author publishes a commit to all authors once it has seen all its parents. All must see every commit
    once, after its parents, whatever is killed or changed. Ports and folders of the topology file are not used. The
    last line is one JSON object. Exit code 4 if the bus did not keep its promises.

    \b
    Example:
      mom demo
      mom demo --git . --kills 5
      mom demo --topology etc/two-sites.toml --folder var/demo
    """
    samples = show.examples()
    from examples import git_history

    history = git_history.of_repository(repository) if repository else git_history.read(git_history.SAMPLE)
    history = history[:commits]
    if not history:
        raise MomError(f"{repository} has no commits")
    with ExitStack() as stack:
        folder = folder.resolve() if folder else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mom-")))
        topology = _prepare(file or samples / "git_history.toml", folder, history)
        bar = stack.enter_context(Bar("commits seen by an average author"))
        watch = show.Show(topology, len(history), kills, bar.at, bar.say, changes)
        show.run(topology, watch)
        bar.close()
        topology = watch.topology
        _write(topology, folder)
        if watch.stalled:
            click.echo("mom: nothing has moved for a while; the check tells what is missing", err=True)
        with Bar("log records checked") as bar:
            table, last = show.judge(topology, len(history), watch, bar.at)
    show_one(table, "table")
    click.echo(json.dumps(last))
    if last["violations"] or last["lost"] or last["duplicated"]:
        raise SystemExit(ExitCode.WRONG)


def _prepare(file: Path, folder: Path, history: "list[Line]") -> "Topology":
    """The files of this run in `folder`, which must not hold an older one."""
    from examples import git_history

    folder.mkdir(parents=True, exist_ok=True)
    if (folder / DEMO_FILE).exists():
        raise MomError(f"{folder} holds the stores of an earlier demo: delete it, or give another --folder")
    git_history.write(folder / HISTORY_FILE, history)
    authors = 1 + max(line.author for line in history)
    topology = show.staged(options.load(file), folder, folder / HISTORY_FILE, authors)
    _write(topology, folder)
    return topology


def _write(topology: "Topology", folder: Path) -> None:
    from mombroker.net import config

    with whole(folder / DEMO_FILE) as draft:
        draft.write_text(config.dumps(topology, folder))
