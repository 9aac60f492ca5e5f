"""Changes of a bus by a program that must not wait: what it makes of a topology, and of answers that come or do not."""

import json

import pytest

from mombroker.admin import reshape
from mombroker.core import revision
from mombroker.core.changes import Kind, compare
from mombroker.core.errors import MomError
from mombroker.core.layouts import build
from mombroker.core.meta import HISTORY
from mombroker.core.topology import Server
from mombroker.core.trace import Record
from mombroker.net import adminclient


def first(given):
    return given[0]


def bus(domains):
    return build({f"d{at}": list(members) for at, members in enumerate(domains.split(","))})


def members(topology):
    return ",".join("".join(domain.members) for domain in topology.domains.values())


@pytest.mark.parametrize(
    ("make", "given", "made"),
    [
        (lambda bus: reshape.joined(bus, Server("e", "127.0.0.1", 9), first), "ab,bc", "ab,bc,be"),
        (lambda bus: reshape.joined(bus, Server("e", "127.0.0.1", 9), first), "abc", "abc,ae"),
        (lambda bus: reshape.split(bus, first), "abcd", "ad,bcd"),
        (lambda bus: reshape.split(bus, first), "ab,bcde", "ab,cb,deb"),
        (lambda bus: reshape.rerouted(bus, "c", first), "abc,ad", "abc,cd"),
        (lambda bus: reshape.split(bus, first), "ab,bc", None),
        (lambda bus: reshape.rerouted(bus, "c", first), "abc", None),
    ],
)  # fmt: skip
def test_what_is_changed_may_follow(make, given, made):
    old = bus(given)
    new = make(old)
    assert (new and members(new)) == made
    if new:
        kind = Kind.ATTACH if "e" in new.servers and "e" not in old.servers else Kind.FREEZE
        assert compare(old, revision.read(revision.text_of(new))).kind is kind


class Bus:
    """Stands for the admin ports of servers under one revision each; `answer` is what becomes of a request."""

    def __init__(self, monkeypatch, topology):
        self.topology, self.text = topology, revision.text_of(topology)
        self.numbers = dict.fromkeys(topology.servers, 1)
        self.down, self.phase, self.answer_, self.now = set(), "", None, 0.0
        monkeypatch.setattr(adminclient, "connect", self.connect)
        monkeypatch.setattr(reshape.time, "monotonic", lambda: self.now)

    def connect(self, topology, server, timeout):
        if server in self.down:
            raise MomError("down")
        return Client(self, server)


class Client:
    def __init__(self, bus, server):
        self.bus, self.server = bus, server

    def request(self, verb):
        if self.server in self.bus.down:
            raise MomError("down")
        if verb == "topology":
            return {"text": self.bus.text, "revision": self.bus.numbers[self.server]}
        return {"revision": self.bus.numbers[self.server], "phase": self.bus.phase, "bus": {}}

    def ask(self, verb, text, revision):
        assert (verb, revision) == ("apply_topology", 1)

    def answered(self):
        return self.bus.answer_ is not None

    def answer(self):
        if isinstance(self.bus.answer_, MomError):
            raise self.bus.answer_
        return self.bus.answer_

    def close(self):
        pass


@pytest.fixture
def there(monkeypatch):
    return Bus(monkeypatch, bus("abc,cd"))


@pytest.fixture
def reshaper(there):
    made = reshape.Reshaper(there.topology)
    assert made.begin(lambda now: reshape.split(now, first)) and made.under_way
    return made


def test_a_change_is_over_when_all_servers_are_at_rest_under_it(there, reshaper):
    assert reshaper.look() is None
    there.answer_, there.phase = {"begun": True}, "frozen"
    assert reshaper.look() is None
    there.numbers, there.phase = dict.fromkeys("abcd", 2), ""
    there.down = {"b"}
    assert reshaper.look() is None
    there.down = set()
    step = reshaper.look()
    assert (step.revision, step.kind, reshaper.under_way) == (2, "freeze", False)
    assert members(reshaper.topology) == "ac,cd,bc"


def test_a_refusal_is_the_end(there, reshaper):
    there.answer_ = MomError("c is full")
    assert reshaper.look() is None
    assert (reshaper.under_way, reshaper.refused) == (False, ["c is full"])
    assert members(reshaper.topology) == "abc,cd"


def test_a_server_that_was_killed_may_have_heard_what_was_asked(there, reshaper):
    there.answer_ = MomError("a at 127.0.0.1:1 did not answer (it closed the connection); see its log")
    assert reshaper.look() is None
    there.now = reshape.QUIET_S - 1
    assert reshaper.look() is None and reshaper.under_way
    there.numbers = dict.fromkeys("abcd", 2)
    assert reshaper.look().revision == 2


def test_a_server_that_was_killed_may_not_have_heard_what_was_asked(there, reshaper):
    there.answer_ = MomError("a at 127.0.0.1:1 did not answer (it closed the connection); see its log")
    assert reshaper.look() is None
    there.now, there.down = reshape.QUIET_S - 1, {"a"}
    assert reshaper.look() is None
    there.now, there.down = reshape.QUIET_S + 1, set()
    assert reshaper.look() is None and reshaper.under_way, "it has not been back for long"
    there.now = 2 * reshape.QUIET_S
    assert reshaper.look() is None and not reshaper.under_way


def test_others_that_are_away_now_and_then_keep_nobody_from_giving_up(there, reshaper):
    there.answer_ = MomError("a at 127.0.0.1:1 did not answer (it closed the connection); see its log")
    for there.now, there.down in ((0, {"b"}), (reshape.QUIET_S - 1, {"c"}), (reshape.QUIET_S + 1, {"d"})):
        assert reshaper.look() is None
    assert not reshaper.under_way


def test_a_change_is_over_though_one_or_another_is_always_away(there, reshaper):
    there.answer_, there.numbers = {"begun": True}, dict.fromkeys("abcd", 2)
    there.down = {"b"}
    assert reshaper.look() is None
    there.down = {"c"}
    assert reshaper.look().revision == 2


def test_nothing_is_asked_of_a_bus_that_does_not_answer_or_has_no_place_for_it(there):
    made = reshape.Reshaper(there.topology)
    assert not made.begin(lambda now: None)
    there.down = {"a"}
    assert not made.begin(lambda now: reshape.split(now, first)) and not made.under_way


class Log:
    def __init__(self, since, *records):
        self.since, self.records = since, list(enumerate(records, 1))

    def meta(self):
        return {f"{HISTORY}{number}": json.dumps([at, "", []]) for number, at in self.since.items()}

    def log(self, after, limit):
        return [row for row in self.records if row[0] > after][:1]


def sent(detail, ms):
    return Record("send", "a", 1, sent=ms * 1_000_000, done=0, detail=detail)


def test_pauses_are_from_the_mark_to_the_switch():
    since = {1: 0, 2: 10_000_000, 3: 20_000_000}
    stores = {
        "a": Log(since, sent("_mark", 11), sent("x", 12), sent("_switched", 15)),
        "b": Log({1: 0}, sent("_mark", 12), sent("_switched", 14), sent("_mark", 21), sent("_switched", 28)),
    }
    assert reshape.pauses(stores) == {2: [4.0, 2.0], 3: [7.0]}
