"""A neighbour says what is well framed and of the wrong type, or out of range: its link ends, nobody else notices."""

import copy
import json
import random
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from typing import Any

import msgpack
import pytest

from mombroker.agents import notifications as notes
from mombroker.broker.commands import Unsubscribe
from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Spec
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.wire import KINDS
from mombroker.core.batch import Batch, InRow, TaskRow
from mombroker.core.errors import SENTENCE_CHARS, PeerError, UnknownName, UnknownNotification
from mombroker.core.events import Admin, ClientClosed, ClientCommands, LinkDown, LinkFrames
from mombroker.core.message import BOUNCE, Message, new_message
from tests.broker.bench import Broker
from tests.core.bus import topology
from tests.core.sample_agents import Put as Text

AGENTS = "tests.core.sample_agents"
DEEP: Any = []
for _ in range(60):
    DEEP = [DEEP]
JUNK = [
    None, True, -1, 7, 1 << 62, 1 << 63, -(1 << 63), (1 << 64) - 1, 1.5, float("nan"), "", "x", "x" * 100_000,
    "\x1b[2J\n\x00", "a/b", "topic:" + "x." * 3_000 + "#", b"", b"\xff", b"x\n" * 9, [], [5], [5, 5], [[5]],
    [[5, "topic:x"]], [None], ["topic:\n"], {}, {"x": 1}, {"b": 1}, {1: 1}, DEEP, msgpack.ExtType(3, b"x"),
    msgpack.Timestamp(1, 1),
]  # fmt: skip


def put(**fields: Any) -> list[Any]:
    """A message that is as it should be, but for these fields: values that no message may have, too."""
    made = ClientMessage(
        "queue:q", "/queue/q", timestamp=1, producer="p", counter=1, sender="a/x", content_type="text/plain", type="t",
        correlation="c", reply_to="/queue/r", properties=b"\x81\xa1k\xa1v", form=b"@\0", annotations={"k": "v"},
        body=b"body",
    )  # fmt: skip
    return replace(made, **fields).values()


PUT = put()
ROW = QueuedMessage(1, 5, "a#1", ClientMessage(*PUT)).row("a/queue:far", "p5")
TEXTS = [
    b"", b"\n", b"x", b"\n\n\n\n", b"x\ny\nz\n\xff", b"\xff\n\xff\n\xff\n\xff", b"\x1b[2J\nb\nos:system\n",
    b"x" * 100_000, b"x\nnowhere\nos:system\n", b"queue:n\nb\nmombroker.agents.queue:Queue\njunk", b"x\nb\n", b"null",
    b"[]", b"[1]", b"{}", b"[[[",
    b'["queue:q", 5]', b'["queue:q", {"max_messages": [1]}]', b'[5, {}]', b'["\\u001b[2J", {"max_messages": "x"}]',
    b'[1, "queue:q", {"match": 5}]', b'[-5, "queue:q", null]', b'[99999999999999999999, "queue:q", {}]', b"[" * 5_000,
    b'["\\ud800", "\\ud800"]', b'["x", "\\udfff", {"\\ud800": 1}]', b'["\\ud800", 5, {"match": "q:\\ud800"}, false]',
    b'[9, "queue:\\ud800", {"max_messages": 1}]', b'{"\\ud800": ["\\udfff"]}',
    b'[9, "queue:q", {"max_messages": 1e999, "nothing": "like it"}]', b'[1, "' + b"*a" * 900 + b'", {}]',
]  # fmt: skip


