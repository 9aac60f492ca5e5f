"""The home of a group: whose state is still to be given."""

from typing import Any

import pytest

from mombroker.core.groups.home import JOIN, LEAVE, MOST_WISHES, Home
from tests.fakes_groups import broken

X, Y, Z = "a/x", "b/y", "c/z"


def home_of(*members: str) -> Home:
    home = Home(lambda agent: agent[0], lambda *asked: None, lambda *announced: None)
    for agent in members:
        home.wish(JOIN, agent, needs=True)
        flush(home)
    return home


def flush(home: Home) -> None:
    if home.change is not None:
        for server in list(home.change.waits):
            home.flushed(server, home.number + 1, home.change.attempt, {})
    home.check()


def test_a_state_of_before_it_has_left_and_joined_again_does_not_let_its_giver_go():
    home = home_of(X, Y)
    for what in (LEAVE, JOIN):
        home.wish(what, Y, needs=True)
        flush(home)
    home.restored(Y, 2)
    home.wish(LEAVE, X)
    assert home.lacking == {Y: X} and home.change is None
    home.restored(Y, 4)
    assert home.lacking == {} and home.change is not None
    flush(home)
    assert home.members == [Y]


def test_otherwise_its_giver_would_go_with_half_of_it_given():
    with broken("a state of any view"):
        home = home_of(X, Y)
        for what in (LEAVE, JOIN):
            home.wish(what, Y, needs=True)
            flush(home)
        home.restored(Y, 2)
        assert home.lacking == {}


def test_a_state_of_a_giver_that_is_out_does_not_let_the_next_one_go():
    home = home_of(X, Y)
    home.restored(Y, 2)
    home.wish(JOIN, Z, needs=True)
    flush(home)
    home.exclude([X])
    flush(home)
    home.restored(Z, 3)
    assert home.lacking == {Z: Y}
    home.restored(Z, 4)
    assert home.lacking == {}


def given_up_in(home: Home) -> None:
    """The giver is out; of those that have waited for it one is to give its state, and has given up already."""
    for agent in (Y, Z):
        home.wish(JOIN, agent, needs=True)
    flush(home)
    home.exclude([X])
    flush(home)
    assert home.lacking == {Z: Y}
    home.leave(Y, gives=False)
    flush(home)


def test_who_has_given_up_goes_and_those_that_wait_for_its_state_get_one():
    home = home_of(X)
    given_up_in(home)
    assert home.members == [Z] and home.lacking == {}


def test_otherwise_they_would_wait_for_each_other_for_ever():
    with broken("gives when it has given up"):
        home = home_of(X)
        given_up_in(home)
        assert home.members == [Y, Z] and home.lacking == {Z: Y} and home.change is None


@pytest.mark.parametrize("more", [(), (LEAVE,), (JOIN, LEAVE) * MOST_WISHES])
def test_who_is_to_go_and_gives_nothing_gives_nobody_a_state_meanwhile(more):
    home = home_of(X, Y)
    home.restored(Y, 2)
    home.wish(JOIN, Z, needs=True)
    home.leave(X, gives=False)
    for what in more:
        home.wish(what, X, needs=what == JOIN)
    view = home.number + 1
    flush(home)
    assert home.number == view and home.lacking == {Z: Y}
    flush(home)
    assert X not in home.members


def test_who_goes_to_and_fro_and_gives_up_in_the_end_gives_nothing():
    home = home_of(X, Y)
    home.restored(Y, 2)
    home.wish(JOIN, Z, needs=True)
    for what in (LEAVE, JOIN) * (MOST_WISHES // 2):
        home.wish(what, X, needs=what == JOIN)
    home.leave(X, gives=False)
    flush(home)
    assert home.lacking == {Z: Y}


@pytest.mark.parametrize(("kept", "number"), [(7, 0), (6, 2), (6, 0)])
def test_what_an_older_program_says_or_has_kept_counts_for_any_view(kept, number):
    old, home = home_of(X, Y), home_of()
    values: list[Any] = old.values()[:kept]
    home.load(values)
    home.check()
    home.restored(Y, number)
    assert home.lacking == {}
    home.check()
