import threading

import pytest
from twisted.internet import task

from mombroker.core.batch import Batch
from mombroker.core.errors import StoreFailed
from mombroker.net.committer import DEAF_S, PROBE, SHORT_S, SLOW_S, WORTH, Adaptive, Inline, Split
from mombroker.net.pool import Pool


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
        committer.mean_s = DEAF_S * 2
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


class Adapting:
    """A committer beside a reactor that works so long during each COMMIT. Did a commit go to the thread?"""

    def __init__(self, worked):
        self.reactor, self.pool, self.store = Reactor(), Now(), Store()
        self.waited = self.used = self.step = 0.0
        self.worked = worked
        self.adaptive = Adaptive(self.reactor, self.pool, self.tick, lambda: self.used)

    def tick(self):
        self.waited += self.step
        return self.waited

    def commit(self, seconds):
        self.step = seconds
        self.adaptive.submit(self.store, Batch(), lambda error: None)
        threaded = bool(self.pool.waiting)
        self.used += self.worked
        self.pool.work()
        self.reactor.advance(0)
        return threaded

    def commits(self, seconds, count):
        return [self.commit(seconds) for _ in range(count)]


def probes(threaded, way):
    return [at for at, each in enumerate(threaded) if each is way]


def test_adaptive_follows_the_moving_average_of_what_a_commit_waits():
    """A slow disk moves COMMIT to the writer thread, a fast one brings it back; one slow commit does neither. Now and
    then one is inline, to see how the disk is."""
    a = Adapting(worked=8 * SLOW_S)
    assert not a.commit(4 * SLOW_S)
    assert a.commits(SLOW_S / 4, 5) == [False] * 5
    slow = a.commits(4 * SLOW_S, 3 * PROBE)
    assert slow[0] is False and slow[-PROBE:].count(True) >= PROBE - 1
    tried = probes(a.commits(4 * SLOW_S, 3 * PROBE), False)
    assert len(tried) in (2, 3) and tried[1] - tried[0] == PROBE + 1
    fast = a.commits(SLOW_S / 4, 40 * PROBE)
    assert fast[0] is True and fast[-PROBE:] == [False] * PROBE


def test_a_thread_is_not_worth_it_while_the_reactor_has_nothing_to_do():
    """One message under way: nobody sends before the commit is over. Now and then one is handed to the thread, to see
    whether that is still so."""
    a = Adapting(worked=2 * SLOW_S * WORTH)
    a.commits(4 * SLOW_S, 3 * PROBE)
    tried = probes(a.commits(4 * SLOW_S, 3 * PROBE), True)
    assert len(tried) in (2, 3) and tried[1] - tried[0] == PROBE + 1
    a.worked = 8 * SLOW_S
    assert a.commits(4 * SLOW_S, 3 * PROBE)[-PROBE:].count(True) >= PROBE - 1
    a.worked = 0.0
    assert a.commits(4 * SLOW_S, 4 * PROBE)[-PROBE:].count(False) >= PROBE - 1


def test_a_disk_that_would_make_the_reactor_deaf_has_a_thread():
    a = Adapting(worked=0.0)
    a.commits(2 * DEAF_S, PROBE)
    assert a.commits(2 * DEAF_S, PROBE).count(True) >= PROBE - 1


def test_what_is_computed_is_not_waited():
    """A large batch on a fast disk, whatever came before."""
    a = Adapting(worked=8 * SLOW_S)
    a.adaptive.cpu = lambda: a.waited * 15 / 32  # a step is over once before the COMMIT, and once in it
    assert a.commits(4 * SLOW_S, 3 * PROBE) == [False] * 3 * PROBE
    assert 0 < a.adaptive.mean_s < SLOW_S / 2


def test_the_cpu_time_is_asked_for_where_a_commit_takes_long():
    """It takes a system call. For a while it is asked for after each one that took long: every other one may."""
    a, asked = Adapting(worked=0.0), []
    a.adaptive.cpu = lambda: (asked.append(1), 0.0)[1]
    a.commits(SHORT_S / 2, PROBE)
    assert asked == [] and a.adaptive.mean_s > SHORT_S / 4
    for _ in range(PROBE):
        a.commits(SHORT_S / 2, 1)
        a.commits(2 * DEAF_S, 1)
    assert len(asked) > PROBE and a.adaptive.mean_s > DEAF_S / 2
