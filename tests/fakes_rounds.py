"""Rounds of queues and of one session, broken on purpose: the simulated clients must notice."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.commands import SendRound
from mombroker.broker.queue import rounds
from mombroker.broker.queue.rounds import Settled
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.handlers import Handlers
from mombroker.broker.session.session import Session
from mombroker.core.natives import Natives

Taken = Callable[[Session, list[SessionConsumer], list[Any]], None]


def from_its_end(send_round: Callable[..., None]) -> Callable[..., None]:
    """What is sent to queues in turn is put there from the last to the first."""

    def send(handlers: Handlers, session: Session, run: SendRound) -> None:
        for values in (run.places, run.bodies, run.receipts):
            values.reverse()
        send_round(handlers, session, run)

    return send


def wrong_takers(take_round: Taken) -> Taken:
    """What queues have given goes to the next one's taker."""

    def take(session: Session, takers: list[SessionConsumer], items: list[Any]) -> None:
        take_round(session, [*takers[1:], takers[0]], items)

    return take


def without_its_last(take_round: Taken) -> Taken:
    """What the last queue of a round has given comes to nobody."""

    def take(session: Session, takers: list[SessionConsumer], items: list[Any]) -> None:
        take_round(session, takers[:-1], items[:-1])

    return take


@contextmanager
def settled(change: Callable[[Natives, Sequence[Settled], str], Sequence[Settled]]) -> Iterator[None]:
    """What a session settles of several queues is not quite what they hear."""
    settle = rounds.settle

    def settle_changed(natives: Natives, round: Sequence[Settled], source: str) -> bool:
        return settle(natives, change(natives, round, source), source)

    with patch.object(rounds, "settle", settle_changed):
        yield


def one_queue_forgotten(natives: Natives, round: Sequence[Settled], source: str) -> Sequence[Settled]:
    return round[:-1]


def one_id_too_many(natives: Natives, round: Sequence[Settled], source: str) -> Sequence[Settled]:
    """Of each queue, the last of those that its session has and does not settle."""
    changed = []
    for home, number, accepted, credit in round:
        queue: Any = natives.agents.get(home)
        held = queue.messages.unacked.get(source, {}) if queue is not None else {}
        more = [id for id in held if id not in accepted][-1:]
        changed.append((home, number, [*accepted, *more], credit))
    return changed
