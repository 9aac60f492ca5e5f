"""Happens-before by brute force, to judge the judge: the past of every event as the set of all events in it."""

from mombroker.core.causality import Event

Faults = tuple[set[tuple[int, int]], int, int, set[tuple[int, int]]]


def brute(events: list[Event]) -> Faults:
    """(violations as (process, late), duplicates, unsent, lost); each send must come before its deliveries."""
    sends: dict[int, tuple[int, tuple[int, ...]]] = {}  # message -> its event, its destinations
    latest: dict[int, int] = {}  # process -> its last event
    past: list[int] = []  # as a bit set, the event itself included
    delivered: dict[int, dict[int, int]] = {}  # process -> message -> its event
    duplicates = unsent = 0
    for at, event in enumerate(events):
        before = past[latest[event[1]]] if event[1] in latest else 0
        latest[event[1]] = at
        if event[0] == "send":
            sends[event[2]] = at, event[3]
        elif event[2] not in sends or event[1] not in sends[event[2]][1]:
            unsent += 1
        elif event[2] in delivered.setdefault(event[1], {}):
            duplicates += 1
        else:
            before |= past[sends[event[2]][0]]
            delivered[event[1]][event[2]] = at
        past.append(before | 1 << at)
    violations, lost = set(), set()
    for process, messages in delivered.items():
        for late, (sent, dests) in sends.items():
            if process in dests:
                until = messages.get(late, len(events))
                if any(past[sends[m][0]] >> sent & 1 for m, at in messages.items() if at < until and m != late):
                    violations.add((process, late))
    for message, (_, dests) in sends.items():
        lost |= {(process, message) for process in dests if message not in delivered.get(process, {})}
    return violations, duplicates, unsent, lost
