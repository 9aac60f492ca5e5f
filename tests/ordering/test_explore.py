"""The explorer visits every schedule of a small domain; what is broken is found without luck."""

import pytest

from mombroker.ordering import backend, names
from mombroker.ordering.explore import Broken, explore
from mombroker.ordering.fifo import Fifo
from mombroker.ordering.ks import KS
from mombroker.ordering.matrix import Matrix
from mombroker.ordering.overlay import Overlay
from mombroker.ordering.testing import Eager
from mombroker.ordering.vector import Vector
from tests import fakes


def kind(name: str) -> dict[str, object]:
    size = 2 if name == "fifo" else 3
    return {"size": size, "options": backend(name).resolve(tuple("abc"[:size]), {})}


@pytest.mark.parametrize("restarts", [False, True], ids=["steady", "restarted"])
@pytest.mark.parametrize("name", names())
def test_a_back_end_stands_every_schedule_of_one_message_or_two(name, restarts):
    found = explore(backend(name), sends=1 if backend(name).own else 2, restarts=restarts, **kind(name))
    assert found.states > found.ends > 1


@pytest.mark.long
@pytest.mark.parametrize("restarts", [False, True], ids=["steady", "restarted"])
@pytest.mark.parametrize("name", names())
def test_every_back_end_stands_every_schedule_of_two_messages_or_three(name, restarts):
    explore(backend(name), sends=2 if backend(name).own else 3, restarts=restarts, **kind(name))


def test_the_states_of_two_members_and_one_message_can_be_counted():
    """Nothing sent; sent by one or by the other; and that arrived: five, of which three are at rest."""
    found = explore(Fifo, size=2, sends=1)
    assert (found.states, found.ends, found.deliveries) == (5, 3, 2)


class TooEarly(Vector):
    """Judged as if its packets went to their destinations only: then it waits for what has nothing to do with it."""

    spreads = False


class Claiming(Vector):
    """Tells for its past whatever has come, for others too: what it sends waits for that everywhere."""

    def send(self, dests, body):
        for k in range(self.size):
            if self.past[k] < self.counted[k]:
                self.past[k] = self.counted[k]
                self._changed.add(k)
        return super().send(dests, body)


class Nosy(Overlay):
    """Delivers what it only passes on, too."""

    def receive(self, frm, packet):
        step = super().receive(frm, packet)
        return type(step)(step.send, step.deliver or ([packet] if step.send else []))


@pytest.mark.parametrize(
    ("broken", "sends", "fault"),
    [
        (fakes.UncountedRST, 3, "before its cause"), (fakes.SelfCountedRST, 1, "nothing is on its way"),
        (fakes.Unicasts, 3, "before its cause"), (Eager, 3, "before its cause"), (TooEarly, 2, "nothing is missing"),
        (Claiming, 2, "nothing is missing"), (Nosy, 1, "delivers message 0, which is not for it"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_a_broken_back_end_is_found_with_the_steps_that_show_it(broken, sends, fault):
    with pytest.raises(Broken, match=fault) as caught:
        explore(broken, sends=sends)
    assert "sends message 0 to" in str(caught.value)


@pytest.mark.parametrize("core", [Matrix, KS])
def test_the_fault_tells_the_steps_in_order(core):
    class Forgets(core):  # type: ignore[misc, valid-type]
        def held(self):
            return [*super().held(), (None, [])]

    with pytest.raises(Broken, match="nothing is on its way, and at member 0 packets are held"):
        explore(Forgets, sends=1)
