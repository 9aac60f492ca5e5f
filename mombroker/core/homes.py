"""Where agents live that have moved: a table that is the same on all servers.

An agent's id never changes: others hold it, compare it, and reply to it. What is sent to an agent that has moved bears
its address, which the sender's server makes of the id as it is sent; nobody on the way asks where the agent lives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from mombroker.core.errors import UnknownNotification
from mombroker.core.ids import home_of, is_id
from mombroker.core.message import Message
from mombroker.core.meta import HOME
from mombroker.core.replicated import Replicated, Replication

RELOCATE, RELOCATED = "_relocate", "_relocated"


class Homes(Replicated):
    """1. An agent that does not live on the server that its id names has a row, and no other one has.

    moved     id -> the server where it lives
    on_move   called with an agent, its former home and its new one
    fenced    the epoch below which a server's store is of no use any more, and `decided`: has the registry decided that
              it is lost? See Lost
    """

    agent, prefix = "_homes", HOME

    def __init__(self, replication: Replication):
        super().__init__(replication)
        self.moved = self.rows()
        self.on_move: Callable[[str, str, str], None]
        self.fenced: Callable[[str], int] = lambda server: 0
        self.decided: Callable[[str], bool] = lambda server: False
        self.define(RELOCATE, _read_asked, self._decide, RELOCATED, _read, self._relocated)

    def home(self, id: str) -> str:
        """The server where an agent lives, as far as is known here; that of a session. Empty for nobody."""
        return self.moved.get(id) or (home_of(id) if id else "")

    def relocate(self, id: str, to: str) -> None:
        """An agent of ours lives elsewhere from now on."""
        self._ask(id, to)

    def forget(self, id: str) -> None:
        """An agent of ours is gone for good."""
        if id in self.moved:
            self._ask(id, home_of(id))

    def _ask(self, id: str, to: str) -> None:
        source = self.tx.name
        self.ask(RELOCATE, json.dumps([id, source, to, *self.epochs(source, to)], ensure_ascii=False).encode())

    def epochs(self, source: str, to: str) -> list[int]:
        """What goes with a request to move something from one server to another: the epochs below which the stores of
        both are of no use, as far as is known here; nothing, if neither was ever lost."""
        epochs = [self.fenced(source), self.fenced(to)]
        return epochs if any(epochs) else []

    def late(self, source: str, to: str, left: int, reached: int) -> bool:
        """Was such a request made without knowing of a loss that is decided before it? Then that has ended the move."""
        return any(
            self.decided(server) and epoch < self.fenced(server) for server, epoch in ((source, left), (to, reached))
        )

    def left(self, server: str) -> None:
        """A server is not of this bus any more, nor what lived there."""
        for id in [id for id, home in self.moved.items() if home == server]:
            self._put(id, home_of(id))

    def told(self) -> Iterator[tuple[str, str, bytes]]:
        """What must be told of all that have moved; see Newcomers.tables."""
        for id, home in self.moved.items():
            yield self.tx.topology.registry or self.tx.name, RELOCATED, _packed(id, home_of(id), home)

    def _decide(self, asker: str, id: str, source: str, to: str, left: int, reached: int) -> bytes | None:
        there = {source, to} <= self.tx.topology.servers.keys() or to == home_of(id)
        there = there and not self.late(source, to, left, reached)
        return _packed(id, source, to) if asker == source == self.home(id) and there else None

    def _relocated(self, id: str, source: str, to: str) -> None:
        if self.home(id) == source:
            self._put(id, to)
            self.on_move(id, source, to)

    def _put(self, id: str, home: str) -> None:
        if home == home_of(id):
            self.moved.pop(id, None)
            self.keep(id, None)
        else:
            self.moved[id] = home
            self.keep(id, home)

    def check(self) -> None:
        assert all(home != home_of(id) for id, home in self.moved.items()), "1: it lives where its id says"


def _packed(id: str, source: str, to: str) -> bytes:
    return json.dumps([id, source, to], ensure_ascii=False).encode()


def _read(message: Message) -> tuple[str, str, str]:
    """Raises UnknownNotification."""
    return _read_asked(message)[:3]


def _read_asked(message: Message) -> tuple[str, str, str, int, int]:
    """The last are the epochs below which the stores of both were of no use, as far as the asker knew. Raises
    UnknownNotification."""
    try:
        found = json.loads(message.payload)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None
    match found:
        case [str(id), str(source), str(to), *epochs] if is_id(id) and source and to and "/" not in source + to:
            match epochs:
                case []:
                    return id, source, to, 0, 0
                case [int(left), int(reached)]:
                    return id, source, to, left, reached
    raise UnknownNotification(f"{message.type} came without an agent and its homes")
