"""Agents that the tests of the net run."""

import time

from mombroker.agents import Agent, DeferDone, notification, reacts


@notification
class Note:
    text: str


@notification
class Pass:
    to: str
    text: str


@notification
class Later:
    seconds: float
    text: str


@notification
class Work:
    value: int


@notification
class Sleep:
    seconds: float


def double(value: int) -> int:
    return 2 * value


class Box(Agent):
    """Keeps what it gets, and does what it is told."""

    got: list = []

    @reacts
    def note(self, note: Note) -> None:
        self.got.append(note.text)

    @reacts
    def hand_on(self, note: Pass) -> None:
        self.send(note.to, Note(note.text))

    @reacts
    def later(self, note: Later) -> None:
        self.timer(note.seconds, Note(note.text))

    @reacts
    def work(self, note: Work) -> None:
        self.defer(double, note.value)

    @reacts
    def done(self, note: DeferDone) -> None:
        self.got.append(note.value)

    @reacts
    def sleep(self, note: Sleep) -> None:
        time.sleep(note.seconds)
