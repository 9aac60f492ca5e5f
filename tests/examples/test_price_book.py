"""The book of prices: as it is shown, by processes; and in memory, fed and asked while servers crash."""

import random
from pathlib import Path

import pytest

from examples.price_book import Lookup, Page, Price, PriceBook, Range
from mombroker.agents.testing import Bus
from mombroker.core.errors import MomError
from tests.admin.processes import Processes, free_ports
from tests.examples.started import printed

ROOT = Path(__file__).parents[2]


def test_as_it_is_shown(tmp_path):
    text, ports = (ROOT / "examples" / "price_book.toml").read_text(), free_ports(3)
    for written, port in zip(("16350", "16351", "61650"), ports, strict=True):
        text = text.replace(written, str(port))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "price_book.toml").write_text(text)
    bus = Processes(tmp_path / "price_book.toml")
    bus.up()
    try:
        lines = printed("price_book", f"stomp://localhost:{ports[2]}")
    finally:
        bus.down()
    assert lines == [
        "tea costs [300, 320]", "for sale: cake 450, tea 320", "gold: Price(article='gold', price=None, changes=2)",
    ]  # fmt: skip


def test_a_book_is_read_page_by_page():
    bus = Bus({"office/prices": PriceBook}, servers=["edge"])
    for number in range(25):
        bus.put("/queue/changes", {"article": f"a{number:02}", "price": number}, server="edge")
    bus.settle()
    read, first = [], ""
    while first is not None:
        page = bus.request("prices", Range(first, limit=10), server="edge")
        assert isinstance(page, Page) and len(page.prices) <= 10
        read, first = read + page.prices, page.next
    assert read == [[f"a{number:02}", number] for number in range(25)]
    with pytest.raises(MomError, match="office/prices: limit of examples.price_book.Range must be int"):
        bus.request("prices", Range(limit="many"), server="edge")
    bus.check()


@pytest.mark.parametrize("seed", range(8))
def test_each_change_counts_once_whatever_crashes(seed):
    bus, chance = (
        Bus({"office/prices": PriceBook}, servers=["edge"], seed=seed, crashes=8, breaks=4),
        random.Random(seed),
    )
    sent = dict.fromkeys("xyz", 0)
    unsure = dict.fromkeys("xyz", 0)
    for number in range(30):
        article = chance.choice("xyz")
        try:
            bus.put("/queue/changes", {"article": article, "price": number}, server="edge")
            sent[article] += 1
        except MomError:  # the connection was lost: perhaps it was sent
            unsure[article] += 1
            bus.advance(1)
        if number % 10 == 9:
            bus.settle()
            answer = bus.request("prices", Lookup(article), server="edge")
            assert answer.article == article
            assert sent[article] <= answer.changes <= sent[article] + unsure[article]
    bus.check()
    counted = {article: bus.request("prices", Lookup(article), server="office").changes for article in "xyz"}
    assert all(sent[each] <= counted[each] <= sent[each] + unsure[each] for each in "xyz")
    assert bus.request("prices", Lookup("none")) == Price("none")
