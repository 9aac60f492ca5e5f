"""Agents that publish in total order what is not due, when the topic is deleted."""

from mombroker.agents import Agent, Undeliverable, notification, reacts
from mombroker.agents.testing import Bus


@notification
class Say:
    text: str
    delay: float


class Herald(Agent):
    told: list[list[str]] = []  # noqa: RUF012 - its state

    @reacts
    def say(self, note: Say) -> None:
        self.publish("/topic/news", note.text, delay=note.delay)

    @reacts
    def lost(self, note: Undeliverable) -> None:
        self.told.append([note.agent, note.reason])


def test_an_agent_is_told_of_each_message_that_was_not_due():
    policy = {"match": "topic:news", "order": "total"}
    bus = Bus({"a/x": Herald, "b/y": Herald}, servers=["c"], policies=[policy])
    bus.ask("create_topic", server="c", destination="topic:news")
    bus.settle()
    for at, name in (("a", "x"), ("b", "y")):
        bus.send(name, Say("late", 100.0), server=at)
        bus.send(name, Say("soon", 0.5), server=at)
    bus.advance(5)
    assert bus.ask("delete_topic", server="c", destination="topic:news")["delayed"] == 2
    bus.advance(5)
    assert [bus.state(each)["told"] for each in "xy"] == [[["c/topic:news", "topic:news was deleted"]]] * 2
    assert sorted(each.text for each in bus.receive("/queue/DLQ.news", server="c")) == ["late", "late"]
    bus.check()
