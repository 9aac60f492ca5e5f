"""The outsider against a judge that computes happens-before literally, on executions with every kind of fault."""

import random
import time

import pytest

from mombroker.core.causality import Event, Verdict, check


def brute(events: list[Event]) -> Verdict:
    """Protocols §0.2 word by word: transitive closure over all pairs of events, then all pairs of messages."""
    sends = {}  # message -> index of its first send
    for at, event in enumerate(events):
        if event[0] == "send":
            sends.setdefault(event[2], at)
    before = [[False] * len(events) for _ in events]
    for b, event in enumerate(events):
        for a in range(b):
            before[a][b] = events[a][1] == event[1]
        if event[0] == "deliver" and event[2] in sends and event[1] in events[sends[event[2]]][3]:
            before[sends[event[2]]][b] = True
    for k in range(len(events)):
        for a in range(len(events)):
            if before[a][k]:
                row, through = before[a], before[k]
                before[a] = [x or y for x, y in zip(row, through, strict=True)]
    verdict = Verdict()
    for at, event in enumerate(events):
        if event[0] == "send" and sends[event[2]] != at:
            verdict.duplicates.append((event[1], event[2]))
    delivered: dict[str, list[str]] = {}  # process -> messages in order of their first delivery
    for event in events:
        if event[0] == "deliver":
            _, process, message = event
            if message not in sends or process not in events[sends[message]][3]:
                verdict.unsent.append((process, message))
            elif message in delivered.setdefault(process, []):
                verdict.duplicates.append((process, message))
            else:
                delivered[process].append(message)
    for message, at in sends.items():
        for process in dict.fromkeys(events[at][3]):
            order = delivered.get(process, [])
            until = order.index(message) if message in order else len(order)
            if message not in order:
                verdict.lost.append((process, message))
            for other in order[:until]:
                if before[at][sends[other]]:
                    verdict.violations.append((process, message, other))
                    break
    return verdict


def execution(rng: random.Random, processes: int, steps: int) -> list[Event]:
    """Random sends (also to oneself) and deliveries, in any order of arrival: most executions are not causal."""
    names = [f"p{n}" for n in range(processes)]
    events: list[Event] = []
    flying: list[tuple[str, str]] = []
    for step in range(steps):
        if flying and rng.random() < 0.6:
            # Mostly the oldest, so that there are executions with few violations and with none.
            pick = 0 if rng.random() < rng.choice((0.5, 0.9, 1.0)) else rng.randrange(len(flying))
            process, message = flying.pop(pick)
            events.append(("deliver", process, message))
        else:
            dests = tuple(rng.sample(names, min(processes, rng.choice((1, 1, 1, 2, 3)))))
            events.append(("send", rng.choice(names), f"m{step}", dests))
            flying += ((dest, f"m{step}") for dest in dests)
    return events


def spoil(rng: random.Random, events: list[Event]) -> list[Event]:
    """Some swaps within a process, losses, duplicates, strays and ids used twice."""
    events = list(events)
    for _ in range(rng.randrange(4)):
        fault = rng.randrange(5)
        deliveries = [n for n, event in enumerate(events) if event[0] == "deliver"]
        if not deliveries:
            break
        at = rng.choice(deliveries)
        event = events[at]
        if fault == 0:
            del events[at]
        elif fault == 1:
            events.insert(rng.randrange(at + 1, len(events) + 1), event)
        elif fault == 2:
            later = [n for n in deliveries if n > at and events[n][1] == event[1]]
            if later:
                other = rng.choice(later)
                events[at], events[other] = events[other], event
        elif fault == 3:
            events.insert(at, ("deliver", f"p{rng.randrange(4)}", rng.choice(("never", "m0", "m1"))))
        else:
            events.append(("send", rng.choice(("p0", "p1", "new")), event[2], (event[1],)))
    return events


