"""DeadLetters: messages that no agent reacts to are kept for an operator, and their senders are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from mombroker.core.collection import Collections
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.ids import home_of, identity
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.passage import PAGE, waiting
from mombroker.core.transaction import COMMIT, Transaction

TOPICS = "_topics"  # who expands a copy of a topic
DEAD, LETTERS = "_dead", "letters"  # dead letters lie in the collection LETTERS of the agent <server>/DEAD


class DeadLetters:
    """1. A message that was delivered ends in a reaction, as a dead letter, or is dropped because its receiver was the
    broker's own; the log tells which.
    2. The sender of a dead letter is told once, unless the message itself tells of a failure.

    notice    packs a named notification
    letters   the dead letters
    home      where an agent lives
    settle    asks the broker for a message whose receiver is gone: True if that needs no dead letter
    inside    messages in one that the broker's own agents send each other, which become dead letters with it
    """

    __slots__ = ("tx", "notice", "send", "record", "settle", "inside", "home", "letters")

    def __init__(
        self,
        tx: Transaction,
        collections: Collections,
        notice: Callable[..., tuple[str, bytes]],
        send: Callable[[Message], None],
        record: Callable[..., None],
    ):
        self.tx, self.notice, self.send, self.record = tx, notice, send, record
        self.settle: Callable[[Message, str], bool] = lambda message, agent: False
        self.inside: Callable[[Message, str], Iterable[Message]] = lambda message, agent: ()
        self.home: Callable[[str], str] = home_of
        self.letters = collections.open(f"{tx.name}/{DEAD}", LETTERS)

    def bury(
        self, message: Message, agent: str, reason: str, notice: str, attempts: int = 0, text: str = "",
        cast: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Keep a message as a dead letter, and tell its sender by `notice`; `text` is the traceback of its reaction.
        `cast`: who is told instead, and of which type, since others have passed it on."""
        self.record("dead", message, agent, detail=reason)
        self._bury(message, agent, reason, notice, attempts, text, cast)

    def expired(self, message: Message, domain: str, peer: str, received: int, agent: str = "") -> None:
        """Keep a message whose time has run out."""
        self.record("expire", message, agent, domain, peer, received, detail="expired")
        self._bury(message, agent, "expired", "Expired", 0, "")

    def homeless(self, message: Message, agent: str) -> None:
        """Settle the copy for an agent whose home is not on this bus, or not any more."""
        reason = f"its home {home_of(agent)} is not on this bus, or has left it"
        self.orphan(message, identity(agent), reason, reason)

    def orphan(
        self, message: Message, agent: str, reason: str, detail: str,
        domain: str = "", peer: str = "", received: int = 0,
    ) -> None:  # fmt: skip
        """The receiver does not exist: answer who waits, return what can be returned, else keep a dead letter."""
        try:
            done = self.settle(message, agent)
        except UnknownNotification as error:
            done, reason = False, str(error)
        self._bury_inside(message, agent, reason)
        if done or agent.partition("/")[2].startswith("_"):
            self.record("drop", message, agent, domain, peer, received, detail=detail)
        else:
            self.bury(message, agent, reason, "UnknownAgent")

    def undeliverable(self, message: Message, agent: str, reason: str) -> bool:
        """Settle a copy whose way is gone. True if it is a dead letter now; what destinations tell each other is of no
        use any more."""
        try:
            done = self.settle(message, agent)
        except UnknownNotification as error:
            done, reason = False, str(error)
        local = agent.partition("/")[2]
        self._bury_inside(message, agent, reason)
        if message.type == PAGE:
            for each in waiting(message):
                self.bury(each, identity(each.dests[0]), reason, "Undeliverable")
        if done or (local.startswith("_") and local != TOPICS):
            self.record("drop", message, agent, detail=reason)
            return False
        self.bury(message, agent, reason, "Undeliverable")
        return True

    def _bury_inside(self, message: Message, agent: str, reason: str) -> None:
        for each in self.inside(message, agent):
            self._bury(each, agent, reason, "Undeliverable", 0, "")

    def unreadable(self, data: bytes, agent: str, error: MomError) -> None:
        """Keep bytes of our rows that are no message as they are, for an operator; they are never read again."""
        reason = f"a message that was stored cannot be read: {error}"
        head = {
            "agent": agent, "reason": reason, "traceback": "", "attempts": 0, "time": self.tx.now, "type": "",
            "source": "", "origin": "", "number": 0,
        }  # fmt: skip
        self._keep(head, data)
        self.tx.note(f"{reason}; it is a dead letter of {agent or self.tx.name} now")

    def _keep(self, head: dict[str, object], body: bytes) -> None:
        self.letters.add(self.tx.now, json.dumps(head).encode(), body)
        self.letters.accept()
        self.tx.urgency = COMMIT

    def _bury(
        self, message: Message, agent: str, reason: str, notice: str, attempts: int, text: str,
        cast: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        head: dict[str, object] = {
            "agent": agent, "reason": reason, "traceback": text, "attempts": attempts, "time": self.tx.now,
            "type": message.type, "source": message.source, "origin": message.origin, "number": message.number,
        }  # fmt: skip
        several = agent and len(message.dests) > 1
        self._keep(head, message.copy_for(agent) + message.payload if several else message.encode())
        tx = self.tx
        to, type_ = cast or (message.source, message.type)
        if self.home(to) not in tx.topology.servers:
            return  # it has left the bus
        if (cast or not message.flags & BOUNCE) and "/_" not in to and to != agent:
            type_, payload = self.notice(
                notice, agent=agent, type=type_, reason=reason, origin=message.origin, number=message.number
            )
            source = agent if agent.startswith(f"{tx.name}/") else f"{tx.name}/{DEAD}"  # who can speak here
            self.send(new_message(tx, source, (to,), type_, payload, flags=BOUNCE))
