"""Loads of a whole bus are drawn from their seed alone."""

from collections import Counter
from random import Random
from statistics import fmean

import pytest

from mombroker.core.errors import MomError
from mombroker.core.layouts import generate
from mombroker.lab import bus_workloads as sends
from mombroker.lab.bus import Bus
from mombroker.lab.networks import Exponential
from mombroker.sim.world import EPOCH, MS, World

BUS = generate("bus", 9)
NAMES = list(BUS.servers)


@pytest.mark.parametrize("name", sends.WORKLOADS)
def test_a_load_has_the_asked_number_and_the_mean_gap(name):
    made = [sends.WORKLOADS[name](Random(seed), NAMES, 900, 90 * MS, sends.near(BUS)) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2] and len(made[0]) == 900 and made[0] == sorted(made[0])
    spans = [
        sends.WORKLOADS[name](Random(seed), NAMES, 900, 90 * MS, sends.near(BUS))[-1].at - EPOCH for seed in range(5)
    ]
    assert fmean(spans) == pytest.approx(900 * 10 * MS, rel=0.15)
    assert all(send.origin not in send.dests and send.dests for send in made[0])


def test_bursts_go_to_the_same():
    made = sends.bursts(Random(1), NAMES, 100, 90 * MS, sends.near(BUS, multicasts=1.0))
    assert set(Counter((send.origin, send.dests) for send in made).values()) <= {10, 20}


def test_what_is_local_stays_in_the_own_domains():
    choose, lots = sends.near(BUS, local=1.0), Random(1)
    for me in NAMES:
        peers = {member for domain in BUS.domains_of(me) for member in domain.members}
        assert all(set(choose(lots, me)) <= peers for _ in range(20))
    some = sends.near(BUS, multicasts=1.0)
    assert fmean(len(some(lots, "s1")) for _ in range(500)) == pytest.approx(4.5, rel=0.1)


def test_what_is_played_has_its_size():
    bus = Bus(world := World(1), BUS, lambda domain: Exponential(world, MS), payload=7)
    sends.play(bus, [sends.Send(EPOCH + at, "s1", ("s2",), payload) for at, payload in enumerate((5, 60_000))])
    assert bus.sizes[1:] == [5, 60_000]


def test_a_trace_is_read_and_what_is_wrong_is_said(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("ms,server,dests\n5,s2,s1 s3\n1.5,s1,s2 s1\n")
    assert sends.trace(file, BUS) == [
        (EPOCH + 1_500_000, "s1", ("s2",), 0), (EPOCH + 5 * MS, "s2", ("s1", "s3"), 0)
    ]  # fmt: skip
    wrong = [(f"{at},s1,s2", "trace.csv:1: a row is ms") for at in ("x", "nan", "inf", "1e400", "-1")]
    wrong += [("1,s1,", "trace.csv:1: a row is ms"), ("1,s1, ", "trace.csv:1: a row is ms")]
    wrong += [("", "trace.csv has no messages: a row is ms"), ("ms,server,dests", "has no messages")]
    for line, said in (*wrong, ("1,s1,nobody", "'nobody' is no server"), ("1,s1," + "s" * 140_000, "is no CSV file")):
        file.write_text(line)
        with pytest.raises(MomError, match=said):
            sends.trace(file, BUS)
    file.write_bytes(b"1,s1,\xff\xfe\x00")
    with pytest.raises(MomError, match="trace.csv is no CSV file"):
        sends.trace(file, BUS)
