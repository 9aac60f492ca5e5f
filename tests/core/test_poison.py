"""The search for the message whose reaction kills the process."""

from random import Random

import pytest

from mombroker.agents.notifications import encode
from mombroker.core.message import new_message
from tests.core.bus import Bus
from tests.core.sample_agents import Do, Put, Sink
from tests.core.trio import AGENTS, bus, got, tell


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
        server.engine.deliver(new_message(server.tx, "a/source", (agent,), *encode(Put(text))), [agent])
    server.engine.inboxes.boxes[child].queue[0].trying = 2
    with pytest.raises(KeyboardInterrupt):
        b.pump()
    assert [row.trying for row in b.stores["b"].queue_in(child, 0, 1 << 62, 9)] == [2]


def test_a_search_for_poison_commits_once_more_for_many_messages():
    b = bus()
    b.crash("b")
    b.boot("b")
    b.cut("a", "b")
    for number in range(50):
        tell(b, "sink", f"{number}")
    b.crash("b")
    b.boot("b")
    before = b.servers["b"].tx.rows.number
    assert b.servers["b"].engine.poison.left == 512
    b.join("a", "b")
    b.pump()
    assert len(got(b)) == 50 and b.servers["b"].engine.poison.left == 512 - 50
    assert b.servers["b"].tx.rows.number - before < 20


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
