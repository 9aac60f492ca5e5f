"""`mom user`: who may connect as a client. The passcode is hashed here: a server never sees it."""

import sys
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show
from mombroker.core.errors import MomError


@click.group(cls=Group)
def user() -> None:
    """Users of clients: list, add, passwd, delete."""


def passcode_option(command: options.F) -> options.F:
    """`--passcode-file`; else the environment, else a prompt. Never an argument, which others could read."""
    path = click.File(lazy=False)
    text = "Read the passcode from the first line of this file, - for standard input. [env: MOM_PASSCODE, a prompt]"
    return click.option("--passcode-file", "source", type=path, help=text)(command)


@user.command("list")
@options.file_option
@options.server_option("Only those of this server.")
@output_options
def list_users(file: Path, server: str | None, output: str, columns: str) -> None:
    """List users, server by server.

    \b
    Example:
      mom user list
    """
    found = options.answers(options.load(file), server, "users")
    show([{"server": each.name, "user": name} for each, answer in found for name in answer["users"]], output, columns)


@user.command()
@options.file_option
@options.server_option("On this server alone; else on all.")
@passcode_option
@click.argument("name")
@output_options
def add(file: Path, server: str | None, source: Any, name: str, output: str, columns: str) -> None:
    """Add a user.

    \b
    Example:
      mom user add ann
      mom user add ann --passcode-file ann.secret
    """
    _change(file, server, output, columns, "set_user", user=name, hash=_hashed(source), new=True)


@user.command()
@options.file_option
@options.server_option("On this server alone; else on all.")
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
@options.server_option("On this server alone; else on all.")
@click.argument("name")
@output_options
def delete(file: Path, server: str | None, name: str, output: str, columns: str) -> None:
    """Delete a user, and end its connections.

    \b
    Example:
      mom user delete ann
    """
    _change(file, server, output, columns, "delete_user", user=name)


def _hashed(source: Any) -> str:
    from os import environ

    from mombroker.stomp.users import hashed

    if source is not None:
        passcode = source.readline().rstrip("\r\n")
    elif "MOM_PASSCODE" in environ:
        passcode = environ["MOM_PASSCODE"]
    else:
        passcode = _asked()
    if not passcode:
        raise MomError("the passcode is empty: give one in a file, in MOM_PASSCODE, or at the prompt")
    return hashed(passcode)


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


def _change(file: Path, server: str | None, output: str, columns: str, verb: str, **args: Any) -> None:
    """Ask each server; all are asked, whatever some of them answer."""
    topology = options.load(file)
    rows, failed = [], []
    for each in options.chosen(topology, server):
        try:
            rows.append({"server": each.name, **options.ask(topology, each, verb, **args)})
        except MomError as error:
            failed.append(str(error))
    show(rows, output, columns)
    for text in failed[:-1]:
        click.echo(f"mom: {text}", err=True)
    if failed:
        raise MomError(failed[-1])
