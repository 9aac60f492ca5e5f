"""`mom tls`: certificates for the servers of a topology file."""

from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, output_options, show
from mombroker.core.errors import MomError
from mombroker.core.ids import SERVER_NAME
from mombroker.core.topology import Server, Topology


@click.group(cls=Group)
def tls() -> None:
    """Certificates of servers: init."""


@tls.command()
@options.file_option
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), default=Path("tls"), show_default=True,
    help="The folder, beside the topology file.",
)  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are good.")
@click.option(
    "--joins",
    multiple=True,
    metavar="NAME=HOST",
    help="Only for this server, about to join: `mom server join`.",
)
@output_options
def init(file: Path, folder: Path, days: int, joins: tuple[str, ...], output: str, columns: str) -> None:
    """Make a certificate for each server of a topology file, signed by a CA of the bus, made at the first time.

    The folder then has ca.pem and ca.key, and NAME.pem with the certificate and the key of each server. Each server
    needs ca.pem and its own NAME.pem; ca.key signs whatever it is asked to, so keep it elsewhere. Run it again, with
    ca.key in the folder, for new certificates: servers read them as soon as they are there, and none is restarted. What
    the topology file has to say is told on standard error.

    \b
    Example:
      mom tls init bus.toml
      mom tls init bus.toml --to /etc/mombroker/tls --days 90
      mom tls init bus.toml --joins lille=lille.example
    """
    from mombroker.net import certificates

    path = options.found(file)
    topology = options.load(file)
    where = Target(folder=True).convert(path.parent / folder, None, None)
    made = certificates.for_bus(topology, where, days, [_newcomer(topology, each) for each in joins])
    show([{"server": name, "certificate": str(where), "names": names} for name, where, names in made], output, columns)
    if topology.ca is None:
        lines = [f'[bus] ca = "{folder}/ca.pem"']
        lines += [f'[servers.{name}] certificate = "{folder}/{name}.pem"' for name in topology.servers]
        click.echo(f"! the topology file does not use them yet: add {'; '.join(lines)}", err=True)


def _newcomer(topology: Topology, text: str) -> Server:
    name, _, host = text.partition("=")
    if not SERVER_NAME.fullmatch(name) or not host:
        raise MomError(f"--joins {text}: write it as NAME=HOST, the host by which the others reach it")
    if name in topology.servers:
        raise MomError(f"--joins {text}: {name} is a server of this file: leave the option out")
    return Server(name, host, 0)
