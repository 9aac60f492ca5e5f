"""Paper 003: Birman, Schiper, Stephenson, *Lightweight Causal and Atomic Group Multicast*, tables II to V, figures 6
and 7. CBCAST is the core `vector` of the bus; ABCAST, views and flushes are in `mombroker/lab/papers/groups_total.py`.
"""

from collections.abc import Callable, Sequence
from time import process_time

from mombroker import ordering
from mombroker.lab import domain as lab
from mombroker.lab.domain_workloads import Poisson, everybody
from mombroker.lab.ethernet import Ethernet
from mombroker.lab.networks import Exponential
from mombroker.lab.observers import Control
from mombroker.lab.papers.base import Figure, Panel, Paper, Params, Point, Result
from mombroker.lab.papers.groups_claims import CLAIMS as OF_CBCAST
from mombroker.lab.papers.groups_claims import CORE, EAGER, FIELDS, LAZY, RPC, SIZES, STREAM, M
from mombroker.lab.papers.groups_total import (
    STYLES,
    flushing,
    ordered_rpc,
    ordered_stream,
    ordering_cost,
    sizes,
    waiting,
)
from mombroker.lab.papers.groups_total_claims import (
    BY_ONE,
    CAUSAL_1K,
    EACH_OTHER,
    FLUSH,
    FOLLOWS,
    ORDER,
    ORDERED_1K,
    RULE_ALL,
    RULE_CONSERVATIVE,
    SEVEN,
    STAYS,
    STYLE,
    TOTAL_RPC,
    TOTAL_STREAM,
    WAITING,
)
from mombroker.lab.papers.groups_total_claims import CLAIMS as OF_ABCAST
from mombroker.ordering import Packet
from mombroker.sim.world import EPOCH, MS, SECOND, World

MICRO = MS // 1000
# Table V takes apart one 1k message to a remote process and its null reply: two packets, each at two processors.
PACKET = (3600 + 1590) * MICRO // 4  # transport and system calls
EVENT = (230 + 1210) * MICRO // 4  # causal multicast and the rest of Isis: two messages, each sent and received
KILOBYTE = 260 * MICRO  # from S to M in table II it takes 1.35 ms more, of which 0.82 are on the wire
STREAMED = SECOND // 4240  # what a message to oneself takes, asynchronously
HEADER, PACKED = 220, 25  # bytes of a packet; messages in it, while a sender streams


def made(params: Params, pack: int, *more: lab.Observer) -> tuple[World, Ethernet, lab.Domain, Control]:
    """A group of a sender and its destinations."""
    world = World(params["seed"])
    network, control = Ethernet(world, PACKET, KILOBYTE, HEADER, pack), Control()
    members = lab.cores("vector", params["n"] + 1)
    payload = max(params["bytes"], lab.NUMBER)
    return world, network, lab.Domain(world, members, network, [control, *more], payload=payload), control


def rpc(params: Params) -> Result:
    """A multicast to all others, and a null reply of each, which is no multicast, to the sender alone; the time until
    the last is there."""
    world, network, domain, control = made(params, pack=1)
    times: list[int] = []
    replies: list[int] = []
    dests = tuple(range(1, params["n"] + 1))

    def call() -> None:
        world.after(network.work(0, EVENT), domain.send, 0, dests)

    def replied() -> None:
        replies.append(world.now)
        if len(replies) % params["n"] == 0:
            times.append(world.now)
            if len(times) < params["rounds"]:
                call()

    def reply(me: int) -> None:
        network.carry(me, 0, 0, lambda: world.after(network.work(0, EVENT), replied))

    domain.on_deliver = lambda me, packet: world.after(network.work(me, 2 * EVENT), reply, me)
    call()
    domain.finish()
    assert len(times) == params["rounds"]
    return {"ms": (times[-1] - EPOCH) / len(times) / MS, "stamp_bytes": control.result()["bytes"]}


def stream(params: Params) -> Result:
    """The sender sends as fast as its processor allows; until all is delivered."""
    named = Named(0)
    world, network, domain, control = made(params, PACKED, named)
    dests = tuple(range(1, params["n"] + 1))

    def send(left: int) -> None:
        domain.send(0, dests)
        if left:
            world.after(network.work(0, STREAMED), send, left - 1)

    send(params["rounds"] - 1)
    domain.finish()
    seconds = (world.now - EPOCH) / SECOND
    rate = params["rounds"] / seconds
    return {
        "per_s": rate, "kb_per_s": rate * params["bytes"] / 1024, "total_kb_per_s": rate * params["n"] * params["bytes"]
        / 1024, "packed": params["rounds"] * params["n"] / network.packets, "stamp_bytes": control.result()["bytes"],
        "fields": named.mean(),
    }  # fmt: skip


