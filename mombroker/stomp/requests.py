"""What headers ask for: those of SEND and SUBSCRIBE in the dialects of brokers. Raises FrameError throughout."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from mombroker.broker import destinations
from mombroker.broker.commands import MAX_PREFETCH, MODIFIED, REJECTED, RELEASED, REQUEUED, Send, Subscribe
from mombroker.broker.names import MAX_NAME
from mombroker.broker.shapes import getter
from mombroker.broker.texts import boolean
from mombroker.core import times
from mombroker.core.trace import traceparent
from mombroker.stomp import foreign
from mombroker.stomp.foreign import SEND, SUBSCRIBE
from mombroker.stomp.frames import Frame, FrameError
from mombroker.stomp.headers import SAID

ACKS = {"auto": "auto", "client": "client", "client-individual": "individual"}
KINDS = {"": "", "ANYCAST": "queue:", "MULTICAST": "topic:"}
MAX_BEAT_MS = 86_400_000
MAX_DIGITS = 18
MAX_KEY = 1_000
_MESSAGE_ID = re.compile(r"[!-.0-9;-\[\]-~]{1,100}")  # means itself in every version, and ends before a "/"

DURABLE = "durable-subscription-name"
SHARED = "shared-subscription-name"


def key(name: str, text: str) -> str:
    """What a server keeps in order to find something again."""
    if len(text) > MAX_KEY:
        raise FrameError(f"{name} has at most {MAX_KEY} characters, not {len(text)}")
    return text


def number(name: str, text: str, signed: bool = False) -> int:
    text = text.strip(" ")
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise FrameError(f"{name} must be a number, not {text[:40]!r}")
    return int(text)


def span(name: str, text: str) -> int:
    """A number of ms, in ns. One that is too large, however long, is the largest: clients write such for never."""
    text = text.strip(" ")
    if text.isascii() and text.isdigit() and len(text) > MAX_DIGITS:
        return times.LAST_NS
    return times.of_ms(number(name, text))


def flag(headers: dict[str, str], name: str, sent: str = "") -> bool:
    """False without the header, which the client may have `sent` by another name."""
    return truth(sent or name, headers.get(name, "false"))


def truth(name: str, text: str) -> bool:
    """Python programs write True and False."""
    value = boolean(text)
    if value is None:
        raise FrameError(f"{name} must be true or false, not {text[:40]!r}")
    return value


# -- SEND ----------------------------------------------------------------------------------------------------------


def _priority(name: str, text: str) -> int:
    return min(9, number(name, text))


def _dedup(name: str, text: str) -> tuple[str, int]:
    producer, _, counter = text.rpartition(":")
    if not producer:
        raise FrameError(f"{name} must be PRODUCER:NUMBER, with a number that rises, not {text[:40]!r}")
    return key(name, producer), number("the number in dedup-id", counter)


def _message_id(name: str, text: str) -> str:
    if not _MESSAGE_ID.fullmatch(text):
        raise FrameError(f"{name} is 1 to 100 ASCII characters without blank, : / and \\, not {text[:40]!r}")
    return text


def _parent(name: str, text: str) -> str:
    """Any other text is a property like others."""
    return traceparent(text)


class Option(NamedTuple):
    """A header by which a SEND asks for something.

    field      of Send, which has its value; empty: `options` has code for it
    read       (name, text) -> that value: `truth`, `number`, `span` or `key`, or one of its own. Raises FrameError
    jms        mombroker.jms has an option that is called as the field, and writes it so, if it is not the default
    property   it is a property of the message, too
    """

    name: str
    field: str = ""
    read: Callable[[str, str], Any] = key
    jms: bool = False
    property: bool = False


ROWS = (
    Option("priority", "priority", _priority, jms=True),
    Option("persistent", "persistent", truth, jms=True),
    Option("expires", "expires", span),
    Option("expiration"),
    Option("AMQ_SCHEDULED_DELAY", "delay", span),
    Option("AMQ_SCHEDULED_TIME"),
    Option("JMSXGroupID", "group", key, property=True),
    Option("JMSXGroupSeq", property=True),
    Option("amq-msg-type"),
    Option("dedup-id", "dedup", _dedup),
    Option("JMSMessageID", "message", _message_id),
    Option("stamp-user", "stamp_user", truth, jms=True),
    Option("traceparent", "parent", _parent, property=True),
)
_READ = {row.name: (row.field, row.read) for row in ROWS if row.field}
# What `options` looks at: no properties of the message, but for those that also are some.
OPTIONS = frozenset((*(row.name for row in ROWS), *foreign.NAMES[SEND]))
PROPERTIES = frozenset(row.name for row in ROWS if row.property)
# What is no property of a message: of the frame, the broker's, or an option. It does not travel as it is.
CONTROL = SAID | {"receipt", "transaction"} | (OPTIONS - PROPERTIES).difference(foreign.IGNORED[SEND])


class Now:
    """Wall clock in ns. Once it is `asked`, what was made of a frame holds for this moment alone."""

    __slots__ = ("asked", "_clock")

    def __init__(self, clock: Callable[[], int]):
        self.asked, self._clock = False, clock

    def __call__(self) -> int:
        self.asked = True
        return self._clock()


def options(command: Send, headers: dict[str, str], now: Callable[[], int]) -> None:
    """How a message is to be kept and delivered. Equal headers mean the same, unless `now` is asked."""
    if why := foreign.refusal(SEND, headers):
        raise FrameError(why)
    theirs, headers = headers, foreign.ours(SEND, headers)
    for name in headers:
        if name in _READ:
            field, read = _READ[name]
            shown = name if headers is theirs else foreign.sent(SEND, theirs, name)
            setattr(command, field, read(shown, headers[name]))
    get = headers.get
    if (given := get("destination-type")) is not None:
        kind = _kind("destination-type", given, command.shown)
        if not destinations.is_temporary(command.shown):
            command.destination = destinations.one(command.shown, kind)
    if (given := get("expiration")) is not None and "expires" not in headers:
        command.expires = times.after(now(), span(foreign.sent(SEND, theirs, "expiration"), given))
    if (given := get("AMQ_SCHEDULED_TIME")) is not None and "AMQ_SCHEDULED_DELAY" not in headers:
        command.delay = max(0, span(foreign.sent(SEND, theirs, "AMQ_SCHEDULED_TIME"), given) - now())
    if command.group:
        command.group_seq = number("JMSXGroupSeq", get("JMSXGroupSeq", "0"), signed=True)
    if given := get("amq-msg-type"):
        command.kind = key("amq-msg-type", given)
    if (given := get("_AMQ_DUPL_ID")) is not None and "dedup-id" not in headers:
        if not given:
            raise FrameError("_AMQ_DUPL_ID is empty: leave it out")
        command.dedup = (key("_AMQ_DUPL_ID", given), 0)


Values = tuple[Any, ...]
# Known.told, and what equal frames have in common: the values before the body (the destination), between body and
# receipt (the last is the destination as it was written), and behind that.
Model = tuple[dict[str, str], Values, Values, Values]
_FIELDS = [each.name for each in fields(Send)]
_BODY, _RECEIPT = _FIELDS.index("body"), _FIELDS.index("receipt")
_values = getter(*_FIELDS)
assert _BODY == _FIELDS.index("destination") + 1 == 1 and _RECEIPT == _FIELDS.index("shown") + 1, "see Model"


def model_of(told: dict[str, str], command: Send) -> Model:
    """What later frames that are equal to that of this command have in common."""
    values = _values(command)
    return told, values[:_BODY], values[_BODY + 1 : _RECEIPT], values[_RECEIPT + 1 :]


# -- SUBSCRIBE -----------------------------------------------------------------------------------------------------


def wanted(headers: dict[str, str], session: str) -> tuple[str, ...]:
    """The destinations of a SUBSCRIBE."""
    shown = headers["destination"]
    kind = _kind("subscription-type", headers.get("subscription-type", ""), shown)
    if destinations.is_temporary(shown):
        return (destinations.temporary(shown, session)[0],)
    return destinations.several(shown, kind)


def _kind(name: str, text: str, shown: str) -> str:
    """What Artemis calls the kind of a destination; empty: as the destination says."""
    kind = KINDS.get(text.strip(" ").upper())
    if kind is None:
        raise FrameError(f"{name} must be ANYCAST or MULTICAST, not {text[:40]!r}")
    if kind and destinations.is_temporary(shown) and not shown.startswith(f"/temp-{kind[:-1]}/"):
        raise FrameError(f"{shown[:80]!r} is no {kind[:-1]}: leave {name} out")
    return kind


def subscribe(headers: dict[str, str], sub: str, wanted: tuple[str, ...]) -> Subscribe:
    """A subscription `sub` to the destinations `wanted`."""
    if why := foreign.refusal(SUBSCRIBE, headers):
        raise FrameError(why)
    sent = partial(foreign.sent, SUBSCRIBE, headers)
    headers = foreign.ours(SUBSCRIBE, headers)
    get = headers.get
    ack = ACKS.get(get("ack", "auto").strip(" "))
    if ack is None:
        raise FrameError(f"ack must be auto, client or client-individual, not {headers['ack'][:40]!r}")
    if flag(headers, "activemq.retroactive"):
        raise FrameError("activemq.retroactive is not supported: use a durable subscription")
    command = Subscribe(
        sub,
        wanted,
        ack,
        get("selector", ""),
        no_local=flag(headers, "no-local", sent("no-local")),
        prefetch=_prefetch(headers, sent("prefetch-count")),
        exclusive=flag(headers, "exclusive", sent("exclusive")),
        priority=number(sent("x-priority"), get("x-priority") or "0", signed=True),
        browser=flag(headers, "browser"),
        receipt=get("receipt"),
        take_over="take-over" not in headers or flag(headers, "take-over"),
    )
    if command.browser and ack != "auto":
        raise FrameError("a browser takes nothing: it must have ack:auto")
    if wanted[0].startswith("topic:"):
        if command.browser:
            raise FrameError("only a queue can be browsed")
        _durability(command, headers)
    return command


def _prefetch(headers: dict[str, str], sent: str) -> int:
    """Messages; 0 is the default. Artemis counts a window in bytes: 0 is one message at a time, -1 all there is."""
    if (text := headers.get("prefetch-count")) or "consumer-window-size" not in headers:
        return min(MAX_PREFETCH, number(sent, text or "0"))
    window = number("consumer-window-size", headers["consumer-window-size"], signed=True)
    return MAX_PREFETCH if window < 0 else min(MAX_PREFETCH, max(1, window // 1024))


def durable_name(headers: dict[str, str]) -> str:
    """The name that a header gives a durable subscription; empty: none does."""
    return foreign.ours(SUBSCRIBE, headers).get(DURABLE, "")


def asks_durable(headers: dict[str, str]) -> bool:
    """Durable by a flag: id and destination are its name."""
    ends = flag(headers, "auto-delete")
    persistent = flag(headers, "persistent") and "auto-delete" in headers
    return (flag(headers, "durable") or persistent) and not ends


def named_by_flag(id: str, headers: dict[str, str]) -> str:
    """The name of a subscription that is durable by a flag."""
    return f"{id}@{headers['destination']}"


def ends_durable(headers: dict[str, str]) -> bool:
    """An UNSUBSCRIBE that repeats a flag of `asks_durable`."""
    return flag(headers, "durable") or flag(headers, "persistent")


def _durability(command: Subscribe, headers: dict[str, str]) -> None:
    """Of a subscription to topics; one to a queue needs none."""
    shared = flag(headers, "shared")
    if name := durable_name(headers):
        command.durable, command.shared = name, shared
    elif name := headers.get(SHARED, ""):
        command.durable, command.shared, command.transient = name, True, True
    elif asks_durable(headers):
        if "id" not in headers:
            raise FrameError("SUBSCRIBE with durable:true needs an id, which is a part of the subscription's name")
        command.durable, command.shared = named_by_flag(command.sub, headers), True
    elif shared:
        raise FrameError(f"a shared subscription needs {SHARED}, or {DURABLE} to be durable, too")
    if command.durable:
        check_name("the name of a subscription", name or command.sub)


def check_name(what: str, name: str) -> None:
    """Of a client or subscription: it becomes the name of an agent, as that of a destination does."""
    if len(name) > MAX_NAME or not name.isprintable():
        raise FrameError(f"{what} has at most {MAX_NAME} printable characters")


# -- other frames --------------------------------------------------------------------------------------------------


def heart_beat(text: str) -> tuple[int, int]:
    """In ms: as often the client can send one, and wants one."""
    parts = text.split(",")
    if len(parts) != 2:
        raise FrameError(f"heart-beat must be two numbers of milliseconds, not {text[:40]!r}")
    x, y = (min(MAX_BEAT_MS, number("heart-beat", part.strip(" "))) for part in parts)
    return x, y


def given_back(headers: dict[str, str]) -> str:
    """The outcome that a NACK means."""
    requeue = flag(headers, "requeue") if "requeue" in headers else None
    if flag(headers, "unseen"):
        return RELEASED
    return MODIFIED if requeue is None else REQUEUED if requeue else REJECTED


def transaction_of(frame: Frame) -> str:
    """The name of the one that a BEGIN, COMMIT or ABORT is of."""
    name = frame.headers.get("transaction")
    if not name:
        raise FrameError(f"{frame.command} needs a transaction")
    return key("transaction", name)
