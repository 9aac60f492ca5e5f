"""The driver of one replica on a clock of its own: what a newcomer needs it gets, however long that takes to make."""

from contextlib import contextmanager

import pytest
from twisted.internet import task

from mombroker.core.batch import Batch, HeldRow, LinkRow
from mombroker.core.meta import NOW
from mombroker.core.raft.messages import BATCH, Appended, AppendEntries, Entry, Envelope, InstallSnapshot, Members
from mombroker.net.committer import Inline
from mombroker.net.replicas.consensus import Consensus
from mombroker.store.packed import pack
from mombroker.store.replica import LATE, ReplicaStore
from tests.store.samples import topology


class Reactor(task.Clock):
    """What is to run in a thread waits until the test lets it."""

    def __init__(self):
        super().__init__()
        self.threads = []

    def callInThread(self, call):
        self.threads.append(call)

    def callFromThread(self, call, *arguments):
        call(*arguments)


class Alone:
    """The server of the only voter."""

    def stepped(self): ...

    def failed(self, error):
        raise error


@contextmanager
def leading(folder):
    """The only voter, which leads, and how to let it commit."""
    store = ReplicaStore(folder, topology(), "paris", Members(("a",)), id="a")
    reactor = Reactor()
    consensus = Consensus(
        reactor, store, Inline(), Inline(), [].append, Alone(), lambda: 1, now=lambda: int(reactor.seconds() * 1e9)
    )
    consensus.start()
    reactor.pump([0.05] * 100)
    assert consensus.replica.leads
    done = []
    try:
        yield consensus, reactor, lambda batch: consensus.submit(store, batch, done.append), done
    finally:
        consensus.stop()
        store.close()


def test_rows_of_what_only_clients_are_told_wait_for_a_moment(tmp_path):
    row = HeldRow(7, "paris/queue:q", b"", b"x")
    with leading(tmp_path) as (consensus, reactor, commit, done):
        at = consensus.store.applied()
        commit(Batch(1, held={7: row}, meta={NOW: 5}))
        assert done == [None] and (consensus.store.applied(), consensus.store.taken()) == (at, at + 1)
        reactor.pump([0.05])
        assert consensus.store.applied() == at + 1


@pytest.mark.parametrize(
    "more",
    [
        {"links": {1: LinkRow(1, "all", "lyon", 1, 0, 0, "")}},
        {"queue_out": [(1 << 40 | 1, b"x")]},
        {"acked": {1: 1}},
        {"core": {("all", 1, 1): b"x"}},
        {"meta": {"name:x": "paris/a"}},
    ],
)
def test_what_others_are_told_is_in_the_rows_at_once(more, tmp_path):
    with leading(tmp_path) as (consensus, _, commit, done):
        commit(Batch(1))
        commit(Batch(2, **more))
        assert done == [None, None] and consensus.store.applied() == consensus.store.taken()


def test_while_another_thread_reads_no_row_waits(tmp_path):
    with leading(tmp_path) as (consensus, _, commit, _done):
        consensus.hasty = True
        commit(Batch(1))
        assert consensus.store.applied() == consensus.store.taken()


def test_who_waits_for_a_write_does_not_wait_for_rows(tmp_path):
    """A standby answers before what it hears to be decided becomes rows; a leader goes on before a lot of them does."""
    store, said = ReplicaStore(tmp_path / "b", topology(), "paris", Members(("a", "b")), id="b"), []
    consensus = Consensus(
        task.Clock(), store, Inline(), Inline(), lambda each: said.append((each.message.index, store.taken())), Alone(),
        lambda: 1, now=lambda: 0,
    )  # fmt: skip
    for at in range(1, 4):
        entry = Entry(at, 1, BATCH, pack(Batch(at)))
        consensus.hear(Envelope("a", "b", AppendEntries(1, at - 1, min(at - 1, 1), [entry], at - 1, 0, 0)))
        assert store.taken() == at - 1
    assert said == [(1, 0), (2, 0), (3, 1)]
    store.close()
    with leading(tmp_path / "a") as (consensus, reactor, _, _done):
        at, rows = consensus.store, []
        reactor.pump([0.05])
        first = at.applied()
        for number in range(LATE + 1):
            consensus.submit(at, Batch(number), lambda error: rows.append(at.applied() - first))
        assert rows == [0] * LATE + [LATE], "the next one has put them there"


def test_a_snapshot_that_takes_long_is_sent_and_not_taken_again(tmp_path):
    store = ReplicaStore(tmp_path, topology(), "paris", Members(("a",)), id="a")
    reactor, sent = Reactor(), []
    consensus = Consensus(
        reactor, store, Inline(), Inline(), sent.append, Alone(), lambda: 1, now=lambda: int(reactor.seconds() * 1e9)
    )
    consensus.start()
    reactor.pump([0.05] * 100)
    assert consensus.replica.leads
    store.cut_to(store.applied(), Members(("a",)))
    consensus.replica.log.cut(store.cut().index)
    consensus.replica.change(Members(("a",), ("b",)))
    reactor.pump([0.05] * 10)
    asked = next(each.message for each in sent if isinstance(each.message, AppendEntries))
    consensus.hear(Envelope("b", "a", Appended(consensus.replica.term, False, asked.prev, 0, asked.sent)))
    reactor.pump([0.05] * 100)
    (take,) = reactor.threads  # 5 s later, in which others were wanted
    assert not any(isinstance(each.message, InstallSnapshot) for each in sent)
    take()
    reactor.pump([0.05] * 60)
    assert any(isinstance(each.message, InstallSnapshot) for each in sent)
    assert reactor.threads == [take], "one is enough"
    assert store.offered() is not None
    consensus.stop()
    store.close()
