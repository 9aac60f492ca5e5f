import threading
import time

import pytest
from twisted.internet import task

from mombroker.core.batch import Batch
from mombroker.core.errors import StoreFailed
from mombroker.net.committer import PROBE, SLOW_S, Adaptive, Inline, Pool, Split, waited


class Store:
    """Records what is done to it and in which thread; may fail."""

    def __init__(self, fail=""):
        self.calls, self.fail = [], fail
        self.threads = []
        self.seconds = 0.0

    def begin(self, batch):
        self.calls.append(("begin", batch.number))
        if self.fail == "begin":
            raise StoreFailed("no room")

    def finish(self):
        self.calls.append("finish")
        self.threads.append(threading.current_thread() is threading.main_thread())
        if self.fail == "finish":
            raise StoreFailed("no disk")


class Now:
    """A pool whose threads run when `work` is called."""

    def __init__(self):
        self.waiting = []

    def callInThread(self, function, *args):
        self.waiting.append((function, args))

    def work(self):
        while self.waiting:
            function, args = self.waiting.pop(0)
            function(*args)


class Reactor(task.Clock):
    def callFromThread(self, function, *args):
        self.callLater(0, function, *args)


@pytest.mark.parametrize("fail", ["", "begin", "finish"])
@pytest.mark.parametrize("kind", ["inline", "split", "adaptive", "slow"])
def test_a_commit_tells_its_end_once(kind, fail):
    reactor, pool, store, ends = Reactor(), Now(), Store(fail), []
    committer = {"inline": Inline, "split": lambda: Split(reactor, pool)}.get(kind, lambda: Adaptive(reactor, pool))()
    if kind == "slow":
        committer.mean_s = 1.0
    committer.submit(store, Batch(number=7), lambda error: ends.append(str(error)))
    if kind in ("split", "slow") and fail != "begin":
        assert ends == [] and store.calls == [("begin", 7)]  # staged here, committed elsewhere
        pool.work()
        assert ends == []
        reactor.advance(0)
    assert ends == [{"": "None", "begin": "no room", "finish": "no disk"}[fail]]
    assert store.calls == [("begin", 7)] + ["finish"] * (fail != "begin")


def test_split_commits_in_another_thread_and_ends_in_the_reactors():
    reactor, pool, store = Reactor(), Pool(2, "test"), Store()
    pool.start()
    done = threading.Event()
    reactor.callFromThread = lambda function, *args: (function(*args), done.set())
    Split(reactor, pool).submit(store, Batch(), lambda error: None)
    assert done.wait(20) and store.threads == [False]
    assert all(thread.daemon for thread in pool.threads)
    pool.leave()


def test_adaptive_follows_the_moving_average_of_what_a_commit_waits():
    """A slow disk moves COMMIT to the writer thread, a fast one brings it back; one slow commit does neither. Now and
    then one is inline, to see how the disk is."""
    reactor, pool, store, clock = Reactor(), Now(), Store(), [0.0]
    step = [0.0]

    def tick():
        clock[0] += step[0]
        return clock[0]

    adaptive = Adaptive(reactor, pool, tick)

    def commit(seconds):
        step[0] = seconds
        adaptive.submit(store, Batch(), lambda error: None)
        threaded = bool(pool.waiting)
        pool.work()
        reactor.advance(0)
        return threaded

    assert not commit(4 * SLOW_S)
    assert [commit(SLOW_S / 4) for _ in range(5)] == [False] * 5
    slow = [commit(4 * SLOW_S) for _ in range(10)]
    assert slow[0] is False and slow[-1] is True and slow == sorted(slow)
    probes = [at for at, threaded in enumerate(commit(4 * SLOW_S) for _ in range(3 * PROBE)) if not threaded]
    assert len(probes) in (2, 3) and probes[1] - probes[0] == PROBE + 1
    fast = [commit(SLOW_S / 4) for _ in range(40 * PROBE)]
    assert fast[0] is True and fast[-PROBE:] == [False] * PROBE


def test_what_is_computed_is_not_waited():
    wall, start, end = time.perf_counter(), waited(), time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    time.sleep(0.05)
    wall = time.perf_counter() - wall
    assert 0.049 <= waited() - start <= wall - 0.049
