"""Passcodes: what is stored of them, and who asks how often."""

import pytest
from twisted.internet import task

from mombroker.core.errors import MomError
from mombroker.gateway import users
from mombroker.gateway.users import Logins, hashed, matches

QUICK = 4  # the cost of a hash that tests can afford


def test_only_the_right_passcode_matches():
    stored = hashed("s3cret", QUICK)
    assert matches(stored, "s3cret")
    for wrong in ("", "s3cret ", "S3cret", "\ud800"):
        assert not matches(stored, wrong)
    assert "s3cret" not in stored


def test_a_passcode_is_never_stored_twice_in_the_same_way():
    assert hashed("a", QUICK) != hashed("a", QUICK)


def test_the_cost_of_a_stored_hash_is_real():
    assert hashed("a").startswith("scrypt$17$8$1$")
    assert matches(hashed("a"), "a")


@pytest.mark.parametrize(
    "stored", ["", "x", "scrypt$x$8$1$a$b", "scrypt$4$8$1$!!$b", "scrypt$60$8$1$YQ==$YQ==", "md5$4$8$1$YQ==$YQ=="]
)
def test_nothing_matches_what_is_no_hash(stored):
    assert not matches(stored, "a")


class Door:
    """Logins whose checks are made when they are run."""

    def __init__(self, renew=None, **stored):
        self.stored = {name: hashed(passcode, QUICK) for name, passcode in stored.items()}
        self.work, self.answers, self.clock = [], [], task.Clock()
        self.logins = Logins(
            self.stored.get, lambda work, answer: self.work.append((work, answer)), self.clock, renew
        )  # fmt: skip

    def check(self, user, passcode, host="", answer=None):
        return self.logins.check(user, passcode, answer or self.answers.append, host)

    def step(self):
        """Make the checks that have begun."""
        work, self.work = self.work, []
        for each, answer in work:
            answer(each())
        return len(work)

    def run(self, seconds=1_000):
        """Make all checks; how many there were, and the answers since the last time."""
        made = 0
        for _ in range(seconds):
            while count := self.step():
                made += count
            self.clock.advance(1)
        answers, self.answers = self.answers, []
        return made, answers


def test_a_right_passcode_is_known_again_at_once():
    door = Door(ann="a")
    door.check("ann", "a")
    assert door.run() == (1, [True])
    door.check("ann", "a")
    assert door.run() == (0, [True])
    door.check("ann", "b")
    assert door.run() == (1, [False])


def test_a_wrong_passcode_is_checked_each_time():
    door = Door(ann="a")
    for _ in range(2):
        door.check("ann", "b")
        assert door.run() == (1, [False])


def test_many_at_once_wait_for_one_check():
    door = Door(ann="a", bob="a")
    for user, passcode in (("ann", "a"), ("ann", "a"), ("bob", "a"), ("ann", "x"), ("ann", "a")):
        door.check(user, passcode)
    made, answers = door.run()
    assert (made, sorted(answers)) == (3, [False, True, True, True, True])


def test_a_changed_or_deleted_passcode_is_not_known_any_more():
    door = Door(ann="a")
    door.check("ann", "a")
    door.run()
    door.stored["ann"] = hashed("b", QUICK)
    door.check("ann", "a")
    assert door.run() == (1, [False])
    del door.stored["ann"]
    door.check("ann", "b")
    assert door.run() == (1, [False])


def test_a_user_that_there_is_not_takes_as_long_as_a_wrong_passcode(monkeypatch):
    door = Door()
    costs = []
    monkeypatch.setattr(users, "matches", lambda stored, passcode: costs.append(stored.split("$")[:4]))
    door.check("nobody", "a")
    assert door.run() == (1, [False])
    assert costs == [["scrypt", "17", "8", "1"]]


def test_too_many_checks_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(users, "MAX_WAITING", 2)
    door = Door(ann="a")
    for passcode in "0122":
        door.check("ann", passcode)  # the first is being checked
    with pytest.raises(MomError, match="try again"):
        door.check("ann", "3")
    door.check("ann", "3", "10.0.0.1")
    assert door.run() == (4, [False] * 5)


