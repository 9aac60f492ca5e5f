"""The replicated bank: all copies agree, whichever is asked, and whichever is lost."""

import pytest

from examples.replicated_bank import Balance, Bank, Result, Transfer
from mombroker.agents import Agent, notification, reacts
from mombroker.agents.testing import Bus


@notification
class Order:
    bank: str
    amount: int


class Customer(Agent):
    results: list[list[int]] = []  # noqa: RUF012

    @reacts
    def order(self, note: Order) -> None:
        self.send(note.bank, Transfer("bank", "ann", note.amount) if note.amount else Balance("ann"))

    @reacts
    def result(self, note: Result) -> None:
        self.results.append([int(note.ok), note.balance])


COPIES = {"a/one": Bank, "b/two": Bank, "c/three": Bank}


def money(bus: Bus, *copies: str) -> list[dict[str, int]]:
    return [bus.state(each)["accounts"] for each in copies]


def test_any_copy_takes_orders_and_all_agree():
    bus = Bus({**COPIES, "d/ann": Customer}, crashes=5)
    for copy, amount in (("one", 700), ("two", 200), ("three", 200), ("two", 50)):
        bus.send("ann", Order(copy, amount))
    bus.settle()
    one, two, three = money(bus, "one", "two", "three")
    assert one == two == three and sum(one.values()) == 1000
    done = [balance for ok, balance in bus.state("ann")["results"] if ok]
    assert len(bus.state("ann")["results"]) == 4 and min(done) == one["bank"]
    bus.check()


@pytest.mark.parametrize("lost", "abc")
def test_it_survives_the_loss_of_any_member(lost):
    bus = Bus({"registry/ann": Customer, **COPIES})
    bus.send("two", Transfer("bank", "ann", 300))
    bus.settle()
    left = [id.partition("/")[2] for id in COPIES if not id.startswith(lost)]
    bus.kill(lost, down=float("inf"))
    bus.advance(1)
    up = next(server for server in "abc" if server != lost)
    bus.ask("lose", server=up, domain="bus", servers=[lost], epoch=1)
    bus.advance(30)
    bus.send(left[1], Transfer("ann", "bob", 100), server=up)
    bus.advance(10)
    assert money(bus, *left) == [{"bank": 700, "ann": 200, "bob": 100}] * 2
    bus.send("ann", Order(left[0], 0), server="registry")
    bus.advance(10)
    assert bus.state("ann")["results"] == [[1, 200]]
