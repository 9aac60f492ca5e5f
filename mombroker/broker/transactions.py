"""The open transactions of one session of a protocol: what they will do, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from mombroker.broker.commands import Disposition, Send
from mombroker.core.errors import MomError

Step = Send | Disposition


class TransactionError(MomError):
    """A transaction cannot be begun, or not take up more: the command is refused."""

    receipt = None  # as FrameError has it


@dataclass(slots=True)
class Limits:
    """Of all transactions together that are open in a session."""

    open: int = 1_000
    frames: int = 10_000
    bytes: int = 32 << 20


@dataclass(slots=True)
class Transaction:
    steps: list[Step] = field(default_factory=list)
    bytes: int = 0


class Transactions:
    """1. `frames` and `bytes` are the sums over those that are open."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.open: dict[str, Transaction] = {}
        self.frames = self.bytes = 0

    def begin(self, name: str) -> None:
        """Raises TransactionError, as all here."""
        if name in self.open:
            raise TransactionError(f"transaction {name!r} is open already")
        if len(self.open) >= self.limits.open:
            raise TransactionError(f"{self.limits.open} transactions are open: COMMIT or ABORT one first")
        self.open[name] = Transaction()

    def add(self, name: str, step: Step, size: int = 0) -> None:
        limits, transaction = self.limits, self._known(name)
        if self.frames >= limits.frames or self.bytes + size > limits.bytes:
            raise TransactionError(
                f"too much for transaction {name!r}: open transactions have at most {limits.frames} frames and "
                f"{limits.bytes} bytes, all together"
            )
        transaction.steps.append(step)
        transaction.bytes += size
        self.frames += 1
        self.bytes += size

    def end(self, name: str) -> list[Step]:
        """What it was to do; the name is free again."""
        transaction = self._known(name)
        del self.open[name]
        self.frames -= len(transaction.steps)
        self.bytes -= transaction.bytes
        return transaction.steps

    def clear(self) -> None:
        self.open.clear()
        self.frames = self.bytes = 0

    def _known(self, name: str) -> Transaction:
        if name not in self.open:
            raise TransactionError(f"there is no open transaction {name!r}")
        return self.open[name]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.frames == sum(len(each.steps) for each in self.open.values()), "frames do not add up"
        assert self.bytes == sum(each.bytes for each in self.open.values()), "bytes do not add up"
