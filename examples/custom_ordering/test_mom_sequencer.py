"""What the author of a back end runs: the conformance kit, and a control that it must catch."""

import random
from collections.abc import Iterable

import pytest
from mom_sequencer import Sequencer

from mombroker.ordering import Packet, Step
from mombroker.ordering.testing import Nonconforming, caught, conform, run


def test_it_conforms():
    conform(Sequencer, range(100), random.Random)


def test_any_member_may_be_the_sequencer():
    conform(Sequencer, range(100, 130), random.Random, options=lambda size: {"sequencer": size - 1})


class Hasty(Sequencer):
    """Does not wait for the packet before."""

    def receive(self, frm: int, packet: Packet) -> Step:
        self.received[frm] = packet.stamp - 1
        return super().receive(frm, packet)

    def check(self) -> None:
        """The judge shall see it, not the core."""


def test_the_kit_catches_one_that_does_not_wait():
    assert caught(Hasty, range(100), random.Random) < 100


class Impatient(Sequencer):
    """Delivers a member's own copies when they are sent, and not when they return: two members get two orders."""

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests = tuple(dests)
        at_once = self.me in dests and self.me != self.sequencer
        packets = super().send(dests, body)
        return [*packets, self._packet(self.me, dests, body, self.me)] if at_once else packets

    def _release(self, key: tuple[int, int], came: tuple[int, int], step: Step) -> None:
        packet = self._held[key]
        super()._release(key, came, step)
        if packet.origin == self.me != key[0]:
            step.deliver.remove(packet)
            if key != came:
                step.freed = [*step.freed, packet]


def test_the_kit_catches_one_with_two_orders():
    with pytest.raises(Nonconforming, match="no one order of messages"):
        for seed in range(100):
            run(Impatient, seed, random.Random)


def test_its_option_is_checked():
    members = ("paris", "lyon", "nice")
    assert Sequencer.validate(members, {"sequencer": "lyon"}) == []
    assert Sequencer.resolve(members, {"sequencer": "lyon"}) == {"sequencer": 1}
    assert Sequencer.validate(members, {"sequencer": "rome", "speed": 2}) == [
        "unknown option 'speed': it has sequencer; take it out",
        "sequencer names a server of this domain: choose one of paris, lyon, nice",
    ]
