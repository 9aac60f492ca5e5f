"""A bank whose accounts lie on several servers and pay each other by messages; no money is ever lost or made.

The auditor counts it while it moves. Its `Count` goes to all accounts as one multicast, and whoever has counted marks
what it pays from then on with the new round. Causal order makes the rest short:

1. Nobody gets money of the new round before `Count`: the payer had counted, so `Count` precedes the payment.
2. `Close` is sent after all accounts have answered, so all payments of older rounds precede it: what such a payment
   brings an account after it was counted and before `Close` was on its way during the count, and there is no more.

So the balances and what came late add up to the bank's whole money, through crashes of any server.
"""

import random

from mombroker.agents import Agent, notification, reacts


@notification
class Work:
    """Make so many payments, each as soon as the one before has been received."""

    payments: int


@notification
class Payment:
    amount: int
    round: int


@notification
class Receipt:
    pass


@notification
class Audit:
    pass


@notification
class Count:
    round: int


@notification
class Counted:
    balance: int


@notification
class Close:
    pass


@notification
class Closed:
    late: int


class Account(Agent):
    """One of the accounts account1, account2, ..., `accounts` in all."""

    accounts: int
    balance: int = 1000
    to_pay: int = 0  # payments that are left to make
    paid: int = 0  # payments made, and received
    received: int = 0
    round: int = 0
    late: int = 0
    seed: int = 0

    def on_create(self) -> None:
        if self.to_pay:
            self._pay()

    @reacts
    def work(self, work: Work) -> None:
        idle = not self.to_pay
        self.to_pay += work.payments
        if idle and self.to_pay:
            self._pay()

    @reacts
    def take(self, payment: Payment) -> None:
        self.balance += payment.amount
        self.received += 1
        if payment.round < self.round:
            self.late += payment.amount
        self.reply(Receipt())

    @reacts
    def go_on(self, receipt: Receipt) -> None:
        self.to_pay -= 1
        if self.to_pay:
            self._pay()

    @reacts
    def count(self, count: Count) -> None:
        self.round, self.late = count.round, 0
        self.reply(Counted(self.balance))

    @reacts
    def close(self, close: Close) -> None:
        self.reply(Closed(self.late))

    def _pay(self) -> None:
        chance = random.Random(f"{self.id} {self.seed}")
        self.seed += 1
        me = int(self.id.rpartition("account")[2])
        other = (me + chance.randrange(1, self.accounts) - 1) % self.accounts + 1
        amount = chance.randint(0, self.balance // 4)
        self.balance -= amount
        self.paid += 1
        self.send(f"account{other}", Payment(amount, self.round))


class Auditor(Agent):
    """Counts the money of account1, account2, ... at each `Audit`, and every `every` seconds if that is not 0."""

    accounts: int
    every: float = 0.0
    round: int = 0
    missing: int = 0  # answers
    sum: int = 0
    total: int = -1  # of the last count
    wrong: int = 0  # counts that differed from the first one
    first: int = -1

    def on_create(self) -> None:
        if self.every:
            self._begin()

    @reacts
    def audit(self, audit: Audit) -> None:
        if not self.missing:
            self._begin()

    @reacts
    def counted(self, counted: Counted) -> None:
        if self._add(counted.balance):
            self.missing = self.accounts
            self.send(self._all(), Close())

    @reacts
    def closed(self, closed: Closed) -> None:
        if self._add(closed.late):
            self.total = self.sum
            if self.first < 0:
                self.first = self.total
            self.wrong += self.total != self.first
            if self.every:
                self.timer(self.every, Audit())

    def _begin(self) -> None:
        self.round += 1
        self.sum, self.missing = 0, self.accounts
        self.send(self._all(), Count(self.round))

    def _add(self, amount: int) -> bool:
        self.sum += amount
        self.missing -= 1
        return not self.missing

    def _all(self) -> list[str]:
        return [f"account{number}" for number in range(1, self.accounts + 1)]
