"""Numbers in sentences."""

from mombroker.core.times import SECOND, shown
from mombroker.core.words import many


def test_one_is_not_many():
    assert [many(number, "message") for number in range(3)] == ["0 messages", "1 message", "2 messages"]
    assert [many(number, "message waits", "messages wait") for number in (1, 2)] == [
        "1 message waits",
        "2 messages wait",
    ]
    assert [shown(span * SECOND) for span in (1, 90, 200)] == ["1 second", "90 seconds", "3 minutes"]
