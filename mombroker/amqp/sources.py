"""What the source of a link asks for, as a subscription of the broker."""

from __future__ import annotations

from mombroker.amqp import addresses
from mombroker.amqp.codec import INVALID, AmqpError
from mombroker.amqp.performatives import Terminus
from mombroker.broker.commands import Subscribe
from mombroker.broker.names import MAX_NAME

SELECTOR = (0x0000468C00000004, "apache.org:selector-filter:string")
NO_LOCAL = (0x0000468C00000003, "apache.org:no-local-filter:list")
SHARED, GLOBAL = "shared", "global"


def subscription(name: str) -> str:
    """The name of the subscription of a link: clients tell links of one by what follows a `|`. Raises AmqpError."""
    name = name.partition("|")[0]
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise AmqpError(f"the name of a subscription has 1 to {MAX_NAME} printable characters", INVALID)
    return name


def is_common(source: Terminus) -> bool:
    return GLOBAL in source.capabilities


def subscribe(sub: str, link: str, source: Terminus, destinations: tuple[str, ...], settled: bool) -> Subscribe:
    """Raises AmqpError."""
    command = Subscribe(sub, destinations, "auto" if settled else "individual", credit=0, take_over=False)
    for descriptor, found in source.filters.values():
        if descriptor in SELECTOR:
            if not isinstance(found, str):
                raise AmqpError("a selector is a text", INVALID)
            command.selector = str(found)
        elif descriptor in NO_LOCAL:
            command.no_local = True
    if not destinations[0].startswith("topic:"):
        command.browser = source.copies
        if command.browser:
            command.ack = "auto"  # it takes nothing
        return command
    shared, durable = SHARED in source.capabilities, source.durable > 0 or source.expiry == "never"
    if shared or durable:
        command.durable, command.shared, command.transient = subscription(link), shared, not durable
        command.common = shared and is_common(source)
    return command


def understood(source: Terminus) -> Terminus:
    """With those filters alone that are obeyed."""
    known = {name: each for name, each in source.filters.items() if each[0] in SELECTOR + NO_LOCAL}
    return source._replace(filters=known)


def temporary(shown: str, source: Terminus) -> str:
    """What a client writes for a new temporary destination with this name."""
    kind = addresses.kind_of(source.capabilities)
    return f"/temp-topic/{shown}" if kind.endswith("topic:") else f"/temp-queue/{shown}"
