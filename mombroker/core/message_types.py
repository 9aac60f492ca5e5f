"""MessageTypes: what is done with messages of certain types, whoever they are for."""

from __future__ import annotations

from collections.abc import Callable

from mombroker.core.message import Message

Reader = Callable[[Message], object]
Handler = Callable[[Message], None]
Enter = Callable[[Message, str], bool]


class MessageTypes:
    """readers    by type: what reads a message, and raises UnknownNotification for what cannot be meant
    handlers   by type: what obeys a message at its delivery, in place of its agent's reaction
    at_once    types that are obeyed where they are sent, before anything else happens
    entering   by type: what says of each copy at its delivery, before its agent has it, whether it is to have it
    """

    __slots__ = ("readers", "handlers", "at_once", "entering")

    def __init__(self) -> None:
        self.readers: dict[str, Reader] = {}
        self.handlers: dict[str, Handler] = {}
        self.at_once: set[str] = set()
        self.entering: dict[str, Enter] = {}

    def check(self, type: str, read: Reader) -> None:
        """Have messages of a type read before anything changes; their agents react to them."""
        assert self.readers.setdefault(type, read) is read, f"two kinds of messages are called {type}"

    def obey(self, type: str, read: Reader, obey: Handler, at_once: bool = True) -> None:
        """Have messages of a type read, and obeyed at their delivery."""
        assert type not in self.handlers, f"two kinds of messages are called {type}"
        self.readers[type], self.handlers[type] = read, obey
        if at_once:
            self.at_once.add(type)
