"""`mom tls`: certificates for the servers of a topology file."""

from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show


@click.group(cls=Group)
def tls() -> None:
    """Certificates of servers: init."""


@tls.command()
@options.file_option
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("tls"), show_default=True,
    help="The folder, beside the topology file.",
)  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are good.")
@output_options
def init(file: Path, folder: Path, days: int, output: str, columns: str) -> None:
    """Make a certificate for each server of a topology file, signed by a CA of the bus, made at the first time.

    The folder then has ca.pem and ca.key, and NAME.pem with the certificate and the key of each server. Each server
    needs ca.pem and its own NAME.pem; ca.key signs whatever it is asked to, so keep it elsewhere. Run it again, with
    ca.key in the folder, for new certificates: servers read them as soon as they are there, and none is restarted. What
    the topology file has to say is told on standard error.

    \b
    Example:
      mom tls init bus.toml
      mom tls init bus.toml --to /etc/mombroker/tls --days 90
    """
    from mombroker.net import certificates

    path = options.found(file)
    topology = options.load(file)
    made = certificates.for_bus(topology, path.parent / folder, days)
    show([{"server": name, "certificate": str(where), "names": names} for name, where, names in made], output, columns)
    if topology.ca is None:
        lines = [f'[bus] ca = "{folder}/ca.pem"']
        lines += [f'[servers.{name}] certificate = "{folder}/{name}.pem"' for name in topology.servers]
        click.echo(f"! the topology file does not use them yet: add {'; '.join(lines)}", err=True)
