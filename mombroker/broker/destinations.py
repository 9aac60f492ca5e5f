"""The dialects of destinations: what a client writes, and what the broker calls it (`queue:orders`, `topic:news`)."""

from __future__ import annotations

import re
from functools import lru_cache

from mombroker.broker.names import MAX_NAME
from mombroker.core.errors import MomError


class DestinationError(MomError):
    """A destination that is malformed or not allowed there: its frame is refused."""

    receipt = None  # as FrameError has it


QUEUE = "queue:"
AGENT = "agent:"  # of what nobody can consume from
PREFIXES = {
    "/queue/": "queue:",
    "/topic/": "topic:",
    "/remote-temp-queue/": "temp-queue:",
    "/remote-temp-topic/": "temp-topic:",
    "/reply-queue/": "temp-queue:",
    "/amq/queue/": "queue:",
    "/exchange/amq.topic/": "topic:",
    "/exchange/amq.fanout/": "topic:amq.fanout.",
    "jms.queue.": "queue:",
    "jms.topic.": "topic:",
    "queue://": "queue:",
    "topic://": "topic:",
    "/agent/": AGENT,
}
FANOUT = "/exchange/amq.fanout"
TEMPORARY = {"/temp-queue/": "temp-queue", "/temp-topic/": "temp-topic"}  # of the connection that says so
_TEMPORARY = tuple(TEMPORARY)
REMEMBERED = 65_536  # destinations: of as many that take turns none is read anew
MAX_SEVERAL = 10_000
OPTION = re.compile(r"\?[\w.-]+=")  # ActiveMQ takes them from the destination
REST = (">", "#")  # wildcards for all that follows; `*` is for one segment


@lru_cache(REMEMBERED)
def one(shown: str, asked: str = "") -> str:
    """The broker's name of a destination to send to; `asked` is its kind, if a header says so.

    Raises DestinationError."""
    kind, name = _parts(shown, asked)
    if "," in name:
        raise DestinationError(f"malformed destination {shown[:80]!r}: a SEND goes to one destination, without commas")
    if _wild(name):
        raise DestinationError(f"a SEND goes to one destination, and {shown[:80]!r} has a wildcard")
    return kind + name


def queue(shown: str) -> str | None:
    """The broker's name of a queue that is everybody's; None for any other destination, or what is none."""
    try:
        destination = one(shown)
    except DestinationError:  # as for one that is temporary
        return None
    return destination if destination.startswith(QUEUE) else None


@lru_cache(10_000)
def several(shown: str, asked: str = "", stored: bool = False) -> tuple[str, ...]:
    """The destinations of one subscription: a queue, or topics with commas between them. `asked` as for `one`;
    `stored`: it is there already, perhaps from before wildcards within words were refused. Raises DestinationError."""
    if len(shown) > MAX_SEVERAL:
        raise DestinationError(
            f"the destinations of one subscription have at most {MAX_SEVERAL} characters: use wildcards"
        )
    found = {}
    for part in shown.split(","):
        kind, name = _parts(part.strip(" "), asked)
        if kind == AGENT:
            raise DestinationError(f"{shown[:80]!r} is sent to: what an agent answers comes to the reply-to of a SEND")
        if _wild(name):
            _check_wildcards(kind, name, shown)
        if kind == "topic:" and not stored:
            check_words(name)
        found[kind + name] = kind
    if len(found) > 1 and set(found.values()) != {"topic:"}:
        raise DestinationError(f"{shown[:80]!r}: one subscription can have several topics, or one queue")
    return tuple(found)


def answered(shown: str) -> str:
    """The broker's name of where an agent is to answer. Raises DestinationError."""
    destination = one(shown)
    if destination.startswith(AGENT):
        raise DestinationError(f"{shown[:80]!r} is an agent, and another one answers to a queue or topic: name one")
    return destination


def shown_as(destination: str) -> str:
    """How a client writes what the broker calls so."""
    kind, _, name = destination.partition(":")
    return f"/remote-{kind}/{name}" if kind.startswith("temp-") else f"/{kind}/{name}"


def is_temporary(shown: str) -> bool:
    """True for a destination that only means something on its own connection."""
    return shown.startswith(_TEMPORARY)


def temporary(shown: str, session: str) -> tuple[str, str]:
    """The broker's name of a temporary destination of a session, and how other connections write it. Raises
    DestinationError."""
    prefix = next(prefix for prefix in TEMPORARY if shown.startswith(prefix))
    name = _checked(shown[len(prefix) :], shown)
    kind = TEMPORARY[prefix]
    return f"{kind}:{session}/{name}", f"/remote-{kind}/{session}/{name}"


def _parts(shown: str, asked: str) -> tuple[str, str]:
    """Kind and name. Without a prefix the kind is that which is asked for, or a queue."""
    kind, name = _written(shown)
    if asked and kind not in ("", asked):
        raise DestinationError(f"{shown[:80]!r} is a {kind[:-1]}, and a header asks for a {asked[:-1]}: leave that out")
    return kind or asked or "queue:", name


def _written(shown: str) -> tuple[str, str]:
    if shown == FANOUT:
        return "topic:", "amq.fanout"
    for prefix, kind in PREFIXES.items():
        if shown.startswith(prefix):
            kind, colon, start = kind.partition(":")
            return kind + colon, start + _checked(shown[len(prefix) :], shown)
    if shown.startswith("/"):
        raise DestinationError(f"no destination begins like {shown[:80]!r}: write /queue/NAME or /topic/NAME")
    return "", _checked(shown, shown)


def _checked(name: str, shown: str) -> str:
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        raise DestinationError(f"malformed destination {shown[:80]!r}: a name has 1 to {MAX_NAME} printable characters")
    if OPTION.search(name):
        raise DestinationError(
            f"{shown[:80]!r} has options in its name: write them as headers, as activemq.prefetchSize:1"
        )
    return name


def _wild(name: str) -> bool:
    return any(segment == "*" or segment in REST for segment in name.split("."))


def _check_wildcards(kind: str, name: str, shown: str) -> None:
    if kind != "topic:":
        raise DestinationError(f"{shown[:80]!r}: wildcards are for topics")
    if any(segment in REST for segment in name.split(".")[:-1]):
        raise DestinationError(f"{shown[:80]!r}: > and # stand for all that follows, at the end of a name")


def check_words(name: str) -> None:
    """Raises DestinationError for a topic, to be subscribed to, with a wildcard that is no whole word: it would stand
    for itself, and bring nothing."""
    for word in name.split("."):
        if word != "*" and word not in REST and any(wild in word for wild in ("*", *REST)):
            raise DestinationError(
                f"{name[:80]!r} has a wildcard within a word, {word[:40]!r}: * stands for one whole word between dots, "
                "as in prices.*, and > or # for all that follow, as in prices.>"
            )
