"""The process's file descriptors, its log file, and the lines that go there."""

import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mombroker.core.errors import line

LOG_BYTES, LOG_KEPT = 10 << 20, 5  # of a log file, and how many full ones are kept
LINE_CHARS = 20_000  # of a line: tracebacks are long

Log = Callable[[str], None]


class Files:
    """Descriptors of this process: as many as the system grants, less a reserve for what is no client's connection."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (ValueError, OSError):  # some systems call their hard limit infinite and grant less
                pass
        self.limit = soft if soft != resource.RLIM_INFINITY else 1 << 20
        self.reserve = max(16, min(256, self.limit // 8))
        self._probe = os.open(os.devnull, os.O_RDONLY)

    def crowded(self) -> bool:
        """Whether only the reserve is left. The system gives the lowest number that is free."""
        try:
            number = os.dup(self._probe)
        except OSError:
            return True
        os.close(number)
        return number >= self.limit - self.reserve

    def eased(self) -> bool:
        """Whether there is room for many again. Counts them, which takes its time."""
        return len(os.listdir("/dev/fd")) < self.limit - 2 * self.reserve

    def close(self) -> None:
        os.close(self._probe)


class LogFile:
    """Where standard output and error of this process go. A full file becomes log.txt.1, that one log.txt.2, ..."""

    def __init__(self, path: Path, size: int = LOG_BYTES, kept: int = LOG_KEPT):
        self.path, self.size, self.kept = path, size, kept

    def open(self) -> None:
        """Write to the file of this name, whatever has become of the one before."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(file, stream)
        os.close(file)

    def turn(self) -> None:
        """Begin a new file if this one is full. Where that cannot be done, it grows."""
        if os.fstat(2).st_size < self.size:
            return
        try:
            for number in range(self.kept - 1, 0, -1):
                if self._old(number).exists():
                    self._old(number).rename(self._old(number + 1))
            self.path.rename(self._old(1))
            self.open()
        except OSError:
            pass

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def stderr(name: str, file: LogFile | None = None) -> Log:
    """Lines of server `name` on stderr, which is `file`, if there is one. A text of several lines becomes one; what a
    terminal would obey is told in escapes."""

    def log(text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        flat = " | ".join(part.strip() for part in text.splitlines() if part.strip())
        said = line(flat, LINE_CHARS)
        with suppress(OSError):  # the terminal may be gone, the disk full: a line is not worth the server
            print(f"{stamp}.{int(now * 1000) % 1000:03d}Z {name} {said}", file=sys.stderr, flush=True)
            if file is not None:
                file.turn()

    return log
