"""Native agents: the broker's own (queues, subscriptions, sessions). They write their rows into the open batch.

An exception in one is our bug and stops the server; a legal refusal is a MomError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from mombroker.broker.wire import Note, note_of
from mombroker.core.batch import Damage
from mombroker.core.collection import Collection
from mombroker.core.errors import UnknownNotification
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.transaction import LINGER


class Native:
    """`handlers` maps a type of traffic to the method that takes (note, message). One that is `volatile` has no row."""

    path: ClassVar[str] = ""
    deletable: ClassVar[bool] = False
    rows_are: ClassVar[dict[str, str]] = {}
    handlers: ClassVar[dict[str, Callable[[Any, Any, Message], None]]] = {}

    __slots__ = ("natives", "tx", "turns", "id", "volatile", "collections")

    def __init__(self, natives: Natives, id: str, volatile: bool = False):
        self.natives, self.tx, self.turns, self.id = natives, natives.tx, natives.turns, id
        self.volatile = volatile
        self.collections: dict[str, Collection] = {}

    @classmethod
    def check_new(cls, state: bytes) -> None:
        """Raises UnknownNotification for what another server cannot mean as the state of a new one."""
        if state:
            raise UnknownNotification(f"a new {cls.__name__} came with a state")

    def react(self, message: Message) -> None:
        handler = self.handlers.get(message.type)
        if handler is None:
            raise UnknownNotification(f"{type(self).__name__} has no reaction to {message.type}")
        handler(self, message.note or note_of(message), message)

    def created(self) -> None: ...

    def repeated(self, source: str) -> bool:
        """Its creation is asked for again; True if that is no fault of this asker's."""
        return False

    def deleted(self) -> None:
        self.natives.remove(self.id)

    def flush(self) -> None: ...

    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None:
        for native, _ in parts:
            native.flush()

    def alarm(self) -> None: ...

    def damaged(self, damage: Damage) -> None:
        """The store has lost a row of one of our collections."""
        if damage.collection in self.collections:
            self.collections[damage.collection].lost(damage.id)

    def pack(self) -> bytes:
        return b""

    def check(self) -> None: ...

    # -- for those below -------------------------------------------------------------------------------------------

    def post(self, to: str, note: Note) -> None:
        self.natives.post(self.id, to, note)

    def tell(self, to: str, note: Note) -> None:
        """As `post`, from `flush`: one of our own natives takes it at once, if nothing is in its way."""
        native = self.natives.agents.get(to)
        if native is None or self.turns.work <= 0:
            self.natives.post(self.id, to, note)
        else:
            self.turns.work -= 1
            self.natives.send_now(self.id, native, note)

    def touch(self) -> None:
        """Let `flush` be called when the reactions at hand are done."""
        self.turns.touched[self] = None

    def alarm_at(self, at: int) -> None:
        """Let `alarm` be called when this time has come: once for each call of this, whatever else was asked for. A
        queue's `flush` follows it.

        Alarms are in memory only, and a restart leaves none: who needs one asks again, by what its state or its rows
        say, when they are loaded: `Queue._load`, `Schedule.take_up`, `Subscription.recovered`.
        """
        self.natives.alarm(at, self)

    def change(self) -> None:
        """Let the row be written when the batch closes."""
        if not self.volatile:
            self.natives.changed[self] = None
            self.tx.urgency = self.tx.urgency or LINGER

    def collection(self, name: str) -> Collection:
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = self.natives.collection(self.id, name)
        return found

    def accept(self, collection: Collection) -> None:
        """Changes of a collection join the open batch."""
        if collection.accept():
            self.tx.urgency = self.tx.urgency or LINGER
