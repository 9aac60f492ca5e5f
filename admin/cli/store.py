"""`mom store`: the store of one server. All but `accept`, `clock` and `compact` works while the server runs."""

import json
import time
from pathlib import Path

import click

from mombroker import store as stores
from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.log import last
from mombroker.admin.cli.output import echo_json, form_option, output_options, show_one
from mombroker.admin.cli.progress import Bar
from mombroker.core.meta import CLEAN, INCARNATION, SERVER, VERSION
from mombroker.net.exit_codes import ExitCode
from mombroker.stomp.headers import lines_of


@click.group(cls=Group)
def store() -> None:
    """A server's store: verify, backup, info, salvage, compact, accept, clock."""


def path_argument(command: options.F) -> options.F:
    path = click.Path(exists=True, path_type=Path)
    return click.argument("path", type=path, required=False)(command)


def _path(file: Path, server: str | None, path: Path | None) -> Path:
    """The store at `path` if one is named, else that of a server of the file."""
    return path or Path(stores.folder_of(options.pick(options.load(file), server)))


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one, or a PATH is given.")
@path_argument
@form_option("text")
def verify(file: Path, server: str | None, path: Path | None, output: str) -> None:
    """Verify a store, or the data folder or backup at PATH. Exit code 4 if something is wrong.

    \b
    Example:
      mom store verify --server lyon
      mom store verify backup/lyon.sqlite
    """
    where = _path(file, server, path)
    faults = stores.verify(where)
    if output == "json":
        echo_json({"store": str(where), "sound": not faults, "faults": faults})
    else:
        click.echo("\n".join(faults or [f"{where} is sound"]))
    if faults:
        raise SystemExit(ExitCode.WRONG)


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one.")
@click.argument("target", type=click.Path(path_type=Path))
@form_option("text")
def backup(file: Path, server: str | None, target: Path, output: str) -> None:
    """Copy a store, as of one commit, into the new file TARGET.

    A restored backup is refused by the neighbours if messages have passed since: see docs/operate.md.

    \b
    Example:
      mom store backup --server lyon backup/lyon.sqlite
    """
    where = _path(file, server, None)
    with Bar("pages") as bar:
        stores.backup(where, target, bar.at)
    size = target.stat().st_size
    if output == "json":
        echo_json({"store": str(where), "backup": str(target), "bytes": size})
    else:
        click.echo(f"{target} has {size} bytes")


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one, or a PATH is given.")
@path_argument
@output_options
def info(file: Path, server: str | None, path: Path | None, output: str, columns: str) -> None:
    """Describe a store: whose it is, and how much of what it holds.

    \b
    Example:
      mom store info --server lyon
      mom store info backup/lyon.sqlite -o json
    """
    reader = stores.read(_path(file, server, path))
    meta = reader.meta()
    waiting = {f"{link.peer} ({link.domain})": link.sent - link.acked for link in reader.links()}
    described = {
        "server": meta[SERVER],
        "schema": meta[VERSION],
        "incarnation": meta.get(INCARNATION, ""),
        "bytes": reader.size(),
        "inbox": sum(count for _, _, count in reader.inboxes()),
        "out": sum(waiting.values()),
        "out_to": {peer: count for peer, count in waiting.items() if count},
        "tasks": len(reader.tasks()),
        "log_records": last(reader),
        "stopped_cleanly": bool(meta.get(CLEAN, 1)),
    }
    show_one(described, output, columns)


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one.")
@options.yes_option
@output_options
def clock(file: Path, server: str | None, yes: bool, output: str, columns: str) -> None:
    """Set the time of a store back to the machine's clock. Its server must be stopped.

    The time of a server never goes back by itself: if the clock was wrong, `mom status` says that it is ahead. What is
    due or expires by that time is moved with it; the log keeps the times that it has.

    \b
    Example:
      mom store clock --server lyon
    """
    from contextlib import closing

    from mombroker.admin.clock import set_back

    topology = options.load(file)
    at = options.pick(topology, server)
    options.confirm(yes, f"Is the clock of this machine right? It is {time.strftime('%Y-%m-%d %H:%M:%S %Z')}.")
    with closing(stores.open(at.data, topology, at.name)) as found:
        show_one({"server": at.name, **set_back(found, time.time_ns())}, output, columns)


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one, or a PATH is given.")
@path_argument
def salvage(file: Path, server: str | None, path: Path | None) -> None:
    """Write what can be read of the messages in a store to stdout, as one JSON object a line.

    It works on damaged stores, data folders and backups, also while the server runs. `whole` is false where a row is
    not as it was written: then its body may be wrong. docs/operate.md describes the fields.

    \b
    Example:
      mom store salvage --server lyon > lyon.jsonl
      mom store salvage backup/lyon.sqlite
    """
    for row in stores.salvage(_path(file, server, path), lines_of):
        click.echo(json.dumps(row))


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one.")
@options.yes_option
def accept(file: Path, server: str | None, yes: bool) -> None:
    """Let a server start though its store is not what it left: gone, emptied, an old copy, or without its last commits.

    What is missing is lost for good. Neighbours that have met what is missing refuse the link until `mom domain reset`.

    \b
    Example:
      mom store accept --server lyon
    """
    where = _path(file, server, None)
    options.confirm(yes, f"Go on with what is in {where}, and lose what is not?")
    click.echo(stores.accept(where))


@store.command()
@options.file_option
@options.server_option("Whose store; not needed if there is only one.")
def compact(file: Path, server: str | None) -> None:
    """Make the file of a stopped server's store as small as what it holds. Needs room for a second one meanwhile.

    Stores made by this version shrink by themselves while they work; older ones do after they were compacted once.

    \b
    Example:
      mom store compact --server lyon
    """
    where = _path(file, server, None)
    before, after = stores.compact(where)
    click.echo(f"{where}: {before} bytes before, {after} after")
