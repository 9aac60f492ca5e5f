"""Any argument of any type in any place: a JmsError at once or a call that works, and the connection goes on."""

import enum
import inspect
import random
import socket

import pytest

from mombroker import jms
from mombroker.jms.consumer import KNOWN as CONSUMER_OPTIONS
from mombroker.jms.producer import KNOWN as MESSAGE_OPTIONS
from tests.jms.memory import Memory, cord

SERVER_ONLY = ("no route from a to", "is nobody's", "there is no durable subscription")  # what no client can know
MODES = ("auto", "dups-ok", "client", "individual", "transacted")


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


TEXTS = [
    "", "a", "orders", "/queue/orders", "/topic/news.>", "/topic/a,/topic/b", "/nowhere/x", "/temp-queue/x",
    "/remote-temp-queue/a/b/c", "/reply-queue/a", "stomp://", "size > 5", "size >", "'\udce9'", "\udce9", "a\udce9b",
    "\0", "a\0b", "a\nb", "a\rb:c\\d", " ", "grün", "x" * 201, "x" * 20_000, "p:1", "p:x", "TRUE", "true", "JMSType",
    "(" * 300, Colour.RED,
]  # fmt: skip
OTHERS = [
    None, True, False, 0, 1, -1, 7, 4.5, -0.5, float("nan"), float("inf"), 10**400, -(10**400), 1 << 63, Size.LARGE, 1j,
    b"", b"bytes", bytearray(b"x"), [], ["a", "b"], ["/topic/a", 7], [None], (), ("/topic/a",), {}, {"a": 1}, {1: 2},
    {"a": [1]}, {"a": "\udce9"}, {"a\udce9": 1}, {"a": "x" * 20_000}, {f"p{n}": n for n in range(120)},
    {"big": 1 << 64}, {"colour": Colour.RED, "size": Size.LARGE}, {"JMSX": 1}, {"receipt": "r"}, set(), object(), print,
    int, iter(()), jms.Queue("orders"), jms.Topic("news"), jms.Topic("a.*"), jms.Queue("\udce9"), jms.Queue(""),
    jms.Destination("a"), jms.TemporaryTopic("x"), jms.Options(),
]  # fmt: skip
TIMES = ["1", "\udce9", True, float("nan"), -1, [], b"", 0, 0.0, -0.5, {}]  # of those that are good, none that waits


def dead_url():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"stomp://127.0.0.1:{probe.getsockname()[1]}"


class World:
    """Contexts of all modes on one connection, each with a consumer; and what can be called."""

    def __init__(self, chance):
        self.chance, self.broker = chance, Memory()
        self.first = self.broker.connect(client_id="ann")
        self.contexts = [self.first, *(self.first.context(mode) for mode in MODES[1:])]
        self.url = dead_url()
        self.made = []

    def value(self, name):
        if name == "timeout":
            return self.chance.choice(TIMES)
        if name == "url":
            return self.chance.choice([self.url, self.url + "/\udce9", [self.url, 7], *TEXTS, *OTHERS])
        if name == "ack" and self.chance.random() < 0.5:
            return self.chance.choice(MODES)
        if name in ("to", "wanted", "queue", "destination") and self.chance.random() < 0.5:
            return self.chance.choice(["orders", jms.Queue("orders"), "/topic/news", ["/topic/a", jms.Topic("b")]])
        return self.chance.choice(self.chance.choice([TEXTS, OTHERS]))

    def callables(self):
        """Name, function, and the options that it has behind **."""
        context = self.chance.choice(self.contexts)
        producer, consumer = context.producer("orders"), context.consumer("orders")
        self.made.append(consumer)
        pending = self.first.send("orders", "x", wait=False)
        message = consumer.receive(0)
        for owner, names, options in (
            (context, "context queue topic temporary_queue temporary_topic flush unsubscribe start acknowledge", ()),
            (context, "send request reply producer", MESSAGE_OPTIONS | {"json", "wait", "timeout"}),
            (context, "consumer browser recover commit rollback", CONSUMER_OPTIONS),
            (producer, "send", MESSAGE_OPTIONS),
            (consumer, "receive listen", ()),
            (message, "acknowledge reject", ()),
            (pending, "wait when_done", ()),
            (jms, "connect Queue Topic TemporaryQueue TemporaryTopic Options", ()),
        ):
            for name in names.split() if owner is not None else ():
                yield name, getattr(owner, name), sorted(options)

    def arguments(self, function, options):
        given = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                chosen = self.chance.sample([*options, "colour", "reply_to"], self.chance.randrange(3))
                given |= {each: self.value(each) for each in chosen if each not in given}
            elif parameter.default is parameter.empty or name in ("url", "timeout") or self.chance.random() < 0.3:
                given[name] = self.value(name)
        if function.__name__ == "request":
            given["timeout"] = self.value("timeout")
        return given

    def call(self, function, given):
        """What it returns is used, too, and closed."""
        result = function(**given)
        if isinstance(result, jms.Browser):
            list(result)
        elif isinstance(result, jms.Context):
            result.close()
        elif isinstance(result, jms.Producer):
            result.send("x", to="orders")
        elif isinstance(result, jms.Destination):
            self.first.send(result, "x", reply_to=result)
        elif isinstance(result, jms.Consumer):
            self.made.append(result)

    def tidy(self):
        for each in self.made:
            each.close()
        self.made.clear()
        if self.chance.random() < 0.05:
            self.contexts[-1].rollback()


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_wrong_arguments_are_refused_at_once_and_nobody_else_notices(count):
    chance = random.Random(7)
    world, done, refused = World(chance), 0, 0
    carrier = cord(world.first)
    while done < count:
        for name, function, options in list(world.callables()):
            given = world.arguments(function, options)
            before = carrier.machine.epoch
            try:
                world.call(function, given)
            except jms.JmsError as error:
                refused += 1
                assert str(error), f"{name}({given!r}) says nothing"
            except Exception as error:
                raise AssertionError(f"{name}({given!r}) raised {error!r}") from error
            done += 1
            if carrier.session is None:
                text = f"{name}({given!r}) ended the connection: {carrier.machine.farewell} {carrier.faults}"
                assert any(words in text for words in SERVER_ONLY), text
                carrier.dial()
            else:
                assert (carrier.machine.epoch, carrier.faults) == (before, [])
        world.tidy()
    assert count / 4 < refused < count
    world.first.send("last", "is served")
    assert world.first.consumer("last").receive(0).body == "is served"
    for context in world.contexts:
        context.close()


@pytest.mark.parametrize("wrong", [{"correlation_id": 42}, *(
    {name: "\udce9"} for name in ("correlation_id", "type", "group", "content_type", "dedup_id")
)])  # fmt: skip
def test_what_cannot_be_written_is_refused_before_anything_is_registered(wrong):
    context = Memory().connect()
    with pytest.raises(jms.MessageFormat):
        context.send("orders", "x", **wrong)
    assert context.connection.machine.calls == {}
    context.flush(0)


@pytest.mark.parametrize("wrong", [7, "\udce9", "a\nb", "x" * 201, None])
def test_a_client_id_that_cannot_be_is_refused_before_anybody_is_dialled(wrong):
    with pytest.raises(jms.IllegalState):
        jms.connect("stomp://host.invalid", client_id=wrong)
