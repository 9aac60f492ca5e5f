"""The laboratory does the same where Python leaves out what is asserted (`python -O`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mombroker.lab.papers import daisy, domains, ks

RUN = """
import json
from mombroker.lab.papers import daisy, domains, ks
assert False, "asserts are not left out"
print(json.dumps([daisy.run(%r), ks.run(%r), domains.run(%r)]))
"""


def test_the_laboratory_runs_the_same_without_asserts():
    """A domain of objects, one with a log to look at, and a bus of domains."""
    shorter = {"sends": 40, "first": 5}
    chosen = [
        min(module.PAPER.points(figure, False, [1], {}), key=lambda point: module.PAPER.cost(point.params)).params
        for module, figure in ((daisy, "6"), (ks, "3"), (domains, "12"))
    ]
    chosen = [chosen[0] | shorter, chosen[1] | shorter, chosen[2]]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-O", "-c", RUN % tuple(chosen)], capture_output=True, text=True, env=env, check=True
    )
    runs = [module.run(params) for module, params in zip((daisy, ks, domains), chosen, strict=True)]
    assert json.loads(done.stdout) == runs and runs[0]["packets"] > 0 and runs[1]["copies"] > 0 and runs[2]["hops"] > 0
