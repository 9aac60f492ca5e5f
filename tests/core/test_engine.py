"""Reactions are atomic, retried, parked; agents come, go and return; nothing waits for anybody else's failure."""

import msgpack
import pytest

from mombroker.admin.cli.agent import flat
from mombroker.agents import Agent
from mombroker.core.events import Admin
from tests.core.bus import SECOND, Bus, topology
from tests.core.sample_agents import Do, Put, Source
from tests.core.trio import AGENTS, bus, got, tell


def test_a_declared_agent_is_created_once_and_keeps_its_state():
    b = bus()
    tell(b, "sink", "one")
    b.crash("b")
    b.boot("b")
    tell(b, "sink", "two")
    assert got(b) == ["one", "two"]
    assert b.fields("a/source")["news"] == ["created"]


def test_a_multicast_is_one_send_and_one_copy_a_server():
    b = bus()
    tell(b, ["sink", "other"], "hello")
    assert got(b) == got(b, "c/other") == ["hello"]
    sends = [row for row in b.records("a", "send") if row["detail"] == Put.__wire_name__]
    assert [row["dests"] for row in sends] == [("b/sink", "c/other")]
    assert [peer for _, peer, _, _ in sends[0]["out"]] == ["b", "c"]


def test_a_failing_reaction_leaves_no_trace_is_retried_and_holds_back_only_its_agent():
    b = bus(max_attempts=3)
    tell(b, "sink", "bad one")
    tell(b, "sink", "after")
    tell(b, "other", "free")
    assert got(b) == [] and got(b, "c/other") == ["free"]
    assert b.stores["b"].item_count("b/sink", "rows") == 0
    b.later(1)
    b.later(1)
    assert got(b) == ["after"]
    assert [row.key for row in b.stores["b"].items("b/sink", "rows", None, 10)] == [len("after")]
    assert b.fields("a/source")["news"][1:] == ["ReactionFailed b/sink ValueError: no bad one"]
    letter = b.ask("b", "deadletter", id=b.ask("b", "deadletters")["letters"][0]["id"])
    assert letter["attempts"] == 3 and "raise ValueError" in letter["traceback"]
    assert letter["payload"] == {"text": "bad one"}


def test_an_agent_that_fails_waits_though_it_has_just_sent_itself_a_message():
    b = bus()
    b.cut("a", "b")
    tell(b, "sink", "ask b/sink")
    tell(b, "sink", "bad one")
    b.join("a", "b")
    b.pump()
    assert got(b) == ["ask b/sink"]
    assert [row.attempts for row in b.stores["b"].queue_in("b/sink", 0, 1 << 62, 9)] == [1, 0]


def test_attempts_survive_a_crash():
    b = bus(max_attempts=3)
    tell(b, "sink", "bad one")
    b.crash("b")
    b.boot("b")
    b.pump()
    b.later(1)
    assert len(b.ask("b", "deadletters")["letters"]) == 1


def test_a_dead_letter_can_be_retried_or_dropped():
    b = bus(max_attempts=1)
    for text in ("bad one", "bad two"):
        tell(b, "sink", text)
    first, second = (letter["id"] for letter in b.ask("b", "deadletters")["letters"])
    assert b.ask("b", "drop", id=first) == {"dropped": first}
    assert b.ask("b", "retry", id=second)["to"] == ["b/sink"]
    assert [letter["id"] > second for letter in b.ask("b", "deadletters")["letters"]] == [True]
    assert "no dead letter" in b.ask("b", "drop", id=first)


def test_an_unknown_agent_is_told_to_the_sender():
    b = bus()
    tell(b, "b/nobody", "hello")
    assert b.fields("a/source")["news"][1:] == ["UnknownAgent b/nobody unknown agent"]


def test_an_unknown_type_is_parked_without_retries():
    b = bus()
    b.send("a", "sink", Do("nothing"))
    letters = b.ask("b", "deadletters")["letters"]
    assert [letter["attempts"] for letter in letters] == [0]
    assert "Sink has no reaction to" in letters[0]["reason"]


