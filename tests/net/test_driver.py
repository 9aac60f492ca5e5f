"""The driver: what it calls, in which order, and what leaves when."""

import pytest

from mombroker.core.errors import PeerError, PeerRefused, StoreFailed
from mombroker.core.events import Admin, Metered, StoreSize, Tick
from mombroker.net.committer import Inline
from mombroker.net.driver import COMMIT_BYTES, LINGER_S, METER_NS, SIZE_EVERY_BYTES, TIMER_MAX_S, Driver
from tests.net.world import SECOND, World


def test_the_start_lets_out_what_recovery_found():
    world = World()
    world.plans.append(world.plan(empty=True, tasks=[(7, "m:f", b"")], dial=["b"], timer=1005 * SECOND))
    world.driver.start()
    assert world.take() == [
        ("step", StoreSize(5)), "turn", "ready", ("run", 7), ("dial", "b"), ("committed", 1), "turn",
    ]  # fmt: skip


def test_the_events_of_a_loop_turn_share_one_turn_and_one_commit(world):
    world.level = 2
    world.plans.append(world.plan())
    world.driver.post("one")
    world.driver.post("two")
    assert world.calls == [("step", "one"), ("step", "two")]
    assert world.take()[2:] == ["turn", "ready", ("submit", 2), ("committed", 2), ("step", StoreSize(5)), "turn"]


def test_nothing_leaves_before_the_commit_and_then_acks_first_of_all():
    world = World(hold=True)
    world.start()
    world.level = 2
    wishes = {"replies": [(9, {})], "tasks": [(1, "m:f", b"")], "dial": ["b"]}
    ready = world.plan(frames=[(3, ["ack"]), (4, ["data"])], clients=[(7, ["message", "receipt"])], **wishes)
    world.plans.append(ready)
    world.driver.post("x")
    assert world.take() == [("step", "x"), "turn", "ready", ("submit", 2)]
    world.flying.pop()(None)
    assert world.take()[:7] == [
        ("send", 3, ["ack"]), ("send", 4, ["data"]), ("client", 7, ["message", "receipt"]),
        ("reply", 9, {}), ("run", 1), ("dial", "b"), ("committed", 2),
    ]  # fmt: skip


def test_the_next_batch_fills_while_one_is_in_commit_and_follows_it():
    world = World(hold=True)
    world.start()
    world.plans += [world.plan(), world.plan()]
    for name in "abc":
        world.level = 2
        world.driver.post(name)
        world.settle()
    assert world.take() == [
        ("step", "a"), "turn", "ready", ("submit", 2), ("step", "b"), "turn", ("step", "c"), "turn",
    ]  # fmt: skip
    assert world.driver.committing == 1
    world.flying.pop()(None)
    assert [call for call in world.take() if call[0] in ("committed", "submit") or call == "ready"] == [
        ("committed", 2), "ready", ("submit", 3),
    ]  # fmt: skip
    assert world.driver.committing == 2
    world.flying.pop()(None)
    assert world.driver.committing == 0


def test_an_empty_batch_needs_no_commit(world):
    world.level = 2
    world.plans.append(world.plan(empty=True, replies=[(1, {})]))
    world.driver.post("ask")
    assert world.take() == [("step", "ask"), "turn", "ready", ("reply", 1, {}), ("committed", 2)]
    assert world.driver.commits == 0


def test_a_commit_after_which_there_is_work_is_followed_by_a_turn(world):
    world.level = 2
    world.plans.append(world.plan())
    world.driver.post("x")
    world.notes.append("a line")
    assert "turn" in world.take()[-3:]


def test_a_batch_that_is_not_urgent_lingers(world):
    world.level = 1
    world.plans.append(world.plan())
    world.driver.post("ack")
    assert world.take() == [("step", "ack"), "turn"]
    world.reactor.advance(LINGER_S * 0.9)
    assert world.take() == []
    world.reactor.advance(LINGER_S * 0.2)
    assert world.take()[:2] == ["ready", ("submit", 2)]


