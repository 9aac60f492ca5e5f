"""A driver without a server, a store or a socket, for tests: what it calls is a line each, in order."""

from types import SimpleNamespace

from twisted.internet import task

from mombroker.core.batch import Batch
from mombroker.core.events import Ready
from mombroker.net.driver import Driver

SECOND = 1_000_000_000


class World:
    """Server, store, committer, outputs in one: each call is a line in `calls`, in order."""

    def __init__(self, hold=False, committer=None):
        self.calls = []
        self.reactor = task.Clock()
        self.notes, self.more, self.cut, self.is_full, self.level = [], False, False, False, 0
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
