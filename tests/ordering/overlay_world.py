"""A small world for overlays whose members stop for good.

One batch is one step here; `mombroker.ordering.testing` is where batches and restarts are tried at every point. The
same seed gives the same world.
"""

import random
from collections import deque
from collections.abc import Callable

from mombroker.core.causality import Event, Verdict, check
from mombroker.ordering import Packet, Step
from mombroker.ordering.hypercube import Graph
from mombroker.ordering.overlay import Overlay

Link = tuple[int, int]


class World:
    """Members that send, react to what is delivered to them, and pass packets over FIFO links in any interleaving."""

    def __init__(self, seed: int, cores: list[Overlay], deliver_first: bool = False):
        self.lots = random.Random(seed)
        self.cores: dict[int, Overlay] = dict(enumerate(cores))
        self.rows: dict[int, dict[tuple[int, int], bytes]] = {me: {} for me in self.cores}
        self.links: dict[Link, deque[bytes]] = {}
        self.slow = {(a, b) for a in self.cores for b in self.cores if self.lots.random() < 0.3}
        self.events: list[Event] = []
        self.sent = 0
        self.link_messages = 0
        self.quiet = False
        self.deliver_first = deliver_first  # a control: the application answers before the step's packets are sent

    def run(self, sends: int, disturb: Callable[[], None] = lambda: None) -> None:
        """So many messages of the applications, and packets all the while; `disturb` is called in between."""
        while sends:
            if self.lots.random() < 0.2:
                self.send(self.lots.choice([*self.cores]))
                sends -= 1
            else:
                self.pass_on()
            disturb()

    def settle(self) -> None:
        """Nobody has anything to say any more; all that is on its way arrives."""
        self.quiet = True
        while self.pass_on():
            pass

    def send(self, me: int) -> None:
        others = [k for k in self.cores if k != me]
        dests = tuple(self.lots.sample(others, 1 + self.lots.randrange(len(others))))
        self.events.append(("send", me, self.sent, dests))
        self.post(me, self.cores[me].send(dests, b"%d" % self.sent))
        self.sent += 1
        self.commit(me)

    def pass_on(self) -> bool:
        full = [link for link, queue in self.links.items() if queue]
        if not full:
            return False
        ready = [link for link in full if link not in self.slow or self.lots.random() < 0.1]
        frm, me = self.lots.choice(ready or full)
        queue = self.links[frm, me]
        if not self.cores[me].fifo:
            queue.rotate(self.lots.randrange(len(queue)))
        packet = self.cores[me].decode(frm, queue.popleft())
        self.act(me, self.cores[me].receive(frm, packet))
        return True

    def act(self, me: int, step: Step) -> None:
        """The order of an agent server: enqueue, then hand over; reactions come after."""
        if not self.deliver_first:
            self.post(me, step.send)
        for packet in step.deliver:
            self.events.append(("deliver", me, int(packet.body)))
            if not self.quiet and self.lots.random() < 0.3:
                self.send(me)
        if self.deliver_first:
            self.post(me, step.send)
        self.commit(me)

    def post(self, me: int, packets: list[Packet]) -> None:
        for packet in packets:
            self.link_messages += 1
            if packet.to in self.cores:  # else it has stopped for good
                self.links.setdefault((me, packet.to), deque()).append(self.cores[me].encode(packet))
        self.cores[me].check()

    def commit(self, me: int) -> None:
        rows, gone = self.cores[me].dirty()
        self.rows[me] |= rows
        for key in gone:
            del self.rows[me][key]

    def verdict(self, alive: set[int] | None = None) -> Verdict:
        """`lost` counts at the members of `alive`: what one of them sent, or got."""
        verdict = check(self.events)
        if alive is not None:
            known = {event[2] for event in self.events if event[1] in alive}
            verdict.lost = [(q, message) for q, message in verdict.lost if q in alive and message in known]
        return verdict

    # -- members that stop for good ------------------------------------------------------------------------------

    def stop(self, me: int) -> None:
        """What it has sent arrives, of each link up to some point; the rest is lost with its disk."""
        del self.cores[me]
        for (frm, to), queue in self.links.items():
            if to == me:
                queue.clear()
            elif frm == me:
                for _ in range(self.lots.randrange(len(queue) + 1)):
                    queue.pop()


def stops(seed: int, graph: Graph, count: int) -> Verdict:
    """A fixed graph, of which `count` members stop at random moments. All others must still get everything."""
    pairs = [(u, v) for u in range(len(graph)) for v in graph[u] if u < v]
    world = World(seed, [Overlay(me, len(graph), pairs) for me in range(len(graph))])
    doomed = world.lots.sample(range(len(graph)), count)
    for me in doomed:
        world.run(world.lots.randrange(1, 12))
        world.stop(me)
    world.run(10)
    world.settle()
    return world.verdict(set(world.cores))
