"""`mom top`: what the servers do now, a second's worth, again and again."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import output_options, show
from mombroker.core.errors import MomError

Row = dict[str, Any]
BRIEF = (
    "server,state,cpu_percent,memory_mb,clients,sent_s,received_s,reactions_s,commits_s,held,waiting,dead_letters,"
    "store_mb,problems"
)
QUEUES = "server,destination,messages,change_s,ready,unacked,consumers,bytes"
RATES = ("sent", "received", "reactions", "failures", "commits")  # of which more is done each second
MB = 1 << 20


@click.command()
@options.file_option
@options.server_option("Only this server.")
@click.option("-i", "--interval", type=options.Number(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many times; without it at Ctrl-C.")
@click.option("-q", "--queues", type=click.IntRange(0, 1000), default=10, show_default=True, help="The fullest queues.")
@output_options
def top(
    file: Path, server: str | None, interval: float, count: int | None, queues: int, output: str, columns: str
) -> None:
    """What the servers do now, and the fullest queues.

    Rates are of one second, over the interval: messages of agents that were sent and received, reactions, commits
    (sent_s, received_s, reactions_s, commits_s), and by how much a queue has grown (change_s). On a terminal the screen
    is written anew each time; elsewhere one table follows the other, or with -o json one array of servers.

    \b
    Example:
      mom top
      mom top --server paris --interval 1 --queues 30
      mom top -n 1 -o json
    """
    topology = options.load_for_addresses(file)
    servers = {each.name: each for each in options.chosen(topology, server)}
    look = Look(lambda each, verb, **args: options.ask(topology, servers[each], verb, **args), list(servers), queues)
    look.take()
    shown = 0
    try:
        while count is None or shown < count:
            time.sleep(interval)
            look.take()
            if output == "table":
                click.clear()  # on a terminal
            show(look.servers(), output, columns, BRIEF)
            if queues and output == "table" and not columns and (fullest := look.queues()):
                click.echo()
                show(fullest, output, "", QUEUES)
            shown += 1
    except KeyboardInterrupt:
        pass
    options.incomplete([name for name, found in look.now.items() if found is None])


class Look:
    """Two looks at servers, and what has happened between them.

    ask      (server, verb, arguments) -> answer; may raise MomError
    queues   how many, the fullest of all, are looked at
    now      server -> its status; None: it did not answer
    """

    def __init__(self, ask: Any, names: list[str], queues: int):
        self.ask, self.names, self.most = ask, names, queues
        self.now: dict[str, Row | None] = {}
        self.before: dict[str, Row | None] = {}
        self._full: dict[tuple[str, str], Row] = {}
        self._fuller: dict[tuple[str, str], Row] = {}

    def take(self) -> None:
        """Look again."""
        self.before, self.now, self._fuller, self._full = self.now, {}, self._full, {}
        for name in self.names:
            try:
                self.now[name] = self.ask(name, "status")
                found = self.ask(name, "queues", fullest=True, limit=self.most)["queues"] if self.most else []
            except MomError:
                self.now[name] = None
                continue
            self._full |= {(name, row["destination"]): row for row in found}

    def servers(self) -> list[Row]:
        return [self._server(name, self.before.get(name), found) for name, found in self.now.items()]

    def _server(self, name: str, was: Row | None, found: Row | None) -> Row:
        if found is None:
            return {"server": name, "state": "down"}
        row = {
            "server": name, "state": "full" if found["full"] else "up",
            "memory_mb": round(found["process"]["memory_bytes"] / MB), "store_mb": round(found["store_bytes"] / MB),
            "clients": found["stomp"]["clients"], "held": sum(each["held"] for each in found["links"]),
            "waiting": sum(each["waiting"] for each in found["links"]), "dead_letters": found["dead_letters"],
            "problems": len(found["problems"]),
        }  # fmt: skip
        seconds = self._seconds(name)
        if was is not None and seconds > 0:
            cpu = found["process"]["cpu_seconds"] - was["process"]["cpu_seconds"]
            row["cpu_percent"] = round(100 * cpu / seconds)
            row |= {f"{each}_s": _rate(found[each] - was[each], seconds) for each in RATES}
        return row

    def _seconds(self, name: str) -> float:
        """Between the two looks, by the server's clock; 0 if it was started anew."""
        was, found = self.before.get(name), self.now[name]
        if was is None or found is None or was["process"]["since"] != found["process"]["since"]:
            return 0
        return float(found["now"] - was["now"]) / 1e9

    def queues(self) -> list[Row]:
        """The fullest of all servers."""
        rows = sorted(self._full.items(), key=lambda pair: (-pair[1]["messages"], pair[0]))[: self.most]
        return [{"server": key[0], **self._queue(key, row)} for key, row in rows]

    def _queue(self, key: tuple[str, str], row: Mapping[str, Any]) -> Row:
        was, seconds = self._fuller.get(key), self._seconds(key[0])
        if was is None or seconds <= 0:
            return dict(row)
        return {**row, "change_s": _rate(row["messages"] - was["messages"], seconds)}


def _rate(more: int, seconds: float) -> float:
    rate = more / seconds
    return round(rate) if abs(rate) >= 10 else round(rate, 1)
