"""Which code may be named from outside, and what is imported for it."""

import sys

import pytest

from mombroker.admin.cli.status import sentence
from mombroker.agents import Agent, notification, reacts
from mombroker.agents.program import Program, faults, program
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl
from tests.core import sample_agents
from tests.core.bus import Bus, adopt, topology
from tests.core.sample_agents import Put, Tell

SINK = "tests.core.sample_agents:Sink"
NO_SINK = "cannot be imported: module 'tests.core.sample_agents' has no attribute 'Sink'"
MODULE = """
from mombroker.agents import notification

@notification
class Letter:
    text: str
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module that nobody has imported yet."""
    (tmp_path / "corner_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "corner_shop.Letter"
    sys.modules.pop("corner_shop", None)


def test_a_notification_of_an_allowed_module_can_be_sent_before_anybody_has_imported_it(shop):
    program = Program(("corner_shop",), frozenset())
    payload = program.compose(shop, {"text": "hello"})
    assert program.read(shop, payload) == {"text": "hello"}


def test_no_other_module_is_imported_for_somebody_outside(shop):
    (name := shop.rpartition(".")[0])
    with pytest.raises(MomError, match="within allow"):
        Program(("other",), frozenset()).compose("unheard_of.Letter", {})
    with pytest.raises(MomError, match="may not be deployed here"):
        Program(("other",), frozenset()).allowed(f"{name}:Agent", remote=True)
    assert name not in sys.modules


def renamed(b: Bus, monkeypatch: pytest.MonkeyPatch, **names: object) -> None:
    """The server stops, its module changes, and it starts again, four times."""
    for name, value in names.items():
        if value is None:
            monkeypatch.delattr(sample_agents, name)
        else:
            monkeypatch.setattr(sample_agents, name, value, raising=False)
    b.program = program(b.topology)
    for _ in range(4):
        b.crash("a")
        b.boot("a")
        b.later(100)


def test_messages_of_an_agent_whose_class_cannot_be_imported_wait_until_it_can_again(monkeypatch):
    """No attempt counts, nothing becomes a dead letter, and other agents go on."""
    b = Bus(topology({}, allow=("tests",)))
    for name, cls in (("lost", "Sink"), ("lost.2", "Sink"), ("source", "Source")):
        b.ask("a", "deploy", **{"name": name, "class": f"tests.core.sample_agents:{cls}"})
    cls = sample_agents.Sink
    renamed(b, monkeypatch, Sink=None)
    for text in "123":
        b.send("a", "source", Tell(["lost", "lost.2"], text))
    renamed(b, monkeypatch)
    status = b.ask("a", "status")
    assert status["dead_letters"] == status["failures"] == 0
    why = "cannot be imported: module 'tests.core.sample_agents' has no attribute 'Sink'"
    assert [(row["agent"], row["reason"], row["waiting"]) for row in status["stuck"]] == [
        ("a/lost", why, 3), ("a/lost.2", why, 3),
    ]  # fmt: skip
    assert f"tests.core.sample_agents:Sink {why}: 6 messages wait for a/lost and a/lost.2" in status["problems"][0]
    waits = b.ask("a", "why")["waits"]
    assert [(wait["kind"], wait["attempts"], wait["behind"]) for wait in waits] == [("class", 0, 2)] * 2
    text = f"a/lost waits in order to take {waits[0]['message']}, 2 more wait behind it: its class tests.core"
    assert text in sentence(waits[0], 0)
    renamed(b, monkeypatch, Sink=cls)
    assert b.fields("a/lost")["got"] == b.fields("a/lost.2")["got"] == ["1", "2", "3"]
    assert b.fields("a/lost")["tries"] == 0 and not b.ask("a", "status")["problems"]


def test_a_server_starts_without_the_class_of_a_declared_agent_and_what_is_for_that_waits(monkeypatch):
    """Others go on; once the class is there, the agent is made before it takes what waited."""
    cls = sample_agents.Sink
    monkeypatch.delattr(sample_agents, "Sink")
    declared = topology({}, {"a/lost": SINK, "a/source": "tests.core.sample_agents:Source"}, allow=("tests",))
    assert faults(declared) == [f"agent lost of a cannot be made: {SINK} {NO_SINK}"]
    b = Bus(declared)
    b.pump()
    b.ask("a", "deploy", name="other", **{"class": "tests.core.sample_agents:Source"})
    b.send("a", "source", Tell(["lost"], "1"))
    renamed(b, monkeypatch)
    b.send("a", "source", Tell(["lost"], "2"))
    status = b.ask("a", "status")
    assert [(row["agent"], row["reason"], row["waiting"]) for row in status["stuck"]] == [("a/lost", NO_SINK, 3)]
    assert f"{SINK} {NO_SINK}: 3 messages wait for a/lost" in status["problems"][0]
    assert b.ask("a", "agent", agent="lost")["fields"] == {} and status["dead_letters"] == 0
    renamed(b, monkeypatch, Sink=cls)
    assert b.fields("a/lost")["got"] == ["1", "2"] and not b.ask("a", "status")["problems"]
    assert [record["kind"] for record in b.records("a") if record["agent"] == "a/lost"].count("create") == 1


def test_so_does_it_with_fields_that_the_class_of_a_declared_agent_does_not_take():
    wrong = topology({}, allow=("tests",))
    wrong.agents.append(AgentDecl("lost", "a", SINK, {"unheard": 1}))
    assert "Sink has no field unheard" in faults(wrong)[0]
    b = Bus(wrong)
    b.pump()
    b.send("a", "lost", Put("1"))
    assert "does not take the fields that the topology file gives a/lost" in b.ask("a", "status")["problems"][0]
    wrong.agents[0].fields.clear()
    b.crash("a")
    adopt(b.stores["a"], wrong, "a")
    b.boot("a")
    b.pump()
    assert b.fields("a/lost")["got"] == ["1"]


def test_so_do_those_of_an_agent_whose_state_lacks_a_field_of_its_class(monkeypatch):
    class Longer(sample_agents.Sink):
        more: int

    b = Bus(topology({}, allow=("tests",)))
    b.ask("a", "deploy", **{"name": "old", "class": "tests.core.sample_agents:Sink"})
    monkeypatch.setattr(sample_agents, "Sink", Longer)
    renamed(b, monkeypatch)
    b.send("a", "old", Put("1"))
    assert "lacks: give a default to more" in b.ask("a", "status")["problems"][0]
    Longer._defaults["more"] = 0
    renamed(b, monkeypatch)
    assert b.fields("a/old")["got"] == ["1"]


def test_an_agent_whose_class_is_gone_for_good_can_be_deleted(monkeypatch):
    b = Bus(topology({}, allow=("tests",)))
    b.ask("a", "deploy", **{"name": "lost", "class": "tests.core.sample_agents:Sink"})
    renamed(b, monkeypatch, Sink=None)
    b.send("a", "lost", Put("1"))
    b.ask("a", "delete", agent="lost")
    assert [letter["reason"] for letter in b.ask("a", "deadletters")["letters"]] == ["unknown agent"] * 2
    assert b.stores["a"].agent("a/lost") is None and not b.ask("a", "status")["problems"]


def test_two_reactions_to_one_type_are_refused_where_the_class_is_made():
    with pytest.raises(TypeError, match=r"Two.first and .second both react to tests.core.sample_agents.Put: leave one"):

        class Two(Agent):
            @reacts
            def first(self, note: Put) -> None: ...

            @reacts
            def second(self, note: Put | Tell) -> None: ...


def test_a_subclass_redefines_a_reaction_by_its_name():
    class One(Agent):
        @reacts
        def put(self, note: Put) -> None: ...

    class Other(One):
        @reacts
        def put(self, note: Put) -> None: ...

    assert Other._reactions[Put.__wire_name__] is Other.__dict__["put"]
    with pytest.raises(TypeError, match=r"Third.again and .put both react"):

        class Third(One):
            @reacts
            def again(self, note: Put) -> None: ...


def test_two_notifications_of_one_name_are_refused():
    """Else what was sent as the one would be read as the other."""

    @notification(name="test.twice")
    class First:
        text: str

    with pytest.raises(TypeError, match="test.twice is the name of .*First already"):

        @notification(name="test.twice")
        class Second:
            number: int