class Town:
    """a is a neighbour of b, which has all that a could speak to."""

    def __init__(self) -> None:
        agents = {"b/sink": f"{AGENTS}:Sink", "b/clerk": f"{AGENTS}:Clerk"}
        b = self.broker = Broker(topology({"x": "abc"}, agents))
        b.connect("a").send("/queue/other", "1")
        client = self.client = b.connect("b", client_id="me")
        client.send("queue:q", "one", "two", receipt="r").subscribe("s", "queue:q", ack="client", prefetch=1)
        b.connect("a").send("queue:far", "one").subscribe("t", "topic:t")
        client.subscribe("f", "queue:far", ack="client").subscribe("p", "topic:t")
        client.subscribe("d", "topic:t", durable="d")
        b.connect("a").subscribe("q", "queue:q", ack="client")
        client.send("queue:leaving", "one", receipt="r").subscribe("l", "queue:leaving", ack="client")
        assert client.texts == ["one", "one", "one"] and not client.refusals
        b.ask("a", "move_destination", destination="queue:far", to="b")  # both wait for what clients have
        b.ask("b", "move_destination", destination="queue:leaving", to="c")
        b.ask("b", "create_topic", destination="topic:home")
        server = b.servers["b"]
        with suppress(UnknownName):
            server.clients.groups.home("g", make=True)
        b.pump()
        self.proxy = next(id for id in server.natives.agents if id.startswith("b/conn:"))
        self.link = server.channel.domains["x"].link("a")
        proxy = server.natives.agents[self.proxy]
        self.source = next(number for number, each in proxy.consumers.items() if each.home.startswith("a/"))
        self.plain = next(number for number, each in proxy.consumers.items() if not each.home)

    def honest(self) -> dict[str, tuple[str, list[Any]]]:
        """Of each type: whom it is for, and fields."""
        number = self.source
        failure = (self.proxy, ["b/clerk", "a.ask", "no", "b", 7])
        return {
            "a.ask": ("b/clerk", [f"{AGENTS}.Count", b'{"what": "x"}', "p", 1]),
            "a.answer": ("b/reply:1:queue:q", [f"{AGENTS}.Counted", b"{}"]), "mom.UnknownAgent": failure,
            "mom.ReactionFailed": failure, "mom.Expired": failure,
            "q.put": ("b/queue:q", PUT), "q.consume": ("b/queue:q", [9, 5, "k = 'v'", False, 4, "", False, None, True]),
            "q.cancel": ("b/queue:q", [9]), "q.settle": ("b/queue:q", [9, [1], [], [], [], [], 1, False, [], []]),
            "q.flow": ("b/queue:q", [9, 1, True]), "c.drained": (self.proxy, [number]),
            "q.gone": ("b/queue:q", [[1]]), "q.end": ("b/sub:me:d", [5]),
            "c.dispatch": (self.proxy, [number, [[77, "a#7", 1, PUT]]]), "c.started": (self.proxy, [number, []]),
            "c.last": (self.proxy, [number]), "c.ended": (self.proxy, [number]), "c.browsed": (self.proxy, [number]),
            "c.refuse": (self.proxy, [number, "no"]), "q.full": ("b/_clients", ["b/queue:q", True]),
            "t.publish": ("b/_topics", [put(destination="topic:t"), {"b": 1 << 50}, {"a": 7}]),
            "t.table": ("b/_topics", [[[5, "topic:x"]], [3]]),
            "t.placed": ("b/_topics", [{"a/x": 1}, False]),
            "t.opens": ("b/_topics", ["b/topic:x", [PUT], True, [["a/x", "a#1"]], [["p", [1, 1]]]]),
            "t.run": ("b/topic:home", [put(destination="topic:home"), [b"1", b"2"], [["i", b""], ["j", b""]]]),
            "t.seen": ("b/_topics", [[5]]),
            "m.page": ("b/queue:far", [[[ROW.head, ROW.body, True]], [["p", [1, 1]]], 1, 2, 0]),
            "m.taken": ("b/queue:leaving", [1, 0]), "m.passed": ("b/queue:leaving", ["c/queue:leaving"]),
            "g.leave": ("b/group:g", [True]), "g.join": ("b/group:g", [True, 5, True]), "g.here": ("b/group:g", []),
            "g.probe": ("b/_groups", ["g"]), "mom.MemberDown": ("b/clerk", ["g", ["a/x"]]),
            "mom.Undeliverable": ("b/clerk", ["b/topic:x", "a.put", "it was deleted", "a", 1]),
            "mom.MemberUp": ("b/clerk", ["g", ["a/x"]]), "g.restored": ("b/group:g", [1]),
            "g.flush": ("b/group:g", [1, 1, {"a/x": 5}]), "g.place": ("b/group:g", [f"{AGENTS}.Count", b"\x90"]),
            "g.prepare": ("b/_groups", [1, 1, ["a/x"]]), "g.placed": ("b/_groups", ["b/clerk", 1]),
            "g.ack": ("b/group:g", [1, {"a/x": 5}]), "g.stable": ("b/_groups", ["g", 1, {"a/x": 5}]),
            "g.got": ("b/_groups", [7, "a/x", 1]), "g.ended": ("b/_groups", ["b/group:g", "b/clerk", True, 1, 0]),
            "mom.NotDelivered": ("b/clerk", ["g", f"{AGENTS}.Count", b"\x90", "no"]),
            "g.busy": ("b/_groups", ["g", 1, ["b/clerk"], "b/group:g"]),
            "g.state": ("b/_groups", ["g", 1, ["b/clerk"], b"x", 0, True, 7, "rows", "k", "b/group:g"]),
            "g.view": ("b/clerk", ["g", 1, ["b/clerk"], ["b/clerk"], ["a/x"], "a/y", ["b/clerk"], {"a/y": 1}, {}, 0]),
            "g.cast": ("b/clerk", ["g", 1, "a/x", f"{AGENTS}.Count", b"\x90", 1, {"a/x": 1}, 1, 1, "b/group:g"]),
            "m.ready": ("b/queue:leaving", ["b/queue:leaving", True]), "c.moved": (self.proxy, [number, "c/queue:far"]),
        }  # fmt: skip

    def hear(self, type_: str, payload: bytes, *agents: str, source: str = "a/queue:far", origin: str = "a") -> None:
        """One message of a comes in, in its turn. Raises PeerError; whatever happens, b is whole and goes on."""
        core = copy.deepcopy(self.broker.servers["a"].channel.domains["x"].core)
        message = Message(origin, 999_999, source, agents, type_, payload, self.broker.now)
        (packet,) = core.send([1], message.encode())
        frame = ("data", "x", self.link.received + 1, [core.encode(packet)])
        before = self.link.received
        try:
            self.broker.servers["b"].step(LinkFrames("a", self.link.conn, [frame]), self.broker.now)
        except PeerError as error:
            assert self.link.received == before
            assert str(error).isprintable() and len(str(error)) <= SENTENCE_CHARS
            raise

    def goes_on(self) -> None:
        """As one process after the other: whatever was taken is worked through, and what is left is read at a start."""
        b = self.broker
        for _ in range(2):
            b.servers["b"].step(LinkDown("a", self.link.conn), b.now)
            self._alone()
            b.servers.pop("b")
            b.boot("b")
            self.link = b.servers["b"].channel.domains["x"].link("a")
        self._alone()

    def _alone(self) -> None:
        server = self.broker.servers["b"]
        for _ in range(8):
            self.broker.now += 1_000_000
            server.turn(self.broker.now)
            ready = server.ready(self.broker.now)
            self.broker.stores["b"].commit(ready.batch)
            server.committed(ready, self.broker.now)
            server.check()
            assert all(line.isprintable() and len(line) <= SENTENCE_CHARS for line in server.tx.notes)


