"""Very many messages in one queue: whatever is asked for goes in small steps, and reads no message twice.

The queue is written into a store by one commit, and each test has a copy. Steps are held to what they may cost in
counted work; the CPU time of each is looked at with a wide factor, since other programs run on the same machine.
"""

import gc
import shutil
import time
from dataclasses import replace
from typing import Any

import pytest

from mombroker import store
from mombroker.agents import program
from mombroker.broker import selectors
from mombroker.broker.attach import attach
from mombroker.broker.commands import MODIFIED, RELEASED, BrowseEnd, Delivery, Disposition, Send, Subscribe
from mombroker.broker.message import ClientMessage
from mombroker.broker.properties import pack
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.lane import PAGE
from mombroker.broker.queue.queue import Queue
from mombroker.core.events import Admin, ClientClosed, ClientCommands, ClientOpened, ClientWrote, Tick
from mombroker.core.server import AgentServer
from mombroker.core.times import SECOND
from tests.broker.bench import ALONE
from tests.core.bus import START

Q, MANY, FEW = "queue:orders", 200_000, 20_000
LONG_S = 0.1  # of one step; 20 ms on a machine that nobody else uses


def filled(folder, count, **more):
    """A store with a queue of so many messages of k = 'x'; every thousandth has n = 'some'."""
    made = store.open(folder, ALONE, "a")
    server = AgentServer(ALONE, "a", made, program(ALONE), attach, START)
    server.step(ClientOpened(1, "user", "", "a/s1"), START)
    server.step(ClientCommands(1, [Send(Q, b"", shown=Q)]), START)
    run(server, made)
    queue = server.natives.agents[f"a/{Q}"]
    queue.expiry.start_purge()
    run(server, made)
    items = {}
    for number in range(count):
        rare = {"n": "some"} if number % 1_000 == 999 else {}
        put = ClientMessage(Q, Q, properties=pack({"k": "x", **rare}), body=b"%d" % number, **more)
        item = QueuedMessage(server.tx.new_id(), 5, f"a#{number}", put)
        if put.expires:
            queue.schedule.expire(item, put.expires)
        items[item.id] = item.row(queue.id, "p5")
        queue.messages.bytes += item.size
    messages = queue.messages
    messages.lane(5).rest = messages.ready = messages.count = count
    queue.change()
    server.tx.rows.items.update(items)
    server.tx.rows.meta["next"] = server.tx.new_id()
    run(server, made)
    made.close()


def run(server, made):
    while server.busy:
        server.turn(START)
        ready = server.ready(START)
        if not ready.batch.empty():
            made.commit(ready.batch)
        server.committed(ready, START)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """By size, made when it is first asked for."""
    made = {}

    def get(count, **more):
        key = (count, *more.items())
        if key not in made:
            made[key] = tmp_path_factory.mktemp("filled")
            filled(made[key], count, **more)
        return made[key]

    return get


class Server:
    def __init__(self, folder):
        self.now = START + SECOND
        self.store = store.open(folder, ALONE, "a")
        self.server = AgentServer(ALONE, "a", self.store, program(ALONE), attach, self.now)
        self.read = 0  # messages that were read from the store in pages
        self.asked = 0  # statements that read
        self.longest, self.what = 0.0, ()
        self.steps = 0
        self.told: dict[int, list[Any]] = {}
        self.answers: dict[int, Any] = {}
        self.conns = self.tickets = 0

    @property
    def queue(self) -> Queue:
        found = self.server.natives.agents[f"a/{Q}"]
        assert isinstance(found, Queue)
        return found

    def _timed(self, call, *args):
        since = time.thread_time()
        found = call(*args)
        took = time.thread_time() - since
        if took > self.longest:
            self.longest, self.what = took, (call.__name__, *map(type, args[:1]))
        return found

    def step(self, event):
        self._timed(self.server.step, event, self.now)

    def turn(self):
        """One turn, and a commit if one is due. Says whether there is more."""
        server = self.server
        self.steps += 1
        self._timed(server.turn, self.now)
        if server.urgency:
            ready = self._timed(server.ready, self.now)
            if not ready.batch.empty():
                self._timed(self.store.commit, ready.batch)
            for conn, replies in ready.clients:
                self.told.setdefault(conn, []).extend(replies)
                tags = [reply.tag for reply in replies if isinstance(reply, Delivery)]
                if tags:
                    self.step(ClientWrote(conn, tags[-1]))
            self.answers.update(ready.replies)
            self._timed(server.committed, ready, self.now)
        return server.busy

    def rest(self):
        while self.turn():
            pass

    def connect(self):
        self.conns += 1
        self.step(ClientOpened(self.conns, "user", "", f"a/s{self.conns}"))
        self.told[self.conns] = []
        return self.conns

    def do(self, conn, *commands):
        self.step(ClientCommands(conn, list(commands)))

    def ask(self, verb, **args):
        self.tickets += 1
        self.step(Admin(self.tickets, verb, args))
        while self.tickets not in self.answers:
            self.turn()
        return self.answers[self.tickets]

    def got(self, conn):
        return [reply for reply in self.told[conn] if isinstance(reply, Delivery)]


