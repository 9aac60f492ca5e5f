"""Agents of a small shop, for the tests of the test kit."""

from mombroker.agents import Agent, Delivered, Table, consumes, notification, reacts, subscribes


@notification
class Remind:
    item: str
    seconds: float = 60


@notification
class Due:
    item: str


@notification(expose=True)
class HowMany:
    item: str


class Shop(Agent):
    """Sells, and reminds."""

    sold: int = 0
    reminded: list = []
    stock: Table

    @consumes("/queue/orders")
    def order(self, message: Delivered) -> None:
        item = message.json()["item"]
        self.sold += 1
        self.stock[item] = self.stock.get(item, 10) - 1
        self.publish("/topic/sold", item)
        if message.reply_to:
            self.reply({"left": self.stock[item]})

    @reacts
    def remind(self, note: Remind) -> None:
        self.timer(note.seconds, Due(note.item))

    @reacts
    def how_many(self, note: HowMany) -> None:
        self.reply({"left": self.stock.get(note.item, 10)})

    @reacts
    def due(self, note: Due) -> None:
        self.reminded.append(note.item)


class Ledger(Agent):
    """Writes down what is sold; one that forgets loses a line now and then."""

    lines: list = []
    forgets: bool = False

    @subscribes("/topic/sold")
    def sold(self, message: Delivered) -> None:
        if not self.forgets:
            self.lines.append(message.text)
