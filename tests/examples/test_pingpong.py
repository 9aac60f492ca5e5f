import pytest

from examples.pingpong import Play
from mombroker.net import config
from tests.core.bus import Bus


@pytest.mark.parametrize("to", [["echo1"], ["echo5"], [f"echo{number}" for number in range(1, 6)]])
def test_each_round_trip_is_timed_once_all_have_answered(to):
    bus = Bus(config.load("examples/pingpong.toml"))
    bus.pump()
    bus.send("s1", "main", Play(to, rounds=7))
    main = bus.fields("s1/main")
    assert (main["left"], main["missing"], len(main["times"])) == (0, 0, 7)
    assert all(time > 0 for time in main["times"])
    assert sum(record["detail"] == "examples.pingpong.Pong" for record in bus.records("s1", "send")) == (
        7 if "echo1" in to else 0
    )


def test_a_new_game_ends_the_one_under_way():
    bus = Bus(config.load("examples/pingpong.toml"))
    bus.pump()
    bus.servers["s1"].limits.turn_reactions = 3
    bus.send("s1", "main", Play(["echo5"], rounds=5))
    bus.send("s1", "main", Play(["echo2"], rounds=3))
    assert len(bus.fields("s1/main")["times"]) == 3
