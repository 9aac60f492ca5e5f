"""Bytes that were changed on their way: whatever comes, a connection ends in words or goes on, and keeps little."""

import random
import resource

import pytest

from mombroker.amqp import performatives
from mombroker.amqp.frames import PLAIN, frame
from mombroker.amqp.performatives import RECEIVER, SENDER, SOURCE, TARGET, Outcome
from mombroker.broker.commands import Disposition, Receipt, Receipts, Send, SendRun, Subscribe
from tests.amqp.peer import Peer, attach, begin, delivery, flow, message, open_, settle, terminus, transfer
from tests.mutants import COUNT, SEED

MAX_KEPT = 1 << 20  # bytes
MAX_GROWN = 32 << 10  # KiB of the process


def talk():
    """What a client says, frame by frame."""
    accepted, modified = Outcome(performatives.ACCEPTED), Outcome(performatives.MODIFIED, True, True)
    data = message(b"x" * 300, color="red", size=5, big=1 << 40, rate=1.5, none=None)
    return [
        PLAIN, frame(open_(desired=["sole-connection-for-container"], idle=5_000)), frame(begin()),
        frame(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders", capabilities=["queue"]))),
        frame(attach(1, RECEIVER, terminus(SOURCE, "news", capabilities=["topic"], filters={"f": "a = 1"}),
                     terminus(TARGET, None))),
        frame(flow(1, 10)), *[frame(transfer(0, id, data)) for id in range(3)],
        frame(transfer(0, 3, data[:100], more=True)), frame(transfer(0, 3, data[100:])),
        frame(settle(0, 1, accepted)), frame(settle(2, None, modified, settled=False)),
        frame(flow(1, 5, 3, drain=True)),
        frame(performatives.detach(1, True)), frame(begin(), 1), frame(performatives.end(), 1),
        frame(performatives.close()),
    ]  # fmt: skip


TALK = talk()


def changed(data, rng):
    """With some bytes that are others, gone or new."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at]
            case 3:
                data.insert(at, rng.choice((0, 0x40, 0x80, 0xC0, 0xFF)))
            case 4:
                data[at : at + 4] = rng.randbytes(4)
        if not data:
            return bytes(data)
    return bytes(data)


def one(rng, most):
    """A connection that is told what is right up to some place, and what is changed as well from there. How many frames
    that were changed came before its end, of at most so many."""
    peer, waiting, count = Peer(), [], 0
    right = rng.randrange(len(TALK))
    for at, data in enumerate(TALK):
        wrong = rng.randint(1, 8) if at >= right else 0
        for left in range(wrong, -1, -1):
            if peer.connection.closed or count == most:
                return count
            count += left > 0
            peer.connection.receive(changed(rng.choice(TALK[max(1, at - 6) : at + 3]), rng) if left else data)
            obey(peer, waiting, rng)
    return count


def obey(peer, waiting, rng):
    """Answer what is asked, now or later; and look at what is kept."""
    connection = peer.connection
    if connection.login is not None:
        connection.accept()
    if connection.claim is not None:
        connection.claimed("")
    waiting += [(part, command) for part, asked in connection.asked for command in asked]
    while waiting and rng.random() < 0.9:
        answer(connection, peer, *waiting.pop(0))
    if connection.closed:
        return
    connection.check()
    assert connection.unfinished <= MAX_KEPT
    assert sum(map(len, connection.output)) <= MAX_KEPT
    peer.look().take()


def answer(connection, peer, part, command):
    if isinstance(command, SendRun):
        connection.reply_to(part, [Receipts(command.receipts)])
    elif isinstance(command, Subscribe):
        peer.sub = command.sub
        connection.reply_to(part, [Receipt(command.receipt), *(delivery(peer, tag) for tag in (1, 2, 3))])
    elif isinstance(command, Send | Disposition) or command.receipt is not None:
        if command.receipt is not None:
            connection.reply_to(part, [Receipt(command.receipt)])


def run(frames, seed):
    """With so many changed ones."""
    rng, count = random.Random(seed), 0
    while count < frames:
        count += one(rng, frames - count)


def test_changed_frames_end_a_connection_in_words_or_change_nothing():
    run(COUNT, 1 + SEED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_million_changed_frames(seed):
    """What one connection may keep is bounded above; nothing may be left of those that were closed."""
    run(1_000, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(99_000, seed)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= MAX_GROWN
