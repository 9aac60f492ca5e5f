"""The listener knows no protocol: one of lines stands beside STOMP here."""

import pytest

from mombroker.broker.commands import Delivery, Login, Send, Sync
from mombroker.broker.message import ClientMessage
from mombroker.core.errors import MomError
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.gateway.session import Session
from tests.gateway.world import Raw, World


class LineSession:
    """`NAME` on the first line logs in; each line after it is sent to queue `a`. Answers are lines."""

    beat, first, version, client_id = b".", "name", "1", ""
    send_every = expect_every = 1_000
    full = False
    uncommitted = written = 0

    def __init__(self, id):
        self.id, self.state, self.fault, self.buffer = id, "new", "", b""
        self.login, self.commands, self.output, self.notes = None, [], [], []

    @property
    def closed(self):
        return self.state == "closed"

    @property
    def unfinished(self):
        return len(self.buffer)

    def receive(self, data):
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            if self.state == "new":
                self.login, self.state = Login(line.decode(), ""), "login"
            elif line == b"bye":
                self.commands.append(Sync("bye"))
                self.state = "leaving"
            else:
                self.commands.append(Send("queue:a", line))

    def accept(self):
        self.login, self.state = None, "open"
        self.output.append(b"hello\n")

    def reply(self, said):
        for each in said:
            self.output.append(each.body + b"\n")
            self.written = each.tag

    def end(self, reason):
        self.fault, self.state = reason, "closed"
        self.output.append(reason.encode() + b"\n")

    def hurry(self):
        self.state = "closed"

    def forget(self):
        self.buffer = b""

    def counts(self):
        return {}


class Lines:
    name, setting, parted = "lines", "lines", False
    session = LineSession


@pytest.fixture
def world():
    made = World()
    made.users.clear()
    return made


def arrive(world, name=b"ann\n"):
    made = Raw(world.accepted("127.0.0.1", Lines))
    made.receive(name)
    return made


def test_the_session_of_lines_has_all_that_the_listener_asks_for():
    asked = {name for name in [*Session.__annotations__, *vars(Session)] if not name.startswith("_")}
    assert asked - set(dir(LineSession("s1/1"))) == set()


def test_clients_of_two_protocols_are_served_by_one_listener(world):
    stomp, mine = world.connect(), arrive(world)
    assert mine.drain() == b"hello\n"
    mine.receive(b"one\ntw")
    assert [type(event) for event in world.events[:2]] == [ClientOpened] * 2
    assert world.take()[2:] == [ClientCommands(2, [Send("queue:a", b"one")])]
    assert world.gateway.room.unfinished.total == 2
    delivery = Delivery("s", 1, "s1#1", ClientMessage("queue:a", "a", body=b"x"))
    for number in (1, 2):
        world.gateway.reply(number, [delivery])
    assert (mine.drain(), stomp.commands()) == (b"x\n", ["MESSAGE"])
    assert world.take() == [ClientWrote(2, 1), ClientWrote(1, 1)]
    assert [each["version"] for each in world.gateway.connections()] == ["1.2", "1"]


def test_beats_and_silence_are_those_of_the_protocol(world):
    mine = arrive(world)
    mine.drain()
    world.clock.pump([0.1] * 9)
    assert mine.drain() == b"."
    world.clock.pump([0.1] * 40)
    assert mine.drain().endswith(b"where 1 s were agreed\n")


def test_who_says_nothing_is_told_what_was_missed(world):
    mine = arrive(world, b"")
    world.clock.advance(10.1)
    assert mine.drain() == b"no name within 10 s\n"


def test_who_leaves_and_is_not_answered_goes_after_a_while(world):
    mine = arrive(world)
    mine.receive(b"bye\n")
    world.clock.advance(10.1)
    mine.drain()
    world.clock.advance(2.1)
    assert not mine.connected
    assert [type(event) for event in world.take()] == [ClientOpened, ClientCommands, ClientClosed]


def test_a_stop_ends_them_in_their_own_words(world):
    mine, stomp = arrive(world), world.connect()
    mine.drain()
    world.gateway.stop()
    assert mine.drain() == b"server s1 is stopping: connect again\n" and stomp.commands() == ["ERROR"]


def test_a_port_that_cannot_be_had_is_named_by_its_protocol(world):
    with pytest.raises(MomError, match="s1 cannot listen on 240.0.0.1:9 for lines: .* change `lines`"):
        world.gateway.listen(Lines, ("240.0.0.1", 9))
