"""Rules of questions to agents, broken on purpose: those who ask must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mombroker.broker.commands import Ask
from mombroker.broker.native import Native
from mombroker.broker.queue.dedup import Dedup
from mombroker.broker.session.handlers import Handlers
from mombroker.broker.session.questions import ASKED, Questions
from mombroker.broker.session.session import Session
from mombroker.core.engine import Engine
from mombroker.core.message import Message, new_message
from mombroker.core.reaction import ANSWER, Reaction
from mombroker.sim.world import MS
from tests.fakes_bus import replaced


def no_repeats(_: Callable[..., bool]) -> Callable[..., bool]:
    """A question that is sent again is another question."""

    def enters(questions: Questions, message: Message, agent: str) -> bool:
        return True

    return enters


@contextmanager
def asked_in_memory() -> Iterator[None]:
    """What an agent was asked is known as long as its server runs."""

    def unwritten(fresh: Callable[[Dedup, str, int], bool]) -> Callable[[Dedup, str, int], bool]:
        def only_now(dedup: Dedup, producer: str, counter: int) -> bool:
            new = fresh(dedup, producer, counter)
            if dedup.rows == ASKED:
                items = dedup.tx.rows.items
                for id in [id for id, row in items.items() if row and row.collection == ASKED]:
                    del items[id]
            return new

        return only_now

    with replaced(Dedup, "fresh", unwritten):
        yield


class Delay(Native):
    """Sends what it is given a moment later."""

    def __init__(self, *of: Any):
        super().__init__(*of, volatile=True)
        self.waiting: list[Message] = []

    def alarm(self) -> None:
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            self.natives.send(message)


def asked_later(ask: Callable[..., None]) -> Callable[..., None]:
    """A question leaves when other things that its client has sent later are on their way."""

    def later(handlers: Handlers, session: Session, command: Ask) -> None:
        natives = handlers.natives
        id = f"{natives.tx.name}/_delay"
        delay: Any = natives.agents.setdefault(id, Delay(natives, id))
        handlers._askable(session, command)
        delay.waiting.append(handlers._question(session, command))
        delay.alarm_at(natives.tx.now + 20 * MS)
        handlers._done(session, command)

    return later


@contextmanager
def answered_at_once() -> Iterator[None]:
    """What a reaction tells a client leaves, whatever becomes of the reaction."""
    engines: dict[int, Engine] = {}

    def registered(init: Callable[..., None]) -> Callable[..., None]:
        def made(engine: Engine, *of: Any) -> None:
            init(engine, *of)
            engines[id(engine.tx)] = engine

        return made

    def at_once(send: Callable[..., None]) -> Callable[..., None]:
        def sent(reaction: Reaction, to: tuple[str, ...], type: str, payload: bytes, *more: Any) -> None:
            if type != ANSWER:
                send(reaction, to, type, payload, *more)
            elif to:
                message = new_message(reaction.tx, reaction.agent, to, type, payload)
                engines[id(reaction.tx)].send(message)

        return sent

    with replaced(Engine, "__init__", registered), replaced(Reaction, "send", at_once):
        yield


def stays_behind(_: Callable[..., Any]) -> Callable[..., Any]:
    """What an agent was asked stays at its former home when it moves."""
    return lambda questions, agent: iter(())
