"""`mom status` and `mom why`: how the servers are, and what waits for what."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, output_options, show, show_one
from mombroker.core.errors import MomError
from mombroker.core.words import many

BRIEF = "server,state,links,reactions,sent,held,waiting,inbox_in_memory,dead_letters,store_bytes"


@click.command()
@options.file_option
@options.server_option("Only this server, in full.")
@output_options
def status(file: Path, server: str | None, output: str, columns: str) -> None:
    """How the servers are.

    Without --server one line for each server of the file; with it everything about one: its domains, its links
    (`up`, `dialling`, `down`, or `idle`: nothing is to be sent), and what its operator should act on. `token` of a
    domain under `abcast` is the server that numbers its messages, as far as the server that is asked knows. Fails if a
    server does not answer.

    \b
    Example:
      mom status
      mom status --server lyon -o json
      mom status -c server,state,store_bytes
    """
    topology = options.load_for_addresses(file)
    if server:
        _full(options.ask(topology, options.pick(topology, server), "status"), output, columns)
        return
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    silent = []
    for each in topology.servers.values():
        try:
            found = options.ask(topology, each, "status")
        except MomError as error:
            rows.append({"server": each.name, "state": _state(error)})
            problems.append(f"{each.name}: {error}")
            silent.append(each.name)
        else:
            rows.append({"server": each.name, "state": "up", **_brief(found)})
            problems += [f"{each.name}: {problem}" for problem in _problems(found)]
    show(rows, output, columns, BRIEF)
    for problem in problems if output == "table" else []:
        click.echo(f"! {problem}")
    options.incomplete(silent)


def _state(error: MomError) -> str:
    from mombroker.net.adminclient import NoAccess, NotRunning

    if isinstance(error, NotRunning):
        return "down"
    return "no access" if isinstance(error, NoAccess) else "no answer"


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    """One line's worth: the plain values, and what the links are and have in sum."""
    row = {name: value for name, value in found.items() if not isinstance(value, list)}
    states = Counter(peer["state"] for peer in found["peers"])
    links = {"links": ", ".join(f"{count} {state}" for state, count in states.items())}
    return row | links | {name: sum(link[name] for link in found["links"]) for name in ("held", "waiting")}


def _problems(found: dict[str, Any]) -> list[str]:
    """What its operator should act on; why links are not up, too, unless it has been said."""
    reasons = [peer["reason"] for peer in found["peers"] if peer["reason"]]
    problems: list[str] = found["problems"]
    said = "\n".join(problems)
    return problems + [reason for reason in reasons if reason not in said]


def _full(found: dict[str, Any], output: str, columns: str) -> None:
    if output == "json" or columns:
        show_one(found, output, columns)
        return
    told = {name: value for name, value in found.items() if name != "problems" and value != []}
    show_one(told, output)
    for problem in _problems(found):
        click.echo(f"! {problem}")


@click.command()
@options.file_option
@click.argument("server", required=False)
@output_options
def why(file: Path, server: str | None, output: str, columns: str) -> None:
    """What the waiting messages of a server wait for.

    One sentence for each message that is held for its causes or is not passed on yet, each agent that waits (for a
    name, in a group, for a place in a total order, or to try again), each topic in total order where clients wait for
    that, each view of a group that waits for somebody, each member of a group whose casts have not come to all, and
    each neighbour that something waits for. Nothing is printed when nothing waits.

    \b
    Example:
      mom why lyon
      mom why lyon -o json
    """
    topology = options.load_for_addresses(file)
    found = options.ask(topology, options.pick(topology, server, by=""), "why")
    if output == "table" and not columns:
        for wait in found["waits"]:
            click.echo(sentence(wait, found["now"]))
    elif columns:
        show(found["waits"], output, columns)
    else:
        echo_json(found)


def sentence(wait: dict[str, Any], now: int) -> str:
    """One entry of `why` in words; `now` is the server's clock."""
    match wait["kind"]:
        case "held":
            causes = ", ".join(f"#{cause['sequence']} from {cause['server']}" for cause in wait["waits_for"])
            servers = {cause["server"]: cause for cause in wait["waits_for"]}
            seen = ", ".join(f"{name} {_seen(cause, now)}" for name, cause in servers.items())
            token = f"; {wait['token']} has the token" if wait.get("token") else ""  # a former version does not say
            where = f"in domain {wait['domain']}; {seen}{token}"
            return f"{wait['message']} (from {wait['from']}) waits for {causes} {where}"
        case "parked":
            lacking = ", ".join(wait["waits_for"])
            return f"{wait['message']} is passed on in domain {wait['domain']} when it is stored by {lacking}"
        case "name":
            return f"{wait['agent']} waits for the name {wait['name']!r} in order to take {_first(wait)}"
        case "cast" | "order":
            until = wait["reason"] or "a cast of its own has gone"  # a former version does not say more
            taking = f", in order to take {_first(wait)}" if wait["message"] else ""
            return f"{wait['agent']} waits until {until}{taking}"
        case "place":
            waiting = many(wait["messages"], "message of clients has", "messages of clients have")
            where = f"whose home is {wait['home']}" if wait["home"] else "which has no home yet"
            return f"{waiting} no place in {wait['topic']} yet, {where}"
        case "state":
            return f"{wait['agent']} waits for its state in group {wait['name']}, in order to take {_first(wait)}"
        case "view":
            missing, group = ", ".join(wait["waits_for"]), wait["group"]
            return f"view {wait['number']} of group {group} waits for {missing}: see `mom group show {group}`"
        case "casts":
            missing = ", ".join(wait["waits_for"])
            return f"casts of {wait['agent']} in group {wait['group']} wait until {missing} says that it has them"
        case "window":
            full = f"has as many casts in group {wait['group']} on their way to others as it may"
            return f"{wait['agent']} {full}, and makes no more: `mom why {wait['home']}` tells whose servers lack them"
        case "class":
            return f"{wait['agent']} waits in order to take {_first(wait)}: its class {wait['class']} {wait['reason']}"
        case "retry":
            due, failed = _span(max(0, wait["until"] - now)), many(wait["attempts"], "time")
            return f"{wait['agent']} has failed {failed} and tries again in {due} to take {_first(wait)}"
        case "move":
            return f"{wait['agent']} moves to {wait['to']} and waits for {wait['reason']}"
        case "change":
            return f"{many(wait['packets'], 'message waits', 'messages wait')} here for other domains: {wait['reason']}"
        case "replica":
            return str(wait["reason"])
        case "full":
            return f"clients and operators wait to send: {wait['reason']}"
        case "credit":
            return f"{_packets(wait)}; no room there now"
        case _:
            return f"{_packets(wait)}; {_seen(wait, now)}"


def _first(wait: dict[str, Any]) -> str:
    behind = f", {many(wait['behind'], 'more waits', 'more wait')} behind it" if wait["behind"] else ""
    return f"{wait['message']}{behind}"


def _packets(wait: dict[str, Any]) -> str:
    trouble = f" ({wait['trouble']})" if wait["trouble"] else ""
    verb = "waits" if wait["packets"] == 1 else "wait"
    return f"{many(wait['packets'], 'packet')} in domain {wait['domain']} {verb} for {wait['peer']}{trouble}"


def _seen(link: dict[str, Any], now: int) -> str:
    if link.get("up"):
        return "connected"
    return f"last seen {_span(now - link['last_seen'])} ago" if link["last_seen"] else "not seen since our start"


def _span(ns: int) -> str:
    seconds = ns / 1e9
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
