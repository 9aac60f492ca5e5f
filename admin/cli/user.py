"""`mom user`: who may connect as a client. The passcode is hashed here: a server never sees it."""

import sys
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show
from mombroker.core.errors import MomError, plain
from mombroker.gateway.users import hashed as hashed_passcode
from mombroker.gateway.users import is_of_one
from mombroker.net.adminclient import NotRunning


@click.group(cls=Group)
def user() -> None:
    """Users of clients: list, add, passwd, delete, sync."""


def passcode_option(command: options.F) -> options.F:
    """`--passcode-file`; else the environment, else a prompt. Never an argument, which others could read."""
    path = click.File("rb", lazy=False)
    text = "Read the passcode from the first line of this file, - for standard input. [env: MOM_PASSCODE, a prompt]"
    return click.option("--passcode-file", "source", type=path, help=text)(command)


@user.command("list")
@options.file_option
@options.server_option("Only those of this server.")
@output_options
def list_users(file: Path, server: str | None, output: str, columns: str) -> None:
    """List users, server by server, and who is not on all of them.

    \b
    Example:
      mom user list
    """
    found = {each.name: answer["users"] for each, answer in options.answers(options.load(file), server, "users")}
    show([{"server": name, "user": user} for name, users in found.items() for user in users], output, columns)
    for user in sorted({user for users in found.values() for user in users}) if output == "table" else []:
        lacking = [name for name, users in found.items() if user not in users]
        if lacking:
            click.echo(f"! {user} is not on {', '.join(lacking)}; see `mom user sync`")


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


@user.command()
@options.file_option
@click.option("--from", "source", metavar="NAME", help="Give all servers the users of this one, and no others.")
@output_options
def sync(file: Path, source: str | None, output: str, columns: str) -> None:
    """Give all servers the same users.

    A server lacks a change that was made while it did not run, or before it was added. Without --from each user is
    added where it is missing, unless servers have different passcodes for it. One that was deleted meanwhile comes back
    then: name a server that is right by --from.

    \b
    Example:
      mom user sync
      mom user sync --from paris
    """
    topology = options.load(file)
    if source is not None:
        options.pick(topology, source)
    answers = list(options.answers(topology, None, "user_hashes"))
    right, unclear = _agreed({each.name: answer["hashes"] for each, answer in answers}, source)
    rows = []
    for each, answer in answers:
        users = answer["hashes"]
        for name in sorted(users.keys() | right.keys()):
            if name in unclear:
                continue
            if name not in right:
                options.ask(topology, each, "delete_user", user=name)
                rows.append({"server": each.name, "user": name, "change": "deleted"})
            elif name not in users or not is_of_one(users[name], right[name]):
                options.ask(topology, each, "set_user", user=name, hash=right[name], new=name not in users)
                rows.append({"server": each.name, "user": name, "change": "changed" if name in users else "added"})
    show(rows, output, columns, "server,user,change")
    if unclear:
        raise MomError(
            f"servers have different passcodes for {', '.join(sorted(unclear))}: set them by `mom user passwd`, or "
            "name a server that is right by --from"
        )


def _agreed(found: dict[str, dict[str, str]], source: str | None) -> tuple[dict[str, str], set[str]]:
    """The users that all are to have, and those for which servers have different passcodes."""
    if source is not None:
        if source not in found:
            raise MomError(f"{source} does not answer: nothing was changed")
        return found[source], set()
    right: dict[str, str] = {}
    unclear: set[str] = set()
    for users in found.values():
        for name, hashed in users.items():
            if not is_of_one(right.setdefault(name, hashed), hashed):
                unclear.add(name)
    return right, unclear


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
    """Ask each server; all are asked, whatever some of them answer."""
    topology = options.load(file)
    rows: list[dict[str, Any]] = []
    failed, silent = [], []
    for each in options.chosen(topology, server):
        try:
            rows.append({"server": each.name, **options.ask(topology, each, verb, **args)})
        except MomError as error:
            failed.append(str(error))
            silent += [each.name] * isinstance(error, NotRunning)
    show(rows, output, columns)
    for text in failed[:-1]:
        click.echo(f"mom: {text}", err=True)
    if rows and silent:
        click.echo(f"mom: {failed[-1]}", err=True)
        first = rows[0]["server"]
        raise MomError(
            f"{', '.join(silent)} lacks this change: run `mom user sync --from {first}` when all servers run"
        )
    if failed:
        raise MomError(failed[-1])
