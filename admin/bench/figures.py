"""What all measurements share: medians of interleaved rounds, each beside two yardsticks of the machine.

F is the time of one fdatasync in the same folder. C is the CPU time that Python takes to make a small object: the same
work costs up to three times as much CPU while others keep the cores busy, and C tells.
"""

import platform
import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mombroker.net.probe import probe

PROBES = 16  # records per look at the disk
OBJECTS = 20_000  # per look at the CPU

Row = dict[str, Any]


@dataclass(slots=True)
class _Small:
    a: int
    b: int
    c: int
    d: int
    e: int


def pace() -> float:
    """C, in seconds."""
    start = time.process_time()
    for _ in range(OBJECTS):
        _Small(1, 2, 3, 4, 5)
    return (time.process_time() - start) / OBJECTS


def python() -> str:
    """Version and build of this Python. One that was built without optimisation takes 10 to 20 % more CPU time.

    A build of one's own says in its configuration how it was made; Debian's, which is optimised, does not.
    """
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if "--enable-optimizations" in options or "-fprofile-use" in str(sysconfig.get_config_var("PY_CFLAGS_NODIST")):
        build = "optimised"
    elif "'--prefix=/usr'" in options:
        build = "as the distribution has built it"
    else:
        build = "not optimised (see --enable-optimizations of its configure)"
    return f"{platform.python_implementation()} {platform.python_version()}, {build}"


class Rounds:
    """Samples of several things, taken in turn, so that what disturbs the machine disturbs all of them alike.

    Both yardsticks are looked at before each sample. `disk`: F in seconds, where it is not that of the folder.
    """

    def __init__(self, folder: Path, disk: Callable[[], float] | None = None):
        self.folder = folder
        self.disk = disk or (lambda: probe(folder, records=PROBES))
        self.f: dict[str, list[float]] = {}
        self.c: dict[str, list[float]] = {}
        self.samples: dict[str, dict[str, list[float]]] = {}

    def look(self, name: str) -> None:
        self.f.setdefault(name, []).append(self.disk())
        self.c.setdefault(name, []).append(pace())

    def add(self, name: str, **values: float) -> None:
        of = self.samples.setdefault(name, {})
        for key, value in values.items():
            of.setdefault(key, []).append(value)

    def f_ms(self, name: str) -> float:
        return median(self.f[name]) * 1e3

    def c_us(self, name: str) -> float:
        return median(self.c[name]) * 1e6

    def yardsticks(self, name: str) -> Row:
        return {"f_ms": round(self.f_ms(name), 3), "c_us": round(self.c_us(name), 3)}

    def of(self, name: str, key: str) -> float:
        """The median."""
        return median(self.samples[name][key])

    def best(self, name: str, key: str) -> float:
        return min(self.samples[name][key])


def percentile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]
