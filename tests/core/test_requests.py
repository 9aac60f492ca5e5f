"""The table of verbs: what is declared, and what is refused before anything is called."""

import json
from typing import Any

import pytest

from mombroker.core.errors import MomError
from mombroker.core.requests import LATER, Reply, Requests, changes, reads, verbs_of
from tests.core.bus import SECOND, Bus, topology


class Sample:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    @reads
    def look(self, name: str, deep: bool = False, ids: list[int] | None = None) -> Reply:
        """Look at something.

        Nobody need know how.
        """
        self.calls.append((name, deep, ids))
        return {}

    @changes
    def take(self, ticket: int, from_: str, to: list[str], fields: dict[str, Any], count: int = 1) -> None:
        """Take it, later."""
        self.calls.append((ticket, from_, to, fields, count))


def taken(tickets):
    answers, tickets.answers = tickets.answers, []
    return answers


@pytest.fixture
def asked():
    sample, server = Sample(), Bus(topology({"x": "abc"})).servers["b"]
    rung: list[int] = []
    requests = Requests(server.tx, rung.append)
    requests.add(sample)

    def ask(verb, args, ticket=7):
        requests.ask(ticket, verb, args)
        return taken(requests.tickets)

    ask.requests, ask.rung, ask.calls, ask.tx = requests, rung, sample.calls, server.tx
    return ask


def test_a_verb_is_what_its_method_says():
    look, take = verbs_of(Sample)
    assert (look.name, look.does, look.changes, look.later, look.may) == (
        "look", "Look at something.", False, False, "operators",
    )  # fmt: skip
    assert [str(each) for each in look.arguments.values()] == [
        "name (a text)", "deep (true or false, optional)", "ids (a list of whole numbers, optional)",
    ]  # fmt: skip
    assert (take.changes, take.later, [*take.arguments]) == (True, True, ["from", "to", "fields", "count"])


def test_arguments_come_as_they_are_declared(asked):
    assert asked("look", {"name": "x"}) == [(7, {})]
    assert asked("look", {"name": "x", "deep": True, "ids": None}, 8) == [(8, {})]
    assert asked("take", {"from": "f", "to": ["t"], "fields": {1: []}}, 9) == []
    assert asked.calls == [("x", False, None), ("x", True, None), (9, "f", ["t"], {1: []}, 1)]


@pytest.mark.parametrize(
    ("verb", "args", "refusal"),
    [
        ("lok", {}, "no such request: lok; did you mean look?"),
        ("x", {}, "no such request: x; known are look, take"),
        ("look", {}, "the request look needs name, a text: it takes name (a text), deep (true or false, optional), "
                     "ids (a list of whole numbers, optional)"),
        ("look", {"name": ""}, "the request look cannot have '' as its name, which is a text that is not empty"),
        ("look", {"name": None}, "the request look cannot have None as its name, which is a text"),
        ("look", {"name": "x", "deep": 1}, "the request look cannot have 1 as its deep, which is true or false"),
        ("look", {"name": "x", "depp": 1}, "the request look has no 'depp': it takes name (a text), deep (true or "
                                           "false, optional), ids (a list of whole numbers, optional)"),
        ("look", {"name": "x", "ids": [True]}, "cannot have [True] as its ids, which is a list of whole numbers"),
        ("take", {"from": "f", "to": ["t", 1], "fields": {}}, "['t', 1] as its to, which is a list of texts"),
        ("look", {"name": "x", "ids": [1 << 63]}, "[9223372036854775808] as its ids, which is a list of whole numbers"),
        ("take", {"from": "f", "to": [], "fields": []}, "cannot have [] as its fields, which is a table"),
        ("take", {"from": "f", "to": [], "fields": {}, "count": -1}, "cannot have -1 as its count"),
        ("take", {"from": "f", "to": [], "fields": {}, "count": 1 << 63}, "9223372036854775808 as its count"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_call(asked, verb, args, refusal):
    ((_, sentence),) = asked(verb, args)
    assert refusal in sentence and asked.calls == []


def test_a_request_that_nobody_decides_is_answered_in_time(asked):
    asked("take", {"from": "f", "to": [], "fields": {}})
    (until,) = asked.rung
    assert until == asked.tx.now + 5 * SECOND
    tickets = asked.requests.tickets
    tickets.hurry()
    assert taken(tickets) == []
    asked.tx.now = until
    tickets.hurry()
    ((ticket, sentence),) = taken(tickets)
    assert ticket == 7 and sentence.startswith("a, which decides names and policies, does not answer b")
    tickets.answer(7, {"late": True})
    assert taken(tickets) == []


def test_two_verbs_of_one_name_are_our_error(asked):
    with pytest.raises(AssertionError, match="two verbs are called look"):
        asked.requests.add(Sample())


def test_a_refusal_of_the_verb_itself_is_the_answer(asked):
    class Refusing:
        @reads
        def refuse(self) -> Reply:
            """Refuse."""
            raise MomError("not today")

    asked.requests.add(Refusing())
    assert asked("refuse", {}) == [(7, "not today")]


def test_an_argument_without_a_kind_is_our_error():
    class Floating:
        @reads
        def float(self, up: float) -> Reply:
            """Float."""
            return {}

    with pytest.raises(AssertionError, match="up of .*float is of no kind that a request can have"):
        verbs_of(Floating)


def audits(tx):
    return [json.loads(record.detail) for record in tx.rows.log if record.kind == "admin"]


def test_what_is_to_change_something_is_in_the_log_with_who_asked_and_what_became_of_it(asked):
    args = {"from": "a", "to": ["b"], "fields": {"secret": "x"}}
    asked.requests.ask(7, "take", args, "ann", "10.0.0.1")
    asked.requests.tickets.answer(7, "no: " + "x" * 500)
    asked("look", {"name": "x"})
    asked("take", {"from": 5}, ticket=8)
    shown = {"from": "a", "to": '["b"]', "fields": "(not told)"}
    said = {"verb": "take", "args": shown, "who": "ann", "from": "10.0.0.1"}
    found = audits(asked.tx)
    assert found[0] == {**said, "result": "asked"}
    assert found[1] == {**said, "result": "no: " + "x" * 196}
    assert found[2]["result"].startswith("the request take cannot have 5") and len(found) == 3


def test_what_the_registry_decides_later_is_not_told_as_refused(asked):
    asked.requests.ask(7, "take", {"from": "f", "to": [], "fields": {}}, "ann", "")
    (asked.tx.now,) = asked.rung
    asked.requests.tickets.hurry()
    assert [each["result"] for each in audits(asked.tx)] == ["asked", LATER]


def test_no_secret_is_in_the_log_whatever_is_asked(asked):
    b = Bus(topology({"x": "abc"}))
    for verb, args in (
        ("set_user", {"user": "u", "hash": "scrypt$x", "new": True}), ("set_user", {"user": "u", "hash": ["scrypt$x"]}),
        ("renew_user", {"user": "u", "hash": "scrypt$x", "was": "scrypt$y"}), ("set_user", {"hash": {"a": "scrypt$x"}}),
    ):  # fmt: skip
        b.ask("a", verb, **args)
    records = [record for store in b.stores.values() for record in store.disk.log]
    assert records and not any("scrypt" in str(record) for record in records)
