"""What is left of the machine's disk and memory, for a server's alarms."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resources(folder: str) -> tuple[int, int, int]:
    """(bytes that are free on the file system of `folder`, its size, bytes of memory that this process takes).

    0 stands for what this system does not tell."""
    try:
        disk = os.statvfs(folder)
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    except OSError:
        free = size = 0
    return free, size, memory()


def memory() -> int:
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
