"""A web shop on three sites. An order is a saga: goods from the depot, money from the bank, and if there is none the
goods go back. Customers ask the shop, packers at the depot take parcels from a queue.

    mom up examples/web_shop.toml --detach
    python -m examples.web_shop
"""

import sys

from mombroker import jms
from mombroker.agents import Agent, notification, reacts

SHOP, DEPOT = "stomp://localhost:61640", "stomp://localhost:61641"
PARCELS = "/queue/parcels"


@notification(expose=True)
class Buy:
    item: str
    count: int
    card: str


@notification
class Bought:
    order: int
    cost: int


@notification
class NotBought:
    order: int
    reason: str


@notification
class Reserve:
    item: str
    count: int


@notification
class Reserved:
    cost: int


@notification
class SoldOut:
    left: int


@notification
class Release:
    item: str
    count: int


@notification
class Charge:
    card: str
    amount: int


@notification
class Charged: ...


@notification
class Declined:
    reason: str


class Shop(Agent):
    """Makes an order of what a customer asks for; that answers."""

    orders: int = 0

    @reacts
    def buy(self, note: Buy) -> None:
        self.orders += 1
        wanted = {"item": note.item, "count": note.count, "card": note.card}
        self.create(Order, number=self.orders, customer=self.sender, **wanted)


class Order(Agent):
    """A saga: each step is a reaction, so a crash is a pause, and no step happens twice. A site that is down is only
    slow."""

    number: int
    customer: str
    item: str
    count: int
    card: str
    cost: int = 0

    def on_create(self) -> None:
        self.send("stock", Reserve(self.item, self.count))

    @reacts
    def reserved(self, note: Reserved) -> None:
        self.cost = note.cost
        self.send("bank", Charge(self.card, note.cost))

    @reacts
    def charged(self, note: Charged) -> None:
        self.put(PARCELS, {"order": self.number, "item": self.item, "count": self.count})
        self._end(Bought(self.number, self.cost))

    @reacts
    def sold_out(self, note: SoldOut) -> None:
        self._end(NotBought(self.number, f"only {note.left} of {self.item} are left"))

    @reacts
    def declined(self, note: Declined) -> None:
        self.send("stock", Release(self.item, self.count))
        self._end(NotBought(self.number, note.reason))

    def _end(self, answer: Bought | NotBought) -> None:
        self.send(self.customer, answer)
        self.delete()


class Stock(Agent):
    """`goods`: how many there are of each, and what one costs."""

    goods: dict[str, list[int]]

    @reacts
    def reserve(self, note: Reserve) -> None:
        left, price = self.goods.get(note.item, [0, 0])
        if not 0 < note.count <= left:
            self.reply(SoldOut(left))
            return
        self.goods[note.item] = [left - note.count, price]
        self.reply(Reserved(note.count * price))

    @reacts
    def release(self, note: Release) -> None:
        self.goods[note.item][0] += note.count


class Bank(Agent):
    """`accounts`: the money behind each card."""

    accounts: dict[str, int]
    earned: int = 0

    @reacts
    def charge(self, note: Charge) -> None:
        if self.accounts.get(note.card, 0) < note.amount:
            self.reply(Declined(f"{note.card} has not so much"))
            return
        self.accounts[note.card] -= note.amount
        self.earned += note.amount
        self.reply(Charged())


def main(shop: str = SHOP, depot: str = DEPOT) -> None:
    with jms.connect(shop) as customer, jms.connect(depot) as packer:
        parcels = packer.consumer(PARCELS)
        for item, count, card in (("tea", 2, "ann"), ("tea", 99, "ann"), ("gold", 1, "bob"), ("cake", 3, "bob")):
            answer = customer.ask("shop", Buy(item, count, card), timeout=60)
            if isinstance(answer, NotBought):
                print(f"{card} gets no {item}: {answer.reason}")
                continue
            parcel = parcels.receive(60)
            assert parcel is not None, "paid for, and not packed"
            print(f"{card} pays {answer.cost} for {parcel.body['count']} {parcel.body['item']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
