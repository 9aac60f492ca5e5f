"""SUBSCRIBE and UNSUBSCRIBE: the options, and durable subscriptions in the words of every broker."""

import pytest

from mombroker.broker.commands import Disposition, Unsubscribe
from mombroker.stomp.frames import encode
from mombroker.stomp.headers import V10, V11, V12
from tests.stomp.peer import VERSIONS, Client, client


def test_S12_subscribe_needs_a_destination_and_from_1_1_an_id():
    for version in VERSIONS:
        client(version).fails("SUBSCRIBE", "needs a destination", id="1")
        client(version).fails("SUBSCRIBE", "malformed destination", id="1", destination="/queue/")
        client(version).fails("SUBSCRIBE", "a wildcard within a word", id="1", destination="/topic/pri*")
    for version in (V11, V12):
        client(version).fails("SUBSCRIBE", "needs an id", destination="a")


def test_S12_an_id_is_active_once(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="1")
    mine.send("SUBSCRIBE", destination="a", id="2")
    mine.send("UNSUBSCRIBE", id="1")
    mine.send("SUBSCRIBE", destination="b", id="1")
    mine.fails("SUBSCRIBE", "there is a subscription '1' already", destination="c", id="1")


def test_S12_subscriptions_are_limited():
    mine = client(subscriptions=2)
    for name in "ab":
        mine.send("SUBSCRIBE", destination="a", id=name)
    mine.fails("SUBSCRIBE", "no more are taken", destination="a", id="c")


def test_S13_in_1_0_a_subscription_needs_no_id():
    mine = client(V10)
    (command,) = mine.send("SUBSCRIBE", destination="/queue/a", ack="client")
    assert command.destinations == ("queue:a",)
    frame = mine.give(1, command.sub)
    assert "subscription" not in frame.headers
    assert mine.settles("ACK", frame) == [Disposition(1)]
    assert mine.send("UNSUBSCRIBE", destination="/queue/a") == [Unsubscribe(command.sub)]
    for name in ("x", "y"):
        mine.send("SUBSCRIBE", destination="/queue/a", id=name)
    assert mine.give(2, "x").headers["subscription"] == "x"
    mine.fails("UNSUBSCRIBE", "UNSUBSCRIBE needs the id", destination="/queue/b")


def test_S13_two_subscriptions_of_1_0_without_id_on_one_destination_are_a_fault():
    mine = client(V10)
    mine.send("SUBSCRIBE", destination="/queue/a")
    mine.fails("SUBSCRIBE", "already", destination="/queue/a")


@pytest.mark.parametrize(
    "ack, mode", [(None, "auto"), ("auto", "auto"), ("client", "client"), ("client-individual", "individual")]
)
def test_S14_there_are_three_ack_modes(any_version, ack, mode):
    headers = {"ack": ack} if ack else {}
    assert any_version.send("SUBSCRIBE", destination="a", id="1", **headers)[0].ack == mode


@pytest.mark.parametrize("ack", ["", "Client", "none", "individual"])
def test_S14_other_ack_modes_are_faults(any_version, ack):
    any_version.fails("SUBSCRIBE", "ack must be", destination="a", id="1", ack=ack)


@pytest.mark.parametrize("headers, fields", [
    ({"selector": "a = 1"}, {"selector": "a = 1"}), ({"no-local": "true"}, {"no_local": True}),
    ({"activemq.noLocal": "true"}, {"no_local": True}), ({"prefetch-count": "5"}, {"prefetch": 5}),
    ({"activemq.prefetchSize": "7"}, {"prefetch": 7}), ({"prefetch-count": "99999999"}, {"prefetch": 10_000}),
    ({"exclusive": "true"}, {"exclusive": True}), ({"activemq.exclusive": "true"}, {"exclusive": True}),
    ({"activemq.priority": "3"}, {"priority": 3}), ({"x-priority": "-3"}, {"priority": -3}),
    ({"browser": "true"}, {"browser": True}), ({"exclusive": "TRUE"}, {"exclusive": True}),
    ({"ack": " client "}, {"ack": "client"}),
    ({"no-local": " False"}, {"no_local": False}), ({"prefetch-count": " 5 "}, {"prefetch": 5}),
    ({"take-over": "false"}, {"take_over": False}), ({"take-over": "True"}, {"take_over": True}),
    ({}, {"take_over": True}), ({}, {"prefetch": 0, "durable": "", "shared": False, "no_local": False}),
])  # fmt: skip
def test_the_options_of_subscribe(headers, fields):
    (command,) = client().send("SUBSCRIBE", destination="/queue/a", id="1", **headers)
    assert {name: getattr(command, name) for name in fields} == fields


