"""A bank with a copy on each server: any copy takes orders and answers, and all have the same balances. See
docs/agents.md, Groups."""

from mombroker.agents import Replicated, command, notification, reacts


@notification(expose=True)
class Transfer:
    source: str
    to: str
    amount: int


@notification(expose=True)
class Balance:
    account: str


@notification
class Result:
    ok: bool
    balance: int


class Bank(Replicated):
    """All the money is there at first, in the account `bank`."""

    accounts: dict[str, int] = {"bank": 1000}  # noqa: RUF012 - its state

    @command
    def transfer(self, note: Transfer) -> Result:
        there = self.accounts.get(note.source, 0)
        if not 0 < note.amount <= there:
            return Result(False, there)
        self.accounts[note.source] = there - note.amount
        self.accounts[note.to] = self.accounts.get(note.to, 0) + note.amount
        return Result(True, there - note.amount)

    @reacts
    def balance(self, note: Balance) -> None:
        self.reply(Result(True, self.accounts.get(note.account, 0)))
