"""The listener without sockets: time and transport are the test's."""

import pytest

from mombroker.broker.commands import Disconnect, Receipt, Refused, Send, Sync
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.gateway import connection, listener
from mombroker.gateway.listener import NOBODY
from mombroker.gateway.times import Times
from mombroker.gateway.users import hashed
from mombroker.stomp.frames import encode
from mombroker.stomp.session import LAST, MARK
from tests.gateway.world import SEND, World, delivery

# -- logins --------------------------------------------------------------------------------------------------------


def test_the_server_hears_of_a_client_before_its_commands(world):
    mine = world.socket()
    mine.receive(encode("CONNECT", [("accept-version", "1.2"), ("client-id", "c")]) + SEND)
    opened, commands = world.take()
    session = world.gateway.clients[1].session.id
    assert opened == ClientOpened(1, "", "c", session)
    assert commands == ClientCommands(1, [Send("queue:a", b"x", kind="text", shown="/queue/a")])
    assert mine.commands() == ["CONNECTED"]


def test_sessions_of_all_boots_have_different_names(world):
    names = set()
    for each in (world, World()):
        names |= {each.accepted("h").session.id for _ in range(2)}
    assert len(names) == 4 and all(name.startswith("s1/") for name in names)


def test_a_login_is_checked_in_a_thread_and_nothing_is_obeyed_meanwhile():
    world = World(anonymous=False)
    mine = world.connect(drain=False, login="ann", passcode="a")
    mine.receive(b"\n")
    assert (mine.reading, mine.drain(), world.take()) == (True, [], [])
    world.check_all()
    assert mine.reading and mine.commands() == ["CONNECTED"]
    assert [type(event) for event in world.take()] == [ClientOpened]
    assert world.gateway.clients[1].user == "ann"


@pytest.mark.parametrize("headers", [{"login": "ann", "passcode": "b"}, {"login": "bob", "passcode": "a"}, {}])
def test_S3_a_refused_login_gets_an_error_and_a_line_in_the_log_without_the_passcode(headers):
    world = World(anonymous=False)
    mine = world.connect(drain=False, **headers)
    world.check_all()
    (error,) = mine.drain()
    assert (error.command, mine.ended) == ("ERROR", True)
    sentence = f"access refused for user {headers['login']!r}" if headers else NOBODY
    assert error.headers["message"] == sentence
    assert world.take() == []
    assert world.lines == [f"127.0.0.1: {sentence}"]


def test_a_client_that_left_before_the_answer_is_not_let_in():
    world = World(anonymous=False)
    mine = world.connect(drain=False, login="ann", passcode="a")
    mine.lose()
    world.check_all()
    assert world.take() == [] and world.idle()


def test_before_the_login_is_answered_little_is_kept_and_nothing_is_lost():
    world = World(anonymous=False)
    mine = world.connect(drain=False, login="ann", passcode="a")
    frames = SEND * 10
    while mine.reading:
        mine.receive(frames)
    assert world.gateway.room.unfinished.total < connection.EARLY_BYTES + len(frames)
    sent = mine.protocol.session.parser.waiting // len(SEND)
    world.check_all()
    assert mine.reading
    assert len(world.take()[1].commands) == sent and world.gateway.room.unfinished.total == 0


def test_some_connections_can_be_ended():
    world = World(anonymous=False)
    world.users["bob"] = hashed("b", 4)
    sockets = [world.connect(drain=False, login=user, passcode=user[0]) for user in ("ann", "bob", "ann")]
    world.check_all()
    for mine in sockets:
        assert mine.commands() == ["CONNECTED"]
    numbers = [row["number"] for row in world.gateway.connections() if row["user"] == "ann"]
    world.gateway.end([*numbers, 99], "closed by an operator")
    assert [mine.commands() for mine in sockets] == [["ERROR"], [], ["ERROR"]]


@pytest.mark.parametrize("host, user, passcode, let_in", [
    ("127.0.0.1", "", "", True), ("::1", "", "", True), ("127.0.0.1", "guest", "guest", True),
    ("10.0.0.1", "", "", False), ("10.0.0.1", "guest", "guest", False), ("127.0.0.1", "ann", "b", False),
    ("127.0.0.1", "ann", "a", True),
])  # fmt: skip
def test_only_this_host_is_anonymous_and_a_known_user_never(world, host, user, passcode, let_in):
    world.connect(host, drain=False, login=user, passcode=passcode)
    world.check_all()
    events = world.take()
    assert bool(events) is let_in
    if let_in:
        assert events[0].user == ("ann" if user == "ann" else "")


