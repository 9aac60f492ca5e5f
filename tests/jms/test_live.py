"""Clients with threads and a server of its own process."""

import subprocess
import sys
import threading
from collections import Counter

import pytest

from mombroker.jms import ConnectionLost, IllegalState, LoginRefused, MessageFormat, Refused, RolledBack, Topic, connect
from tests.admin.processes import Processes, free_ports

PATIENCE_S = 60  # before a test gives up; nothing is measured by it


def take(consumer, count):
    return [consumer.receive(PATIENCE_S) for _ in range(count)]


def bodies(messages):
    return [message.body for message in messages]


def test_no_twisted_in_the_caller():
    code = "import sys, mombroker.jms; print([name for name in sys.modules if name.split('.')[0] == 'twisted'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("ack", ["auto", "dups-ok", "client", "individual", "transacted"])
def test_every_mode(url, place, ack):
    with connect(url, ack=ack) as context:
        for number in range(10):
            context.send(place, str(number), properties={"number": number})
        if ack == "transacted":
            context.commit()
        with context.consumer(place, selector="number < 5") as consumer:
            messages = take(consumer, 5)
            assert bodies(messages) == list("01234")
            if ack == "client":
                messages[-1].acknowledge(wait=True)
            elif ack == "individual":
                for message in messages:
                    message.acknowledge()
            elif ack == "transacted":
                context.commit()
    with connect(url) as context:
        assert bodies(context.browser(place)) == list("56789")
        assert not any(message.redelivered for message in take(context.consumer(place), 5))


def test_a_large_message_and_many_small_ones(url, place):
    with connect(url) as context:
        body = bytes(range(256)) * 4_096
        context.send(place, body)
        producer = context.producer(place)
        for number in range(2_000):
            producer.send(str(number), wait=False)
        context.flush()
        with context.consumer(place) as consumer:
            assert consumer.receive(PATIENCE_S).body == body
            assert bodies(take(consumer, 2_000)) == [str(number) for number in range(2_000)]


def test_a_client_id_for_one_connection_alone(url):
    with connect(url, client_id="only", exclusive=True):
        with pytest.raises(LoginRefused, match="only"):
            connect(url, client_id="only", exclusive=True)
    with connect(url, client_id="only", exclusive=True) as context:
        context.send("only", "x")


def test_durable_and_shared_subscriptions(url):
    with connect(url, client_id="ann") as ann, connect(url) as bob:
        ann.consumer(Topic("news"), durable="inbox").close()
        shared = [bob.consumer(Topic("news"), durable="team", shared=True) for _ in range(2)]
        plain = bob.consumer([Topic("news"), Topic("other.>")])
        for number in range(4):
            bob.send(Topic("news"), str(number))
        assert sorted(bodies(take(shared[0], 2) + take(shared[1], 2))) == list("0123")
        assert bodies(take(plain, 4)) == list("0123")
        assert bodies(take(ann.consumer(Topic("news"), durable="inbox"), 4)) == list("0123")


def test_requests_of_many_threads_get_their_own_answers(url, place):
    with connect(url) as asker, connect(url) as worker:
        worker.consumer(place, listener=lambda message: worker.reply(message, message.body * 2))
        answers = {}

        def ask(number):
            answers[number] = asker.request(place, str(number)).body

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert answers == {number: str(number) * 2 for number in range(8)}


# -- threads -------------------------------------------------------------------------------------------------------


def test_the_listeners_of_a_context_run_one_after_another_in_the_order_of_arrival(url, place):
    found, done, busy = [], threading.Event(), threading.Lock()

    def hear(message):
        assert busy.acquire(blocking=False), "two listeners at once"
        found.append((message.body, threading.current_thread().name))
        busy.release()
        if len(found) == 20:
            done.set()

    with connect(url) as context:
        for topic in ("x", "y"):
            context.consumer(Topic(f"{place}.{topic}"), listener=hear)
        for number in range(20):
            context.send(f"/topic/{place}.{'xy'[number % 2]}", str(number))
        assert done.wait(PATIENCE_S)
    assert [body for body, _ in found] == [str(number) for number in range(20)]
    assert {thread for _, thread in found} == {"mombroker-jms-listeners"}


@pytest.mark.parametrize("ack", ["auto", "dups-ok", "individual", "transacted"])
def test_a_listener_that_fails_gets_the_message_again(url, place, ack):
    counts, done = [], threading.Event()

    with connect(url, ack=ack) as context:

        def hear(message):
            counts.append(message.delivery_count)
            if len(counts) == 1:
                raise ValueError("not now")
            if ack == "individual":
                message.acknowledge(wait=True)
            elif ack == "transacted":
                context.commit()
            done.set()

        context.consumer(place, listener=hear)
        with connect(url) as other:
            other.send(place, "x")
        assert done.wait(PATIENCE_S)
    assert counts == [1, 2]
    with connect(url) as other:
        assert list(other.browser(place)) == []