def wrong_values(honest: dict[str, tuple[str, list[Any]]]) -> list[tuple[str, str, bytes, bool]]:
    """Type, agent, payload; and whether it must be refused: its type is not what the annotation says."""
    found = []
    for type_, (agent, values) in honest.items():
        assert len(values) == sum(not field.metadata.get("local") for field in fields(KINDS[type_]))
        for at, value in enumerate(values):
            for junk in JUNK:
                packed = msgpack.packb([*values[:at], junk, *values[at + 1 :]])
                optional = "None" in str(fields(KINDS[type_])[at].type) and junk is None
                if not optional and not (value is None and isinstance(junk, list)):
                    found.append((type_, agent, packed, type(junk) is not type(value)))
        needed = sum(field.default is MISSING and field.default_factory is MISSING for field in fields(KINDS[type_]))
        short = [] if not needed else [msgpack.packb(values[: needed - 1])]
        for payload in [*short, b"", b"\xc1", b"\x05", b"\x80", b"\xa1x", b"\x81\x90\x01"]:
            found.append((type_, agent, payload, True))
    return found


@pytest.mark.parametrize("count", [250, pytest.param(10**9, marks=pytest.mark.long)])
def test_a_thousand_well_framed_wrong_values_end_a_link_and_no_server(count):
    town = Town()
    assert set(town.honest()) == set(KINDS)
    tries = wrong_values(town.honest())
    assert len(tries) > 1_000
    refused = 0
    for type_, agent, payload, must in random.Random(1).sample(tries, min(count, len(tries))):
        try:
            town.hear(type_, payload, agent)
        except PeerError:
            refused += 1
            continue
        assert not must, f"{type_} {payload[:99]!r} was taken"
        town.goes_on()
        town = Town()
    assert refused > count * 2 // 3 or refused > 1_000
    town.goes_on()


