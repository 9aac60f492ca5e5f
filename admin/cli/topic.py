"""`mom topic`: who listens to what."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, moves, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.core.words import many


@click.group(cls=Group)
def topic() -> None:
    """Topics: list, show, create, move, delete."""


@topic.command("list")
@options.file_option
@options.server_option("As this server knows them; without it as each one does.")
@destinations.limit_option(1_000, "At most so many of each server.")
@output_options
def list_topics(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List the topics and patterns that somebody listens to, and the topics that were created.

    servers have subscriptions of it; subscribers_here are those of the server that answers, and unknown_to are servers
    that have not said yet that they know of them.

    \b
    Example:
      mom topic list
      mom topic list --server paris -c topic,servers
    """
    show(list(destinations.listed(file, server, "topics", limit)), output, columns)


@topic.command("show")
@options.file_option
@options.server_option("Only the subscribers of this server; without it those of all.")
@click.argument("topic")
@output_options
def show_topic(file: Path, server: str | None, topic: str, output: str, columns: str) -> None:
    """Show who listens to a topic, by which patterns, and its policy.

    subscribers are consumers and subscriptions, by server; subscriptions are the durable and shared ones; created is
    the home of a topic that was created, or is in total order.

    \b
    Example:
      mom topic show news.sports
      mom topic show /topic/news.sports -o json
    """
    (name,) = destinations.topics_of((topic,))
    answers = list(options.answers(options.load(file), server, "topic", destination=f"topic:{name}"))
    found = dict(answers[0][1])
    del found["subscribers_here"], found["subscriptions_here"]
    subscribers = {each.name: answer["subscribers_here"] for each, answer in answers}
    kept = sorted(name for _, answer in answers for name in answer["subscriptions_here"])
    policy = found.pop("policy")
    show_one({**found, "subscribers": subscribers, "subscriptions": kept, "policy": policy}, output, columns)


@topic.command()
@options.file_option
@options.server_option("Where its entry is to live; not needed if there is only one server.")
@click.argument("topic")
@output_options
def create(file: Path, server: str | None, topic: str, output: str, columns: str) -> None:
    """Create a topic. Only needed where a policy has create = false: there, no client can use one that was not.

    \b
    Example:
      mom topic create news.sports --server lyon
    """
    (name,) = destinations.topics_of((topic,))
    topology = options.load(file)
    at = options.pick(topology, server)
    show_one(
        {"server": at.name, **options.ask(topology, at, "create_topic", destination=f"topic:{name}")}, output, columns
    )


@topic.command()
@options.file_option
@click.argument("topic")
@click.option("--to", required=True, metavar="SERVER", help="Its home from then on.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is there; it goes on by itself.")
@output_options
def move(file: Path, topic: str, to: str, no_wait: bool, output: str, columns: str) -> None:
    """Move the home of a topic to another server: where its entry lives, and where it gets its order if its policy has
    order = "total". Clients go on meanwhile, and all have one order across the move.

    It waits until all servers are up, and goes on by itself if this command is stopped, or a server.

    \b
    Example:
      mom topic move prices --to paris
    """
    (name,) = destinations.topics_of((topic,))
    topology, asked = options.load(file), {"destination": f"topic:{name}"}
    home = options.ask(topology, options.pick(topology, topology.registry), "topic", **asked)["created"]
    at = options.pick(topology, home or topology.registry)
    begun = moves.begin(lambda: options.ask(topology, at, "move_topic", **asked, to=to))
    show_one(begun if no_wait else moves.follow_topic(topology, begun, to), output, columns)


@topic.command()
@options.file_option
@options.server_option("Ask this server; any one will do.")
@options.yes_option
@click.argument("topic")
@output_options
def delete(file: Path, server: str | None, yes: bool, topic: str, output: str, columns: str) -> None:
    """Delete a topic that was created. Who listens goes on; where a policy has create = false, nobody else can use it.

    What the home of a topic in total order keeps that is not due yet becomes dead letters, and agents that have
    published it are told. That home, as --server, says how many these are.

    \b
    Example:
      mom topic delete news.sports --yes
    """
    (name,) = destinations.topics_of((topic,))
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    asked = {"destination": f"topic:{name}"}
    found = options.ask(topology, at, "topic", **asked)
    if found["created"]:
        late = f" with {many(found['delayed'], 'message')} that are not due" if found["delayed"] else ""
        options.confirm(yes, f"Delete topic:{name}{late}?")
    show_one(options.ask(topology, at, "delete_topic", **asked), output, columns)
