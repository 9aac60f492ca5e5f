"""The process's log file and its file descriptors."""

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from mombroker.net.files import LogFile
from mombroker.net.files import stderr
file = LogFile(Path(sys.argv[1]), size=1_000, kept=3)
file.open()
line = stderr("a", file)
for at in range(200):
    line(f"line {at:03d} \\x1b[2J of a log")
"""


def test_a_full_log_file_is_begun_anew_and_so_many_are_kept(tmp_path):
    log = tmp_path / "log.txt"
    subprocess.run([sys.executable, "-c", SCRIPT, str(log)], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "log.txt.1", "log.txt.2", "log.txt.3"]
    parts = [(tmp_path / name).read_text() for name in ("log.txt.3", "log.txt.2", "log.txt.1", "log.txt")]
    assert all(1_000 <= len(part) < 1_100 for part in parts[:3])
    lines = "".join(parts).splitlines()
    assert [int(line.split()[3]) for line in lines] == list(range(200 - len(lines), 200))
    assert "\x1b" not in "".join(parts)


CROWDED = """
import os
from mombroker.net.files import Files

files, open_now, taken = Files(), len(os.listdir("/dev/fd")), []
files.limit, files.reserve = open_now + 40, 16
assert not files.crowded()
while not files.crowded():
    taken.append(os.dup(0))
assert 15 <= len(taken) <= 40 and not files.eased(), len(taken)
for each in taken[:10]:
    os.close(each)
assert not files.crowded() and not files.eased()
for each in taken[10:]:
    os.close(each)
assert files.eased() and not files.crowded()
files.close()
"""


def test_a_process_is_crowded_when_only_the_reserve_is_free_and_eased_when_there_is_room_again():
    """In a process of its own: others open files meanwhile."""
    subprocess.run([sys.executable, "-c", CROWDED], check=True, timeout=60)
