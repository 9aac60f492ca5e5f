"""What the author of a back end runs: the conformance kit, and a control that it must catch."""

import random

from mom_sequencer import Sequencer

from mombroker.ordering import Packet, Step
from mombroker.ordering.testing import caught, conform


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


def test_its_option_is_checked():
    members = ("paris", "lyon", "nice")
    assert Sequencer.validate(members, {"sequencer": "lyon"}) == []
    assert Sequencer.resolve(members, {"sequencer": "lyon"}) == {"sequencer": 1}
    assert Sequencer.validate(members, {"sequencer": "rome", "speed": 2}) == [
        "unknown option 'speed': it has sequencer",
        "sequencer names a server of this domain: choose one of paris, lyon, nice",
    ]
