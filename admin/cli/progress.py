"""A progress bar on stderr where that is a terminal, silence elsewhere."""

import sys
from types import TracebackType
from typing import Self


class Bar:
    """`at(done, total)` moves it; a total of 0 means that it is not known. It disappears at the end."""

    def __init__(self, what: str):
        self.what = what
        self.on = sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self.on:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            # It draws itself only when something moves: no thread, so that the process may fork meanwhile.
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
            self.task = self.progress.add_task(self.what, total=None)
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.on:
            self.progress.stop()
            self.on = False

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.on:
            self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def at(self, done: int, total: int = 0, left: float = -1.0) -> None:
        """`left`: seconds; below 0: not known."""
        if self.on:
            what = self.what if left < 0 else f"{self.what}, {duration(left)} left"
            self.progress.update(self.task, completed=done, total=total or None, description=what, refresh=True)


def duration(seconds: float) -> str:
    """In words: good enough to decide whether to wait."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
