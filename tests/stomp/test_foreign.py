"""What clients of other brokers ask for is done, refused or told to the operator: never passed over in silence."""

import contextlib
from pathlib import Path

import pytest

from mombroker.broker.commands import Delivery, Send
from mombroker.broker.message import ClientMessage
from mombroker.stomp import foreign
from mombroker.stomp.foreign import SEND, SUBSCRIBE
from mombroker.stomp.frames import FrameError, encode
from mombroker.stomp.requests import CONTROL, OPTIONS, PROPERTIES, ROWS, options
from tests.gateway.world import World
from tests.stomp.peer import MS, NOW, Client, client

DOCS = Path(__file__).parents[2] / "docs" / "stomp.md"
VALUES = {
    "AMQ_SCHEDULED_TIME": str(NOW // MS + 9),
    "exclusive": "true",
    "no-local": "true",
    "durable-subscription-name": "d",
}  # others take a number


def asked(frame, destination="/topic/a", **headers):
    """The command that a frame becomes."""
    mine = Client().connect(client_id="c")
    id = {"id": "1"} if frame == SUBSCRIBE else {}
    mine.raw(encode(frame, {"destination": destination, **id, **headers}.items()))
    assert not mine.session.fault, mine.session.fault
    (command,) = mine.take()
    return command, mine.session.notes


@pytest.mark.parametrize("frame, name, ours", [
    (frame, name, ours) for frame, same in foreign.SAME.items() for name, ours in same.items()
])  # fmt: skip
def test_a_header_that_means_the_same_does_the_same(frame, name, ours):
    value = VALUES.get(ours, "7")
    expected, _ = asked(frame, **{ours: value})
    assert asked(frame, **{name: value}) == (expected, []) and expected != asked(frame)[0]
    other = {"exclusive": "false", "no-local": "false", "durable-subscription-name": "e"}.get(ours, "9")
    assert asked(frame, **{name: other, ours: value})[0] == expected, "ours counts"


@pytest.mark.parametrize("frame, name", [
    (frame, name) for frame, same in foreign.SAME.items() for name, ours in same.items()
    if ours != "durable-subscription-name"  # any text is one
])  # fmt: skip
def test_a_fault_in_a_header_names_it_as_the_client_does(frame, name):
    client().fails(frame, f"{name} must be ", destination="/topic/a", id="1", receipt="r", **{name: "x"})


@pytest.mark.parametrize("frame", [SEND, SUBSCRIBE])
def test_a_header_that_cannot_be_obeyed_is_a_fault_with_the_way_out(frame):
    for name, way in foreign.REFUSED[frame].items():
        client().fails(frame, f"{name} is not supported: {way}", destination="a", id="1", receipt="r", **{name: "5"})


@pytest.mark.parametrize("frame", [SEND, SUBSCRIBE])
def test_a_header_that_is_ignored_is_told_with_the_way_out(frame):
    for name, way in foreign.IGNORED[frame].items():
        assert asked(frame, **{name: "5"})[1] == [f"{name} of {frame} is ignored: {way}"]
    unknown = asked(frame, **{"x-unheard-of": "5", "activemq.unheardOf": "6"})[1]
    assert len(unknown) == (2 if frame == SUBSCRIBE else 0), "what else a SEND has is the user's"


def test_the_operator_sees_each_ignored_header_once_and_not_without_end():
    world = World()
    for at in range(300):
        mine = world.connect()
        headers = [("destination", "a"), ("id", "1"), ("x-expires", "5"), (f"x-made-up-{at}", "5")]
        mine.receive(encode(SUBSCRIBE, headers))
        mine.lose()
    assert sum("x-expires of SUBSCRIBE is ignored: " in line for line in world.lines) == 1
    assert len(world.lines) <= 110


def test_each_of_them_is_in_the_docs_with_what_becomes_of_it():
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("|")]
    unsaid = {name for name in OPTIONS if not any(f"`{name}" in row for row in rows)}
    assert unsaid == {"amq-msg-type"}, "that is between mombroker.jms and itself"
    for frame, names in foreign.NAMES.items():
        for name in names:
            ways = {**foreign.SAME[frame], **foreign.REFUSED[frame], **foreign.IGNORED[frame]}
            way = ways.get(name, "").removeprefix("use a policy of the destination: ")
            assert any(f"`{name}`" in row and way.replace("`", "") in row.replace("`", "") for row in rows), (name, way)


def test_whatever_a_header_of_send_is_called_it_is_looked_at_and_does_not_travel():
    assert foreign.NAMES[SEND] <= OPTIONS
    for name in [*foreign.SAME[SEND], "_AMQ_DUPL_ID"]:
        assert asked(SEND, **{name: "7"})[0].properties == b""


