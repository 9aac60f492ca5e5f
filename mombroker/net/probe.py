"""How fast a folder's disk makes a small record durable: the yardstick beside every measured figure."""

import os
import tempfile
from os import PathLike
from statistics import median
from time import perf_counter


def probe(folder: str | PathLike[str], records: int = 64, size: int = 4096) -> float:
    """F: the median time, in seconds, of `fdatasync` after appending `size` bytes to a file in `folder`."""
    record = os.urandom(size)
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(records):
            file.write(record)
            start = perf_counter()
            os.fdatasync(file.fileno())
            times.append(perf_counter() - start)
    return median(times)
