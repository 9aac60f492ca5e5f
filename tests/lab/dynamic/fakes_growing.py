"""Changing overlays that are broken on purpose, for the tests to catch (protocols §12.2). Nothing here is for use."""

from mombroker.lab.dynamic.growing_overlay import OPEN, GrowingOverlay
from mombroker.ordering import Packet


class NoExchange(GrowingOverlay):
    """A link that opens goes on with what comes next."""

    def _open(self, peer: int) -> list[Packet]:
        self._set(peer, OPEN)
        return []


class SortsResent(GrowingOverlay):
    """Sends what a peer lacks in the order of origins and numbers."""

    def _resend(self, peer: int, theirs: list[int]) -> list[Packet]:
        out = super()._resend(peer, theirs)
        return sorted(out, key=lambda p: (p.origin, p.stamp.number) if p.dests else (-1, 0))


class NoLogForNewcomers(GrowingOverlay):
    """Tells a newcomer the numbers, and keeps the log to itself."""

    def _resend(self, peer: int, theirs: list[int]) -> list[Packet]:
        out = super()._resend(peer, theirs)
        return out if any(theirs) else [self._tell(peer, self.seen, need_not=True)]
