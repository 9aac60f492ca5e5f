"""Kill the servers of a bus at random, as processes, while its agents talk; then let it come to rest and judge it.

`python -m mombroker.admin.bench.chaos` does so for every ordering back end: it orders the first of two domains, another
one the second, and a router joins them. Judged are the logs (as by `mom check`) and what the agents themselves counted.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import click

from mombroker import ordering, store
from mombroker.admin import supervisor
from mombroker.admin.audit import bus as audit
from mombroker.admin.audit import routes
from mombroker.admin.bench.figures import Row
from mombroker.admin.cli.output import output_options, show
from mombroker.admin.demo import free_ports
from mombroker.agents.notifications import unpack
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.net.exit_codes import ExitCode
from mombroker.ordering.testing import unordered

TALKER = "mombroker.admin.bench.agents:Talker"
MEMBERS = (5, 4)  # servers of the two domains; one is in both
STARTS = 4  # conversations that each agent begins
POLL_S = 0.2
PATIENCE_S = 120.0  # from the last kill until all is at rest
ANSWER_S = 2.0


def topology_of(first: str, second: str, folder: Path) -> Topology:
    """s1..s5 under one back end, s5..s8 under the other, a talker on each."""
    count = sum(MEMBERS) - 1
    names = [f"s{number}" for number in range(1, count + 1)]
    servers = {
        name: Server(name, "127.0.0.1", port, None, str(folder / name))
        for name, port in zip(names, free_ports(count), strict=True)
    }
    domains = {
        "north": Domain("north", tuple(names[: MEMBERS[0]]), first),
        "south": Domain("south", tuple(names[MEMBERS[0] - 1 :]), second),
    }
    ids = [f"{name}/t-{name}" for name in names]
    agents = [
        AgentDecl(f"t-{name}", name, TALKER, {
            "others": [id for id in ids if not id.startswith(f"{name}/")], "seed": number, "starts": STARTS,
        })
        for number, name in enumerate(names)
    ]  # fmt: skip
    limits = {"trying_boots": 1_000_000}  # so many kills are no message's fault
    return Topology("chaos", servers, domains, agents, "s1", limits=limits)


@dataclass(slots=True)
class Storm:
    """Watches the servers: kills one now and then for some seconds, hushes the agents, and ends when all is told."""

    topology: Topology
    seconds: float
    pause: float  # s between two kills, in the mean
    lots: Random
    kills: int = 0
    at_rest: bool = False
    given_up: str = ""  # a server that is not started again
    _pids: dict[str, int] = field(default_factory=dict)
    _next: float = 0.0  # when to kill
    _calm: float = 0.0  # from when on nobody is killed
    _hushed: set[str] = field(default_factory=set)
    _clients: dict[str, Any] = field(default_factory=dict)
    _over: bool = False

    def started(self, server: str, pid: int) -> None:
        self._pids[server] = pid

    def ended(self, server: str, text: str, again: bool) -> None:
        del self._pids[server]
        if client := self._clients.pop(server, None):
            client.close()
        if not again and not self._over:
            self.given_up = f"{server} {text}"
            self._end()

    def tick(self) -> float:
        now = time.monotonic()
        if self._over:
            return supervisor.NEVER
        if not self._calm:
            self._calm = now + self.seconds
            self._next = now + self.pause
        if now < self._calm:
            if now >= self._next:
                self._kill(now)
            return self._next - now
        if self._rests() or now > self._calm + PATIENCE_S:
            self._end()
        return POLL_S

    def _kill(self, now: float) -> None:
        self._next = now + self.lots.expovariate(1 / self.pause)
        if self._pids:
            os.kill(self._pids[self.lots.choice(sorted(self._pids))], signal.SIGKILL)
            self.kills += 1

    def _rests(self) -> bool:
        """Nobody talks any more, and everybody has heard what he was told."""
        try:
            for agent in self.topology.agents:
                if agent.name not in self._hushed:
                    self._ask(agent.server, "send", to=[agent.name], type="bench.Hush")
                    self._hushed.add(agent.name)
            talkers = [self._ask(each.server, "agent", agent=each.name)["fields"] for each in self.topology.agents]
        except MomError:
            return False  # one is just coming up
        self.at_rest = all(each["hushed"] for each in talkers) and told(self.topology, talkers) == heard(
            self.topology, talkers
        )
        return self.at_rest

    def _ask(self, server: str, verb: str, **args: Any) -> dict[str, Any]:
        from mombroker.net import adminclient

        try:
            if server not in self._clients:
                self._clients[server] = adminclient.connect(self.topology, server, ANSWER_S)
            answer: dict[str, Any] = self._clients[server].request(verb, **args)
        except MomError:
            if client := self._clients.pop(server, None):
                client.close()
            raise
        return answer

    def _end(self) -> None:
        self._over = True
        for client in self._clients.values():
            client.close()
        signal.raise_signal(signal.SIGTERM)  # to the supervisor that calls us, in this thread


Counts = dict[tuple[str, str], int]  # (who told, who was told) -> messages


def told(topology: Topology, talkers: list[dict[str, Any]]) -> Counts:
    ids = [f"{agent.server}/{agent.name}" for agent in topology.agents]
    return {(frm, to): n for frm, fields in zip(ids, talkers, strict=True) for to, n in fields["told"].items()}


def heard(topology: Topology, talkers: list[dict[str, Any]]) -> Counts:
    ids = [f"{agent.server}/{agent.name}" for agent in topology.agents]
    return {(frm, to): n for to, fields in zip(ids, talkers, strict=True) for frm, n in fields["heard"].items()}


def run(first: str, second: str, seconds: float, pause: float, seed: int, folder: Path) -> Row:
    """One bus in a storm of so many seconds with a kill every `pause` ones; what came of it."""
    from mombroker.net import service  # loaded once, before the servers are forked

    topology = topology_of(first, second, folder)
    storm = Storm(topology, seconds, pause, Random(seed))
    children = [supervisor.Child(server.name, Path(server.data)) for server in topology.servers.values()]
    supervisor.Supervisor(children, lambda name: service.serve(topology, name), storm).run()
    if storm.given_up:
        raise supervisor.given_up(storm.given_up, children)
    row = {"ordering": first, "other": second, "servers": len(children), "kills": storm.kills}
    return row | judge(topology, storm)


def judge(topology: Topology, storm: Storm) -> Row:
    with stores_of(topology) as stores:
        found = audit.audit(topology, stores)
        rows = [stores[each.server].agent(f"{each.server}/{each.name}") for each in topology.agents]
        talkers = [unpack(row[1]) for row in rows if row]
        logs = {name: [record for _, record in _records(reader)] for name, reader in stores.items()}
    records = [record for log in logs.values() for record in log]
    out, circle = told(topology, talkers), without_order(topology, logs)
    return {
        "messages": sum(record.kind == "send" and record.detail == "bench.Say" for record in records),
        "reactions": found.reactions, "held": sum(record.kind == "hold" for record in records),
        "violations": len(found.violations), "duplicates": len(found.duplicates), "lost": len(found.lost),
        "unsent": len(found.unsent), "waiting": found.waiting, "not_judged": found.unjudged + found.uncut,
        "told": sum(out.values()), "heard": sum(heard(topology, talkers).values()),
        "out_of_turn": sum(each["wrong"] for each in talkers), "without_order": len(circle),
        "clean": found.clean and storm.at_rest and not found.waiting and out == heard(topology, talkers)
        and not any(each["wrong"] for each in talkers) and not circle,
    }  # fmt: skip


def without_order(topology: Topology, logs: dict[str, list[Any]]) -> list[Any]:
    """Messages of a domain that claims one order for all, for which there is none in which its talkers heard them."""
    found: list[Any] = []
    for domain in topology.domains.values():
        if ordering.backend(domain.backend).total:
            found += unordered([
                ("send", name, (record.origin, record.number)) if record.kind == "send" else
                ("deliver", name, (record.origin, record.number))
                for name in domain.members for record in logs[name]
                if record.detail == "bench.Say" or record.kind == "react" and record.domain == domain.name
                and record.agent == f"{name}/t-{name}"
            ])  # fmt: skip
    return found


@contextmanager
def stores_of(topology: Topology) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        opened = {name: store.read(store.folder_of(server)) for name, server in topology.servers.items()}
        for reader in opened.values():
            stack.callback(reader.close)
        yield opened


def _records(reader: Any) -> Iterator[tuple[int, Any]]:
    after = 0
    while page := reader.log(after, routes.PAGE):
        yield from page
        after = page[-1][0]


@click.command()
@click.argument("orderings", nargs=-1)
@click.option("--seconds", type=click.FloatRange(0.5), default=30.0, show_default=True, help="Of killing, for each.")
@click.option("--pause", type=click.FloatRange(0.05), default=0.7, show_default=True, help="Between two kills, mean.")
@click.option("--seed", default=1, show_default=True, help="Of who is killed when.")
@click.option("--folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="For the stores.")
@output_options
def main(
    orderings: tuple[str, ...], seconds: float, pause: float, seed: int, folder: Path | None, output: str, columns: str
) -> None:
    """Kill servers under each of ORDERINGS (all that many servers can have, unless named). Exit code 4 if one fails."""
    every = [name for name in ordering.names() if name != "fifo"]
    rows = []
    for name in orderings or every:
        other = every[(every.index(name) + 1) % len(every)]
        with TemporaryDirectory(prefix="chaos-", dir=folder) as place:
            try:
                rows.append(run(name, other, seconds, pause, seed, Path(place)))
            except MomError as error:
                raise click.ClickException(str(error)) from None
        click.echo(f"{name}: {'clean' if rows[-1]['clean'] else 'NOT CLEAN'}", err=True)
    show(rows, output, columns)
    if not all(row["clean"] for row in rows):
        raise SystemExit(ExitCode.WRONG)


if __name__ == "__main__":
    main()
