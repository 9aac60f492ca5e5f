"""The rules of connections and sessions, without sockets."""

import pytest

from mombroker.amqp import codec, performatives
from mombroker.amqp.codec import NULL
from mombroker.amqp.connection import MAX_MARKS
from mombroker.amqp.frames import EARLY, PLAIN, SASL, frame
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
)
from mombroker.broker.commands import Disconnect, Receipt, Receipts, Send, Sync
from tests.amqp.peer import (
    ACCEPTED,
    Peer,
    attach,
    begin,
    delivery,
    flow,
    init,
    last,
    message,
    open_,
    receiving,
    sending,
    settle,
    terminus,
    transfer,
)

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
