"""Passcodes: what is stored of them, and who asks how often."""

import pytest

from mombroker.core.errors import MomError
from mombroker.stomp import users
from mombroker.stomp.users import Logins, hashed, matches

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
    assert hashed("a").startswith("scrypt$15$8$1$")
    assert matches(hashed("a"), "a")


@pytest.mark.parametrize(
    "stored", ["", "x", "scrypt$x$8$1$a$b", "scrypt$4$8$1$!!$b", "scrypt$60$8$1$YQ==$YQ==", "md5$4$8$1$YQ==$YQ=="]
)
def test_nothing_matches_what_is_no_hash(stored):
    assert not matches(stored, "a")


class Door:
    """Logins whose checks wait until they are run."""

    def __init__(self, **stored):
        self.stored = {name: hashed(passcode, QUICK) for name, passcode in stored.items()}
        self.work, self.answers = [], []
        self.logins = Logins(self.stored.get, lambda work, answer: self.work.append((work, answer)))

    def check(self, user, passcode):
        self.logins.check(user, passcode, self.answers.append)

    def run(self):
        """Do what waits; how many checks that took, and the answers since the last time."""
        work, self.work = self.work, []
        for each, answer in work:
            answer(each())
        answers, self.answers = self.answers, []
        return len(work), answers


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
    assert door.run() == (3, [True, True, True, True, False])


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
    assert costs == [["scrypt", "15", "8", "1"]]


def test_too_many_checks_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(users, "MAX_WAITING", 2)
    door = Door(ann="a")
    door.check("ann", "1")
    door.check("ann", "2")
    door.check("ann", "2")
    with pytest.raises(MomError, match="try again"):
        door.check("ann", "3")
    assert door.run() == (2, [False, False, False])


def test_what_is_known_is_bounded(monkeypatch):
    monkeypatch.setattr(users, "MAX_KNOWN", 2)
    door = Door(a="1", b="1", c="1")
    for user in "abc":
        door.check(user, "1")
        door.run()
    door.check("a", "1")
    assert door.run() == (1, [True])
