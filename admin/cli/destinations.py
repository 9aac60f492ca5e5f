"""What the commands about queues, subscriptions and their messages share."""

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.broker.names import name_of, spoken, subscription_name
from mombroker.core.errors import MomError
from mombroker.core.words import many

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology
    from mombroker.net.adminclient import AdminClient

PAGE = 500
EVERY = 1_000_000_000
BRIEF = "id,state,deliveries,priority,bytes,body,message,destination"
MS = 1_000_000
LOSING = {"delete_destination": "Delete", "purge": "Drop all messages that wait in"}


def where_option(command: options.F) -> options.F:
    text = "Only messages that this selector fits, as a consumer's would."
    return click.option("--where", metavar="SELECTOR", default="", callback=options.filled, help=text)(command)


def limit_option(default: int, what: str) -> Callable[[options.F], options.F]:
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=True, help=what)


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of queues that begin so, for a shell: those that the servers which answer have."""
    found: list[str] = []
    with suppress(MomError):
        topology = options.load(options.file_of(ctx))
        for each in topology.servers.values():
            with suppress(MomError):
                found += (row["destination"] for row in options.ask(topology, each, "queues", limit=PAGE)["queues"])
    names = (name.removeprefix("queue:") for name in found if name.startswith("queue:"))
    return sorted({name for name in names if name.startswith(incomplete)})


def queue_argument(command: options.F) -> options.F:
    """`QUEUE`, which a shell can complete."""
    return click.argument("queue", shell_complete=queues)(command)


def queue_of(text: str) -> str:
    """What the broker calls a queue that is written `orders` or `/queue/orders`; also what it has called one itself."""
    from mombroker.broker import destinations

    if text.startswith(("queue:", "temp-queue:")):
        return text
    try:
        found = destinations.one(text)
    except MomError as error:
        raise click.UsageError(str(error)) from None
    if not found.startswith("queue:"):
        raise click.UsageError(f"{text} is no queue: write NAME or /queue/NAME")
    return found


def topics_of(texts: tuple[str, ...]) -> list[str]:
    """The names of topics or patterns that are written `news` or `/topic/news`."""
    from mombroker.broker import destinations

    found: list[str] = []
    for text in texts:
        plain = text if text.startswith("topic://") else text.removeprefix("topic:")
        shown = plain if plain.startswith(("/", "jms.topic.", "topic://")) else f"/topic/{plain}"
        try:
            kinds = [each.partition(":") for each in destinations.several(shown)]
        except MomError as error:
            raise click.UsageError(str(error)) from None
        if any(kind != "topic" for kind, _, _ in kinds):
            raise click.UsageError(f"{text} is no topic: write NAME or /topic/NAME")
        found += [name for _, _, name in kinds]
    return found


def subscription_of(name: str, client_id: str, shared: bool) -> str:
    """The name of a subscription on the bus."""
    return subscription_name(client_id, name, shared)


def home(topology: "Topology", shown: str, server: str | None) -> "Server":
    """The server to ask about a queue or subscription."""
    if server is None and shown.startswith("temp-queue:"):
        server = shown.partition(":")[2].partition("/")[0]
    return options.home(topology, shown if shown.startswith(("sub:", "share:")) else name_of(shown), server)


def ask(file: Path, server: str | None, shown: str, verb: str, /, **args: Any) -> dict[str, Any]:
    """One request to the home of a queue or subscription."""
    from mombroker.net.adminclient import NoAnswer

    topology = options.load(file)
    at = home(topology, shown, server)
    try:
        return {"server": at.name, **options.ask(topology, at, verb, destination=shown, **args)}
    except NoAnswer:  # it may have been done
        raise
    except MomError:
        now = home(topology, shown, server)
        if now.name == at.name:
            raise
    return {"server": now.name, **options.ask(topology, now, verb, destination=shown, **args)}  # it has moved meanwhile


def confirmed(file: Path, server: str | None, shown: str, verb: str, yes: bool) -> dict[str, Any]:
    """The same for what loses messages, once the operator has heard how many there are and agrees."""
    if not yes:
        messages = ask(file, server, shown, "destination")["messages"]
        options.confirm(yes, f"{LOSING[verb]} {spoken(shown)}? {many(messages, 'message is', 'messages are')} in it.")
    return ask(file, server, shown, verb)


def connect(file: Path, server: str | None, shown: str) -> "AdminClient":
    topology = options.load(file)
    return options.connect(topology, home(topology, shown, server))


def listed(file: Path, server: str | None, verb: str, limit: int) -> Iterator[dict[str, Any]]:
    """The rows of a list, page by page, at most `limit` of each server."""
    topology = options.load(file)
    for each, rows in options.visits(topology, server, lambda at: list(_pages(topology, at, verb, limit))):
        yield from ({"server": each.name, **row} for row in rows)


def _pages(topology: "Topology", server: "Server", verb: str, limit: int) -> Iterator[dict[str, Any]]:
    after = ""
    with options.connect(topology, server) as client:
        while limit > 0:
            found = client.request(verb, after=after, limit=min(limit, PAGE))
            yield from found[verb]
            limit -= len(found[verb])
            after = found["after"]
            if not after:
                return
        click.echo(f"mom: {server.name} has more; see --limit", err=True)


def messages(
    client: "AdminClient", shown: str, limit: int, output: str = "table", more: bool = True, **args: Any
) -> Iterator[dict[str, Any]]:
    """Messages of a queue or subscription, page by page, as rows for `show`; `args` are those of `browse`, which says
    in which order they come. Beyond the limit it tells on stderr that there are more, unless `more` is off."""
    after: list[int] = []
    while limit > 0:
        found = client.request("browse", destination=shown, after=after, limit=min(limit, PAGE), **args)
        yield from (row(message, output) for message in found["messages"])
        limit -= len(found["messages"])
        after = found["after"]
        if not after:
            return
    if more:
        click.echo(f"mom: {spoken(shown)} has more; see --limit", err=True)


def row(message: dict[str, Any], output: str) -> dict[str, Any]:
    """Times as ms since 1970, a body of text as text; any other in JSON in base 64, as `body_base64`, and in tables
    with escapes."""
    body = message.pop("body")
    try:
        coded = {"body": getincrementaldecoder("utf-8")().decode(body, len(body) == message["bytes"])}
    except UnicodeDecodeError:
        coded = {"body_base64": b64encode(body).decode()} if output == "json" else {"body": body}
    return {**message, **{name: message[name] // MS for name in ("timestamp", "expires", "due")}, **coded}


def move(client: "AdminClient", shown: str, limit: int, **args: Any) -> dict[str, int]:
    """Move what is there now, some at a time. Returns how many were moved, and how many could not."""
    moved = left = upto = 0
    after: list[int] = []
    while moved + left < limit:
        page = min(limit - moved - left, PAGE)
        found = client.request("move", destination=shown, after=after, upto=upto, limit=page, **args)
        moved, left = moved + found["moved"], left + found["left"]
        after, upto = found["after"], found["upto"]
        if not after:
            break
    missed = min(limit, len(set(args.get("ids") or ()))) - moved - left
    if missed > 0:
        raise MomError(
            f"{missed} of the messages that were named {'does' if missed == 1 else 'do'} not wait in {spoken(shown)}"
            f"{', or do not fit' if args.get('where') else ''}; {moved} moved: see `mom queue browse`"
        )
    return {"moved": moved, "left": left}
