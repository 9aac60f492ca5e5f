"""The agents that measure: the ping-pong of paper 004 §6.1, a stream from one server to another, endless talk, a desk
that answers what it takes from a queue, a ledger with a large table."""

import time
from random import Random

from mombroker.admin.bench import clocks
from mombroker.agents import Agent, Delivered, Table, notification, reacts

TICK_S = 0.02  # of a talker with a rate
LATE_S = 1.0  # what is due from longer ago is not made up for


@notification(name="bench.Play")
class Play:
    """Make `rounds` round trips, each to all the agents of `to`."""

    to: list[str]
    rounds: int


@notification(name="bench.Ping")
class Ping:
    round: int


@notification(name="bench.Pong")
class Pong:
    round: int


class Main(Agent):
    to: list[str] = []
    left: int = 0  # rounds
    missing: int = 0  # answers to this round
    began: int = 0  # ns, of this round
    times: list[int] = []  # ns, of each finished round
    cpu: int = 0  # ns of this process, with all its servers, over the game once it is over
    clock_rows: int = 0  # rows of clocks that all servers of this process wrote meanwhile
    clock_bytes: int = 0

    @reacts
    def play(self, play: Play) -> None:
        self.to, self.left, self.times, self.cpu = play.to, play.rounds, [], -time.process_time_ns()
        self.clock_rows, self.clock_bytes = -clocks.written.rows, -clocks.written.bytes
        self._ping()

    @reacts
    def pong(self, pong: Pong) -> None:
        self.missing -= 1
        if self.missing:
            return
        self.times.append(time.monotonic_ns() - self.began)
        self.left -= 1
        if self.left:
            self._ping()
        else:
            self.cpu += time.process_time_ns()
            self.clock_rows += clocks.written.rows
            self.clock_bytes += clocks.written.bytes

    def _ping(self) -> None:
        self.missing = len(self.to)
        self.began = time.monotonic_ns()
        self.send(self.to, Ping(self.left))


class Echo(Agent):
    @reacts
    def echo(self, ping: Ping) -> None:
        self.reply(Pong(ping.round))


@notification(name="bench.Go")
class Go:
    """Send `count` messages of `size` bytes, with never more than `window` on their way."""

    count: int
    window: int
    size: int


@notification(name="bench.Drop")
class Drop:
    body: bytes
    last: bool  # of its chunk


@notification(name="bench.More")
class More:
    cpu: int  # ns of the sink's process so far


CHUNK = 64


