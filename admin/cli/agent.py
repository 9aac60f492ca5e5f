"""`mom agent`: the agents of the bus."""

import json
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import moves, options
from mombroker.admin.cli.deadletters import deadletters
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.core.words import many


@click.group(cls=Group)
def agent() -> None:
    """Agents: list, show, send, deploy, move, delete, deadletters."""


agent.add_command(deadletters)


@agent.command("list")
@options.file_option
@options.server_option("Only the agents of this server.")
@click.option("--after", default="", metavar="ID", help="Begin after this id.")
@click.option("--limit", default=1000, show_default=True, help="At most so many of each server.")
@output_options
def list_agents(file: Path, server: str | None, after: str, limit: int, output: str, columns: str) -> None:
    """List agents with their class, and their name if they have one.

    \b
    Example:
      mom agent list
      mom agent list --server lyon -c agent,class
    """
    rows: list[dict[str, Any]] = []
    for _, found in options.answers(options.load(file), server, "agents", after=after, limit=limit):
        rows += found["agents"]
    show(rows, output, columns)


@agent.command("show")
@options.file_option
@options.server_option("Ask this server; without it the agent's home.")
@click.argument("agent")
@output_options
def show_agent(file: Path, server: str | None, agent: str, output: str, columns: str) -> None:
    """Show one agent, given by id or name: its fields, the first items of its collections, and how many messages wait.

    In a table a field is fields.NAME, as JSON, and a collection is items.NAME or tables.NAME with the number of its
    rows. What it takes messages from stands with where that lives, or what it waits for.

    \b
    Example:
      mom agent show greeter
      mom agent show lyon/paris/17 -o json
    """
    topology = options.load(file)
    found = options.ask(topology, options.home(topology, agent, server), "agent", agent=agent)
    show_one(found if output == "json" else flat(found), output, columns)


@agent.command()
@options.file_option
@options.server_option("Send from this server; without it from the home of the first agent.")
@click.option("--ttl", type=options.Number(0, 9e9), default=0.0, metavar="SECONDS", help="Expires after so long.")
@click.argument("agents", metavar="AGENT[,AGENT...]")
@click.argument("type", metavar="TYPE")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@output_options
def send(
    file: Path,
    server: str | None,
    ttl: float,
    agents: str,
    type: str,
    fields: tuple[str, ...],
    output: str,
    columns: str,
) -> None:
    """Send a notification to one or many agents.

    TYPE is the name of a notification on the wire. A VALUE is JSON if it can be read as such, else text. When this
    returns, the message is durable on the server that sends it.

    \b
    Example:
      mom agent send greeter examples.greeter.Hello who=Ann
      mom agent send lyon/a,paris/b shop.Order item=tea count=3 --ttl 60
    """
    topology = options.load(file)
    to = agents.split(",")
    home = options.home(topology, to[0], server)
    ttl_ns = int(ttl * 1e9) if ttl > 0 else 0  # "nan" is a float, too
    sent = options.ask(topology, home, "send", to=to, type=type, fields=values(fields), ttl_ns=ttl_ns)
    show_one(sent, output, columns)


@agent.command()
@options.file_option
@options.server_option("Ask this server; any one can deploy.")
@click.option("--on", metavar="NAME", help="Where the agent is to live; without it on the server that is asked.")
@click.argument("name")
@click.argument("path", metavar="MODULE:CLASS")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@output_options
def deploy(
    file: Path,
    server: str | None,
    on: str | None,
    name: str,
    path: str,
    fields: tuple[str, ...],
    output: str,
    columns: str,
) -> None:
    """Create an agent under a new name, of a class that `[bus] allow` permits and its server can import.

    \b
    Example:
      mom agent deploy greeter examples.greeter:Greeter greeted=10 --on lyon
    """
    topology = options.load(file)
    args = {"name": name, "class": path, "fields": values(fields), "server": on}
    show_one(options.ask(topology, options.pick(topology, server or on), "deploy", **args), output, columns)


@agent.command()
@options.file_option
@options.server_option("Ask this server; without it the agent's home.")
@click.argument("agent")
@click.option("--to", required=True, metavar="SERVER", help="Where it is to live.")
@click.option("--no-wait", "wait", is_flag=True, flag_value=False, default=True, help="Do not wait until it is there.")
@output_options
def move(file: Path, server: str | None, agent: str, to: str, wait: bool, output: str, columns: str) -> None:
    """Move an agent, given by id or name, to another server while it works.

    Its state, items, timers, deferred functions and waiting messages go along, in order and once. Its id stays what it
    was, so whoever holds it goes on as before. All servers must be up for a moment; until they are, it works where it
    is. A server that cannot import its class refuses it.

    \b
    Example:
      mom agent move greeter --to nancy
    """
    topology = options.load(file)
    options.pick(topology, to)
    home = options.home(topology, agent, server)
    begun = moves.begin(lambda: options.ask(topology, home, "move_agent", agent=agent, to=to))
    show_one(moves.follow_agent(topology, begun) if wait else begun, output, columns)


@agent.command()
@options.file_option
@options.server_option("Ask this server; without it the agent's home.")
@click.argument("agent")
@options.yes_option
@output_options
def delete(file: Path, server: str | None, agent: str, yes: bool, output: str, columns: str) -> None:
    """Delete an agent. What was sent to it before is still reacted to, in order; what comes later is a dead letter.

    \b
    Example:
      mom agent delete greeter --yes
    """
    topology = options.load(file)
    at = options.home(topology, agent, server)
    options.ask(topology, at, "agent", agent=agent)  # there is one
    options.confirm(yes, f"Delete {agent} with all that it stores?")
    show_one(options.ask(topology, at, "delete", agent=agent), output, columns)


def flat(found: dict[str, Any]) -> dict[str, Any]:
    """An agent for a table: one row for each of its fields, whose names are its author's, and each collection."""
    row = {name: value for name, value in found.items() if name not in ("fields", "items", "tables", "consumes")}
    row |= {f"fields.{name}": _json(value) for name, value in found["fields"].items()}
    for name, items in found["items"].items():
        row[f"items.{name}"] = many(items["rows"], "row")
        first = [{**each, "value": _json(each["value"])} for each in items["first"]]
        row |= {f"first of items.{name}": first} if first else {}
    for name, table in found.get("tables", {}).items():
        row[f"tables.{name}"] = many(table["rows"], "row")
        first = [{name: _json(value) for name, value in each.items()} for each in table["first"]]
        row |= {f"first of tables.{name}": first} if first else {}
    for each in found.get("consumes", ()):
        row[f"consumes {', '.join(each['from'])}"] = each["waits"] or f"at {each['home']}"
    return row


def _json(value: Any) -> str:
    """So that "1" is not taken for 1."""
    return json.dumps(value, ensure_ascii=False, default=ascii)


def values(fields: tuple[str, ...]) -> dict[str, Any]:
    """FIELD=VALUE words as a dict."""
    found: dict[str, Any] = {}
    for word in fields:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{word!r} is not FIELD=VALUE")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # a number can be too long, too
            found[name] = value
    return found
