"""The rules of links: what a client sends, what it receives, and what it asks a source or a target for."""

from dataclasses import replace

import pytest

from mombroker.amqp import codec, messages, performatives
from mombroker.amqp.codec import NULL
from mombroker.amqp.inbound import MAX_RUN
from mombroker.amqp.links import CREDIT
from mombroker.amqp.performatives import (
    ATTACH,
    DETACH,
    DISPOSITION,
    FLOW,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Outcome,
)
from mombroker.broker import properties
from mombroker.broker.commands import (
    SUBSCRIPTION,
    Disposition,
    Drained,
    Flow,
    MakeTemporary,
    Receipt,
    Receipts,
    Refused,
    Send,
    SendRun,
    Subscribe,
    Unsubscribe,
)
from tests.amqp.peer import (
    ACCEPTED,
    Peer,
    attach,
    begin,
    delivery,
    flow,
    last,
    message,
    receiving,
    sending,
    settle,
    terminus,
    transfer,
)

# -- what a client sends -------------------------------------------------------------------------------------------


def test_no_outcome_before_the_broker_has_said_that_it_is_durable():
    peer = sending()
    peer.say(
        transfer(0, 0, message(b"one")),
        transfer(0, 1, message(b"two")),
        transfer(0, 2, message(b"three"), settled=True),
    )
    run, single = peer.commands()
    assert isinstance(run, SendRun) and (run.bodies, run.receipts) == ([b"one", b"two"], ["0", "1"])
    assert isinstance(single, Send) and (single.body, single.receipt) == (b"three", None)
    assert (run.destination, run.model.persistent, run.model.shown) == ("queue:orders", True, "/queue/orders")
    assert peer.heard == type(peer.heard)()
    peer.told(Receipts(["0", "1"]))
    (found,) = peer.take()
    assert (
        found[0] == DISPOSITION
        and found[1][:4] == [True, 0, 1, True]
        and found[1][4].descriptor == performatives.ACCEPTED
    )


def test_what_is_refused_is_rejected_with_the_reason():
    peer = sending()
    peer.say(transfer(0, 0, message(b"one")), transfer(0, 1, message(b"two", color="red")))
    assert [type(each) for each in peer.commands()] == [Send, Send]
    peer.told(Receipt("0"), Refused("queue:orders is full", "1", scope="command"))
    (_, one, _), (_, two, _) = peer.take()
    assert one[1] == 0 and two[1] == 1 and two[4].descriptor == performatives.REJECTED
    assert "full" in two[4].value[0].value[1]


def test_messages_that_begin_alike_are_a_run_of_bounded_length():
    peer = sending()
    peer.say(*[transfer(0, id, message(b"%d" % id, color="red")) for id in range(MAX_RUN + 3)])
    first, rest = peer.commands()
    assert [len(each.bodies) for each in (first, rest)] == [MAX_RUN, 3]
    assert properties.read(first.model.properties) == {"color": "red"}
    assert [each.body for each in rest.singles()] == [b"%d" % id for id in range(MAX_RUN, MAX_RUN + 3)]


def test_a_delivery_in_several_frames_is_one_message_and_an_aborted_one_is_none():
    peer = sending()
    data = message(b"x" * 1_000)
    peer.say(transfer(0, 0, data[:10], more=True), transfer(0, 0, data[10:700], more=True))
    assert peer.commands() == [] and peer.connection.unfinished == 700
    peer.say(transfer(0, 0, data[700:]))
    (send,) = peer.commands()
    assert send.body == b"x" * 1_000 and peer.connection.unfinished == 0
    peer.say(transfer(0, 1, data[:10], more=True), transfer(0, 1, aborted=True))
    assert peer.commands() == [] and peer.connection.unfinished == 0


def test_nothing_is_kept_of_what_is_not_whole_when_its_link_or_connection_is_no_more():
    peer, piece = sending(), b"x" * 60_000
    links = peer.connection.sessions[0].inbound.links
    for end in (lambda: peer.say(performatives.detach(0, True)), peer.connection.forget):
        link, upto = links[0], peer.connection.sessions[0].inbound.last
        first = 0 if upto is None else upto + 1
        peer.say(transfer(0, first, message(b"y")), transfer(0, first + 1, piece, more=True))
        assert peer.connection.unfinished == len(piece) and link.unanswered == 1
        end()
        assert peer.connection.unfinished == 0 and link.partial == [] and not links
        peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders")))


