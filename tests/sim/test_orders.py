"""Topics in total order under faults: all who read one have parts of one sequence."""

from mombroker.sim.orders import alike
from mombroker.sim.seeds import run


def test_sequences_are_alike_if_they_are_parts_of_one():
    assert alike([[1, 2, 3], [2, 3, 4], [], [1, 4]])
    assert not alike([[1, 2], [2, 1]])
    assert not alike([[1, 2], [2, 3], [3, 1]]), "no two of them differ"


def test_topics_move_and_much_is_ordered():
    """The seeds before this one are among those of all programs of clients."""
    result = run(5, program="orders")
    assert not result.wrong
    assert result.counts["ordered"] > 200 and result.counts["topic_moves"]
