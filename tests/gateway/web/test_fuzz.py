"""Whatever comes in: no error of ours, nothing kept beyond the bounds, others are served."""

import json
import random

import pytest
from websocket import ABNF

from mombroker.core.errors import MomError
from mombroker.core.events import ClientClosed, ClientOpened
from mombroker.gateway.web.connection import HEAD_BYTES
from mombroker.gateway.web.http import JSON, Request
from mombroker.gateway.web.websocket import CONTROL_BYTES
from mombroker.stomp.frames import encode
from tests.broker.bench import THREE, Broker
from tests.gateway.web.test_api import ALL, CHANGED
from tests.gateway.web.test_session import HEADERS
from tests.gateway.web.world import WebWorld, basic, request
from tests.mutants import COUNT, SEED, changed, mutated

REQUESTS = [
    request("/healthz"), request("/api/queues?limit=5&match=a%20b", Authorization=basic("ann", "a")),
    request("/ws", Origin="http://127.0.0.1:8161", **HEADERS), request("/metrics", "HEAD", Accept="*/*"),
    request("/readyz", Content_Length="5") + b"hello",
    request("/x" * 100, Transfer_Encoding="chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    request("/api/plan", "POST", Authorization=basic("ann", "a"), Content_Type=JSON, Content_Length="99999"),
]  # fmt: skip
CONNECT = encode("CONNECT", [("accept-version", "1.2"), ("host", "/")])


def masked(payload, opcode=ABNF.OPCODE_TEXT, last=1):
    return ABNF(last, 0, 0, 0, opcode, 1, payload).format()


FRAMES = [
    masked(encode("SEND", [("destination", "/queue/a"), ("receipt", "r")], b"body")),
    masked(encode("SUBSCRIBE", [("destination", "/queue/a"), ("id", "1")]), ABNF.OPCODE_BINARY),
    masked(b"SEND\ndestination:", last=0) + masked(b"/queue/b\n\n\0", ABNF.OPCODE_CONT),
    masked(b"ping", ABNF.OPCODE_PING),
    masked(b"\n" * 200), masked(encode("ACK", [("id", "x")])), masked(b"\x03\xe8bye", ABNF.OPCODE_CLOSE),
]  # fmt: skip


def said(at_random, visitor, data):
    """The client says it, in pieces, as long as it is read."""
    while data and visitor.reading and visitor.connected and not visitor.ending:
        size = at_random.randint(1, 2_000)
        visitor.receive(data[:size])
        data = data[size:]


@pytest.fixture
def world():
    made = WebWorld(max_unfinished=1 << 20)
    for verb in ("status", "queues", "topics", "subscriptions"):
        made.replies[verb] = lambda **args: "not now"
    return made


def balance(world):
    """The server has heard of each end that it has heard the beginning of."""
    events = [type(each) for each in world.take()]
    assert events.count(ClientOpened) == events.count(ClientClosed)


def settled(world):
    """All has come to its end: no connection is left, and no timer."""
    balance(world)
    world.checks.clear()
    assert not world.web._all and not world.gateway.clients and not world.clock.getDelayedCalls()
    assert world.gateway.room.unfinished.total == 0 and len(world.lines) < 500


def test_requests_of_any_kind(world):
    at_random, ended = random.Random(SEED + 1), 0
    for _ in range(COUNT):
        visitor = world.visit("10.0.0.9")
        said(at_random, visitor, mutated(at_random, REQUESTS))
        http = visitor.protocol._http
        assert len(http._receive_buffer) <= 2 * HEAD_BYTES
        visitor.all()
        ended += visitor.ending
        visitor.lose()
    assert COUNT // 10 < ended < COUNT
    assert world.visit().ask("/healthz")[0] == 200
    world.web.abort()
    settled(world)


@pytest.mark.parametrize("logged_in", [False, True])
def test_frames_of_any_kind(world, logged_in):
    at_random, ended, asked = random.Random(SEED + 2), 0, request("/ws", **HEADERS)
    for _ in range(COUNT):
        visitor = world.visit()
        visitor.receive(asked + (masked(CONNECT) if logged_in else b""))
        said(at_random, visitor, mutated(at_random, FRAMES))
        client = visitor.protocol._client
        assert len(client.session._frames._kept) <= CONTROL_BYTES + 14
        visitor.all()
        ended += visitor.ending
        visitor.lose()
        balance(world)
    assert COUNT // 10 < ended
    settled(world)


def test_changes_of_any_kind_at_a_server():
    """Whatever a body is, what a verb is given of it is answered: an error of ours would end the server."""
    bus, at_random, answered = Broker(THREE), random.Random(SEED + 3), 0
    bus.connect("a").send("queue:\U0001f600", "one")
    made = [(verb, {**args, "destination": "queue:\U0001f600"} if "destination" in args else args)
            for verb, (args, _) in CHANGED.items()]  # fmt: skip
    for number in range(COUNT):
        verb, args = at_random.choice(made)
        body = args if number % 2 else changed(at_random, args)
        text = json.dumps(body, default=ascii).encode()  # a pair of surrogates stands for what is not ASCII
        text = text.replace(rb"\ude00", at_random.choice((b"", rb"\ude00")))
        try:
            given = Request("POST", "", {}, mutated(at_random, [text]) if number % 4 == 0 else text).arguments
            ALL[verb].check(given)
        except MomError:
            continue
        assert bus.ask("a", verb, **given) is not None
        answered += 1
    assert answered > COUNT // 50
    assert all(bus.ask(each, "permissions")["guarded"] for each in "abc")  # one of those changes
