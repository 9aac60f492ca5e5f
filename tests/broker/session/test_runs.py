"""Runs: messages that are sent in a row, and alike, leave what they leave one by one."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.commands import Delivery, Receipt, Receipts, Send, SendRun, Subscribe, Sync
from mombroker.broker.properties import pack
from mombroker.core.limits import Limits
from tests.broker.bench import THREE, Broker
from tests.core.bus import SECOND

Q = "queue:q"
MODELS = st.builds(
    Send,
    destination=st.sampled_from([Q, Q, Q, "queue:far", "queue:new", "topic:t"]), body=st.just(b""), shown=st.just("/q"),
    priority=st.sampled_from([4, 4, 7]), expires=st.sampled_from([0, 0, 1, 5 * SECOND]), persistent=st.booleans(),
    delay=st.sampled_from([0, 0, 0, SECOND]), group=st.sampled_from(["", "", "g"]), receipt=st.just("r"),
    dedup=st.sampled_from([None, None, None, ("p", 7)]), message=st.sampled_from(["", "", "mine"]),
    properties=st.sampled_from([b"", pack({"k": "v"})]), typed=st.booleans(), stamp_user=st.booleans(),
)  # fmt: skip
POLICIES = st.sampled_from(
    [
        {},
        {},
        {"max_messages": 3, "overflow": "block", "block_seconds": 5},
        {"max_messages": 3, "overflow": "reject"},
        {"max_messages": 3, "overflow": "drop-head"},
        {"max_bytes": 60, "overflow": "reject"},
        {"max_bytes": 60, "overflow": "drop-head"},
        {"max_messages": 12, "max_bytes": 300, "overflow": "block", "block_seconds": 5},
    ]
)
STEPS = st.lists(
    st.tuples(MODELS, st.lists(st.integers(0, 30), min_size=1, max_size=9)) | st.sampled_from(["ack", "later", "sync"]),
    min_size=1, max_size=5,
)  # fmt: skip


def play(steps, policy, consumes, together, limits):
    """What servers have stored and said, after these steps."""
    b = Broker(THREE, limits)
    b.connect("c").send("queue:far", "first")
    if policy:
        b.ask("a", "set_policy", match="queue:*", values=policy)
    if consumes:
        taker = b.connect("a").subscribe("s", Q, ack="individual", prefetch=3).subscribe("t", "topic:t")
    sender = b.connect("a").send(Q, "first")
    for number, step in enumerate(steps):
        if step == "ack" and consumes and taker.got:
            taker.ack(*[each.body.decode() for each in taker.got if each.sub == "s"][-1:])
            taker.told.clear()
        elif step == "later":
            b.later(2)
        elif step == "sync":
            sender.do(Sync(f"s{number}"))
        elif isinstance(step, tuple):
            model, sizes = step
            model = replace(model, expires=model.expires and b.now + model.expires)
            bodies = [b"%d-%d" % (number, at) + b"x" * size for at, size in enumerate(sizes)]
            run = SendRun(model, bodies, [f"{number}-{at}" for at in range(len(bodies))])
            commands = [run] if together else run.singles()
            sender.do(*commands, pump=False)
            b.pump()
    disks = {name: store.snapshot() for name, store in b.stores.items()}
    told = []
    for reply in [each for client in b.clients.values() for each in client.told]:
        told += map(Receipt, reply.receipts) if isinstance(reply, Receipts) else [reply]
    return disks, told, {name: b.records(name) for name in b.stores}


@given(STEPS, POLICIES, st.booleans(), st.sampled_from([None, Limits(batch_bytes=90), Limits(max_message=25)]))
@settings(max_examples=60, deadline=None)
def test_a_run_and_its_messages_one_by_one_leave_the_same(steps, policy, consumes, limits):
    one, other = (play(steps, policy, consumes, together, limits) for together in (True, False))
    assert one[1] == other[1]
    assert one[2] == other[2]
    assert one[0] == other[0]


def test_a_run_is_counted_by_its_messages_and_waits_at_the_one_that_has_no_room():
    b = Broker()
    b.ask("a", "set_policy", match=Q, values={"max_messages": 2, "overflow": "block", "block_seconds": 60})
    taker = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    model = Send(Q, b"", shown=Q)
    taker.do(SendRun(model, [b"1", b"2", b"3"], ["r1", "r2", "r3"]), SendRun(model, [b"4", b"5"], ["r4", "r5"]))
    assert taker.receipts == ["r1", "r2"] and taker.texts == ["1"]
    taker.ack("1")  # it passes the runs that wait for the very room that it makes
    assert taker.receipts == ["r1", "r2", "r3"] and taker.texts == ["1", "2"]
    taker.ack("2").ack("3").ack("4").ack("5")
    assert taker.receipts == [f"r{number}" for number in range(1, 6)]
    assert [each.body for each in taker.told if isinstance(each, Delivery)] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_run_goes_in_one_piece_where_nothing_is_in_its_way():
    b = Broker()
    taker = b.connect().subscribe("s", Q)
    sender = b.connect().send(Q, "0").forget()
    sender.do(SendRun(Send(Q, b"", shown=Q), [b"1", b"2", b"3"], ["r1", "r2", "r3"]))
    assert sender.told == [Receipts(["r1", "r2", "r3"])] and taker.texts == ["0", "1", "2", "3"]
    assert isinstance(b.clients[sender.conn].told[0], Receipts)
    sender.do(Subscribe("s", (Q,)), SendRun(Send("queue:new", b"", shown=Q), [b"4"], ["r4"]))
    assert sender.told[-1] == Receipt("r4")
