from types import SimpleNamespace

import pytest
from twisted.internet import task

from mombroker.core.batch import Batch
from mombroker.core.errors import PeerError, PeerRefused, StoreFailed
from mombroker.core.events import Admin, Metered, Ready, StoreSize, Tick
from mombroker.core.times import at_start
from mombroker.net.committer import Inline
from mombroker.net.driver import COMMIT_BYTES, LINGER_S, METER_NS, SIZE_EVERY_BYTES, TIMER_MAX_S, Driver

SECOND = 1_000_000_000
TEN_YEARS = 3650 * 86_400 * SECOND


class World:
    """Server, store, committer, outputs in one: each call is a line in `calls`, in order."""

    def __init__(self, hold=False, committer=None):
        self.calls = []
        self.reactor = task.Clock()
        self.notes, self.more, self.is_full, self.level = [], False, False, 0
        self.more_turns = 0
        self.short = False  # of room
        self.plans = []  # Ready objects to come
        self.batches = 0
        self.hold, self.flying = hold, []
        self.tx, self.now = self, 0  # the server's, from its store
        self.clock = SimpleNamespace(ahead=0, behind=0)
        self.wall = 1000 * SECOND
        self.raises = {}
        self.driver = self.boot(committer)

    def boot(self, committer=None):
        return Driver(self.reactor, self, self, committer or self, self, self.failed, lambda: self.wall, self._steady)

    def _steady(self):
        return int(self.reactor.seconds() * SECOND)

    # server
    @property
    def urgency(self):
        return self.level

    @property
    def busy(self):
        return self.level > 0 or self.more or bool(self.notes)

    @property
    def full(self):
        return self.short

    def filled(self):
        return self.is_full

    def _call(self, *call):
        self.calls.append(call if len(call) > 1 else call[0])
        if call[0] in self.raises:
            raise self.raises[call[0]]

    def step(self, event, now):
        self._call("step", event)

    def turn(self, now):
        self._call("turn")
        assert len(self.calls) < 1000, "the loop spins"
        if self.more_turns:
            self.more_turns -= 1
            self.more = self.more_turns > 0

    def ready(self, now):
        self._call("ready")
        self.level = 0
        return self.plans.pop(0) if self.plans else self.plan(empty=True)

    def committed(self, ready, now):
        self._call("committed", ready.batch.number)

    def stop(self):
        self._call("stop")
        self.plans.append(self.plan(meta="clean"))

    # store and committer
    def size(self):
        if "size" in self.raises:
            raise self.raises["size"]
        return 5

    def submit(self, store, batch, done):
        self._call("submit", batch.number)
        if self.hold:
            self.flying.append(done)
        else:
            done(None)

    # outputs
    def send(self, number, frames):
        self._call("send", number, frames)

    def client(self, number, replies):
        self._call("client", number, replies)

    def reply(self, ticket, result):
        self._call("reply", ticket, result)

    def run(self, id, function, payload):
        self._call("run", id)

    def dial(self, peer):
        self._call("dial", peer)

    def note(self, line):
        self._call("note", line)

    def failed(self, error):
        self._call("failed", str(error))

    # for the tests
    def plan(self, empty=False, meta="m", **wishes):
        self.batches += 1
        return Ready(Batch(number=self.batches, meta={} if empty else {meta: 1}), **wishes)

    def start(self):
        self.driver.start()
        self.settle()
        self.calls.clear()

    def settle(self):
        while any(call.getTime() <= self.reactor.seconds() for call in self.reactor.getDelayedCalls()):
            self.reactor.advance(0)

    def take(self):
        self.settle()
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def world():
    made = World()
    made.start()
    return made


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
