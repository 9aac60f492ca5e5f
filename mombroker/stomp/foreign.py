"""Headers by which clients of other brokers ask for something, and what becomes of each here: the one table of them.

docs/stomp.md has it for users. A header that is neither here nor ours is the user's: it travels with the message.
"""

from __future__ import annotations

from collections.abc import Mapping

SEND, SUBSCRIBE = "SEND", "SUBSCRIBE"

# -> ours, which means the same and counts if both are there.
SAME: dict[str, dict[str, str]] = {
    SEND: {
        "x-delay": "AMQ_SCHEDULED_DELAY",
        "x-message-ttl": "expiration",
        "_AMQ_SCHED_DELIVERY": "AMQ_SCHEDULED_TIME",
    },
    SUBSCRIBE: {
        "prefetch": "prefetch-count",
        "activemq.prefetchSize": "prefetch-count",
        "activemq.exclusive": "exclusive",
        "x-single-active-consumer": "exclusive",
        "activemq.priority": "x-priority",
        "activemq.noLocal": "no-local",
        "durable-subscriber-name": "durable-subscription-name",
        "activemq.subscriptionName": "durable-subscription-name",
        "activemq.subcriptionName": "durable-subscription-name",  # as it was once misspelt
    },
}

# Read by hand (requests.py), since none of ours means the same.
SPECIAL: dict[str, frozenset[str]] = {
    SEND: frozenset(("destination-type", "_AMQ_DUPL_ID")),
    SUBSCRIBE: frozenset(("subscription-type", "consumer-window-size", "activemq.retroactive")),
}

# Without these the client would get other messages than it asks for: ERROR. -> what to use instead.
REFUSED: dict[str, dict[str, str]] = {
    SEND: dict.fromkeys(
        ("AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"),
        "send each message, with AMQ_SCHEDULED_DELAY or _TIME",
    ),
    SUBSCRIBE: {
        "x-stream-offset": "use a durable subscription",
        "x-stream-filter": "use selector",
    },
}

# Ignored, with a line in the log. -> what to use instead.
_POLICY = "use a policy of the destination"
_BODIES = "bodies travel as they are"
_QUEUE_ARGUMENTS = {
    "x-dead-letter-exchange": f"{_POLICY}: dead_letter",
    "x-dead-letter-routing-key": f"{_POLICY}: dead_letter",
    "x-delivery-limit": f"{_POLICY}: max_redeliveries",
    "x-expires": "queues stay until `mom queue delete`",
    "x-max-length": f"{_POLICY}: max_messages",
    "x-max-length-bytes": f"{_POLICY}: max_bytes",
    "x-max-priority": "every queue has priorities 0 to 9",
    "x-overflow": f"{_POLICY}: overflow",
    "x-queue-name": "use durable-subscription-name",
    "x-queue-type": "every queue is durable",
}
IGNORED: dict[str, dict[str, str]] = {
    SEND: {**_QUEUE_ARGUMENTS, "transformation": _BODIES, "_AMQ_LVQ_NAME": "no queue keeps the last value alone"},
    SUBSCRIBE: {
        **_QUEUE_ARGUMENTS,
        "transformation": _BODIES,
        "x-message-ttl": "give each message an expiration",
        "activemq.maximumRedeliveries": f"{_POLICY}: max_redeliveries",
        "activemq.redeliveryDelay": f"{_POLICY}: redelivery_delay",
        "activemq.initialRedeliveryDelay": f"{_POLICY}: redelivery_delay",
        "activemq.maximumPendingMessageLimit": f"{_POLICY}: max_pending",
    },
}
_PREFIXES = ("x-", "activemq.")  # of a SUBSCRIBE, which has no headers of the user's

# Names that a frame must have for any of this to concern it.
NAMES = {
    frame: frozenset((*SAME[frame], *SPECIAL[frame], *REFUSED[frame], *IGNORED[frame])) for frame in (SEND, SUBSCRIBE)
}


def ours(frame: str, headers: dict[str, str]) -> dict[str, str]:
    """The headers, with ours for those that mean the same."""
    same = SAME[frame]
    if same.keys().isdisjoint(headers):
        return headers
    return {**{same[name]: value for name, value in headers.items() if name in same and value}, **headers}


def sent(frame: str, headers: Mapping[str, str], name: str) -> str:
    """What the client calls our header `name`."""
    if name in headers:
        return name
    same = SAME[frame]
    return next((each for each in reversed(list(headers)) if same.get(each) == name and headers[each]), name)


def refusal(frame: str, headers: Mapping[str, str]) -> str:
    """Why these headers cannot be obeyed; empty if they can."""
    refused = REFUSED[frame]
    if refused.keys().isdisjoint(headers):
        return ""
    return next(f"{name} is not supported: {refused[name]}" for name in headers if name in refused)


def ignored(frame: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Name -> a line for the log, for each header that asks for what is not done."""
    known, found = IGNORED[frame], {}
    for name in headers:
        if name in known:
            found[name] = f"{name} of {frame} is ignored: {known[name]}"
        elif frame == SUBSCRIBE and name.startswith(_PREFIXES) and name not in NAMES[frame] and name != "x-priority":
            found[name] = f"{name[:80]!r} of {frame} is ignored: {_POLICY}"
    return found