def test_a_message_that_is_too_large_is_refused_while_it_still_arrives():
    peer = sending(max_message=1_000)
    piece = b"x" * 60_000
    at = 0
    while not peer.heard:
        peer.say(transfer(0, 0, message(piece)[:20] + piece if not at else piece, more=True))
        at += 1
        assert at < 10
    (found,) = peer.take()
    assert found[1][1] == 0 and found[1][4].descriptor == performatives.REJECTED and peer.connection.unfinished == 0
    peer.say(transfer(0, 0, piece, more=True), transfer(0, 0, piece), transfer(0, 1, message(b"small")))
    assert [each.body for each in peer.commands()] == [b"small"]


def test_credit_comes_with_the_answers():
    peer = sending()
    link = peer.connection.sessions[0].inbound.links[0]
    peer.say(*[transfer(0, id, message(b"x")) for id in range(CREDIT)])
    assert link.credit == 0 and FLOW not in peer.codes()
    peer.told(*[Receipt(str(id)) for id in range(CREDIT // 2)])
    assert peer.codes() == [DISPOSITION, FLOW] and link.credit == CREDIT // 2
    peer.take()
    upto = CREDIT + CREDIT // 2
    peer.say(*[transfer(0, id, message(b"x")) for id in range(CREDIT, upto + 1)])
    assert last(peer) == (DETACH, ["amqp:link:transfer-limit-exceeded", "link 'l0' has no credit"])
    peer.say(transfer(0, upto + 1, message(b"x")))  # it was under way
    peer.say(performatives.detach(0, True))
    assert peer.take() == [] and not peer.connection.sessions[0].detached
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders")))
    peer.commands()
    peer.say(transfer(0, upto + 2, message(b"y")))
    assert [each.body for each in peer.commands()] == [b"y"]


def test_a_message_that_is_none_is_rejected_and_the_link_goes_on():
    peer = sending()
    for id, data in enumerate((b"", b"junk", message(b"x")[:-1], b"\x00\x53\x78\xc1\x01\x00")):
        peer.say(transfer(0, id, data))
        ((_, fields, _),) = peer.take()
        assert fields[1] == id and fields[4].descriptor == performatives.REJECTED
    peer.say(transfer(0, 9, message(b"good")))
    assert [each.body for each in peer.commands()] == [b"good"]


def test_the_anonymous_relay_sends_to_where_each_message_says():
    peer = sending(None)
    head = codec.performative(messages.PROPERTIES, [codec.NULL, codec.NULL, codec.string("news")])
    topic = codec.described(messages.ANNOTATIONS, codec.mapped([(codec.symbol(messages.DEST), b"\x51\x01")]))
    peer.say(transfer(0, 0, topic + head + message(b"x")[7:]), transfer(0, 1, message(b"lost")))
    assert [each.destination for each in peer.commands()] == ["topic:news"]
    assert peer.heard[-1][1][4].value[0].value[0] == "amqp:not-found"


def test_a_link_that_cannot_be_is_refused_and_not_the_session():
    peer = Peer().began()
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "a,b")))
    assert peer.codes() == [ATTACH, DETACH] and peer.heard[0][1][6] is None
    peer.take()
    peer.say(performatives.detach(0, True))
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "a", capabilities=["topic"])))
    peer.say(transfer(0, 0, message(b"x")))
    assert [each.destination for each in peer.commands()] == ["topic:a"]


# -- what a client receives ----------------------------------------------------------------------------------------


