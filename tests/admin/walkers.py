"""Agents that keep a bus busy: each message that one gets makes it send more, until they have walked far enough."""

import random

from mombroker.agents import Agent, notification, reacts


@notification
class Walk:
    left: int
    seed: int


class Walker(Agent):
    """Passes each walk on to one or two of `others`, chosen by the walk's own seed."""

    others: list = []
    steps: int = 0

    @reacts
    def walk(self, note: Walk) -> None:
        self.steps += 1
        if note.left:
            chance = random.Random(note.seed)
            to = chance.sample(self.others, chance.choice([1, 1, 2]))
            self.send(to, Walk(note.left - 1, chance.randrange(1 << 30)))