@pytest.mark.parametrize(
    "type_",
    ["_deploy", "_named", "_refused", "_forget", "_forgotten", "_outdated", "_move", "_moved", "_policy", "_policies"],
)
def test_what_servers_tell_each_other_of_names_and_policies_is_checked(type_):
    refused, town = 0, Town()
    for payload in TEXTS:
        try:
            town.hear(type_, payload, "b/_names")
        except PeerError:
            refused += 1
            continue
        town.goes_on()
        town = Town()
    assert refused > len(TEXTS) // 2


@pytest.mark.parametrize("agent", ["b/_clients", "b/_topics", "b/conn:7", "b/queue:q", "b/new", "b/queue:new"])
def test_nobody_replaces_or_deletes_what_is_the_server_s_own(agent):
    town = Town()
    natives = dict(town.broker.servers["b"].natives.agents)
    for payload in (b"", b"\xff", b"mombroker.agents.queue:Queue\njunk", b"os:system\n", b"\x1b[2J" * 9_000):
        town.hear("_create", payload, agent)
    for each in (agent, town.proxy) if agent != "b/queue:q" else ():
        town.hear("_delete", b"", each)
    for _ in range(3):
        town._alone()
    assert natives == town.broker.servers["b"].natives.agents
    town.goes_on()


@pytest.mark.parametrize(("type_", "payload"), [
    ("q.consume", [9, 5, "no ' selector"]), ("q.consume", [9, 5, "(" * 5_000]),
    ("q.settle", [4, [], [], [], [], [], 1_000_000]), ("q.consume", [9, 5, "", False, -(1 << 63)]),
    ("q.put", put(form=b"=\xff\xfe:\x00")), ("q.put", ["", ""]), ("q.put", ["", "", b""]),
    ("q.put", put(expires=1 << 62)), ("q.put", put(counter=(1 << 63) - 1)),
])  # fmt: skip
def test_values_that_fit_and_make_no_sense_end_nothing(type_, payload):
    for agent in ("b/queue:q", "b/sub:me:d", "b/_to:queue:new"):
        town = Town()
        town.hear(type_, msgpack.packb(payload), agent)
        town.goes_on()


@pytest.mark.parametrize("ranges", [[1], [2, 1], [1, 2, 3], [-1, 1], ["x", 1]])
def test_what_producers_have_sent_is_ranges(ranges):
    town = Town()
    for type_, values in ("t.opens", ["b/topic:x", [], True, []]), ("m.page", [[]]):
        with pytest.raises(PeerError, match="producers"):
            town.hear(type_, msgpack.packb([*values, [["p", ranges]]]), town.honest()[type_][0])
    town.goes_on()


def test_a_dispatch_that_nobody_has_asked_for_ends_nothing():
    for sub in ("p", "f", ""):
        town = Town()
        number = {"p": town.plain, "f": town.source}.get(sub, 12345)
        town.hear("c.dispatch", msgpack.packb([number, [[77, "a#7", 1, PUT]]]), town.proxy)
        server = town.broker.servers["b"]
        server.turn(town.broker.now)
        server.step(ClientCommands(town.client.conn, [Unsubscribe(sub)]), town.broker.now)
        server.step(ClientClosed(town.client.conn), town.broker.now)
        town.goes_on()


def test_a_subscription_that_cannot_be_as_asked_for_is_refused_and_stays():
    for spec in ([], [[]], [["topic:t"], "no ' selector"], [["queue:q"]], [["topic:\n"]], [[5]]):
        town = Town()
        town.hear("q.consume", msgpack.packb([9, 5, "", False, 4, "", False, spec]), "b/sub:me:d")
        town.goes_on()
        assert town.broker.servers["b"].natives.agents["b/sub:me:d"].spec == Spec(["topic:t"])


