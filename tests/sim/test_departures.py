"""Servers leave a bus, and others refer to what lived there: nobody dies of it, and the rest is whole."""

from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest

from mombroker.broker.queue.queue import Queue
from mombroker.core.channel import Channel
from tests.sim import departures


def all_clean(seeds: range, run: Callable[[int], tuple[list[str], dict[str, int]]] = departures.run) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        wrong, found = run(seed)
        assert not wrong, "\n".join([f"seed {seed}", *wrong])
        counts.update(found)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean(range(12))
    for what in ("dropped", "gone", "lost", "crashes", "notices", "seen"):
        assert counts[what], what


def test_what_a_subscription_gave_that_left_is_not_asked_for_again():
    """Its client passed it on to a queue, and neither was confirmed when the home of the subscription left."""
    assert all_clean(range(5310, 5311))["lost"]


def test_some_seeds_with_agents_are_clean():
    counts = all_clean(range(12), departures.run_agents)
    for what in ("dropped", "gone", "crashes", "notices"):
        assert counts[what], what


@pytest.mark.long
def test_two_thousand_seeds_are_clean():
    assert all_clean(range(2000))["letters"]
    all_clean(range(2000), departures.run_agents)


def notices(seed: int) -> bool:
    """Something is wrong, or a server has ended."""
    try:
        return bool(departures.run(seed)[0])
    except RuntimeError:
        return True


def test_a_server_that_ends_for_want_of_a_route_is_noticed():
    def fail(server, message):
        raise RuntimeError("no route")

    with patch.object(Channel, "_send_what_has_a_route", fail):
        assert any(notices(seed) for seed in range(60))


@pytest.mark.interpreted
def test_what_clients_of_a_server_that_left_held_is_missed_when_it_does_not_come_back():
    def recovered(queue, also=()):
        with patch.object(
            Queue, "sessions", lambda queue: [at for at in queue.messages.unacked if not queue.remote(at)]
        ):
            recover(queue, also)

    recover = Queue.recovered
    with patch.object(Queue, "recovered", recovered):
        assert any(notices(seed) for seed in range(60))
