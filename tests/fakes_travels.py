"""Moves of agents, broken on purpose: the outsider must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mombroker.core.arrivals import Arrivals
from mombroker.core.departures import ENDS, SENDS, Departures
from mombroker.core.homes import Homes
from mombroker.core.ids import identity
from mombroker.core.inbox import Inbox
from mombroker.core.timers import Timers
from tests.fakes_bus import replaced


def not_behind_the_end(_: Callable[..., Any]) -> Callable[..., Any]:
    """What is sent to the new home directly is taken at once, before what still comes by the former one."""
    return lambda arrivals, message, agents, *where: [identity(agent) for agent in agents]


def leaves_at_the_decision(relocated: Callable[..., None]) -> Callable[..., None]:
    """The former home does not wait until all servers have passed."""

    def at_once(departures: Departures, id: str, *more: str) -> None:
        relocated(departures, id, *more)
        departure = departures.leaving.get(id)
        if departure is not None and departure.phase == ENDS:
            departure.phase, departure.waits = SENDS, []
            departures._keep(id)

    return at_once


def passes_before(relocated: Callable[..., None]) -> Callable[..., None]:
    """A server goes on to send to the former home for a while after it has passed: the table is late."""

    def late(homes: Homes, id: str, source: str, to: str) -> None:
        if homes.tx.name in (source, to):
            relocated(homes, id, source, to)
        else:
            homes.on_move(id, source, to)

    return late


def stays_too(gone: Callable[..., bool]) -> Callable[..., bool]:
    """The state leaves, and is still there."""

    def kept(departures: Departures, id: str) -> bool:
        row = departures.tx.written("agents", id)
        box = departures.engine.inboxes.boxes[id]
        gone(departures, id)
        departures.tx.rows.agents[id] = row
        box.name = ""
        return True

    return kept


def goes_on_while_it_leaves(_: Callable[..., None]) -> Callable[..., None]:
    """It reacts at its former home while pieces of it are on their way."""

    def only_a_box(departures: Departures, id: str) -> None:
        boxes = departures.engine.inboxes.boxes
        if id not in boxes:
            boxes[id] = Inbox(id, departures.tx.new_id())

    return only_a_box


def leaves_without_its_inbox(pieces: Callable[..., Any]) -> Callable[..., Any]:
    """What waits for it is deleted, and not sent."""

    def less(departures: Departures, id: str, departure: Any) -> Iterator[Any]:
        for data, delete in pieces(departures, id, departure):
            if data.startswith(b'["in"'):
                delete()
            else:
                yield data, delete

    return less


def reacts_before_all_is_here(_: Callable[..., None]) -> Callable[..., None]:
    """What came with it is for nobody, since its state is still on its way."""
    return lambda arrivals, id: None


def brought_ids_are_those_of_here(_: Callable[..., Any]) -> Callable[..., Any]:
    """A timer that has moved is cancelled by the id that it has here."""

    def cancel(timers: Timers, agent: str, shown: int) -> None:
        if task := timers.tasks.get(shown):
            timers.drop_task(task)

    return cancel


@contextmanager
def items_without_their_ids() -> Iterator[None]:
    """Items that have moved have the ids of their rows."""

    def take(right: Callable[..., None]) -> Callable[..., None]:
        def bare(arrivals: Arrivals, id: str, arrival: Any, head: Any, body: bytes, message: Any) -> None:
            if head[0] == "item":
                items = arrivals._collection(arrival, id, head[1])
                items.add(head[3], b"", body)
                items.accept()
            else:
                right(arrivals, id, arrival, head, body, message)

        return bare

    with replaced(Arrivals, "_take", take):
        yield
