"""Requests of operators: one table of verbs, whatever part answers them, and the tickets of those that wait.

A verb is a method that `reads` or `changes` marks: its name, its arguments with their annotations as kinds, and the
first paragraph of its docstring are the verb's. `Requests.add` takes up all verbs of an object.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from mombroker.core import times
from mombroker.core.errors import MomError
from mombroker.core.topology import suggestion
from mombroker.core.transaction import COMMIT, Transaction

Args = dict[str, Any]
Reply = dict[str, Any]
F = TypeVar("F", bound=Callable[..., "Reply | None"])

DECIDE_NS = 5 * times.SECOND  # for the registry to decide what an operator asks for
LAST_INT = (1 << 63) - 1  # that a row can hold
MARK = "_verb"
TICKET = "ticket"  # the parameter of a verb that is answered later
SECRET = frozenset({"hash", "was"})  # arguments whose values no log or answer has
CONTENTS = frozenset({"fields"})  # those that a log has no need of: of messages
SILENT = frozenset({"exported", "renew_user"})  # changes that nobody decides: not in the log
SHOWN = 200  # characters of an argument, or of a refusal, in the log
DONE, LATER = "done", "asked for"  # what the audit says; the second of what the registry decides once it answers
OPERATORS = "operators"  # who may ask: whoever has the token of the server


@dataclass(frozen=True, slots=True)
class Kind:
    says: str
    type: Any
    inner: Any = None

    def fits(self, value: object) -> bool:
        if type(value) is not self.type:
            return False
        if isinstance(value, list):
            return all(KINDS[self.inner].fits(each) for each in value)
        return not isinstance(value, int) or 0 <= value <= LAST_INT


KINDS: dict[Any, Kind] = {
    str: Kind("a text", str),
    bool: Kind("true or false", bool),
    int: Kind("a whole number from 0", int),
    list[str]: Kind("a list of texts", list, str),
    list[int]: Kind("a list of whole numbers", list, int),
    dict[str, Any]: Kind("a table", dict),
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One that is `needed` is never an empty text; one that is not has a `default`, and may be None if that is."""

    name: str
    parameter: str
    kind: Kind
    needed: bool
    none: bool
    default: Any = None

    def fits(self, value: object) -> bool:
        return (value is None and self.none) or (self.kind.fits(value) and not (self.needed and value == ""))

    def __str__(self) -> str:
        return f"{self.name} ({self.kind.says}{'' if self.needed else ', optional'})"


@dataclass(frozen=True, slots=True)
class Verb:
    """What may be asked.

    changes   something that lasts; the answer comes when it is durable
    later     it may be answered when the registry has decided
    may       who may ask
    """

    name: str
    does: str
    arguments: dict[str, Argument]
    changes: bool
    later: bool
    method: str
    may: str = OPERATORS

    def check(self, args: Args) -> None:
        """Raises MomError, with what is right, for arguments that are not."""
        takes = ", ".join(map(str, self.arguments.values())) or "no arguments"
        for name, value in args.items():
            argument = self.arguments.get(name)
            if argument is None:
                raise MomError(f"the request {self.name} has no {ascii(name)[:64]}: it takes {takes}")
            if not argument.fits(value):
                shown = "that" if name in SECRET else ascii(value)[:64]
                raise MomError(
                    f"the request {self.name} cannot have {shown} as its {name}, which is "
                    f"{argument.kind.says}{' that is not empty' if value == '' else ''}"
                )
        for name, argument in self.arguments.items():
            if argument.needed and name not in args:
                raise MomError(f"the request {self.name} needs {name}, {argument.kind.says}: it takes {takes}")


def reads(method: F) -> F:
    """Marks a verb that changes nothing."""
    setattr(method, MARK, False)
    return method


def changes(method: F) -> F:
    """Marks a verb that changes what is stored, or how the process works."""
    setattr(method, MARK, True)
    return method


def verbs_of(cls: type) -> tuple[Verb, ...]:
    """The verbs of a class, in the order of its text."""
    return tuple(_verb(method) for method in vars(cls).values() if hasattr(method, MARK))


@cache
def _verb(method: Callable[..., Reply | None]) -> Verb:
    hints, parameters = get_type_hints(method), list(inspect.signature(method).parameters.values())[1:]
    arguments: dict[str, Argument] = {}
    for each in parameters:
        if each.name != TICKET:
            none = NoneType in get_args(hints[each.name])
            of = next(kind for kind in get_args(hints[each.name]) if kind is not NoneType) if none else hints[each.name]
            assert of in KINDS, f"{each.name} of {method.__qualname__} is of no kind that a request can have"
            name = _spoken(each.name)
            needed = each.default is inspect.Parameter.empty
            default = None if needed else each.default
            arguments[name] = Argument(name, each.name, KINDS[of], needed, none, default)
    does = " ".join(inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0].split())
    later = any(each.name == TICKET for each in parameters)
    return Verb(_spoken(method.__name__), does, arguments, getattr(method, MARK), later, method.__name__)


