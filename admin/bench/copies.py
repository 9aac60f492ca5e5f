"""The agents of `mom bench group`: copies of a table in a group, which note for how long they were stopped, and
bystanders that only tick."""

import time

from mombroker.agents import Agent, Table, View, notification, reacts

TICK_S = 0.01
PAGE = 1_000  # rows that one reaction puts, or looks at
GROUP = "mom-bench"


@notification(name="bench.Enter")
class Enter:
    """Join the group, with so many rows if nobody else has any."""

    rows: int


@notification(name="bench.Rows")
class Rows:
    """Put rows from `first` to before `last`, then join."""

    first: int
    last: int


@notification(name="bench.Cast")
class Cast:
    """From now on cast so many times a second, 0 = no more."""

    rate: int


@notification(name="bench.Beat")
class Beat:
    pass


@notification(name="bench.Watch")
class Watch:
    """Count anew."""


@notification(name="bench.Set")
class Set:
    row: int
    sent: int  # ns of the machine's clock


@notification(name="bench.Sum")
class Sum:
    """Sum all rows up, those behind `after` in this turn."""

    after: int


class Bystander(Agent):
    """worst    ns between two of its reactions, at most
    beats    of them
    """

    last: int = 0
    worst: int = 0
    beats: int = 0
    ticks: int = 0

    def _note(self) -> int:
        now = time.monotonic_ns()
        if self.last:
            self.worst = max(self.worst, now - self.last)
        self.last, self.beats = now, self.beats + 1
        return now

    @reacts
    def watch(self, note: Watch) -> None:
        self.last = self.worst = self.beats = 0
        if not self.ticks:
            self.ticks = self.every(TICK_S, Beat())

    @reacts
    def beat(self, note: Beat) -> None:
        self._note()


class Copy(Bystander):
    """late    ns from a cast to its delivery here, at most
    inside  since when it has the state, ns
    due     casts since the rate was set
    cast    all casts
    total   of all rows
    """

    rows: Table
    size: int = 0
    seed: int = 0
    rate: int = 0
    since: int = 0
    due: int = 0
    cast: int = 0
    late: int = 0
    got: int = 0
    inside: int = 0
    members: int = 0
    total: list[int] = []

    @reacts
    def enter(self, note: Enter) -> None:
        if note.rows:
            self.send(self.id, Rows(0, note.rows))
        else:
            self.join(GROUP)

    @reacts
    def fill(self, note: Rows) -> None:
        for number in range(note.first, min(note.first + PAGE, note.last)):
            self.rows[number] = {"cents": 0, "owner": "x" * 40}
        if note.first + PAGE < note.last:
            self.send(self.id, Rows(note.first + PAGE, note.last))
        else:
            self.size = note.last
            self.join(GROUP)

    def snapshot(self, group: str) -> dict[str, int]:
        return {"size": self.size, "got": self.got}

    def snapshot_tables(self, group: str) -> list[Table]:
        return [self.rows]

    def restore(self, group: str, state: dict[str, int]) -> None:
        self.size, self.got = state["size"], state["got"]

    @reacts
    def viewed(self, note: View) -> None:
        self.members = len(note.members)
        if self.id in note.joined:
            self.inside = time.monotonic_ns()

    @reacts
    def watch(self, note: Watch) -> None:
        super().watch(note)
        self.late = 0

    @reacts
    def begin(self, note: Cast) -> None:
        self.rate, self.since, self.due = note.rate, time.monotonic_ns(), 0

    @reacts
    def beat(self, note: Beat) -> None:
        """What is due is cast; rows are chosen all over the table."""
        now = self._note()
        due = (now - self.since) * self.rate // 1_000_000_000
        for _ in range(min(due - self.due, self.rate) if self.rate else 0):
            self.due, self.cast, self.seed = self.due + 1, self.cast + 1, (self.seed * 1103515245 + 12345) % (1 << 31)
            self.group(GROUP).cast(Set(self.seed % self.size, now))

    @reacts
    def set(self, note: Set) -> None:
        now = self._note()
        self.late = max(self.late, now - note.sent)
        self.got += 1
        row = self.rows[note.row]
        self.rows[note.row] = {**row, "cents": row["cents"] + 1}

    @reacts
    def sum(self, note: Sum) -> None:
        if not note.after:
            self.total = [0, 0]
        page = self.rows.range(note.after, limit=PAGE)
        self.total = [self.total[0] + len(page), self.total[1] + sum(row["cents"] for _, row in page)]
        if page:
            self.send(self.id, Sum(page[-1][0] + 1))
        else:
            self.total = [*self.total, self.got]
