import threading

import pytest

from mombroker.net.watchdog import LIMIT_S, Watchdog


class Engine:
    running, reactions, failures, parked = "", 0, 0, 0


class Driver:
    committing = 0


@pytest.fixture
def watched():
    engine, driver, lines, clock = Engine(), Driver(), [], [100.0]
    others = (Engine(), Driver(), print)
    dog = Watchdog([others, (engine, driver, lines.append), others], lambda: clock[0])

    def look(seconds):
        clock[0] += seconds
        dog.look()
        said = list(lines)
        lines.clear()
        return said

    look(0)
    return engine, driver, look


def test_a_long_reaction_is_named_while_it_runs_and_again_as_it_doubles(watched):
    engine, _, look = watched
    engine.running = "a/slow"
    assert look(0) == [] and look(LIMIT_S - 0.1) == []
    assert look(0.2) == ["the reaction of a/slow has been running for 5 s: all else waits for it"]
    assert look(4) == [] and len(look(1)) == 1 and look(9) == [] and len(look(1)) == 1


@pytest.mark.parametrize("count", ["reactions", "failures", "parked"])
def test_many_reactions_of_one_agent_are_not_one(watched, count):
    engine, _, look = watched
    engine.running = "a/busy"
    for _ in range(20):
        setattr(engine, count, getattr(engine, count) + 1)
        assert look(LIMIT_S - 0.1) == []


def test_a_long_commit_is_said_while_it_lasts_and_again_as_it_doubles(watched):
    _, driver, look = watched
    driver.committing = 7
    assert look(0) == [] and look(LIMIT_S - 0.1) == []
    (line,) = look(0.2)
    assert line.startswith("a commit has taken 5 s: the disk does not answer")
    assert look(4) == [] and len(look(1)) == 1
    driver.committing = 8
    assert look(LIMIT_S) == [] and len(look(LIMIT_S)) == 1


def test_a_commit_whose_end_waits_for_a_reaction_is_not_slow(watched):
    engine, driver, look = watched
    driver.committing, engine.running = 7, "a/slow"
    look(0)
    assert [line[:12] for line in look(LIMIT_S * 3)] == ["the reaction"]
    driver.committing, engine.running = 8, ""
    assert look(0) == []


def test_nothing_is_said_when_nothing_runs(watched):
    engine, _, look = watched
    assert [look(LIMIT_S * 3) for _ in range(3)] == [[]] * 3


def test_the_thread_looks_until_it_is_stopped():
    said = threading.Event()
    engine = Engine()
    engine.running = "a/slow"
    times = iter(range(0, 10**6, 10))
    dog = Watchdog([(engine, Driver(), lambda line: said.set())], lambda: next(times))
    before = threading.active_count()
    dog.start()
    assert said.wait(30)
    dog.stop()
    for thread in threading.enumerate():
        if thread.name == "watchdog":
            thread.join(30)
    assert threading.active_count() <= before
