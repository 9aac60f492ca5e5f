"""Kill servers and STOMP clients at random, as processes, while messages flow; then let all be taken, and judge it.

`python -m mombroker.admin.bench.clientchaos` runs three servers in two domains. Of the kills of servers some come by
chance, others just between a commit and the write of what it delivers. Judged are what the clients wrote down
(ledger.py) and the logs of the servers (as by `mom check`).
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import click

from mombroker.admin import supervisor
from mombroker.admin.audit import bus as audit
from mombroker.admin.bench import ledger, scene
from mombroker.admin.bench.chaos import PATIENCE_S, POLL_S, Storm, stores_of
from mombroker.admin.bench.figures import Row
from mombroker.admin.bench.guests import COLORS, Guest, Mover, Place, Producer, Taker
from mombroker.admin.cli.output import output_options, show
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net.exit_codes import ExitCode
from mombroker.sim.model import Stream

REST = 3  # looks in a row at which nothing waits
FLOW_BYTES = 20_000  # of the journal, before the first kill
CALM = "calm"  # this file says that nobody is to die any more
BETWEEN = 0.002  # the chance of a server to die when it is about to write deliveries
SLOW_S = 20.0  # for the supervisor to see that a server has died
TALLY = ["/queue/one", "/queue/each", "/queue/loose", "/queue/in", "/topic/news"]

CutOff = tuple[str, int, float, float]  # connection, port of its server, from when to when, s since the epoch
Deed = Callable[[], None]


def topology_of(folder: Path) -> Topology:
    """s1 and s2 in one domain, s2 and s3 in another."""
    ports = iter(free_ports(6))
    servers = {
        name: Server(name, "127.0.0.1", next(ports), f"127.0.0.1:{next(ports)}", str(folder / name), anonymous=True)
        for name in ("s1", "s2", "s3")
    }
    domains = {"d1": Domain("d1", ("s1", "s2")), "d2": Domain("d2", ("s2", "s3"))}
    policies = [{"match": "*", "redelivery_delay": 0.01, "max_redelivery_delay": 0.1, "max_redeliveries": 1000}]
    return Topology("storm", servers, domains, [], "s1", policies=policies)


def streams() -> dict[str, Stream]:
    """All that there is to take from."""
    queues = {name: ledger.queue(name, COLORS) for name in ("one", "each", "loose", "in", "left", "right")}
    return queues | {
        "red news": Stream(("/topic/news?red",), "durable"),
        "all news": Stream(tuple(f"/topic/news?{color}" for color in COLORS), "shared"),
    }


@dataclass(slots=True)
class Cast:
    """One client: how it is made, and whether it may be killed. One whose messages are settled by being written to its
    socket may not: what it has not read yet, it would lose."""

    make: Callable[..., Guest]
    how: dict[str, Any]
    mortal: bool = True
    at: str = ""  # the server that it connects to; empty: any
    pid: int = 0
    done: bool = False  # it has sent all that it had to


def cast() -> dict[str, Cast]:
    """Each queue and subscription has somebody who takes from it."""

    def taker(
        *of: tuple[str, str], ack: str = "client-individual", client_id: str = "", **headers: str
    ) -> dict[str, Any]:
        return {"of": of, "ack": ack, "client_id": client_id, "headers": headers}

    one, news = ("one", "/queue/one"), "/topic/news"
    durable = {"durable_subscription_name": "kept"}
    return {
        "producer1": Cast(Producer, {"to": TALLY}),
        "producer2": Cast(Producer, {"to": TALLY}),
        "red": Cast(Taker, taker(one, selector="color = 'red'")),
        "blue": Cast(Taker, taker(one, selector="color = 'blue'")),
        "each": Cast(Taker, taker(("each", "/queue/each"), ack="client")),
        "loose": Cast(Taker, taker(("loose", "/queue/loose"), ack="auto"), mortal=False),
        "mover": Cast(Mover, {}),
        "moved": Cast(Taker, taker(("left", "/queue/left"), ("right", "/queue/right"))),
        "keeper": Cast(Taker, taker(("red news", news), client_id="k", selector="color = 'red'", **durable)),
        "share1": Cast(Taker, taker(("all news", news), shared="true", **durable)),
        "share2": Cast(Taker, taker(("all news", news), shared="true", **durable)),
    }  # fmt: skip


@dataclass(slots=True)
class ClientStorm(Storm):
    """Kills clients, too, and starts them again; ends when nothing waits any more."""

    most: int = 0  # kills, of servers and of clients: it goes on until there were both
    journal: Path = Path()
    people: dict[str, Cast] = field(default_factory=cast)
    children: list[supervisor.Child] = field(default_factory=list)
    private: list[int] = field(default_factory=list)  # files of the supervisor
    clients_killed: int = 0
    deaths: list[tuple[str, float]] = field(default_factory=list)  # server, s since the epoch
    scene: list[str] = field(default_factory=list)  # of the end, if it was not at rest
    _resting: int = 0
    _size: int = 0  # of the journal when it was last looked at

    def ended(self, server: str, text: str, again: bool) -> None:
        self.deaths.append((server, time.time()))
        if again and "SIGKILL" in text:
            self.kills += 1  # by us, or by itself between commit and write
            next(child for child in self.children if child.name == server).pause = 0.0  # no fault of its own
        Storm.ended(self, server, text, again)

    def tick(self) -> float:
        self._reap()
        if self._over:
            return supervisor.NEVER
        now = time.monotonic()
        for name, each in self.people.items():
            if not each.pid and not each.done:
                each.pid = self._fork(name, each)
        if self._calm:
            if self._rests() or now > self._calm + PATIENCE_S:
                self._end()
            return POLL_S
        if not self._next and not self._flows():
            return POLL_S
        if self._enough():
            self._calm = now
            self.journal.with_name(CALM).touch()
        elif now >= self._next:
            self._next = now + self.lots.expovariate(1 / self.pause)
            self._strike()
        return min(POLL_S, max(0.0, self._next - now))

    def _enough(self) -> bool:
        return bool(self.kills and self.clients_killed and self.kills + self.clients_killed >= self.most)

    def _flows(self) -> bool:
        """Everybody has found a server, and messages come."""
        return self.journal.exists() and self.journal.stat().st_size > FLOW_BYTES

    def ports(self) -> dict[int, str]:
        """Of the listeners for clients: whose each is, as SERVER, or SERVER/REPLICA."""
        views = [view for server in self.topology.servers.values() for view in server.views()]
        return {int(str(view.stomp).rpartition(":")[2]): view.label for view in views}

    def unexplained(self, cut_off: list[CutOff]) -> list[tuple[str, str]]:
        """Connections that were lost though their server had not died: (connection, server)."""
        names = self.ports()
        return [
            (conn, names[port])
            for conn, port, since, end in cut_off
            if not any(who == names[port] and since <= at <= end + SLOW_S for who, at in self.deaths)
        ]

    def _strike(self) -> None:
        mortal = [each for each in self.people.values() if each.mortal and each.pid]
        if self.lots.random() < 0.4 and mortal:
            os.kill(self.lots.choice(mortal).pid, signal.SIGKILL)
            self.clients_killed += 1
        elif self._pids:
            os.kill(self._pids[self.lots.choice(sorted(self._pids))], signal.SIGKILL)

    def _fork(self, name: str, each: Cast) -> int:
        seed = self.lots.random()
        if pid := os.fork():
            return pid
        code: int = ExitCode.CRASHED
        try:
            os.setsid()
            for file in self.private:
                os.close(file)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, supervisor.SIGNALS)
            servers = {port: label.partition("/")[0] for port, label in self.ports().items()}
            ports = {port: server for port, server in servers.items() if each.at in ("", server)}
            each.make(Place(ports, self.journal), name, Random(seed), **each.how).run()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for name, each in self.people.items():
            if each.pid and os.waitpid(each.pid, os.WNOHANG)[0]:
                each.pid = 0
                each.done = name.startswith("producer") and self._calm > 0

    def _rests(self) -> bool:
        """The producers have their receipts, and for some time nothing waits anywhere. Clients that find something get
        the time they need to take it."""
        if (size := self.journal.stat().st_size) > self._size:
            self._size, self._calm = size, time.monotonic()
        producers = [each for name, each in self.people.items() if name.startswith("producer") and each.pid]
        for each in producers:
            os.kill(each.pid, signal.SIGTERM)
        waits = bool(producers)
        try:
            for server in self.topology.servers:
                found = [*self._ask(server, "queues")["queues"], *self._ask(server, "subscriptions")["subscriptions"]]
                waits = waits or any(each["messages"] for each in found)
        except MomError:
            waits = True  # one is just coming up
        self._resting = 0 if waits else self._resting + 1
        self.at_rest = self._resting >= REST
        return self.at_rest

    def dismiss(self) -> None:
        for each in self.people.values():
            if each.pid:
                os.kill(each.pid, signal.SIGKILL)
                os.waitpid(each.pid, 0)
                each.pid = 0

    def _end(self) -> None:
        if self._calm and not self.at_rest:
            self.scene = scene.of(self._ask, self.topology.servers, self.journal)
        self.dismiss()
        Storm._end(self)


def deadly(chance: float, calm: Path) -> None:
    """Until that file is there this process may kill itself when it is about to write deliveries to a client."""
    from mombroker.broker.commands import Delivery, DeliveryRun
    from mombroker.gateway.listener import Gateway

    reply, lots = Gateway.reply, Random()

    def die_or_reply(gateway: Gateway, number: int, replies: list[Any]) -> None:
        if isinstance(replies[-1], Delivery | DeliveryRun) and lots.random() < chance and not calm.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        reply(gateway, number, replies)

    Gateway.reply = die_or_reply  # type: ignore[assignment, method-assign]


def run(kills: int, pause: float, seed: int, folder: Path, spoil: Deed = lambda: None, between: float = BETWEEN) -> Row:
    """One bus in a storm of so many kills; what came of it. `spoil` is done in each server before it starts."""
    from mombroker.net import service  # loaded once, before the servers are forked

    topology, journal = topology_of(folder), folder / "journal"
    children = [supervisor.Child(server.name, Path(server.data)) for server in topology.servers.values()]
    storm = ClientStorm(topology, 0.0, pause, Random(seed), most=kills, journal=journal, children=children)

    def serve(name: str) -> int:
        spoil()
        deadly(between, folder / CALM)
        return service.serve(topology, name)

    try:
        supervisor.Supervisor(children, serve, storm, storm.private).run()
    finally:
        storm.dismiss()
    if storm.given_up:
        raise supervisor.given_up(storm.given_up, children)
    counts = {"servers": len(children), "server_kills": storm.kills, "client_kills": storm.clients_killed}
    return counts | judge(topology, storm)


def judge(topology: Topology, storm: ClientStorm) -> Row:
    with stores_of(topology) as stores:
        found = audit.audit(topology, stores)
    return verdict(storm, found, written(storm))


def written(storm: ClientStorm) -> ledger.Ledger:
    """What the clients have written down."""
    book = ledger.Ledger(streams())
    book.read(storm.journal)
    return book


def verdict(storm: ClientStorm, found: audit.Findings, book: ledger.Ledger) -> Row:
    """What the clients and the logs say."""
    faults = book.faults()
    faults += [f"{who} was cut off by {server}" for who, server in storm.unexplained(book.cut_off)][:5]
    if not storm.at_rest:
        faults.append("messages still wait though somebody takes them")
    if not found.clean:
        faults.append(f"the logs are not clean: {found}"[:500])
    return {
        "connections": len(book.numbers), "sent": len(book.sent), "receipts": book.receipts, "seen": book.seen,
        "repeats": book.repeats, "cut_off": len(book.cut_off), "reactions": found.reactions,
        "faults": faults, "scene": storm.scene, "clean": not faults,
    }  # fmt: skip


@click.command()
@click.option(
    "--kills", type=click.IntRange(1), default=25, show_default=True,
    help="Of servers and clients, one of each at least.",
)  # fmt: skip
@click.option("--pause", type=click.FloatRange(0.05), default=0.7, show_default=True, help="Between two kills, mean.")
@click.option("--seed", default=1, show_default=True, help="Of who is killed when.")
@click.option("--folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="For the stores.")
@output_options
def main(kills: int, pause: float, seed: int, folder: Path | None, output: str, columns: str) -> None:
    """Kill servers and clients. Exit code 4 if anything is wrong."""
    with TemporaryDirectory(prefix="storm-", dir=folder) as place:
        try:
            row = run(kills, pause, seed, Path(place))
        except MomError as error:
            raise click.ClickException(str(error)) from None
    show([row], output, columns)
    if not row["clean"]:
        raise SystemExit(ExitCode.WRONG)


if __name__ == "__main__":
    main()