def test_an_urgent_event_ends_the_linger(world):
    world.level = 1
    world.plans += [world.plan(), world.plan()]
    world.driver.post("ack")
    world.take()
    world.level = 2
    world.driver.post("message")
    assert world.take()[:4] == [("step", "message"), "turn", "ready", ("submit", 2)]
    world.reactor.advance(1)
    assert "ready" not in world.take()


def test_reactions_go_on_turn_after_turn_while_there_are_more(world):
    world.more_turns = 4
    world.driver.post("x")
    assert world.take() == [("step", "x"), "turn", "turn", "turn", "turn"]


def test_a_full_batch_waits_for_the_commit_under_way_without_spinning():
    world = World(hold=True)
    world.start()
    world.plans.append(world.plan())
    world.level, world.more, world.is_full = 2, True, True
    world.driver.post("x")
    assert world.take() == [("step", "x"), "turn", "ready", ("submit", 2), "turn"]
    assert world.take() == []
    world.more = world.is_full = False
    world.flying.pop()(None)
    assert "turn" in world.take()


def test_notes_go_to_the_log(world):
    world.notes.append("x failed")
    world.driver.post("x")
    assert world.take() == [("step", "x"), "turn", ("note", "x failed")] and world.notes == []


def test_the_timer_is_set_anew_by_each_ready_and_rings_once(world):
    def plan(at):
        world.level = 2
        world.plans.append(world.plan(timer=at))
        world.driver.post("x")
        return [call for call in world.take() if call[0] == "step" and call[1] == Tick()]

    def ring(seconds):
        world.wall += int(seconds * SECOND)
        world.reactor.advance(seconds)
        return [call for call in world.take() if call[0] == "step" and call[1] == Tick()]

    plan(world.wall + 10 * SECOND)
    plan(world.wall + 5 * SECOND)
    assert ring(4.9) == [] and len(ring(0.2)) == 1 and ring(10) == []
    plan(world.wall + SECOND)
    plan(0)
    assert ring(10) == []
    assert len(plan(world.wall - 5)) == 1
    plan(world.wall + int(3 * TIMER_MAX_S * SECOND))
    assert ring(TIMER_MAX_S) == []
    world.wall += 1000 * SECOND  # the wall clock is set forward: seen at the next look, believed at the one after it
    assert ring(TIMER_MAX_S) == [] and len(ring(TIMER_MAX_S)) == 1


@pytest.mark.parametrize("error", [PeerError("bad"), PeerRefused("no")])
def test_a_peers_fault_goes_back_to_its_link(world, error):
    world.raises["step"] = error
    with pytest.raises(type(error)):
        world.driver.post("frames")
    del world.raises["step"]
    world.driver.post("others")
    assert world.take() == [("step", "frames"), ("step", "others"), "turn"]


@pytest.mark.parametrize("where", ["step", "turn", "ready", "committed", "send", "size"])
def test_an_error_of_ours_ends_it(world, where):
    world.raises[where] = AssertionError("ours")
    world.level = 2
    world.plans += [world.plan(frames=[(1, [])]), world.plan()]
    world.driver.post("x")
    assert world.take()[-1] == ("failed", "ours")
    world.raises.clear()
    world.driver.post("y")
    world.reactor.advance(1000)
    assert world.take() == [] and world.reactor.getDelayedCalls() == []


def test_after_a_failed_commit_nothing_is_committed_or_sent():
    world = World(hold=True)
    world.start()
    world.level = 2
    world.plans += [world.plan(frames=[(1, [])], replies=[(1, {})]), world.plan()]
    world.driver.post("x")
    world.settle()
    world.level = 2
    world.driver.post("y")
    world.take()
    world.flying.pop()(StoreFailed("disk full"))
    world.driver.post("z")
    world.reactor.advance(1000)
    assert world.take() == [("failed", "disk full")]
    assert world.driver.stop().called


