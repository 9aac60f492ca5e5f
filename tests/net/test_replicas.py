"""What replicas say on the wire; nothing that comes there ends a replica."""

import random
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.core.errors import MomError, PeerError
from mombroker.core.raft.messages import (
    BATCH,
    MEMBERS,
    Appended,
    AppendEntries,
    Entry,
    Envelope,
    InstallSnapshot,
    Members,
    Received,
    RequestVote,
    Snapshot,
    TimeoutNow,
    Vote,
)
from mombroker.core.raft.replica import NotNow
from mombroker.net import wire
from mombroker.net.replicas.membership import Membership
from mombroker.net.replicas.ways import QUEUED, Ways
from mombroker.net.replicas.wire import Told, envelope_of, frame_of, told_of, version

ABC = Members(("a", "b"), ("c",), ("b",))
MESSAGES = [
    AppendEntries(3, 7, 2, [Entry(8, 3, BATCH, b"rows"), Entry(9, 3, MEMBERS, ABC.pack())], 8, 6, 10**18),
    AppendEntries(3, 7, 2, [], 7, 6, 5),
    Appended(3, True, 7, 9, 10**18),
    RequestVote(4, 9, 3, True, False),
    Vote(4, False, True),
    TimeoutNow(4),
    InstallSnapshot(4, Snapshot(9, 3, ABC, 100, 1 << 31), 50, b"pages", 6),
    Received(4, 9, 50, 55, 6),
]


def over_the_wire(frame):
    (found,) = wire.Decoder(1 << 20).feed(wire.encode(frame))
    return found


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_what_is_said_is_what_is_heard(message):
    envelope = Envelope("a", "b", message)
    assert envelope_of(over_the_wire(frame_of(envelope))) == envelope


def test_what_a_replica_tells_of_itself():
    told = Told("paris", "p1", "p1-00", True, 1, ABC.pack(), leads=True)
    assert told_of(over_the_wire(told.frame())) == told and told.first() == ABC
    frame = told.frame()
    frame[1] |= {"later": 1}
    assert told_of(frame) == told, "what a newer one adds is ignored"
    for name, value in [("id", 3), ("founded", "yes"), ("members", "text")]:
        with pytest.raises(PeerError):
            told_of(["replica", told.frame()[1] | {name: value}])
    with pytest.raises(PeerError):
        told_of(["replica", {"server": "paris"}])
    with pytest.raises(PeerError):
        Told("paris", "p1", "p1-00", True, 1, b"[1, 2]").first()


def test_a_leader_writes_batches_that_all_with_rows_can_read():
    known = {"a": 3, "b": 1}
    assert version(Members(("a", "b"), ("c",), ("b",)), known) == 1, "c never told"
    assert version(Members(("a", "b"), ("c",), ("b",)), known | {"c": 2}) == 2
    assert version(Members(("a", "b", "c")), known | {"c": 2}) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 64) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=10) | st.tuples(st.sampled_from(MESSAGES), st.randoms()))
def test_what_is_no_message_is_refused_and_nothing_else_is_raised(drawn):
    if isinstance(drawn, tuple):
        message, rng = drawn
        frame = frame_of(Envelope("a", "b", message))
        at = rng.randrange(len(frame))
        frame[at] = rng.choice([None, -1, 1 << 64, "x", b"", [], [[]], [[1, 2, 9, b""]], True, [1, 2, b"{", 3, 4]])
    else:
        frame = drawn
    with suppress(OverflowError):  # it cannot even be sent
        frame = over_the_wire(frame)
        for read in (envelope_of, told_of):
            with suppress(PeerError):
                read(frame)


class Group:
    """A leader whose changes are decided when the test says so."""

    def __init__(self, *voters, learners=(), witnesses=()):
        self.id, self.members, self.behind, self.open = voters[0], Members(voters, learners, witnesses), 0, False
        self.log = self
        self.commit = 1

    @property
    def changes(self):
        return [(1 + self.open, self.members)]

    def change(self, members):
        if self.open:
            raise NotNow("the last change is not decided yet")
        joins = set(members.voters) - set(self.members.voters)
        if joins and self.behind > 100:
            raise NotNow(f"{joins.pop()} is {self.behind} entries behind")
        self.members, self.open = members, True


def carried_out(group, old, new, ids, witnesses=()):
    membership = Membership(lambda: group, witnesses.__contains__)
    membership.begin(old, new, ids)
    steps = [group.members]
    while membership.busy:
        group.open = False
        membership.go_on()
        if steps[-1] != group.members:
            steps.append(group.members)
    return steps


def test_a_lost_replica_leaves_before_the_new_one_votes():
    group = Group("a-1", "b-1", "c-1")
    assert carried_out(group, "c", "c", {"b": "b-1", "c": "c-2"}) == [
        Members(("a-1", "b-1", "c-1"), ("c-2",)), Members(("a-1", "b-1"), ("c-2",)), Members(("a-1", "b-1", "c-2")),
    ]  # fmt: skip
    group = Group("a-1", "b-1", "w-1", witnesses=("w-1",))
    assert carried_out(group, "w", "w", {"w": "w-2"}, ["w"])[-1] == Members(("a-1", "b-1", "w-2"), (), ("w-2",))


def test_a_newcomer_votes_when_it_is_not_far_behind_and_the_operator_is_told_why_not():
    group = Group("a-1", "b-1")
    group.behind = 5_000
    membership = Membership(lambda: group, lambda name: False)
    membership.begin("", "c", {"c": "c-1"})
    group.open = False
    membership.go_on()
    assert "c-1 is 5000 entries behind" in membership.says() and group.members.learners == ("c-1",)
    with pytest.raises(MomError, match="another change is under way"):
        membership.begin("b", "", {})
    group.behind = 50
    membership.go_on()
    group.open = False
    membership.go_on()
    assert group.members == Members(("a-1", "b-1", "c-1")) and not membership.busy


def test_what_makes_no_sense_is_refused():
    ids = {"b": "b-1", "c": "c-2"}
    for old, new, said in [
        ("", "d", "was not met"), ("x", "", "no other replica"), ("a", "", "leads"), ("b", "b", "nothing to replace"),
    ]:  # fmt: skip
        group = Group("a-1", "b-1", "c-1")
        before = group.members
        with pytest.raises(MomError, match=said):
            Membership(lambda group=group: group, lambda name: False).begin(old, new, ids)
        assert group.members == before


def test_a_change_that_its_leader_has_left_goes_on_under_the_next_one():
    rng = random.Random(1)
    for stop in range(1, 6):
        group = Group("a-1", "b-1", "c-1")
        first = Membership(lambda group=group: group, lambda name: False)
        first.begin("c", "c", {"c": "c-2"})
        for _ in range(stop):
            group.open = rng.random() < 0.5
            first.go_on()
        group.open = False
        if group.members != Members(("a-1", "b-1", "c-2")):
            assert carried_out(group, "c", "c", {"c": "c-2"})[-1] == Members(("a-1", "b-1", "c-2"))


def test_what_is_said_to_a_replica_leaves_before_our_own_disk_is_written():
    done = []
    conn = SimpleNamespace(queued=0, send_now=done.append)
    ways = SimpleNamespace(ways={"b": SimpleNamespace(up=True, conn=conn)}, names={"b-1": "b"})
    envelope = Envelope("a-1", "b-1", TimeoutNow(3))
    Ways.send(ways, envelope)
    assert done == [wire.encode(frame_of(envelope))]
    conn.queued = QUEUED
    Ways.send(ways, envelope)
    assert len(done) == 1, "who does not read is as if cut off"
