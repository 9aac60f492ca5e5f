"""Losses that are wrong on purpose: each breaks a rule of going on without a lost server, and the judge must notice."""

from collections.abc import Callable
from typing import Any

from mombroker.broker.message import ClientMessage
from mombroker.broker.session.orphans import Orphans
from mombroker.broker.wire import note_of
from mombroker.core.loss_reports import Loss
from mombroker.core.losses import Losses

Method = Callable[..., Any]


def without_reports(settled: Method) -> Method:
    """Who learns of the loss begins the domain anew, and waits for nobody."""
    return lambda losses, loss: True


def only_what_is_acknowledged(settled: Method) -> Method:
    """It begins anew once its own packets have arrived, whatever others have sent."""

    def own(losses: Losses, loss: Loss) -> bool:
        return not any(link.waiting() for link in losses.reports[loss.domain].others(loss.lost))

    return own


def open_gate(guard: Method) -> Method:
    """What is sent into the domain meanwhile is sent."""
    return lambda losses: None


def nobody_is_told(undeliverable: Method) -> Method:
    """What was on the way is dropped."""
    return lambda dead, message, agent, reason: False


def held_are_dropped(held: Method) -> Method:
    """What waits for lost causes goes without a word."""
    return lambda channel, part: iter(())


def no_fence(judge: Method) -> Method:
    """A lost server that comes back with its old store is let in."""

    def lets_in(losses: Losses, hello: Any, domain: str) -> None:
        loss = losses.losses.get(domain)
        if not losses.fences.fenced(hello.server) and not (loss and hello.server in loss.lost):
            judge(losses, hello, domain)

    return lets_in


def sent_anew(bury: Method) -> Method:
    """What waited for the lost server is sent again, and stamped anew."""

    def again(losses: Losses, loss: Loss, message: Any, part: Any, ways: Any, unsent: bool) -> None:
        losses.channel.send(message)

    return again


def sent_on(follow: Method) -> Method:
    """What comes to a queue's former home is sent on to whoever has the name by now."""

    def on(orphans: Orphans, message: Any, agent: str, to: str) -> bool:
        if message.type != ClientMessage.wire:
            return bool(follow(orphans, message, agent, to))
        orphans.natives.post(message.source, to, note_of(message).copy())
        return True

    return on
