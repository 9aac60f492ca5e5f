"""Topics in total order under faults: all who read one have parts of one sequence."""

from mombroker.sim.orders import alike
from mombroker.sim.seeds import run


def test_sequences_are_alike_if_they_are_parts_of_one():
    assert alike([[1, 2, 3], [2, 3, 4], [], [1, 4]])
    assert not alike([[1, 2], [2, 1]])
    assert not alike([[1, 2], [2, 3], [3, 1]]), "no two of them differ"


def test_topics_move_and_much_is_ordered():
    results = [run(seed, program="orders") for seed in range(4)]
    assert not [each.wrong for each in results if each.wrong]
    assert sum(each.counts["ordered"] for each in results) > 200 and sum(each.counts["topic_moves"] for each in results)
