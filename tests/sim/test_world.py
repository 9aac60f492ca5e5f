"""Virtual time."""

from mombroker.sim.world import EPOCH, World


def test_calls_run_in_order_of_time_and_of_asking():
    world, ran = World(1), []
    world.after(20, ran.append, "c")
    world.after(10, ran.append, "a")
    world.after(10, ran.append, "b")
    world.after(10, world.after, 0, ran.append, "after b")
    assert world.run()
    assert ran == ["a", "b", "after b", "c"] and world.now == EPOCH + 20


def test_it_stops_at_a_time_or_after_too_many_calls():
    world, ran = World(1), []
    world.after(10, ran.append, 1)
    world.after(30, ran.append, 2)
    assert world.run(EPOCH + 20) and ran == [1] and world.now == EPOCH + 20

    def again() -> None:
        world.after(1, again)

    again()
    assert not world.run(calls=100)
