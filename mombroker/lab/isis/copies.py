"""What a member keeps of multicasts until all have them, and so may have to say again (paper 003, §5.3, §5.5)."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from mombroker.lab.isis.messages import Cast, Stable, Uid

Run = tuple[int, int]  # view, sender


@dataclass(slots=True)
class Kept:
    cast: Cast
    members: frozenset[int]  # of the view that it was sent in
    has: set[int] = field(default_factory=set)  # members known to have it


class Copies:
    """Installing a view makes nothing stable, nor does saying it again: only that all members that live have it.

    1. What is kept lacks somebody who lives.
    """

    def __init__(self, me: int, live: Callable[[], Collection[int]]):
        """`live`: who is in the newest view, or leaves by it."""
        self.me, self.live = me, live
        self.kept: dict[Uid, Kept] = {}
        self.last: dict[Run, int] = {}  # the newest that was ever kept
        self.stable: dict[Run, int] = {}  # up to this number, as somebody has told
        self.full: set[Uid] = set()  # above that: all have it
        self.news: dict[Run, None] = {}  # of which more is stable than was told

    def keep(self, cast: Cast, members: frozenset[int]) -> None:
        if cast.uid not in self.kept and not self.is_stable(cast.uid):
            self.kept[cast.uid] = kept = Kept(cast, members)
            run = cast.uid[:2]
            self.last[run] = max(self.last.get(run, 0), cast.seq)
            self._settle(kept)

    def is_stable(self, uid: Uid) -> bool:
        return uid in self.full or uid[2] <= self.stable.get(uid[:2], 0)

    def lacks(self, kept: Kept) -> set[int]:
        return {each for each in kept.members if each in self.live()} - kept.has - {self.me}

    def heard(self, uid: Uid, frm: int) -> None:
        """A member has it."""
        kept = self.kept.get(uid)
        if kept:
            kept.has.add(frm)
            self._settle(kept)

    def review(self) -> None:
        """Who lives has changed."""
        for kept in [*self.kept.values()]:
            self._settle(kept)

    def _settle(self, kept: Kept) -> None:
        if not self.lacks(kept):
            del self.kept[kept.cast.uid]
            self.full.add(kept.cast.uid)
            self.news[kept.cast.uid[:2]] = None

    def told(self, stable: Stable) -> None:
        """By another member."""
        run = stable.view, stable.sender
        for uid in [uid for uid in self.kept if uid[:2] == run and uid[2] <= stable.upto]:
            del self.kept[uid]
            self.news[run] = None
        self._rise(run, stable.upto)

    def tell(self) -> Iterator[Stable]:
        """What nobody has told yet."""
        for run in self.news:
            upto = self.upto(run)
            if self._rise(run, upto):
                yield Stable(*run, upto)
        self.news.clear()

    def _rise(self, run: Run, upto: int) -> bool:
        before = self.stable.get(run, 0)
        for seq in range(before + 1, upto + 1):
            self.full.discard((*run, seq))
        self.stable[run] = max(before, upto)
        return upto > before

    def upto(self, run: Run) -> int:
        """So many of a sender's multicasts in a view are stable, as far as is known here."""
        return min((uid[2] for uid in self.kept if uid[:2] == run), default=self.last.get(run, 0) + 1) - 1

    def check(self) -> None:
        for kept in self.kept.values():
            assert self.lacks(kept), f"invariant 1: all have {kept.cast.uid}"
