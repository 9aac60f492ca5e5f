"""Large pages: where they are asked for."""

import sys

import pytest

from mombroker.net import pages

MAPS = """\
559ae0000000-559ae0400000 r-xp 00000000 fe:00 1234                       /usr/bin/python3.11
559ae1100000-559ae1900000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0\x20
7f0001100000-7f00012fffff rw-p 00000000 00:00 0\x20
7f0002000000-7f0002400000 rw-p 00000000 fe:00 99                         /usr/lib/a file of more words
7f0003000000-7f0003400000 ---p 00000000 00:00 0\x20
7f0004000000-7f0004400000 rw-s 00000000 00:01 7                          /dev/shm/x
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
"""


def test_large_pages_are_for_memory_of_no_file_that_has_room_for_one():
    large = pages.LARGE
    assert [*pages.pieces(MAPS.splitlines())] == [(0x559AE1200000, 3 * large), (0x7F0000000000, 2 * large)]


class Libc:
    def __init__(self):
        self.asked = []

    def __call__(self, name):
        return self

    @property
    def madvise(self):
        return type("", (), {"__call__": lambda _, *asked: self.asked.append(asked) or -1})()


@pytest.fixture
def system(tmp_path, monkeypatch):
    libc = Libc()
    monkeypatch.setattr(pages.ctypes, "CDLL", libc)
    for name, text in (("MAPS", MAPS), ("ENABLED", "always [madvise] never\n")):
        monkeypatch.setattr(pages, name, tmp_path / name)
        (tmp_path / name).write_text(text)
    return libc


def test_the_last_memory_taken_comes_first_and_there_is_a_bound(system, monkeypatch):
    """The system may refuse each of them."""
    large = pages.LARGE
    assert pages.enlarge() == 5 * large
    assert system.asked == [(0x7F0000000000, 2 * large, 25), (0x559AE1200000, 3 * large, 25)]
    monkeypatch.setattr(pages, "MOST", 3 * large)
    system.asked.clear()
    assert pages.enlarge() == 3 * large
    assert system.asked == [(0x7F0000000000, 2 * large, 25), (0x559AE1200000, large, 25)]


@pytest.mark.parametrize("name, text", [("ENABLED", "always madvise [never]\n"), ("ENABLED", None), ("MAPS", None)])
def test_a_system_without_large_pages_is_left_alone(system, tmp_path, name, text):
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    assert pages.enlarge() == 0 and system.asked == []


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_process_goes_on_with_large_pages():
    held = [str(number) * 50 for number in range(100_000)]
    assert pages.enlarge() >= 0
    assert held == [str(number) * 50 for number in range(100_000)]