def shuffle(rng: random.Random, events: list[Event]) -> list[Event]:
    """The same execution in another order of processes, each process's own order kept."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault(event[1], []).append(event)
    mixed = []
    while queues:
        name = rng.choice(sorted(queues))
        mixed.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    return mixed


def acyclic(events: list[Event]) -> bool:
    """Whether every delivery can stand after its send: else there is no happens-before to compute."""
    place = {event[2]: n for n, event in reversed(list(enumerate(events))) if event[0] == "send"}
    return all(
        event[2] not in place or event[1] not in events[place[event[2]]][3] or place[event[2]] < n
        for n, event in enumerate(events)
        if event[0] == "deliver"
    )


def same(found: Verdict, expected: Verdict) -> None:
    for kind in ("violations", "duplicates", "unsent", "lost"):
        assert sorted(getattr(found, kind)) == sorted(getattr(expected, kind)), kind


def compare(seeds: range) -> tuple[int, int]:
    safe = unsafe = 0
    for seed in seeds:
        rng = random.Random(seed)
        events = spoil(rng, execution(rng, rng.randint(2, 6), rng.randint(3, 45)))
        if not acyclic(events):
            continue
        expected = brute(events)
        same(check(events), expected)
        sends = [event[2] for event in events if event[0] == "send"]
        if len(set(sends)) == len(sends):  # of two sends under one id the first in the list counts
            same(check(shuffle(rng, events)), expected)
        safe += expected.safe
        unsafe += not expected.safe
    return safe, unsafe


def test_it_agrees_with_the_definition():
    safe, unsafe = compare(range(1500))
    assert safe > 150 and unsafe > 600, "the executions must be of both kinds"


@pytest.mark.long
def test_it_agrees_with_the_definition_at_length():
    safe, unsafe = compare(range(1500, 40_000))
    assert safe > 3000 and unsafe > 10_000


def test_the_smallest_violation():
    """0 tells 2 slowly and 1 at once; what 1 then says to 2 overtakes the cause."""
    events = [
        ("send", 0, "a", (2,)), ("send", 0, "b", (1,)), ("deliver", 1, "b"), ("send", 1, "c", (2,)),
        ("deliver", 2, "c"), ("deliver", 2, "a"),
    ]  # fmt: skip
    assert check(events).violations == [(2, "a", "c")]
    assert check(events[:-1]).violations == [(2, "a", "c")], "no continuation can heal it"
    assert check(events[:-1]).lost == [(2, "a")]
    assert check(events[:4] + [events[5], events[4]]) == Verdict(sends=3, deliveries=3, processes=3)


def test_a_message_that_nothing_follows_is_only_on_its_way():
    verdict = check([("send", 0, "a", (1, 2)), ("deliver", 1, "a"), ("send", 1, "b", (0,)), ("deliver", 0, "b")])
    assert verdict.safe and verdict.lost == [(2, "a")]


def test_deliveries_may_stand_before_their_sends():
    events = [
        ("deliver", 2, "c"), ("deliver", 2, "a"), ("deliver", 1, "b"), ("send", 1, "c", (2,)),
        ("send", 0, "a", (2,)), ("send", 0, "b", (1,)),
    ]  # fmt: skip
    assert check(events).violations == [(2, "a", "c")]


def test_a_long_chain_of_blocked_processes_needs_no_stack():
    n = 5000
    events: list[Event] = [("send", 0, 0, (1,))]
    for k in range(1, n):
        events += [("deliver", k, k - 1), ("send", k, k, (k + 1,))]
    last_first = sorted(events, key=lambda event: -event[1])
    assert check(last_first) == Verdict(lost=[(n, n - 1)], sends=n, deliveries=n - 1, processes=n + 1)


def test_a_delivery_in_the_past_of_its_own_send_is_unsent():
    """Each of two processes reacts to what the other sends later: no order of the events makes sense."""
    events = [("deliver", 0, "y"), ("send", 0, "x", (1,)), ("deliver", 1, "x"), ("send", 1, "y", (0,))]
    verdict = check(events)
    assert len(verdict.unsent) == 1 and not verdict.safe
    bystander = [("deliver", 2, "z"), ("send", 2, "w", (0,)), ("send", 1, "z", (2,)), ("deliver", 0, "w")]
    verdict = check(bystander[:2] + events + bystander[2:])
    assert verdict.unsent and verdict.unsent[0][0] in (0, 1), "who only waits for them is not to blame"
    assert check([("deliver", 0, "m"), ("send", 0, "m", (0,))]).unsent == [(0, "m")]


def test_what_is_no_event_is_refused():
    with pytest.raises(ValueError, match="not an event"):
        check([("receive", 0, "a")])


def broadcasts(processes: int, rounds: int) -> list[Event]:
    """Everybody tells everybody, in rounds: the dense case, in which every vector has every component."""
    events: list[Event] = []
    for r in range(rounds):
        sender = r % processes
        dests = tuple(n for n in range(processes) if n != sender)
        events.append(("send", sender, r, dests))
        events += (("deliver", n, r) for n in dests)
    return events


@pytest.mark.long
@pytest.mark.parametrize("processes", [100, 1000, 5000])
def test_a_million_events_take_about_a_minute(processes):
    events = broadcasts(processes, 1_000_000 // processes)
    begin = time.process_time()
    assert check(events).safe
    assert time.process_time() - begin < 90
