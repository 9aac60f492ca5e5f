"""A server that is killed with -9 while a client sends: what was accepted is there, once, and in order."""

import random
import signal
import time

import pytest

from mombroker import jms
from mombroker.admin.bench.amqpload import AmqpLine, said, start
from mombroker.admin.bench.stompload import Broker
from mombroker.amqp import performatives
from mombroker.amqp.frames import frame
from mombroker.core.errors import MomError
from tests.admin.processes import Processes, free_ports
from tests.amqp.peer import message, terminus, transfer

PATIENCE_S = 60  # before a test gives up; nothing is measured by it
LOT = 50  # messages that are under way


class Life:
    """A server of its own process that dies, and comes back."""

    def __init__(self, folder):
        listen, port, stomp = free_ports(3)
        (folder / "bus.toml").write_text(
            f'[bus]\nname = "solo"\n[servers.main]\nlisten = "127.0.0.1:{listen}"\namqp = "127.0.0.1:{port}"\n'
            f'stomp = "127.0.0.1:{stomp}"\ndata = "main"\nanonymous = true\n'
        )
        self.all, self.at, self.stomp = Processes(folder / "bus.toml"), Broker("127.0.0.1", port, amqp=True), stomp
        self.process = None

    def up(self):
        self.process = self.all.serve("main")
        while not self.all.all_up():
            assert self.process.poll() is None
            time.sleep(0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def send_until_cut(line, number, accepted, kill):
    """Send lot after lot; `kill` is called after a lot has left, now and then. The next number."""
    source, target = performatives.performative(performatives.SOURCE, []), terminus(performatives.TARGET, "kept")
    line.attach(performatives.SENDER, source, target)
    line.socket.setblocking(True)
    first = number
    while True:
        lot = range(number, number + LOT)
        try:
            line.socket.sendall(b"".join(frame(transfer(0, each - first, message(b"%d" % each))) for each in lot))
            number += LOT
            kill(number - first)
            done = 0
            while done < LOT:
                for found in line.split(line.receive()):
                    if found[start(found) + 2] == performatives.DISPOSITION:
                        _, (_, low, high, *_) = said(found)
                        some = range(low, (low if high is None else high) + 1)
                        accepted |= {first + each for each in some}
                        done += len(some)
        except (MomError, OSError):
            return number


def lose(folder, kills, seed):
    life, rng = Life(folder), random.Random(seed)
    accepted, number = set(), 0
    for _ in range(kills):
        life.up()
        after = rng.randrange(1, 20) * LOT

        def kill(sent, after=after):
            if sent == after:
                time.sleep(rng.random() * 0.02)
                life.kill()

        number = send_until_cut(AmqpLine(life.at), number, accepted, kill)
    life.up()
    try:
        with jms.connect(f"stomp://127.0.0.1:{life.stomp}") as context:
            consumer, got, missing = context.consumer("kept"), [], set(accepted)
            while (found := consumer.receive(PATIENCE_S if missing else 1)) is not None:
                got.append(int(found.raw))
                missing.discard(got[-1])
                assert not found.redelivered
        assert len(got) == len(set(got)) and accepted <= set(got) <= set(range(number)) and got == sorted(got)
        assert accepted
    finally:
        life.kill()


def test_what_was_accepted_is_there_after_a_kill(tmp_path):
    lose(tmp_path, 1, 1)


@pytest.mark.long
def test_what_was_accepted_is_there_after_fifty_kills(tmp_path):
    lose(tmp_path, 50, 2)
