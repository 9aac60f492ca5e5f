"""Waiting for what moves from one server to another."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mombroker.admin.cli import options
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError
from mombroker.core.topology import Topology
from mombroker.net.adminclient import NoAnswer, NotRunning
from mombroker.net.exit_codes import ExitCode

EVERY_S = 0.2
SILENT_S = 60.0  # of both servers


def begin(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer to a request to move something. Raises MomError, which says what to do if there was none."""
    try:
        return ask()
    except NoAnswer as error:
        raise MomError(f"{error}; it may have begun: ask again when that server runs") from None


def _fixed(begun: dict[str, Any]) -> dict[str, Any]:
    """What an answer says that is true at the end, too."""
    return {name: value for name, value in begun.items() if name not in ("moving", "waits_for")}


def follow(file: Path, begun: dict[str, Any]) -> dict[str, Any]:
    """Wait until a queue or subscription is where it is to be; `begun` is the answer of `move_destination`.
    Raises Failure if it stays."""
    topology, shown = options.load(file), begun["destination"]
    ends = [topology.servers[begun[end]] for end in ("to", "from")]
    started, total, told = time.monotonic(), 0, ""
    heard = started
    with Bar(f"{shown} to {begun['to']}") as bar:
        while True:
            at = dict[str, Any]()
            for server in ends:
                try:
                    at[server.name] = options.ask(topology, server, "destination", destination=shown)
                except MomError as error:
                    if time.monotonic() - heard > SILENT_S:
                        raise MomError(f"{error}; it goes on by itself when both servers run") from None
            there, left = at.get(begun["to"]), at.get(begun["from"])
            if there is not None and not there["moving"]:
                return {**_fixed(begun), "messages": there["messages"], "seconds": round(time.monotonic() - started, 1)}
            if at:
                heard = time.monotonic()
            if left is not None and not left["moving"]:
                raise _stays(shown, begun["from"], begun["to"])
            if left is not None:
                total = max(total, left["messages"])
                bar.at(total - left["messages"], total)
                if left["waits_for"] != told and time.monotonic() - started > 2:
                    told = left["waits_for"]
                    if told:
                        bar.say(f"it waits for {told}")
            time.sleep(EVERY_S)


def _stays(what: str, home: str, to: str) -> options.Failure:
    return options.Failure(
        ExitCode.REFUSED, f"{what} stays on {home}: {to} has not taken it; the log of {home} says why"
    )


def follow_topic(topology: Topology, begun: dict[str, Any], to: str) -> dict[str, Any]:
    """Wait until a server is the home of a topic; `begun` is the answer of `move_topic`. Raises Failure if it
    stays."""
    started = heard = time.monotonic()
    while True:
        try:
            now = options.ask(topology, topology.servers[to], "topic", destination=begun["topic"])
            heard = time.monotonic()
            if now["created"] == to and not now["moving"]:
                return {"topic": begun["topic"], "created": to, "seconds": round(time.monotonic() - started, 1)}
            home = begun["created"]
            left = options.ask(topology, topology.servers[home], "topic", destination=begun["topic"])
            if left["created"] == home and not left["moving"]:
                raise _stays(begun["topic"], home, to)
        except MomError as error:
            if time.monotonic() - heard > SILENT_S:
                raise MomError(f"{error}; it goes on by itself when all servers run") from None
        time.sleep(EVERY_S)


def follow_agent(topology: Topology, begun: dict[str, Any]) -> dict[str, Any]:
    """Wait until an agent is where it is to be; `begun` is the answer of `move_agent`. Raises MomError if it stays."""
    ends = {end: topology.servers[begun[end]] for end in ("to", "from")}
    started, told = time.monotonic(), ""
    heard = started
    with Bar(f"{begun['agent']} to {begun['to']}") as bar:
        while True:
            at = dict[str, dict[str, Any]]()
            failed = ""
            for end, server in ends.items():
                try:
                    at[end] = options.ask(topology, server, "agent", agent=begun["agent"])
                except NotRunning as error:
                    failed = str(error)
                except MomError:
                    heard = time.monotonic()  # it answers, and has it not, or not yet
            if "to" in at and not at["to"]["moving"]:
                return {**_fixed(begun), "seconds": round(time.monotonic() - started, 1)}
            if (left := at.get("from")) is not None:
                heard = time.monotonic()
                if not left["moving"] and left["waits_for"]:
                    raise MomError(f"{begun['agent']} stays on {begun['from']}: {left['waits_for']}")
                if left["waits_for"] != told and heard - started > 2:
                    told = left["waits_for"]
                    bar.say(f"it waits for {told}")
            if time.monotonic() - heard > SILENT_S:
                raise MomError(f"{failed}; it goes on by itself when both servers run")
            time.sleep(EVERY_S)
