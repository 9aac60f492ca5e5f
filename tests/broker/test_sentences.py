"""A sentence quotes what was given by its ends, where it is long: whoever reads it has one line."""

import pytest

from mombroker.core.errors import QUOTED_CHARS, MomError, UnknownName, short
from tests.broker.bench import THREE, Broker
from tests.gateway.web.test_api import ALL, CHANGED

LONG = ["x" * 15_000, "x y " * 3_500, "%41" * 5_000, "\u00e9" * 15_000, "." * 15_000, "*:" * 7_000]
HERE = {str: "queue:a", int: 1, bool: True, list: [], dict: {}}


def made_of(kind):
    """Values of a kind that are long, or have something long in them."""
    if kind.type is str:
        return [before + each for each in LONG for before in ("", "queue:", "topic:", "sub:me:", "a/", "\x1b")]
    if kind.type is dict:
        return [each for long in LONG for each in ({long: 1}, {"max_messages": long}, {"rate": long}, {"match": long})]
    return [[each] for each in LONG] if kind.inner is str else []


@pytest.mark.parametrize("name", ALL)
def test_no_argument_of_any_verb_is_repeated_whole(name):
    bus, verb = Broker(THREE), ALL[name]
    bus.connect("a").send("queue:a", "one")
    right = CHANGED[name][0] if name in CHANGED else {
        each.name: HERE[each.kind.type] for each in verb.arguments.values() if each.needed
    }  # fmt: skip
    for argument in verb.arguments.values():
        for value in made_of(argument.kind):
            args = {**right, argument.name: value}
            try:
                verb.check(args)
                answer = bus.ask("a", name, **args)
            except MomError as error:
                answer = str(error)
            assert not isinstance(answer, str) or len(answer) < 1_000, (argument.name, value[:20], answer)


def test_a_long_word_and_a_long_quotation_stand_with_their_ends():
    word = "/" + "w" * 500 + ".end"
    assert short(word).startswith("/www") and short(word).endswith("w.end") and len(short(word)) < QUOTED_CHARS
    assert str(MomError(f"there is no {word} here: ask another")) == f"there is no {short(word)} here: ask another"
    quoted = str(MomError(f"the server's user {'a b ' * 100!r} may not: ask the server's owner"))
    assert len(quoted) < 250 and quoted.endswith("'... may not: ask the server's owner".replace("'...", "b '"))


def test_what_is_not_long_stays_as_it_is():
    exactly = "w" * QUOTED_CHARS
    words = f"the server's own {exactly} is {'a word ' * 100}and no server's"
    assert str(MomError(words)) == words and str(MomError(exactly)) == exactly and str(MomError()) == ""


@pytest.mark.parametrize(("name", "said"), [
    ("greeter", "no agent is named 'greeter'"),
    ("a:b", "no agent is named 'a:b'"),
    ("queue:or%25ders", "no queue is named 'or%ders'"),
    ("topic:news", "no topic is named 'news'"),
    ("group:ledger", "no group is named 'ledger'"),
    ("sub:m%3Ae:all:news", "no subscription is named 'all:news' of client 'm:e'"),
    ("share::jobs", "no shared subscription is named 'jobs'"),
    ("sub:odd", "no subscription is named 'odd'"),
])  # fmt: skip
def test_an_unknown_name_is_called_what_it_would_be(name, said):
    assert str(UnknownName(name)).startswith(f"{said} on this bus yet: see `mom ")
