"""The stations of one message and its picture, by the ends of logs."""

from contextlib import closing
from dataclasses import replace

import pytest

from mombroker import store as stores
from mombroker.admin import ways
from mombroker.admin.topology.stand import reader_of
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError
from mombroker.core.meta import NAME
from mombroker.core.trace import Record
from mombroker.store import sums
from tests.core.bus import topology
from tests.lab.test_shiviz import logs_of_a_bus

BUS = topology({"x": "abc", "y": "cd"})


class Log:
    """A reader of a store, as far as its log goes."""

    def __init__(self, records):
        self.records, self.read = records, 0

    def log_end(self):
        return len(self.records)

    def log(self, after, count):
        found = list(enumerate(self.records, 1))[after : after + count]
        self.read += len(found)
        return found


@pytest.fixture(scope="module")
def logs():
    return logs_of_a_bus()


def test_a_message_is_told_by_its_ways_and_its_stations_on_each_server(logs):
    routed = next(each for each in logs["c"] if each.kind == "forward" and each.origin == "a")
    id = f"a#{routed.number}"
    found = ways._told(BUS, {name: Log(log) for name, log in logs.items()}, id)
    mine = {(each["from"], each["to"]) for each in found["arrows"] if each["message"] == id}
    assert {("a", "c"), ("c", "d")} <= mine
    assert {"a", "c", "d"} <= set(found["servers"])
    assert [("a", "send"), ("c", "forward")] == [(each["server"], each["kind"]) for each in found["stations"]][:2]
    assert ("d", "react") in {(each["server"], each["kind"]) for each in found["stations"]}
    times = [each["time"] for each in found["stations"]]
    assert times == sorted(times) and found["left_out"] == []


def test_a_store_that_is_not_here_is_named_and_what_is_older_is_not_read(logs, monkeypatch):
    monkeypatch.setattr(ways, "RECORDS", 15)
    readers = {name: Log(log) for name, log in logs.items() if name != "d"}
    last = next(each for each in reversed(logs["a"]) if each.origin)
    found = ways._told(BUS, readers, f"{last.origin}#{last.number}")
    assert found["left_out"] == ["d"] and all(reader.read <= 5 for reader in readers.values())
    first = next(each for each in logs["a"] if each.kind == "send")
    with pytest.raises(MomError, match="among the last 5 of the logs"):
        ways._told(BUS, readers, f"a#{first.number}")


def test_what_has_an_id_of_its_client_is_found_by_where_it_went_and_when():
    sent = Record("send", "a", 7, "a/conn:1", ("b/queue:orders",), sent=50, done=50, detail="q.put")
    log = {"a": Log([sent, sent._replace(number=8, dests=("b/queue:other",)), sent._replace(number=9, sent=60)])}
    assert ways._told(BUS, log, "/queue/orders@50")["message"] == "a#7"
    with pytest.raises(MomError, match="no record of"):
        ways._told(BUS, log, "/queue/orders@51")
    with pytest.raises(MomError, match="2 messages were sent to .* choose one of a#7, a#10"):
        ways._told(BUS, {"a": Log([sent, sent._replace(number=10)])}, "/queue/orders@50")


@pytest.mark.parametrize("logs", [1, 3, 20])
def test_the_work_has_a_bound_however_many_logs_there_are(logs):
    """Of each log its last records are read, and all together are no more than the bound."""
    record = Record("send", "a", 7, "a/conn:1", ("b/queue:orders",), sent=50, done=50, detail="q.put")
    readers = {f"s{number}": Log([record._replace(number=at) for at in range(12_000)]) for number in range(logs)}
    found = ways._told(BUS, readers, "a#11999")
    assert len(found["stations"]) == logs
    assert ways.RECORDS // 2 < sum(each.read for each in readers.values()) <= ways.RECORDS
    with pytest.raises(MomError, match=f"among the last {ways.RECORDS // logs} of the logs"):
        ways._told(BUS, readers, "a#1")


def test_a_store_of_many_names_is_opened_by_the_entries_that_tell_whose_it_is(tmp_path, monkeypatch):
    bus = topology({"d": "ab"})
    with closing(stores.open(tmp_path, bus, "a")) as store:
        store.commit(Batch(meta={f"{NAME}queue:q{number}": "a" for number in range(2_000)}))
    bus.servers["a"] = replace(bus.servers["a"], data=str(tmp_path))
    looked_at, wrong = [], sums.wrong
    monkeypatch.setattr(sums, "wrong", lambda of, row: looked_at.append(row[0]) or wrong(of, row))
    with closing(reader_of(bus, "a")) as reader:
        assert 1 <= len(looked_at) < 10
        assert len(reader.meta()) > 2_000


@pytest.mark.parametrize("id", ["", "a", "a#", "#1", "a#x", "a#-1", "a#" + "9" * 20, "a@", "@5"])
def test_what_is_no_id_is_a_sentence(tmp_path, id):
    with pytest.raises(MomError, match="SERVER#NUMBER"):
        ways.of_message(tmp_path / "bus.toml", id)
