import os

from mombroker.net import probe as module
from mombroker.net.probe import probe


def test_each_record_is_made_durable_and_the_middle_time_counts(tmp_path, monkeypatch):
    """Not slowed by one outlier; measured around fdatasync alone; nothing is left behind."""
    clock = iter([0, 1, 10, 12, 20, 120, 200, 203, 300, 304])
    sizes = []
    monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(module.os, "fdatasync", lambda fd: sizes.append(os.fstat(fd).st_size))
    assert probe(tmp_path, records=5, size=4096) == 3
    assert sizes == [4096 * at for at in range(1, 6)]
    assert list(tmp_path.iterdir()) == []


def test_the_real_disk_takes_some_time(tmp_path):
    assert probe(tmp_path, records=3) > 0
