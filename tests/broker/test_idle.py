"""Durable subscriptions that nobody uses: when each was last used, what waits for how long, and when it ends."""

from __future__ import annotations

import pytest

from tests.broker.bench import ALONE, THREE, Broker
from tests.core.bus import SECOND, START, topology

HOUR = 3600
DAY = 24 * HOUR
IDLE = topology({}, policies=[{"match": "sub:*", "idle_timeout": 7 * DAY}])
DURABLE = {"durable": "d"}


def row(b: Broker) -> dict:
    return b.ask("a", "subscriptions")["subscriptions"][0]


def there(b: Broker) -> bool:
    return bool(b.ask("a", "subscriptions")["subscriptions"])


def left(b: Broker) -> Broker:
    b.connect("a", "me").subscribe("s", "topic:t", **DURABLE).close()
    return b


def test_a_subscription_tells_when_it_was_last_used_and_how_old_its_oldest_message_is():
    b = Broker(ALONE)
    client = b.connect("a", "me").subscribe("s", "topic:t", **DURABLE)
    b.later(10)
    assert (row(b)["last_seen"], row(b)["oldest"]) == (START + 10 * SECOND, 0)
    client.close()
    for text in "12":
        b.later(5)
        b.connect("a").send("topic:t", text)
    b.reboot("a")
    assert (row(b)["last_seen"], row(b)["oldest"]) == (START + 10 * SECOND, START + 15 * SECOND)


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_nobody_uses_ends_after_the_time_that_its_policy_says(restart):
    b = left(Broker(IDLE))
    b.connect("a").send("topic:t", "1")
    b.later(6 * DAY)
    if restart:
        b.reboot("a")
    b.later(DAY - 1)
    assert there(b)
    b.later(1)
    assert not there(b) and not b.stored("sub:me:d") and "sub:me:d" not in b.servers["a"].names.known
    assert not [key for key in b.stores["a"].meta() if key.startswith("topic:")]
    assert "sub:me:d ended: nobody has consumed from it for 7 days; 1 message went with it" in b.servers["a"].tx.notes


def test_one_in_use_stays_and_so_does_one_that_was_in_use_when_the_server_died():
    b = Broker(IDLE)
    client = b.connect("a", "me").subscribe("s", "topic:t", **DURABLE)
    b.later(30 * DAY)
    assert there(b) and client.open
    b.reboot("a")
    b.later(6 * DAY)
    assert there(b)
    b.later(DAY + 1)
    assert not there(b)


def test_none_ends_in_the_first_hour_of_a_server_whose_clock_may_be_wrong():
    """Nor while it knows that it is."""
    b = left(Broker(IDLE))
    b.crash("a")
    b.now += 3650 * DAY * SECOND
    b.boot("a")
    b.later(HOUR - 1)
    assert there(b)
    b.servers["a"].clock.ahead = 3650 * DAY * SECOND
    b.later(DAY)
    assert there(b)


def test_a_policy_that_is_set_later_counts_from_the_last_use():
    b = left(Broker(ALONE))
    b.later(2 * HOUR)
    b.ask("a", "set_policy", match="sub:me:*", values={"idle_timeout": 3 * HOUR})
    assert there(b)
    b.later(HOUR)
    assert not there(b)


def test_one_that_is_used_from_another_server_stays():
    b = Broker(THREE)
    b.ask("a", "set_policy", match="sub:*", values={"idle_timeout": 3 * HOUR})
    left(b)
    b.connect("c", "me").subscribe("s", "topic:t", **DURABLE)
    for _ in range(2):
        b.later(4 * HOUR)
        assert there(b)
        b.reboot("a")
