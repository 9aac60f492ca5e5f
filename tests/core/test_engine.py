"""Reactions are atomic, retried, parked; agents come, go and return; nothing waits for anybody else's failure."""

from random import Random

import pytest

from mombroker.admin.cli.agent import flat
from mombroker.agents import Agent
from mombroker.agents.notifications import encode
from mombroker.core.events import Admin
from mombroker.core.limits import Limits
from tests.core.bus import SECOND, Bus, topology
from tests.core.sample_agents import Do, Put, Sink, Source, Tell

AGENTS = "tests.core.sample_agents"
PAIR = {"x": "abc"}


def bus(**limits: int) -> Bus:
    made = Bus(
        topology(
            PAIR,
            {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink", "c/other": f"{AGENTS}:Sink"},
            allow=("tests",),
        ),
        Limits(**limits),
    )
    made.pump()
    return made


def got(bus: Bus, agent: str = "b/sink") -> list[str]:
    return bus.fields(agent)["got"]


def tell(bus: Bus, to: str | list[str], text: str, ttl: float = 0) -> None:
    bus.send("a", "source", Tell([to] if isinstance(to, str) else to, text, ttl))


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


def test_a_timer_survives_a_restart_and_rings_once():
    b = bus()
    b.send("a", "source", Do("timer", 10))
    b.later(5)
    b.crash("a")
    b.boot("a")
    b.later(4)
    assert b.fields("a/source")["news"] == ["created"]
    b.later(2)
    b.later(10)
    assert b.fields("a/source")["news"] == ["created", "rang"]


def test_time_does_not_go_back_over_a_restart():
    """Whoever turns the server begins with its `now`, which comes from its store."""
    b = bus()
    b.send("a", "source", Do("timer", 10))
    before = b.now
    b.crash("a")
    b.now -= 3600 * SECOND
    assert b.boot("a").now == before
    b.now = before
    b.send("a", "source", Do("timer", 10))
    b.later(9)
    assert b.fields("a/source")["news"] == ["created"]
    b.later(2)
    assert b.fields("a/source")["news"] == ["created", "rang", "rang"]


def test_cancelled_and_undone_timers_never_ring():
    b = bus(max_attempts=1)
    b.send("a", "source", Do("cancel", 1))
    b.send("a", "source", Do("timer and fail", 1))
    b.later(5)
    assert b.fields("a/source")["news"] == ["created"]


def test_a_deferred_function_answers_once_though_it_runs_again_after_a_crash():
    b = bus()
    b.send("a", "source", Do("defer", 21))
    b.send("a", "source", Do("defer", -1))
    assert b.fields("a/source")["news"] == ["created", 42, "negative"]
    fields = {"what": "defer", "value": 4}
    b.servers["a"].step(Admin(99, "send", {"to": ["source"], "type": Do.__wire_name__, "fields": fields}), b.now)
    b.commit("a")  # durable, but the process dies before the function runs
    b.crash("a")
    b.boot("a")
    b.pump()
    assert b.fields("a/source")["news"] == ["created", 42, "negative", 8]


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


def test_idle_agents_leave_memory_and_come_back_unchanged():
    b = bus(max_residents=1)
    for _ in range(3):
        b.send("a", "source", Do("create", 1))
    children = b.fields("a/source")["born"]
    for child in children * 2:
        tell(b, child, "more")
    assert len(b.servers["b"].engine.residents.loaded) <= 1
    assert [got(b, child) for child in children] == [["first", "more", "more"]] * 3


def test_a_message_whose_reaction_kills_the_process_is_parked_after_three_boots(monkeypatch):
    """1. Each unclean boot marks messages durably before it tries them. 2. The third dies too. 3. Parked."""
    b = bus()
    b.cut("a", "b")
    tell(b, "sink", "ask b/sink")
    tell(b, "sink", "good")
    real = Sink.put
    boots = 0

    def killer(self: Sink, note: Put) -> None:
        if note.text.startswith("ask"):
            raise KeyboardInterrupt
        real(self, note)

    monkeypatch.setitem(Sink._reactions, Put.__wire_name__, killer)
    b.join("a", "b")
    while boots < 10:
        try:
            b.pump()
            break
        except KeyboardInterrupt:
            boots += 1
            b.crash("b")
            b.boot("b")
    assert 3 <= boots <= 5
    assert got(b) == ["good"]
    assert "unclean stops" in b.ask("b", "deadletters")["letters"][0]["reason"]
    assert b.servers["b"].engine.poison.left > 0


def filled(monkeypatch, texts: list[str], agents: list[str], **limits: int) -> tuple[Bus, list[str]]:
    """A bus where every message of a crowd waits for the agents of server b, and "kill" kills it."""
    b = bus(**limits)
    for _ in agents[1:]:
        b.send("a", "source", Do("create", 1))
    names = ["b/sink", *b.fields("a/source")["born"]]
    b.cut("a", "b")
    for number, text in enumerate(texts):
        tell(b, names[number % len(names)], text)
    real = Sink.put

    def killer(self: Sink, note: Put) -> None:
        if note.text == "kill":
            raise KeyboardInterrupt
        real(self, note)

    monkeypatch.setitem(Sink._reactions, Put.__wire_name__, killer)
    b.join("a", "b")
    return b, names


def boots(b: Bus) -> int:
    """How often b dies until nothing is left to do."""
    for number in range(12):
        try:
            b.pump()
            return number
        except KeyboardInterrupt:
            b.crash("b")
            b.boot("b")
    return 12


@pytest.mark.parametrize("seed", range(24))
def test_killers_in_a_crowd_are_found_soon_and_nobody_else_is_parked(monkeypatch, seed):
    random = Random(seed)
    agents, killers = random.choice((1, 3, 90)), random.choice((1, 2))
    texts = [f"{number}" for number in range(200)]
    for place in random.sample(range(200), killers):
        texts[place] = "kill"
    limits = {"batch_bytes": random.choice((300, 3000, 1 << 20)), "turn_reactions": random.choice((3, 1024))}
    b, names = filled(monkeypatch, texts, ["x"] * agents, **limits)
    assert 3 <= boots(b) <= 5 * killers
    letters = b.ask("b", "deadletters")["letters"]
    assert ["unclean stops" in letter["reason"] for letter in letters] == [True] * killers
    for number, name in enumerate(names):
        mine = [text for text in texts[number::agents] if text != "kill"]
        assert [text for text in got(b, name) if text != "first"] == mine


def test_whoever_is_in_its_last_attempt_is_alone(monkeypatch):
    """Also where a full batch parts those that were marked together."""
    b, (_, child) = filled(monkeypatch, [], ["x"] * 2, batch_rows=1)
    b.crash("b")
    server = b.boot("b")
    for agent, text in [("b/sink", "ask a/source"), ("b/sink", "kill"), (child, "innocent")]:
        server.engine.deliver(server.message("a/source", (agent,), *encode(Put(text))), [agent])
    server.engine.inboxes.boxes[child].queue[0].trying = 2
    with pytest.raises(KeyboardInterrupt):
        b.pump()
    assert [row.trying for row in b.stores["b"].queue_in(child, 0, 1 << 62, 9)] == [2]


def test_careful_servers_commit_once_more_for_many_messages():
    b = bus()
    b.crash("b")
    b.boot("b")
    b.cut("a", "b")
    for number in range(50):
        tell(b, "sink", f"{number}")
    b.crash("b")
    b.boot("b")
    before = b.servers["b"].batch.number
    assert b.servers["b"].engine.poison.left == 512
    b.join("a", "b")
    b.pump()
    assert len(got(b)) == 50 and b.servers["b"].engine.poison.left == 512 - 50
    assert b.servers["b"].batch.number - before < 20


def test_those_behind_a_message_that_fails_are_not_taken_for_killers(monkeypatch):
    b, _ = filled(monkeypatch, ["bad", *(f"{number}" for number in range(9))], ["x"], max_attempts=40)
    for _ in range(6):
        b.pump()
        b.crash("b")
        b.boot("b")
        b.later(100)
    assert b.ask("b", "deadletters")["count"] == 0 and got(b) == []
    assert {row.trying for row in b.stores["b"].queue_in("b/sink", 0, 1 << 62, 99)} == {0}


def test_a_message_that_waits_for_a_name_is_not_taken_for_a_killer():
    b = bus()
    tell(b, "sink", "ask late")
    for _ in range(5):
        b.crash("b")
        b.boot("b")
        b.pump()
    assert b.ask("b", "deadletters")["count"] == 0
    b.ask("c", "deploy", **{"name": "late", "class": f"{AGENTS}:Sink", "server": "a"})
    assert got(b) == ["ask late"] and got(b, "a/late") == ["asked"]


def test_a_clean_stop_is_remembered():
    b = bus()
    b.servers["b"].stop()
    b.pump()
    b.crash("b")
    assert b.boot("b").engine.poison.left == 0


def test_state_must_be_plain_and_declared():
    with pytest.raises(TypeError, match="state must be plain"):
        type("Odd", (Agent,), {"__annotations__": {"seen": set}, "__module__": __name__})
    with pytest.raises(TypeError, match="redefines send"):
        type("Odd", (Agent,), {"send": 1, "__module__": __name__})
    source = Source("a/source", b"\x80")
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


def test_an_alarm_before_all_others_makes_the_driver_ask_when_it_is():
    b = bus()
    server = b.servers["a"]
    assert server.urgency == 0
    for seconds in (5, 2):
        server.natives.alarm(b.now + seconds * SECOND, server.natives.agents["a/_clients"])
        assert server.urgency == 1
        ready = b.commit("a")
        assert ready.timer == b.now + seconds * SECOND
        b.release("a", ready)
