"""What a neighbour gone wrong may say on a live link, or in its greeting: well framed, and never to be believed."""

from copy import deepcopy
from random import Random
from typing import Any

import msgpack

from mombroker.core.events import LinkFrame
from mombroker.core.link import Link
from mombroker.core.message import Message
from mombroker.core.server import AgentServer

# Types of messages with payloads that none of them has, and the agent of the hearer that each is for.
MESSAGES = [
    ("q.put", msgpack.packb(["queue:q", "", b"", "x"]), "queue:q"), ("q.gone", msgpack.packb([5]), "queue:q"),
    ("q.put", msgpack.packb(["queue:q", "", b"", 4, 0, 1 << 63]), "queue:q"), ("q.settle", b"\xc1", "queue:q"),
    ("c.dispatch", msgpack.packb([1, [[1, "m", 1, []]]]), "conn:1"), ("t.table", msgpack.packb([5, 5]), "_topics"),
    ("t.publish", msgpack.packb([None, {}]), "_topics"), ("t.seen", msgpack.packb([[-1]]), "_topics"),
    ("q.full", msgpack.packb([1]), "_clients"), ("_deploy", b"", "_registry"), ("_named", b"x\ny\nz", "_names"),
    ("_forgotten", b"\xff", "_names"), ("_policies", b"[]", "_policies"), ("_policy", b"[5, {}]", "_registry"),
    ("_user", b'["t", "roles", "u", 5]', "_registry"), ("_users", b'["t", "u", [5, [], {}], ""]', "_users"),
    ("_permission", b'["t", {}, true, true]', "_registry"), ("_no_user", b"[]", "_users"),
    ("_permissions", b'["t", 1, {"user": "u", "match": "["}, false]', "_permissions"),
    ("_apply", b'[1, "{}"]', "_registry"), ("_revised", b'[9, 1, "[]"]', "_topology"),
    ("_unapplied", b"[", "_topology"),
]  # fmt: skip


def lie(rng: Random, peer: AgentServer, me: AgentServer, link: Link) -> LinkFrame:
    """A frame that `peer` must not send to `me` now."""
    domain, number = link.domain, link.received + 1
    kind = rng.choice(("message", "message", "message", "head", "packet", "gap", "ack", "domain", "kind"))
    if kind == "gap":
        return "data", domain, number + rng.randrange(1, 1 << 40), [b"x"]
    if kind == "ack":
        return "ack", domain, link.durable + rng.randrange(1, 1 << 63), 0
    if kind == "domain":
        return "data", "\x1b[2J" * rng.randrange(1, 1_000), number, [b"x"]
    if kind == "kind":
        return "\x1b[2J" * rng.randrange(1, 1_000), domain, 1, 1
    body = rng.randbytes(rng.choice((1, 40)))
    if kind == "message":
        type_, payload, agent = rng.choice(MESSAGES)
        body = Message(peer.name, 1 << 40, f"{peer.name}/liar", (f"{me.name}/{agent}",), type_, payload).encode()
    if kind == "packet":
        return "data", domain, number, [b""]
    consumer = peer.channel.domains[domain]
    core = deepcopy(consumer.core)
    to = consumer.domain.index(me.name)
    packets = [packet for packet in core.send([to], body) if packet.to == to]
    return "data", domain, number, [core.encode(packet) for packet in packets] or [b""]


WRONG_VALUES: tuple[Any, ...] = (None, True, "1", b"x", 1.5, -1, 1 << 63, [], {})
LATER: dict[Any, Any] = {
    "standby": True,
    b"replicas": [1, {"p": None}],
    "": "\x1b[2J" * 100,
}  # fields that a later version may have
FREE = {"revision": 63, "term": 48, "limit": 63}  # any number of so many bits may stand there


def greeting(rng: Random, hello: dict[Any, Any], link: Link) -> tuple[dict[Any, Any], bool]:
    """A greeting like `hello`, which `link` would admit, with one thing changed; must it be admitted still?"""
    kind = rng.choice(("later", "free", "missing", "value", "other", "numbers"))
    if kind == "later":
        return hello | LATER, True
    if kind == "free":
        name = rng.choice([*FREE])
        return hello | {name: rng.randrange(1 << FREE[name])}, True
    name = rng.choice(list(hello))
    if kind == "missing":
        return {key: value for key, value in hello.items() if key != name}, name in ("order", "fenced")
    if kind == "value":
        wrong = [value for value in WRONG_VALUES if type(value) is not type(hello[name]) or value in (-1, 1 << 63)]
        return hello | {name: rng.choice(wrong)}, False
    if kind == "numbers":
        lies = [("received", link.durable + 1), ("acked", link.received_durable + 1)]
        if link.received_durable:
            lies.append(("sent", link.received_durable - 1))
        if link.acked:
            lies.append(("received", link.acked - 1))
        return hello | dict([rng.choice(lies)]), False
    names = ["server", "domain", "digest", "graph", "epoch", *(["incarnation"] if link.incarnation else [])]
    name = rng.choice(names)
    return hello | {name: hello[name] + 1 if name == "epoch" else "\x1b[2J" * rng.randrange(1, 500)}, False
