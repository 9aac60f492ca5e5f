"""What the model of clients objects to, in histories made by hand."""

from mombroker.sim.model import Given, Model, Sent, Stream

A, B, Q = "topic:a", "topic:b", "queue:q"


class History:
    """Times rise by one with each step."""

    def __init__(self) -> None:
        self.model, self.now = Model(), 0

    def send(self, destination: str, *causes: Sent, past: int = 0, exists: bool = True) -> Sent:
        self.now += 1
        for cause in causes:
            past |= cause.past | cause.bit
        sent = self.model.sent(destination, past, self.now)
        sent.exists = exists
        return sent

    def stream(self, kind: str, *destinations: str, past: int = 0) -> Stream:
        stream = Stream(destinations, kind)
        self.model.subscribed(stream, past)
        stream.begun = self.model.event()
        return stream

    def see(self, stream: Stream, *several: Sent, count: int = 1) -> Given:
        for sent in several:
            given = Given(stream, sent, count, "individual")
            self.model.saw(given)
        return given


def test_a_history_without_fault():
    h = History()
    both, queue = h.stream("plain", A, B), h.stream("queue", Q)
    question = h.send(A, past=both.begun)
    answer, work = h.send(B, question), h.send(Q, question)
    h.see(both, question, answer)
    h.see(queue, work)
    h.see(queue, work, count=2)
    assert h.model.faults() == []


def test_an_answer_before_its_question_and_without_it():
    h = History()
    late, never = h.stream("plain", A, B), h.stream("durable", A, B)
    question = h.send(A, past=late.begun | never.begun)
    answer = h.send(B, question)
    h.see(late, answer, question)
    h.see(never, answer)
    assert h.model.faults() == [
        "durable topic:a,topic:b missed 3 to topic:a",
        "plain topic:a,topic:b saw 4 before 3, on which it depends, of plain topic:a,topic:b",
        "durable topic:a,topic:b saw 4 without 3, on which it depends, of durable topic:a,topic:b",
    ]


def test_plain_subscriptions_of_one_connection_are_one_order():
    h = History()
    one, two = h.stream("plain", A), h.stream("plain", B)
    two.order = one.order
    question = h.send(A, past=one.begun | two.begun)
    h.see(two, h.send(B, question))
    h.see(one, question)
    assert h.model.faults() == ["plain topic:b saw 4 before 3, on which it depends, of plain topic:a"]


def test_what_has_no_receipt_and_nobody_saw_need_not_exist():
    h = History()
    h.stream("queue", Q)
    h.send(Q, exists=False)
    assert h.model.faults() == []
    h.send(Q)
    assert h.model.faults() == ["queue queue:q missed 3 to queue:q"]


def test_a_subscription_misses_nothing_after_its_receipt_and_sees_nothing_before_itself():
    h = History()
    before = h.send(A)
    stream = h.stream("plain", A, past=before.bit)
    h.see(stream, before)
    h.send(A)
    stream.known = h.now
    h.send(A)
    assert h.model.faults() == ["plain topic:a saw 1, which precedes it", "plain topic:a missed 4 to topic:a"]
    stream.complete = False
    assert h.model.faults() == ["plain topic:a saw 1, which precedes it"]


def test_repeats_are_told_and_what_was_surely_settled_does_not_come_again():
    h = History()
    queue = h.stream("queue", Q)
    work = h.send(Q)
    h.see(queue, work)
    h.model.settled(h.see(queue, work))
    h.see(queue, work, count=2)
    assert h.model.faults() == [
        "queue queue:q saw 2 again with the count 1",
        "queue queue:q saw 2 again after its acknowledgement was confirmed",
    ]


def test_a_transaction_is_all_or_nothing():
    h = History()
    queue = h.stream("queue", Q)
    work = h.send(Q)
    given = h.see(queue, work)
    one, two = h.send(Q, work, exists=False), h.send(Q, work, exists=False)
    given.passed_on = one.together = two.together = [one, two]
    one.settles = two.settles = [given]
    assert h.model.faults() == [
        "queue queue:q did not give 2 again, though 3, as which it was passed on, is lost",
        "queue queue:q did not give 2 again, though 4, as which it was passed on, is lost",
    ]
    h.see(queue, one)
    assert h.model.faults() == [
        "queue queue:q missed 4 to queue:q",
        "queue queue:q did not give 2 again, though 4, as which it was passed on, is lost",
    ]
    h.see(queue, two)
    assert h.model.faults() == []
    h.see(queue, work, count=2)
    assert h.model.faults() == ["queue queue:q saw 2 again after its acknowledgement was confirmed"]
