"""What authors say of their classes: retries, final errors, names of before, versions, timers that come again."""

import sys
import types

import pytest

from mombroker.agents import Agent, Delivered, Reject, agent, consumes, notification, reacts, subscribes
from mombroker.agents.agent import initial, path_of
from mombroker.agents.declaring import NAMES
from mombroker.core.errors import MomError
from tests.broker.bench import Broker
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put

HERE = __name__


@notification
class Try:
    how: str


@notification
class Tick:
    number: int = 0


@agent(attempts=3, first=2, factor=3, most=5, fatal=(KeyError,))
class Tryer(Agent):
    """Fails as it is told."""

    tries: int = 0

    @reacts
    def go(self, note: Try) -> None:
        if note.how == "key":
            raise KeyError("gone")
        if note.how == "reject":
            raise Reject("not for us")
        raise ValueError(note.how)

    @consumes("/queue/tries")
    def take(self, message: Delivered) -> None:
        raise Reject("no")


class Watcher(Agent):
    """Takes what it is told to, as well as it can."""

    said: str = ""
    got: list = []

    @reacts
    def watch(self, note: Put) -> None:
        try:
            self.subscribe(note.text)
        except MomError as error:
            self.said = str(error)

    @subscribes("/topic/pri*")
    def prices(self, message: Delivered) -> None:
        self.got.append(message.text)


class Ticker(Agent):
    """Rings every ten seconds, until it is told to stop."""

    times: list = []
    timer_id: int = 0

    @reacts
    def begin(self, note: Put) -> None:
        if note.text == "stop":
            self.cancel(self.timer_id)
        else:
            self.timer_id = self.every(10, Tick())

    @reacts
    def tick(self, note: Tick) -> None:
        self.times.append(self.now)


def test_a_class_says_how_often_its_reactions_are_tried_and_at_which_intervals():
    b = Bus(topology({"x": "abc"}, {"b/tryer": f"{HERE}:Tryer"}))
    b.send("a", "tryer", Try("hard"))
    failures = [b.servers["b"].engine.failures]
    for _ in range(10):
        b.later(1)
        failures.append(b.servers["b"].engine.failures)
    assert failures == [1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3]
    assert b.ask("b", "deadletters")["letters"][0]["attempts"] == 3


def test_errors_that_are_final_are_not_tried_again_and_leave_other_messages_alone():
    b = Broker(topology({"x": "abc"}, {"b/tryer": f"{HERE}:Tryer"}))
    for how in ("key", "reject"):
        b.send("a", "tryer", Try(how))
    letters = b.ask("b", "deadletters")["letters"]
    assert [(letter["reason"], letter["attempts"]) for letter in letters] == [
        ("KeyError: 'gone'", 1), ("Reject: not for us", 1),
    ]  # fmt: skip
    dead = b.connect("a").subscribe("d", "queue:DLQ.tries")
    b.connect("c").send("queue:tries", "1")
    assert dead.texts == ["1"]


def test_a_timer_comes_again_until_it_is_cancelled_and_makes_up_for_nothing():
    b = Bus(topology({"x": "abc"}, {"b/ticker": f"{HERE}:Ticker"}))
    b.send("a", "ticker", Put("go"))
    begun = b.now
    for _ in range(31):
        b.later(1)
    assert len(b.fields("b/ticker")["times"]) == 3
    b.crash("b")
    b.later(34)
    b.boot("b")
    b.pump()
    b.later(0)
    for _ in range(10):
        b.later(1)
    times = [(at - begun) // 10**9 for at in b.fields("b/ticker")["times"]]
    assert times[:3] == [10, 20, 30] and len(times) == 5 and times[4] == 70
    b.send("a", "ticker", Put("stop"))
    b.later(100)
    assert len(b.fields("b/ticker")["times"]) == 5 and not b.stores["b"].disk.tasks


OLD = """
from mombroker.agents import Agent, Items, notification, reacts
from tests.core.sample_agents import Put
class Account(Agent):
    balance: int = 0
    @reacts
    def put(self, note: Put): self.balance += int(note.text)
class Opener(Agent):
    made: str = ""
    @reacts
    def put(self, note: Put): self.made = self.create(Account, server="c", balance=int(note.text))
"""
NEW = """
from mombroker.agents import Agent, agent, reacts
from tests.core.sample_agents import Put
@agent(version=2, aliases=("bank_old:Account",))
class Konto(Agent):
    cents: int
    note: str = "new"
    @classmethod
    def migrate(cls, version, fields):
        assert version == 1
        return {"cents": 100 * fields["balance"]}
    @reacts
    def put(self, note: Put): self.cents += 100 * int(note.text)
@agent(aliases=("bank_old:Opener",))
class Opener(Agent):
    made: str = ""
    @reacts
    def put(self, note: Put): self.made = self.create(Konto, server="c", cents=100 * int(note.text))
"""


@pytest.fixture
def module(monkeypatch):
    """Makes modules of a text, and takes them away."""
    known = dict(NAMES)

    def make(name, text):
        made = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, made)
        exec(text, made.__dict__)

    yield make
    NAMES.clear()
    NAMES.update(known)


