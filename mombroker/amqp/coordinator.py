"""The local transactions of a session (part 4 of the specification)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mombroker.amqp import performatives, reading
from mombroker.amqp.codec import INVALID, AmqpError
from mombroker.amqp.inbound import Inbound
from mombroker.amqp.outbound import OUTCOMES, Outbound, step
from mombroker.amqp.performatives import ACCEPTED, Declare, Disposition, Outcome, Transactional, Transfer
from mombroker.broker import commands
from mombroker.broker.commands import Command, Refused, Send
from mombroker.broker.transactions import Limits, Step, TransactionError, Transactions
from mombroker.core.errors import MomError

_ACCEPTED = performatives.described_outcome(Outcome(ACCEPTED))
Then = Callable[[Refused | None], None]


class Coordinator:
    """Gathers what is sent and settled in open transactions, and has it done at once.

    do    hands a command to the broker; `ask`, too, and calls back with nothing, or the refusal
    """

    def __init__(
        self, inbound: Inbound, outbound: Outbound, do: Callable[[Command], None], ask: Callable[[Any, Then], None]
    ):
        self.inbound, self.outbound, self._do, self._ask = inbound, outbound, do, ask
        self.transactions = Transactions(Limits())
        self._declared = 0

    def coordinate(self, transfer: Transfer, payload: bytes) -> None:
        """A transaction begins or ends."""
        id = transfer.delivery_id or 0
        try:
            said = reading.of_coordinator(payload)
            if isinstance(said, Declare):
                self._declared += 1
                txn = b"%d" % self._declared
                self.transactions.begin(txn.hex())
                self.inbound.outcome(id, performatives.declared(txn))
                return
            steps = self.transactions.end(said.txn.hex())
        except MomError as error:
            self.inbound.reject(transfer, error)
            return
        if said.fail:
            self._roll_back(steps)
            self.inbound.outcome(id, _ACCEPTED)
            return

        def then(refused: Refused | None) -> None:
            if refused is None:
                self.inbound.outcome(id, _ACCEPTED)
                return
            self._roll_back(steps)
            self.inbound.outcome(id, performatives.rejected("amqp:transaction:rollback", refused.message))

        self._ask(commands.Transact(steps), then)

    def _roll_back(self, steps: list[Step]) -> None:
        """What was consumed goes back, as what has failed."""
        for each in steps:
            if isinstance(each, commands.Disposition):
                self._do(commands.Disposition(each.tag, commands.MODIFIED))

    def send(self, transfer: Transfer, command: Send) -> None:
        txn = transfer.state.txn
        command.receipt = None
        try:
            self.transactions.add(txn.hex(), command, command.size)
        except TransactionError as error:
            self.inbound.reject(transfer, error)
            return
        if not transfer.settled:
            self.inbound.outcome(transfer.delivery_id or 0, performatives.transactional(txn, _ACCEPTED))

    def settle(self, said: Disposition, state: Transactional) -> None:
        """Raises AmqpError."""
        outcome = state.outcome or Outcome(ACCEPTED)
        if outcome.code not in OUTCOMES:
            raise AmqpError("a transaction settles by an outcome", INVALID)
        found, links = self.outbound.settled(self.outbound.numbers(said.first, said.last))
        for id, tag, _ in found:
            try:
                self.transactions.add(state.txn.hex(), step(tag, outcome))
            except TransactionError as error:
                raise AmqpError(str(error), "amqp:transaction:unknown-id") from None
            self._do(commands.Uncommitted(tag))
            if not said.settled:
                self.outbound.tell(id, performatives.transactional(state.txn, performatives.described_outcome(outcome)))
        self.outbound.regrant(links)
