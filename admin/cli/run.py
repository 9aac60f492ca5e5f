"""`mom run`: one server without a topology file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.serve import makes
from mombroker.net import hangup

if TYPE_CHECKING:
    from mombroker.core.places import Place
    from mombroker.core.topology import Server


@click.command()
@click.option(
    "--stomp", default="127.0.0.1:61613", show_default=True, metavar="HOST:PORT", help="Where clients of STOMP connect."
)
@click.option(
    "--amqp", default="127.0.0.1:5672", show_default=True, metavar="HOST:PORT",
    help="Where clients of AMQP 1.0 connect; `none` for no such port.",
)  # fmt: skip
@click.option(
    "--http", default="127.0.0.1:8161", show_default=True, metavar="HOST:PORT",
    help="The console, metrics, and STOMP over WebSocket; `none` for no such port.",
)  # fmt: skip
@click.option("--listen", default="127.0.0.1:16299", show_default=True, metavar="HOST:PORT", help="For `mom` itself.")
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), default=options.RUN_FOLDER, show_default=True,
    help="The folder of its store.",
)  # fmt: skip
@click.option("--users", is_flag=True, help="Clients of this machine need a user, too.")
@click.option(
    "--replicas", type=click.IntRange(1, 9), default=1, metavar="N",
    help="So many processes that keep the same. One serves clients, at the port of --stomp or one of the next, and "
    "when it ends, another one does; those for `mom` are the port of --listen and those below.",
)  # fmt: skip
def run(stomp: str, amqp: str, http: str, listen: str, data: Path, users: bool, replicas: int) -> None:
    """Run one server for clients of STOMP and AMQP, without a topology file: the quickest start.

    Clients of this machine need no user, unless --users says so; a server that others can reach wants --stomp with its
    address, and `mom user add`. What it runs as is written to mombroker.toml in the folder of its store, where commands
    that are run in this folder find it. Ctrl-C, or the end of its terminal, ends it once all that it has taken is
    durable; the messages are there at its next start.

    \b
    Example:
      mom run
      mom run --users
      mom run --replicas 3
      mom run --stomp 127.0.0.1:61000 --data /var/lib/mombroker
    """
    hangup.hold()
    from mombroker.core.errors import MomError
    from mombroker.core.topology import Server, Topology, address, is_loopback
    from mombroker.store import folder

    try:
        (host, port), (outside, _) = address(listen), address(stomp)
        inside = is_loopback(outside) and all(is_loopback(address(each)[0]) for each in (amqp, http) if each != "none")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    home = folder.make(data.absolute())
    if replicas == 1:
        folder.claim(home)
    from mombroker.net import config, service  # takes most of the time of the start

    server = Server(
        "main",
        host,
        port,
        stomp,
        str(home),
        anonymous=inside and not users,
        http=None if http == "none" else http,
        amqp=None if amqp == "none" else amqp,
    )
    if replicas > 1:
        server = replace(server, replicas=tuple(_place(server, number) for number in range(replicas)))
        server = replace(server.at(server.replicas[0]), replica="")
    topology = Topology("run", {"main": server})
    text = config.dumps(topology, home, ["Written by `mom run` at each start."])

    def tell() -> None:
        """Not before the folder is ours: somebody else may run in it."""
        try:
            (home / options.DEFAULT_FILE).write_text(text)
        except OSError as error:
            raise MomError(f"cannot write {error.filename}: {error.strerror}; give another --data") from None

    if replicas == 1:
        raise SystemExit(service.serve(topology, "main", opened=tell, makes=makes(home / options.DEFAULT_FILE)))
    from mombroker.admin.cli.up import attached

    tell()
    raise SystemExit(attached(home / options.DEFAULT_FILE, topology, server.views()))


def _place(server: "Server", number: int) -> "Place":
    """Of a replica, by its number from 0: each has ports of its own."""
    from mombroker.core.places import Place
    from mombroker.core.topology import address

    def port(where: str | None) -> str | None:
        return where and f"{where.rpartition(':')[0]}:{address(where)[1] + number}"

    name = f"r{number + 1}"
    return Place(
        name, server.host, server.port - number, str(Path(server.data) / name), port(server.stomp),
        http=port(server.http), amqp=port(server.amqp),
    )  # fmt: skip
