"""A sweep on real Spark finds what processes find."""

import json
import os
import subprocess
import sys

import pytest

from mombroker.lab.papers import ks, sweep
from tests.admin.analysis.conftest import QUICK

pytest.importorskip("pyspark")

# A process has one master.
ELSEWHERE = """
import sys, json
from pathlib import Path
from mombroker.admin.analysis.session import session
from tests.lab.papers.test_spark import swept
print(json.dumps(swept(Path(sys.argv[1]), spark=session(sys.argv[2]))))
"""


def swept(folder, **where):
    """40 short runs, without the time that they took."""
    points = ks.points("3", False, range(1, 11), {})[:40]
    for point in points:
        point.params.update(sends=200, first=50)
    rows = sweep.run(ks.PAPER, points, sweep.Cache(folder, "ks"), **where)
    return [{column: row[column] for column in row if column != "cpu_s"} for row in rows]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("here"), processes=2)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_forty_jobs_are_the_same_by_processes_and_on_spark(tmp_path, here, master):
    quick = os.environ | {"JDK_JAVA_OPTIONS": QUICK}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, tmp_path / "there", master], capture_output=True, text=True, env=quick
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == here and len({str(row) for row in here}) == 40