def test_F14_a_connection_without_a_connect_frame_ends_soon(world):
    mine = world.socket()
    mine.receive(b"CONN")
    world.clock.advance(9.9)
    assert mine.drain() == []
    world.clock.advance(0.2)
    assert mine.commands() == ["ERROR"] and mine.ended
    world.clock.advance(2)
    assert not mine.connected and world.idle() and world.take() == []
    assert world.lines == ["127.0.0.1: no CONNECT frame within 10 s"]


def test_a_login_that_is_being_checked_has_time():
    world = World(anonymous=False)
    mine = world.connect(drain=False, login="ann", passcode="a")
    world.clock.advance(100)
    world.check_all()
    assert mine.commands() == ["CONNECTED"]


def test_a_client_id_may_be_for_one_connection_alone(world):
    first = world.connect(client_id="c")
    second = world.connect(drain=False, client_id="c", exclusive_client_id="true")
    (error,) = second.drain()
    assert (error.command, "client-id 'c' is in use" in error.headers["message"]) == ("ERROR", True)
    world.connect(client_id="d", exclusive_client_id="true")
    also = world.connect(client_id="c")  # it does not ask
    for each in (first, also):
        each.receive(encode("DISCONNECT", [("receipt", "r")]))
        world.gateway.reply(each.protocol.number, [Receipt(LAST)])
    third = world.connect(client_id="c", exclusive_client_id="true")
    third.lose()
    world.connect(client_id="c", exclusive_client_id="true")
    assert dict(world.gateway.client_ids) == {"c": 1, "d": 1}


def test_the_oldest_of_too_many_without_a_login_go(world, monkeypatch):
    monkeypatch.setattr(listener, "MAX_LOGINS", 2)
    logged_in = world.connect()
    first, second, third = world.socket(), world.socket(), world.socket()
    assert (logged_in.connected, first.connected, second.connected, third.connected) == (True, False, True, True)
    second.receive(encode("CONNECT", [("accept-version", "1.2")]))
    assert second.commands() == ["CONNECTED"]


def test_of_too_many_without_a_login_those_of_the_address_that_has_most_go(world, monkeypatch):
    monkeypatch.setattr(listener, "MAX_LOGINS", 10)
    other = world.socket("10.0.0.2")
    flood = [world.socket("10.0.0.1") for _ in range(50)]
    assert other.connected and [mine.connected for mine in flood] == [False] * 41 + [True] * 9
    assert len(world.lines) == 1 and "10.0.0.1" in world.lines[0]


def test_too_many_logins_at_once_are_refused():
    world = World(anonymous=False)
    waiting = [world.connect("10.0.0.1", drain=False, login="ann", passcode=str(at)) for at in range(1_001)]
    assert world.connect("10.0.0.1", drain=False, login="ann", passcode="a").commands() == ["ERROR"]
    assert "too many logins" in world.lines[0]
    waiting[500].lose()
    assert world.connect("10.0.0.1", drain=False, login="ann", passcode="a").commands() == []


# -- writes --------------------------------------------------------------------------------------------------------


def test_what_one_commit_says_is_one_write(world):
    mine = world.connect()
    mine.writes.clear()
    world.gateway.reply(1, [delivery(tag) for tag in range(1, 100)] + [Receipt("r")])
    assert len(mine.writes) == 1
    assert mine.commands() == ["MESSAGE"] * 99 + ["RECEIPT"]


@pytest.mark.parametrize("end", ["DISCONNECT", "an ERROR", "a loss"])
@pytest.mark.parametrize("more", [False, True])
def test_what_was_written_is_told_before_what_the_client_says_next_and_before_its_end(world, end, more):
    """In the same turn of the loop; also if the next write does not fit into the socket."""
    mine = world.connect()
    world.take()
    mine.protocol._output.straight = len  # as a socket with room
    world.gateway.reply(1, [delivery(5)])
    if more:
        mine.protocol._output.straight = lambda data: 1
        world.gateway.reply(1, [delivery(6)])
    if end == "a loss":
        mine.lose()
    else:
        mine.receive(encode("DISCONNECT", [("receipt", "r")]) if end == "DISCONNECT" else b"FOO\n\n\0")
        world.gateway.reply(1, [Receipt(LAST)])
    commands = [] if end == "a loss" else [ClientCommands]
    assert world.events[:1] == [ClientWrote(1, 5)]
    assert [type(event) for event in world.take()] == [ClientWrote, *commands, ClientClosed]