@pytest.mark.parametrize("headers", [
    {"selector": "a = "}, {"selector": "1"}, {"no-local": "1"}, {"prefetch-count": "-1"}, {"prefetch-count": "many"},
    {"exclusive": "yes"}, {"take-over": ""}, {"browser": "true", "ack": "client"}, {"x-priority": "high"},
    {"activemq.retroactive": "true"},
])  # fmt: skip
def test_an_option_of_subscribe_that_makes_no_sense_is_a_fault(headers):
    client().fails("SUBSCRIBE", "", destination="/queue/a", id="1", receipt="r", **headers)


def test_a_malformed_selector_is_a_fault_with_the_position():
    client().fails("SUBSCRIBE", "at character 7", destination="/queue/a", id="1", selector="a = 1 b")


def test_several_topics_are_one_subscription():
    (command,) = client().send("SUBSCRIBE", destination="/topic/a,/topic/b.>", id="1")
    assert command.destinations == ("topic:a", "topic:b.>")


def test_arguments_of_other_brokers_are_noted_once():
    mine = client()
    for name in "ab":
        mine.send("SUBSCRIBE", destination="a", id=name, x_expires="1", x_message_ttl="2", x_priority="1")
    assert len(mine.session.notes) == 2 and "x-expires" in mine.session.notes[0]


DIALECTS = [
    {"durable-subscription-name": "d"}, {"durable-subscriber-name": "d"}, {"activemq.subscriptionName": "d"},
    {"activemq.subcriptionName": "d"},
]  # fmt: skip


def with_client_id():
    return Client().connect(V12, client_id="c")


