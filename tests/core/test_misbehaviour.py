"""What an agent's code may do wrong is that agent's failure: the server, its links and all other agents go on."""

import sys
from collections.abc import Callable

import pytest

from mombroker.agents import Agent, Items, Table, notification
from mombroker.broker.attach import attach
from mombroker.core.errors import SENTENCE_CHARS, PeerError
from mombroker.core.events import LinkFrames
from mombroker.core.limits import Limits
from mombroker.core.server import AgentServer
from tests.core.bus import SECOND, Bus, adopt, topology
from tests.core.sample_agents import Do, Put, Source, Tell

AGENTS = "tests.core.sample_agents"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Fragile(Agent):
    def on_load(self) -> None:
        raise ValueError("cannot load")


def fail(error: BaseException) -> Callable[[Source], None]:
    def deed(agent: Source) -> None:
        raise error

    return deed


DEEDS = {
    "exits": (fail(SystemExit(3)), "SystemExit: 3"),
    "ends a generator": (fail(GeneratorExit()), "GeneratorExit"),
    "raises what has no words": (fail(Mute()), "Mute, which cannot say more"),
    "raises what is not Unicode": (fail(ValueError("bad \ud800")), r"ValueError: bad \ud800"),
    "raises very much": (fail(ValueError("x" * 100_000)), "ValueError: xxx"),
    "an id of two lines": (lambda agent: agent.send("b/x\ny", Put("")), "cannot be an agent's id"),
    "an id that is not Unicode": (lambda agent: agent.send("b/\ud800", Put("")), "cannot be an agent's id"),
    "an endless id": (lambda agent: agent.send("b/" + 5000 * "x", Put("")), "cannot be an agent's id"),
    "a name of two lines": (lambda agent: agent.send("x\ny", Put("")), "cannot be an agent's id"),
    "too many receivers": (lambda agent: agent.send([f"b/x{i}" for i in range(1000)], Put("")), "a list of receivers"),
    "many receivers of much": (
        lambda agent: agent.send(["b/x", "b/" + 200 * "y"], Put(3900 * "x")),
        "a list of receivers",
    ),
    "a large child": (lambda agent: agent.create(Source, server="b", news=["x" * 5000]), "the state of a new agent"),
    "no receiver": (lambda agent: agent.send(None, Put("")), "TypeError: send takes an agent's id or name"),
    "a class for a notification": (lambda agent: agent.send("sink", Put), "TypeError: send a Put(...), not the class"),
    "creates what is no agent": (lambda agent: agent.create({}), "TypeError: create takes a class of agents"),
    "cancels no timer": (lambda agent: agent.cancel([]), "TypeError: cancel takes"),
    "a timer that comes all the time": (
        lambda agent: agent.every(0.009, Put("")),
        "a timer that comes again has a period of at least 0.01 s",
    ),
    "a large row": (
        lambda agent: Table(agent, "rows").set("key", "x" * 4000),
        "a row of rows of 4003 bytes is over the limit of 4000: make it smaller or raise max_message in [limits]",
    ),
    "a large item": (lambda agent: Items(agent, "rows").add("x" * 4000), "an item of rows of 4003 bytes is over the"),
    "a key too large": (lambda agent: Items(agent, "rows").add(1, 1 << 63), "a key is an integer of 64 bits"),
}


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Source], None]], Bus]:
    def make(deed: Callable[[Source], None]) -> Bus:
        agents = {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink"}
        made = Bus(topology({"x": "ab"}, agents, allow=("tests",)), Limits(max_attempts=1, max_message=4000))
        made.pump()
        monkeypatch.setitem(Source._reactions, Do.__wire_name__, lambda agent, note: deed(agent))
        made.send("b", "source", Do(""))
        return made

    return make


def goes_on(bus: Bus) -> None:
    for name in "ab":
        bus.crash(name)
        bus.boot(name)
        bus.pump()
    bus.send("a", "sink", Put("after"))
    bus.send("b", "source", Put("after"))
    assert bus.fields("b/sink")["got"] == ["after"]
    assert bus.fields("a/source")["news"][-1] == "after"


@pytest.mark.parametrize("name", DEEDS)
def test_a_reaction_that_does_what_cannot_be_done_is_parked(bus, name):
    deed, reason = DEEDS[name]
    made = bus(deed)
    (letter,) = made.ask("a", "deadletters")["letters"]
    assert reason in letter["reason"] and len(letter["reason"]) <= SENTENCE_CHARS
    goes_on(made)


@pytest.mark.parametrize("seconds", [1e15, -1e15])
def test_a_time_beyond_all_clocks_is_kept_as_the_last(bus, seconds):
    def deed(agent: Source) -> None:
        agent.timer(seconds, Put("rang"))
        agent.send("sink", Put("in time"), ttl=1e15)

    made = bus(deed)
    made.later(1)
    assert made.fields("b/sink")["got"] == ["in time"]
    assert made.fields("a/source")["news"] == ["created"] + ["rang"] * (seconds < 0)
    made.crash("a")
    made.boot("a")
    made.pump()


def test_an_agent_that_cannot_be_loaded_is_retried_and_its_message_parked(bus):
    made = bus(lambda agent: agent.send(agent.create(Fragile, server="b"), Put("")))
    assert ["cannot load" in letter["reason"] for letter in made.ask("b", "deadletters")["letters"]] == [True, True]
    goes_on(made)


def test_a_module_that_fails_when_it_is_imported_is_refused(bus, tmp_path, monkeypatch):
    (tmp_path / "tests_broken.py").write_text("raise SystemExit('no library')")
    monkeypatch.syspath_prepend(tmp_path)

    class Ghost(Agent):
        pass

    Ghost.__module__, Ghost.__qualname__ = "tests_broken", "Ghost"
    made = bus(lambda agent: agent.create(Ghost, server="b"))
    made.program.allow = ("tests", "tests_broken")
    made.send("b", "source", Do(""))
    reasons = [letter["reason"] for letter in made.ask("b", "deadletters")["letters"]]
    assert "may not be deployed" in reasons[0] and "SystemExit: no library" in reasons[1]
    reply = made.ask("a", "deploy", **{"name": "ghost", "class": "tests_broken:Ghost"})
    assert "cannot be imported" in reply
    assert "tests_broken" not in sys.modules
    goes_on(made)


def test_the_result_of_a_deferred_function_has_the_limit_of_a_message(bus):
    made = bus(lambda agent: agent.defer(twice, "x" * 3000))
    assert made.fields("a/source")["news"][-1].startswith("its result of 6003 bytes is over the limit of 4000")


def twice(text: str) -> str:
    return text + text


def test_a_module_that_fails_when_its_notification_is_named_is_refused(bus, tmp_path, monkeypatch):
    (tmp_path / "tests_broken.py").write_text("raise SystemExit('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    made = bus(lambda agent: None)
    made.program.allow = ("tests", "tests_broken")
    reply = made.ask("a", "send", to=["b/sink"], type="tests_broken.Letter")
    assert reply == "tests_broken cannot be imported: SystemExit: no library"
    goes_on(made)


@pytest.mark.parametrize(
    ("verb", "args", "what"),
    [
        ("send", {"to": "b/sink"}, "'b/sink' as its to"),
        ("send", {"to": [1]}, "[1] as its to"),
        ("send", {"to": [], "type": "x"}, "needs a receiver"),
        ("send", {"to": ["b/sink"], "type": 5}, "5 as its type"),
        ("send", {"to": ["b/sink"], "fields": ["x"]}, "['x'] as its fields"),
        ("send", {"to": ["b/sink"], "ttl_ns": 1 << 63}, "9223372036854775808 as its ttl_ns"),
        ("send", {"to": ["b/sink"]}, "needs type, a text"),
        (
            "send",
            {"to": [f"b/x{i}" for i in range(999)], "type": Put.__wire_name__, "fields": {"text": ""}},
            "are over",
        ),
        ("agent", {"agent": None}, "None as its agent"),
        ("agent", {"agent": "/"}, "'/' is a destination of clients"),
        ("send", {"to": ["/queue/q"], "type": "x"}, "'/queue/q' is a destination of clients"),
        ("agents", {"limit": -1}, "-1 as its limit"),
        ("deadletter", {"id": "x"}, "'x' as its id"),
        ("deadletter", {"id": 1 << 63}, "9223372036854775808 as its id"),
        ("deadletters", {"after": "x"}, "'x' as its after, which is a list of whole numbers"),
        ("deadletters", {"after": [1]}, "after [time, id]"),
        ("deploy", {"name": "x", "class": "tests.core.sample_agents:Sink", "server": 1}, "1 as its server"),
        ("set_user", {"user": True, "hash": ""}, "True as its user"),
    ],
)
def test_a_request_out_of_shape_is_refused(bus, verb, args, what):
    made = bus(lambda agent: None)
    assert what in made.ask("a", verb, **args)
    goes_on(made)


def test_a_life_beyond_all_clocks_is_for_ever(bus):
    made = bus(lambda agent: None)
    made.ask("a", "send", to=["b/sink"], type=Put.__wire_name__, fields={"text": "x"}, ttl_ns=(1 << 63) - 1)
    assert made.fields("b/sink")["got"] == ["x"]


def test_operators_are_held_to_the_same_addresses(bus):
    made = bus(lambda agent: None)
    assert "cannot be an agent's id" in made.send("a", "b/x\ny", Put(""))
    assert made.now >= SECOND
    goes_on(made)


@pytest.mark.parametrize("name", ["_named", "a\nb", "\ud800", "x" * 300])
def test_a_notification_has_a_name_that_survives_the_wire(name):
    with pytest.raises(TypeError, match="cannot name a notification"):
        notification(name=name)(type("Odd", (), {}))


def test_a_peer_that_speaks_of_a_domain_of_others_is_refused():
    made = Bus(topology({"x": "ab", "y": "bc"}, {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink"}))
    made.send("a", "source", Tell(["sink"], "one"))
    conn = made.servers["b"].channel.domains["x"].link("a").conn
    for frame in ("data", "y", 1, [b""]), ("ack", "y", 0, 10), ("ack", "z", 0, 10):
        with pytest.raises(PeerError, match="speaks of domain"):
            made.servers["b"].step(LinkFrames("a", conn, [frame]), made.now)
    assert list(made.servers["b"].channel.domains["y"].links) == []


def test_what_a_server_sent_before_it_left_the_bus_is_reacted_to_and_parked_as_ever():
    agents = {"c/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink"}
    made = Bus(topology({"x": "abc"}, agents), Limits(max_attempts=2))
    made.pump()
    made.send("c", "source", Tell(["sink"], "bad"))
    made.send("c", "source", Tell(["sink"], "good"))
    made.servers["b"].stop()
    made.commit("b")
    rest = topology({"x": "ab"}, {"b/sink": agents["b/sink"]})
    adopt(made.stores["b"], rest, "b")
    server = AgentServer(rest, "b", made.stores["b"], made.program, attach, made.now + SECOND, Limits(max_attempts=2))
    server.turn(made.now + SECOND)
    made.stores["b"].commit(server.ready(made.now + SECOND).batch)
    assert made.fields("b/sink")["got"] == ["good"]
    assert [row["hops"] for row in made.records("b", "react")][-1] == 0
    assert len(server.dead_letters.letters) == 1