@pytest.fixture
def server(stores, tmp_path, monkeypatch):
    made = []
    selectors.prepare()
    gc.disable()  # a collection of all that tests have made is no work of the server

    def make(count, **more):
        folder = tmp_path / f"data {len(made)}"
        shutil.copytree(stores(count, **more), folder)
        here = Server(folder)
        made.append(here)
        items, select = type(here.store).items, type(here.store).select

        def asked(self, sql, *args):
            here.asked += 1
            return select(self, sql, *args)

        def counted(self, agent, collection, after, limit):
            rows = items(self, agent, collection, after, limit)
            here.read += len(rows) if collection.startswith("p") else 0
            return rows

        monkeypatch.setattr(type(here.store), "items", counted)
        monkeypatch.setattr(type(here.store), "select", asked)
        here.rest()
        return here

    yield make
    gc.enable()
    for each in made:
        each.store.close()


SIZES = [FEW, pytest.param(MANY, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", SIZES)
def test_a_search_reads_each_message_once_and_lets_others_have_their_turns(server, count):
    s = server(count)
    searching, other = s.connect(), s.connect()
    s.do(other, Subscribe("s", ("queue:quick",)))
    s.rest()
    s.do(searching, Subscribe("s", (Q,), ack="individual", selector="k = 'y'"))
    for number in range(5):
        s.do(other, Send("queue:quick", b"%d" % number, shown="queue:quick"))
        for _ in range(4):  # in, out, and each durable, with the rest of the search behind it
            assert s.turn()
        assert len(s.got(other)) == number + 1
    s.rest()
    assert s.read <= 1.02 * count + 1_000 and s.longest < LONG_S, s.what
    assert s.steps > count / 500
    before = s.read
    for letter in (b"x", b"y"):
        s.do(other, Send(Q, letter, properties=pack({"k": letter.decode()}), shown=Q))
        s.rest()
    assert [each.body for each in s.got(searching)] == [b"y"] and s.read == before


@pytest.mark.parametrize("count", SIZES)
def test_a_consumer_of_few_among_many_reads_each_message_once(server, count):
    s = server(count)
    conn = s.connect()
    s.do(conn, Subscribe("s", (Q,), ack="individual", selector="n = 'some'", prefetch=3))
    s.rest()
    while (got := s.got(conn)) and got[-1].tag in s.server.clients.sessions[conn].deliveries.tags:
        s.do(
            conn,
            *(
                Disposition(each.tag)
                for each in got[-3:]
                if each.tag in s.server.clients.sessions[conn].deliveries.tags
            ),
        )
        s.rest()
    assert len(s.got(conn)) == count // 1_000
    assert s.read <= 1.1 * count + 1_000 and s.longest < LONG_S, s.what


@pytest.mark.parametrize("count", SIZES)
def test_what_comes_back_is_offered_without_another_search(server, count):
    s = server(count)
    picky, any_one = s.connect(), s.connect()
    s.do(picky, Subscribe("s", (Q,), ack="individual", selector="k = 'y'"))
    s.rest()
    before = s.read
    for _ in range(10):
        s.do(any_one, Subscribe("s", (Q,), ack="individual", prefetch=1))
        s.rest()
        s.do(any_one, Disposition(s.got(any_one)[-1].tag, RELEASED))
        s.rest()
        s.step(ClientClosed(any_one))
        s.rest()
        any_one = s.connect()
    assert s.read - before < 2_000 and s.longest < LONG_S, s.what


@pytest.mark.parametrize("count", SIZES)
def test_what_is_behind_a_busy_group_is_looked_at_once(server, count):
    s = server(count, group="g")
    owner, other = s.connect(), s.connect()
    s.do(owner, Subscribe("s", (Q,), ack="individual", prefetch=1))
    s.rest()
    s.do(other, Subscribe("s", (Q,), ack="individual", prefetch=1))
    s.rest()
    assert len(s.got(owner)) == 1 and s.got(other) == []
    for _ in range(10):
        s.do(owner, Disposition(s.got(owner)[-1].tag))
        s.rest()
    assert len(s.got(owner)) == 11 and s.got(other) == []
    assert s.read <= 1.1 * count + 3_000 and s.longest < LONG_S, s.what


@pytest.mark.parametrize("count", SIZES)
def test_a_browser_of_few_among_many_reads_each_message_once(server, count):
    s = server(count)
    conn = s.connect()
    s.do(conn, Subscribe("s", (Q,), browser=True, selector="n = 'some'", prefetch=10_000))
    s.rest()
    assert len(s.got(conn)) == count // 1_000 and isinstance(s.told[conn][-1], BrowseEnd)
    assert s.read <= 1.1 * count + 1_000 and s.longest < LONG_S, s.what


@pytest.mark.parametrize("count", SIZES)
def test_an_operator_looks_and_moves_in_steps(server, count):
    s = server(count)
    found, after = 0, []
    while True:
        page = s.ask("browse", destination=Q, where="n = 'some'", after=after, limit=1_000)
        found, after = found + len(page["messages"]), page["after"]
        if not after:
            break
    assert found == count // 1_000
    assert s.read <= 1.1 * count + 1_000 and s.longest < LONG_S, s.what
    s.ask("create_queue", destination="queue:other")
    moved, after, upto = 0, [], 0
    while True:
        page = s.ask("move", destination=Q, target="queue:other", where="n = 'some'", after=after, upto=upto)
        moved, after, upto = moved + page["moved"], page["after"], page["upto"]
        if not after:
            break
    s.rest()
    assert moved == count // 1_000 and s.queue.messages.count == count - moved
    assert s.read <= 2.2 * count + 2_000 and s.longest < LONG_S, s.what


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("expires", [0, START + 3_600 * SECOND])
def test_a_purge_shows_at_once_and_goes_in_steps(server, count, expires):
    """What expires has a row more, which costs as much again; no message is read for that."""
    s = server(count, expires=expires)
    conn, rows = s.connect(), 2 if expires else 1
    assert s.ask("purge", destination=Q)["purged"] == count
    s.do(conn, Send(Q, b"new", properties=pack({"k": "x"}), shown=Q))
    for _ in range(4):
        s.turn()
    shown = s.ask("queues")["queues"][0]
    assert (shown["messages"], shown["ready"], shown["bytes"]) == (1, 1, 8) and s.queue.messages.count > 1
    before = s.steps
    s.rest()
    s.server.check()
    messages = s.queue.messages
    assert s.store.item_count(f"a/{Q}", "x") == 0
    assert (messages.count, messages.ready, messages.stale, messages.bytes, messages.stale_bytes) == (1, 1, 0, 8, 0)
    assert s.steps - before < rows * count / 1_000 + 10  # others have had their turns in between
    s.do(conn, Subscribe("s", (Q,)))
    s.rest()
    assert [each.body for each in s.got(conn)] == [b"new"]
    assert s.read <= PAGE and s.asked < rows * count / 50 and s.longest < LONG_S, s.what


def test_what_expires_is_read_by_pages(server):
    s = server(FEW, expires=START + 3_600 * SECOND)
    s.ask("set_policy", match=Q, values={"on_expiry": "drop"})
    asked, s.now = s.asked, s.now + 3_600 * SECOND
    s.step(Tick())
    s.rest()
    s.server.check()
    messages = s.queue.messages
    assert (messages.count, messages.ready, messages.bytes, messages.dropped) == (0, 0, 0, FEW)
    assert s.read == FEW and s.asked - asked < FEW / 20 and s.longest < LONG_S, s.what


def test_a_purge_goes_on_behind_a_restart(stores, tmp_path):
    shutil.copytree(stores(FEW), tmp_path / "a")
    s = Server(tmp_path / "a")
    conn = s.connect()
    s.ask("purge", destination=Q)
    s.do(conn, Send(Q, b"new", shown=Q))
    for _ in range(4):
        s.turn()
    assert 0 < s.queue.messages.stale < FEW
    s.store.close()
    s = Server(tmp_path / "a")
    s.rest()
    s.server.check()
    messages = s.queue.messages
    left = sum(s.store.item_count(f"a/{Q}", f"p{number}") for number in range(10))
    assert (messages.count, messages.ready, messages.bytes, left) == (1, 1, 3, 1)


@pytest.mark.parametrize("count", SIZES)
def test_ten_thousand_are_given_settled_and_given_back_in_steps(server, count):
    """Where the processor is another one's, too, a step may take three times its own time: then they are done again."""
    longest = []
    while not longest or (longest[-1] >= LONG_S and len(longest) < 3):
        longest.append(longest_step(server(count), count))
    assert longest[-1] < LONG_S, longest


def longest_step(s, count):
    conn = s.connect()
    s.do(conn, Subscribe("s", (Q,), ack="client", prefetch=10_000))
    s.rest()
    assert len(s.got(conn)) == 10_000
    s.do(conn, Disposition(s.got(conn)[-1].tag))
    s.rest()
    assert len(s.got(conn)) == 20_000
    if count > 20_000:
        s.do(conn, Disposition(s.got(conn)[-1].tag, MODIFIED))
        s.rest()
        s.now += 10 * SECOND
        s.step(Tick())
        s.rest()
    s.step(ClientClosed(conn))
    s.rest()
    s.server.check()
    assert s.queue.messages.ready == s.queue.messages.count
    return s.longest


@pytest.mark.parametrize("count", SIZES)
def test_every_request_of_an_operator_is_one_small_step(server, count):
    s = server(count)
    conn = s.connect()
    s.do(conn, Subscribe("s", (Q,), ack="individual", prefetch=10_000))
    s.rest()
    known = {
        "destination": Q, "agent": f"a/{Q}", "to": [f"a/{Q}"], "type": "q.none", "name": "n", "class": "x:Y", "id": 1,
        "seq": 1, "user": "u", "hash": "h", "target": "queue:other", "holder": "a", "match": "queue:x", "values": {},
        "topics": ["t"], "shared": True, "where": "n = 'none'", "limit": 1_000, "ids": [], "server": "a",
    }  # fmt: skip
    verbs = sorted(s.server.requests.verbs, key=lambda verb: ("delete" in verb, "purge" in verb, verb))
    assert {"browse", "move", "purge", "release", "status", "why", "deadletters", "delete_destination"} <= {*verbs}
    for verb in verbs:
        for unacked in (False, True):
            before = s.read
            s.tickets += 1
            given = {**known, "unacked": unacked, "destination": "topic:t" if "topic" in verb else Q}
            args = {name: given[name] for name in s.server.requests.verbs[verb].arguments if name in given}
            s.step(Admin(s.tickets, verb, args))
            assert s.read - before <= 1_000 and s.longest < LONG_S, (verb, s.what)
    s.rest()
    assert s.longest < LONG_S, s.what
    assert f"a/{Q}" not in s.server.natives.agents


@pytest.mark.parametrize("count", SIZES)
def test_delayed_messages_come_and_go_in_steps(server, count):
    s = server(FEW)
    conn = s.connect()
    for start in range(0, count // 10, 500):
        like = Send(Q, b"", properties=pack({"k": "y"}), delay=SECOND, shown=Q)
        s.do(conn, *(replace(like, body=b"%d" % n) for n in range(start, start + 500)))
        s.rest()
    s.now += 2 * SECOND
    s.step(Tick())
    s.rest()
    s.server.check()
    assert s.queue.messages.ready == FEW + count // 10 and s.longest < LONG_S, s.what
