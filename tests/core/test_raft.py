"""Replicas step by step: scenes of the paper and of the thesis, with each rule kept and broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mombroker.core.raft.messages import (
    BATCH,
    AppendEntries,
    Entry,
    Envelope,
    InstallSnapshot,
    Members,
    RequestVote,
    TimeoutNow,
    Vote,
    members_of,
)
from mombroker.core.raft.ready import Times
from mombroker.core.raft.replica import CLOSE, FOLLOWER, LEADER, NotNow, Replica
from mombroker.sim.replicas.disk import ReplicaDisk
from mombroker.sim.replicas.properties import Properties
from tests import fakes_raft as fakes
from tests.sim.raft_world import Numbers

T = 1000
TIMES = Times(T, T // 10, 0)  # one entry a message, if it has any bytes


class Scene:
    """Replicas a, b, c, ... whose messages wait in `bag` until somebody lets them arrive."""

    def __init__(
        self, ids: str = "abc", voters: str = "", witnesses: str = "", replica: type[Replica] = Replica,
        disk: Callable[..., ReplicaDisk] = ReplicaDisk, times: Times = TIMES,
    ):  # fmt: skip
        self.now, self.times, self.replica = 0, times, replica
        self.decided: list[Entry] = []
        self.properties = Properties(self.decided.append)
        self.bag: list[Envelope] = []
        members = Members(tuple(voters or ids), (), tuple(witnesses))
        self.disks = {id: disk(Numbers(), members, id not in witnesses) for id in ids}
        self.all: dict[str, Replica] = {}
        for id in ids:
            self.start(id)
        self.now += T  # nobody is bound any more

    def __getitem__(self, id: str) -> Replica:
        return self.all[id]

    def start(self, id: str) -> None:
        self.all[id] = self.replica(id, self.disks[id], self.times, self.now, 0.0)
        self.properties.restarted(id)

    def crash(self, id: str) -> None:
        self.disks[id].crash(0.0)
        self.start(id)

    def settle(self, id: str) -> None:
        """Do what a replica wants done, until that is nothing."""
        one, disk = self.all[id], self.disks[id]
        while True:
            self.properties.stepped(one, self.disks)
            while disk.applied_to < one.settled:
                (entry,) = one.log.slice(disk.applied_to + 1, disk.applied_to + 1, 0)
                self.properties.apply(id, entry)
                disk.apply(entry)
            if (ready := one.ready()) is None:
                return
            self.bag += ready.early
            disk.write(ready)
            one.written(ready, self.now)
            self.bag += ready.messages

    def tick(self, id: str, later: int = 0, chance: float = 0.0) -> None:
        self.now += later
        self.all[id].tick(self.now, chance)
        self.settle(id)

    def arrive(self, frm: str = "", to: str = "", *kinds: Any) -> int:
        """What is in the bag of these, and not what comes of it; how many."""
        ends = (frm or self.all), (to or self.all)
        found = [each for each in self.bag if each.frm in ends[0] and each.to in ends[1]]
        found = [each for each in found if isinstance(each.message, kinds or object)]
        for each in found:
            self.bag.remove(each)
            self.all[each.to].step(each, self.now)
            self.settle(each.to)
        return len(found)

    def talk(self, among: str) -> None:
        """All arrives between these, and all that comes of it."""
        while sum(self.arrive(a, b) for a in among for b in among if a != b):
            pass

    def lose(self) -> None:
        self.bag.clear()

    def elect(self, id: str, among: str) -> None:
        """`id` times out and is elected by these, who hear nothing more of it."""
        for _ in range(3):  # it may have to learn of newer terms first
            self.tick(id, 3 * T)
            for kind in (RequestVote, Vote, RequestVote, Vote):
                for other in among.replace(id, ""):
                    self.arrive(id if kind is RequestVote else other, other if kind is RequestVote else id, kind)
            if self[id].role == LEADER:
                break
        assert self[id].role == LEADER, (self[id].role, self.bag)

    def lead(self, id: str = "a") -> None:
        """`id` leads, and all know it."""
        among = "".join(self.all)
        self.elect(id, among)
        self.talk(among)
        self.tick(id, self.times.heartbeat)
        self.talk(among)
        assert self[id].leads

    def propose(self, id: str, number: int) -> int:
        index = self[id].propose(b"%d" % number)
        self.settle(id)
        return index

    def rows(self, id: str) -> list[int]:
        rows = self.disks[id].rows
        assert isinstance(rows, Numbers)
        return rows.numbers


# -- elections -----------------------------------------------------------------------------------------------------


def test_one_is_elected_and_what_it_proposes_is_applied_by_all():
    s = Scene()
    s.lead()
    assert s.propose("a", 7) == 2 and s.rows("a") == []
    s.talk("abc")
    assert s.rows("a") == [7]
    s.tick("a", T // 10)
    s.talk("abc")
    assert s.rows("b") == s.rows("c") == [7]


def test_who_would_not_be_elected_leaves_the_term_alone():
    s = Scene()
    s.lead()
    s.tick("c", 2 * T)
    s.lose()
    s.tick("c", 2 * T)
    assert s["c"].term == s["a"].term == 1
    s.tick("a")
    assert s["a"].role == FOLLOWER, "it has heard nothing of a majority"


def test_a_replica_that_has_a_leader_does_not_vote():
    s = Scene()
    s.lead()
    s.tick("a", T // 2)
    s.talk("ab")
    s.lose()
    s.tick("c", T - 1)
    assert s.arrive("c", "b", RequestVote) == 1
    assert not [each for each in s.bag if each.frm == "b"]


def test_one_that_was_started_does_not_vote_at_once():
    """It may have promised a leader not to, before it crashed."""
    s = Scene()
    s.lead()
    s.tick("a", T // 2)
    s.talk("ab")
    s.crash("b")
    s.tick("c", T)
    s.now = s["b"].heard + T - 1
    s.arrive("c", "b", RequestVote)
    assert not [each for each in s.bag if each.frm == "b"]


def two_leaders_of_a_term(s: Scene) -> None:
    """b votes for a and crashes; c asks it for the same term."""
    s.elect("a", "ab")
    s.crash("b")
    s.lose()
    s.tick("c", 2 * T)
    for kind in (RequestVote, Vote, RequestVote, Vote):
        s.arrive("c" if kind is RequestVote else "b", "b" if kind is RequestVote else "c", kind)


def test_a_vote_outlives_a_crash():
    s = Scene()
    two_leaders_of_a_term(s)
    assert s["c"].role != LEADER or s["c"].term > s["a"].term
    with pytest.raises(AssertionError, match="election safety: a and c lead term 1"):
        two_leaders_of_a_term(Scene(disk=fakes.VoteNotSynced))


# -- what is committed ---------------------------------------------------------------------------------------------


def figure_8(s: Scene) -> None:
    """An entry of an old term is on a majority, and is replaced for all that."""
    s.elect("a", "abc")
    s.talk("abcde")
    s.propose("a", 2)
    s.arrive("a", "b", AppendEntries)  # the first part of (a) in the figure
    s.lose()
    s.crash("a")
    s.elect("e", "cde")  # (b): e has an entry of its own in that place
    s.lose()
    s.crash("e")
    s.elect("a", "abc")  # (c): a is back, and its old entry comes to c
    s.talk("ab")
    while s["c"].log.last < 2:
        s.arrive("a", "c", AppendEntries)
        s.arrive("c", "a")
    s.lose()
    s.crash("a")
    s.elect("e", "cde")  # (d): and goes


def test_only_entries_of_its_own_term_are_counted():
    figure_8(Scene("abcde"))
    with pytest.raises(AssertionError, match="leader completeness: e leads term"):
        figure_8(Scene("abcde", replica=fakes.CountsOlderTerms))


def change_before_the_own_entry(s: Scene) -> None:
    """Two leaders change the members, and the two majorities have nobody in common (Ongaro, raft-dev, 2015)."""
    s.elect("a", "abc")
    s.talk("abcd")
    s.tick("a", T // 10)
    s.talk("abcd")
    learner = Members(("a", "b", "c", "d"), ("e",))
    s["a"].change(learner)
    s.settle("a")
    for _ in range(3):
        s.tick("a", T // 10)
        s.talk("abcde")
    s["a"].change(Members(("a", "b", "c", "d", "e")))
    s.settle("a")
    s.arrive("a", "e")  # and to nobody else
    s.lose()
    s.elect("b", "bcd")
    s["b"].change(Members(("b", "c", "d")))
    s.settle("b")
    for _ in range(6):
        s.arrive("b", "c")
        s.arrive("c", "b")
    s.lose()
    s.tick("a", 3 * T)  # it leads no more
    s.elect("a", "ade")


def test_members_change_only_behind_an_entry_of_the_own_term():
    with pytest.raises(NotNow, match="b does not lead, or not yet"):
        change_before_the_own_entry(Scene("abcde", voters="abcd"))
    with pytest.raises(AssertionError, match="leader completeness"):
        change_before_the_own_entry(Scene("abcde", voters="abcd", replica=fakes.ChangesBeforeItsOwnEntry))


def test_a_lease_ends_before_others_may_vote():
    s = Scene()
    s.lead()
    a = s["a"]
    s.tick("a", T // 10)
    s.talk("abc")
    assert a.leased(s.now) and a.leased(s.now + T - T // 8 - 1)
    assert not a.leased(s.now + T - T // 8)


def test_one_that_hands_over_has_no_lease():
    s = Scene()
    s.lead()
    s["a"].transfer("b", s.now)
    assert not s["a"].leased(s.now) and not s["a"].leads
    s.settle("a")
    s.talk("abc")
    assert s["b"].role == LEADER and s["a"].role == FOLLOWER and s["b"].term == 2


def handed(later: int = 0, **scene: Any) -> Replica:
    """b, when a has led, has told it to stand, and that has come so much later."""
    s = Scene(**scene)
    s.lead()
    s.bag.append(Envelope("a", "b", TimeoutNow(s["a"].term)))
    s.now += later
    s.arrive("a", "b", TimeoutNow)
    s.talk("abc")
    assert s["b"].role == LEADER
    return s["b"]


def test_one_that_was_handed_the_lead_knows_it():
    b = handed()
    assert b.handed == b.term == 2


def test_one_that_was_elected_was_handed_nothing():
    s = Scene()
    s.lead()
    s.elect("b", "bc")
    assert s["b"].term == 2 and not s["b"].handed


def test_what_a_leader_has_said_long_ago_hands_nothing_over():
    b = handed(T)
    assert b.term == 2 and not b.handed, "who knows what has happened since"


def test_a_witness_hands_over_what_nobody_has_served():
    s = Scene(witnesses="c")
    s.elect("c", "ac")
    s.talk("abc")
    s.tick("c", T // 10)
    s.talk("abc")
    (leader,) = [each for each in s.all.values() if each.role == LEADER]
    assert leader.id != "c" and leader.term == s["c"].term and not leader.handed


def test_one_that_resigns_is_a_follower_like_all():
    s = Scene()
    s.lead()
    s["b"].resign(s.now)
    s["a"].resign(s.now)
    assert s["a"].role == FOLLOWER and not s["a"].leads
    s.elect("b", "abc")


def test_a_transfer_that_fails_ends_in_an_election():
    s = Scene()
    s.lead()
    s["a"].transfer("b", s.now)
    s.settle("a")
    s.bag = [each for each in s.bag if not isinstance(each.message, TimeoutNow)]
    for _ in range(11):
        s.tick("a", T // 10)
        s.talk("abc")
    assert s["a"].role == FOLLOWER


@pytest.mark.parametrize(("to", "why"), [("a", "a is no other voter"), ("x", "x is no other"), ("c", "c is no other")])
def test_the_lead_goes_to_another_voter_with_rows(to, why):
    s = Scene(witnesses="c")
    s.lead()
    with pytest.raises(NotNow, match=why):
        s["a"].transfer(to, s.now)


# -- members -------------------------------------------------------------------------------------------------------


def test_a_change_that_is_not_one_step_is_refused():
    s = Scene("abcde", voters="abc")
    s.lead()
    a = s["a"]
    for voters, why in (("de", "one voter joins or leaves"), ("abcd", f"d is {a.log.last} entries behind")):
        if why.startswith("d is"):
            for number in range(CLOSE + 1):
                s.propose("a", number)
            s.talk("abc")
            why = f"d is {a.log.last} entries behind: let it catch up first"
        with pytest.raises(NotNow, match=why):
            a.change(Members(tuple(voters)))
    with pytest.raises(NotNow, match="at least one voter with rows stays"):
        a.change(Members(("a", "b"), (), ("a", "b")))
    a.change(Members(("a", "b", "c"), ("d",)))
    with pytest.raises(NotNow, match="the last change of the replicas is not decided yet"):
        a.change(Members(("a", "b")))


def test_a_leader_that_leaves_goes_when_that_is_decided():
    s = Scene()
    s.lead()
    s["a"].change(Members(("b", "c")))
    s.settle("a")
    assert s["a"].role == LEADER
    s.talk("abc")
    assert s["a"].role == FOLLOWER and s["b"].members.voters == ("b", "c")
    s.tick("a", 5 * T)
    assert s["a"].role == FOLLOWER, "it stands for no election"


def test_a_witness_leads_only_to_hand_over():
    s = Scene(witnesses="c")
    s.lead()
    s.propose("a", 7)
    s.arrive("a", "c")
    s.arrive("c", "a")
    assert s["a"].log.commit == 2
    s.lose()
    s.tick("c", 3 * T)  # a is gone, and b does not have what is decided
    s.talk("bc")
    assert s["c"].role == LEADER
    for _ in range(5):
        s.tick("c", T // 10)
        s.talk("bc")
    assert s["b"].role == LEADER and s["b"].leads and s.rows("b") == [7]


# -- snapshots -----------------------------------------------------------------------------------------------------


def behind() -> Scene:
    """c has nothing, and the log of a is cut."""
    s = Scene(times=replace(TIMES, bytes=4))
    s.elect("a", "ab")
    for number in range(20, 30):
        s.talk("ab")
        if s["a"].leads:
            s.propose("a", number)
    s.talk("ab")
    s.lose()
    disk, log = s.disks["a"], s["a"].log
    disk.write(s["a"]._ready)
    disk.cut_to(8, log.members_at(8))
    log.cut(8)
    return s


def beats(s: Scene, times: int) -> None:
    for _ in range(times):
        s.tick("a", T // 10)
        s.talk("abc")


def test_who_is_too_far_behind_gets_a_snapshot_and_the_log_behind_it():
    s = behind()
    beats(s, 3)
    assert s["a"].wants_snapshot
    s.disks["a"].take_snapshot(s["a"].log.members_at(s.disks["a"].applied_to))
    s["a"].wants_snapshot = False
    beats(s, 3)
    s.propose("a", 77)
    beats(s, 3)
    assert s.rows("c") == s.rows("a") and s.rows("c")[-1] == 77 and s.disks["c"].cut().index > 8


def test_a_snapshot_that_is_not_what_was_sent_is_asked_for_again():
    s = behind()
    beats(s, 1)
    s.disks["a"].take_snapshot(s["a"].log.members_at(s.disks["a"].applied_to))
    s.tick("a", T // 10)
    for _ in range(3):
        for at, each in enumerate(s.bag):
            if isinstance(each.message, InstallSnapshot) and each.message.offset == 8:
                s.bag[at] = each._replace(message=each.message._replace(data=b"9" * len(each.message.data)))
        s.arrive()
    assert s.rows("c") == []
    beats(s, 4)
    assert s.rows("c") == s.rows("a") != []


def late_snapshot(s: Scene) -> None:
    """A snapshot comes again when its receiver has more, upon which others count."""
    s.lead()
    for number in range(3):
        s.propose("a", number)
        s.talk("abc")
    s.disks["a"].take_snapshot(s["a"].members)
    snapshot = s.disks["a"].offered()
    assert snapshot is not None
    s.crash("b")
    last = s.propose("a", 9)
    s.arrive("a", "b", AppendEntries)
    s["b"].step(Envelope("a", "b", InstallSnapshot(1, snapshot, 0, s.disks["a"].chunk(0, 99), s.now)), s.now)
    s.settle("b")
    s.arrive("b", "a")
    assert s["a"].log.commit == last
    assert s.disks["b"].has(last, 1)


def test_a_snapshot_takes_nothing_back():
    late_snapshot(Scene(times=replace(TIMES, bytes=99)))
    with pytest.raises(AssertionError):
        late_snapshot(Scene(replica=fakes.DropsItsTail, times=replace(TIMES, bytes=99)))


# -- the rest ------------------------------------------------------------------------------------------------------


def test_members_are_packed():
    members = Members(("a", "b"), ("c",), ("b",))
    assert members_of(members.pack()) == members
    for wrong in (b"", b"[1]", b"[[], [], [], []]"):
        with pytest.raises(ValueError):
            members_of(wrong)


def test_a_leader_of_an_older_term_is_told():
    s = Scene()
    s.lead()
    s["b"].step(Envelope("c", "b", RequestVote(9, 99, 1, False, True)), s.now)
    s.settle("b")
    s.lose()
    s.tick("a", T // 10)
    s.talk("ab")
    assert s["a"].role == FOLLOWER and s["a"].term == 9


def test_entries_of_one_kind_are_all_that_rows_see():
    s = Scene()
    s.lead()
    assert [entry.kind == BATCH for entry in s.decided] == [False]
