"""Messages as traces of OpenTelemetry."""

import json
import re

from mombroker.core.trace import Record
from mombroker.lab import otlp, stories
from mombroker.lab.stories import Arrow, Story
from tests.core.bus import topology
from tests.lab.test_shiviz import logs_of_a_bus

RELAY = Story(
    ["a", "b", "c"],
    [
        Arrow("a#1", "a", "c", 1, 100, 100),
        Arrow("a#2", "a", "b", 10, 20, 20),
        Arrow("b#3", "b", "c", 30, 50, 100, "a#1"),
        Arrow("b#4", "b", "a", 0, 950, 950),
        Arrow("b#5", "b", "a", 960, 970, bare=True),
    ],
)  # fmt: skip


def spans(batches):
    """(server, span) of all, with the attributes of a span as a dict."""
    found = []
    for batch in batches:
        json.dumps(batch)
        for each in batch["resourceSpans"]:
            (server,) = [
                a["value"]["stringValue"] for a in each["resource"]["attributes"] if a["key"] == "service.name"
            ]
            for span in each["scopeSpans"][0]["spans"]:
                said = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
                found.append((server, {**span, "attributes": said}))
    return found


def test_a_message_is_a_trace_and_what_it_waited_for_a_link():
    found = spans(otlp.batches(RELAY, "demo"))
    ways = {(span["attributes"]["messaging.message.id"], span["name"]): (server, span) for server, span in found}
    assert len(ways) == 8, "two for each message with a body"
    server, held = ways["b#3", "b to c"]
    _, cause = ways["a#1", "a to c"]
    assert server == "c" and held["attributes"]["mombroker.held_ns"] == "50"
    assert (held["startTimeUnixNano"], held["endTimeUnixNano"]) == ("30", "100")
    (link,) = held["links"]
    assert (link["traceId"], link["spanId"]) == (cause["traceId"], cause["spanId"]) != (held["traceId"], held["spanId"])
    origin, send = ways["b#3", "send b#3"]
    assert origin == "b" and held["parentSpanId"] == send["spanId"] and "parentSpanId" not in send
    assert ways["b#4", "b to a"][1]["startTimeUnixNano"] == "950", "nobody has logged when it left"


def test_what_its_client_has_done_is_the_parent_of_a_message_and_its_trace_that_of_all_its_ways():
    logs = logs_of_a_bus()
    send = next(each for each in logs["a"] if each.kind == "send" and len(each.out) > 1)
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    logs["a"].append(Record("parent", "a", send.number, detail=f"00-{trace}-{span}-01"))
    found = [each for _, each in spans(otlp.batches(stories.logged(logs, topology({"x": "abc", "y": "cd"})), "demo"))]
    mine = [each for each in found if each["attributes"]["messaging.message.id"] == f"a#{send.number}"]
    others = [each for each in found if each not in mine]
    (root,) = [each for each in mine if each["name"].startswith("send")]
    assert root["parentSpanId"] == span and root["spanId"] != span
    assert {each["traceId"] for each in mine} == {trace} and len(mine) > 2
    assert {each["parentSpanId"] for each in mine if each is not root} <= {each["spanId"] for each in mine}
    assert trace not in {each["traceId"] for each in others}
    traced = Story(RELAY.processes, RELAY.arrows, parents={"a#1": f"00-{trace}-{span}-00"})
    (held,) = [each for _, each in spans(otlp.batches(traced, "demo")) if each["name"] == "b to c"]
    assert [link["traceId"] for link in held["links"]] == [trace] != [held["traceId"]]


def test_a_bus_with_a_router_has_traces_that_hang_together():
    logs = logs_of_a_bus()
    story = stories.logged(logs, topology({"x": "abc", "y": "cd"}))
    found = spans(otlp.batches(story, "demo"))
    by_id = {(span["traceId"], span["spanId"]): (server, span) for server, span in found}
    assert len(by_id) == len(found) > 60
    for _, span in found:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if "parentSpanId" in span:
            assert (span["traceId"], span["parentSpanId"]) in by_id
    routed = [span for server, span in found if server == "d" and span["name"] == "c to d"]
    assert routed
    for span in routed:
        server, parent = by_id[span["traceId"], span["parentSpanId"]]
        assert server == "c" and parent["name"] in ("a to c", "b to c") or parent["name"].startswith("send c#")


def test_ids_are_the_same_each_time_and_others_on_another_bus():
    ids = [
        {(span["traceId"], span["spanId"]) for _, span in spans(otlp.batches(RELAY, bus))} for bus in ("x", "x", "y")
    ]
    assert ids[0] == ids[1] and not ids[0] & ids[2]


def test_many_messages_are_several_requests():
    many = Story(["a", "b"], [Arrow(f"a#{at}", "a", "b", at + 1, at + 2, at + 2) for at in range(2 * otlp.BATCH + 1)])
    assert [otlp.count(batch) for batch in otlp.batches(many, "x")] == [2 * otlp.BATCH, 2 * otlp.BATCH, 2]