def test_a_class_is_renamed_and_changed_while_agents_of_it_live(module, monkeypatch):
    module("bank_old", OLD)
    b = Bus(topology({"x": "abc"}, {"b/account": "bank_old:Account"}))
    b.send("a", "account", Put("5"))
    assert b.fields("b/account") == {"balance": 5}
    b.crash("b")
    b.send("a", "account", Put("2"))
    monkeypatch.delitem(sys.modules, "bank_old")
    module("bank_new", NEW)
    b.program._classes.clear()
    b.boot("b")
    b.join("a", "b")
    b.pump()
    assert b.fields("b/account") == {"cents": 700, "note": "new"}
    b.crash("b"), b.boot("b"), b.pump()
    b.send("a", "account", Put("1"))
    assert b.fields("b/account")["cents"] == 800 and b.ask("b", "deadletters")["count"] == 0


def test_an_older_program_keeps_what_a_newer_one_makes_until_it_is_there_too(module, monkeypatch):
    """During a rolling restart: the new version creates by the old name, and what it has made waits."""
    module("bank_new", NEW)
    new = sys.modules["bank_new"].Konto
    assert path_of(new) == "bank_old:Account"
    state = initial(new, {"cents": 5})
    NAMES.clear()
    module("bank_old", OLD)
    b = Bus(topology({"x": "abc"}, {"b/sink": "tests.core.sample_agents:Sink"}))
    b.stores["b"].disk.agents["b/account"] = ("bank_old:Account", state)
    b.crash("b"), b.boot("b"), b.pump()
    b.send("b", "b/account", Put("1"))
    assert b.ask("b", "deadletters")["count"] == 0
    assert any("of version 2" in line for line in b.ask("b", "status")["problems"])
    b.crash("b")
    monkeypatch.delitem(sys.modules, "bank_old")
    module("bank_new", NEW)
    b.program._classes.clear()
    b.boot("b")
    b.pump()
    assert b.fields("b/account")["cents"] == 105


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 0}, "whole number from 1"),
        ({"aliases": ("no path",)}, "path of a class"),
        ({"attempts": -1}, "not negative"),
    ],
)
def test_what_is_wrong_is_said_when_the_class_is_made(options, said):
    with pytest.raises(TypeError, match=said):
        agent(**options)(type("Some", (Agent,), {}))


def test_an_alias_is_of_one_class(module):
    with pytest.raises(TypeError, match="already"):
        for name in ("One", "Other"):
            agent(aliases=("tests.nowhere:Thing",))(type(name, (Agent,), {}))


def test_an_agent_subscribes_to_no_wildcard_within_a_word():
    """That it would wait for in vain."""
    b = Broker(topology({"x": "a"}, {"a/watcher": f"{HERE}:Watcher"}))
    b.ask("a", "send", to=["watcher"], type=Put.__wire_name__, fields={"text": "/topic/news*"})
    b.pump()
    assert "'news*' has a wildcard within a word" in b.fields("a/watcher")["said"]
    (note,) = {line for line in b.servers["a"].tx.notes if "takes nothing" in line}
    assert "a/watcher takes nothing from /topic/pri*: 'pri*' has a wildcard within a word" in note
