"""The rules of connections, sessions and links, without sockets."""

from dataclasses import replace

import pytest

from mombroker.amqp import codec, messages, performatives
from mombroker.amqp.codec import NULL
from mombroker.amqp.connection import MAX_MARKS
from mombroker.amqp.frames import EARLY, PLAIN, SASL, frame
from mombroker.amqp.inbound import MAX_RUN
from mombroker.amqp.links import CREDIT
from mombroker.amqp.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    MECHANISMS,
    OPEN,
    OUTCOME,
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
    Delivery,
    Disconnect,
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
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.message import ClientMessage
from tests.amqp.peer import (
    Peer,
    attach,
    begin,
    flow,
    init,
    message,
    open_,
    settle,
    terminus,
    transfer,
)

ACCEPTED = Outcome(performatives.ACCEPTED)


def sending(address="orders", **more):
    """A peer with a link to send by: handle 0."""
    peer = Peer(**more).began()
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, address)))
    assert peer.codes() == [ATTACH, FLOW]
    peer.take()
    return peer


def receiving(address="orders", credit=10, settles=0, **more):
    """A peer with a link to receive by: handle 0."""
    peer = Peer().began()
    peer.say(attach(0, RECEIVER, terminus(SOURCE, address, **more), terminus(TARGET, None), settles=settles))
    (subscribe,) = peer.commands()
    peer.told(Receipt(subscribe.receipt))
    assert peer.codes() == [ATTACH]
    peer.take()
    if credit:
        peer.say(flow(0, credit))
        assert peer.commands() == [Flow(subscribe.sub, credit)]
    peer.sub = subscribe.sub
    return peer


def delivery(peer, tag, body=b"x", ack="individual", **more):
    return Delivery(
        peer.sub, tag, f"a#{tag}", ClientMessage("queue:orders", "/queue/orders", body=body, **more), ack=ack
    )


def last(peer):
    """What an error that was heard last says."""
    code, fields, _ = peer.take()[-1]
    return code, [str(each) for each in fields[-1].value[:2]]


# -- login ---------------------------------------------------------------------------------------------------------


def test_a_login_is_asked_for_by_plain_and_answered_before_anything_is_obeyed():
    peer = Peer(anonymous=True)
    peer.raw(SASL + init() + PLAIN + frame(open_()) + frame(begin()))
    assert peer.codes() == ["header", MECHANISMS] and peer.heard[1][1] == [["PLAIN", "ANONYMOUS"]]
    login = peer.connection.login
    assert (login.user, login.passcode, peer.connection.state) == ("ann", "a", "login")
    assert "'a'" not in repr(login).replace("'ann'", "")
    peer.take()
    peer.connection.accept()
    assert peer.look().codes() == [OUTCOME, "header"] and peer.heard[0][1] == [0]
    claim = peer.connection.claim
    assert (claim.client_id, claim.exclusive) == ("box", False)
    peer.connection.claimed("")
    assert peer.look().codes()[2:] == [OPEN, BEGIN]


def test_who_is_refused_hears_that_of_sasl_and_nothing_more():
    peer = Peer()
    peer.raw(SASL + init())
    peer.take()
    peer.connection.end("access refused for user 'ann'")
    assert [each[1] for each in peer.look().take()] == [[1]] and peer.connection.closed


@pytest.mark.parametrize(
    "said, fault",
    [
        (init("SCRAM-SHA-256", b""), "no SASL mechanism"), (init("ANONYMOUS", b""), "no SASL mechanism"),
        (init("PLAIN", b"ann"), "NUL, user, NUL"), (init("PLAIN", b"\0\xff\0"), "NUL, user, NUL"),
        (frame(open_()), "none of SASL"),
    ],
)  # fmt: skip
def test_a_login_that_is_none_is_refused(said, fault):
    peer = Peer()
    peer.raw(SASL + said)
    assert peer.connection.closed and fault in peer.connection.fault
    assert peer.heard[-1][:2] == (OUTCOME, [1])


def test_without_sasl_a_client_is_nobody():
    peer = Peer()
    peer.raw(PLAIN)
    assert (peer.connection.login.user, peer.take()) == ("", ["header"])
    peer.connection.end("access refused for user ''")
    assert peer.look().codes() == [OPEN, CLOSE]


