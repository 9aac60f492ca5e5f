"""`mom role`: names that permissions are given to, and users have."""

from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show


@click.group(cls=Group)
def role() -> None:
    """Roles of users: list, grant, revoke."""


@role.command("list")
@options.file_option
@options.server_option("Ask this server; any one knows them.")
@output_options
def list_roles(file: Path, server: str | None, output: str, columns: str) -> None:
    """List roles: who has each, and how many permissions it has. There is a role while it has any of both.

    \b
    Example:
      mom role list
    """
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    with options.connect(topology, at) as client:
        users, permissions = client.request("users")["users"], client.request("permissions")["permissions"]
    named = {each["role"] for each in permissions if "role" in each}
    names = sorted(named | {role for each in users for role in each["roles"]})
    rows = [
        {
            "role": name, "users": [each["user"] for each in users if name in each["roles"]],
            "permissions": sum(each.get("role") == name for each in permissions),
        }
        for name in names
    ]  # fmt: skip
    show(rows, output, columns, "role,users,permissions")


@role.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("name", metavar="ROLE")
@click.argument("users", metavar="USER...", nargs=-1, required=True)
@output_options
def grant(file: Path, server: str | None, name: str, users: tuple[str, ...], output: str, columns: str) -> None:
    """Give a role to users.

    \b
    Example:
      mom role grant clerk ann bob
    """
    _change(file, server, users, output, columns, grant=[name])


@role.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("name", metavar="ROLE")
@click.argument("users", metavar="USER...", nargs=-1, required=True)
@output_options
def revoke(file: Path, server: str | None, name: str, users: tuple[str, ...], output: str, columns: str) -> None:
    """Take a role from users. What they had by it alone ends at once: see `mom permission set`.

    \b
    Example:
      mom role revoke clerk bob
    """
    _change(file, server, users, output, columns, revoke=[name])


def _change(file: Path, server: str | None, users: tuple[str, ...], output: str, columns: str, **args: Any) -> None:
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    rows = []
    with options.connect(topology, at) as client:
        for user in users:
            rows.append(client.request("set_roles", user=user, **args))
    show(rows, output, columns)
