"""Domains and routers without servers: real ordering cores, joined by the router step, on any set of domains.

The variants of the router step are those that must fail; the default is the one of the bus (protocols §8.2).
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from mombroker import ordering
from mombroker.core.causality import Event

Link = tuple[int, int, int]  # domain, from, to
Domains = list[tuple[int, ...]]
Hop = Callable[[int, int], tuple[int, int]]  # (from, final server) -> (domain, next server)


class Routes:
    """Fixed shortest routes. Where a hop could be made in several domains, `choose` fixes one for each pair."""

    def __init__(self, domains: Domains, choose: Callable[[list[int]], int] = min):
        self.domains = domains
        self.servers = sorted({server for domain in domains for server in domain})
        self.shared = {
            (a, b): [at for at, domain in enumerate(domains) if a in domain and b in domain]
            for a in self.servers for b in self.servers if a != b
        }  # fmt: skip
        self.domain = {(a, b): choose(found) for (a, b), found in self.shared.items() if found and a < b}
        self.domain |= {(b, a): domain for (a, b), domain in self.domain.items()}
        self.next: dict[tuple[int, int], int] = {}
        for final in self.servers:
            distance = {final: 0}
            queue = deque([final])
            while queue:
                server = queue.popleft()
                for other in self.servers:
                    if (other, server) in self.domain and other not in distance:
                        distance[other] = distance[server] + 1
                        self.next[other, final] = server
                        queue.append(other)

    def reaches(self, a: int, b: int) -> bool:
        return (a, b) in self.next

    def __call__(self, frm: int, final: int) -> tuple[int, int]:
        server = self.next[frm, final]
        return self.domain[frm, server], server


class Bus:
    """later     None: forward in the step of the delivery; "fifo", "any": put it into a queue, emptied by `flush`
    unicasts  a multicast that is forwarded is stamped once for each next server
    """

    def __init__(self, domains: Domains, hop: Hop, later: str | None = None, unicasts: bool = False):
        self.domains, self.hop, self.later, self.unicasts = domains, hop, later, unicasts
        self.cores = {
            (at, server): ordering.create("fifo" if len(domain) == 2 else "matrix", me, len(domain))
            for at, domain in enumerate(domains)
            for me, server in enumerate(domain)
        }
        self.links: dict[Link, deque[bytes]] = {}
        self.transit: dict[int, list[tuple[int, int, list[int]]]] = {}  # server -> (from domain, message, finals)
        self.events: list[Event] = []
        self.trace: list[dict[str, object]] = []  # in the form of cycle_violation.json
        self.sent = 0

    def send(self, frm: int, dests: Iterable[int]) -> int:
        message, self.sent = self.sent, self.sent + 1
        dests = list(dests)
        self.events.append(("send", frm, message, dests))
        self.trace.append({"ev": "send", "msg": message, "from": frm, "to": dests[0]})
        self._stamp(frm, message, dests, self.unicasts)
        return message

    def _stamp(self, server: int, message: int, finals: list[int], unicasts: bool) -> None:
        hops: dict[int, dict[int, list[int]]] = {}
        for final in finals:
            domain, after = self.hop(server, final)
            hops.setdefault(domain, {}).setdefault(after, []).append(final)
        body = bytes([message, *finals])
        for domain, afters in hops.items():
            index = self.domains[domain].index
            for group in [[after] for after in afters] if unicasts else [list(afters)]:
                for packet in self.cores[domain, server].send([index(after) for after in group], body):
                    to = self.domains[domain][packet.to]
                    self.trace.append({"ev": "hop", "msg": message, "domain": domain, "from": server, "to": to})
                    data = self.cores[domain, server].encode(packet)
                    self.links.setdefault((domain, server, to), deque()).append(data)

    def arrive(self, link: Link) -> None:
        """The next packet of a link arrives."""
        domain, frm, to = link
        data = self.links[link].popleft()
        if not self.links[link]:
            del self.links[link]
        core, index = self.cores[domain, to], self.domains[domain].index
        packet = core.decode(index(frm), data)
        self.trace.append({"ev": "arrive", "msg": packet.body[0], "domain": domain, "from": frm, "to": to})
        step = core.receive(index(frm), packet)
        assert not step.send, "these back ends do not relay"
        for done in step.deliver:
            self._deliver(domain, to, done.body)
        core.check()

    def _deliver(self, domain: int, server: int, body: bytes) -> None:
        message, finals = body[0], list(body[1:])
        if server in finals:
            self.events.append(("deliver", server, message))
            self.trace.append({"ev": "deliver", "msg": message, "at": server})
        beyond = self.beyond(domain, server, finals)
        if beyond and self.later:
            self.transit.setdefault(server, []).append((domain, message, beyond))
        elif beyond:
            self._stamp(server, message, beyond, self.unicasts)

    def beyond(self, domain: int, server: int, finals: list[int]) -> list[int]:
        """A router serves exactly the finals to which it would hop in another domain."""
        return [final for final in finals if final != server and self.hop(server, final)[0] != domain]

    def flush(self, server: int, rng: Random) -> None:
        """One forward leaves a router's transit queue."""
        queue = self.transit[server]
        _, message, finals = queue.pop(0 if self.later == "fifo" else rng.randrange(len(queue)))
        if not queue:
            del self.transit[server]
        self._stamp(server, message, finals, self.unicasts)

    def held(self) -> int:
        return sum(len(core.held()) for core in self.cores.values())


def random_run(bus: Bus, routes: Routes, rng: Random, sends: int, multicast: float = 0.3) -> Bus:
    """A random schedule of sends and arrivals, run to its end. Links are slow and fast by turns."""
    slow = {pair: rng.random() for pair in routes.shared}
    while True:
        choices: list[tuple[float, str, object]] = []
        if sends:
            choices.append((1.0, "send", None))
        choices += [(0.02 + slow[link[1], link[2]], "arrive", link) for link in bus.links]
        choices += [(0.3, "flush", server) for server in bus.transit]
        if not choices:
            return bus
        _, kind, what = rng.choices(choices, [choice[0] for choice in choices])[0]
        if kind == "arrive":
            bus.arrive(what)  # type: ignore[arg-type]
        elif kind == "flush":
            bus.flush(what, rng)  # type: ignore[arg-type]
        else:
            frm = rng.choice(routes.servers)
            reachable = [server for server in routes.servers if routes.reaches(frm, server)]
            if reachable:
                count = rng.randint(1, len(reachable)) if rng.random() < multicast else 1
                bus.send(frm, rng.sample(reachable, count))
            sends -= 1
