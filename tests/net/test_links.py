from dataclasses import replace

import pytest

from mombroker.core.errors import MomError, PeerRefused
from mombroker.core.events import LinkDown, LinkFrames, LinkUp
from mombroker.core.places import Place
from mombroker.net import wire
from mombroker.net.connection import Times
from mombroker.net.links import MAX_LOGINS, MAX_SAID
from mombroker.net.replicas.standby import Standby
from tests.net.cable import END, Net, Recorder, links, topology

TIMES = Times()
BUS = "abc"


@pytest.fixture
def net():
    return Net()


def kinds(each):
    return [type(event).__name__ for event in each.server.events]


def up(each, peer):
    neighbour = each.neighbours.get(peer)
    return neighbour and neighbour.up


def state_of(each, peer):
    (found,) = [row for row in each.peers() if row["peer"] == peer]
    return found


def frames(each):
    """All link frames that the server was given, in order."""
    return [f for event in each.server.events if isinstance(event, LinkFrames) for f in event.frames]


def test_a_link_is_dialled_when_there_is_something_to_send(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    net.settle(5)
    assert kinds(a) == kinds(b) == []
    a.dial("b")
    a.dial("b")
    net.settle()
    assert [type(event) for event in a.server.events] == [LinkUp]
    assert (a.server.events[0].peer, a.server.events[0].hello.server) == ("b", "b")
    assert [type(event) for event in b.server.events] == [LinkUp]
    data, ack = ("data", "d", 1, [b"x"]), ("ack", "d", 1, 5)
    a.send(a.server.events[0].conn, [data, ack])
    b.send(b.server.events[0].conn, [("data", "d", 7, [b"y", b"z"])])
    net.settle()
    assert frames(b) == [ack, data]  # acknowledgements first
    assert frames(a) == [("data", "d", 7, [b"y", b"z"])]


def test_after_any_number_of_failures_it_is_dialled_again(net):
    bus = topology(*BUS)
    a = links(net, bus, "a")
    a.dial("b")
    net.settle()
    a.neighbours["b"].failures = 5_000  # as after some days
    a.neighbours["b"].timer.cancel()
    a.neighbours["b"].timer = None
    a._try(a.neighbours["b"])
    b = links(net, bus, "b")
    net.settle(2 * TIMES.retry_last)
    assert up(a, "b") and up(b, "a")


@pytest.mark.parametrize("seed", range(100))
def test_when_both_dial_one_connection_stays_and_both_ends_hold_it(seed):
    """Whatever order the bytes, dials and closings of the two take."""
    net = Net(seed)
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    first, second = (a, b) if seed % 2 else (b, a)
    first.dial(second.me)
    for _ in range(seed % 23):
        net.step()
    second.dial(first.me)
    net.settle(TIMES.retry_last)
    one, other = up(a, "b"), up(b, "a")
    assert one.transport.other.protocol is other
    assert not one.closing and not other.closing
    for each, conn in (a, one), (b, other):
        assert each._all == {conn}
        assert not each.server.lines and not each.server.trouble
        numbers = [event.conn for event in each.server.events if isinstance(event, LinkUp)]
        downs = [event.conn for event in each.server.events if isinstance(event, LinkDown)]
        assert numbers[-1] == conn.number and sorted(numbers[:-1]) == sorted(downs)
        assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("seed", range(50))
def test_links_come_back_after_cuts_at_any_moment(seed):
    net = Net(seed)
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    for _ in range(6):
        a.dial("b")
        b.dial("a")
        for _ in range(net.random.randrange(30)):
            net.step()
        for end in [end for end in net.ends if end.open]:
            if net.random.random() < 0.5:
                end.abortConnection()
    a.dial("b")
    b.dial("a")
    net.settle(3 * TIMES.retry_last)
    assert up(a, "b").transport.other.protocol is up(b, "a")
    assert a._all == {up(a, "b")} and b._all == {up(b, "a")}


def test_a_half_open_connection_gives_way_to_the_peers_new_one(net):
    """b was cut off without a word and starts anew; to a, the old connection still looks alive."""
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    b.dial("a")
    net.settle()
    old = up(a, "b")
    old.transport.other.open = False  # nothing comes from there any more, not even an end
    again = links(net, bus, "b")
    again.dial("a")
    net.settle()
    assert up(a, "b") is not old and up(again, "a")
    assert kinds(a) == ["LinkUp", "LinkDown", "LinkUp"]


def test_a_half_open_connection_of_the_higher_name_gives_way_too(net):
    bus = topology(*BUS)
    _, b = links(net, bus, "a"), links(net, bus, "b")
    b.dial("a")
    net.settle()
    up(b, "a").transport.other.open = False
    again = links(net, bus, "a")
    again.dial("b")
    net.settle()
    assert up(b, "a").transport.other.protocol is up(again, "b")


def test_a_half_open_connection_of_the_lower_name_is_found_by_its_silence(net):
    bus = topology(*BUS)
    a, _ = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle()
    up(a, "b").transport.other.open = False
    up(a, "b").silent = 1
    again = links(net, bus, "b")
    again.dial("a")
    net.settle()
    assert up(a, "b").silent == 0  # a heartbeat was sent at once: the other end's system may answer it by a reset
    net.settle(TIMES.tick * (TIMES.silent_ticks + 2) + TIMES.retry_last)
    assert up(a, "b").transport.other.protocol is up(again, "a")
    assert "closed the connection to b: no sign of life for 15 s" in a.server.lines
    assert not again.server.lines  # it was told that a is busy, which is no news


def test_frames_for_a_connection_that_is_gone_are_dropped(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle()
    old = up(a, "b").number
    up(a, "b").transport.abortConnection()
    a.dial("b")
    net.settle(1)
    a.send(old, [("ack", "d", 1, 5)])
    net.settle()
    assert kinds(a) == ["LinkUp", "LinkDown", "LinkUp"] and frames(b) == []
    assert up(a, "b").number > old


def test_a_link_without_data_is_closed_and_opened_again_when_needed(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle(TIMES.tick * TIMES.idle_ticks - 5)
    b.send(up(b, "a").number, [("data", "d", 1, [b"x"])])
    net.settle(TIMES.tick * TIMES.idle_ticks - 5)
    assert kinds(a) == ["LinkUp", "LinkFrames"]
    net.settle(10)
    assert kinds(a) == ["LinkUp", "LinkFrames", "LinkDown"] and kinds(b) == ["LinkUp", "LinkDown"]
    assert state_of(a, "b")["state"] == "idle"  # no connection is not "down"
    b.dial("a")
    net.settle()
    assert up(a, "b") and up(b, "a") and not a.server.lines and not b.server.lines


def test_no_timer_is_left_when_nothing_is_connected(net):
    bus = topology(*BUS)
    a, _ = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle(TIMES.tick * (TIMES.idle_ticks + 2))
    assert [reactor.getDelayedCalls() for reactor in net.reactors] == [[], []]


def test_a_peer_that_cannot_be_reached_is_tried_again_ever_more_slowly(net):
    a = links(net, topology(*BUS), "a")
    a.dial("b")
    waits, clock = [], net.reactors[0]
    for _ in range(10):
        net.settle()
        (call,) = clock.getDelayedCalls()
        waits.append(round(call.getTime() - clock.seconds(), 3))
        a.dial("b")  # asking again changes nothing
        clock.advance(waits[-1])
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]
    assert a.server.lines == [
        "b cannot be reached at 127.0.0.1:2 (Connection was refused by other side.); it is tried again"
    ]
    assert state_of(a, "b")["state"] == "down"
    b = links(net, a.server.topology, "b")
    net.settle(20)
    assert up(a, "b") and up(b, "a")
    assert a.server.lines[1:] == ["b is connected again"]


def test_who_is_to_be_met_is_dialled_at_once_whatever_has_failed_before(net):
    a = links(net, topology(*BUS), "a")
    a.dial("b")
    net.settle(30)
    b = links(net, a.server.topology, "b")
    net.settle()
    assert not up(a, "b")
    a.meet("b")
    net.settle()
    assert up(a, "b") and up(b, "a")


def test_a_link_that_is_no_more_is_closed_when_what_was_sent_has_left(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle()
    conn = a.server.events[0].conn
    a.send(conn, [("ack", "d", 0, 5)])
    a.hang_up(conn)
    a.hang_up(conn)
    net.settle(1)
    assert not up(a, "b") and not up(b, "a")
    assert frames(b) == [("ack", "d", 0, 5)] and kinds(b)[-1] == "LinkDown"


def test_who_is_no_neighbour_any_more_is_dialled_no_longer(net):
    a = links(net, topology(*BUS), "a")
    a.dial("b")
    net.settle(30)
    a.server.topology = topology("a")
    net.settle(20)
    assert not a.neighbours["b"].wanted and not net.reactors[0].getDelayedCalls()


def test_waits_are_jittered_by_half():
    waits = []
    for chance in (0.0, 0.999):
        net = Net()
        links(net, topology(*BUS), "a", chance=lambda chance=chance: chance).dial("b")
        net.settle()
        waits.append(net.reactors[0].getDelayedCalls()[0].getTime())
    assert waits == pytest.approx([0.05, 0.15], abs=0.001)


def test_an_incoming_connection_ends_the_wait_for_a_new_attempt(net):
    bus = topology(*BUS)
    a = links(net, bus, "a")
    a.dial("b")
    net.settle(30)
    b = links(net, bus, "b")
    b.dial("a")
    net.settle()
    assert up(a, "b") and up(b, "a") and not net.dials
    assert len(net.reactors[0].getDelayedCalls()) == 1  # the sweep


def test_an_incoming_connection_ends_an_attempt_that_is_still_connecting(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    (slow,) = net.dials
    net.dials.clear()
    b.dial("a")
    net.settle()
    assert up(a, "b") and slow[0].stopped
    net.dials.append(slow)
    net.settle(1)
    assert up(a, "b") and not a.server.lines


def test_a_refused_peer_is_named_once_and_tried_slowly(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    b.server.refuse = "a was wiped; run `mom domain reset` for a"
    a.dial("b")
    net.settle(200)
    assert a.server.lines == [f"closed the connection to b: b refuses: {b.server.refuse}"]
    assert b.server.lines == [f"closed the connection from a: {b.server.refuse}"]
    assert a.server.trouble == {"b": f"b refuses: {b.server.refuse}"} and b.server.trouble == {"a": b.server.refuse}
    assert a.neighbours["b"].failures == 4  # at 0, 60, 120, 180 s
    b.server.refuse = ""
    net.settle(60)
    assert up(a, "b") and up(b, "a")
    assert a.server.lines[1:] == ["b is connected again"] and b.server.lines[1:] == ["a is connected again"]
    a.server.trouble.clear()  # as an agent server does at LinkUp
    assert state_of(a, "b")["reason"] == state_of(b, "a")["reason"] == ""
    assert state_of(a, "b")["state"] == "up" and state_of(a, "c")["state"] == "idle"


def test_different_reasons_are_each_said_but_not_without_end(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    for at in range(3 * MAX_SAID):
        b.server.refuse = f"reason {at}"
        net.settle(61)
    assert len(a.server.lines) == len(b.server.lines) == MAX_SAID


def test_a_server_that_refuses_the_event_of_a_link_gets_it_closed(net):
    """Between the handshake and its event another batch may have committed."""
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    b.server.refuse_events = LinkUp
    a.dial("b")
    net.settle(5)
    assert kinds(b) == ["LinkUp", "LinkDown"] and not up(b, "a") and not up(a, "b")
    assert b.server.lines == ["closed the connection from a: the event is refused"]


def test_a_link_that_goes_down_as_soon_as_it_is_up_is_not_dialled_in_circles(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    b.server.refuse_events = LinkUp
    for _ in range(100):
        a.dial("b")
        net.settle(0.1)
    assert 3 <= kinds(a).count("LinkUp") <= 8


def test_two_secrets(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b", secret=b"other")
    a.dial("b")
    net.settle(20)
    text = "a and b have different secrets; `secret_file` must hold the same on both"
    assert a.server.lines == [f"closed the connection to b: b refuses: {text}"]
    assert b.server.lines == [f"closed the connection from 127.0.0.1: {text}"]
    assert kinds(a) == kinds(b) == []


def test_without_a_secret_only_loopback_is_used(net):
    beyond = topology(*BUS, host="10.0.0.1")
    with pytest.raises(MomError, match=r"a listens on 10.0.0.1 without a secret; set \[bus\] secret_file"):
        links(net, beyond, "a", secret=b"")
    a = links(net, beyond, "a", secret=b"", listen=False)
    a.dial("b")
    net.settle(100)
    assert a.server.lines == ["b is at 10.0.0.1, and there is no secret; set [bus] secret_file"] and not net.dials
    assert a.accepted("10.0.0.2") is None
    near = topology(*BUS)
    c, b = links(net, near, "c", secret=b""), links(net, near, "b", secret=b"")
    c.dial("b")
    net.settle()
    assert up(c, "b") and up(b, "c")


def test_a_server_that_is_no_neighbour_is_refused(net):
    bus = topology(*BUS)
    strange = topology(*BUS, "z")
    a, z = links(net, bus, "a"), links(net, strange, "z")
    z.dial("a")
    net.settle(1)
    assert a.server.lines == ["closed the connection from z: z shares no domain with a; give both the same [domains]"]
    with pytest.raises(PeerRefused, match="a shares no domain with a"):
        a.dial("a")


@pytest.mark.parametrize(
    "frame",
    [
        7, [], ["data", "d", 1], ["data", "d", 0, [b"x"]], ["data", "d", 1, []], ["data", "d", 1, ["x"]],
        ["data", 5, 1, [b"x"]], ["ack", "d", 1, -1], ["ack", "d", True, 1], ["nack", "d", 1, 1], ["ack", "d", 1, 1, 1],
    ],
)  # fmt: skip
def test_a_frame_out_of_shape_closes_that_link_only(net, frame):
    bus = topology(*BUS)
    a, b, c = (links(net, bus, name) for name in "abc")
    b.dial("a")
    c.dial("a")
    net.settle()
    up(b, "a").send([], [wire.encode(frame)])
    net.settle()
    assert up(a, "c") and not up(a, "b")
    assert a.server.lines == ["closed the connection from b: a frame is neither data nor an acknowledgement"]
    assert state_of(a, "b")["faults"] == 1 and state_of(a, "c")["faults"] == 0
    assert kinds(a) == ["LinkUp", "LinkUp", "LinkDown"]
    b.dial("a")
    net.settle(1)
    assert up(a, "b")


def test_strangers_bytes_are_counted(net):
    bus = topology(*BUS)
    a = links(net, bus, "a")
    for data in (b"GET / HTTP/1.1\r\n\r\n", wire.encode(["what"])):
        conn = a.accepted("127.0.0.1")
        conn.transport = end = Net().join(conn, a.accepted("127.0.0.1"))[0]
        conn.dataReceived(data)
        assert end.out[-1] == END
    assert a.faults == 2
    assert a.server.lines == [
        "closed the connection from 127.0.0.1: a frame of 1195725856 bytes is over the limit of 4096",
        "closed the connection from 127.0.0.1: no login: whoever speaks there is no agent server",
    ]


def test_a_storm_of_strangers_is_one_line_a_minute(net):
    a = links(net, topology(*BUS), "a")
    for at in range(100):
        conn = a.accepted("127.0.0.1")
        conn.transport = Net().join(conn, a.accepted("127.0.0.1"))[0]
        conn.dataReceived(wire.encode(["mom", at + 3, "peer"]))
    assert len(a.server.lines) == 2  # of the second kind: too many without a login


def test_of_too_many_logins_at_once_the_oldest_goes(net):
    a = links(net, topology(*BUS), "a")
    links(net, a.server.topology, "b").dial("a")
    net.settle()
    made = []
    for _ in range(MAX_LOGINS + 3):
        conn = a.accepted("127.0.0.1")
        Net().join(conn, links(Net(), topology(*BUS), "b").accepted("127.0.0.1"))
        made.append(conn)
    assert [conn.closing for conn in made] == [True] * 3 + [False] * MAX_LOGINS
    assert up(a, "b")
    assert a.server.lines == ["closed the connection from 127.0.0.1: too many logins at once"]


def test_stop_lets_what_was_written_leave_and_takes_nothing_new(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle()
    a.send(up(a, "b").number, [("data", "d", 1, [b"x"])])
    stopped = a.stop()
    assert not stopped.called and a.accepted("127.0.0.1") is None
    net.settle()
    assert stopped.called and frames(b) == [("data", "d", 1, [b"x"])]
    assert kinds(b)[-1] == "LinkDown"
    a.dial("b")
    net.settle(5)
    assert not net.dials and not net.reactors[0].getDelayedCalls()


def test_after_an_abort_nothing_leaves(net):
    bus = topology(*BUS)
    a, b = links(net, bus, "a"), links(net, bus, "b")
    a.dial("b")
    net.settle()
    a.send(up(a, "b").number, [("data", "d", 1, [b"x"])])
    a.abort()
    net.settle(5)
    assert frames(b) == [] and a._all == set() and not net.reactors[0].getDelayedCalls()
    assert a.stop().called


def replicated(net, leads):
    """The links of three replicas of `a`, of which that at port `leads` leads, and of b; b is told all addresses."""
    places = tuple(Place(f"a{port}", "127.0.0.1", port) for port in (11, 12, 13))
    bus, made = topology("a", "b"), {}
    for place in places:
        seen = topology("a", "b")
        seen.servers["a"] = replace(bus.servers["a"], replicas=places).at(place)
        made[place.port] = links(net, seen, "a")
        if place.port != leads:
            standby = Standby(seen, lambda: f"standby: the leader is a{leads}")
            made[place.port].hand(standby, standby.post, made[place.port].admin)
    bus.servers["a"].replicas = places
    return made, links(net, bus, "b")


@pytest.mark.parametrize("leads", [11, 12, 13])
def test_of_a_server_with_replicas_the_one_that_leads_is_found_at_once_and_nothing_is_said(net, leads):
    replicas, b = replicated(net, leads)
    b.dial("a")
    net.settle()
    assert up(b, "a") and up(replicas[leads], "b") and kinds(b) == ["LinkUp"]
    assert not any(up(each, "b") for port, each in replicas.items() if port != leads)
    assert b.server.lines == [] and b.faults == 0 and all(each.faults == 0 for each in replicas.values())


def test_when_another_replica_leads_the_link_goes_there(net):
    replicas, b = replicated(net, 11)
    b.dial("a")
    net.settle()
    old, new = replicas[11], replicas[13]
    standby = Standby(old.server.topology, lambda: "standby: the leader is a13")
    old.hand(standby, standby.post, old.admin)
    net.settle()
    assert kinds(b) == ["LinkUp", "LinkDown"]
    recorder = Recorder("a", new.server.topology)
    new.hand(recorder, recorder.post, new.admin)
    b.dial("a")
    net.settle(TIMES.retry_last)
    assert up(b, "a") and up(new, "b") and [type(event) for event in recorder.events] == [LinkUp]


def test_while_no_replica_leads_all_are_tried_ever_more_slowly(net):
    _, b = replicated(net, 0)
    b.dial("a")
    waits, clock = [], net.reactors[-1]
    for _ in range(9):
        net.settle()
        (call,) = [each for each in clock.getDelayedCalls() if each.func == b._connect]
        waits.append(round(call.getTime() - clock.seconds(), 3))
        clock.advance(waits[-1])
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10], "between two rounds, and not between addresses"
    net.settle()
    assert b.neighbours["a"].failures == 3 * 10 == b.neighbours["a"].at


def test_a_replica_that_leads_no_more_goes_on_with_no_attempt_of_its_server(net):
    replicas, b = replicated(net, 11)
    old = replicas[11]
    old.dial("b")  # and that is under way
    standby = Standby(old.server.topology, lambda: "standby: nobody leads")
    old.hand(standby, standby.post, old.admin)
    net.settle(30)
    assert old.neighbours == {} and b._numbers == 0, "nor has it begun another one when that had failed"
