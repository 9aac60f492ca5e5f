"""Many agent servers in one process."""

import socket
import time

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor

from mombroker.core.errors import MomError
from mombroker.core.events import Admin
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.net.loop import steady, straight
from mombroker.net.service import Host
from tests.net.town import NOTE, PATIENCE_S


class Crowd:
    """A flat domain of n servers in one host; the first agent tells all others something."""

    def __init__(self, folder, n):
        self.reactor = EPollReactor()
        names = [f"s{at:03d}" for at in range(n)]
        servers = {name: Server(name, "127.0.0.1", 0, None, str(folder / name)) for name in names}
        boxes = [AgentDecl(f"box-{name}", name, "tests.net.workers:Box") for name in names]
        self.topology = Topology("crowd", servers, {"d": Domain("d", tuple(names), "matrix")}, boxes, names[0])
        self.lines = []
        self.host = Host(self.reactor, self.topology, log=lambda name: self.lines.append)
        self.names = names

    def until(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.lines
            self.reactor.iterate(0.01)

    def start(self):
        started = self.host.start()
        self.until(lambda: started.called)
        return started

    def stop(self):
        stopped = self.host.stop()
        self.until(lambda: stopped.called)

    def connections(self):
        return sum(len(node.links._by_number) for node in self.host.nodes.values())

    def heard(self, name):
        box = self.host.nodes[name].server.engine.residents.loaded.get(f"{name}/box-{name}")
        return box.reactive.got if box else []

    def tell(self, text):
        first = self.host.nodes[self.names[0]]
        first.reply = lambda ticket, result: None
        to = [f"{name}/box-{name}" for name in self.names[1:]]
        first.driver.post(Admin(1, "send", {"to": to, "type": NOTE + "Note", "fields": {"text": text}}))


@pytest.mark.parametrize("n", [12, pytest.param(150, marks=pytest.mark.long)])
def test_many_servers_of_one_process_connect_only_where_something_is_to_be_sent(tmp_path, n):
    crowd = Crowd(tmp_path, n)
    crowd.start()
    assert crowd.connections() == 0
    for text in "one", "two":
        crowd.tell(text)
    crowd.until(lambda: all(crowd.heard(name) == ["one", "two"] for name in crowd.names[1:]))
    assert crowd.connections() == 2 * (n - 1)  # each seen from both ends
    crowd.stop()
    assert crowd.host.code == 0 and not any("closed" in line for line in crowd.lines)


def test_when_one_cannot_start_all_are_closed_again(tmp_path):
    crowd = Crowd(tmp_path, 3)
    (tmp_path / "s001").write_text("a file where a folder should be")
    started = crowd.start()
    started.addErrback(lambda failure: failure.trap(MomError) and crowd.lines.append(str(failure.value)))
    assert "s001 is not a directory" in crowd.lines[-1]
    crowd.stop()
    (tmp_path / "s001").unlink()
    again = Crowd(tmp_path, 3)
    again.start()
    assert len(again.host.nodes) == 3
    again.stop()


def test_an_unknown_name_is_refused(tmp_path):
    crowd = Crowd(tmp_path, 2)
    with pytest.raises(MomError, match="the topology file has no server 'paris'; it has s000, s001"):
        Host(crowd.reactor, crowd.topology, ["paris"])


def test_the_reactor_goes_by_a_clock_that_nobody_can_set():
    reactor = EPollReactor()
    steady(reactor)
    call = reactor.callLater(3600, print)
    assert 0 < call.getTime() - time.monotonic() <= 3600
    call.cancel()


class Reader:
    """One end of a pair of sockets, as the reactor sees it; `heard` does what is to be done with what has come."""

    def __init__(self, reactor, heard):
        self.reactor, self.heard, self.lost = reactor, heard, []
        self.socket, self.other = socket.socketpair()
        self.fileno = self.socket.fileno
        reactor.addReader(self)

    def logPrefix(self):
        raise AssertionError("a context of the log is made")

    def doRead(self):
        return self.heard(self.socket.recv(100))

    def close(self):
        self.reactor.removeReader(self)
        self.socket.close()
        self.other.close()

    def connectionLost(self, reason):
        self.lost.append(reason.value)
        self.close()


def test_what_has_come_at_a_socket_is_read_without_a_context_of_the_log():
    reactor = EPollReactor()
    straight(reactor)
    heard = []
    one, other = (Reader(reactor, heard.append) for _ in range(2))
    one.other.send(b"1")
    other.other.send(b"2")
    reactor.doIteration(0)
    assert sorted(heard) == [b"1", b"2"] and one.lost == other.lost == []
    one.heard, other.heard = (lambda data: other.close()), (lambda data: one.close())
    one.other.send(b"1")
    other.other.send(b"2")
    reactor.doIteration(0)
    assert [one.fileno(), other.fileno()].count(-1) == 1, "one has closed the other, which is not read any more"
    for each in (one, other):
        if each.fileno() != -1:
            each.close()
    third = Reader(reactor, lambda data: ValueError("no"))
    third.other.send(b"3")
    reactor.doIteration(0)
    assert [str(each) for each in third.lost] == ["no"]
    reactor.removeAll()


def test_the_end_of_a_turn_of_the_loop_is_when_all_that_has_come_is_read():
    reactor = EPollReactor()
    straight(reactor)
    done = []

    def heard(data):
        if data == b"1":
            reactor.at_end(lambda: done.append("end"))
        done.append(data)

    one, other = (Reader(reactor, heard) for _ in range(2))
    one.other.send(b"1")
    other.other.send(b"2")
    reactor.doIteration(0)
    assert sorted(map(str, done[:2])) == ["b'1'", "b'2'"] and done[2:] == ["end"]
    one.close()
    other.close()
    reactor.removeAll()


def test_what_is_asked_for_at_the_end_of_a_turn_is_for_the_next_one_which_waits_for_nothing():
    reactor = EPollReactor()
    straight(reactor)
    done = []
    reactor.at_end(lambda: (done.append("one"), reactor.at_end(lambda: done.append("two"))))
    reactor.at_end(lambda: done.append("never")).cancel()
    reactor.doIteration(None)
    assert done == ["one"]
    reactor.doIteration(None)
    assert done == ["one", "two"]
    reactor.removeAll()


def test_a_call_at_the_end_of_a_turn_that_fails_takes_no_other_along():
    reactor = EPollReactor()
    straight(reactor)
    done = []
    reactor.at_end(lambda: 1 / 0)
    reactor.at_end(lambda: done.append("other"))
    with pytest.raises(ZeroDivisionError):
        reactor.doIteration(None)
    reactor.doIteration(None)
    assert done == ["other"]
    reactor.removeAll()


@pytest.mark.parametrize("wants", ["callLater", "callFromThread", "stop"])
def test_turns_follow_each_other_until_the_reactor_has_something_to_do(wants):
    reactor = EPollReactor()
    straight(reactor)
    heard = []
    asked = {"callLater": (0, heard.append, "called"), "callFromThread": (heard.append, "called")}.get(wants, ())
    reactor.startRunning()
    reactor.runUntilCurrent()

    def hear(data):
        heard.append(data)
        if len(heard) == 3:
            getattr(reactor, wants)(*asked)
        one.other.send(b"more")

    one = Reader(reactor, hear)
    one.other.send(b"1")
    reactor.doIteration(1)
    assert heard == [b"1", b"more", b"more"]
    reactor.runUntilCurrent()
    assert heard[3:] == ["called"] * (wants != "stop")
    reactor.crash()
    one.close()
    reactor.removeAll()


def test_a_reactor_without_epoll_stays_as_it_is():
    reactor = SelectReactor()
    straight(reactor)
    assert "doIteration" not in vars(reactor)
    reactor.removeAll()
