"""Rights that are taken and given while clients are at work, and what is sent because of that.

An owner asks its server to take a right from somebody, and when it is told that this is done it publishes what must not
be seen any more, and tells others, who publish, too. They hear of it by the bus alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.model import Given, Sent, Stream
from mombroker.sim.world import MS, SECOND

NEWS, TOPIC, QUEUE = "topic:news", "topic:secret", "queue:secret"
PATIENCE = SECOND  # until an operator asks again
ALL = ["send", "receive", "create", "browse"]


class Owner(Client):
    """Takes and gives rights at its own server, one request after the other, and publishes when one was taken."""

    work: Guards
    faithful = 1.0

    def begin(self, connection: Connection) -> None:
        """Nothing: it acts when it is answered."""

    def ask(self) -> None:
        """The next request, or the last one again, if nobody has answered it."""
        work = self.work
        if work.left <= 0 and not work.taken_away:
            return
        work.left -= 1
        verb, args = work.request()
        before = work.cluster.tickets
        work.cluster.ask(self.home, verb, args)
        self.ticket = work.cluster.tickets if work.cluster.tickets > before else 0
        work.world.after(PATIENCE, self._again, self.ticket)

    def _again(self, ticket: int) -> None:
        if ticket == self.ticket:
            self.ask()

    def answered(self, reply: dict[str, Any] | str) -> None:
        """It is done, and durable. Or it was before, and its answer was lost: what was asked for is not there."""
        work = self.work
        self.ticket = -1
        work.step += 1
        if isinstance(reply, str):
            work.answers.append(reply)
        connection = self.connection
        if work.taken_away and connection is not None and connection.open and connection.node.up:
            for destination in work.rng.sample((TOPIC, QUEUE), 2):
                work.secret(connection.send(destination))
            connection.send(NEWS)
        work.world.after(self.pause() * self.rng.choice((1, 8)), self.ask)


class Friend(Client):
    """Publishes when it hears that the right was taken."""

    work: Guards

    def begin(self, connection: Connection) -> None:
        connection.listen(NEWS)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if self.work.is_news(given.sent):
            self.work.secret(connection.send(self.rng.choice((TOPIC, QUEUE))))


class Somebody(Client):
    """Who has a right or not, and comes back so often."""

    work: Guards
    user = "reader"

    def connect(self) -> None:
        if self.work.tries > 0:
            self.work.tries -= 1
            super().connect()


class Reader(Somebody):
    """May read what is secret, or may not, and tries again and again."""

    def begin(self, connection: Connection) -> None:
        work = self.work
        if connection.open and work.tries > 0 and len(connection.subs) < 2:
            work.tries -= 1
            stream = Stream((TOPIC,), "plain", connection.order, complete=False)
            if work.kept not in connection.subs.values() and self.rng.random() < 0.5:
                stream = work.kept
            connection.subscribe(stream, ack="individual")
            work.world.after(self.pause(), self.begin, connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        work = self.work
        if work.secrets.get(given.sent.id) == work.gifts:
            work.model.wrong.append(
                f"{given.stream} gave {given.sent.id} to somebody because of whose loss of that right it was published"
            )
        super().given(connection, tag, given)


class Writer(Somebody):
    """Sends what is secret, may it or not, and hears the news."""

    def begin(self, connection: Connection) -> None:
        if not connection.subs:
            connection.listen(NEWS)
        self._next(connection)

    def _next(self, connection: Connection) -> None:
        if connection.open and self.work.tries > 0:
            self.work.tries -= 1
            connection.send(self.rng.choice((TOPIC, QUEUE)))
            self.work.world.after(self.pause(), self._next, connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        work = self.work
        if work.is_news(given.sent):
            work.forbidden[connection.send(self.rng.choice((TOPIC, QUEUE))).id] = work.gifts
        super().given(connection, tag, given)

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        if isinstance(meaning, Sent):
            self.work.accepted(meaning)
        super()._confirmed(connection, meaning, everywhere)


class Watcher(Client):
    """Takes what is published to the secret topic; nobody has taken its right."""

    work: Guards

    def begin(self, connection: Connection) -> None:
        connection.listen(TOPIC)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        self.work.accepted(given.sent)
        super().given(connection, tag, given)


class Guards(Clients):
    """Whoever has lost a right gets nothing that was published because of that, and sends nothing that he sends after
    he has heard of it.

    tries       what reader and writer may still begin
    gifts       how often the right was asked for again
    taken_away  the last request was to take it
    secrets     messages that were sent because the right was taken, with the number of gifts until then
    forbidden   those that the reader has sent after it had heard of that
    """

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.by_role = self.rng.random() < 0.5
        self.left = self.rng.choice((20, 60))
        self.tries = 8 * self.left
        self.step = self.gifts = 0
        self.taken_away = False
        self.secrets: dict[int, int] = {}
        self.forbidden: dict[int, int] = {}
        self.answers: list[str] = []
        self.owner: Owner

    def cast(self) -> Sequence[Client]:
        homes = self.rng.sample(self.servers, 3)
        self.kept = self.queue(QUEUE)
        self.owner = Owner(self, home=homes[0])
        slow, base = self.rng.choice((1, 5, 20)), self.cluster.network.base
        for ends in base:  # so that what is told by one way could be late by another
            if homes[2] in ends:
                base[ends] = min(slow * base[ends], 200 * MS)
        self.world.after(self.world.about(20 * MS), self.owner.ask)
        return [
            self.owner,
            Friend(self, home=homes[1]),
            Watcher(self),
            Reader(self, home=homes[2]),
            Writer(self, home=homes[2]),
        ]

    def request(self) -> tuple[str, dict[str, Any]]:
        """What the owner asks for next."""
        if self.step < len(self.prelude):
            return self.prelude[self.step]
        taken = (self.step - len(self.prelude)) % 2 == 0
        if self.taken_away and not taken:
            self.gifts += 1
        self.taken_away = taken
        if self.by_role:
            return "set_roles", {"user": "reader", "revoke" if taken else "grant": ["cleared"]}
        if taken:
            return "set_permission", {"user": "reader", "match": "*:secret", "deny": ["send", "receive"]}
        return "delete_permission", {"user": "reader", "match": "*:secret"}

    @property
    def prelude(self) -> list[tuple[str, dict[str, Any]]]:
        """Without a permission everybody may do everything."""
        if not self.by_role:
            return [("set_permission", {"user": "*", "match": "*", "may": ALL})]
        return [
            ("set_user", {"user": "reader", "hash": "h", "new": True}),
            ("set_permission", {"user": "user", "match": "*", "may": ALL}),
            ("set_permission", {"user": "reader", "match": NEWS, "may": ["receive"]}),
            ("set_permission", {"role": "cleared", "match": "*", "may": ALL}),
            ("set_roles", {"user": "reader", "grant": ["cleared"]}),
        ]

    def answered(self, ticket: int, reply: dict[str, Any] | str) -> None:
        if ticket == self.owner.ticket:
            self.owner.answered(reply)

    def secret(self, sent: Sent) -> None:
        if self.taken_away:
            self.secrets[sent.id] = self.gifts

    def is_news(self, sent: Sent) -> bool:
        """Is it known by this message that the reader's right was taken, and not given back since?"""
        return self.taken_away and self.secrets.get(sent.id - 1, -1) == self.gifts

    def accepted(self, sent: Sent) -> None:
        if self.forbidden.get(sent.id) == self.gifts:
            self.model.wrong.append(f"{sent.id} was accepted of somebody who knew that it may not send it any more")

    def counts(self) -> dict[str, int]:
        return super().counts() | {"secrets": len(self.secrets), "forbidden": len(self.forbidden), "gifts": self.gifts}
