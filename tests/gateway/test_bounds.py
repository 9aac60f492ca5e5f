"""What all clients together may make the listener keep: unfinished frames, and open transactions."""

from mombroker.stomp.frames import encode
from tests.gateway.world import SEND, World

# -- unfinished frames ---------------------------------------------------------------------------------------------

HEAD = b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\n"


def started(world, host="127.0.0.1", size=200_000):
    """A client that has sent so many bytes of a SEND of 1 MB, as far as it is read; and how many."""
    mine = world.connect(host)
    mine.receive(HEAD)
    return mine, grow(mine, size)


def grow(mine, size, step=10_000):
    sent = 0
    while sent < size and mine.reading:
        mine.receive(b"x" * step)
        sent += step
    return sent


def guests(**more):
    world = World(max_unfinished=1_000_000, **more)
    world.gateway.anonymous = False
    world.gateway.check = lambda client, login: (world.gateway._new.discard(client.host, client), client.admitted(""))
    return world


def test_all_unfinished_frames_together_are_bounded_and_all_become_whole_in_the_end():
    world = guests()
    sent = dict([started(world, size=999_999) for _ in range(30)])
    assert world.gateway.room.unfinished.total < 2_000_000 + 30 * 30_000
    assert sum(mine.reading for mine in sent) >= 1
    assert len(world.lines) == 1 and "max_unfinished" in world.lines[0]
    assert ["max_unfinished" in problem for problem in world.gateway.problems()] == [True]
    whole = 0
    for _ in range(1_000):
        for mine in list(sent):
            sent[mine] += grow(mine, min(100_000, 1_000_000 - sent[mine]))
            if sent[mine] >= 1_000_000 and mine.reading:
                mine.receive(b"\0")
                whole += 1
                del sent[mine]
        world.gateway.room.unfinished.check()
        if not sent:
            break
    assert world.gateway.problems() == []
    assert whole == 30 and world.gateway.room.unfinished.total == 0 and not world.gateway.room.unfinished.short
    world.clock.advance(1)
    assert world.idle()


def test_small_frames_pass_while_large_ones_wait():
    world = guests()
    [started(world) for _ in range(10)]
    mine = world.connect("10.0.0.2")
    world.take()
    mine.receive(SEND)
    assert len(world.take()) == 1 and mine.reading


def test_frames_that_are_never_completed_do_not_hold_up_those_of_another_address():
    world = guests()
    slow = [started(world, "10.0.0.1")[0] for _ in range(20)]
    mine, sent = started(world, "10.0.0.2")
    for _ in range(30):
        world.clock.advance(0.1)
        sent += grow(mine, 1_000_000 - sent)
    mine.receive(b"\0")
    assert sent == 1_000_000 and world.take()[-1].commands[0].shown == "/queue/a"
    assert all(each.connected for each in slow)


def test_of_frames_that_are_never_completed_the_largest_ends_after_a_while():
    world = guests()
    slow = [started(world)[0] for _ in range(20)]
    world.clock.pump([1] * 30)
    ended = [each for each in slow if each.commands() == ["ERROR"]]
    assert 3 <= len(ended) < 20 and world.gateway.room.unfinished.total < 1_000_000
    assert "max_unfinished" in world.lines[-1]
    for each in slow:
        each.lose()
    world.clock.advance(1)
    assert world.gateway.room.unfinished.total == 0 and world.idle()


# -- open transactions ---------------------------------------------------------------------------------------------

BEGIN = encode("BEGIN", [("transaction", "t")])
INTO = encode("SEND", [("destination", "/queue/a"), ("transaction", "t")], b"x" * 100_000)


def test_the_open_transactions_of_all_clients_together_are_bounded():
    world = guests()
    world.gateway.room.max_transactions = 950_000
    many = [world.connect("10.0.0.1") for _ in range(4)]
    other = world.connect("10.0.0.2")
    for mine in [*many, other]:
        mine.receive(BEGIN + INTO)
    many[2].receive(INTO * 4)
    assert world.gateway.room.booked == 900_000
    other.receive(INTO)
    (error,) = many[2].drain()
    assert "max_transactions" in error.headers["message"] and world.gateway.room.booked < 650_000
    other.receive(encode("COMMIT", [("transaction", "t"), ("receipt", "r")]))
    for mine in many:
        mine.lose()
    assert world.gateway.room.booked == 0 and other.commands() == []


def test_a_transaction_that_is_too_large_for_the_bound_ends_its_own_connection():
    world = guests()
    world.gateway.room.max_transactions = 150_000
    mine, other = world.connect(), world.connect()
    other.receive(BEGIN + INTO)
    mine.receive(BEGIN + INTO + INTO)
    assert (mine.commands(), other.commands()) == (["ERROR"], [])
    other.receive(encode("ABORT", [("transaction", "t")]))
    assert world.gateway.room.booked == 0
