"""Agents of groups: they join, leave and cast, and talk to each other past the groups. Each keeps what it has sent and
got, in its order."""

from __future__ import annotations

from random import Random
from typing import Any

from mombroker.agents import (
    Delivered,
    MemberDown,
    MemberUp,
    NotDelivered,
    Table,
    View,
    consumes,
    notification,
    reacts,
    subscribes,
)
from mombroker.sim.workloads import Witness

UNKNOWN = "unknown"
NAMES = LEDGER, DESK, WATCH = "ledger", "desk", "watch"


@notification(name="sim.visit")
class Visit:
    """Do something, and go on at random for `left` steps."""

    seed: int
    left: int
    uid: str = ""


@notification(name="sim.found")
class Found:
    """Join all groups."""


@notification(name="sim.bid")
class Bid:
    """In this group: join, leave, or cast, perhaps in total order."""

    group: str
    what: str


@notification(name="sim.told")
class Said:
    uid: str
    group: str
    total: bool


class Partner(Witness):
    """log      what it has sent (`s`), got (`d`), got back (`n`), and the views that it has seen (`v`), in order
    ledger   of each group that it is in: all that was cast there, which joiners are given
    books    likewise, of each group a table: what was cast, but for some, and how much by whom
    begun    groups whose state it was given, before it gets the view
    """

    known: list[str]
    destinations: bool
    log: list[list[Any]] = []  # noqa: RUF012 - its state
    ledger: dict[str, list[str]] = {}  # noqa: RUF012
    begun: list[str] = []  # noqa: RUF012
    book_ledger: Table
    book_desk: Table
    book_watch: Table
    count: int = 0
    born: int = 0

    def on_create(self) -> None:
        super().on_create()
        self.born = self.now

    def _uid(self) -> str:
        self.count += 1
        return f"{self.id}#{self.born % 10**12}-{self.count}"

    @reacts
    def visit(self, note: Visit) -> None:
        self._saw()
        rng = Random(note.seed)
        if note.uid:
            self.log.append(["d", note.uid])
        for _ in range(rng.choice((1, 1, 2, 4))):
            self._act(rng)
        if note.left > 0:
            for _ in range(rng.choice((0, 1, 1, 2)) if note.left > 1 else 1):
                uid = self._uid()
                self.log.append(["s", uid, "direct"])
                self.send(rng.choice(self.known), Visit(rng.getrandbits(32), note.left - 1, uid))

    def _act(self, rng: Random) -> None:
        group, dice = rng.choice(NAMES), rng.random()
        if dice < 0.15:
            self.join(group)
        elif dice < 0.22:
            self.leave(group)
        elif dice < 0.85:
            self._cast(group, rng.random() < 0.4)
        elif self.destinations:
            uid, topic = self._uid(), rng.random() < 0.5
            if topic:
                self.publish("/topic/news", uid)
            else:
                self.put("/queue/work", uid)
            self.log.append(["s", uid, "topic" if topic else "queue"])

    @reacts
    def bidden(self, note: Bid) -> None:
        self._saw()
        if note.what == "join":
            self.join(note.group)
        elif note.what == "leave":
            self.leave(note.group)
        else:
            self._cast(note.group, note.what == "total")

    def _cast(self, group: str, total: bool) -> None:
        uid = self._uid()
        self.group(group).cast(Said(uid, group, total), order="total" if total else "causal")
        self.log.append(["s", uid, "total" if total else "cast", group])

    @reacts
    def said(self, note: Said) -> None:
        self._saw()
        self.log.append(["d", note.uid, note.group])
        self.ledger.setdefault(note.group, []).append(note.uid)
        book, author = self._book(note.group), note.uid.partition("#")[0]
        book[author] = book.get(author, 0) + 1
        book[note.uid] = 1
        if book[author] % 4 == 0 and (first := book.range(f"{author}#", f"{author}$", limit=1)):
            del book[first[0][0]]

    def _book(self, group: str) -> Table:
        book: Table = getattr(self, f"book_{group}")
        return book

    @reacts
    def viewed(self, note: View) -> None:
        self._saw()
        self.log.append(["v", note.group, note.number, note.members, self.message_id])
        if self.id in note.joined and note.group not in self.begun:
            book = self._book(note.group)
            for key in list(book):
                del book[key]
        self.begun = [group for group in self.begun if group != note.group]
        if self.id in note.members:
            self.ledger.setdefault(note.group, [])
        else:
            self.ledger.pop(note.group, None)

    @reacts
    def returned(self, note: NotDelivered) -> None:
        self._saw()
        said: Said = note.note
        self.log.append(["n", said.uid, note.group, UNKNOWN in note.reason])

    def snapshot(self, group: str) -> Any:
        return self.ledger.get(group, [])

    def snapshot_tables(self, group: str) -> list[Table]:
        return [self._book(group)]

    def restore(self, group: str, state: Any) -> None:
        self.ledger[group] = state
        self.begun.append(group)


class Founder(Partner):
    """It joins all groups at first."""

    def on_create(self) -> None:
        super().on_create()
        for group in NAMES:
            self.join(group)


class Opener(Partner):
    """It joins all groups at the end, and waits for none of them itself: so nobody waits in vain for one whose home was
    lost."""

    @reacts
    def found(self, note: Found) -> None:
        self._saw()
        for group in NAMES:
            self.join(group)


class Reader(Partner):
    """One that takes from a queue and a topic, too."""

    @consumes("/queue/work")
    def work(self, message: Delivered) -> None:
        self._saw()
        self.log.append(["d", message.body.decode()])

    @subscribes("/topic/news")
    def news(self, message: Delivered) -> None:
        self._saw()
        self.log.append(["d", message.body.decode()])


@notification(name="sim.shout")
class Shout:
    """Cast in all groups."""


class Keen(Founder, Opener, Reader):
    """It joins all groups at first, and whenever it is told to."""

    @reacts
    def shout(self, note: Shout) -> None:
        self._saw()
        for group in NAMES:
            self._cast(group, False)


@notification(name="sim.enough")
class Enough:
    """Do not be told any more who is down."""


class Guard(Partner):
    """In group `watch` it is told who is down, which it keeps (`w`); and that it leaves (`l`).

    patience   s, for how long the others there wait for it
    quiet      it is not told any more
    """

    patience: float
    quiet: bool = False

    def on_create(self) -> None:
        super().on_create()
        self.join(WATCH)

    def join(self, group: str, *, patience: float = 0) -> None:
        if group == WATCH and not self.quiet:
            super().join(group, patience=self.patience)
        else:
            self._now_reacting().join(group, True)

    def leave(self, group: str) -> None:
        super().leave(group)
        self.log.append(["l", group])

    @reacts
    def down(self, note: MemberDown) -> None:
        self._saw()
        self.log.append(["w", note.group, "down", note.members, self.message_id])

    @reacts
    def up(self, note: MemberUp) -> None:
        self._saw()
        self.log.append(["w", note.group, "up", note.members, self.message_id])

    @reacts
    def enough(self, note: Enough) -> None:
        self._saw()
        self.quiet = True
        self.join(WATCH)


class ReadingGuard(Guard, Reader):
    """One that takes from a queue and a topic, too."""