class Source(Agent):
    sink: str
    left: int = 0  # chunks to send
    missing: int = 0  # chunks on their way
    size: int = 0
    began: int = 0  # ns
    took: int = 0  # ns of the whole game, 0 until it is over
    cpu: int = 0  # ns of this process, over the game once it is over
    sink_cpu: int = 0  # of the other, from the end of its first chunk to that of its last

    @reacts
    def go(self, go: Go) -> None:
        self.left, self.size, self.took, self.sink_cpu = go.count // CHUNK, go.size, 0, 0
        self.began, self.cpu = time.monotonic_ns(), time.process_time_ns()
        for _ in range(max(1, go.window // CHUNK)):
            self._chunk()

    @reacts
    def more(self, more: More) -> None:
        self.missing -= 1
        if not self.sink_cpu:
            self.sink_cpu = -more.cpu
        if self.left:
            self._chunk()
        elif not self.missing:
            self.sink_cpu += more.cpu
            self.took = time.monotonic_ns() - self.began
            self.cpu = time.process_time_ns() - self.cpu

    def _chunk(self) -> None:
        if self.left:
            self.left -= 1
            self.missing += 1
            body = bytes(self.size)
            for number in range(1, CHUNK + 1):
                self.send(self.sink, Drop(body, number == CHUNK))


class Sink(Agent):
    taken: int = 0
    first: int = 0  # ns, when it took its first message

    @reacts
    def take(self, drop: Drop) -> None:
        self.taken += 1
        self.first = self.first or time.monotonic_ns()
        if drop.last:
            self.reply(More(time.process_time_ns()))


@notification(name="bench.Say")
class Say:
    """To all of `to`; the first of them is to talk next. `numbers` count what each of them was told by `frm`."""

    frm: str
    to: list[str]
    numbers: list[int]


@notification(name="bench.Hush")
class Hush:
    """Do not talk any more."""


@notification(name="bench.Tick")
class Tick:
    """Talk as often as is due."""


class Talker(Agent):
    """Starts so many conversations, and goes on with each that comes to it: to one other, or to several. With a `rate`
    it talks so often a second instead, whatever comes of it.

    It counts what it has told to whom and been told by whom, so that in the end two talkers can compare.
    """

    others: list[str]
    seed: int
    starts: int
    turns: int = 0
    hushed: bool = False
    told: dict[str, int] = {}
    heard: dict[str, int] = {}
    wrong: int = 0  # messages that did not come next
    rate: float = 0.0
    ticks: int = 0  # the timer
    last: float = 0.0  # when it was, s since the epoch
    due: float = 0.0

    def on_create(self) -> None:
        for _ in range(self.starts):
            self._talk()
        if self.rate:
            self.ticks = self.every(TICK_S, Tick())

    @reacts
    def tick(self, tick: Tick) -> None:
        now = time.time()
        self.due += self.rate * min(max(now - self.last, 0.0), LATE_S)
        self.last = now
        while self.due >= 1.0:
            self.due -= 1.0
            self._talk()

    @reacts
    def hear(self, say: Say) -> None:
        number = say.numbers[say.to.index(self.id)]
        self.wrong += number != self.heard.get(say.frm, 0) + 1
        self.heard[say.frm] = number
        if say.to[0] == self.id and not self.hushed and not self.rate:
            self._talk()

    @reacts
    def hush(self, hush: Hush) -> None:
        self.hushed = True
        if self.ticks:
            self.cancel(self.ticks)

    def _talk(self) -> None:
        self.turns += 1
        chance = Random(self.seed << 32 | self.turns)
        to = chance.sample(self.others, chance.choice((1, 1, 1, 2, 3, len(self.others))))
        for other in to:
            self.told[other] = self.told.get(other, 0) + 1
        self.send(to, Say(self.id, to, [self.told[other] for other in to]))


@notification(name="bench.Take")
class Take:
    """Take so many messages of a queue, and answer each."""

    queue: str
    count: int


class Desk(Agent):
    """Answers what it takes with what it has got."""

    consumer: int = 0
    left: int = 0
    began: int = 0  # ns
    took: int = 0  # ns of the whole game, 0 until it is over

    @reacts
    def take(self, take: Take) -> None:
        self.left, self.took, self.began = take.count, 0, time.monotonic_ns()
        self.consumer = self.consume(take.queue)

    @reacts
    def answer(self, message: Delivered) -> None:
        self.reply(message.body)
        self.left -= 1
        if not self.left:
            self.stop(self.consumer)
            self.took = time.monotonic_ns() - self.began


@notification(name="bench.Fill")
class Fill:
    """Put rows from `first` on."""

    first: int
    count: int


@notification(name="bench.Look")
class Look:
    """Take `count` turns, each at a row that is drawn, `window` of them at a time. `what`: get, set, both, nothing."""

    what: str
    count: int
    window: int
    seed: int


@notification(name="bench.Turn")
class Turn:
    what: str
    key: str


@notification(name="bench.Next")
class Next:
    """The turns before this one are over."""


class Ledger(Agent):
    """Has a table of accounts."""

    rows: Table
    size: int = 0
    what: str = ""
    left: int = 0
    window: int = 0
    seed: int = 0
    cpu: int = 0  # ns of this process, over all turns once these are over; below 0 until then

    @reacts
    def fill(self, fill: Fill) -> None:
        for number in range(fill.first, fill.first + fill.count):
            self.rows[_account(number)] = {"cents": number, "owner": "x" * 40}
        self.size = fill.first + fill.count

    @reacts
    def begin(self, look: Look) -> None:
        self.what, self.left, self.window, self.seed = look.what, look.count, look.window, look.seed
        self.cpu = -time.process_time_ns()
        self._turns()

    @reacts
    def next(self, next: Next) -> None:
        if self.left:
            self._turns()
        else:
            self.cpu += time.process_time_ns()

    def _turns(self) -> None:
        chance, some = Random(self.seed << 32 | self.left), min(self.window, self.left)
        for _ in range(some):
            self.send(self.id, Turn(self.what, _account(chance.randrange(self.size))))
        self.left -= some
        self.send(self.id, Next())

    @reacts
    def turn(self, turn: Turn) -> None:
        if turn.what == "set":
            self.rows[turn.key] = {"cents": 0, "owner": "y" * 40}
        elif turn.what:
            row = self.rows[turn.key]
            if turn.what == "both":
                self.rows[turn.key] = {**row, "cents": row["cents"] + 1}


def _account(number: int) -> str:
    return f"account-{number:09}"
