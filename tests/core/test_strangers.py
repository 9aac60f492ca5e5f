"""What strangers may cost: lines in the log and connections, by address."""

import pytest

from mombroker.core import strangers
from mombroker.core.strangers import Complaints, Newcomers, origin


class Log:
    def __init__(self):
        self.lines, self.now = [], 1_000.0
        self.complaints = Complaints(self.lines.append, lambda: self.now)
        self.say = self.complaints.say


@pytest.mark.parametrize("host, whose", [
    ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"), ("fe80::1%eth0", "fe80::/64"), ("", ""),
    ("no:address", "no:address"),
])  # fmt: skip
def test_an_address_is_counted_with_its_network(host, whose):
    assert origin(host) == whose


def test_a_kind_of_line_is_written_once_a_minute_for_each_address_and_the_rest_is_counted():
    log = Log()
    for at in range(4_312):
        log.say("10.0.0.1", f"unknown command 'x{at}' after {at} bytes")
    log.say("10.0.0.2", "unknown command 'y' after 7 bytes")
    assert log.lines == ["unknown command 'x0' after 0 bytes", "unknown command 'y' after 7 bytes"]
    log.now += strangers.PERIOD_S
    log.say("10.0.0.1", "unknown command 'z' after 1 bytes")
    assert log.lines[2] == "unknown command 'z' after 1 bytes (and 4,311 more like this)"
    log.now += strangers.PERIOD_S
    log.say("10.0.0.1", "unknown command 'z' after 1 bytes")
    assert log.lines[3] == "unknown command 'z' after 1 bytes"


def test_an_address_with_many_kinds_leaves_room_for_the_others():
    log = Log()
    for at in range(5_000):
        log.say("10.0.0.1", "kind " + "x" * (at % 300))
    assert len(log.lines) == strangers.MAX_KINDS
    log.say("10.0.0.2", "another")
    assert log.lines[-1].startswith("another (and 4,8")
    assert len(log.complaints) == len(log.lines)


def test_all_addresses_together_write_a_bounded_number_of_lines():
    log = Log()
    for at in range(1_000):
        log.say(f"10.0.{at >> 8}.{at & 255}", "bad")
    assert len(log.lines) == len(log.complaints) == strangers.MAX_LINES
    log.now += strangers.PERIOD_S
    log.say("10.1.0.1", "bad")
    assert log.lines[-1] == f"bad (and {1_000 - strangers.MAX_LINES} lines of other kinds were left out)"
    assert len(log.complaints) == 1


def test_a_line_is_short_and_has_no_signs_that_a_terminal_obeys():
    log = Log()
    log.say("h", "\x1b[2J\n" + "x" * 10_000)
    assert log.lines[0].startswith("\\x1b[2J\\nxxx") and len(log.lines[0]) < 1_000


def test_of_newcomers_the_oldest_of_the_address_that_has_most_is_surplus():
    new = Newcomers()
    for host, conn in (("a", 1), ("b", 2), ("b", 3), ("c", 4), ("b", 5)):
        new.add(host, conn)
    assert (new.surplus(), len(new)) == (2, 5)
    for conn in (2, 3, 2):
        new.discard("b", conn)
    new.discard("a", 1)
    assert (new.surplus() in (4, 5), len(new)) == (True, 2)
