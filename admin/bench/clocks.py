"""What the matrix clocks of this process write to disk, counted; and the paper's way of writing them.

Only for measurements: `count` and `paper` change what the name `matrix` means in this process.
"""

from dataclasses import dataclass

from mombroker.ordering import matrix
from mombroker.ordering.base import Rows

CLOCKS = ("ours", "full-image")


@dataclass(slots=True)
class Written:
    rows: int = 0
    bytes: int = 0


written = Written()
Matrix = matrix.Matrix


class Counted(Matrix):
    """Ours: the changed rows of the clock, and what is held."""

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        put, gone = super().dirty()
        written.rows += len(put)
        written.bytes += sum(map(len, put.values()))
        return put, gone


class FullImage(Counted):
    """Paper 004: whenever the clock has changed, the persistent image of the whole matrix is written."""

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        self._changed.update(range(0, self.size * self.size, self.size))
        return super().dirty()


def use(clock: str) -> None:
    """From now on `matrix` domains of this process have this clock, counted."""
    matrix.Matrix = FullImage if clock == "full-image" else Counted  # type: ignore[misc]
