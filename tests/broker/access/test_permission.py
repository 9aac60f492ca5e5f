"""Permissions alone: which patterns match, what a wildcard subscription asks for, and what is refused."""

from fnmatch import fnmatchcase
from itertools import product
from random import Random

import pytest

from mombroker.broker.access.globs import STEPS, Globs, Steps, Unjudged, cover, matches
from mombroker.broker.access.permission import ACTIONS, Grants, Permission, Rights, check_destination, permission
from mombroker.broker.topic.patterns import Patterns, segments_of
from mombroker.core.errors import MomError

ASKED = ["topic:>", "topic:*", "topic:a.>", "topic:a.*", "topic:*.b", "topic:a.*.b", "topic:ab.#", "topic:*.*.>"]
GLOBS = ["*", "topic:*", "topic:a*", "topic:a.*", "topic:?", "topic:?.*", "topic:*b", "topic:ab", "t*:a*b*", "queue:*"]


def test_a_pattern_matches_as_that_of_a_policy():
    rng = Random(7)
    for _ in range(5_000):
        pattern = "".join(rng.choice("ab*?") for _ in range(rng.randint(0, 6)))
        name = "".join(rng.choice("ab") for _ in range(rng.randint(0, 6)))
        assert matches(pattern, name) == fnmatchcase(name, pattern), (pattern, name)
        assert Globs([pattern, "zz"]).match(name) == matches(pattern, name)


def test_a_pattern_of_many_stars_takes_no_time():
    assert not matches("*a" * 200, "a" * 199)
    assert not cover([Globs(["topic:" + "?*" * 300])], "topic:>", Steps())


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_wildcard_asks_for_is_judged_by_all_that_it_stands_for(asked):
    """Against the trie by which topics are routed, over names long enough to tell these patterns apart."""
    routes = Patterns[int]()
    routes.add(asked, 1)
    names = ["topic:" + ".".join(parts) for n in (1, 2, 3, 4) for parts in product(("a", "b", "ab", "zz"), repeat=n)]
    wanted = [name for name in names if routes.fit(name)]
    assert wanted
    rng = Random(asked)
    for _ in range(300):
        some = rng.sample(GLOBS, rng.randint(1, 3))
        globs = Globs(some)
        assert globs.meet(asked, Steps()) == any(globs.match(name) for name in wanted), some
        assert cover([globs], asked, Steps()) == all(globs.match(name) for name in wanted), some


def test_wildcards_meet_what_the_routes_say_for_any_patterns():
    """Of a few letters, so that all short names are tried."""
    names = ["topic:" + "".join(letters) for n in range(1, 8) for letters in product("ab.", repeat=n)]
    rng, answers = Random(3), set()
    for asked in map("".join, product(["topic:"], "*ab", [".*", ".b", ".*.a", ".>"])):
        routes = Patterns[int]()
        routes.add(asked, 1)
        wanted = [name for name in names if routes.fit(name)]
        for _ in range(30 if segments_of(asked) else 0):
            pattern = "topic:" + "".join(rng.choice("ab.*?") for _ in range(rng.randint(1, 5)))
            found = Globs([pattern]).meet(asked, Steps())
            assert found == any(matches(pattern, name) for name in wanted), (asked, pattern)
            answers.add((asked, found))
    assert len(answers) == 20


def test_one_budget_is_for_all_that_is_asked_at_once():
    """715 topics that begin with a wildcard, and rules that each could match: refused, and after no more steps."""
    steps = Steps()
    globs = Globs([f"topic:team{n}.private" for n in range(300)])
    with pytest.raises(Unjudged, match="name fewer topics, or write them without wildcards at the beginning"):
        for n in range(715):
            assert not globs.meet(f"topic:*.x{n}", steps)
    assert steps.left == -1


def test_so_it_is_for_what_allows():
    steps = Steps()
    globs = Globs([f"topic:*{n}*" for n in range(500)])
    with pytest.raises(Unjudged):
        assert not any(cover([globs], f"topic:*.x{n}z{n}", steps) and False for n in range(715))
    assert -2_000 < steps.left < 0


def test_patterns_that_begin_otherwise_cost_no_step():
    steps = Steps()
    globs = Globs([f"topic:team{n}.private" for n in range(1_000)])
    assert not any(globs.meet(f"topic:news.a{n}.*", steps) for n in range(715))
    assert steps.left == STEPS
    assert cover([Globs(["topic:*"])], "topic:*.a", steps) and steps.left == STEPS - 1
    assert not globs.meet("topic:*", steps)


