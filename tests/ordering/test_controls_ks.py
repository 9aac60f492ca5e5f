"""The must-fail controls of protocols §12.2 for KS. One that passes means that the checks are blind."""

import random
from collections.abc import Iterable

import pytest

from mombroker.ordering import Packet
from mombroker.ordering.holdback import Key, Need
from mombroker.ordering.ks import KS, Entries, Stamp
from mombroker.ordering.testing import Nonconforming, caught, conform, run
from tests.ordering.plain import Scene
from tests.ordering.test_ks import compare


class Trimmed(KS):
    """A broken log, trimmed after every step."""

    def trim(self) -> None:
        raise NotImplementedError

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        packets = super().send(dests, body)
        self.trim()
        return packets

    def _deliver(self, key: Key, packet: Packet) -> Need:
        met = super()._deliver(key, packet)
        self.trim()
        return met

    def _judge(self, frm: int, dests: tuple[int, ...], stamp: Stamp) -> None: ...

    def check(self) -> None: ...


class NewestOnly(Trimmed):
    """The log keeps nothing but the newest entry of each sender."""

    def trim(self) -> None:
        for s, entries in list(self.records.items()):
            self._put(s, tuple(entry for entry in entries if entry[0] == self.newest[s]))


class Forgetful(Trimmed):
    """All empty entries are dropped, the newest ones too."""

    def trim(self) -> None:
        for s in range(self.size):
            self.newest[s] = self.records[s][-1][0] if s in self.records else 0


class Older(KS):
    """An entry that is older than the newest of the other side is dropped, also when that side has it."""

    @staticmethod
    def _merge(mine: Entries, newest: int, theirs: Entries, last: int) -> Entries:
        entries = {t: mask for t, mask in theirs if t >= newest}
        for t, mask in mine:
            if t >= last:
                entries[t] = mask & entries.get(t, mask if t > last else 0)
        return tuple(sorted((t, mask) for t, mask in entries.items() if mask))


class Union(KS):
    """Who is named in an entry on either side stays named."""

    @staticmethod
    def _merge(mine: Entries, newest: int, theirs: Entries, last: int) -> Entries:
        entries = dict(KS._merge(mine, newest, theirs, last))
        for t, mask in mine:
            if dict(theirs).get(t):
                entries[t] = mask | dict(theirs)[t]
        return tuple(sorted(entries.items()))

    def _judge(self, frm: int, dests: tuple[int, ...], stamp: Stamp) -> None: ...

    def check(self) -> None: ...


def two_on_the_way(scene: Scene) -> None:
    """a (slow) and b, which names others, are sent by one member: the next who writes to a's destination knows of b."""
    scene.send("a", 0, 2)
    scene.send("b", 0, 1, 3)
    scene.arrive("b", 1)
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    scene.arrive("a", 2)
    scene.arrive("b", 3)


def known_to_both(scene: Scene) -> None:
    """Two members know of a (slow), and of b that the same member sent after it; one writes to the other."""
    scene.send("a", 0, 3)
    scene.send("b", 0, 1, 2)
    scene.arrive("b", 1)
    scene.arrive("b", 2)
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    scene.send("d", 2, 3)
    scene.arrive("d", 3)
    scene.arrive("a", 3)


@pytest.mark.parametrize(("broken", "vector"), [(NewestOnly, two_on_the_way), (Older, known_to_both)])
def test_a_broken_core_is_caught_by_a_vector_that_the_intact_one_stands(broken, vector):
    for kind, fault in ((KS, "fine"), (broken, "unsafe")):
        scene = Scene(kind, 4)
        vector(scene)
        assert scene.verdict() == fault


# `mombroker.ordering.testing.caught` finds new ones when the kit's schedules change.
PINNED = {NewestOnly: 0, Older: 1}
OBJECTED = [0, 1, 3, 4, 5, 8]  # seeds whose runs are rich enough


@pytest.mark.parametrize("broken", PINNED)
def test_a_broken_core_is_caught_by_its_pinned_seed(broken):
    with pytest.raises(Nonconforming, match=rf"seed {PINNED[broken]}, .*violations=\[\("):
        run(broken, PINNED[broken], random.Random)


@pytest.mark.parametrize("broken", [Forgetful, Union])
def test_a_core_that_tells_too_much_is_safe_and_live_and_caught_by_the_definition(broken):
    conform(broken, range(30), random.Random)
    for seed in OBJECTED:
        with pytest.raises(AssertionError, match="not what the definition says"):
            compare(seed, broken, literal=False)


@pytest.mark.parametrize("broken", PINNED)
def test_the_definition_objects_to_a_core_that_tells_too_little(broken):
    for seed in OBJECTED:
        with pytest.raises(AssertionError, match="not what the definition says"):
            compare(seed, broken, literal=False)


@pytest.mark.long
@pytest.mark.parametrize("broken", PINNED)
def test_many_schedules_catch_a_broken_core(broken):
    seed, found = 0, 0
    while seed < 500:
        seed = 1 + caught(broken, range(seed, 1_000), random.Random)
        found += 1
    assert found > 20
