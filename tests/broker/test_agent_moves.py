"""An agent that takes messages from queues and topics moves: it has them all, once, wherever it lives."""

from __future__ import annotations

from mombroker.agents import Agent, Table, consumes, subscribes
from mombroker.agents.messages import Delivered
from tests.broker.bench import Broker
from tests.core.bus import topology


class Taker(Agent):
    got: list = []
    times: Table
    bodies: Table

    @consumes("/queue/orders")
    def order(self, message: Delivered) -> None:
        self._note(message.body.decode() if isinstance(message.body, bytes) else message.body)

    @subscribes("/topic/news.*")
    def news(self, message: Delivered) -> None:
        self._note(message.body.decode() if isinstance(message.body, bytes) else message.body)

    def _note(self, text):
        assert len(self.times) == len(self.got) and [*dict(self.bodies.items()).values()] == self.got
        self.times[text] = len(self.got)
        self.bodies[len(self.got)] = text
        self.got.append(text)


PATH = f"{__name__}:Taker"


def bus():
    b = Broker(topology({"x": "abc"}, {"a/taker": PATH}, allow=("tests",)))
    b.pump()
    return b


def got(b, server):
    return b.program.describe(*b.stores[server].agent("a/taker"))["got"]


def test_it_goes_on_to_take_from_where_it_took():
    b = bus()
    client = b.connect("c")
    client.send("queue:orders", "1").send("topic:news.a", "2")
    assert got(b, "a") == ["1", "2"]
    for number, (at, to) in enumerate((("a", "b"), ("b", "c"), ("c", "a"), ("a", "b"))):
        b.ask(at, "move_agent", agent="taker", to=to)
        b.connect("c").send("queue:orders", f"q{number}").send("topic:news.b", f"t{number}")
        assert got(b, to)[-2:] == [f"q{number}", f"t{number}"]
        assert {each["home"] for each in b.ask(to, "agent", agent="taker")["consumes"]} != {""}
        for name in "abc":
            b.reboot(name)
        b.pump()
    assert len(got(b, "b")) == len(set(got(b, "b"))) == 10
    assert b.queue("queue:orders").messages.count == 0


def test_what_it_had_not_settled_comes_along():
    b = bus()
    client = b.connect("c")
    b.cut("a", "c")
    b.cut("b", "c")
    client.send("queue:orders", *map(str, range(150)))
    b.ask("a", "move_agent", agent="taker", to="b")
    b.join("a", "c")
    b.join("b", "c")
    b.pump()
    assert got(b, "b") == [*map(str, range(150))]
    b.ask("b", "delete", agent="taker")
    client.send("queue:orders", "later")
    assert b.queue("queue:orders").messages.count == 1 and not b.queue("queue:orders").consumers.consumers