def test_while_a_write_is_with_the_transport_the_next_ones_wait_and_become_one(world):
    mine = world.connect()
    mine.writes.clear()
    for tag in range(1, 6):
        world.gateway.reply(1, [delivery(tag)])
    assert len(mine.writes) == 1
    assert mine.commands() == ["MESSAGE"]
    assert len(mine.writes) == 2
    assert mine.commands() == ["MESSAGE"] * 4


def test_S27_a_delivery_is_written_when_the_system_has_it(world):
    mine = world.connect()
    world.take()
    world.gateway.reply(1, [delivery(1), delivery(2), delivery(3, "client")])
    world.gateway.reply(1, [delivery(4)])
    assert world.take() == []
    mine.drain()
    assert world.take() == [ClientWrote(1, 2)]
    mine.drain()
    assert world.take() == [ClientWrote(1, 4)]
    world.gateway.reply(1, [delivery(5, "client"), Receipt("r")])
    mine.drain()
    assert world.take() == []
    world.gateway.reply(1, [delivery(6)])
    mine.lose()
    assert world.take() == [ClientClosed(1)]


def test_replies_for_a_client_that_is_gone_are_dropped(world):
    mine = world.connect()
    mine.lose()
    world.gateway.reply(1, [delivery(1)])
    world.gateway.reply(77, [delivery(1)])
    assert not world.gateway.clients


def test_a_client_that_does_not_read_is_not_read(world, monkeypatch):
    monkeypatch.setattr(connection, "MAX_WAITING", 10_000)
    mine = world.connect()
    world.gateway.reply(1, [delivery(1)])
    for tag in range(2, 200):
        world.gateway.reply(1, [delivery(tag, body=b"x" * 100)])
    assert not mine.reading
    mine.drain()
    assert mine.reading


def test_a_client_that_asks_for_more_than_is_answered_waits(world):
    mine = world.connect()
    frame = encode("SEND", [("destination", "a")], b"x" * 60_000)
    marks = 0
    while mine.reading:
        mine.receive(frame)
    for event in world.take()[1:]:
        marks += event.commands.count(Sync(MARK))
    assert marks == 4
    world.gateway.reply(1, [Receipt(MARK)])
    assert mine.reading


# -- ends ----------------------------------------------------------------------------------------------------------