def test_another_protocol_is_told_what_is_spoken_here():
    for said in (b"GET / HTTP/1.1\r\n", b"AMQP\x00\x00\x09\x01", b"CONNECT\n"):
        peer = Peer()
        peer.raw(said)
        assert peer.connection.closed and "AMQP" in peer.connection.fault
        assert peer.take() == ["header"]


def test_before_the_open_frames_are_small():
    peer = Peer()
    peer.raw(SASL + (EARLY + 1).to_bytes(4, "big") + b"\x02\x01\x00\x00")
    assert peer.connection.closed and f"of at most {EARLY}" in peer.connection.fault
    assert peer.connection.unfinished <= 16


def test_a_container_id_that_is_taken_is_told_as_an_invalid_field():
    peer = Peer()
    peer.raw(SASL + init())
    peer.connection.accept()
    peer.raw(PLAIN + frame(open_(desired=["sole-connection-for-container"])))
    assert peer.connection.claim.exclusive
    peer.connection.claimed("client-id 'box' is in use")
    *_, (_, opened, _), (code, (error,), _) = peer.look().take()
    assert opened[9]["amqp:connection-establishment-failed"] is True
    assert code == CLOSE and error.value == [
        "amqp:invalid-field",
        "client-id 'box' is in use",
        {"invalid-field": "container-id"},
    ]


def test_a_client_says_after_what_silence_it_gives_us_up():
    peer = Peer().login(idle=10_000)
    assert peer.connection.send_every == 5_000
    peer.raw(b"\x00\x00\x00\x08\x02\x00\x00\x00")
    assert not peer.connection.closed and peer.take() == []


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


# -- sessions and the end ------------------------------------------------------------------------------------------


def test_each_session_is_a_part_of_its_own():
    peer = Peer().began()
    peer.say(begin(), channel=7)
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "orders")), channel=7)
    peer.say(transfer(0, 0, message(b"x")), channel=7)
    assert [(part, [each.body for each in asked]) for part, asked in peer.connection.asked] == [(2, [b"x"])]
    peer.say(performatives.end(), channel=7)
    (command,) = peer.commands(2)
    assert isinstance(command, Disconnect)
    peer.take()
    assert peer.connection.reply_to(2, [Receipt(command.receipt)]) is False
    assert peer.look().codes() == [END]


def test_a_session_that_begins_behind_the_end_of_another_has_a_channel_of_its_own():
    """A client may use a channel again as soon as it has said its end."""
    peer = sending()
    peer.say(performatives.end(), begin())
    (leave,) = peer.commands()
    ((code, fields, _),) = peer.take()
    assert (code, fields[0]) == (BEGIN, 0)
    peer.raw(frame(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "b"))))
    mine = peer.connection.sessions[0]
    assert (mine.channel, mine.theirs) == (1, 0) and peer.codes() == [ATTACH, FLOW]
    peer.raw(b"".join(frame(transfer(0, id, message(b"x"))) for id in range(3)))
    (run,) = peer.commands(2)
    peer.take()
    peer.connection.reply_to(2, [Receipts(run.receipts)])
    assert peer.connection.reply_to(1, [Receipt(leave.receipt)]) is False
    said, ends = peer.connection.output
    assert (said[7], ends[7]) == (1, 0) and peer.look().codes() == [DISPOSITION, END]
    peer.say(begin(), channel=2)
    peer.say(begin(), channel=1)
    assert [each.channel for each in peer.connection.sessions.values()] == [1, 2, 0]


def test_a_close_is_answered_when_all_before_it_is_done():
    peer = sending()
    peer.say(transfer(0, 0, message(b"x")), performatives.close())
    send, command = peer.commands()
    assert isinstance(send, Send) and isinstance(command, Disconnect)
    assert peer.connection.state == "leaving" and peer.take() == []
    peer.told(Receipt("0"), Receipt(command.receipt))
    assert peer.codes() == [DISPOSITION, CLOSE] and peer.connection.closed


