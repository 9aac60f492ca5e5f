"""What the headers of SEND and SUBSCRIBE ask for, in the dialects of several brokers. Raises FrameError throughout."""

from __future__ import annotations

from mombroker.agents.commands import Send, Subscribe
from mombroker.core import times
from mombroker.stomp.destinations import MAX_NAME
from mombroker.stomp.frames import FrameError

ACKS = {"auto": "auto", "client": "client", "client-individual": "individual"}
MAX_PREFETCH = 10_000
MAX_DIGITS = 18

OPTIONS = frozenset((
    "priority", "persistent", "expires", "expiration", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "JMSXGroupID",
    "amq-msg-type", "dedup-id", "AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT",
))  # fmt: skip
REPEATS = ("AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT")
DURABLE = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",  # as it was once misspelt
)
SHARED = "shared-subscription-name"


def number(name: str, text: str, signed: bool = False) -> int:
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise FrameError(f"{name} must be a number, not {text[:40]!r}")
    return int(text)


def span(name: str, text: str) -> int:
    """A number of ms, in ns. One that is too large, however long, is the largest: clients write such for never."""
    if text.isascii() and text.isdigit() and len(text) > MAX_DIGITS:
        return times.LAST_NS
    return times.of_ms(number(name, text))


def flag(headers: dict[str, str], *names: str) -> bool:
    """The first of these headers that is there; False without any."""
    for name in names:
        text = headers.get(name)
        if text is not None:
            if text not in ("true", "false"):
                raise FrameError(f"{name} must be true or false, not {text[:40]!r}")
            return text == "true"
    return False


def options(command: Send, headers: dict[str, str], now: int) -> None:
    """How a message is to be kept and delivered; `now` is wall clock in ns."""
    get = headers.get
    if (text := get("priority")) is not None:
        command.priority = min(9, number("priority", text))
    if "persistent" in headers:
        command.persistent = flag(headers, "persistent")
    if (text := get("expires")) is not None:
        command.expires = span("expires", text)
    elif (text := get("expiration")) is not None:
        command.expires = times.after(now, span("expiration", text))
    if (text := get("AMQ_SCHEDULED_DELAY")) is not None:
        command.delay = span("AMQ_SCHEDULED_DELAY", text)
    elif (text := get("AMQ_SCHEDULED_TIME")) is not None:
        command.delay = max(0, span("AMQ_SCHEDULED_TIME", text) - now)
    if text := get("JMSXGroupID"):
        command.group = text
        command.group_seq = number("JMSXGroupSeq", get("JMSXGroupSeq", "0"), signed=True)
    if text := get("amq-msg-type"):
        command.kind = text
    if (text := get("dedup-id")) is not None:
        producer, _, counter = text.rpartition(":")
        if not producer:
            raise FrameError(f"dedup-id must be PRODUCER:NUMBER, with a number that rises, not {text[:40]!r}")
        command.dedup = (producer, number("the number in dedup-id", counter))
    for name in REPEATS:
        if name in headers:
            raise FrameError(f"{name} is not supported: send each message, with AMQ_SCHEDULED_DELAY or _TIME")


def subscribe(headers: dict[str, str], sub: str, wanted: tuple[str, ...]) -> Subscribe:
    """A subscription `sub` to the destinations `wanted`."""
    get = headers.get
    ack = ACKS.get(get("ack", "auto"))
    if ack is None:
        raise FrameError(f"ack must be auto, client or client-individual, not {headers['ack'][:40]!r}")
    if flag(headers, "activemq.retroactive"):
        raise FrameError("activemq.retroactive is not supported: use a durable subscription")
    prefetch = get("prefetch-count") or get("activemq.prefetchSize") or "0"
    command = Subscribe(
        sub,
        wanted,
        ack,
        get("selector", ""),
        no_local=flag(headers, "no-local", "activemq.noLocal"),
        prefetch=min(MAX_PREFETCH, number("prefetch-count", prefetch)),
        exclusive=flag(headers, "exclusive", "activemq.exclusive"),
        priority=number("the priority", get("activemq.priority") or get("x-priority") or "0", signed=True),
        browser=flag(headers, "browser"),
        receipt=get("receipt"),
    )
    if command.browser and ack != "auto":
        raise FrameError("a browser takes nothing: it must have ack:auto")
    if wanted[0].startswith("topic:"):
        if command.browser:
            raise FrameError("only a queue can be browsed")
        _durability(command, headers)
    return command


def durable_name(headers: dict[str, str]) -> str:
    """The name that a header gives a durable subscription; empty: none does."""
    return next((headers[name] for name in DURABLE if headers.get(name)), "")


def asks_durable(headers: dict[str, str]) -> bool:
    """Durable by a flag: id and destination are its name."""
    kept = headers.get("auto-delete")
    return (flag(headers, "durable") and kept != "true") or (flag(headers, "persistent") and kept == "false")


def _durability(command: Subscribe, headers: dict[str, str]) -> None:
    """Of a subscription to topics; one to a queue needs none."""
    shared = flag(headers, "shared")
    if name := durable_name(headers):
        command.durable, command.shared = name, shared
    elif name := headers.get(SHARED, ""):
        command.durable, command.shared, command.transient = name, True, True
    elif asks_durable(headers):
        command.durable, command.shared = f"{command.sub}@{headers['destination']}", True
    elif shared:
        raise FrameError(f"a shared subscription needs {SHARED}, or {DURABLE[0]} to be durable, too")
    if command.durable:
        check_name("the name of a subscription", name or command.sub)


def check_name(what: str, name: str) -> None:
    """Of a client or subscription: it becomes the name of an agent, as that of a destination does."""
    if len(name) > MAX_NAME or not name.isprintable():
        raise FrameError(f"{what} has at most {MAX_NAME} printable characters")
