"""Agents that the core's tests run."""

from mombroker.agents import (
    Agent,
    DeferDone,
    DeferFailed,
    Expired,
    Items,
    ReactionFailed,
    UnknownAgent,
    notification,
    reacts,
)


@notification
class Put:
    text: str


@notification
class Tell:
    to: list
    text: str
    ttl: float = 0


@notification(expose=True)
class Count:
    """What a client may ask a clerk."""

    what: str
    times: int = 1
    stamp: bytes = b""


@notification
class Counted:
    what: str
    total: int
    stamp: bytes = b""


@notification(expose=True)
class Later:
    """To be answered when somebody else says so."""


@notification(expose=True)
class Total:
    """Answered with a plain value."""


@notification(expose=True)
class Nobody:
    """Which no agent reacts to."""


@notification
class Release: ...


@notification
class Pass:
    client: str


@notification(expose=True)
class Delegate:
    to: str


@notification
class Do:
    what: str
    value: int = 0


def double(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return 2 * value


class Sink(Agent):
    """Keeps what it got, in order; fails at texts that start with `bad` and waits for names in `ask NAME`."""

    got: list = []
    tries: int = 0
    rows: Items

    @reacts
    def put(self, note: Put) -> None:
        self.got.append(note.text)
        self.rows.add(note.text, key=len(note.text))
        if note.text.startswith("bad"):
            raise ValueError(f"no {note.text}")
        if note.text.startswith("ask "):
            self.send(note.text[4:], Put("asked"))


class Source(Agent):
    """Sends what it is told to, and keeps what comes back."""

    news: list = []
    born: list = []

    def on_create(self) -> None:
        self.news.append("created")

    @reacts
    def tell(self, note: Tell) -> None:
        self.send(note.to, Put(note.text), ttl=note.ttl)

    @reacts
    def put(self, note: Put) -> None:
        self.news.append(note.text)

    @reacts
    def bad_news(self, note: ReactionFailed | UnknownAgent | Expired) -> None:
        self.news.append(f"{type(note).__name__} {note.agent} {note.reason}")

    @reacts
    def deferred(self, note: DeferDone | DeferFailed) -> None:
        self.news.append(note.value if isinstance(note, DeferDone) else note.reason)

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "create":
            child = self.create(Sink, server="abc"[note.value])
            self.send(child, Put("first"))
            self.born.append(child)
        elif note.what == "delete":
            self.delete(self.born[-1])
            self.send(self.born[-1], Put("too late"))
        elif note.what == "timer":
            self.timer(note.value, Put("rang"))
        elif note.what == "timer and fail":
            self.timer(note.value, Put("never"))
            self.send(self.id, Put("never"))
            raise RuntimeError("after all")
        elif note.what == "cancel":
            self.cancel(self.timer(note.value, Put("cancelled")))
        elif note.what == "defer":
            self.defer(double, note.value)


class Clerk(Agent):
    """Answers clients: at once, later, or through another clerk. It fails at what is called `bad`."""

    counts: dict = {}
    waiting: list = []
    order: list = []

    @reacts
    def count(self, note: Count) -> None:
        if note.what == "bad":
            raise ValueError("no such thing")
        total = self.counts[note.what] = self.counts.get(note.what, 0) + note.times
        self.order.append(note.what)
        self.reply(Counted(note.what, total, note.stamp))

    @reacts
    def total(self, note: Total) -> None:
        self.reply(self.counts)

    @reacts
    def later(self, note: Later) -> None:
        self.waiting.append(self.sender)

    @reacts
    def release(self, note: Release) -> None:
        self.send(self.waiting, Counted("released", len(self.waiting)))

    @reacts
    def delegate(self, note: Delegate) -> None:
        self.send(note.to, Pass(self.sender))

    @reacts
    def passed(self, note: Pass) -> None:
        self.send(note.client, Counted(self.id, 0))