@pytest.mark.parametrize(
    "said, fault",
    [
        (begin(), "has a session already"), (open_(), "open has no place here"),
        (b"\x00\x53\x99\x45", "unknown kind"), (b"junk", "no type of AMQP"),
    ],
)  # fmt: skip
def test_who_breaks_the_rules_is_told_and_closed(said, fault):
    peer = sending()
    peer.say(said)
    code, (_, text) = last(peer)
    assert code == CLOSE and fault in text and peer.connection.closed


NOWHERE = "amqp:session:unattached-handle"
HANDLE_3 = "no link has the handle 3"


@pytest.mark.parametrize(
    "said, condition, fault",
    [
        (transfer(3, 0, message(b"lost")), NOWHERE, HANDLE_3), (flow(3, 10), NOWHERE, HANDLE_3),
        (performatives.detach(3, True), NOWHERE, HANDLE_3),
        (attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "b")), "amqp:session:handle-in-use", "in use"),
        (transfer(0, 5, message(b"again")), codec.INVALID, "delivery-id 5, behind 5"),
        (transfer(0, 4, message(b"past")), codec.INVALID, "delivery-id 4, behind 5"),
        (performatives.performative(TRANSFER, [codec.uint(0)]), codec.INVALID, "without a delivery-id"),
        (settle(0, None, performatives.transactional(b"none")), "amqp:transaction:unknown-id", "no open"),
    ],
)  # fmt: skip
def test_who_breaks_the_rules_of_a_session_loses_that_one(said, condition, fault):
    """What was sent in it is done and answered; what comes before the client has heard of its end is passed over."""
    peer = sending()
    peer.say(attach(1, RECEIVER, terminus(SOURCE, "orders"), terminus(TARGET, None)))
    (subscribe,) = peer.commands()
    peer.sub = subscribe.sub
    peer.told(Receipt(subscribe.receipt))
    peer.say(flow(1, 1))
    peer.told(delivery(peer, 1))
    peer.commands()
    peer.say(begin(), channel=7)
    peer.take()
    peer.say(transfer(0, 5, message(b"x")), said, transfer(0, 6, message(b"late")), flow(8), settle(0))
    sent, *_, leave = peer.commands()
    assert sent.body == b"x" and isinstance(leave, Disconnect) and peer.take() == []
    assert peer.connection.reply_to(1, [Receipt("5"), Receipt(leave.receipt)]) is False
    assert peer.look().codes() == [DISPOSITION, END]
    code, (name, text) = last(peer)
    assert name == condition and fault in text
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, "b")), channel=7)
    assert peer.codes() == [ATTACH, FLOW], "another session goes on"
    peer.take()
    peer.say(performatives.end())
    assert peer.codes() == []
    peer.say(begin())
    assert peer.codes() == [BEGIN], "the channel is free again"


def test_what_is_of_another_delivery_amidst_one_ends_the_session():
    peer = sending()
    data = message(b"x" * 900)
    peer.say(transfer(0, 0, data[:100], more=True), transfer(0, 1, data[100:]))
    (leave,) = peer.commands()
    peer.connection.reply_to(1, [Receipt(leave.receipt)])
    assert last(peer.look()) == (END, [codec.INVALID, "delivery-id 1 in the midst of delivery 0 of its link"])
    assert peer.connection.unfinished == 0


def test_what_comes_for_a_link_that_was_refused_is_passed_over_until_it_is_detached():
    peer = Peer().began()
    peer.say(attach(0, SENDER, terminus(SOURCE, None), NULL), flow(0, 5), transfer(0, 0, message(b"x")))
    assert peer.codes() == [ATTACH, DETACH] and not peer.commands()
    peer.say(performatives.detach(0, True))
    assert peer.connection.links == 0
    peer.take()
    peer.say(flow(0, 5))
    assert isinstance(peer.commands()[-1], Disconnect)


def test_a_settlement_of_what_is_unknown_means_nothing():
    """A range may have what is settled already (part 2.7.6)."""
    peer = receiving()
    peer.say(settle(0, (1 << 32) - 1, ACCEPTED), settle(7, None, ACCEPTED), settle(7, None, ACCEPTED, role=False))
    assert peer.commands() == [] and peer.codes() == []


@pytest.mark.parametrize("credit", [1 << 31, (1 << 32) - 1])
def test_credit_may_be_any_number(credit):
    peer = receiving(credit=0)
    peer.say(flow(0, credit))
    peer.told(delivery(peer, 1))
    assert peer.codes() == [TRANSFER] and peer.connection.sessions[0].outbound.links[0].credit == credit - 1


