"""Threads of a process for what would hold up its reactor."""

from functools import partial
from threading import Thread

from twisted.python.threadpool import ThreadPool


class Pool(ThreadPool):
    """Threads for commits and deferred functions, shared by all servers of a process. They never keep it alive: what
    is not committed, or not done, is done again after the next start."""

    def __init__(self, size: int, name: str):
        super().__init__(0, size, name)

    threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]

    def leave(self) -> None:
        """Let idle threads end; do not wait for busy ones."""
        self.threads.clear()
        self.stop()
