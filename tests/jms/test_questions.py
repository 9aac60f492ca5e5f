"""A Python program asks agents, on a broker in memory."""

import sys
from importlib.machinery import ModuleSpec

import pytest

from mombroker import jms
from mombroker.agents import notification, notifications
from tests.core.bus import topology
from tests.core.sample_agents import Count, Counted, Release
from tests.jms.memory import Memory, cord


@notification
class Stranger:
    when: float


@pytest.fixture
def broker():
    return Memory(topology({"x": "ab"}, {"b/clerk": "tests.core.sample_agents:Clerk"}))


@pytest.mark.parametrize("clerk", ["clerk", "b/clerk", "/agent/clerk", jms.Agent("clerk")])
def test_an_agent_is_asked_and_answers_with_a_notification(broker, clerk):
    context = broker.connect()
    assert context.ask(clerk, Count("hat", 2), timeout=0) == Counted("hat", 2)


def test_what_an_agent_does_not_take_or_fails_at_is_refused_and_nothing_else_ends(broker):
    context = broker.connect()
    for question, reason in (
        (Release(), "b/clerk: .*Release is not for clients"),
        (Stranger(1.5), "b/clerk: Clerk has no reaction to .*Stranger"),
    ):
        with pytest.raises(jms.Refused, match=reason):
            context.ask("clerk", question, timeout=0)
    with pytest.raises(jms.Refused, match="nobody: no agent is named 'nobody' on this bus"):
        context.ask("nobody", Count("hat"), timeout=0)
    assert context.ask("clerk", Count("hat"), timeout=0).total == 1
    assert cord(context).machine.epoch == 0


def test_only_notifications_are_asked(broker):
    context = broker.connect()
    with pytest.raises(jms.MessageFormat, match="dict is no notification"):
        context.ask("clerk", {"what": "hat"})
    with pytest.raises(jms.MessageFormat, match="Stranger cannot be told to a client"):
        context.ask("clerk", Stranger(float("inf")))


def test_a_message_to_an_agent_may_be_written_by_hand(broker):
    context = broker.connect()
    answer = context.request("/agent/clerk", json={"what": "hat"}, type="tests.core.sample_agents.Count", timeout=0)
    assert (answer.type, answer.body) == ("tests.core.sample_agents.Counted", {"what": "hat", "total": 1, "stamp": ""})
    context.send(jms.Agent("clerk"), json={"what": "hat"}, type="tests.core.sample_agents.Count")
    assert context.ask("clerk", Count("hat"), timeout=0).total == 3


def test_a_question_that_was_sent_twice_is_asked_once(broker):
    context = broker.connect()
    cord(context).deaf = True
    sent = context.send("/agent/clerk", json={"what": "hat"}, type="tests.core.sample_agents.Count", wait=False)
    cord(context).lose()
    sent.wait(0)
    assert context.ask("clerk", Count("hat"), timeout=0).total == 2


def test_nobody_consumes_from_an_agent(broker):
    with pytest.raises(jms.InvalidDestination, match="what an agent answers comes to the reply-to"):
        broker.connect().consumer("/agent/clerk")


@pytest.mark.parametrize("spec", [ModuleSpec("shop.front", None), None])
def test_a_program_that_is_a_module_asks_by_its_name_and_one_that_is_a_file_learns_what_to_do(
    broker, monkeypatch, spec
):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(notifications, "TYPES", {})
    cls = notification(type("Lonely", (), {"__module__": "__main__"}))
    refused, why = (
        (jms.Refused, "Clerk has no reaction to shop.front.Lonely")
        if spec
        else (
            jms.MessageFormat,
            r"no agent knows __main__.Lonely, .*: run it by python -m, .*@notification\(name=\.\.\.\)",
        )
    )
    with pytest.raises(refused, match=why):
        broker.connect().ask("clerk", cls(), timeout=0)