def test_a_link_is_there_when_the_broker_says_so_and_credit_is_the_clients():
    peer = Peer().began()
    peer.say(attach(0, RECEIVER, terminus(SOURCE, "orders"), terminus(TARGET, None)), flow(0, 5))
    subscribe, granted = peer.commands()
    assert (subscribe.destinations, subscribe.ack, subscribe.credit) == (("queue:orders",), "individual", 0)
    assert granted == Flow(subscribe.sub, 5) and peer.take() == []
    peer.sub = subscribe.sub
    peer.told(delivery(peer, 1), Receipt(subscribe.receipt))
    assert peer.codes() == [ATTACH, TRANSFER]


def test_a_subscription_that_is_refused_is_a_link_that_is():
    peer = Peer().began()
    peer.say(attach(0, RECEIVER, terminus(SOURCE, "orders"), terminus(TARGET, None)))
    (subscribe,) = peer.commands()
    peer.told(Refused("user 'ann' may not", subscribe.receipt, subscribe.sub, SUBSCRIPTION))
    assert peer.codes() == [ATTACH, DETACH] and peer.heard[0][1][5] is None
    assert "may not" in peer.heard[1][1][2].value[1]


def test_each_outcome_is_that_of_the_broker():
    peer = receiving()
    peer.told(*[delivery(peer, tag) for tag in range(1, 7)])
    assert [(fields[0], fields[1]) for _, fields, _ in peer.take()] == [(0, id) for id in range(6)]
    peer.say(
        settle(0, 1, ACCEPTED), settle(2, None, Outcome(performatives.RELEASED)),
        settle(3, None, Outcome(performatives.MODIFIED, True)), settle(4, None, Outcome(performatives.REJECTED)),
        settle(5, None, Outcome(performatives.MODIFIED, False, True)),
    )  # fmt: skip
    row, *rest = peer.commands()
    found = [*row.singles(), *rest]
    assert [(each.tag, each.outcome) for each in found] == [
        (1, "accepted"), (2, "accepted"), (3, "released"), (4, "modified"), (5, "rejected"), (6, "modified"),
    ]  # fmt: skip
    assert [(each.failed, each.undeliverable_here) for each in (found[3], found[5])] == [(True, False), (False, True)]
    peer.say(settle(0, 100, ACCEPTED))
    assert peer.commands() == [] and peer.take() == []


def test_an_outcome_that_its_receiver_has_not_settled_is_settled_once_it_is_durable():
    peer = receiving()
    peer.told(delivery(peer, 7))
    peer.take()
    peer.say(settle(0, None, ACCEPTED, settled=False))
    (command,) = [each for each in peer.commands() if isinstance(each, Disposition)]
    assert command.tag == 7 and peer.take() == []
    peer.told(Receipt(command.receipt))
    ((code, fields, _),) = peer.take()
    assert code == DISPOSITION and fields[:4] == [False, 0, None, True]


def test_what_is_settled_by_being_written_is_told_by_numbers_of_the_connection():
    peer = receiving(settles=1)
    peer.told(delivery(peer, 4, ack="auto"), delivery(peer, 5, ack="auto"))
    assert [fields[4] for _, fields, _ in peer.take()] == [True, True] and peer.connection.written == 2
    assert peer.connection.took(1) == [(1, 4)] and peer.connection.took(2) == [(1, 5)] and peer.connection.took(2) == []


def test_credit_beyond_what_the_broker_gives_at_a_time_comes_later():
    peer = receiving(settles=1, credit=0)
    peer.say(flow(0, 12_000, window=100_000))
    assert peer.commands() == [Flow(peer.sub, 5_000)]
    peer.told(*[delivery(peer, tag, ack="auto") for tag in range(1, 5_001)])
    assert peer.commands() == [Flow(peer.sub, 5_000)] and peer.connection.wants is False
    peer = receiving(credit=0)
    peer.say(flow(0, 12_000, window=100_000))
    assert peer.commands() == [Flow(peer.sub, 10_000)]
    peer.told(*[delivery(peer, tag) for tag in range(1, 101)])
    peer.say(settle(0, 99, ACCEPTED))
    accepted, credit = peer.commands()
    assert len(accepted.tags) == 100 and credit == Flow(peer.sub, 100)


