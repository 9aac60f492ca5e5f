"""Replicated: an object with a copy at each member of a group. Commands are done at all copies, in one order; a query
is answered by the copy that is asked."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from mombroker.agents import notifications as notes
from mombroker.agents.agent import Agent, reacts
from mombroker.agents.groups import View, cast_of
from mombroker.agents.notifications import NotDelivered, ReactionFailed, notification
from mombroker.agents.tables import Table
from mombroker.core.errors import UnknownNotification
from mombroker.core.groups.view import CAST

F = typing.TypeVar("F", bound=Callable[..., Any])


@notification(name="mom.Command")
class Command:
    """A command on its way to all copies: what it was when it came, and who has asked."""

    type: str
    packed: bytes
    asker: str


def command(method: F) -> F:
    """Mark a method as what a Replicated does, at all its copies, when one of them gets the notification that its
    argument is annotated with. What it returns, if anything, is the answer to who has asked that one: a notification.
    Called by another command, or by that of a subclass, it is done there and then.

    It depends on the state and its argument alone; so it neither looks at `now` nor draws a number, and what it sends
    is sent by each copy."""
    method.__commands__ = True  # type: ignore[attr-defined]
    return method


class Replicated(Agent):
    """An agent of a group of its like, all of which have the same state. `group_name` says which group; else it is
    called as the class. Its fields and tables are the state; Items are not, since their ids are a copy's own."""

    group_members: list[str] = []  # noqa: RUF012 - the copies, the eldest first; each keeps its own
    group_name: typing.ClassVar[str] = ""
    _commands: typing.ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if getattr(method, "__commands__", False) and not hasattr(method, "__commanded__"):
                setattr(cls, name, reacts(_asked(method)))
        super().__init_subclass__()
        cls._commands = {
            wire: inner for wire, outer in cls._reactions.items()
            if (inner := getattr(outer, "__commanded__", None)) is not None
        }  # fmt: skip

    def _group(self) -> str:
        return self.group_name or type(self).__name__

    def on_create(self) -> None:
        self.join(self._group())

    def snapshot(self, group: str) -> Any:
        return {name: getattr(self, name) for name in self._fields if name != _MEMBERS}

    def snapshot_tables(self, group: str) -> list[Table]:
        return [getattr(self, name) for name in self._tables]

    def restore(self, group: str, state: Any) -> None:
        for name, value in state.items():
            if name in self._fields and name != _MEMBERS:
                setattr(self, name, value)

    @reacts
    def viewed(self, note: View) -> None:
        """Whoever is out joins again, and gets the state of those that went on."""
        self.group_members = note.members
        if self.id not in note.members:
            self.join(self._group())

    @reacts
    def do_command(self, note: Command) -> None:
        """One more command, at each copy in its turn. The copy that was asked tells who has asked; where it was none
        in this view, the eldest does. What cannot be the answer is none at any copy: all have the same state."""
        method = self._commands.get(note.type)
        if method is None:
            raise UnknownNotification(f"{type(self).__name__} has no command for {note.type}")
        answer = method(self, notes.decode(note.type, note.packed))
        if answer is not None and note.asker:
            asked = self._now_reacting()
            others = len(asked.ops)
            self.send(note.asker, answer)
            if not self._answers(self.sender):
                del asked.ops[others:]

    def _obeys(self) -> bool:
        """Is it doing a command?"""
        message = self._now_reacting().message
        return message.type == CAST and cast_of(message.payload)[1] == _COMMAND

    def _answers(self, asked: str) -> bool:
        return asked == self.id or (asked not in self.group_members and self.group_members[:1] == [self.id])

    def _who_asks(self, sender: str, type: str, fields: bytes) -> tuple[str, str]:
        if type == _COMMAND and self._answers(sender):
            note: Command = notes.decode(type, fields)
            return note.asker, note.type
        return super()._who_asks(sender, type, fields)

    @reacts
    def command_returned(self, note: NotDelivered) -> None:
        """Nobody has done it, or nobody knows: who has asked is told."""
        asked: Command = note.note
        if asked.asker:
            failed = ReactionFailed(self.id, asked.type, note.reason, self.server, 0)
            self.send(asked.asker, failed)


_COMMAND, _MEMBERS = "mom.Command", "group_members"


def _asked(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The reaction of the copy that is asked; where a command calls another one, that itself."""

    @functools.wraps(method)
    def asked(self: Replicated, note: Any) -> Any:
        if self._obeys():
            return method(self, note)
        wire, packed = notes.encode(note)
        self.group(self._group()).cast(Command(wire, packed, self.sender), order="total")
        return None

    asked.__commanded__ = method  # type: ignore[attr-defined]
    asked.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return asked
