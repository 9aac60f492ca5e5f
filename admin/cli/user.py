"""`mom user`: who may connect as a client. The passcode is hashed here: a server never sees it."""

import sys
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.agent import values
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.core.errors import MomError, plain
from mombroker.gateway.users import hashed as hashed_passcode


@click.group(cls=Group)
def user() -> None:
    """Users of clients, on all servers: list, add, passwd, limit, delete."""


def passcode_option(command: options.F) -> options.F:
    """`--passcode-file`; else the environment, else a prompt. Never an argument, which others could read."""
    path = click.File("rb", lazy=False)
    text = "Read the passcode from the first line of this file, - for standard input. [env: MOM_PASSCODE, a prompt]"
    return click.option("--passcode-file", "source", type=path, help=text)(command)


@user.command("list")
@options.file_option
@options.server_option("Ask this server; any one knows them.")
@output_options
def list_users(file: Path, server: str | None, output: str, columns: str) -> None:
    """List users, with their roles and limits.

    \b
    Example:
      mom user list
    """
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    show(options.ask(topology, at, "users")["users"], output, columns, "user,roles,limits")


@user.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@passcode_option
@click.option("--certificate", is_flag=True, help="It has no passcode, and logs in by a certificate with its name.")
@click.argument("name")
@output_options
def add(file: Path, server: str | None, source: Any, certificate: bool, name: str, output: str, columns: str) -> None:
    """Add a user.

    \b
    Example:
      mom user add ann
      mom user add ann --passcode-file ann.secret
      mom user add billing --certificate
    """
    hash = "" if certificate else _hashed(source)
    _change(file, server, output, columns, "set_user", user=name, hash=hash, new=True)


@user.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@passcode_option
@click.argument("name")
@output_options
def passwd(file: Path, server: str | None, source: Any, name: str, output: str, columns: str) -> None:
    """Change the passcode of a user. Its clients that are connected must log in again.

    \b
    Example:
      mom user passwd ann
    """
    _change(file, server, output, columns, "set_user", user=name, hash=_hashed(source))


@user.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("name")
@click.argument("limits", metavar="LIMIT=NUMBER...", nargs=-1, required=True)
@output_options
def limit(file: Path, server: str | None, name: str, limits: tuple[str, ...], output: str, columns: str) -> None:
    """Limit a user, on each server by itself; 0 takes a limit away, and what is not named stays.

    \b
    connections     at once
    rate            messages that are sent in a second, all its connections together
    pending_bytes   of topics' messages that wait for one slow connection

    \b
    Example:
      mom user limit ann connections=10 rate=500
    """
    _change(file, server, output, columns, "limit_user", user=name, limits=values(limits))


@user.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("name")
@output_options
def delete(file: Path, server: str | None, name: str, output: str, columns: str) -> None:
    """Delete a user, and end its connections. What it was permitted by its name stays: see `mom permission list`.

    \b
    Example:
      mom user delete ann
    """
    _change(file, server, output, columns, "delete_user", user=name)


def _hashed(source: Any) -> str:
    from os import environ

    if source is not None:
        passcode = options.utf8(source.readline(), f"the passcode in {source.name}").rstrip("\r\n")
    elif "MOM_PASSCODE" in environ:
        passcode = environ["MOM_PASSCODE"]
    else:
        passcode = _asked()
    if not passcode:
        raise MomError("the passcode is empty: give one in a file, in MOM_PASSCODE, or at the prompt")
    if passcode != plain(passcode):
        raise MomError("the passcode is not UTF-8, in which clients send it: give it in a file in UTF-8")
    return hashed_passcode(passcode)


def _asked() -> str:
    """From whoever sits there, or from a pipe."""
    import warnings
    from getpass import GetPassWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GetPassWarning)  # that a pipe has no echo to be turned off
        try:
            return str(click.prompt("Passcode", hide_input=True, confirmation_prompt=True, err=True))
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise MomError("nobody is there to be asked for a passcode: give --passcode-file FILE") from None
        except UnicodeDecodeError:
            raise MomError("the passcode is not in the encoding of this terminal: give it in a file in UTF-8") from None


def _change(file: Path, server: str | None, output: str, columns: str, verb: str, **args: Any) -> None:
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    show_one(options.ask(topology, at, verb, **args), output, columns)
