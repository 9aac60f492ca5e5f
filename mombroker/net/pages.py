"""Large pages for what a server has in memory when it has started, where the system gives such to who asks.

A message that comes alone finds the caches as others have left them. With small pages its program, which Python has all
over its heap, then waits for the tables of pages, too.
"""

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path

COLLAPSE = 25  # of madvise(2): make a large page of the small ones there, at once
LARGE = 2 << 20
MOST = 128 << 20  # what comes behind it in a server with much to remember is rows, and copies take a while
MAPS, ENABLED = Path("/proc/self/maps"), Path("/sys/kernel/mm/transparent_hugepage/enabled")


def enlarge() -> int:
    """How many bytes were in pieces that can be of large pages: none where the system has no such."""
    try:
        if "[never]" in ENABLED.read_text():
            return 0
        lines = MAPS.read_text().splitlines()
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return 0
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    done = 0
    for begin, size in pieces(reversed(lines)):  # Python takes memory from above: the program comes first
        advise(begin, min(size, MOST - done), COLLAPSE)  # which the system may refuse, as for the stacks of threads
        done += min(size, MOST - done)
        if done >= MOST:
            break
    return done


def pieces(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where memory of a process that is of no file has room for large pages, and how many bytes (proc(5))."""
    for line in maps:
        where, kind, _, _, _, *name = line.split()
        if kind == "rw-p" and name in ([], ["[heap]"]):
            first, end = (int(each, 16) for each in where.split("-"))
            begin, end = -(-first // LARGE) * LARGE, end // LARGE * LARGE
            if begin < end:
                yield begin, end - begin
