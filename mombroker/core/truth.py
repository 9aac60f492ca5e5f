"""Truth: the topology that the bus goes by, by revision. The registry decides a change, and each server applies it."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from mombroker.core import revision
from mombroker.core.changes import Change, Kind, compare, difference, told
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.ids import declared_id, home_of
from mombroker.core.message import Message
from mombroker.core.meta import HISTORY, REVISION, TOPOLOGY
from mombroker.core.names import Names
from mombroker.core.replicated import Replicated, Replication
from mombroker.core.topology import Topology, listed

APPLY, REVISED, REFUSED, BEGUN = "_apply", "_revised", "_unapplied", "_begun"
LAST = (1 << 63) - 1
SHOWN = 6  # lines of a difference, in one line


class Truth(Replicated):
    """The revision that is in force here. Only an empty store takes the topology of a server's file, as revision 1.

    number    of the revision
    since     when it is in force, ns since 1970
    text      of the topology (core/revision.py)
    checks    what else may be wrong with a topology; each raises MomError
    applied   who goes on by another topology, called with what has changed once it is in force
    ways      by kind: how the registry carries out a change that takes more than to tell it, called with the server
              that asks, the text and the change
    ended     called with the number of a revision that is in force everywhere
    made      the state of a new agent of this server, of a class and fields; raises MomError if it cannot be made
    is_lost   has the registry decided that a server is lost?
    install   has the server work under another topology: that, domains of it that begin anew in any case, and the
              epoch of what begins
    """

    install: Callable[[Topology, Container[str], int], None]
    made: Callable[[str, dict[str, Any]], bytes]

    agent, prefix = "_topology", HISTORY

    def __init__(self, replication: Replication, file: Topology, names: Names):
        super().__init__(replication)
        self._names = names
        self.checks: list[Callable[[Topology], None]] = []
        self.applied: list[Callable[[Change], None]] = []
        self.ways: dict[Kind, Callable[[str, str, Change], None]] = {}
        self.ended: Callable[[int], None]
        self.is_lost: Callable[[str], bool]
        self.number, self.text = revision.in_force(self.tx.reader.meta(REVISION) | self.tx.reader.meta(TOPOLOGY))
        self.since = self.tx.now
        if self.number:
            self.since, *_ = revision.history(self.tx.reader.meta(HISTORY)).get(self.number, (0, "", []))
            if line := self.stands(file):
                self.tx.note(line)
        else:
            self.number, self.text = 1, revision.text_of(file)
            self.tx.rows.meta.update(revision.rows(1, self.text, self.since, []))
        self.define(APPLY, _read_asked, self._decide, REVISED, _read_told, self._revise)
        self.refusal(REFUSED, _read_refusal, self._refused)
        self.refusal(BEGUN, _read_begun, self._begun)

    def stands(self, file: Topology) -> str:
        """How a server's file stands to the revision in force, in a line; empty if it is of that."""
        goes = f"goes by revision {self.number} of the topology, which its store has"
        digest, past = revision.digest_of(revision.text_of(file)), revision.history(self.tx.reader.meta(HISTORY))
        if digest == revision.digest_of(self.text):
            return ""
        if older := next((number for number, (_, other, _) in past.items() if other == digest), 0):
            return f"{goes}; the file is that of revision {older}: `mom topology export` writes the one in force"
        lines = "; ".join(told(revision.read(self.text), file)[:SHOWN]) or "other settings"
        return (
            f"{goes}; the file would change that ({lines}): run `mom topology plan` to see all of it, and "
            "`mom topology apply` to have it"
        )

    def apply(self, expected: int, text: str, ticket: int, drop: bool = False, lost: Sequence[str] = ()) -> None:
        """Have the topology of a text in place of revision `expected`; the reply to `ticket` follows when this server
        has it. With `drop` servers leave with all that they hold; those that are `lost` are not waited for. Raises
        MomError for what no server would do."""
        self.judge(expected, text, drop, lost)
        self.wait(revision.digest_of(text), ticket)
        values = [expected, text, *more_of(drop, lost)]
        self.ask(APPLY, json.dumps(values, ensure_ascii=False).encode())

    def judge(self, expected: int, text: str, drop: bool = False, lost: Sequence[str] = ()) -> Change:
        """What the topology of a text would change. Raises MomError, with the remedy, if that cannot be done now."""
        if expected != self.number:
            raise MomError(
                f"the plan is for revision {expected} of the topology, and {self.tx.name} is at {self.number}: run "
                "`mom topology plan` again"
            )
        now, new = revision.read(self.text), revision.read(text)
        if self.tx.name not in now.servers:
            raise MomError(f"{self.tx.name} has left the bus with revision {self.number} of its topology: ask another")
        for check in self.checks:
            check(new)
        change = compare(now, new)
        if change.kind is Kind.NOTHING:
            raise MomError(f"that is revision {self.number}, which is in force: there is nothing to apply")
        for what, name, _, agent in change.settings:
            if what == "agent" and agent:
                self._names.free(name, declared_id(agent["server"], name))
        self.check_agents(change)
        shown = {id: id for id in self._names.homes.moved} | {id: name for name, id in self._names.known.items()}
        if former := next((shown[id] for id in shown if home_of(id) in change.newcomers), ""):
            raise MomError(
                f"{former} lived on a server of that name, which has left this bus: give the new server another name, "
                "or stop the bus and withdraw the names of the former one by `mom topology adopt --drop`"
            )
        if change.kind is Kind.FREEZE and change.newcomers:
            raise MomError(
                f"the domains change, and {listed(change.newcomers)} joins the bus: have that in two plans, the "
                "newcomer first, in a domain of its own with a server that is there, as `mom topology apply` does"
            )
        for server in lost:
            if server not in change.leavers or not self.is_lost(server):
                raise MomError(f"{server} is not known to be lost, or stays: run `mom server lost {server}` first")
        return replace(change, drop=drop, lost=tuple(lost))

    # -- on the registry server ----------------------------------------------------------------------------------

    def _decide(self, asker: str, expected: int, text: str, drop: bool, lost: list[str]) -> bytes | None:
        try:
            change = self.judge(expected, text, drop, lost)
        except MomError as error:
            self.refused(asker, text, str(error))
            return None
        if way := self.ways.get(change.kind):
            way(asker, text, change)
            return None
        return json.dumps([self.number + 1, self.tx.now, text], ensure_ascii=False).encode()

    def check_agents(self, change: Change) -> None:
        """Raises MomError for an agent that is declared for this server and cannot be made here."""
        for what, name, _, agent in change.settings:
            if what == "agent" and agent and agent["server"] == self.tx.name:
                try:
                    self.made(agent["cls"], agent["fields"])
                except MomError as error:
                    raise MomError(
                        f"agent {name} cannot be made on {self.tx.name}: {error}; bring its class there, then apply"
                    ) from None

    def refused(self, asker: str, text: str, reason: str) -> None:
        """Tell the server that has asked why there is no change."""
        self.refuse(asker, REFUSED, json.dumps([revision.digest_of(text), reason], ensure_ascii=False).encode())

    def begun(self, asker: str, text: str, number: int) -> None:
        """Tell the server that has asked that the change is under way."""
        self.refuse(asker, BEGUN, json.dumps([revision.digest_of(text), number]).encode())

    def tell(self, number: int, since: int, text: str) -> None:
        """Have a revision in force everywhere."""
        self._tell(self.tx.topology.servers, REVISED, json.dumps([number, since, text], ensure_ascii=False).encode())

    def retell(self, servers: Iterable[str]) -> None:
        """Tell some servers again what is in force: the word may have been lost on its way."""
        self._tell(servers, REVISED, json.dumps([self.number, self.since, self.text], ensure_ascii=False).encode())

    # -- everywhere ------------------------------------------------------------------------------------------------

    def _revise(self, number: int, since: int, text: str) -> None:
        lines = self.take(number, since, text) if number > self.number else []
        self.ended(number)
        self.settle(revision.digest_of(text), {"revision": number, "changes": lines})

    def take(self, number: int, since: int, text: str, anew: Container[str] = ()) -> list[str]:
        """From now on this revision is in force here; domains of `anew` begin with new clocks. What it changes."""
        before, after = revision.read(self.text), revision.read(text)
        change, lines = difference(before, after), told(before, after)
        self.number, self.since, self.text = number, since, text
        self.tx.rows.meta.update(revision.rows(number, text, since, lines))
        self.install(revision.read(text, self.tx.topology, self.tx.name), anew, number << revision.EPOCH_BITS)
        for call in self.applied:
            call(change)
        self.tx.note(f"revision {number} of the topology is in force: {'; '.join(lines)}")
        return lines

    def _begun(self, digest: str, number: int) -> None:
        self.settle(digest, {"revision": number, "begun": True})

    def _refused(self, digest: str, sentence: str) -> None:
        self.settle(digest, sentence)