@pytest.mark.parametrize("state", [
    b"junk", b"", b"\x90", Subscription.new(Spec([])), Subscription.new(Spec(["topic:t"], "no ' selector")),
    Subscription.new(Spec(["topic:t"]))[:-1], Subscription.new(Spec([b"topic:t"])),
    msgpack.packb([1, "x", {}, [], [], 0, [Spec(["topic:t"]).values(), []]]),
])  # fmt: skip
def test_a_new_subscription_with_a_state_that_it_cannot_have_is_a_dead_letter(state):
    town = Town()
    town.hear("_create", b"mombroker.agents.subscription:Subscription\n" + state, "b/sub:you:new")
    town.goes_on()
    assert "b/sub:you:new" not in town.broker.servers["b"].natives.agents
    assert len(town.broker.servers["b"].dead_letters.letters) == 1


def test_what_comes_from_afar_is_a_dead_letter_and_its_neighbour_keeps_the_link():
    """b is honest: it only passes on what a says."""
    b = Broker(topology({"x": "ab", "y": "bc"}))
    b.connect("a").send("queue:q", "one")
    b.connect("c").subscribe("p", "topic:t").send("queue:here", "1")
    wrong = [
        ("q.put", msgpack.packb(["queue:here", "", b"", "x"]), "c/queue:here"), ("_named", b"", "c/_names"),
        ("t.table", msgpack.packb([5, 5]), "c/_topics"), ("_policies", b"[]", "c/_policies"),
    ]  # fmt: skip
    server = b.servers["a"]
    for type_, payload, agent in wrong:
        server.channel.send(new_message(server.tx, "a/x", (agent,), type_, payload))
        b.pump()
    assert len(b.servers["c"].dead_letters.letters) == len(wrong) and b.servers["c"].channel.domains["y"].link("b").conn
    b.reboot("c")
    b.connect("a").send("queue:here", "after")
    assert b.connect("c").subscribe("s", "queue:here").texts == ["1", "after"]


def test_what_was_stored_before_it_was_checked_is_parked_once():
    b = Broker()
    b.connect("a").send("queue:q", "one")
    b.crash("a")
    head = Message("a", 7, "a/x", ("a/queue:q",), "q.put", b"", flags=BOUNCE).encode()
    rows = {
        101: InRow(101, "a/queue:q", b"no message"), 102: InRow(102, "a/queue:q", b""),
        103: InRow(103, "a/queue:q", head + b"\x05"),
        104: InRow(104, "a/queue:q", head + msgpack.packb(put(timestamp="x"))),
        105: InRow(105, "a/conn:5", head + b"\x05"), 106: InRow(106, "a/queue:q", head + msgpack.packb(PUT)),
        107: InRow(107, "a/nobody", b"\xff" * 60),
    }  # fmt: skip
    tasks = {110: TaskRow(110, "a/x", "timer", 5, b"no message")}
    b.stores["a"].commit(Batch(queue_in=rows, tasks=tasks, meta={"next": 200_000}))
    for _ in range(2):
        b.boot("a")
        b.later(1)
        letters = b.ask("a", "deadletters")["letters"]
        assert len(letters) == 6 and not b.stores["a"].disk.queue_in and not b.stores["a"].disk.tasks
        b.crash("a")
    b.boot("a")
    assert b.connect("a").subscribe("s", "queue:q").texts == ["one", "body"]
    unreadable = [letter for letter in letters if not letter["type"]]
    assert len(unreadable) == 4 and {letter["agent"] for letter in unreadable} == {"a/queue:q", "a/nobody", "a/x"}
    assert b.ask("a", "deadletter", id=unreadable[0]["id"])["payload"] == {"packed": b"no message"}
    assert "not a message" in b.ask("a", "retry", id=unreadable[0]["id"])
    assert b.ask("a", "drop", id=unreadable[0]["id"])["dropped"]


