"""Agents that take from queues and topics, and send there."""

from mombroker.agents import Agent, Delivered, consumes, notification, reacts, subscribes


@notification
class Order:
    item: str
    count: int = 1


@notification
class Tell:
    what: str
    where: str = ""
    body: str = ""


class Desk(Agent):
    """Takes orders, answers and publishes them; fails at `bad`, and is never tried again at what is no order."""

    got: list = []
    counts: list = []
    failing: str = "bad"

    @consumes("/queue/orders", prefetch=3)
    def order(self, order: Order) -> None:
        self.got.append(f"{order.item} {order.count}")
        self.counts.append(self.delivered.count)
        self.publish("/topic/sold", order.item, properties={"count": order.count})
        if self.delivered.reply_to:
            self.reply({"sold": order.item})
        if order.item == self.failing:
            raise ValueError("not this one")

    @reacts
    def tell(self, note: Tell) -> None:
        self.failing = note.what


class Reader(Agent):
    """Subscribes by pattern, and keeps what it gets."""

    got: list = []

    @subscribes("/topic/sold", "/topic/news.*", selector="count IS NULL OR count < 5")
    def read(self, message: Delivered) -> None:
        self.got.append(message.text)
        if message.properties.get("then"):
            self.put("/queue/filed", f"{message.destination} {message.text}", priority=7, group="g")
        if message.text.startswith("bad"):
            raise ValueError(message.text)


class Clerk(Agent):
    """Is told what to do."""

    got: list = []
    number: int = 0

    @reacts
    def do(self, note: Tell) -> None:
        if note.what == "consume":
            self.number = self.consume(note.where, prefetch=2)
        elif note.what == "subscribe":
            self.number = self.subscribe(note.where)
        elif note.what == "stop":
            self.stop(self.number)
        elif note.what == "delete":
            self.delete()
        elif note.what == "fail":
            self.put(note.where, note.body)
            self.publish("/topic/sold", note.body)
            raise RuntimeError("after all")
        else:
            self.put(note.where, note.body)

    @reacts
    def take(self, message: Delivered) -> None:
        self.got.append(message.text)