ENDS = {
    "peer closes": lambda world, mine: mine.lose(),
    "fault": lambda world, mine: (mine.receive(b"FOO\n\n\0"), world.gateway.reply(1, [Receipt(LAST)])),
    "fault without an answer": lambda world, mine: (mine.receive(b"FOO\n\n\0"), world.clock.advance(10)),
    "disconnect": lambda world, mine: (mine.receive(b"DISCONNECT\n\n\0"), world.gateway.reply(1, [Receipt(LAST)])),
    "refused": lambda world, mine: world.gateway.reply(1, [Refused("no")]),
    "silence": lambda world, mine: world.clock.pump([1] * 60),
    "stop": lambda world, mine: world.gateway.stop(),
    "abort": lambda world, mine: world.gateway.abort(),
    "closed while it leaves": lambda world, mine: (mine.receive(b"DISCONNECT\n\n\0"), mine.lose()),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_S7_after_every_kind_of_end_no_timer_is_left_and_the_server_knows_once(world, end):
    mine = world.connect(heart_beat="1000,1000")
    world.take()
    end(world, mine)
    world.clock.advance(0)
    mine.drain()
    world.clock.advance(2)
    assert not mine.connected and world.idle()
    assert [event for event in world.take() if not isinstance(event, ClientCommands)] == [ClientClosed(1)]
    assert not world.gateway.clients


def test_S11_the_last_bytes_leave_before_the_end_and_the_peer_has_time_to_read_them(world):
    mine = world.connect()
    world.gateway.reply(1, [delivery(1)])
    mine.receive(SEND + encode("DISCONNECT", [("receipt", "bye")]))
    assert [event.commands[-1] for event in world.take()[1:]] == [Disconnect(LAST)]
    world.gateway.reply(1, [Receipt(LAST)])
    assert mine.connected and not mine.ended
    assert mine.commands() == ["MESSAGE", "RECEIPT"] and mine.ended
    mine.receive(b"what comes now is read and ignored")
    world.clock.advance(1.9)
    assert mine.connected
    world.clock.advance(0.2)
    assert not mine.connected


def test_S11_a_client_that_leaves_does_not_wait_for_a_proxy_that_does_not_answer(world):
    mine = world.connect()
    mine.receive(encode("DISCONNECT", [("receipt", "bye")]))
    world.clock.advance(9)
    assert mine.commands() == []
    world.clock.advance(2)
    assert mine.commands() == ["RECEIPT"] and mine.ended


def test_a_paused_client_is_read_again_when_it_must_go(world):
    """Else what it has sent would make the system reset the connection, and ERROR be lost."""
    mine = world.connect()
    while mine.reading:
        mine.receive(b"\n" * 60_000)
    world.gateway.reply(1, [Refused("no")])
    assert mine.reading
    mine.receive(SEND)
    assert mine.commands() == ["ERROR"]


def test_the_server_is_not_told_of_an_end_while_it_lets_go_of_its_outputs(world):
    mine = world.connect()
    world.take()
    world.gateway.reply(1, [Refused("no")])
    assert world.events == []
    assert world.take() == [ClientClosed(1)]
    mine.lose()
    assert world.take() == []


def test_a_stop_tells_all_clients_and_is_over_when_they_are_gone(world):
    clients = [world.connect() for _ in range(3)]
    stopped = world.gateway.stop()
    for mine in clients:
        assert not stopped.called
        (error,) = mine.drain()
        assert error.headers["message"] == "server s1 is stopping: connect again"
        mine.lose()
    assert stopped.called and world.accepted("h") is None
    assert world.lines == []


def test_a_stop_without_clients_is_over_at_once(world):
    assert world.gateway.stop().called


# -- for the operator ----------------------------------------------------------------------------------------------


def test_S30_tls_on_the_plain_port_is_a_line_in_the_log(world):
    mine = world.socket()
    mine.receive(bytes.fromhex("16030100fd010000f90303"))
    assert mine.commands() == ["ERROR"]
    assert world.lines == ["127.0.0.1: these bytes are TLS: this port takes plain text"]


def test_a_complaint_is_logged_once_a_minute(world):
    for _ in range(3):
        world.socket().receive(b"FOO\n\n\0")
    assert len(world.lines) == 1
    world.clock.advance(61)
    world.socket().receive(b"FOO\n\n\0")
    assert len(world.lines) == 2
    assert world.lines[1] == world.lines[0] + " (and 2 more like this)"


def test_a_storm_of_bad_frames_is_one_line_of_each_kind_and_address(world):
    """Whatever the numbers and quoted texts in the lines are."""
    for at in range(200):
        for host in ("10.0.0.1", "10.0.0.2"):
            for frame in (b"FO%d\n\n\0" % at, encode("CONNECT", [("accept-version", "1.2"), ("heart-beat", f"x{at}")])):
                mine = world.socket(host)
                mine.receive(frame)
                mine.lose()
    assert len(world.lines) == 4


def test_a_client_that_comes_again_and_again_with_a_fault_is_one_line(world):
    for _ in range(100):
        mine = world.connect()
        mine.receive(b"SEND\n\n\0")
        world.gateway.reply(world.gateway.total, [Receipt(LAST)])
    assert world.lines == ["client 1 (anonymous) of 127.0.0.1: SEND needs a destination"]


def test_a_fault_of_a_client_is_logged_with_its_name(world):
    mine = world.connect(drain=False, login="ann", passcode="a")
    world.check_all()
    mine.receive(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nx-expires:5\n\n\0SEND\n\n\0")
    world.gateway.reply(1, [Receipt(LAST)])
    assert "x-expires" in world.lines[0]
    assert world.lines[1] == "client 1 (ann) of 127.0.0.1: SEND needs a destination"


def test_status(world):
    mine = world.connect(client_id="c")
    mine.receive(SEND)
    assert world.gateway.status() == {
        "clients": 1,
        "total": 1,
        "refused": 0,
        "ports": {},
        "unfinished_bytes": 0,
        "transaction_bytes": 0,
    }
    (shown,) = world.gateway.connections()
    assert (shown["number"], shown["client_id"], shown["version"], shown["state"]) == (1, "c", "1.2", "open")
    assert shown["bytes_in"] > len(SEND) and shown["bytes_out"] == len(b"".join(mine.writes))


def test_times_can_be_set():
    world = World(times=Times(login=1))
    mine = world.socket()
    world.clock.advance(1.1)
    assert mine.commands() == ["ERROR"]
