"""What a listener grants its sessions."""

from __future__ import annotations

from dataclasses import dataclass, field

from mombroker import __version__
from mombroker.broker import transactions
from mombroker.stomp.frames import Limits


@dataclass(slots=True)
class Settings:
    """Times in ms.

    server       how it calls itself in CONNECTED; empty: not at all
    persistent   what a SEND without that header is
    """

    server: str = f"mombroker/{__version__}"
    limits: Limits = field(default_factory=Limits)
    transactions: transactions.Limits = field(default_factory=transactions.Limits)
    beat_send: int = 1_000  # we can send a beat so often, and
    beat_expect: int = 1_000  # take one so often: what is agreed on is the client's, unless that is shorter
    subscriptions: int = 1_000
    persistent: bool = True
    type_headers: bool = False

    def told(self) -> str:
        """The limits, for CONNECTED."""
        frame = self.limits
        return (
            f"headers={frame.headers},line={frame.line},head={frame.head},body={frame.body},"
            f"transactions={self.transactions.open},subscriptions={self.subscriptions}"
        )
