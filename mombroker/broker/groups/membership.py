"""Membership: what a server keeps of one of its agents in one group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack

from mombroker.broker.groups.notes import Told, Viewed
from mombroker.broker.wire import note_of, pack
from mombroker.core.batch import ItemRow
from mombroker.core.groups.member import Member
from mombroker.core.groups.view import Cast, View
from mombroker.core.message import Message

MEMBERS = "members"  # the collection of memberships


@dataclass(slots=True, eq=False)
class Brought:
    """A message for a member that has not got it. `row`: of it, 0 while it has none."""

    message: Message
    row: int = 0


@dataclass(slots=True, eq=False)
class Membership:
    """place     of its row
    home      the agent of the group
    lacks     the view that it begins with, while it waits for the state of then; 0: it waits for none
    again     it has given that up, and joins once more when it has left; `tries`: how often. Or it waits to join
    until     then it does, if it has left; in memory only
    gone      the agent was deleted
    asked     it has asked to join since it is inside, and not to leave since then
    last      the last message by which it has asked to join has a number above this; 0: it has asked to leave since
    wish      what it has said when it asked to join: see Join
    settled   it has come into a view, and waits for no state; kept in no row, as the rest tells it
    prepared  a view that is to be flushed for, and is not yet: number, attempt, who is out
    """

    group: str
    home: str
    member: Member
    place: int
    lacks: int = 0
    again: bool = False
    gone: bool = False
    prepared: list[Any] | None = None
    tries: int = 0
    asked: bool = False
    wish: list[Any] = field(default_factory=lambda: [True])
    last: int = 0
    settled: bool = False
    until: int = 0

    @property
    def agent(self) -> str:
        return self.member.agent

    @property
    def inside(self) -> bool:
        return self.member.inside

    def hears_more(self, view: View) -> bool:
        """It is not in this view: has it asked to join, and that has not come to nothing?"""
        heard = view.heard.get(self.agent)  # none: nothing has, or its home is of an older program
        return self.asked if heard is None else heard <= self.last

    def row(self, id: str) -> ItemRow:
        waits = [self.lacks, self.again, self.gone, self.prepared, self.tries]
        head: bytes = pack([self.group, self.home, *waits, self.member.values(), self.asked, self.wish, self.last])
        return ItemRow(self.place, id, MEMBERS, 0, head, b"")

    @classmethod
    def of(cls, row: ItemRow) -> Membership:
        group, home, lacks, again, gone, prepared, tries, values, *asked = msgpack.unpackb(row.head)
        member = Member(values[0])
        member.load(values)
        mine = cls(group, home, member, row.id, lacks, again, gone, prepared, tries, *asked[:3])
        mine.settled = member.number > 0 and not lacks
        return mine


def item_of(message: Message, row: int) -> Cast | View:
    """Raises UnknownNotification."""
    note = note_of(message)
    of = Brought(message, row)
    if type(note) is Told:
        return Cast(note.number, note.sender, note.seq, note.after, of, place=note.place)
    assert type(note) is Viewed, "only casts and views are for members"
    return View(
        note.number, note.members, note.joined, note.left, note.giver, note.lacking, note.cut, note.heard, note.placed,
        of,
    )  # fmt: skip
