"""A topic in total order on real servers that are killed with -9: all who read it have one sequence."""

import random
import threading
import time
from pathlib import Path

import pytest

from mombroker import jms
from mombroker.core.errors import MomError
from tests.admin.processes import Processes, free_ports

ENOUGH = 100  # messages of a storm
PATIENCE_S = 120  # before a test gives up; nothing is measured by it
SERVERS = "abcde"
PUBLISHERS = "aabd"  # where they are
READERS = {"a": "/topic/prices", "b": "/topic/prices", "c": "/topic/*", "d": "/topic/prices", "e": "/topic/>"}
END = "end"


class Bus:
    """Five servers, each a process; c is the router, and at first the home of the topic."""

    def __init__(self, folder: Path):
        ports = dict(zip(SERVERS, free_ports(len(SERVERS)), strict=True))
        lines = ['[bus]\nname = "prices"\nregistry = "a"']
        lines += [f'[servers.{name}]\nlisten = "127.0.0.1:{port}"\ndata = "{name}"' for name, port in ports.items()]
        lines += ['[domains.x]\nservers = ["a", "b", "c"]', '[domains.y]\nservers = ["c", "d", "e"]']
        lines.append('[[policies]]\nmatch = "topic:prices"\norder = "total"\nblock_seconds = 60.0')
        (folder / "bus.toml").write_text("\n".join(lines))
        self.all = Processes(folder / "bus.toml")
        self.all.listen(SERVERS)
        self.processes = {name: self.all.serve(name) for name in SERVERS}
        self.await_all()

    def await_all(self) -> None:
        while not self.all.all_up():
            assert not [name for name, process in self.processes.items() if process.poll() is not None]
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()
        self.processes[name] = self.all.serve(name)


class Publisher(threading.Thread):
    """Sends one number after the other, some in a row, until it is to stop. `told`: those that have their places."""

    def __init__(self, bus: Bus, who: int, at: str):
        super().__init__(daemon=True)
        self.bus, self.who, self.at = bus, who, at
        self.number, self.told, self.done = 0, list[str](), threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                with jms.connect(self.bus.all.urls[self.at], reconnect=0) as context:
                    while not self.done.is_set():
                        sent = []
                        for _ in range(1 + self.number % 20):
                            text = f"{self.who}.{self.number}"
                            self.number += 1
                            sent.append((text, context.send(jms.Topic("prices"), text, wait=False)))
                        for text, pending in sent:
                            pending.wait(PATIENCE_S)
                            self.told.append(text)
                        time.sleep(0.01)
            except MomError:  # it is killed; what has no receipt may be there, or not
                time.sleep(0.05)


class Reader(threading.Thread):
    """A durable subscription, whose consumer comes back. `seen`: what it has acknowledged, each once."""

    def __init__(self, bus: Bus, at: str, topic: str):
        super().__init__(daemon=True)
        self.bus, self.at, self.topic = bus, at, topic
        self.seen, self.there = dict[str, None](), threading.Event()

    def run(self) -> None:
        while END not in self.seen:
            try:
                url, topic = self.bus.all.urls[self.at], jms.Topic(self.topic.removeprefix("/topic/"))
                with jms.connect(url, client_id=f"reader-{self.at}", ack="individual", reconnect=0) as context:
                    consumer = context.consumer(topic, durable="all")
                    self.there.set()
                    while END not in self.seen:
                        if (message := consumer.receive(1)) is not None:
                            self.seen.setdefault(message.body)
                            message.acknowledge()
            except MomError:
                time.sleep(0.05)


def storm(folder: Path, seed: int, kills: int, pause: float) -> int:
    """How many messages all have in one order."""
    bus, dice = Bus(folder), random.Random(seed)
    try:
        bus.all.mom("topic", "create", "prices", "--server", "c")
        readers = [Reader(bus, at, topic) for at, topic in READERS.items()]
        publishers = [Publisher(bus, who, at) for who, at in enumerate(PUBLISHERS)]
        for each in readers:
            each.start()
        for each in readers:
            assert each.there.wait(PATIENCE_S)
        for each in publishers:
            each.start()
        for number in range(kills):
            time.sleep(dice.uniform(0.3, 1.0) * pause)
            if number % 4 == 3:  # it may come to nothing, as one of the two may be down
                bus.all.mom_any("topic", "move", "prices", "--to", dice.choice(SERVERS))
            bus.kill("c" if dice.random() < 0.4 else dice.choice(SERVERS))
        bus.await_all()
        end = time.monotonic() + PATIENCE_S
        while sum(len(each.told) for each in publishers) <= ENOUGH and time.monotonic() < end:
            time.sleep(0.1)
        for each in publishers:
            each.done.set()
        for each in publishers:
            each.join(PATIENCE_S)
            assert not each.is_alive()
        with jms.connect(bus.all.urls["a"]) as context:
            context.send(jms.Topic("prices"), END)
        for each in readers:
            each.join(PATIENCE_S)
            assert not each.is_alive(), f"the reader at {each.at} lacks the end"
        first = list(readers[0].seen)
        for each in readers:
            assert list(each.seen) == first, f"the readers at a and {each.at} have two orders"
        for each in publishers:
            mine = [int(text.partition(".")[2]) for text in first if text.startswith(f"{each.who}.")]
            assert mine == sorted(mine) and {*each.told} <= {*first}
        report = bus.all.settle()
        assert report["clean"], report
        return len(first)
    finally:
        for process in bus.processes.values():
            process.kill()
            process.wait()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_five_readers_have_one_sequence_in_each_of_fifty_storms(tmp_path, seed):
    assert storm(tmp_path, seed, 8, 1.0) > ENOUGH