def test_a_message_expires_while_its_agent_is_behind_and_in_transit():
    b = bus(max_attempts=9)
    tell(b, "sink", "bad one")
    tell(b, "sink", "short", ttl=0.5)
    b.later(1)
    for _ in range(9):
        b.later(60)
    assert got(b) == []
    assert "Expired b/sink expired" in b.fields("a/source")["news"]


def test_a_router_does_not_forward_what_has_expired_and_the_stream_goes_on():
    b = Bus(topology({"x": "abd", "y": "bce"}, {"a/source": f"{AGENTS}:Source", "c/sink": f"{AGENTS}:Sink"}))
    b.pump()
    b.cut("a", "b")
    tell(b, "sink", "short", ttl=0.5)
    tell(b, "sink", "long")
    b.now += SECOND
    b.join("a", "b")
    b.pump()
    assert got(b, "c/sink") == ["long"]
    assert [row["agent"] for row in b.records("b", "expire")] == [""]
    assert b.fields("a/source")["news"][1:] == ["Expired  expired"]


def test_a_reaction_waits_for_a_name_without_counting_an_attempt():
    b = bus(max_attempts=1)
    tell(b, "sink", "ask late")
    tell(b, "sink", "behind")
    assert got(b) == []
    assert [wait["name"] for wait in b.ask("b", "why")["waits"]] == ["late"]
    assert b.ask("c", "deploy", **{"name": "late", "class": f"{AGENTS}:Sink", "server": "a"})["agent"] == "a/late"
    assert got(b) == ["ask late", "behind"]
    assert got(b, "a/late") == ["asked"]


@pytest.mark.parametrize("name", ["/queue/q", "/topic/t", "queue:new", "/"])
def test_a_notification_to_a_queue_or_topic_fails_with_what_to_do_instead(name):
    b = bus(max_attempts=1)
    tell(b, "sink", f"ask {name}")
    (letter,) = b.ask("b", "deadletters")["letters"]
    assert f"{name!r} is a destination of clients, and notifications go to agents: name one" in letter["reason"]


@pytest.mark.parametrize("name", ["", "_late", "no name"])
def test_a_reaction_does_not_wait_for_what_can_never_be_a_name(name):
    b = bus(max_attempts=1)
    tell(b, "sink", f"ask {name}")
    tell(b, "sink", "behind")
    assert got(b) == ["behind"]
    (letter,) = b.ask("b", "deadletters")["letters"]
    assert "cannot be an agent's name" in letter["reason"]


def test_a_name_is_decided_once():
    b = bus()
    b.cut("a", "b")
    b.cut("a", "c")
    asked = {"name": "late", "class": f"{AGENTS}:Sink"}
    assert b.ask("b", "deploy", server="b", **asked) is None
    assert b.ask("c", "deploy", server="c", **asked) is None
    b.join("a", "b")
    b.pump()
    b.join("a", "c")
    b.pump()
    answers = sorted(map(str, b.replies.values()))
    assert any("'agent': 'b/late'" in answer for answer in answers)
    assert any("is taken" in answer for answer in answers)
    assert {server.names.known["late"] for server in b.servers.values()} == {"b/late"}
    assert b.stores["c"].agent("c/late") is None


def test_only_allowed_classes_are_deployed():
    b = bus()
    assert "may not be deployed" in b.ask("a", "deploy", **{"name": "x", "class": "os:system"})


def test_an_agent_is_shown_with_its_name_and_the_first_items_of_its_collections():
    b = bus()
    for number in range(7):
        tell(b, "sink", "x" * (7 - number))
    shown = b.ask("b", "agent", agent="sink")
    assert (shown["agent"], shown["name"], shown["fields"]["tries"]) == ("b/sink", "sink", 0)
    rows = shown["items"]["rows"]
    assert rows["rows"] == 7 and [(row["key"], row["value"]) for row in rows["first"]] == [
        (length, "x" * length) for length in range(1, 6)
    ]
    row = flat(shown)
    assert (row["fields.tries"], row["fields.got"][:12], row["items.rows"]) == ("0", '["xxxxxxx", ', "7 rows")
    assert row["first of items.rows"][0]["value"] == '"x"' and len(row["first of items.rows"]) == 5


