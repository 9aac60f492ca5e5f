"""The benchmark of the whole pipeline runs, and every part of it reads the same records."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_every_part_reads_what_was_exported(java, tmp_path):
    command = [sys.executable, "-m", "mombroker.admin.bench.pipeline", tmp_path / "log", "--records", "20000"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    export, analysis, source, after = map(json.loads, out.splitlines())
    assert export["records"] == analysis["records"] == source["records"] >= 20_000
    assert export["export_us"] == pytest.approx(1e6 * export["export_s"] / export["records"], rel=0.01)
    assert 0 < export["megabytes"] < 5 and analysis["analysis_s"] > 0 < analysis["jvm_megabytes"]
    assert all(source[name] > 0 for name in ("five_a_second", "all_a_second")) and after["speed_us"] > 0
