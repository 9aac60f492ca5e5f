"""What an agent is to send when a cast of its own has gone."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from mombroker.broker.groups import outbox
from mombroker.core.groups.bus import LEAVE

MANY = 500


@pytest.mark.parametrize("done", [False, None])  # it waits, or is asked for
def test_one_more_thing_to_do_does_not_look_at_all_that_waits(monkeypatch, done):
    """An agent that casts thousands of times in one reaction would stop its server for seconds."""
    looks, ids = count(), count(1)

    class Looked(outbox.Entry):
        def __getattribute__(self, name: str) -> Any:
            next(looks)
            return super().__getattribute__(name)

    monkeypatch.setattr(outbox, "Entry", Looked)
    rows: dict[int, Any] = {}
    tx: Any = SimpleNamespace(new_id=lambda: next(ids), rows=SimpleNamespace(items=rows, bytes=0), urgency=0)
    outboxes = outbox.Outboxes(tx, "a/_groups")

    def do(agent: str, entry: outbox.Entry, asked: int) -> bool | None:
        entry.asked = 1_000_000 + asked if done is None else 0
        return done

    for number in range(MANY):
        outboxes.add("a/x", LEAVE, [str(number), "a/group:g"])
        assert not outboxes.run("a/x", do)
        outboxes.keep("a/x")
    assert next(looks) < 40 * MANY
    assert list(rows) == [entry.row for entry in outboxes.of["a/x"]] == list(range(1, MANY + 1))
    outboxes.check(())
