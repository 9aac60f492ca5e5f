"""What is left of the machine's disk and memory, for a server's alarms, and what this process takes of them."""

import os
import resource
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")
_IO = Path("/proc/self/io")


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


def process() -> dict[str, float]:
    """CPU time, memory and open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "cpu_seconds": time.process_time(), "memory_bytes": memory(), "files": len(os.listdir("/dev/fd")) - 1,
        "max_files": soft,
    }  # fmt: skip


def disk_bytes() -> int:
    """What this process has had written to disks, as the system counts it; 0 where it does not."""
    try:
        return int(dict(line.split(": ") for line in _IO.read_text().splitlines())["write_bytes"])
    except (OSError, LookupError, ValueError):
        return 0
