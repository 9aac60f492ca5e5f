"""Transactions: a coordinator's link, what is declared, and what its discharge answers."""

from mombroker.amqp import codec, messages, performatives
from mombroker.amqp.performatives import SENDER, SOURCE
from mombroker.broker.commands import Disposition, Flow, Receipt, Refused, Transact, Uncommitted
from tests.amqp.peer import ACCEPTED, attach, delivery, message, receiving, sending, settle, terminus, transfer


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


def test_a_coordinator_reads_a_message_with_sections_before_its_body_and_nothing_but_declare_and_discharge():
    peer = coordinator(sending())
    before = codec.performative(messages.HEADER, []) + codec.performative(messages.PROPERTIES, [])
    declare = b"\x00\xa3\x11amqp:declare:list\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40"  # as proton writes it
    value = codec.described(messages.VALUE, b"")
    for said, outcome in [
        (before + value + declare, performatives.DECLARED),
        (b"\x00" + codec.symbol("amqp:amqp-value:*") + declare, performatives.DECLARED),
        (before, performatives.REJECTED),
        (before + codec.described(messages.VALUE, codec.string("declare")), performatives.REJECTED),
        (before + codec.described(messages.DATA, codec.binary(declare)), performatives.REJECTED),
        (before + codec.described(messages.SEQUENCE, b"\x45"), performatives.REJECTED),
        (value + before, performatives.REJECTED),
    ]:
        peer.say(transfer(9, 0, said))
        ((_, fields, _),) = peer.take()
        assert fields[4].descriptor == outcome, said
        peer = coordinator(sending())


def test_a_transaction_that_is_none_is_rejected():
    peer = coordinator(sending())
    peer.say(transfer(9, 0, discharge(b"none")), transfer(0, 1, message(b"x"), state=accepted_in(b"none")))
    assert [fields[4].descriptor for _, fields, _ in peer.take()] == [
        performatives.REJECTED
    ] * 2 and not peer.commands()
