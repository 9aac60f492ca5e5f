"""Servers are killed while clients ask agents: each question takes effect once, and has one answer."""

import random
import signal
import threading
import time
from collections import Counter

import pytest

from mombroker import jms
from tests.admin.processes import Processes, free_ports

SERVERS = "abcd"
CLIENTS = 4
BETWEEN = 20  # answers, at least, between two kills
PATIENCE_S = 300  # before a test gives up; nothing is measured by it
TELLERS = """
from mombroker.agents import Agent, notification, reacts

@notification(expose=True)
class Question:
    number: int

@notification
class Passed:
    client: str
    number: int

@notification
class Answer:
    number: int
    place: int
    teller: str

class Teller(Agent):
    '''Answers every other question itself, and has the other teller answer the rest.'''
    other: str
    asked: list
    answered: int = 0

    @reacts
    def question(self, note: Question) -> None:
        self.asked.append(note.number)
        if note.number % 2:
            self.send(self.other, Passed(self.sender, note.number))
        else:
            self._answer(self.sender, note.number)

    @reacts
    def passed(self, note: Passed) -> None:
        self._answer(note.client, note.number)

    def _answer(self, client: str, number: int) -> None:
        self.answered += 1
        self.send(client, Answer(number, self.answered, self.id))
"""


def bus(folder) -> Processes:
    """Four servers in two domains, c is the router; tellers live on b and d."""
    ports = free_ports(2 * len(SERVERS))
    lines = ['[bus]\nname = "bank"\nregistry = "a"']
    for at, name in enumerate(SERVERS):
        lines.append(f'[servers.{name}]\nlisten = "127.0.0.1:{ports[at]}"\ndata = "{name}"\nanonymous = true')
        lines.append(f'stomp = "127.0.0.1:{ports[at + len(SERVERS)]}"')
    lines += ['[domains.d1]\nservers = ["a", "b", "c"]', '[domains.d2]\nservers = ["c", "d"]']
    for home, other in ("bd", "db"):
        fields = f'{{ other = "teller-{other}", asked = [] }}'
        lines.append(
            f'[[agents]]\nname = "teller-{home}"\nserver = "{home}"\nclass = "tellers:Teller"\nfields = {fields}'
        )
    (folder / "tellers.py").write_text(TELLERS)
    (folder / "bus.toml").write_text("\n".join(lines))
    made = Processes(folder / "bus.toml")
    made.urls = [f"stomp://127.0.0.1:{port}" for port in ports[len(SERVERS) :]]
    return made


class Asker(threading.Thread):
    """Asks both tellers in turn until it is told to stop, and reads the answers from a queue of its own."""

    answer = "tellers.Answer"

    def __init__(self, number: int, urls: list[str]):
        super().__init__(daemon=True)
        self.queue, self.first = f"answers-{number}", number
        self.urls = urls[number:] + urls[:number]
        self.enough = threading.Event()
        self.asked: list[int] = []
        self.answers: dict[int, set[tuple[str, int]]] = {}
        self.unmarked = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with jms.connect(self.urls, ack="individual", reconnect=PATIENCE_S) as context:
                consumer = context.consumer(self.queue, prefetch=20)
                while not self.enough.is_set() or len(self.answers) < len(self.asked):
                    if not self.enough.is_set() and len(self.asked) - len(self.answers) < 50:
                        self._ask(context)
                    while (message := consumer.receive(0 if not self.enough.is_set() else 0.2)) is not None:
                        self._hear(message)
        except BaseException as error:
            self.error = error

    def _ask(self, context: jms.Context) -> None:
        number = len(self.asked) * CLIENTS + self.first
        self.asked.append(number)
        teller = "/agent/teller-b" if len(self.asked) % 2 else "/agent/teller-d"
        how = {"type": "tellers.Question", "reply_to": f"/queue/{self.queue}", "correlation_id": f"c{number}"}
        context.send(teller, json={"number": number}, wait=len(self.asked) % 10 == 0, **how)

    def _hear(self, message: jms.Message) -> None:
        said = message.body
        assert message.type == self.answer, message.raw
        assert message.correlation_id == f"c{said['number']}"
        self.answers.setdefault(said["number"], set()).add((said["teller"], said["place"]))
        self.unmarked[said["number"]] += not message.redelivered
        try:
            message.acknowledge()
        except jms.ConnectionLost:
            pass  # it comes again


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.long)])
def test_each_question_has_one_answer_through_kills(tmp_path, kills):
    processes, chance = bus(tmp_path), random.Random(kills)
    servers = {name: processes.serve(name) for name in SERVERS}
    while not processes.all_up():
        time.sleep(0.1)
    askers = [Asker(number, processes.urls) for number in range(CLIENTS)]
    for asker in askers:
        asker.start()
    for kill in range(kills):
        # Each has its queue before the registry, which makes it, is killed: that may take long to start again.
        while sum(len(asker.answers) for asker in askers) < BETWEEN * kill or not all(a.answers for a in askers):
            assert all(asker.is_alive() for asker in askers), [asker.error for asker in askers]
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 0.5))
        name = chance.choice(SERVERS)
        servers[name].kill()
        assert servers[name].wait() == -signal.SIGKILL
        servers[name] = processes.serve(name)
    for asker in askers:
        asker.enough.set()
    for asker in askers:
        asker.join(PATIENCE_S)
        assert asker.error is None and not asker.is_alive(), (asker.error, len(asker.asked), len(asker.answers))
    while not processes.all_up():
        time.sleep(0.1)
    report = processes.settle()
    tellers = [processes.json("agent", "show", f"teller-{home}")["fields"] for home in "bd"]
    letters = processes.json("agent", "deadletters", "list")
    processes.down()
    assert [server.wait() for server in servers.values()] == [0] * len(SERVERS)
    asked = sorted(number for asker in askers for number in asker.asked)
    assert sorted(number for teller in tellers for number in teller["asked"]) == asked
    assert len(asked) > BETWEEN * (kills - 1)
    assert sum(teller["answered"] for teller in tellers) == len(asked)
    assert [len(each) for asker in askers for each in asker.answers.values()] == [1] * len(asked)
    assert all(asker.unmarked[number] <= 1 for asker in askers for number in asker.asked)
    assert report["clean"] and not letters
