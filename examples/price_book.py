"""A book of prices that is fed by changes and asked by anybody. Changes come from whatever system has the prices, by
a queue; the book is a table with a row for each article; and who wants to know asks its agent.

    mom up examples/price_book.toml --detach
    python -m examples.price_book
"""

import sys
from dataclasses import field

from mombroker import jms
from mombroker.agents import Agent, Table, consumes, notification, reacts

CHANGES, CHANGED = "/queue/changes", "/topic/prices"


@notification(expose=True)
class Lookup:
    article: str


@notification
class Price:
    """`price` in cents; None: it is not for sale."""

    article: str
    price: int | None = None
    changes: int = 0


@notification(expose=True)
class Range:
    """Articles from `first` on, up to `last`, which is left out."""

    first: str = ""
    last: str | None = None
    limit: int = 10


@notification
class Page:
    """`next`: where the rest begins; None: that is all."""

    prices: list = field(default_factory=list)
    next: str | None = None


@notification
class Change:
    article: str
    price: int | None = None


class PriceBook(Agent):
    """A change is taken from the queue, put into the table and told to subscribers in one transaction."""

    rows: Table

    @consumes(CHANGES)
    def change(self, change: Change) -> None:
        changes = self.rows.get(change.article, [None, 0])[1] + 1
        self.rows[change.article] = [change.price, changes]
        self.publish(CHANGED, {"price": change.price}, properties={"article": change.article})

    @reacts
    def lookup(self, note: Lookup) -> None:
        self.reply(Price(note.article, *self.rows.get(note.article, [])))

    @reacts
    def range(self, note: Range) -> None:
        limit = min(max(note.limit, 1), 100)
        found = self.rows.range(note.first, note.last, limit=limit + 1)
        rest = found[limit][0] if len(found) > limit else None
        self.reply(Page([[article, price] for article, (price, _) in found[:limit] if price is not None], rest))


def main(url: str = "stomp://localhost:61650") -> None:
    with jms.connect(url) as feed, jms.connect(url) as reader:
        news = reader.consumer(jms.Topic("prices"), selector="article = 'tea'")
        for article, price in (("tea", 300), ("cake", 450), ("gold", 99_900), ("tea", 320), ("gold", None)):
            feed.send(CHANGES, json={"article": article, "price": price})
        print("tea costs", [news.receive(30).body["price"] for _ in range(2)])
        page = reader.ask("prices", Range(), timeout=30)
        print("for sale:", ", ".join(f"{article} {price}" for article, price in page.prices))
        print("gold:", reader.ask("prices", Lookup("gold"), timeout=30))


if __name__ == "__main__":
    main(*sys.argv[1:])
