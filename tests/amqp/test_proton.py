"""python-qpid-proton, the client of Qpid for Python, with a server of its own process."""

import os
from threading import Thread

import pytest

from mombroker import jms
from tests.admin.processes import Processes, free_ports
from tests.amqp.server import one_server
from tests.snippets import fenced, program

if "MOM_SKIP_NOTHING" not in os.environ:
    pytest.importorskip("proton", reason="install mombroker[proton], which needs a C compiler")
from proton import Delivery, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached, SendException

PATIENCE_S = 60  # before a test gives up; nothing is measured by it


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


@pytest.fixture
def connect(server):
    made = []

    def one(**more):
        more = {"sasl_enabled": True, "allow_insecure_mechs": True, **more}
        made.append(BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=PATIENCE_S, **more))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_messages_are_sent_received_and_settled(connect, server):
    connection = connect()
    sender, receiver = connection.create_sender("sent"), connection.create_receiver("sent", credit=10)
    for number in range(3):
        sent = sender.send(Message(f"pizza {number}", durable=True, properties={"number": number}))
        assert sent.remote_state == Delivery.ACCEPTED and sent.settled
    for number in range(3):
        message = receiver.receive(timeout=PATIENCE_S)
        assert (message.body, message.properties) == (f"pizza {number}", {"number": number})
        receiver.accept()
    receiver.close()
    connection.close()
    assert server.json("queue", "show", "sent")["messages"] == 0


def test_what_is_not_settled_comes_again(connect):
    first = connect()
    first.create_sender("again").send(Message("one", durable=True))
    first.create_receiver("again", credit=1).receive(timeout=PATIENCE_S)
    first.close()
    receiver = connect().create_receiver("again", credit=1)
    message = receiver.receive(timeout=PATIENCE_S)
    assert (message.body, message.delivery_count) == ("one", 1)
    receiver.accept()


def test_a_message_that_was_released_was_not_delivered_and_a_rejected_one_is_a_dead_letter(connect):
    connection = connect()
    connection.create_sender("back").send(Message("one", durable=True))
    receiver = connection.create_receiver("back", credit=1)
    receiver.receive(timeout=PATIENCE_S)
    receiver.release(delivered=False)
    receiver.close()
    again = connection.create_receiver("back", credit=1)
    assert again.receive(timeout=PATIENCE_S).delivery_count == 0
    again.reject()
    dead = connection.create_receiver("DLQ.back", credit=1).receive(timeout=PATIENCE_S)
    assert dead.body == "one" and dead.properties["dead-letter-reason"]


def test_large_and_binary_messages(connect):
    connection = connect()
    sender, receiver = connection.create_sender("large"), connection.create_receiver("large", credit=10)
    for body in (b"\x00\xff" * 300_000, "grün" * 100_000, {"a": 1, "b": [1, "x"]}, None, 5):
        sender.send(Message(body, durable=True))
        assert receiver.receive(timeout=PATIENCE_S).body == body
        receiver.accept()


def test_a_message_that_is_too_large_is_rejected_and_the_link_goes_on(connect):
    sender = connect().create_sender("toolarge")
    with pytest.raises(SendException, match=str(int(Delivery.REJECTED))):
        sender.send(Message(b"x" * (9 << 20)))
    assert sender.send(Message(b"x")).remote_state == Delivery.ACCEPTED


def test_stomp_and_amqp_see_the_same_message(connect, server):
    receiver = connect().create_receiver("both", credit=10)
    with jms.connect(f"stomp://127.0.0.1:{server.stomp}") as context:
        context.send("both", "grün", properties={"size": 5, "new": True, "color": "red"})
        message = receiver.receive(timeout=PATIENCE_S)
        assert (message.body, message.properties) == ("grün", {"size": 5, "new": True, "color": "red"})
        receiver.accept()
        sender = connect().create_sender("other")
        sender.send(Message("one", durable=True, properties={"size": 5, "rate": 1.5}, subject="order", priority=7))
        found = context.consumer("other").receive(PATIENCE_S)
        assert (found.body, found.type, found.priority) == ("one", "order", 7)
        assert found.properties == {"size": 5, "rate": 1.5, "JMSXDeliveryCount": 1}