def test_stop_finishes_the_commit_under_way_then_marks_the_last_batch():
    world = World(hold=True)
    world.start()
    world.level = 2
    world.plans.append(world.plan(frames=[(1, [])], tasks=[(1, "m:f", b"")], dial=["b"]))
    world.driver.post("x")
    world.settle()
    world.driver.post("y")
    stopped = world.driver.stop()
    assert world.driver.stop() is stopped
    world.driver.post("z")
    world.take()
    world.flying.pop()(None)
    assert world.take() == [("send", 1, []), ("committed", 2), "stop", "ready", ("submit", 3)]
    assert not stopped.called
    world.flying.pop()(None)
    assert world.take() == [("committed", 3)] and stopped.called
    assert world.reactor.getDelayedCalls() == []


def test_stop_when_nothing_is_under_way(world):
    world.level = 1
    world.driver.post("x")
    world.take()
    stopped = world.driver.stop()
    assert world.take() == ["stop", "ready", ("submit", 2), ("committed", 2)] and stopped.called


def test_the_store_is_not_touched_after_the_stop(world):
    """Whoever waits for the end closes it at once."""
    world.wall += 10 * SECOND
    world.committed = lambda ready, now: world.raises.update(size=StoreFailed("closed"))
    assert world.driver.stop().called and not world.driver.dead


def test_a_failure_of_the_last_batch_is_a_failure():
    world = World(hold=True)
    world.start()
    stopped = world.driver.stop()
    world.flying.pop()(StoreFailed("disk full"))
    assert world.take()[-1] == ("failed", "disk full") and stopped.called


def test_the_store_is_measured_once_a_second_at_most(world):
    def commit():
        world.level = 2
        world.plans.append(world.plan())
        world.driver.post("x")
        return [call for call in world.take() if call == ("step", StoreSize(5))]

    assert [len(commit()) for _ in range(3)] == [1, 0, 0]
    world.wall += 2 * SECOND
    assert [len(commit()) for _ in range(3)] == [1, 0, 0]