def test_a_held_packet_that_was_stored_before_it_was_checked_is_parked():
    b = Broker(topology({"x": "abc"}))
    core = copy.deepcopy(b.servers["a"].channel.domains["x"].core)
    cause = next(p for p in core.send([1], Message("a", 7, "a/x", ("b/y",), "t", b"").encode()))
    effect = next(p for p in core.send([1], b"no message"))
    two = b.servers["b"].channel.domains["x"]
    two.core.receive(0, two.core.decode(0, core.encode(effect)))
    two.touched, two.link("a").received = True, 1
    two.link("a").touch()
    two.link("a").changed = True
    b.pump()
    b.crash("b")
    server = b.boot("b")
    server.channel._packet(server.channel.domains["x"], server.channel.domains["x"].link("a"), core.encode(cause))
    assert sorted(json.loads(row.head)["type"] for row in server.dead_letters.letters.scan(None, 9)) == [""]


@pytest.mark.parametrize("payload", [b"", b"\x05", b"\xc1", b"\xa1x", b"\x80", b"\x81\x90\x01", b"\x90"])
def test_an_author_s_notification_that_cannot_be_read_is_parked_at_once(payload):
    with pytest.raises(UnknownNotification, match="fields that do not fit"):
        notes.decode(Text.__wire_name__, payload)
    town = Town()
    town.hear(Text.__wire_name__, payload, "b/sink")
    town.goes_on()
    (letter,) = town.broker.servers["b"].dead_letters.letters.scan(None, 9)
    assert json.loads(letter.head)["attempts"] == 0


def test_types_after_a_link_are_those_before_it():
    for cls, values in (
        (KINDS["t.table"], [[(5, "topic:x")], [3]]),
        (KINDS["c.dispatch"], [9, [(7, "a#7", 1, ClientMessage(*PUT))]]),
    ):
        note = cls(*values)
        assert cls.unpack(note.pack()) == note
    publish = KINDS["t.publish"](ClientMessage(*PUT), {"b": 4})
    assert KINDS["t.publish"].unpack(publish.pack()) == publish


REQUEST = {
    "release": True, "end": False, "listen": "127.0.0.1:1", "behind": "b", "domain": "x", "bus": "test",
    "destination": "queue:q", "agent": "b/sink", "name": "x", "topics": ["t"], "match": "queue:q",
    "target": "queue:other", "type": Text.__wire_name__, "to": ["b/sink"], "class": f"{AGENTS}:Sink", "id": 1,
    "user": "u", "hash": "h", "seq": 1, "holder": "a", "fields": {}, "ttl_ns": 1, "server": "b", "limit": 5,
    "after": "", "was": "", "new": True, "client_id": "me", "selector": "", "shared": False, "where": "",
    "ids": [], "upto": 0, "from": "", "bytes": 5,
    "unacked": False, "back": False, "values": {}, "text": "{}", "revision": 1, "drop": True,
    "limits": {"rate": 5}, "grant": ["r"], "revoke": [], "role": "", "may": ["send"], "deny": [], "open": False,
    "action": "send", "brief": True, "fullest": True, "empty": True, "group": "g",
    "servers": ["c"], "epoch": 1, "lost": ["c"], "change": "x",
}  # fmt: skip


@pytest.mark.parametrize("count", [3_000, pytest.param(10**9, marks=pytest.mark.long)])
def test_no_request_of_an_operator_ends_a_server(count):
    """Whoever asks holds the token, but is another program, perhaps of another version."""
    town, chance = Town(), random.Random(2)
    server = town.broker.servers["b"]
    plain = [junk for junk in JUNK if not isinstance(junk, msgpack.ExtType | msgpack.Timestamp)] + [[1, 2], ["a"], [-5]]
    verbs = server.requests.verbs
    tries = [(verb, name, j) for verb in sorted(verbs) for name in (*verbs[verb].arguments, "odd") for j in plain]
    for number, (verb, name, junk) in enumerate(chance.sample(tries, min(count, len(tries)))):
        args = {**{key: REQUEST[key] for key in verbs[verb].arguments if chance.random() < 0.9}, name: junk}
        server.step(Admin(number, verb, args), town.broker.now)
        if not number % 50:
            town._alone()
    town.goes_on()