def more_of(drop: bool, lost: Sequence[str]) -> list[Any]:
    """What is said only where servers leave with what they hold, or are lost: older ones do not know it."""
    return [True, [*lost]] if lost else [True] if drop else []


def read_more(more: list[Any]) -> tuple[bool, list[str]] | None:
    """None: it is something else."""
    match more:
        case [] | [True]:
            return bool(more), []
        case [True, [*lost]] if lost and all(type(name) is str for name in lost):
            return True, lost
    return None


def _read_asked(message: Message) -> tuple[int, str, bool, list[str]]:
    match _values(message):
        case [int(expected), str(text), *more] if 0 < expected < LAST and (read := read_more(more)) is not None:
            _readable(message, text)
            return expected, text, *read
    raise UnknownNotification(f"{message.type} came with what is no topology")


def _read_told(message: Message) -> tuple[int, int, str]:
    match _values(message):
        case [int(number), int(since), str(text)] if 0 < number < LAST and 0 <= since <= LAST:
            _readable(message, text)
            return number, since, text
    raise UnknownNotification(f"{message.type} came with what is no revision")


def _read_refusal(message: Message) -> tuple[str, str]:
    match _values(message):
        case [str(digest), str(sentence)]:
            return digest, sentence
    raise UnknownNotification(f"{message.type} came with what is no refusal")


def _read_begun(message: Message) -> tuple[str, int]:
    match _values(message):
        case [str(digest), int(number)]:
            return digest, number
    raise UnknownNotification(f"{message.type} came with what is no revision")


def _values(message: Message) -> object:
    try:
        return json.loads(message.payload)
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} came with what is no JSON: {error}") from None


def _readable(message: Message, text: str) -> None:
    try:
        revision.read(text)
    except MomError as error:
        raise UnknownNotification(f"{message.type} came with a wrong topology: {error}") from None
