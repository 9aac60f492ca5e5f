"""A connection whose session has parts: each of them is a session of its own at the agent server."""

from __future__ import annotations

from mombroker.broker.commands import Reply
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.gateway.connection import Client, Owner
from mombroker.gateway.session import PartedSession


class PartedClient(Client):
    """4. The agent server hears of each part once when it begins, and once when it is gone, unless it has ended in good
    order."""

    session: PartedSession

    def __init__(self, gateway: Owner, number: int, session: PartedSession, setting: str, host: str, tls: bool):
        super().__init__(gateway, number, session, setting, host, tls)
        self.numbers: dict[int, int] = {}  # of its parts

    def _act(self) -> None:
        session = self.session
        while (claim := session.claim) is not None and self.opened:
            refusal = self._claim(claim.client_id, claim.exclusive)
            session.claimed(refusal)
            self._beats.start(session.expect_every, session.send_every, session.beat)
        for part, commands in session.asked:
            number = self.numbers.get(part)
            if number is None:
                number = self.numbers[part] = self.gateway.enroll(self, part)
                self.gateway.post(ClientOpened(number, self.user, session.client_id, session.id, strict=False))
            self.gateway.post(ClientCommands(number, commands))
        super()._act()

    def said_to(self, part: int, replies: list[Reply]) -> None:
        """What the agent server says to a part; durable now."""
        if self.closing:
            return
        if not self.session.reply_to(part, replies) and part in self.numbers:
            self.gateway.strike(self.numbers.pop(part))
        self._put_out()
        if self.session.wants:
            self.gateway.reactor.callLater(0, self._go_on)  # not while the agent server lets go of its outputs

    def _go_on(self) -> None:
        if not self.closing and not self.lost:
            self._act()

    def _told_written(self, taken: int) -> None:
        for part, tag in self.session.took(taken):
            if part in self.numbers:
                self.gateway.post(ClientWrote(self.numbers[part], tag))

    def _gone(self) -> None:
        opened = self.opened
        super()._gone()
        if opened:
            for number in self.numbers.values():
                self.gateway.strike(number)
                self.gateway.post(ClientClosed(number))
            self.numbers.clear()
