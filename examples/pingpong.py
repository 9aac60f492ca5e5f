"""The measurement of paper 004 §6.1: a main agent sends to echo agents and waits until all have answered.

To one echo agent on its own server, to one on another server, or to all (a broadcast): the same agent does all three.
"""

import time

from mombroker.agents import Agent, notification, reacts


@notification
class Play:
    """Make `rounds` round trips, each to all the agents of `to`."""

    to: list[str]
    rounds: int = 100


@notification
class Ping:
    round: int


@notification
class Pong:
    round: int


class Main(Agent):
    to: list[str] = []
    left: int = 0  # rounds
    missing: int = 0  # answers to this round
    began: int = 0  # ns, of this round
    times: list[int] = []  # ns, of each finished round

    @reacts
    def play(self, play: Play) -> None:
        self.to, self.left, self.times = play.to, play.rounds, []
        self._ping()

    @reacts
    def pong(self, pong: Pong) -> None:
        if pong.round != self.left:
            return  # of an earlier game
        self.missing -= 1
        if not self.missing:
            # The machine's own clock, since the server's stands still during one turn of its loop.
            self.times.append(time.monotonic_ns() - self.began)
            self.left -= 1
            if self.left:
                self._ping()

    def _ping(self) -> None:
        self.missing = len(self.to)
        self.began = time.monotonic_ns()
        self.send(self.to, Ping(self.left))


class Echo(Agent):
    @reacts
    def echo(self, ping: Ping) -> None:
        self.reply(Pong(ping.round))
