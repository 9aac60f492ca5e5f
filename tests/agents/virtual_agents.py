"""Agents that are made when something comes for them."""

from mombroker.agents import Agent, Delivered, notification, reacts


@notification(name="tests.virtual.Hit", expose=True)
class Hit:
    note: str = ""


class Counter(Agent):
    """Counts, and fails at its first message if that says so."""

    hits: int = 0
    limit: int
    born: list = []

    def on_create(self) -> None:
        self.born.append(self.message_id)
        self.put("/queue/born", self.id)

    @reacts
    def hit(self, note: Hit) -> None:
        self.hits += 1
        if note.note == "bad":
            raise ValueError("bad")
        if note.note == "die":
            self.delete()

    @reacts
    def any(self, message: Delivered) -> None: ...
