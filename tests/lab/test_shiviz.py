"""Logs as ShiViz reads them: by its regular expression, with clocks that grow as it demands."""

import json
import random
import re

import pytest

from mombroker.core.trace import Record
from mombroker.lab.shiviz import events, text
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put, Tell

AGENTS = "tests.core.sample_agents"


def logs_of_a_bus():
    """Messages through a router, and what they have caused."""
    agents = {f"{name}/{name}": f"{AGENTS}:Sink" for name in "abcd"} | {
        f"{name}/s{name}": f"{AGENTS}:Source" for name in "abd"
    }
    bus = Bus(topology({"x": "abc", "y": "cd"}, agents))
    bus.pump()
    at_random = random.Random(3)
    for step in range(30):
        name, other = at_random.sample("abd", 2)
        if step % 3:
            bus.send(name, [f"{other}/{other}", "c/c"], Put(f"{step}"))
        else:
            bus.send(name, f"{other}/s{other}", Tell([f"{each}/{each}" for each in "abcd"], f"{step}"))
    return {name: [Record(**each) for each in bus.records(name)] for name in "abcd"}


def parsed(whole):
    """As ShiViz does it: the first line says how to read the events, the second how executions are told apart."""
    how, between, rest = whole.split("\n", 2)
    assert between == ""
    found = re.compile(how.replace("(?<", "(?P<")).findall(rest)
    assert len(found) * 2 == rest.count("\n")
    return [(event, host, json.loads(clock)) for _, event, host, clock in found]


@pytest.fixture(scope="module")
def logs():
    return logs_of_a_bus()


def test_it_is_read_by_the_expression_in_its_first_line_and_each_server_counts_its_events(logs):
    found = parsed("".join(text(logs)))
    assert len(found) == len(list(events(logs))) > 100
    for name in "abcd":
        assert [clock[name] for _, host, clock in found if host == name] == list(
            range(1, 1 + sum(host == name for _, host, _ in found))
        )


def before(one, other):
    return all(count <= other.get(name, 0) for name, count in one.items()) and one != other


def test_a_send_is_before_all_that_it_has_caused_and_else_order_is_only_that_of_a_server(logs):
    found = list(events(logs))
    sends = {(each.origin, each.number): clock for _, each, clock in found if each.kind == "send"}
    across = 0
    for server, record, clock in found:
        if record.kind in ("react", "forward") and record.peer:
            assert before(sends[record.origin, record.number], clock)
            across += server != record.origin
    assert across > 60
    routed = [clock for server, each, clock in found if server == "d" and each.kind == "react" and each.origin in "ab"]
    assert routed and all(clock.get("c", 0) > 0 for clock in routed)  # they came by the router
    concurrent = sum(
        not before(one, other) and not before(other, one)
        for at, (_, _, one) in enumerate(found) for _, _, other in found[:at] if one != other
    )  # fmt: skip
    assert concurrent > 100


def test_a_cause_that_is_not_there_is_left_out(logs):
    cut = {name: log[len(log) // 2 :] for name, log in logs.items()}
    found = parsed("".join(text(cut)))
    assert 0 < len(found) < len(list(events(logs)))
    alone = parsed("".join(text({"d": logs["d"]})))
    assert {host for _, host, _ in alone} == {"d"} and all(set(clock) == {"d"} for _, _, clock in alone)


def test_logs_that_contradict_each_other_end_all_the_same():
    """Each says that it has first taken what the other had sent."""
    made = {
        name: [Record("react", origin=peer, number=1, peer=peer, done=5), Record("send", origin=name, number=1, sent=6)]
        for name, peer in ("ab", "ba")
    }
    assert len(list(events(made))) == 4


def test_what_agents_say_stays_in_its_line():
    record = Record("dead", origin="a", number=1, agent="a/x", detail="line\nhost {}\x1b[31m")
    ((event, host, clock),) = parsed("".join(text({"a": [record]})))
    assert (host, clock) == ("a", {"a": 1}) and "\\n" in event and "\\x1b" in event