class Passing(MessagingHandler, TransactionHandler):
    """Passes two messages on in three transactions, of which the first is rolled back."""

    def __init__(self, url):
        super().__init__(prefetch=1, auto_accept=False)
        self.url, self.tried, self.failed = url, 0, list[str]()

    def on_start(self, event):
        self.container = event.container
        self.connection = self.container.connect(self.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self.receiver = self.container.create_receiver(self.connection, "passed")
        self.sender = self.container.create_sender(self.connection, "passed-on")

    def on_message(self, event):
        self.message, self.came = event.message, event.delivery
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        self.tried += 1
        event.transaction.send(self.sender, Message(f"{self.message.body} {self.tried}", durable=True))
        if self.tried == 1:
            event.transaction.abort()
        else:
            event.transaction.accept(self.came)
            event.transaction.commit()

    def on_transaction_aborted(self, event):
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_committed(self, event):
        if self.tried == 3:
            self.connection.close()

    def on_transaction_declare_failed(self, event):
        self.failed.append(str(event.delivery.remote.condition))
        self.connection.close()

    on_transaction_commit_failed = on_transaction_declare_failed


def test_transactions_of_proton_send_and_settle_or_do_not(connect, server):
    sender = connect().create_sender("passed")
    for text in ("a", "b"):
        sender.send(Message(text, durable=True))
    passing = Passing(f"amqp://127.0.0.1:{server.port}")
    Container(passing).run()
    assert passing.failed == [] and passing.tried == 3
    receiver = connect().create_receiver("passed-on", credit=10)
    assert [receiver.receive(timeout=PATIENCE_S).body for _ in range(2)] == ["a 2", "b 3"]
    shown = {name: server.json("queue", "show", name)["messages"] for name in ("passed", "passed-on")}
    assert shown == {"passed": 0, "passed-on": 2}


def test_a_link_to_nowhere_is_refused_in_words(connect):
    with pytest.raises(LinkDetached, match="commas"):
        connect().create_sender("a,b")


def test_users_log_in_by_plain(tmp_path):
    made = one_server(tmp_path, "")
    try:
        made.mom("user", "add", "ann", stdin="secret\nsecret\n")
        how = {"sasl_enabled": True, "allow_insecure_mechs": True, "allowed_mechs": "PLAIN", "timeout": PATIENCE_S}
        url = f"amqp://127.0.0.1:{made.port}"
        with pytest.raises(Exception, match="(?i)auth"):
            BlockingConnection(url, user="ann", password="wrong", **how)
        connection = BlockingConnection(url, user="ann", password="secret", **how)
        assert connection.create_sender("q").send(Message("x")).remote_state == Delivery.ACCEPTED
        connection.close()
    finally:
        made.down()


def test_what_the_docs_show(server, tmp_path):
    """docs/amqp.md, word for word."""
    assert program(fenced("docs/amqp.md", "python"), tmp_path, _5672=server.port) == "one pizza for ann\n"


def test_all_receivers_of_a_topic_in_total_order_have_one_sequence(tmp_path):
    names, ports = "abc", dict(zip("abc", free_ports(3), strict=True))
    lines = ['[bus]\nname = "three"\nregistry = "a"']
    lines += [
        f'[servers.{name}]\nlisten = "127.0.0.1:{port}"\namqp = "127.0.0.1:{ports[name]}"\ndata = "{name}"\n'
        "anonymous = true" for name, port in zip(names, free_ports(3), strict=True)
    ]  # fmt: skip
    lines += ['[domains.d]\nservers = ["a", "b", "c"]', '[[policies]]\nmatch = "topic:prices"\norder = "total"']
    (tmp_path / "bus.toml").write_text("\n".join(lines))
    bus = Processes(tmp_path / "bus.toml")
    bus.up()
    try:
        bus.mom("topic", "create", "prices", "--server", "c")
        made = [BlockingConnection(f"amqp://127.0.0.1:{ports[name]}", timeout=PATIENCE_S) for name in "abcab"]
        receivers = [each.create_receiver("/topic/prices", credit=100) for each in made[:3]]
        publishers = [Thread(target=publish, args=(each, number)) for number, each in enumerate(made[3:])]
        for each in publishers:
            each.start()
        found = [[each.receive(timeout=PATIENCE_S).body for _ in range(40)] for each in receivers]
        for each in publishers:
            each.join(PATIENCE_S)
        assert found[0] == found[1] == found[2] and len({*found[0]}) == 40
        for number in range(2):
            assert [text for text in found[0] if text[0] == str(number)] == [f"{number}.{n}" for n in range(20)]
        for each in made:
            each.close()
    finally:
        bus.down()


def publish(connection, number):
    sender = connection.create_sender("/topic/prices")
    for n in range(20):
        assert sender.send(Message(f"{number}.{n}", durable=True)).remote_state == Delivery.ACCEPTED