def test_close_waits_for_the_listener_and_may_come_from_it(url, place):
    entered, leave, left = threading.Event(), threading.Event(), []

    def hear(message):
        entered.set()
        leave.wait(PATIENCE_S)
        left.append(message.body)

    context = connect(url)
    consumer = context.consumer(place, listener=hear)
    with pytest.raises(IllegalState, match="has a listener"):
        consumer.receive(0)
    context.send(place, "1")
    assert entered.wait(PATIENCE_S)
    closer = threading.Thread(target=context.close)
    closer.start()
    leave.set()
    closer.join(PATIENCE_S)
    assert left == ["1"] and not closer.is_alive()

    context, closed = connect(url), threading.Event()
    context.consumer(place, listener=lambda message: (context.close(), closed.set()))
    with connect(url) as other:
        other.send(place, "2")
    assert closed.wait(PATIENCE_S)


def test_a_thread_that_waits_for_a_message_wakes_up_when_the_context_closes(url, place):
    context, found = connect(url), []
    consumer = context.consumer(place)
    waiter = threading.Thread(target=lambda: found.extend(consumer))
    waiter.start()
    context.send(place, "x")
    context.flush()
    context.close()
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive() and bodies(found) in (["x"], [])


def test_many_threads_send_by_one_connection(url, place):
    with connect(url) as context:

        def send(name):
            with context.context() as mine:
                for number in range(50):
                    mine.send(place, f"{name}{number}", wait=number % 10 == 0)

        threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        context.flush()
        found = bodies(take(context.consumer(place), 200))
    for name in "abcd":
        assert [body for body in found if body[0] == name] == [f"{name}{number}" for number in range(50)]


# -- losses --------------------------------------------------------------------------------------------------------


class Solo(Processes):
    """Servers whose processes are ours to kill."""

    def __init__(self, folder, *names):
        ports = iter(free_ports(2 * len(names)))
        self.ports = {}
        lines = [f'[bus]\nname = "solo"\nregistry = "{names[0]}"']
        for name in names:
            listen, self.ports[name] = next(ports), next(ports)
            lines.append(
                f'[servers.{name}]\nlisten = "127.0.0.1:{listen}"\nstomp = "127.0.0.1:{self.ports[name]}"\n'
                f'anonymous = true\ndata = "{name}"'
            )
        if len(names) > 1:
            lines.append(f"[domains.d]\nservers = {list(names)}")
        (folder / "bus.toml").write_text("\n".join(lines))
        super().__init__(folder / "bus.toml")
        self.running = {}
        for name in names:
            self.start(name)

    def start(self, name):
        self.running[name] = self.serve(name)

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def end(self):
        for name in list(self.running):
            self.kill(name)

    def url(self, *names):
        return ",".join(f"stomp://127.0.0.1:{self.ports[name]}" for name in names)

    def connect(self, *names, **options):
        """As soon as the server is there."""
        for attempt in range(200):
            try:
                return connect(self.url(*names), reconnect=PATIENCE_S, **options)
            except ConnectionLost:
                if attempt == 199:
                    raise
                threading.Event().wait(0.1)
        raise AssertionError("never")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Solo(tmp_path_factory.mktemp("mortal"), "main")
    yield made
    made.end()


@pytest.fixture
def mortal(shared):
    """A server that some tests kill, and start again."""
    if not shared.running:
        shared.start("main")
    return shared


@pytest.fixture
def solo(tmp_path):
    made = []

    def make(*names):
        made.append(Solo(tmp_path, *names))
        return made[-1]

    yield make
    for each in made:
        each.end()


def send_all(context, count, at, progress):
    """Some wait for their receipts, others do not."""
    producer = context.producer(at)
    for number in range(count):
        producer.send(str(number), wait=number % 5 == 0, timeout=PATIENCE_S)
        progress.release()
    context.flush(PATIENCE_S)


def sending(context, count, at):
    """A thread that sends, and a semaphore that counts how much it has sent."""
    progress = threading.Semaphore(0)
    thread = threading.Thread(target=send_all, args=(context, count, at, progress))
    thread.start()
    return thread, progress


def received(consumer, count):
    """How often each came, until all are here and no more come."""
    found = Counter()
    while len(found) < count:
        message = consumer.receive(PATIENCE_S)
        assert message is not None, f"{count - len(found)} are missing"
        found[message.body] += 1
    while (message := consumer.receive(0.5)) is not None:
        found[message.body] += 1
    return found


