"""What a back end says of itself before it runs: `describe`."""

import pytest

from mombroker.ordering import Ordering, backend, names
from mombroker.ordering.hypercube import connectivity, flood, hypercube

ONLY_TWO = {"fifo"}


def members(count: int) -> tuple[str, ...]:
    return tuple(f"s{number}" for number in range(count))


def costs(name: str, count: int, **options: object) -> dict:
    cls = backend(name)
    assert cls.validate(members(count), options) == []
    return cls.describe(members(count), options)


@pytest.mark.parametrize("name", names())
def test_every_back_end_describes_a_domain_in_the_same_words(name):
    for count in (2,) if name in ONLY_TWO else (3, 8, 40):
        found = costs(name, count)
        assert found.keys() == Ordering.describe(members(count), {}).keys()
        assert 1 <= found["links"][0] <= found["links"][1] < count
        assert 0 < found["control_bytes"] <= found["control_bytes_worst"]
        assert 1 <= found["packets"] <= found["packets_to_all"]
        assert set(found["relays"]) <= set(members(count)) and bool(found["relays"]) <= backend(name).relays
        assert found["survives"]


def test_a_matrix_grows_with_the_square_at_worst_and_with_n_between_two():
    assert [costs("matrix", n)["control_bytes"] for n in (4, 10, 100)] == [4 * 3, 4 * 9, 4 * 150]
    assert [costs("matrix", n)["control_bytes_worst"] for n in (4, 10, 100)] == [4 * 16, 4 * 100, 4 * 10_000]


def test_the_full_matrix_costs_the_same_always():
    assert costs("rst", 10)["control_bytes"] == costs("rst", 10)["control_bytes_worst"] == 400


def test_an_overlay_tells_its_graph():
    found = costs("overlay", 9)
    graph = hypercube(9)
    assert (found["links"], found["diameter"], found["packets"]) == ([3, 4], 3, flood(graph))
    assert "while any 2 are down" in found["survives"] and connectivity(graph) == 3
    ring = costs("overlay", 5, links=[["s0", "s1"], ["s1", "s2"], ["s2", "s3"], ["s3", "s4"], ["s4", "s0"]])
    assert (ring["links"], ring["diameter"], ring["packets"]) == ([2, 2], 2, 6)
    assert "while any 1 are down" in ring["survives"]
    line = costs("overlay", 3, links=[["s0", "s1"], ["s1", "s2"]])
    assert (line["links"], line["diameter"], line["survives"]) == ([1, 2], 2, "all that need not pass who is down")
