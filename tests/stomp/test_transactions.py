"""BEGIN, COMMIT and ABORT: what waits for the commit, and how much may."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker import transactions
from mombroker.broker.commands import REJECTED, Disposition, Receipt, Transact, Uncommitted
from mombroker.stomp.session import LAST
from tests.stomp.peer import client


def test_S21_a_transaction_is_open_once_and_its_name_free_again(any_version):
    mine = any_version
    for end in ("COMMIT", "ABORT"):
        mine.send("BEGIN", transaction="t")
        mine.send(end, transaction="t")
    mine.send("BEGIN", transaction="t")
    mine.fails("BEGIN", "transaction 't' is open already", transaction="t")


def test_S22_what_is_sent_in_a_transaction_waits_for_its_commit(any_version):
    mine = any_version
    mine.send("BEGIN", transaction="t")
    for body in (b"1", b"2"):
        assert mine.send("SEND", body, destination="/queue/a", transaction="t") == []
    assert [command.body for command in mine.send("SEND", b"3", destination="/queue/a")] == [b"3"]
    (transact,) = mine.send("COMMIT", transaction="t", receipt="r")
    assert [step.body for step in transact.commands] == [b"1", b"2"] and transact.receipt == "r"
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", b"4", destination="/queue/a", transaction="t")
    assert mine.send("ABORT", transaction="t") == []
    mine.send("BEGIN", transaction="t")
    assert mine.send("COMMIT", transaction="t") == [Transact([])]


def test_S23_after_an_abort_a_delivery_is_as_before(any_version):
    mine = any_version
    frames = [mine.give(tag) for tag in range(3)]
    mine.send("BEGIN", transaction="t")
    assert mine.settles("ACK", frames[1], transaction="t") == [Uncommitted(1)]
    assert mine.settles("NACK", frames[2], transaction="t") == [Uncommitted(2)]
    mine.send("ABORT", transaction="t")
    assert sorted(mine.session.unsettled.given) == [0, 1, 2]
    assert mine.settles("ACK", frames[1]) == [Disposition(1)]
    mine.send("BEGIN", transaction="t")
    mine.settles("NACK", frames[2], transaction="t", requeue="false")
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(2, REJECTED)])]


def test_S23_in_a_transaction_acks_may_come_out_of_order_and_twice():
    mine = client()
    frames = [mine.give(tag) for tag in range(4)]
    mine.send("BEGIN", transaction="t")
    for each in (2, 0, 2, 3):
        mine.settles("ACK", frames[each], transaction="t")
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(2), Disposition(3)])]
    assert mine.session.unsettled.given == {}


def test_S23_what_was_settled_outside_meanwhile_is_left_out():
    mine = client()
    frames = [mine.give(tag, ack="individual") for tag in range(2)]
    mine.send("BEGIN", transaction="t")
    for frame in frames:
        mine.settles("ACK", frame, transaction="t")
    mine.settles("ACK", frames[0])
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(1)])]


ACKS = [
    b"ACK\nid:%s\n\n\0", b"NACK\nid:%s\n\n\0", b"ACK\nid:%s\nreceipt:r\n\n\0", b"\nACK\nid:%s\n\n\0",
    b"ACK\nreceipt:r\nid:%s\n\n\0",
]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from([ACKS[0], *ACKS]), st.integers(1, 9)), max_size=12),
    st.sampled_from(["client", "individual"]),
)
@settings(max_examples=100, deadline=None)
def test_a_row_of_acks_does_what_each_of_them_does(wanted, mode):
    """Read at once or byte by byte, with good ids, those that are settled already, and some that were never given."""
    outcomes = []
    for size in (1 << 20, 1):
        mine = client()
        ids = [mine.give(tag, ack=mode).headers["ack"] for tag in range(1, 7)] + ["s1#107/7", "x", "8"]
        data = b"".join(form % ids[number - 1].encode() for form, number in wanted)
        for at in range(0, len(data), size):
            mine.session.receive(data[at : at + size])
        mine.session.check()
        commands = mine.take()
        mine.session.reply([Receipt(LAST)])
        outcomes.append((commands, sorted(mine.session.unsettled.given), mine.session.state, mine.frames()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT", "SEND", "ACK", "NACK"])
def test_S24_an_unknown_transaction_is_a_fault(command):
    mine = client()
    frame = mine.give(1)
    mine.fails(
        command, "no open transaction 't'", destination="a", id=frame.headers["ack"], transaction="t", receipt="r"
    )


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
def test_S24_a_transaction_must_be_named(command):
    client().fails(command, f"{command} needs a transaction")
    client().fails(command, f"{command} needs a transaction", transaction="")


def test_S24_transactions_are_limited_all_together():
    def limited(**limits):
        mine = client(transactions=transactions.Limits(**limits))
        for name in "tu":
            mine.send("BEGIN", transaction=name)
        return mine

    limited(open=2).fails("BEGIN", "2 transactions are open", transaction="v")
    mine = limited(frames=2)
    for name in "tu":
        mine.send("SEND", destination="a", transaction=name)
    mine.fails("SEND", "at most 2 frames", destination="a", transaction="t", receipt="r")
    mine = limited(bytes=10)
    mine.send("SEND", b"12345", destination="a", transaction="t")
    mine.send("SEND", b"12345", destination="a", transaction="u")
    mine.send("COMMIT", transaction="t")
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", b"12345", destination="a", transaction="t")
    mine.fails("SEND", "10 bytes", b"1", destination="a", transaction="t")


def test_S24_a_fault_aborts_all():
    mine = client()
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", destination="a", transaction="t")
    mine.fails("SEND", "needs a destination")
    assert not mine.session.transactions.open and mine.session.transactions.bytes == 0
