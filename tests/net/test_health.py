"""The HTTP port of a replica that does not lead."""

from twisted.internet.task import Clock

from mombroker.net.replicas.health import Health, Visits
from tests.gateway.web.world import Visit


def visit():
    clock = Clock()
    health = Health(clock, "main", lambda: "standby: the leader is p1", dict)
    return Visit(Visits(health, False).buildProtocol(None), clock)


def test_no_body_is_taken_whatever_its_size():
    for size, status in ((1, 405), (10_000, 405), (100_000, 413)):
        assert visit().ask("/api/plan", "POST", b"x" * size)[0] == status


def test_who_only_looks_is_told_who_leads():
    status, _, text = visit().ask("/readyz")
    assert (status, text.strip()) == (503, "standby: the leader is p1")
