"""What one client was given and has not settled yet."""

from __future__ import annotations

from collections import deque


class Unsettled:
    """1. A tag that is in `given` was delivered, to be settled by the client, and is not settled.
    2. `lines` has the tags of the cumulative deliveries of each subscription, in order; no line is empty.

    Tags rise with the deliveries of a connection. The client knows a delivery as `ID/CONNECTION.TAG`: no other delivery
    ever has that, so that an acknowledgement which comes late, by another connection, names nothing.
    """

    __slots__ = ("given", "lines")

    def __init__(self) -> None:
        self.given: dict[int, tuple[str, str, bool]] = {}  # tag -> subscription, message-id, cumulative
        self.lines: dict[str, deque[int]] = {}

    def add(self, tag: int, sub: str, message_id: str) -> None:
        """A cumulative delivery."""
        self.given[tag] = (sub, message_id, True)
        self.lines.setdefault(sub, deque()).append(tag)

    def find(self, message_id: str) -> int | None:
        """The tag of a delivery; None if it was not given or is settled."""
        try:
            tag = int(message_id[message_id.rfind(".") + 1 :])
        except ValueError:
            return None
        found = self.given.get(tag)
        return tag if found is not None and found[1] == message_id else None

    def settle_row(self, message_ids: list[str]) -> list[int]:
        """Settle deliveries that are not cumulative: the tags of the first ones, up to one that is, or is none."""
        given, tags = self.given, list[int]()
        for id in message_ids:
            try:
                tag = int(id[id.rfind(".") + 1 :])
                _, message_id, cumulative = given[tag]
            except (ValueError, KeyError):
                break
            if message_id != id or cumulative:
                break
            del given[tag]
            tags.append(tag)
        return tags

    def settle(self, tag: int) -> None:
        """Forget a delivery, and a cumulative one with all earlier cumulative ones of its subscription."""
        sub, _, cumulative = self.given[tag]
        if not cumulative:
            del self.given[tag]
            return
        line = self.lines[sub]
        while line and line[0] <= tag:
            del self.given[line.popleft()]
        if not line:
            del self.lines[sub]

    def check(self) -> None:
        """Assert the invariants."""
        cumulative = [tag for line in self.lines.values() for tag in line]
        assert all(self.lines.values()), "an empty line is kept"
        assert sorted(cumulative) == sorted(tag for tag, given in self.given.items() if given[2]), "lines and given"
        assert all(list(line) == sorted(line) for line in self.lines.values()), "a line is out of order"
