"""The registry's part in a change of the domains: it asks all that are inside, lets it begin, and hears of its end.

Its state is one row, and whatever it does is a reaction: a registry that is down is only slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from mombroker.core import times
from mombroker.core.changes import Change, Kind
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.meta import CHANGE
from mombroker.core.reconfiguration import (
    AGENT,
    ANSWER,
    ASKED,
    FORGET,
    FREEZE,
    FROZEN,
    READY,
    SWITCHED,
    read_id,
    read_values,
)
from mombroker.core.replicated import Replication
from mombroker.core.revision import digest_of
from mombroker.core.topology import listed
from mombroker.core.truth import Truth, more_of

ANSWER_NS = 4 * times.SECOND  # for all to say that they can; whoever is up takes a round trip


@dataclass(slots=True)
class Run:
    """A change under way: `asker` is the server that wants it, and `left` those that have still to answer, or to
    switch: who leaves the bus is not waited for. Its revision is in force since `since` once all have. With `drop`
    leavers may hold something."""

    id: int
    number: int
    since: int
    text: str
    asker: str
    phase: str = ASKED
    inside: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    leavers: list[str] = field(default_factory=list)
    drop: bool = False
    lost: list[str] = field(default_factory=list)


class Coordinator:
    """1. There is one change at a time, and somebody has still to answer, or to switch.

    run     the change under way
    until   when the answers must be there
    """

    def __init__(self, replication: Replication, truth: Truth, ring: Callable[[int], None]):
        self.tx, self._send, _, handle = replication
        self.truth, self._ring = truth, ring
        row = self.tx.reader.meta(CHANGE).get(CHANGE)
        self.run = None if row is None else Run(**json.loads(str(row)))
        self.until = 0
        handle(ANSWER, _read_answer, self._answered)
        handle(SWITCHED, read_id, self._switched)
        truth.checks.append(self.free)
        truth.ways[Kind.FREEZE] = self.begin

    def recover(self) -> None:
        if self.run is not None and self.run.phase == ASKED:
            self._wait()

    def _wait(self) -> None:
        self.until = times.after(self.tx.now, ANSWER_NS)
        self._ring(self.until)

    def begin(self, asker: str, text: str, change: Change) -> None:
        """Ask all that are inside. The rest follows by itself; a refusal is told to the asker."""
        tx, number = self.tx, self.truth.number + 1
        inside = [server for server in change.inside if server not in change.lost]
        self.run = Run(
            tx.new_id(), number, tx.now, text, asker, ASKED, inside, [*inside], list(change.leavers), change.drop,
            list(change.lost),
        )  # fmt: skip
        self._keep()
        self._wait()
        self._tell(READY)

    def _keep(self) -> None:
        row = None if self.run is None else json.dumps(asdict(self.run), ensure_ascii=False)
        self.tx.rows.meta[CHANGE] = row

    def _tell(self, type: str) -> None:
        run, tx = self.run, self.tx
        assert run is not None, "nothing is under way"
        values = [run.id] if type == FORGET else [run.id, run.number, run.since, run.text]
        if type != FORGET:
            values += more_of(run.drop, run.lost)
        dests = tuple(f"{name}/{AGENT}" for name in run.inside)
        payload = json.dumps(values, ensure_ascii=False).encode()
        self._send(new_message(tx, f"{tx.name}/{AGENT}", dests, type, payload, flags=BOUNCE))

    def _answered(self, message: Message) -> None:
        id, refusal = _answer(message)
        run = self.run
        if run is None or run.id != id or run.phase != ASKED or message.origin not in run.left:
            return
        if refusal:
            self._give_up(f"{refusal}; nothing has changed")
            return
        run.left.remove(message.origin)
        if not run.left:
            run.phase, self.until = FROZEN, 0
            run.left = [server for server in run.inside if server not in run.leavers]
            self.truth.begun(run.asker, run.text, run.number)
            self._tell(FREEZE)
        self._keep()

    def hurry(self) -> None:
        """Nobody waits for ever for a server that is down."""
        if self.run is None or not 0 < self.until <= self.tx.now:
            return
        left = self.run.left
        verb = "does" if len(left) == 1 else "do"
        self._give_up(f"{listed(left)} {verb} not answer: see `mom status`, and apply again; nothing has changed")

    def abort(self) -> int:
        """Give the change up, and tell which it was. Raises MomError if there is none, or it has begun."""
        registry = self.tx.topology.registry
        if registry not in (None, self.tx.name):
            raise MomError(f"{registry} carries out changes of the domains: ask it to abort")
        if self.run is None:
            raise MomError("no change of the domains is under way: see `mom topology status`")
        if self.run.phase != ASKED:
            raise MomError(
                f"the change to revision {self.run.number} has begun, and goes on by itself: see "
                "`mom topology status`, and change the domains back when it is over"
            )
        number = self.run.number
        self._give_up("it was aborted; nothing has changed")
        return number

    def _give_up(self, reason: str) -> None:
        run = self.run
        assert run is not None, "nothing is under way"
        self._tell(FORGET)
        self.run, self.until = None, 0
        self._keep()
        self.truth.refused(run.asker, run.text, reason)

    def _switched(self, message: Message) -> None:
        run = self.run
        if run is None or run.id != read_id(message) or message.origin not in run.left:
            return
        run.left.remove(message.origin)
        if not run.left:
            self.run = None
            self.truth.tell(run.number, run.since, run.text)
        self._keep()

    def over(self, id: int) -> None:
        """All inside have switched but those that are lost for good, says the operator. Raises MomError."""
        run = self.run
        if run is None or run.id != id:
            return
        if run.phase == ASKED:
            raise MomError(f"the change to revision {run.number} has not begun: `mom topology abort` gives it up")
        self.run = None
        self.truth.tell(run.number, run.since, run.text)
        self._keep()

    def lost(self, server: str) -> None:
        """It was decided that a server is lost, and so may be the word that the change begins."""
        run = self.run
        if run is not None and run.phase == ASKED and server in run.inside:
            self._give_up(f"{server} is lost: apply again once another one is in its place; nothing has changed")
        elif run is not None and run.phase == FROZEN:
            self._tell(FREEZE)

    def leaves(self, server: str) -> int:
        """The revision with which a server is to leave the bus, by the change under way; 0: it is not to."""
        return self.run.number if self.run is not None and server in self.run.leavers else 0

    def free(self, _: object = None) -> None:
        """Raises MomError while no other change may begin."""
        if self.run is None:
            return
        raise MomError(
            f"a change to revision {self.run.number} of the topology is under way, and waits for "
            f"{listed(self.run.left)}: see `mom topology status`"
        )

    def status(self) -> dict[str, Any]:
        run = self.run
        if run is None:
            return {}
        return {
            "change": run.number, "id": run.id, "phase": run.phase, "digest": digest_of(run.text),
            "inside": list(run.inside), "waits_for": list(run.left),
        }  # fmt: skip

    def check(self) -> None:
        assert self.run is None or self.run.left, "1: it is over, or has begun, and does not know"


def _read_answer(message: Message) -> object:
    return _answer(message)


def _answer(message: Message) -> tuple[int, str]:
    """Raises UnknownNotification."""
    match read_values(message):
        case [int(id), str(refusal)] if id > 0:
            return id, refusal
    raise UnknownNotification(f"{message.type} came with what is no answer")
