"""`mom server join`: a new machine's server, attached to a bus that runs."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli.output import Target, new_topology
from mombroker.core.errors import MomError
from mombroker.core.ids import SERVER_NAME
from mombroker.store.folder import STORE

if TYPE_CHECKING:
    from mombroker.core.topology import Topology
    from mombroker.net.joining import Invitation

KNOCK_S = 2.0  # for a server that has joined already to answer


@click.command()
@click.argument("name")
@click.option("--bus", "at", required=True, metavar="HOST:PORT", help="The `listen` of any server that runs.")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where the others reach the new server.")
@click.option("--secret", type=click.Path(path_type=Path), help="The file with the secret of the bus, if it has one.")
@click.option(
    "--ca", type=click.Path(path_type=Path), help="[bus] ca, if the links of the bus use TLS; with --certificate."
)
@click.option(
    "--certificate", type=click.Path(path_type=Path), help="NAME.pem, by `mom tls init --joins` where ca.key is."
)
@click.option("--behind", default="", metavar="SERVER", help="Behind which server. [default: the one at --bus]")
@click.option("--domain", default="", help="The name of the new domain of the two. [default: SERVER-NAME]")
@click.option("--stomp", metavar="HOST:PORT", help="Where clients reach it.")
@click.option("--data", type=Target(folder=True), help="Its data folder. [default: NAME]")
@click.option("--out", type=Target("toml"), default=Path("bus.toml"), show_default=True, help="Its topology file.")
@click.option("--no-start", is_flag=True, help="Do not start it: say how.")
def join(
    name: str,
    at: str,
    listen: str,
    secret: Path | None,
    ca: Path | None,
    certificate: Path | None,
    behind: str,
    domain: str,
    stomp: str | None,
    data: Path | None,
    out: Path,
    no_start: bool,
) -> None:
    """Make NAME, on this machine, a server of a bus that runs, and start it.

    No other server pauses, and of these only the registry, the one that it hangs behind, and those between them must be
    up. Whatever is wrong is told before anything has changed; asked again, it goes on where it was.

    \b
    Example:
      mom server join lille --bus paris.example:16300 --listen lille.example:16300 --secret bus.secret
      mom server join lille --bus paris.example:16300 --listen lille.example:16300 --ca ca.pem --certificate lille.pem
    """
    from mombroker.admin.cli.up import detached
    from mombroker.net import config, joining

    if not SERVER_NAME.fullmatch(name):
        raise MomError(f"{name!r} cannot be a server's name: use letters, digits, _ and -, and begin with a letter")
    if out.exists():
        raise MomError(_there(name, out))
    folder = (data or Path(name)).absolute()
    if joining.has_store(str(folder)):
        raise MomError(f"{folder} has a store already: give {name} another folder by --data, or start what is there")
    _free(listen, "--listen")
    if stomp:
        _free(stomp, "--stomp")
    key = _secret(secret)
    tls = _tls(name, ca, certificate)
    invitation = _invited(name, at, key, tls, listen, behind, domain)
    made = _file(name, invitation, secret, folder, stomp)
    if ca and certificate:
        made.ca = str(ca.absolute())
        made.servers[name] = replace(made.servers[name], certificate=str(certificate.absolute()))
    made.validate()
    made.revision = invitation["revision"]
    remark = f"of {name}, which has joined by revision {invitation['revision']} of the topology"
    new_topology(config.dumps(made, out.parent.absolute(), [remark]), out)
    joining.new_store(made, name, invitation).close()
    click.echo(f"{name} is on the bus {made.name}, behind {invitation['sponsor']}; its topology file is {out}")
    if no_start:
        click.echo(_start(name, out))
    else:
        raise SystemExit(detached(out, made, [made.servers[name]], "text"))


def _tls(name: str, ca: Path | None, certificate: Path | None) -> tuple[str, str] | None:
    """Those that sign, and the bus that the server's certificate names. Raises MomError."""
    if ca is None and certificate is None:
        return None
    if ca is None or certificate is None:
        raise MomError("links by TLS need both: --ca, and --certificate")
    from mombroker.net import peertls

    return str(ca), peertls.bus_of(str(ca), str(certificate), name)


def _invited(
    name: str, at: str, key: bytes, tls: tuple[str, str] | None, listen: str, behind: str, domain: str
) -> "Invitation":
    from mombroker.core import revision
    from mombroker.net import joining
    from mombroker.net.adminclient import NoAccess, NoAnswer, NotRunning

    def ask(verb: str, **args: Any) -> "Invitation":
        return joining.ask(name, at, key, verb, tls=tls, server=name, **args)

    try:
        said = ask("invitation")
    except (NotRunning, NoAnswer):
        raise
    except NoAccess as error:
        if "different secrets" not in str(error):
            raise
        has = "another secret than the file of --secret" if key else "a secret, and --secret is not given"
        raise NoAccess(f"no login at {at}: the bus has {has}: name the file of its servers by --secret") from None
    except MomError:  # it is not on the bus
        ask("join", listen=listen, behind=behind, domain=domain)
        said = ask("invitation")
    if "founder" in said:
        raise MomError(f"the bus has a server {name} since its first revision: choose another name")
    found = joining.of_sponsor(name, said, key, tls=tls)
    there = revision.read(str(found["text"])).servers[name].listen
    if there != listen:
        raise MomError(f"the bus has a server {name} already, at {there}: choose another name")
    return found


def _there(name: str, out: Path) -> str:
    """What to do about a topology file that is there already: it may be of this very server."""
    from mombroker.net import adminclient, config

    other = f"{out} is there already: delete it, or choose another name by --out"
    try:
        topology = config.load(out)
    except MomError:
        return other
    at = topology.servers.get(name)
    if at is None:
        return other
    if not (Path(at.data) / STORE).exists():
        return f"{out} is there already, and {name}, of which it is, has no store yet: delete it, and ask again"
    if adminclient.ready(topology, name, KNOCK_S):
        return f"{name} is on the bus {topology.name} already, and runs: see `mom status {out} --server {name}`"
    return f"{name} has joined the bus {topology.name} already, and does not run: {_start(name, out)}"


def _start(name: str, out: Path) -> str:
    return f"start it by `mom serve {out} --server {name}`"


def _file(name: str, invitation: "Invitation", secret: Path | None, folder: Path, stomp: str | None) -> "Topology":
    """The topology, with what is of this server alone."""
    from mombroker.core import revision

    made = revision.read(str(invitation["text"]))
    made.servers[name] = replace(made.servers[name], data=str(folder), stomp=stomp)
    made.secret_file = str(secret.absolute()) if secret else None
    return made


def _secret(file: Path | None) -> bytes:
    from mombroker.core.topology import Server, Topology
    from mombroker.net.secret import secret_of

    if file and not file.exists():
        raise MomError(f"--secret: there is no file {file}: copy that of the bus from one of its servers")
    nobody = Topology("bus", {"nobody": Server("nobody", "127.0.0.1", 1)}, secret_file=str(file) if file else None)
    return secret_of(nobody, lambda line: click.echo(line, err=True))


def _free(text: str, option: str) -> None:
    """Raises MomError for what is no address, or one that somebody uses."""
    from mombroker.core.topology import address

    try:
        host, port = address(text)
    except ValueError as error:
        raise MomError(f"{option}: {error}") from None
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "give another one, or stop whoever has it"
        raise MomError(f"{option} {text} cannot be used here: {reason}; {remedy}") from None
