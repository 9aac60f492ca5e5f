"""What the logs tell of messages, as traces of OpenTelemetry (OTLP 1, JSON).

A message is a trace, and each way of it from one server to the next a span. Where its client has said what it did, by a
traceparent, they are in that trace, as children of that span. What a message had to wait for is a link to the span that
brought it: the cause of a delay, which no instrumented client could know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from mombroker import __version__
from mombroker.lab.stories import Arrow, Story

PRODUCER, CONSUMER = 4, 5  # kinds of spans
BATCH = 500  # messages of one request
PATH = "/v1/traces"  # of a collector

Span = dict[str, Any]


def batches(story: Story, bus: str) -> Iterator[dict[str, Any]]:
    """Requests to a collector, or lines of a file. Packets without a body are left out, and of those whose send was
    not logged the span begins when they came."""
    ways: dict[str, list[Arrow]] = {}
    for arrow in story.arrows:
        if not arrow.bare:
            ways.setdefault(arrow.message, []).append(arrow)
    messages, ids = iter(ways.items()), _Ids(bus, story.parents)
    while some := list(islice(messages, BATCH)):
        spans: dict[str, list[Span]] = {}
        for message, arrows in some:
            for server, span in _trace(ids, message, arrows):
                spans.setdefault(server, []).append(span)
        yield {"resourceSpans": [_resource(bus, server, each) for server, each in spans.items()]}


def _trace(ids: _Ids, message: str, arrows: list[Arrow]) -> Iterator[tuple[str, Span]]:
    """The spans of a message, each with the server that it is of."""
    origin = message.partition("#")[0]
    begin, end = min(map(_begin, arrows)), max(map(_end, arrows))
    sent = _span(ids, message, "", f"send {message}", PRODUCER, begin, end)
    if client := ids.client(message):
        sent["parentSpanId"] = client
    yield origin, sent
    brought = {arrow.to for arrow in arrows}
    for arrow in arrows:
        parent = arrow.frm if arrow.frm != origin and arrow.frm in brought else ""
        span = _span(ids, message, arrow.to, f"{arrow.frm} to {arrow.to}", CONSUMER, _begin(arrow), _end(arrow))
        span["parentSpanId"] = ids.span(message, parent)
        span["events"] = [{"timeUnixNano": str(arrow.came), "name": "came"}]
        if arrow.held:
            span["attributes"].append(_attribute("mombroker.held_ns", arrow.delivered - arrow.came))
        if cause := arrow.waited_for:
            named = [_attribute("mombroker.waited_for", cause)]
            there = {"traceId": ids.trace(cause), "spanId": ids.span(cause, arrow.to)}
            span["links"] = [{**there, "attributes": named}]
        yield arrow.to, span


def _span(ids: _Ids, message: str, to: str, name: str, kind: int, begin: int, end: int) -> Span:
    return {
        "traceId": ids.trace(message), "spanId": ids.span(message, to), "name": name, "kind": kind,
        "startTimeUnixNano": str(begin), "endTimeUnixNano": str(max(begin, end)),
        "attributes": [_attribute("messaging.system", "mombroker"), _attribute("messaging.message.id", message)],
    }  # fmt: skip


def _resource(bus: str, server: str, spans: list[Span]) -> dict[str, Any]:
    attributes = [_attribute("service.name", server), _attribute("service.namespace", bus)]
    scope = {"name": "mombroker", "version": __version__}
    return {"resource": {"attributes": attributes}, "scopeSpans": [{"scope": scope, "spans": spans}]}


def _attribute(key: str, value: str | int) -> dict[str, Any]:
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def _begin(arrow: Arrow) -> int:
    return arrow.left or arrow.came


def _end(arrow: Arrow) -> int:
    return max(arrow.came, arrow.delivered)


class _Ids:
    """Of the messages of a bus, some of which have a parent, a traceparent. They are the same whenever they are asked
    for: who sends a log twice doubles nothing."""

    def __init__(self, bus: str, parents: Mapping[str, str]):
        self.bus, self.parents = bus, parents

    def trace(self, message: str) -> str:
        parent = self.parents.get(message)
        return parent.split("-")[1] if parent else _digest(self.bus, message)[:32]

    def client(self, message: str) -> str:
        """The span in which its client has sent it; empty: it has said none."""
        parent = self.parents.get(message)
        return parent.split("-")[2] if parent else ""

    def span(self, message: str, to: str) -> str:
        """Of the way that brought it to a server; empty: of the message itself."""
        return _digest(self.bus, message, to)[:16]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def count(batch: dict[str, Any]) -> int:
    """Spans of a batch."""
    return sum(len(scope["spans"]) for each in batch["resourceSpans"] for scope in each["scopeSpans"])