class Headers(dict):
    """They remember which were asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name):
        return self.get(name)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


def test_the_options_of_a_send_are_what_is_read_of_it():
    """One list has them: what is read and not in it would do nothing in a frame by itself, and travel as a property."""
    read = {row.name for row in ROWS if row.field}
    for name in OPTIONS - foreign.REFUSED[SEND].keys():
        headers = Headers({name: "1"})
        with contextlib.suppress(FrameError):
            options(Send("queue:a", b"", shown="a"), headers, lambda: NOW)
        read |= headers.asked
    same, ignored, refused = (each[SEND].keys() for each in (foreign.SAME, foreign.IGNORED, foreign.REFUSED))
    assert read | same == OPTIONS - ignored - refused
    assert CONTROL & OPTIONS == OPTIONS - PROPERTIES - ignored


def fits(name, text):
    try:
        options(Send("topic:a", b"", shown="a"), {name: text}, lambda: NOW)
    except FrameError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(OPTIONS - foreign.REFUSED[SEND].keys()))
def test_equal_frames_mean_at_each_time_what_the_first_of_them_would_mean_then(name):
    """A remembered frame must not bring back what was meant at the time of the first one."""
    value = next(text for text in (str(NOW // MS + 99), "true", "p:5", "MULTICAST") if fits(name, text))
    mine, found, fresh = client(), [], []
    for at in range(3):
        later = client()
        for each, commands in ((mine, found), (later, fresh)):
            each.session.now = lambda: NOW + at * MS  # noqa: B023
            commands += each.send(SEND, destination="a", receipt=str(at), **{name: value})
    assert found == fresh


@pytest.mark.parametrize("text, prefetch", [("0", 1), ("-1", 10_000), ("1", 1), ("102400", 100), ("9" * 15, 10_000)])
def test_a_window_in_bytes_becomes_one_in_messages(text, prefetch):
    assert asked(SUBSCRIBE, **{"consumer-window-size": text})[0].prefetch == prefetch
    assert asked(SUBSCRIBE, **{"consumer-window-size": text, "prefetch-count": "3"})[0].prefetch == 3


@pytest.mark.parametrize("frame, name", [(SEND, "destination-type"), (SUBSCRIBE, "subscription-type")])
def test_the_kind_of_a_destination_without_a_prefix_may_be_told_by_a_header(frame, name):
    def where(destination, kind):
        command, _ = asked(frame, destination, **{name: kind})
        return command.destination if frame == SEND else command.destinations[0]

    assert [where("a", kind) for kind in ("ANYCAST", "MULTICAST", "multicast")] == ["queue:a", "topic:a", "topic:a"]
    assert (where("/queue/a", "ANYCAST"), where("/topic/a", "MULTICAST")) == ("queue:a", "topic:a")
    for destination, kind, words in (
        ("/queue/a", "MULTICAST", "is a queue, and a header asks for a topic"),
        ("jms.topic.a", "ANYCAST", "is a topic, and a header asks for a queue"),
        ("a", "BOTH", f"{name} must be ANYCAST or MULTICAST"),
    ):
        client().fails(frame, words, destination=destination, id="1", receipt="r", **{name: kind})
    assert where("/temp-queue/a", "ANYCAST").startswith("temp-queue:")
    client().fails(frame, "is no topic", destination="/temp-queue/a", id="1", receipt="r", **{name: "MULTICAST"})
    if frame == SUBSCRIBE:
        assert where("a.*", "MULTICAST") == "topic:a.*"


def test_a_duplicate_id_of_artemis_is_a_producer_of_one_message():
    assert asked(SEND, _AMQ_DUPL_ID="any: text 07")[0].dedup == ("any: text 07", 0)
    assert asked(SEND, **{"_AMQ_DUPL_ID": "a", "dedup-id": "p:5"})[0].dedup == ("p", 5)
    client().fails(SEND, "_AMQ_DUPL_ID is empty", destination="a", _AMQ_DUPL_ID="", receipt="r")


@pytest.mark.parametrize("shown", ["/queue/a?consumer.prefetchSize=1", "a?consumer.exclusive=true&consumer.priority=5"])
@pytest.mark.parametrize("frame", [SEND, SUBSCRIBE])
def test_options_in_a_destination_are_a_fault_with_the_way_out(frame, shown):
    client().fails(frame, "write them as headers, as activemq.prefetchSize:1", destination=shown, id="1", receipt="r")
    assert asked(frame, "/queue/what?")[0]


def test_the_answer_has_the_destination_as_it_was_sent():
    mine = client()
    (command,) = mine.send(SEND, destination="a", destination_type="MULTICAST")
    assert (command.destination, command.shown) == ("topic:a", "a")
    (frame,) = mine.say(Delivery("1", 1, "s1#1", ClientMessage(command.destination, command.shown)))
    assert frame.headers["destination"] == "a"
