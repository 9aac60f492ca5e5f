"""The index over what selectors require: it leaves out nobody, and asks few."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker import selectors
from mombroker.broker.properties import pack
from mombroker.broker.selectors import compile, required
from mombroker.broker.topic.subscribers import Subscribers
from tests.broker.bench import THREE, Broker
from tests.broker.test_selectors import VALUES, conditions, shown


class Listener:
    """A subscriber; each is another one, whatever its selector."""

    dropped = 0

    def __init__(self, selector):
        self.selector, self.requires = selector, required(selector)

    def copy(self, message, id): ...


def equal(name, value):
    return ("=", ("name", name), ("lit", value))


EQUAL = st.one_of(
    st.tuples(st.sampled_from("su"), st.sampled_from(["", "a", "ab", "it's"])),
    st.tuples(st.sampled_from("iu"), st.sampled_from([0, 1, 5, 5.0])),
    st.tuples(st.sampled_from("tfu"), st.booleans()),
).map(lambda pair: equal(*pair))
SELECTORS = st.one_of(
    EQUAL, conditions(1), st.recursive(EQUAL | conditions(1), lambda part: st.tuples(st.just("and"), part, part))
).map(shown)


@given(st.lists(SELECTORS, max_size=12), st.lists(VALUES, min_size=1, max_size=4), st.data())
@settings(max_examples=150)
def test_the_index_finds_whom_plain_evaluation_finds(texts, messages, data):
    listeners = [Listener(text) for text in texts]
    found, since = Subscribers(), {}
    for listener in listeners:
        found.add(listener, since.setdefault(listener, len(since)))
    for listener in data.draw(st.lists(st.sampled_from(listeners), unique=True)) if listeners else ():
        if data.draw(st.booleans()):
            found.remove(listener)
            del since[listener]
        else:  # it comes again, with another selector
            listener.selector = data.draw(SELECTORS)
            listener.requires = required(listener.selector)
            found.add(listener, since.pop(listener))
            since[listener] = found._since[listener]
        found.check()
    assert list(found) == list(since) and len(found) == len(since)
    for message in messages:
        asked = found.fit(message.get)
        wanted = [pair for pair in since.items() if compile(pair[0].selector)(message.get)]
        assert [pair for pair in asked if compile(pair[0].selector)(message.get)] == wanted


def test_those_that_require_another_value_are_not_asked():
    found = Subscribers()
    for number in range(100):
        found.add(Listener(f"kind = 'order' AND (size > 3 AND customer = 'c{number}')"), 0)
        found.add(Listener(f"weight = {number}"), 0)
    found.add(last := Listener("kind = 'order' OR weight = 7"), 0)
    asked = [each.selector for each, _ in found.fit({"kind": "order", "customer": "c7", "weight": 7.0}.get)]
    wanted = ["kind = 'order' AND (size > 3 AND customer = 'c7')", "weight = 7", last.selector]
    assert set(asked) > set(wanted[1:]) and wanted[0] in asked and len(asked) == 4  # the first is found by its kind


def test_texts_that_are_converted_require_nothing():
    assert required("convert_string_expressions:n = 5") == required("n = 5 OR m = 5") == required("NOT n = 5") == ()
    assert required("5 = n AND m = 'x'") == (("n", 5), ("m", "x")) and required("+n = 5") == required("") == ()


def test_a_message_asks_the_selectors_of_those_alone_that_it_may_be_for(monkeypatch):
    asked = []
    call = selectors.Selector.__call__
    monkeypatch.setattr(selectors.Selector, "__call__", lambda self, get: asked.append(self.text) or call(self, get))
    b = Broker(THREE)
    readers = [b.connect("b").subscribe("s", "topic:t", selector=f"k = 'v{number}'") for number in range(50)]
    kept = b.connect("b").subscribe("d", "topic:t", durable="d", shared=True, selector="k = 'v7'")
    b.connect("a").send("topic:t", "x", properties=pack({"k": "v7"}))
    assert [number for number, reader in enumerate(readers) if reader.texts] == [7] and kept.texts == ["x"]
    assert asked == ["k = 'v7'"] * 2
    kept.unsubscribe("d").subscribe("d", "topic:t", durable="d", shared=True, selector="k = 'v8'")
    b.connect("a").send("topic:t", "y", properties=pack({"k": "v7"})).send("topic:t", "z", properties=pack({"k": "v8"}))
    assert readers[7].texts == ["x", "y"] and kept.texts == ["x", "z"]