def _spoken(name: str) -> str:
    """`class_` stands for what Python has no such name for."""
    return name.rstrip("_")


class Tickets:
    """Requests without an answer yet.

    until   ticket -> when whoever asked no longer waits for the registry
    audited   ticket -> what the log is to say of it once it is answered
    """

    __slots__ = ("tx", "until", "audited", "answers", "_ring")

    def __init__(self, tx: Transaction, ring: Callable[[int], None]):
        self.tx, self._ring = tx, ring
        self.until: dict[int, int] = {}
        self.audited: dict[int, Reply] = {}
        self.answers: list[tuple[int, Reply | str]] = []

    def open(self, ticket: int) -> None:
        self.until[ticket] = times.after(self.tx.now, DECIDE_NS)

    def wait(self, ticket: int) -> None:
        """Have `hurry` called in time, unless it is answered."""
        if ticket in self.until:
            self._ring(self.until[ticket])

    def answer(self, ticket: int, reply: Reply | str, result: str = "") -> None:
        """The answer to an operator, a refusal if it is a sentence; unless one was given already. `result`: what the
        audit says, where that is neither the refusal nor that it is done."""
        if self.until.pop(ticket, None) is not None:
            self.answers.append((ticket, reply))
            if ticket in self.audited:
                self.audit(self.audited.pop(ticket), result or (reply[:SHOWN] if isinstance(reply, str) else DONE))

    def audit(self, said: Reply, result: str) -> None:
        """A record of the log."""
        text = json.dumps({**said, "result": result}, ensure_ascii=False, default=_shown)
        self.tx.record("admin", done=self.tx.now, detail=text)

    def hurry(self) -> None:
        """An operator does not wait for a registry that is down."""
        while self.until and next(iter(self.until.values())) <= self.tx.now:
            self.answer(
                next(iter(self.until)),
                f"{self.tx.topology.registry or self.tx.name}, which decides names and policies, does not answer "
                f"{self.tx.name}: what was asked for is done as soon as it does; see `mom status`",
                result=LATER,
            )
            self.tx.urgency = COMMIT


class Requests:
    """The verbs of one server: of its core, its broker and its process.

    after   verb -> what is done with its reply, which is durable, before whoever asked has it
    """

    __slots__ = ("tx", "tickets", "verbs", "after", "_calls")

    def __init__(self, tx: Transaction, ring: Callable[[int], None]):
        self.tx, self.tickets = tx, Tickets(tx, ring)
        self.verbs: dict[str, Verb] = {}
        self.after: dict[str, Callable[[Reply], None]] = {}
        self._calls: dict[str, Callable[..., Reply | None]] = {}

    def add(self, *parts: Any) -> None:
        """Take up the verbs of these objects."""
        for part in parts:
            for verb in verbs_of(type(part)):
                assert verb.name not in self.verbs, f"two verbs are called {verb.name}"
                self.verbs[verb.name] = verb
                self._calls[verb.name] = getattr(part, verb.method)

    def ask(self, ticket: int, name: str, args: Args, who: str = "", where: str = "") -> None:
        """A request, which is answered under its ticket, now or later. What is to change something is in the log, with
        who has asked for it, from where, and what has become of it."""
        self.tickets.open(ticket)
        verb = self.verbs.get(name)
        if verb is not None and verb.changes and name not in SILENT:
            self.tickets.audited[ticket] = {"verb": name, "args": told(args), "who": who, "from": where}
        try:
            reply: Reply | str | None = self._call(ticket, name, args)
        except MomError as error:
            reply = str(error)
        if reply is not None:
            self.tickets.answer(ticket, reply)
        elif (said := self.tickets.audited.get(ticket)) is not None:
            self.tickets.audit(said, "asked")
        self.tickets.wait(ticket)
        self.tx.urgency = COMMIT

    def _call(self, ticket: int, name: str, args: Args) -> Reply | None:
        verb = self.verbs.get(name)
        if verb is None:
            known = suggestion(name, self.verbs) or f"known are {', '.join(sorted(self.verbs))}"
            raise MomError(f"no such request: {ascii(name)[1:-1][:64]}; {known}")
        verb.check(args)
        given = {verb.arguments[key].parameter: value for key, value in args.items()}
        if verb.later:
            given[TICKET] = ticket
        return self._calls[name](**given)


def told(args: Args) -> Args:
    """Arguments for the log: of secrets, and of long ones, only what they are."""
    hidden = SECRET | CONTENTS
    return {str(name)[:SHOWN]: "(not told)" if name in hidden else _told(value) for name, value in args.items()}


def _told(value: object) -> object:
    text = _shown(value)
    return value if len(text) <= SHOWN and isinstance(value, str | int | bool | None) else text[:SHOWN]


def _shown(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=ascii)
    except (ValueError, TypeError, RecursionError):
        return ascii(type(value))
