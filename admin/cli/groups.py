"""`mom group`: groups of agents."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.core.errors import MomError, line

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology


@click.group(cls=Group)
def group() -> None:
    """Groups of agents: list, show, remove."""


@group.command("list")
@options.file_option
@options.server_option("Only those whose home is this server.")
@click.option("--all", "empty", is_flag=True, help="Those, too, that all members have left.")
@output_options
def list_groups(file: Path, server: str | None, empty: bool, output: str, columns: str) -> None:
    """List the groups: where they have their homes, their views, and whom a view waits for.

    `view` is the number of the view that the members have, `size` how many they are, `waits_for` the servers that the
    next one waits for while the group `changes`. `placed` is how many casts in total order its home has sent to its
    members since the group was made; restarts do not change it, and what nobody was there for is not counted.

    A group that all its members have left is not shown. Its home keeps its name, and the number of its last view for
    whoever joins it next, until it is removed.

    \b
    Example:
      mom group list
      mom group list --all
    """
    found = options.answers(options.load(file), server, "groups", empty=empty)
    show([row for _, answer in found for row in answer["groups"]], output, columns)


@group.command("show")
@options.file_option
@click.argument("group")
@output_options
def show_group(file: Path, group: str, output: str, columns: str) -> None:
    """Show a group: its members, the eldest first, who joins and leaves, and whom the next view waits for.

    Of new members that have no state yet it says who gives them theirs, how many pages of it were sent (while more are
    to follow) and have come, and how many of these are still to become rows of their tables.

    Exit code 6 if there is no such group; 5 if some server does not answer, which may have it, and no other has.

    \b
    Example:
      mom group show ledger
      mom group show ledger -o json
    """
    topology = options.load(file)
    found = options.ask(topology, _home(topology, group), "group", group=group)

    def ask(server: str) -> dict[str, Any]:
        try:
            return options.ask(topology, topology.servers[server], "group_states", group=group)
        except MomError as error:  # that may be why they wait
            click.echo(f"mom: {error}", err=True)
            return {"coming": [], "given": []}

    show_one({**found, "states": states(found["members"], ask)}, output, columns)


@group.command()
@options.file_option
@options.yes_option
@click.option(
    "--member", metavar="AGENT", callback=options.filled,
    help="Only this one: nobody waits for it, and it may join again.",
)  # fmt: skip
@click.argument("group")
@output_options
def remove(file: Path, yes: bool, member: str | None, group: str, output: str, columns: str) -> None:
    """Remove a group: all its members leave it, after the casts of its view. Or one member, which may be down.

    A member whose server is down delays the next view until it is back; without it the others go on. What it has cast
    and nobody has comes back to it as NotDelivered. Exit code 6 if there is no such group; 5 if some server does not
    answer, which may have it, and no other has.

    Whoever casts to a group that is gone waits, with all that is sent to it, until somebody makes one of that name by
    joining it.

    \b
    Example:
      mom group remove ledger --yes
      mom group remove ledger --member lyon/clerk --yes
    """
    topology = options.load(file)
    at = _home(topology, group)
    options.confirm(yes, f"Remove {member} from group {group}?" if member else f"Remove group {group}?")
    asked: dict[str, Any] = {"group": group, "agent": member} if member else {"group": group}
    verb = "exclude_member" if member else "remove_group"
    show_one(options.ask(topology, at, verb, **asked), output, columns)


def states(members: list[dict[str, Any]], ask: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """How far those members are that have no state yet, by what their servers and the givers' say: `ask` asks one."""
    new = {each["agent"]: each for each in members if each["waits_for_state_of"]}
    lives = {each["agent"]: each["server"] for each in members}
    givers = [each["waits_for_state_of"] for each in new.values()]
    answers = [ask(server) for server in dict.fromkeys(lives[agent] for agent in [*new, *givers] if agent in lives)]
    coming = {row["agent"]: row for answer in answers for row in answer["coming"]}
    given = {row["agent"]: row for answer in answers for row in answer["given"]}
    return [
        {
            "agent": agent, "from": row["waits_for_state_of"],
            "pages_sent": given[agent]["pages"] if agent in given else "",
            "pages_come": coming[agent]["pages"] if agent in coming else "",
            "all_come": agent in coming and coming[agent]["whole"],
            "pages_left": coming[agent]["left"] if agent in coming else 0,
        }
        for agent, row in new.items()
    ]  # fmt: skip


def _home(topology: "Topology", group: str) -> "Server":
    """The server that has the home of a group."""
    return options.find(
        topology, "groups", lambda answer: any(row["group"] == group for row in answer["groups"]),
        f"group {line(group)}", "mom group list", empty=True,
    )  # fmt: skip
