"""The clock that a driver gives its server: it never goes back, and a leap of the wall clock is doubted first."""

import pytest

from mombroker.core.events import Tick
from mombroker.core.times import at_start
from tests.net.world import SECOND, World

TEN_YEARS = 3650 * 86_400 * SECOND


def test_time_never_goes_back(world):
    first = world.driver.now()
    world.wall -= 100
    assert world.driver.now() == first
    world.wall += 101
    assert world.driver.now() == first + 1


def test_time_goes_on_when_the_wall_clock_is_set_back_until_that_has_come_up_with_it(world):
    world.wall += SECOND
    first = world.driver.now()
    world.wall -= 3600 * SECOND
    assert world.driver.now() == first
    for seconds in (8, 80):
        world.reactor.advance(seconds)
        world.wall += seconds * SECOND
        assert world.driver.now() == (first := first + seconds * SECOND * 7 // 8)
    world.reactor.advance(8 * 3600)
    world.wall += 8 * 3600 * SECOND
    assert world.driver.now() == world.wall
    world.wall -= 100  # what went before does not count for the next time
    assert world.driver.now() == world.wall + 100


def test_a_wall_clock_that_is_far_ahead_for_a_second_is_not_believed(world):
    """Else all that has a life would be dead for ten years, since time never goes back."""
    first = world.driver.now()
    for away in (TEN_YEARS, 0, TEN_YEARS, 0):
        world.wall += SECOND + away
        world.reactor.advance(1)
        first += SECOND
        assert world.driver.now() == first and world.clock.ahead == 0
        world.wall -= away
    assert world.notes == ["the clock was set 3650 days ahead: it is believed once it has stayed so for a minute"] * 2


def test_a_wall_clock_that_stays_far_ahead_is_believed_after_a_minute(world):
    """It was wrong before."""
    first = world.driver.now()
    world.wall += 3600 * SECOND
    assert world.driver.now() == first
    for seconds in (59, 1):
        world.reactor.advance(seconds)
        world.wall += seconds * SECOND
    assert world.driver.now() == world.wall and world.clock.ahead == 0
    world.wall += SECOND
    assert world.driver.now() == world.wall


def test_a_start_far_ahead_of_the_store_is_doubted_for_a_minute_too(world):
    world.now = world.wall  # of its store
    world.wall += TEN_YEARS
    driver = world.boot()
    assert driver.now() == world.now and world.clock.behind == TEN_YEARS
    for _ in range(2):
        world.reactor.advance(29)
        world.wall += 29 * SECOND
        assert driver.now() == world.wall - TEN_YEARS and world.clock.behind == TEN_YEARS
    world.reactor.advance(2)
    world.wall += 2 * SECOND
    assert driver.now() == world.wall and world.clock.behind == 0


def test_a_start_with_a_wrong_clock_that_is_set_right_within_a_minute_changes_nothing(world):
    world.now = world.wall
    world.wall += TEN_YEARS
    driver = world.boot()
    world.reactor.advance(30)
    world.wall += 30 * SECOND - TEN_YEARS
    assert driver.now() == world.wall == world.now + 30 * SECOND and (world.clock.ahead, world.clock.behind) == (0, 0)


def test_a_start_after_half_a_year_or_with_a_new_store_is_none_to_be_doubted(world):
    world.now = world.wall
    world.wall += TEN_YEARS // 20
    assert world.boot().now() == world.wall and world.clock.behind == 0
    assert at_start(world.wall, 0) == at_start(world.wall, world.now) == world.wall
    assert at_start(world.now + TEN_YEARS, world.now) == at_start(1, world.now) == world.now


def test_an_idle_hour_is_an_hour(world):
    world.driver.now()
    world.reactor.advance(3600)
    world.wall += 3600 * SECOND
    assert world.driver.now() == world.wall and world.clock.ahead == 0


def test_a_server_whose_time_is_years_ahead_knows_it_and_its_timers_are_on_time(world):
    """Catching up would take decades."""
    world.now = world.wall + TEN_YEARS  # of its store
    driver = world.boot()
    assert world.clock.ahead == TEN_YEARS
    for _ in range(3):
        world.reactor.advance(100)
        world.wall += 100 * SECOND
        driver.now()
    assert driver.now() == world.wall + TEN_YEARS and world.clock.ahead == TEN_YEARS


@pytest.mark.parametrize("restart", [False, True])
def test_timers_ring_when_the_wall_clock_is_set_back_by_an_hour(restart):
    world = World()
    world.start()

    def wait(seconds):
        for _ in range(seconds):
            world.reactor.advance(1)
            world.wall += SECOND
            if ("step", Tick()) in world.take():
                return True
        return False

    def plan(seconds):
        world.level = 2
        world.plans.append(world.plan(timer=world.driver.now() + seconds * SECOND))
        world.driver.post("x")
        world.take()

    plan(100)
    assert not wait(50)
    world.now = world.driver.now()  # stored with the last commit
    world.wall -= 3600 * SECOND
    if restart:
        world.driver._cancel()
        world.driver = world.boot()
        world.plans.append(world.plan(timer=world.now + 50 * SECOND))
        world.driver.start()
    assert not wait(50) and wait(60)
    plan(10)
    assert not wait(10) and wait(2)