def test_several_patterns_may_cover_together_what_none_does():
    assert cover([Globs(["topic:?", "topic:??*"])], "topic:*", Steps())
    assert not cover([Globs(["topic:?", "topic:???*"])], "topic:*", Steps())
    assert cover([Globs(["topic:a", "topic:a.*"])], "topic:a.>", Steps())
    assert not cover([Globs(["topic:a.*"])], "topic:a.>", Steps())


def rights_of(*permissions):
    """Each is of another holder."""
    return Rights(tuple(Grants([each]) for each in permissions))


def test_it_does_not_matter_who_of_those_that_somebody_is_was_given_what():
    rng, answers = Random(5), set()
    for _ in range(500):
        some = [
            Permission(rng.choice(GLOBS), user="a", **{rng.choice(("may", "may", "deny")): ("receive",)})
            for _ in range(4)
        ]
        asked = rng.choice([*ASKED, "topic:ab", "topic:a.b"])
        found = {Rights((Grants(some),)).may("receive", asked), rights_of(*some).may("receive", asked)}
        assert len(found) == 1, (some, asked)
        answers |= found
    assert answers == {True, False} and cover([Globs(["topic:a"]), Globs(["topic:a.*"])], "topic:a.>", Steps())


def test_deny_wins_and_what_nobody_allows_is_not_allowed():
    rights = rights_of(
        Permission("topic:prices.*", user="ann", may=("receive",)), Permission("queue:*", role="clerk", may=("send",)),
        Permission("queue:salaries", user="*", deny=ACTIONS),
    )  # fmt: skip
    assert rights.may("receive", "topic:prices.ibm") and rights.may("receive", "topic:prices.*")
    assert not rights.may("receive", "topic:>") and not rights.may("send", "topic:prices.ibm")
    assert rights.may("send", "queue:orders") and not rights.may("send", "queue:salaries")


def test_a_wildcard_is_denied_by_one_topic_that_is():
    allowed, denied = Permission("topic:*", user="a", may=("receive",)), ("topic:hr.pay", ("receive",))
    rights = rights_of(allowed, Permission(denied[0], user="a", deny=denied[1]))
    assert not rights.may("receive", "topic:hr.*") and not rights.may("receive", "topic:>")
    assert rights.may("receive", "topic:ops.*") and rights.may("receive", "topic:hr.news")


@pytest.mark.parametrize(("values", "says"), [
    ({"match": "queue:a", "may": ["send"]}, "of a user or of a role"),
    ({"match": "queue:a", "user": "a", "role": "b", "may": ["send"]}, "of a user or of a role"),
    ({"match": "queue:a", "user": "a"}, "says something"),
    ({"match": "queue:a", "user": "a", "may": ["sned"]}, "did you mean send?"),
    ({"match": "queue:a", "user": "a", "may": "send"}, 'may = ["send", "receive"]'),
    ({"match": "queue:[ab]", "user": "a", "may": ["send"]}, "write ? in place of each ["),
    ({"match": "orders", "user": "a", "may": ["send"]}, "write 'queue:orders' or 'topic:orders'"),
    ({"match": "", "user": "a", "may": ["send"]}, "needs match"),
    ({"user": "a", "may": ["send"]}, "needs match"),
    ({"match": "queue:a", "user": " a", "may": ["send"]}, "printable characters"),
    ({"match": "queue:a", "user": 5, "may": ["send"]}, "user must be text"),
    ({"match": "queue:a", "user": "a", "can": ["send"]}, "a permission has no 'can'"),
])  # fmt: skip
def test_what_is_no_permission_is_refused_with_the_remedy(values, says):
    with pytest.raises(MomError) as refused:
        permission(values)
    assert says in str(refused.value)


@pytest.mark.parametrize(("name", "says"), [
    ("orders", "'orders' is no destination: write 'queue:orders' or 'topic:orders'"),
    ("/topic/prices.a", "'/topic/prices.a' is no destination: write 'topic:prices.a'"),
    ("queeu:orders", "write 'queue:orders' or 'topic:orders'"),
    ("queue:", "is no destination"), ("", "is no destination"),
])  # fmt: skip
def test_what_is_no_destination_is_not_judged(name, says):
    with pytest.raises(MomError) as refused:
        check_destination(name)
    assert says in str(refused.value)
    for good in ("queue:orders", "topic:prices.>", "agent:x", "bus", "sub:a:b"):
        check_destination(good)


def test_a_permission_is_written_as_it_was_read():
    values = {"role": "clerk", "match": "queue:*", "may": ["send"], "deny": ["browse"]}
    assert permission(values).values() == values