def test_links_of_a_connection_have_a_bound(monkeypatch):
    monkeypatch.setattr("mombroker.amqp.session.MAX_LINKS", 2)
    peer = sending()
    peer.say(begin(), channel=1)
    peer.take()
    for handle in (0, 1):
        peer.say(attach(handle, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders")), channel=1)
    assert peer.codes() == [ATTACH, FLOW, ATTACH, DETACH]


def test_a_drain_ends_the_credit_behind_what_there_is():
    peer = receiving(credit=0)
    peer.say(flow(0, 3, drain=True))
    assert peer.commands() == [Flow(peer.sub, 3, True)]
    peer.told(delivery(peer, 1), Drained(peer.sub))
    (_, _, _), (code, fields, _) = peer.take()
    assert code == FLOW and fields[4:9] == [0, 3, 0, None, True]
    peer.say(flow(0, 2, count=3))
    assert peer.commands() == [Flow(peer.sub, 2)]


def test_a_client_that_lowers_its_credit_gets_no_more_than_that():
    peer = receiving(credit=3)
    peer.say(flow(0, 1))
    peer.told(*[delivery(peer, tag) for tag in (1, 2, 3)])
    assert peer.codes() == [TRANSFER]
    peer.say(flow(0, 1, count=1))
    assert peer.codes() == [TRANSFER] * 2
    peer.say(performatives.detach(0, True))
    *released, unsubscribe = peer.commands()
    assert [(each.tag, each.outcome) for each in released] == [(1, "released"), (2, "released"), (3, "released")]
    assert isinstance(unsubscribe, Unsubscribe)
    peer.take()
    peer.told(Receipt(unsubscribe.receipt))
    assert peer.codes() == [DETACH]


def test_frames_wait_for_the_window_of_the_session():
    peer = receiving()
    peer.say(flow(window=2))
    peer.told(*[delivery(peer, tag) for tag in (1, 2, 3)])
    assert peer.codes() == [TRANSFER] * 2
    peer.say(flow(window=2, seen=1))
    assert peer.codes() == [TRANSFER] * 3
    peer.say(flow(window=5, seen=3))
    assert peer.codes() == [TRANSFER] * 3


def test_a_large_message_comes_in_frames_of_the_clients_size():
    peer = Peer().login(max_frame=600)
    peer.say(begin(), attach(0, RECEIVER, terminus(SOURCE, "orders"), terminus(TARGET, None)), flow(0, 5))
    peer.take()
    subscribe, _ = peer.commands()
    peer.sub = subscribe.sub
    peer.told(Receipt(subscribe.receipt))
    peer.take()
    peer.told(delivery(peer, 1, b"0123456789" * 200, kind="bytes"))
    frames = peer.take()
    assert len(frames) > 3 and [fields[5] for _, fields, _ in frames] == [True] * (len(frames) - 1) + [False]
    assert messages.split(b"".join(payload for *_, payload in frames)).body == b"0123456789" * 200


def test_what_comes_for_a_link_that_is_gone_goes_back():
    peer = receiving()
    peer.say(performatives.detach(0, True))
    peer.commands()
    peer.told(delivery(peer, 1))
    assert peer.commands() == [Disposition(1, "released")]


# -- subscriptions and temporary destinations ----------------------------------------------------------------------


def subscribed(**source):
    """The command of a link `link|2` to receive by, from topic `news` or what `source` says."""
    peer = Peer().began()
    name, address = source.pop("name", "link|2"), source.pop("address", "news")
    source.setdefault("capabilities", ["topic"])
    peer.say(attach(0, RECEIVER, terminus(SOURCE, address, **source), terminus(TARGET, None), name=name))
    asked = peer.commands()
    return asked[-1] if asked else peer.take()[-1][1][2].value[1]


@pytest.mark.parametrize(
    "source, said",
    [
        ({"durable": 2, "expiry": "never"}, {"durable": "link"}), ({"durable": 1}, {"durable": "link"}),
        ({"capabilities": ["topic", "shared"]}, {"durable": "link", "shared": True, "transient": True}),
        ({"capabilities": ["topic", "shared"], "durable": 2}, {"durable": "link", "shared": True}),
        ({"capabilities": ["topic", "shared", "global"]},
         {"durable": "link", "shared": True, "transient": True, "common": True}),
        ({"address": "news.*"}, {"destinations": ("topic:news.*",)}),
        ({"capabilities": ["queue"], "durable": 2}, {"destinations": ("queue:news",)}),
        ({"capabilities": ["queue"], "mode": "copy"},
         {"destinations": ("queue:news",), "browser": True, "ack": "auto", "sub": "0.1b"}),
        ({"address": "/queue/news"}, {"destinations": ("queue:news",)}),
    ],
)  # fmt: skip
def test_what_a_source_asks_for_is_a_subscription(source, said):
    usual = Subscribe("0.1", ("topic:news",), "individual", credit=0, take_over=False, receipt="a2")
    assert subscribed(**source) == replace(usual, **said)


def test_filters_are_a_selector_and_no_local_and_no_others_are_told_back():
    peer = Peer().began()
    filters = {"apache.org:selector-filter:string": "a = 1", "apache.org:no-local-filter:list": [], "other": "x"}
    peer.say(attach(0, RECEIVER, terminus(SOURCE, "orders", filters=filters), terminus(TARGET, None)))
    (command,) = peer.commands()
    assert (command.selector, command.no_local) == ("a = 1", True)
    peer.told(Receipt(command.receipt))
    assert list(peer.heard[0][1][5].value[7]) == list(filters)[:2]


@pytest.mark.parametrize("closed, ends", [(True, True), (False, False)])
def test_a_durable_subscription_ends_with_a_link_that_is_closed_and_stays_with_one_that_is_detached(closed, ends):
    peer = receiving("news", 0, durable=2, capabilities=["topic"])
    peer.say(performatives.detach(0, closed))
    (command,) = peer.commands()
    assert (command.sub, command.durable, command.delete) == (peer.sub, "l0" if ends else "", ends)


def test_a_link_without_a_source_looks_at_its_durable_subscription_and_may_end_it():
    peer = Peer().began()
    peer.say(
        attach(0, RECEIVER, NULL, terminus(TARGET, None), name="sub"), attach(1, RECEIVER, NULL, NULL, name="none")
    )
    find, other = peer.commands()
    assert (find.durable, other.durable) == ("sub", "none")
    peer.told(Receipt(find.receipt), Refused("there is none", other.receipt, scope="command", cause="missing"))
    assert peer.codes() == [ATTACH, ATTACH, DETACH] and peer.heard[0][1][5] is not None
    assert peer.take()[-1][1][2].value[0] == "amqp:not-found"
    peer.say(performatives.detach(0, True))
    (command,) = peer.commands()
    assert (command.sub, command.durable, command.delete) == ("", "sub", True)


@pytest.mark.parametrize("capability, kind", [("temporary-queue", "temp-queue"), ("temporary-topic", "temp-topic")])
def test_a_dynamic_target_is_a_temporary_destination_of_the_connection_until_its_link_ends(capability, kind):
    peer = Peer().began()
    target = terminus(TARGET, None, dynamic=True, capabilities=[capability])
    peer.say(attach(0, SENDER, terminus(SOURCE, None), target))
    made = peer.commands()
    if kind == "temp-queue":
        assert [type(each) for each in made] == [MakeTemporary] and peer.take() == []
        peer.told(Receipt(made[0].receipt))
    address = peer.take()[0][1][6].value[0]
    assert address.startswith(f"/remote-{kind}/s1/1/")
    peer.say(attach(1, RECEIVER, terminus(SOURCE, address), terminus(TARGET, None)))
    (command,) = peer.commands()
    assert command.destinations[0].startswith(f"{kind}:s1/1/")
    peer.say(performatives.detach(1, True), performatives.detach(0, True))
    *_, last = peer.commands()
    if kind == "temp-queue":
        assert last.temporary == made[0].temporary
    peer.take()
    peer.say(attach(1, RECEIVER, terminus(SOURCE, address), terminus(TARGET, None)))
    assert peer.codes() == [ATTACH, DETACH] and "is no more" in peer.heard[1][1][2].value[1]
