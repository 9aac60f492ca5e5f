"""What is read of the machine, and a disk that really fills: producers wait, consumers go on, no server ends."""

import os
import subprocess
from mmap import mmap

import pytest

from mombroker import store
from mombroker.core.alarms import Alarms
from mombroker.core.errors import StoreFailed
from mombroker.core.events import StoreSize
from mombroker.core.limits import Limits
from mombroker.net.resources import memory, resources
from tests.store.samples import topology


def test_disk_and_memory_are_read():
    free, disk, taken = resources(".")
    assert 0 < free <= disk
    assert taken == 0 or 1 << 20 < taken < 1 << 40
    with mmap(-1, 64 << 20) as held:  # pages of its own, whatever the process had before and no longer uses
        held.write(os.urandom(1 << 20) * 64)
        assert taken == 0 or memory() > taken + (32 << 20)


def test_a_folder_that_is_gone_tells_nothing_of_its_disk(tmp_path):
    assert resources(str(tmp_path / "gone"))[:2] == (0, 0)


@pytest.fixture
def small(tmp_path):
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_small_disk_raises_the_alarm_before_it_is_full_and_ends_it(small):
    alarms = Alarms(Limits())
    for n in range(8):
        (small / f"{n}").write_bytes(bytes((1 << 20) - 20_000))
    assert alarms.measured(StoreSize(1, *resources(str(small)))) and alarms.full()
    (small / "0").unlink()
    assert alarms.measured(StoreSize(1, *resources(str(small)))) and not alarms.full()


def test_a_start_on_a_full_disk_ends_as_a_full_disk_does_later(small):
    """Exit code 3: a restart does not help."""
    for free in (0, 30_000, 60_000):
        (small / "much").write_bytes(b"")
        room = resources(str(small))[0]
        (small / "much").write_bytes(bytes(room - free))
        with pytest.raises(StoreFailed, match="^the disk is full: nothing more can be written to "):
            store.open(small / "a", topology(), "paris")
