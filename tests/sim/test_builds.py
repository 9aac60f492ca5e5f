"""The same seeds leave the same traces on the build at hand, be it compiled, and on the sources of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mombroker.sim.seeds import AGENTS, run

ROOT = Path(__file__).parents[2]
EVERYTHING = "everything"

# Of mombroker only what is Python is imported; compiled modules stand beside their sources.
PURE = """
import json, sys
from importlib.machinery import FileFinder, SOURCE_SUFFIXES, SourceFileLoader

class Sources:
    @staticmethod
    def find_spec(name, path, target=None):
        if name.partition(".")[0] == "mombroker":
            for place in path or sys.path:
                if spec := FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name):
                    return spec

sys.meta_path.insert(0, Sources)
from mombroker.sim.seeds import run
program, first, last = sys.argv[1:]
traces = [run(seed, program=program).trace for seed in range(int(first), int(last))]
files = {module.__file__.rpartition(".")[2] for name, module in sys.modules.items() if name.startswith("mombroker.")}
print(json.dumps([sorted(files), traces]))
"""


def same(program: str, first: int, last: int) -> None:
    command = [sys.executable, "-c", PURE, program, str(first), str(last)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        traces = [run(seed, program=program).trace for seed in range(first, last)]
        said, _ = process.communicate()
    assert json.loads(said) == [["py"], traces]
    assert all(traces)


@pytest.mark.parametrize("program", [AGENTS, EVERYTHING])
def test_traces_are_those_of_the_sources(program: str) -> None:
    same(program, 700, 703)


@pytest.mark.long
@pytest.mark.parametrize("program", [AGENTS, EVERYTHING])
def test_many_traces_are_those_of_the_sources(program: str) -> None:
    same(program, 1_000, 1_100)
