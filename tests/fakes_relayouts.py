"""Changes of the domains that are wrong on purpose: each breaks one rule of the freeze, and the judge must notice."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from mombroker.core.channel import Channel
from mombroker.core.gate import Gate
from mombroker.core.message import Message
from mombroker.core.reconfiguration import FROZEN, Plan, Reconfiguration

Method = Callable[..., Any]


def per_hop(put: Method) -> Method:
    """What waits is one entry for each next server: a multicast comes out as several."""

    def put_each(gate: Gate, message: Message, agents: list[str]) -> None:
        homes: dict[str, list[str]] = {}
        for agent in agents:
            homes.setdefault(agent.partition("/")[0], []).append(agent)
        for each in homes.values():
            put(gate, message, each)

    return put_each


def transit_too(stamp: Method) -> Method:
    """What is inside S waits at the gate, too."""

    def stamp_all(channel: Channel, message: Message, domain: str = "") -> Any:
        gate, behind = channel.gate, channel.gate.behind
        if not behind or message.type in ("_freeze", "_mark"):
            return stamp(channel, message, domain)
        gate.behind = {each: who for each, who in behind.items() if each != domain}  # as if it came from outside
        try:
            return channel._stamp_before_gate(message, domain)
        finally:
            gate.behind = behind

    return stamp_all


def forwards_pass(stamp_before_gate: Method) -> Method:
    """Only what the server itself sends waits."""

    def own_only(channel: Channel, message: Message, domain: str) -> Any:
        if domain:
            local, leaving = channel._ways(message.dests, domain)
            return channel._stamp_ways(message, local, leaving, domain)
        return stamp_before_gate(channel, message, domain)

    return own_only


def without_marks(turn: Method) -> Method:
    """Who is told to freeze switches, and waits for nobody."""

    def switch(change: Reconfiguration) -> bool:
        plan = change.plan
        if plan is not None and plan.phase == FROZEN:
            change._switch(plan)
        return bool(turn(change))

    return switch


def without_marks_of_others(turn: Method) -> Method:
    """Who is told to freeze switches as soon as nothing of its own is under way."""

    def switch(change: Reconfiguration) -> bool:
        if change.plan is not None:
            change.marks = set(change.plan.inside)
        return bool(turn(change))

    return switch


def in_any_order(entries: Method) -> Method:
    """What waits at the gate is let in in any order."""

    def shuffled(gate: Gate) -> Iterator[tuple[int, bytes, list[str]]]:
        rows = list(entries(gate))
        Random(len(rows)).shuffle(rows)
        return iter(rows)

    return shuffled


def only_changed(spanned: Method) -> Method:
    """S are the changed domains alone, without those between them."""

    def not_connected(members: Any, domains: set[str], servers: set[str]) -> set[str]:
        return domains

    return not_connected


def handed_over_first(deliver: Method) -> Method:
    """A message is handed over to this server's agents before its forwards are stamped."""

    def hand_over(channel: Channel, message: Message, *where: Any) -> Any:
        stamped = []
        later = channel._stamp

        def stamp(message: Message, domain: str = "") -> Any:
            local = [agent for agent in message.dests if agent.startswith(f"{channel.tx.name}/")]
            if local and not stamped:
                stamped.append(message)
                channel.engine.deliver(message, local, domain)
                return [], later(message, domain)[1]
            return later(message, domain)

        with patch.object(Channel, "_stamp", lambda channel, *args: stamp(*args)):
            return deliver(channel, message, *where)

    return hand_over


def greets_from_memory(durable: Method) -> Method:
    """Others are told of new domains before they are durable here."""
    return lambda neighbours: None


def keeps_out_queues(under_way: Method) -> Method:
    """It switches with the marks, whatever of its own is still under way."""
    return lambda change: iter(())


def forgets_the_gate(guard: Method) -> Method:
    """A restart opens the gate."""

    def open_again(change: Reconfiguration, plan: Plan) -> None:
        guard(change, plan)
        if change.tx.durable_batch == 0:
            change.channel.gate.behind = {}

    return open_again
