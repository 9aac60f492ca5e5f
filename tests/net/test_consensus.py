"""The driver of one replica on a clock of its own: what a newcomer needs it gets, however long that takes to make."""

from twisted.internet import task

from mombroker.core.raft.messages import Appended, AppendEntries, Envelope, InstallSnapshot, Members
from mombroker.net.committer import Inline
from mombroker.net.replicas.consensus import Consensus
from mombroker.store.replica import ReplicaStore
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
