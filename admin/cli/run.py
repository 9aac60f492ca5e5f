"""`mom run`: one server without a topology file."""

from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.net import hangup


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
def run(stomp: str, amqp: str, http: str, listen: str, data: Path, users: bool) -> None:
    """Run one server for clients of STOMP and AMQP, without a topology file: the quickest start.

    Clients of this machine need no user, unless --users says so; a server that others can reach wants --stomp with its
    address, and `mom user add`. What it runs as is written to mombroker.toml in the folder of its store, where commands
    that are run in this folder find it. Ctrl-C, or the end of its terminal, ends it once all that it has taken is
    durable; the messages are there at its next start.

    \b
    Example:
      mom run
      mom run --users
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
    topology = Topology("run", {"main": server})
    text = config.dumps(topology, home, ["Written by `mom run` at each start."])

    def tell() -> None:
        """Not before the folder is ours: somebody else may run in it."""
        try:
            (home / options.DEFAULT_FILE).write_text(text)
        except OSError as error:
            raise MomError(f"cannot write {error.filename}: {error.strerror}; give another --data") from None

    raise SystemExit(service.serve(topology, "main", opened=tell))