def test_links_that_were_refused_and_not_detached_have_a_bound(monkeypatch):
    monkeypatch.setattr("mombroker.amqp.session.MAX_LINKS", 3)
    peer = Peer().began()
    peer.say(*[attach(handle, SENDER, terminus(SOURCE, None), NULL) for handle in range(7)])
    (leave,) = peer.commands()
    peer.connection.reply_to(1, [Receipt(leave.receipt)])
    assert last(peer.look())[0] == END


def test_input_that_is_not_answered_has_a_bound():
    peer = sending()
    data = transfer(0, 0, message(b"x" * 60_000), settled=True)
    at = 0
    while not peer.connection.full:
        peer.say(data)
        at += 1
        assert at < MAX_MARKS * 6
    marks = [each for each in peer.commands() if isinstance(each, Sync)]
    assert len(marks) == MAX_MARKS and at * 60_000 <= (MAX_MARKS + 1) * (320 << 10)
    peer.told(*[Receipt(each.receipt) for each in marks])
    assert not peer.connection.full


# -- subscriptions, temporary destinations, transactions -----------------------------------------------------------


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


def coordinator(peer, handle=9):
    peer.say(attach(handle, SENDER, terminus(SOURCE, None), codec.performative(performatives.COORDINATOR, [])))
    peer.take()
    return peer


def declared(peer, id):
    peer.say(transfer(9, id, b"\x00\x53\x77" + codec.performative(performatives.DECLARE, [])))
    ((_, fields, _),) = peer.take()
    assert fields[4].descriptor == performatives.DECLARED
    return fields[4].value[0]


def discharge(txn, fail=False):
    said = codec.performative(performatives.DISCHARGE, [codec.binary(txn), codec.boolean(fail)])
    return b"\x00\x53\x77" + said


def accepted_in(txn):
    return performatives.transactional(txn, performatives.described_outcome(ACCEPTED))


def test_a_transaction_is_one_command_and_its_discharge_is_answered_when_that_is_durable():
    peer = coordinator(sending())
    txn = declared(peer, 0)
    peer.say(
        transfer(0, 1, message(b"one"), state=accepted_in(txn)), transfer(0, 2, message(b"two"), state=accepted_in(txn))
    )
    assert peer.commands() == [] and peer.connection.uncommitted > 0
    assert [fields[4].descriptor for _, fields, _ in peer.take()] == [performatives.TRANSACTIONAL] * 2
    peer.say(transfer(9, 3, discharge(txn)))
    (command,) = peer.commands()
    assert isinstance(command, Transact) and [each.body for each in command.commands] == [b"one", b"two"]
    assert peer.take() == [] and peer.connection.uncommitted == 0
    peer.told(Receipt(command.receipt))
    ((_, fields, _),) = peer.take()
    assert fields[1] == 3 and fields[4].descriptor == performatives.ACCEPTED


def test_what_is_settled_in_a_transaction_goes_back_when_that_is_rolled_back_or_refused():
    for fail in (True, False):
        peer = coordinator(receiving())
        peer.told(delivery(peer, 1))
        peer.take()
        txn = declared(peer, 0)
        peer.say(settle(0, None, accepted_in(txn)))
        assert [type(each) for each in peer.commands() if not isinstance(each, Flow)] == [Uncommitted]
        peer.say(transfer(9, 1, discharge(txn, fail)))
        if not fail:
            (command,) = peer.commands()
            assert command.commands == [Disposition(1)]
            peer.told(Refused("queue:x is full", command.receipt, scope="command"))
            assert peer.heard[-1][1][4].value[0].value[0] == "amqp:transaction:rollback"
        assert peer.commands() == [Disposition(1, "modified")]


def test_a_transaction_that_is_none_is_rejected():
    peer = coordinator(sending())
    peer.say(transfer(9, 0, discharge(b"none")), transfer(0, 1, message(b"x"), state=accepted_in(b"none")))
    assert [fields[4].descriptor for _, fields, _ in peer.take()] == [
        performatives.REJECTED
    ] * 2 and not peer.commands()