def test_the_store_is_measured_sooner_when_much_is_committed(world):
    def commit(size):
        world.level = 2
        world.plans.append(world.plan())
        world.plans[-1].batch.bytes = size
        world.driver.post("x")
        return world.take().count(("step", StoreSize(5)))

    assert commit(0) == 1
    assert [commit(SIZE_EVERY_BYTES // 4) for _ in range(8)] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert sum(commit(0) for _ in range(2 * SIZE_EVERY_BYTES // COMMIT_BYTES)) == 2


def test_while_room_is_short_it_is_looked_at_every_second_though_nobody_commits(world):
    world.driver._resources = lambda: (7, 100, 30)
    world.short = True
    world.driver._measure()

    def looks(seconds):
        world.take()
        for _ in range(seconds):
            world.reactor.advance(1)
        return sum(call == ("step", StoreSize(5, 7, 100, 30)) for call in world.take())

    assert looks(3) == 3
    world.short = False
    assert looks(3) == 1
    world.short = True
    world.driver._measure()
    world.driver.stop()
    assert looks(3) <= 1


def test_a_store_that_cannot_be_staged_fails_the_driver():
    class Full:
        def begin(self, batch):
            raise StoreFailed("disk full")

    world = World(committer=Inline())
    world.driver.store = Full()
    world.driver.store.size = lambda: 0
    world.plans.append(world.plan())
    world.driver.start()
    assert ("failed", "disk full") in world.take() and world.driver.dead


# -- how long others wait ----------------------------------------------------------------------------------------------


def test_the_longest_piece_of_work_is_told_with_its_request_and_how_many_were_long():
    world = World()
    spent = [0]
    world.driver = Driver(
        world.reactor, world, world, world, world, world.failed, lambda: world.wall, world._steady, lambda: spent[0]
    )
    world.driver.start()

    def costs(ms, name, waits=0):
        def work(*args):
            spent[0] += ms * 1_000_000
            world.wall += (ms + waits) * 1_000_000

        setattr(world, name, work)

    costs(3, "turn")
    costs(25, "step")
    world.driver.post(Admin(1, "browse", {}))
    costs(21, "step")
    world.driver.post(Tick())
    world.reactor.advance(0)
    assert world.driver.turns() == {"longest_ms": 25.0, "of": "browse", "long": 2}
    costs(40, "turn")
    world.driver.post(Tick())
    world.reactor.advance(0)
    assert world.driver.turns() == {"longest_ms": 40.0, "of": "turn", "long": 4}
    costs(1, "turn")
    costs(4, "step", waits=90)  # another process had the processor
    world.driver.post(Tick())
    world.reactor.advance(0)
    assert world.driver.turns() == {"longest_ms": 40.0, "of": "turn", "long": 4}


def test_turns_that_take_long_are_cut_shorter_and_those_that_do_not_get_longer():
    world = World()
    spent, each_us, shares = [0], [0], []

    def turn(now):  # of a thousand reactions, which take so long each
        shares.append(world.share)
        world.more = world.cut = len(shares) < turns[0]
        spent[0] += int(world.share * 1_000 * each_us[0]) * 1_000
        world.wall += int(world.share * 1_000 * each_us[0]) * 1_000

    def burst(us, count):
        shares.clear()
        each_us[0], turns[:] = us, [count]
        world.driver.post(Tick())
        world.reactor.advance(0)
        return [round(share, 3) for share in shares]

    turns = [1]
    world.driver = Driver(
        world.reactor, world, world, world, world, world.failed, lambda: world.wall, world._steady, lambda: spent[0]
    )
    world.turn = turn
    world.driver.start()
    world.reactor.advance(0)
    assert burst(400, 4) == [0.25, 0.05, 0.05, 0.05]  # a hundred ms, then twenty
    assert burst(1, 6) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert burst(1, 1) == [0.25], "a burst does not begin as long as the one before has ended"
    assert burst(10_000, 3) == [0.25, 0.031, 0.031]
    assert burst(1, 1) + burst(1, 1) == [0.031, 0.062]


@pytest.mark.parametrize(("work", "of"), [("begin", "commit"), ("committed", "outputs")])
def test_staging_and_what_leaves_behind_a_commit_are_measured_too(work, of):
    world = World(committer=Inline())
    spent = [0]

    def costly(*args):
        spent[0] += 50_000_000
        world.wall += 50_000_000

    world.driver = Driver(
        world.reactor, world, world, Inline(), world, world.failed, lambda: world.wall, world._steady, lambda: spent[0]
    )
    world.begin = world.finish = lambda *args: None
    setattr(world, work, costly)
    world.plans.append(world.plan())
    world.driver.start()
    assert world.driver.turns() == {"longest_ms": 50.0, "of": of, "long": 1}


def test_what_is_counted_is_told_once_a_minute_and_at_the_end(world):
    """Each time what is new, with when the counting began; nothing where nothing was counted."""
    counts = {("wire_bytes", "b"): 10, ("wal_bytes", ""): 0}
    world.driver._meters = lambda: dict(counts)
    driver, begin = world.driver, world.driver._metered_at

    def metered():
        found = [call[1] for call in world.calls if call[0] == "step" and isinstance(call[1], Metered)]
        world.calls.clear()
        return found

    def later():
        world.wall += METER_NS
        world.reactor.rightNow += METER_NS / SECOND
        driver.now()

    driver._measure()
    assert metered() == []
    later()
    driver._measure()
    first = driver._last_now
    assert metered() == [Metered(begin, [("wire_bytes", "b", 10)])]
    driver._measure()
    later()
    driver._measure()
    assert metered() == []
    counts["wal_bytes", ""] = 5
    second = driver._last_now
    driver.stop()
    assert metered() == [Metered(second, [("wal_bytes", "", 5)])] and first < second
