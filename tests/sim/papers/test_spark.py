"""A sweep on real Spark finds what processes find."""

import pytest

from mombroker.sim.papers import ks, sweep

pytest.importorskip("pyspark")


@pytest.mark.spark
@pytest.mark.long
def test_forty_jobs_are_the_same_on_spark(tmp_path):
    from mombroker.admin.analysis.session import session

    points = ks.points("3", False, range(1, 11), {})[:40]
    for point in points:
        point.params.update(sends=200, first=50)
    found = []
    for name, spark in (("alone", None), ("spark", session("local[2]"))):
        rows = sweep.run(ks.PAPER, points, sweep.Cache(tmp_path / name, "ks"), spark=spark)
        found.append([{column: row[column] for column in row if column != "cpu_s"} for row in rows])
    assert found[0] == found[1] and len({str(row) for row in found[0]}) == 40