@pytest.mark.parametrize("home", [0, 1])
def test_create_then_send_is_safe_and_a_deleted_agent_is_unknown(home):
    b = bus()
    b.send("a", "source", Do("create", home))
    child = b.fields("a/source")["born"][0]
    assert child.startswith("ab"[home]) and got(b, child) == ["first"]
    b.send("a", "source", Do("delete"))
    assert b.fields(child) == {}
    assert b.stores["ab"[home]].item_count(child, "rows") == 0
    assert b.fields("a/source")["news"][1:] == [f"UnknownAgent {child} unknown agent"]
    born, dead = b.records("ab"[home], "create", "delete")[-2:]
    assert (born["kind"], dead["kind"]) == ("create", "delete") and born["agent"] == dead["agent"] == child


def test_an_inbox_beyond_its_window_waits_on_disk_in_order():
    b = bus(max_inbox=10, max_attempts=9)
    tell(b, "sink", "bad first")
    for number in range(300):
        tell(b, "sink", f"{number}")
    assert b.servers["b"].engine.inboxes.in_memory <= 11
    for _ in range(2):
        assert b.ask("b", "agent", agent="sink")["waiting"] == 301
        assert [wait["behind"] for wait in b.ask("b", "why")["waits"]] == [300]
        b.crash("b")
        b.boot("b")
        b.pump()
    for _ in range(9):
        b.later(60)
    assert got(b) == [str(number) for number in range(300)]


def waiting(server):
    """The texts of what `sink` has still to react to."""
    return [msgpack.unpackb(message.payload)[0] for message in server.engine.inboxes.waiting("b/sink")]


def test_what_an_agent_has_still_to_react_to_is_seen_wherever_it_is():
    """The first ones are in memory, others durable, in the batch that is on its way, and in the open one."""
    b = bus(max_inbox=10, max_attempts=9)
    tell(b, "sink", "bad first")
    for number in range(300):
        tell(b, "sink", f"{number}")
    server, type = b.servers["b"], Put.__wire_name__
    texts = ["bad first", *map(str, range(300))]
    assert waiting(server) == texts
    for number in (300, 301):
        fields = {"text": str(number)}
        server.step(Admin(number, "send", {"to": ["sink"], "type": type, "fields": fields}), server.tx.now)
        texts.append(str(number))
        assert waiting(server) == texts
        if number == 300:
            server.ready(server.tx.now)
    assert [*server.engine.inboxes.waiting("b/nobody")] == []


def test_idle_agents_leave_memory_and_come_back_unchanged():
    b = bus(max_residents=1)
    for _ in range(3):
        b.send("a", "source", Do("create", 1))
    children = b.fields("a/source")["born"]
    for child in children * 2:
        tell(b, child, "more")
    assert len(b.servers["b"].engine.residents.loaded) <= 1
    assert [got(b, child) for child in children] == [["first", "more", "more"]] * 3


def test_state_must_be_plain_and_declared():
    with pytest.raises(TypeError, match="state must be plain"):
        type("Odd", (Agent,), {"__annotations__": {"seen": set}, "__module__": __name__})
    with pytest.raises(TypeError, match="redefines send"):
        type("Odd", (Agent,), {"send": 1, "__module__": __name__})
    source = Source("a/source", b"\x80", "a")
    source.extra = 1
    with pytest.raises(TypeError, match="set extra"):
        source.pack()
    source.unpack(b"\x80")
    source.news = (1, 2)
    with pytest.raises(TypeError, match="a tuple cannot be stored or sent: use a list"):
        source.pack()
    source.unpack(b"\x80")
    source.news = 1 << 64
    with pytest.raises(TypeError, match="an int of more than 64 bits cannot be stored or sent"):
        source.pack()