@pytest.mark.parametrize(("count", "kills"), [(400, 1), pytest.param(20_000, 20, marks=pytest.mark.long)])
def test_a_server_killed_while_a_client_sends_loses_and_repeats_nothing(mortal, place, count, kills):
    bus = mortal
    with bus.connect("main") as context:
        thread, progress = sending(context, count, place)
        for _ in range(kills):
            for _ in range(count // (kills + 1)):
                assert progress.acquire(timeout=PATIENCE_S)
            bus.kill("main")
            bus.start("main")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        found = received(context.consumer(place), count)
        assert list(found.items()) == [(str(number), 1) for number in range(count)]


def test_a_client_that_fails_over_loses_and_repeats_nothing(solo):
    """What the killed server has, comes late, when its clients have sent it by another; the queue knows it."""
    bus, count = solo("a", "b"), 300
    with bus.connect("b") as reader, bus.connect("a", "b") as context:
        consumer = reader.consumer("orders")
        thread, progress = sending(context, count, "orders")
        for _ in range(count // 3):
            assert progress.acquire(timeout=PATIENCE_S)
        bus.kill("a")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        bus.start("a")
        bus.connect("a").close()
        assert set(received(consumer, count).values()) == {1}


@pytest.mark.long
def test_consumers_go_on_after_a_kill(mortal):
    bus = mortal
    with bus.connect("main", client_id="c", ack="individual") as context:
        queue, topic = context.consumer("orders"), context.consumer(Topic("news"), durable="inbox")
        context.send("orders", "1")
        assert queue.receive(PATIENCE_S).body == "1"
        bus.kill("main")
        bus.start("main")
        context.send(Topic("news"), "2")
        again = queue.receive(PATIENCE_S)
        assert (again.body, again.redelivered) == ("1", True)
        again.acknowledge(wait=True)
        assert topic.receive(PATIENCE_S).body == "2"


@pytest.mark.long
def test_a_transaction_through_a_kill_is_all_or_nothing(mortal):
    bus = mortal
    killer = None
    with bus.connect("main", ack="transacted") as context, bus.connect("main") as other:
        for number in range(20):
            other.send("in", str(number))
        consumer, results = context.consumer("in"), other.consumer("out")
        found = Counter()
        while len(found) < 20:
            if "main" not in bus.running:
                killer.join()
                bus.start("main")
            message = consumer.receive(0.2)
            if message is not None:
                context.send("out", message.body)
                context.send("out", message.body)
                if len(found) == 7 and killer is None:
                    killer = threading.Thread(target=bus.kill, args=("main",))
                    killer.start()
                try:
                    context.commit(PATIENCE_S)
                except RolledBack:
                    pass  # it comes again, unless it was done
            while (result := results.receive(0.05)) is not None:
                found[result.body] += 1
        assert set(found.values()) == {2}
        killer.join()
        if "main" not in bus.running:
            bus.start("main")


def test_a_server_that_is_gone_for_good_is_an_error_for_all(mortal):
    bus, told = mortal, []
    bus.connect("main").close()
    with pytest.raises(ConnectionLost), connect(bus.url("main"), reconnect=0.0, on_error=told.append) as context:
        consumer = context.consumer("orders")
        bus.kill("main")
        with pytest.raises(ConnectionLost, match="no server can be reached"):
            consumer.receive(PATIENCE_S)
        assert "no server can be reached" in str(told[-1])
        context.send("orders", "x")


# -- logins --------------------------------------------------------------------------------------------------------


def test_who_is_not_let_in(tmp_path):
    listen, port = free_ports(2)
    (tmp_path / "bus.toml").write_text(
        f'[bus]\nname = "solo"\n[servers.main]\nlisten = "127.0.0.1:{listen}"\nstomp = "127.0.0.1:{port}"\n'
        'data = "main"\n'
    )
    bus = Processes(tmp_path / "bus.toml")
    bus.up()
    try:
        (tmp_path / "passcode").write_text("secret")
        bus.mom("user", "add", "ann", "--passcode-file", str(tmp_path / "passcode"))
        with pytest.raises(LoginRefused, match="access refused for user 'ann'"):
            connect(f"stomp://ann:wrong@127.0.0.1:{port}")
        with connect(f"stomp://ann:secret@127.0.0.1:{port}") as context:
            context.send("orders", "x")
            with pytest.raises(MessageFormat, match="the server takes 8388608"):
                context.send("orders", b"x" * (9 << 20))
            with pytest.raises(Refused):
                context.unsubscribe("nothing")
            context.send("orders", "y")
            assert bodies(take(context.consumer("orders"), 2)) == ["x", "y"]
    finally:
        bus.down()
