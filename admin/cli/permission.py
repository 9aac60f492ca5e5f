"""`mom permission`: what users and roles may do with which destinations."""

from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.broker.access.permission import ACTIONS
from mombroker.broker.access.permissions import IN_FILE
from mombroker.net.exit_codes import ExitCode

WORDS = ", ".join(ACTIONS)


@click.group(cls=Group)
def permission() -> None:
    """Permissions of users and roles, on all servers: list, set, delete, check."""


def whose(command: options.F) -> options.F:
    """`--user` or `--role`, and the pattern."""
    command = click.argument("match", metavar="PATTERN")(command)
    command = click.option("--role", metavar="NAME", default="", help="Of all users with this role.")(command)
    return click.option("--user", metavar="NAME", default="", help="Of this user; * is everybody.")(command)


@permission.command("list")
@options.file_option
@options.server_option("Ask this server; any one knows them.")
@output_options
def list_permissions(file: Path, server: str | None, output: str, columns: str) -> None:
    """List permissions. Without any, every user may do everything.

    \b
    Example:
      mom permission list
    """
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    found = options.ask(topology, at, "permissions")
    blank = {"user": "", "role": "", "match": "", "may": [], "deny": [], "from": ""}
    show([blank | each for each in found["permissions"]], output, columns, "user,role,match,may,deny,from")
    if not found["guarded"] and output == "table":
        click.echo("! there is no permission: every user may do everything", err=True)


@permission.command("set")
@options.file_option
@options.server_option("Ask this server; all will know it.")
@whose
@click.option("--may", metavar="WORDS", multiple=True, help=f"What is allowed: of {WORDS}; or all.")
@click.option("--deny", metavar="WORDS", multiple=True, help="What is forbidden, whatever others allow.")
@output_options
def set_permission(
    file: Path, server: str | None, user: str, role: str, match: str, may: tuple[str, ...], deny: tuple[str, ...],
    output: str, columns: str,
) -> None:  # fmt: skip
    """Set what a user or a role may do where a pattern matches, on all servers, in place of what was set for the same.

    PATTERN is queue:NAME, topic:NAME, sub:CLIENT:NAME or temp-queue:ID, with * and ?. From the first permission on,
    only what is allowed can be done. A change counts at once: subscriptions that need what was taken end, and no server
    delivers to them what was published because of it.

    \b
    Example:
      mom permission set --user ann 'queue:orders*' --may send,create
      mom permission set --role clerk 'topic:prices.*' --may receive
      mom permission set --user '*' 'queue:salaries' --deny all
    """
    args = {"match": match, "user": user, "role": role, "may": _words(",".join(may)), "deny": _words(",".join(deny))}
    _change(file, server, output, columns, "set_permission", **args)


@permission.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@whose
@click.option("--open", "opens", is_flag=True, help="It may be the last one: every user may do everything then.")
@output_options
def delete(
    file: Path, server: str | None, user: str, role: str, match: str, opens: bool, output: str, columns: str
) -> None:
    """Delete a permission that was set at run time.

    \b
    Example:
      mom permission delete --user ann 'queue:orders*'
    """
    done = _change(file, server, output, columns, "delete_permission", match=match, user=user, role=role, open=opens)
    if done["permission"] is not None:
        click.echo(f"! {IN_FILE}", err=True)


@permission.command()
@options.file_option
@options.server_option("Ask this server; any one knows.")
@click.option("--user", metavar="NAME", default="", help="This user; without it, who has not logged in.")
@click.argument("action")
@click.argument("destination")
@output_options
def check(file: Path, server: str | None, user: str, action: str, destination: str, output: str, columns: str) -> None:
    """Tell whether a user may send, receive, create, browse or manage, and what says so. Exit code 4 if not.

    \b
    Example:
      mom permission check --user ann send queue:orders
      mom permission check --user ann receive 'topic:prices.>'
    """
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    found = options.ask(topology, at, "may", user=user, action=action, destination=destination)
    show_one(found, output, columns)
    if not found["may"]:
        raise SystemExit(ExitCode.WRONG)


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return list(ACTIONS) if "all" in words else words


def _change(file: Path, server: str | None, output: str, columns: str, verb: str, **args: Any) -> dict[str, Any]:
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    done = options.ask(topology, at, verb, **args)
    show_one(done, output, columns)
    return done
