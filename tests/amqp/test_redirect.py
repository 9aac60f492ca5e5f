"""A replica that does not lead sends clients of AMQP to the one that does."""

import pytest
from twisted.internet.testing import MemoryReactorClock, StringTransport

from mombroker.amqp import performatives
from mombroker.amqp.frames import PLAIN, SASL, frame
from mombroker.amqp.performatives import CLOSE, OPEN, OUTCOME
from mombroker.core.places import Place
from mombroker.core.topology import Server
from mombroker.net.replicas.redirect import PATIENCE_S
from mombroker.net.replicas.standby import Doors
from tests.amqp.peer import init, open_
from tests.amqp.test_gateway import frames
from tests.core.bus import topology

LEADER = Place("two", "10.0.0.2", 16300, stomp="10.0.0.2:61613", amqp="10.0.0.2:5672")


class Door:
    """The port of a standby for clients of AMQP."""

    def __init__(self, leader=LEADER):
        self.reactor = MemoryReactorClock()
        at = Server("a", "10.0.0.1", 16300, amqp="10.0.0.1:5672", replica="one", redirect=True)
        self.doors = Doors(self.reactor, at, topology({}), lambda: leader)
        self.doors.open()
        ((port, factory, *_),) = self.reactor.tcpServers
        assert port == 5672
        self.client, self.transport = factory.buildProtocol(None), StringTransport()
        self.transport.abortConnection = self.transport.loseConnection
        self.client.makeConnection(self.transport)

    def say(self, *data):
        for each in data:
            self.client.dataReceived(each)
        found = frames(self.transport.value())
        self.transport.clear()
        return found


@pytest.mark.parametrize(
    "login", [[SASL, init("PLAIN", b"\0ann\0wrong"), PLAIN], [SASL + init("ANONYMOUS", b"") + PLAIN]]
)
def test_whoever_opens_is_told_where_to_go_and_no_login_is_looked_at(login):
    door = Door()
    assert door.say(*login)[-1] == (OUTCOME, [0]) and not door.transport.disconnecting
    (code, opened), (last, (error,)) = door.say(frame(open_()))
    assert (code, last) == (OPEN, CLOSE) and opened[9] == {"amqp:connection-establishment-failed": True}
    condition, text, info = error.value
    assert condition == "amqp:connection:redirect" and text == "standby: the leader is two at 10.0.0.2:5672"
    assert info == {"hostname": "10.0.0.2", "network-host": "10.0.0.2", "port": 5672}
    assert door.transport.disconnecting and door.say(frame(performatives.close())) == []


@pytest.mark.parametrize(
    "leader, text", [(None, "does not know who leads a now"), (Place("two", "10.0.0.2", 16300), "is two")]
)
def test_where_nobody_knows_where_to_go_it_is_told_that(leader, text):
    *_, (code, (error,)) = Door(leader).say(PLAIN + frame(open_()))
    assert code == CLOSE and error.value[0] == "amqp:connection:forced" and text in error.value[1]


def test_who_does_not_speak_amqp_or_says_nothing_is_cut_off():
    door = Door()
    door.say(b"CONNECT\n\n\0")
    assert door.transport.disconnecting
    door = Door()
    door.say(SASL)
    door.reactor.advance(PATIENCE_S + 0.1)
    assert door.transport.disconnecting