@pytest.mark.parametrize("header", DIALECTS)
def test_a_durable_subscription_has_a_name_and_a_client_id(header):
    mine = with_client_id()
    (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert (command.durable, command.shared, command.transient) == ("d", False, False)
    client().fails("SUBSCRIBE", "needs a client-id in CONNECT", destination="/topic/a", id="1", **header)
    (command,) = client().send("SUBSCRIBE", destination="/topic/a", id="1", shared="true", **header)
    assert (command.durable, command.shared) == ("d", True)


@pytest.mark.parametrize("header", DIALECTS)
def test_only_unsubscribe_with_the_header_ends_a_durable_subscription(header):
    mine = with_client_id()
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert mine.send("UNSUBSCRIBE", id="1") == [Unsubscribe("1")]
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert mine.send("UNSUBSCRIBE", id="1", **header) == [Unsubscribe("1", "d", True)]
    assert mine.send("UNSUBSCRIBE", id="1", receipt="r", **header) == [Unsubscribe("", "d", True, "r")]  # not active
    assert mine.send("UNSUBSCRIBE", **header) == [Unsubscribe("", "d", True)]


def test_a_durable_subscription_by_flags_is_named_by_id_and_destination_and_shared():
    for flags in (
        {"durable": "true"},
        {"durable": "true", "auto-delete": "false"},
        {"persistent": "true", "auto-delete": "false"},
        {"persistent": "True", "auto-delete": "False"},
        {"durable": "TRUE"},
    ):
        mine = client()
        (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **flags)
        assert (command.durable, command.shared, command.transient) == ("1@/topic/a", True, False)
        assert mine.send("UNSUBSCRIBE", id="1", **flags) == [Unsubscribe("1", "1@/topic/a", True)]
        ended = mine.send("UNSUBSCRIBE", id="1", destination="/topic/a", **flags)
        assert ended == [Unsubscribe("", "1@/topic/a", True)], "also when it is not active"
        mine.fails("UNSUBSCRIBE", "no subscription '1'", id="1", **flags)
    for flags in (
        {"durable": "false"}, {"durable": "true", "auto-delete": "true"}, {"durable": "true", "auto-delete": "True"},
        {"persistent": "true"},
    ):  # fmt: skip
        assert client().send("SUBSCRIBE", destination="/topic/a", id="1", **flags)[0].durable == ""


@pytest.mark.parametrize("made", [
    *DIALECTS, {"durable": "true"}, {"persistent": "true", "auto-delete": "false"},
])  # fmt: skip
@pytest.mark.parametrize("ended", [
    *DIALECTS, {"durable": "true"}, {"persistent": "true"}, {"persistent": "True", "auto-delete": "False"},
])  # fmt: skip
def test_whatever_header_made_a_subscription_durable_each_of_them_ends_it(made, ended):
    mine = with_client_id()
    (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **made)
    ended = {name: command.durable if value == "d" else value for name, value in ended.items()}
    assert mine.send("UNSUBSCRIBE", id="1", destination="/topic/a", **ended) == [
        Unsubscribe("1", command.durable, True)
    ]


def test_a_header_of_durable_subscriptions_ends_another_one_as_any_unsubscribe_does():
    for made in ({}, {"shared_subscription_name": "s"}):
        mine = client()
        mine.send("SUBSCRIBE", destination="/topic/a", id="1", **made)
        assert mine.send("UNSUBSCRIBE", id="1", durable="true") == [Unsubscribe("1")]


def test_a_durable_subscription_by_a_flag_needs_an_id_in_1_0_too():
    mine = client(V10)
    mine.fails("SUBSCRIBE", "durable:true needs an id", destination="/topic/a", durable="true", receipt="r")
    (command,) = client(V10).send("SUBSCRIBE", destination="/topic/a", durable="true", id="mine")
    assert command.durable == "mine@/topic/a"


@pytest.mark.parametrize("header", [*(next(iter(each)) for each in DIALECTS), "shared-subscription-name"])
def test_the_name_of_a_subscription_is_as_long_as_that_of_a_destination(header):
    for name, fits in (("n" * 200, True), ("n" * 201, False), ("n\n", False)):
        mine = Client().connect(client_id="c")
        headers = {"id": "1", "destination": "/topic/a", header: name}
        if fits:
            mine.raw(encode("SUBSCRIBE", headers.items(), b"", V12))
            assert mine.take()[0].durable == name
        else:
            mine.raw(encode("SUBSCRIBE", headers.items(), b"", V12))
            assert "at most 200" in mine.session.fault


def test_an_exclusive_client_id_must_be_one():
    login = Client().connect(accept=False, client_id="c", exclusive_client_id="True").session.login
    assert (login.client_id, login.exclusive) == ("c", True)
    Client().connect(accept=False, exclusive_client_id="true").ended("exclusive-client-id needs a client-id")


def test_a_client_id_is_no_longer_than_a_name():
    mine = Client().connect(accept=False, client_id="c" * 201)
    mine.ended("a client-id has at most 200")


def test_a_shared_subscription_may_end_with_its_last_consumer():
    (command,) = client().send("SUBSCRIBE", destination="/topic/a", id="1", shared_subscription_name="s")
    assert (command.durable, command.shared, command.transient) == ("s", True, True)
    client().fails("SUBSCRIBE", "shared-subscription-name", destination="/topic/a", id="1", shared="true")


def test_a_queue_needs_no_durable_subscription():
    for headers in ({"durable": "true"}, {"activemq.subscriptionName": "d"}):
        (command,) = client().send("SUBSCRIBE", destination="/queue/a", id="1", **headers)
        assert (command.durable, command.shared) == ("", False)
    client().fails("SUBSCRIBE", "only a queue can be browsed", destination="/topic/a", id="1", browser="true")


def test_S28_unsubscribe_of_what_is_not_there_is_a_fault(any_version):
    any_version.fails("UNSUBSCRIBE", "no subscription '1'", id="1")
    for version in VERSIONS:
        client(version).fails("UNSUBSCRIBE", "needs the id")
    mine = with_client_id()
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", durable_subscription_name="d")
    mine.fails("UNSUBSCRIBE", "not the durable 'other'", id="1", durable_subscription_name="other")
