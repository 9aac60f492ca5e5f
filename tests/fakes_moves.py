"""Moves of queues and subscriptions, broken on purpose: the simulated clients must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mombroker.broker.protocol import Settle
from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import Departure
from mombroker.core.names import Names
from tests.fakes_bus import replaced


def not_behind_the_end(_: Callable[..., bool]) -> Callable[..., bool]:
    """What is sent to the new home directly is taken at once, before what still comes by the old one."""
    return lambda arrival, message, envelope: False


def ended_at_the_decision(decided: Callable[[Departure], None]) -> Callable[[Departure], None]:
    """The old home does not wait until all servers have passed."""

    def at_once(departure: Departure) -> None:
        decided(departure)
        departure.waits = set()
        departure.queue.touch()

    return at_once


@contextmanager
def forgotten_too_early() -> Iterator[None]:
    """The same, and what then still comes to the old id is followed to nowhere."""
    with (
        replaced(Departure, "decided", ended_at_the_decision),
        replaced(Names, "successor", lambda _: lambda names, id: ""),
    ):
        yield


def taken_before_durable(take: Callable[..., None]) -> Callable[..., None]:
    """A page has its receipt, and what came with it no rows."""

    def in_memory(arrival: Arrival, item: Any, *more: Any) -> None:
        item.message.persistent = False
        take(arrival, item, *more)

    return in_memory


def sent_on_with_what_they_have(redirect: Callable[[Departure], None]) -> Callable[[Departure], None]:
    """What consumers have goes to the new home with the rest, as if they had never got it."""

    def at_once(departure: Departure) -> None:
        queue = departure.queue
        redirect(departure)
        for session, held in list(queue.messages.unacked.items()):
            queue.settlement.settle(Settle(1 << 40, released=list(held)), session)

    return at_once


def at_both_homes(_: Callable[..., bool]) -> Callable[..., bool]:
    """A subscription that moves takes what is published at whatever home it comes to."""
    return lambda subscription, knew: True


def ignores_what_is_under_way(_: Callable[..., bool]) -> Callable[..., bool]:
    """A durable subscription moves while its consumer has messages that may come back."""
    return lambda subscription: True