class Named(lab.Observer):
    """How many fields but the sender's own are on a multicast, in the mean; once for all its packets."""

    def __init__(self, first: int):
        super().__init__(first)
        self.fields = self.multicasts = 0

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        if number > self.first:
            self.fields += len(packets[0].stamp.names)
            self.multicasts += 1

    def mean(self) -> float:
        return self.fields / self.multicasts


def fields(params: Params) -> Result:
    """All members multicast at random: the fields that have changed since the sender's multicast before."""
    n, world = params["n"], World(params["seed"])
    named, control = Named(params["rounds"] // 5), Control(params["rounds"] // 5)
    network = Exponential(world, params["transit"] * MS)
    domain = lab.Domain(world, lab.cores("vector", n), network, [named, control])
    if params["burst"] > 1:
        bursts(domain, params)
    else:
        Poisson(params["seed"], 100 * MS, everybody, params["rounds"]).start(domain)
    domain.finish()
    mean = named.mean()
    return {"fields": mean, "fields_pct": 100 * mean / (n - 1), "stamp_bytes": control.result()["bytes"]}


def bursts(domain: lab.Domain, params: Params) -> None:
    """Members begin a burst of so many multicasts, 1 ms apart, at random; as many messages as without."""
    burst = params["burst"]

    def begin(me: int) -> None:
        for at in range(burst):
            domain.world.after(at * MS, domain.send, me, everybody(domain.world.rng, me, params["n"]))

    at = 0
    for _ in range(params["rounds"] // burst):
        at += domain.world.about(100 * MS * burst // params["n"])
        domain.world.after(at, begin, domain.world.rng.randrange(params["n"]))


def core(params: Params) -> Result:
    """CPU time of the causal part, beside one that only keeps the order of a link: µs a message between two members,
    bytes included; the least of some rounds."""
    return {f"cpu_{name}_us": min(_passed(name, params) for _ in range(9)) for name in ("vector", "fifo")}


def _passed(name: str, params: Params) -> float:
    rounds: int = params["rounds"]
    pair, body = [ordering.create(name, me=me, size=2) for me in range(2)], bytes(max(params["bytes"], 1))
    begin = process_time()
    for _ in range(rounds):
        (packet,) = pair[0].send((1,), body)
        received = pair[1].receive(0, pair[1].decode(0, pair[0].encode(packet)))
        assert len(received.deliver) == 1
    return (process_time() - begin) / rounds * 1e6


def ethernet(pack: int) -> Callable[[World], Ethernet]:
    return lambda world: Ethernet(world, PACKET, KILOBYTE, HEADER, pack)


RUNS: dict[str, Callable[[Params], Result]] = {
    RPC: rpc, STREAM: stream, FIELDS: fields, CORE: core, ORDER: ordering_cost, FLUSH: flushing,
    STYLE: sizes, WAITING: waiting,
    TOTAL_RPC: lambda params: ordered_rpc(params, ethernet(1), EVENT),
    TOTAL_STREAM: lambda params: ordered_stream(params, ethernet(PACKED), STREAMED, PACKED),
}  # fmt: skip
CLAIMS = [*OF_CBCAST, *OF_ABCAST]


def run(params: Params) -> Result:
    return RUNS[params["kind"]](params)


def cost(params: Params) -> float:
    if params["kind"] == CORE:
        return float(18 * params["rounds"] * 1e-5)
    if params["kind"] in (TOTAL_RPC, TOTAL_STREAM, ORDER, STYLE, WAITING):
        return float(params["rounds"] * params["n"] ** 2 * 2e-4)
    return float(params["rounds"] * params["n"] * (2.5e-5 if params["kind"] == FIELDS else 3e-5))


# -- the tables --------------------------------------------------------------------------------------------------------

DESTS = range(1, 8)
GROUPS, FULL_GROUPS = [3, 5, 8, 12], [3, 5, 8, 12, 20, 40]
CALLS = 250  # ABCASTs, one after the other; a stream has twice as many. Nothing of them is drawn by chance
BATCHES, MEMBERS, CLIENTS = [1, 2, 5, 10, 25], [2, 4, 8, 16], [2, 4, 8]
BURST, BURSTY = 10, 16_000  # messages in one, and in all: it is the number of bursts that counts


def points(figure: str, full: bool, seeds: Sequence[int], reading: Params) -> list[Point]:
    rounds = 4000 if full else 500
    common = {"rounds": rounds, "bytes": 0, "transit": 20, "burst": 1}
    found = []

    def add(setting: str, x: float, params: Params) -> None:
        found.append(Point(figure, setting, x, common | {"kind": figure, "seed": 1} | params | reading))

    if figure in (RPC, STREAM, TOTAL_RPC, TOTAL_STREAM):
        fewer = {TOTAL_RPC: {"rounds": CALLS}, TOTAL_STREAM: {"rounds": 2 * CALLS}}.get(figure, {})
        for setting, size in SIZES.items():
            for n in DESTS:
                add(setting, n, {"n": n, "bytes": size} | fewer)
        if figure == TOTAL_RPC:
            found += points(RPC, full, seeds, reading)
    elif figure == SEVEN:
        for n in DESTS:
            for setting, kind in ((CAUSAL_1K, RPC), (ORDERED_1K, TOTAL_RPC)):
                many = rounds if kind == RPC else CALLS
                add(setting, n, {"kind": kind, "n": n, "bytes": SIZES[M], "rounds": many})
    elif figure == ORDER:
        for k in BATCHES:
            add(STAYS, k, {"n": 5, "batch": k, "follow": False, "rounds": 500})
            add(FOLLOWS, k, {"n": 5, "batch": k, "follow": True, "rounds": 500})
    elif figure == STYLE:
        for style in STYLES:
            for n in CLIENTS:
                add(style, n, {"n": n, "style": style, "rounds": 400})
    elif figure == WAITING:
        for stays in (0, 0.5, 0.9, 0.99):
            for seed in seeds:
                for setting, rule in ((RULE_ALL, "all"), (RULE_CONSERVATIVE, "conservative")):
                    add(setting, stays, {"n": 4, "rule": rule, "stays": stays, "seed": seed, "rounds": 2000})
    elif figure == FLUSH:
        for n in MEMBERS:
            for setting, coordinator in ((EACH_OTHER, False), (BY_ONE, True)):
                add(setting, n, {"n": n, "coordinator": coordinator, "rounds": 1})
    elif figure == FIELDS:
        for n in FULL_GROUPS if full else GROUPS:
            for seed in seeds:
                add(EAGER, n, {"n": n, "seed": seed, "rounds": 4 * rounds})
                add(LAZY, n, {"n": n, "seed": seed, "rounds": BURSTY, "burst": BURST})
    else:
        for size in SIZES.values():
            add("a pair", size, {"n": 1, "bytes": size})
    return found


PAPER = Paper(
    name="groups",
    number="003",
    title="Lightweight Causal and Atomic Group Multicast",
    figures={
        RPC: Figure("Table II, figure 6: causal multi-RPC, all destinations reply", "destinations",
                    (Panel("ms until the last reply", {"ms": ""}),)),
        STREAM: Figure("Table II: asynchronous CBCAST", "destinations",
                       (Panel("messages a second", {"per_s": ""}),
                        Panel("kB a second to all, in all", {"total_kb_per_s": ""}, without=[*SIZES][:1]))),
        TOTAL_RPC: Figure("Table III: ordered multi-RPC, all destinations reply", "destinations",
                          (Panel("ms until the last reply", {"ms": ""}),)),
        TOTAL_STREAM: Figure("Table III: asynchronous ABCAST", "destinations",
                             (Panel("messages a second", {"per_s": ""}),
                              Panel("kB a second to each", {"kb_per_s": ""}, without=[*SIZES][:1]))),
        SEVEN: Figure("Figure 7: CBCAST and ABCAST, 1k", "destinations",
                      (Panel("ms until the last reply", {"ms": ""}),)),
        ORDER: Figure("§5.2: multicasts of an ABCAST", "put in order at a time",
                      (Panel("CBCASTs of an ABCAST", {"multicasts": ""}),)),
        FLUSH: Figure("§5.5: a flush", "members of the new view",
                      (Panel("flush messages", {"flushes": ""}),
                       Panel("with those that tell the view", {"packets": ""}))),
        STYLE: Figure("Table I: fields of vectors by styles of groups", "clients, or parts of a hierarchy",
                      (Panel("most fields of a multicast", {"fields": ""}),)),
        WAITING: Figure("§6.7: the conservative rule", "chance to send in the same group again",
                        (Panel("ms from send to delivery", {"ms": ""}),)),
        FIELDS: Figure("§5.4: fields of the vector that a compressed timestamp carries", "members of the group",
                       (Panel("% of all fields", {"fields_pct": ""}), Panel("bytes of control", {"stamp_bytes": ""}))),
        CORE: Figure("Tables IV, V: the causal part of the cost", "bytes of a message",
                     (Panel("µs of CPU a message, in the core", {"cpu_vector_us": "causal", "cpu_fifo_us": "FIFO"}),)),
    },
    points=points,
    run=run,
    cost=cost,
    backends=("vector", "fifo"),
    claims=CLAIMS,
    readings={},
)  # fmt: skip