def test_what_is_known_is_bounded(monkeypatch):
    monkeypatch.setattr(users, "MAX_KNOWN", 2)
    door = Door(a="1", b="1", c="1")
    for user in "abc":
        door.check(user, "1")
        door.run()
    door.check("a", "1")
    assert door.run() == (1, [True])


# -- many addresses ------------------------------------------------------------------------------------------------


def test_a_flood_of_wrong_passcodes_of_one_address_does_not_delay_another_address():
    door, mine = Door(ann="a"), []
    for at in range(950):
        door.check("ann", f"wrong {at}", "10.0.0.1")
    door.check("ann", "a", "10.0.0.2", mine.append)
    assert door.step() == 2 and mine == [True]
    assert len(door.answers) == 1


def test_addresses_take_turns():
    door, order = Door(ann="a"), []
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        for at in range(2):
            door.check("ann", f"{host} {at}", host, lambda right, host=host: order.append(host[-1]))
    for _ in range(3):
        door.step()
    assert sorted(order[:3]) == sorted(order[3:]) == ["1", "2", "3"]


def test_what_nobody_waits_for_any_more_is_not_checked():
    door = Door(ann="a")
    waiters = [door.check("ann", f"wrong {at}", "10.0.0.1") for at in range(900)]
    for waiter in waiters:
        waiter.drop()
    door.check("ann", "a", "10.0.0.1")
    assert door.run() == (2, [True])
    assert not door.logins._queues and not door.logins._waiting


def test_one_that_left_does_not_take_the_check_from_the_others():
    door = Door(ann="a")
    for at in range(3):
        waiter = door.check("ann", "a", f"10.0.0.{at}")
        if at < 2:
            waiter.drop()
    assert door.run() == (1, [True])


def test_an_address_with_wrong_passcodes_waits_ever_longer_and_is_forgiven():
    door = Door(ann="a")
    times = []
    for at in range(12):
        door.check("ann", f"wrong {at}", "10.0.0.1", lambda right: times.append(door.clock.seconds()))
    for _ in range(1_000):
        door.step()
        door.clock.advance(0.1)
    waits = [later - before for before, later in zip(times, times[1:], strict=False)]
    assert max(waits[:3]) <= 0.11 and waits[3:7] == sorted(waits[3:7]) and waits[5] > 0.4
    assert 4 < max(waits) <= 5.2
    door.clock.advance(200)
    door.check("ann", "wrong", "10.0.0.1")
    assert door.step() == 1
    door.check("ann", "wrong again", "10.0.0.1")
    assert door.step() == 1


def test_who_is_known_does_not_wait_behind_the_failures_of_its_address():
    door, mine = Door(ann="a"), []
    door.check("ann", "a", "10.0.0.1")
    door.run()
    for at in range(50):
        door.check("ann", f"wrong {at}", "10.0.0.1")
    door.check("ann", "a", "10.0.0.1", mine.append)
    assert mine == [True]


def test_the_addresses_whose_failures_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(users, "MAX_ADDRESSES", 3)
    door = Door(ann="a")
    for at in range(10):
        door.check("ann", "x", f"10.0.0.{at}")
        door.step()
    assert list(door.logins._failures) == ["10.0.0.7", "10.0.0.8", "10.0.0.9"]


# -- old hashes ----------------------------------------------------------------------------------------------------


def test_a_weak_hash_is_good_and_is_renewed_at_the_next_login(monkeypatch):
    monkeypatch.setattr(users, "COST", QUICK + 1)
    renewed = []
    door = Door(lambda *told: renewed.append(told), ann="a")
    door.check("ann", "wrong")
    assert door.run() == (1, [False]) and renewed == []
    door.check("ann", "a")
    assert door.run() == (1, [True])
    ((user, was, now),) = renewed
    assert user == "ann" and was == door.stored["ann"] and matches(now, "a")
    assert users.is_weak(was) and not users.is_weak(now)
    assert users.is_of_one(was, now) and not users.is_of_one(now, hashed("a", QUICK))
    door.stored["ann"] = now
    door.check("ann", "a")
    assert door.run() == (0, [True])
