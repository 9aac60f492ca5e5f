"""`mom topology plan`: what a file would change on a bus that runs, who has to pause for it, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mombroker.admin import leaving
from mombroker.admin.topology import advise, costs, made_from, steps, under_way
from mombroker.admin.topology.costs import Load
from mombroker.admin.topology.stand import DOWN, HIDDEN, UP, Stand, answering, look, past, reader_of
from mombroker.broker.verbs.drain import counted
from mombroker.core import revision
from mombroker.core.changes import Change, Kind, compare, difference, told
from mombroker.core.errors import MomError, StoreError
from mombroker.core.reconfiguration import cannot_leave
from mombroker.core.topology import Topology, listed
from mombroker.core.words import many
from mombroker.lab.bus_workloads import Send
from mombroker.net import adminclient, config

PLAYED = 2_000  # messages of the logs, the last ones, that are played on both topologies

KINDS = {
    Kind.NOTHING: "nothing is to be changed",
    Kind.SETTINGS: "settings alone: no server pauses, and one that is down has them when it is back",
    Kind.ATTACH: "new servers are attached: no server pauses, and others may be down",
    Kind.FREEZE: "domains change",
}
GOES_ON = "this change is under way, `mom topology status` tells how far it is"


@dataclass(slots=True)
class Plan:
    """pauses    servers that hold what enters the changed domains until these have changed; the others notice nothing
    waiting   what is under way in these domains now, a phrase each
    holds     leaver -> what it still has
    moves     what is on its way from there to another server, a line each
    under_way to which revision a change is under way, if nothing is to be changed, or if that is what a change has
              begun to bring; 0: to none
    first     the topology that is needed before, by which newcomers are attached; None if the change takes one step
    down      servers that do not answer; `hidden` may run, but cannot be asked from this machine
    needed    of these, those that the change has to wait for
    refused   why it cannot be applied as things stand: others have changed the bus since the file was made, or a
              server that was asked says so
    costs     by the model, under the messages that were sent last: of the current topology, and of the planned one
    """

    number: int
    change: Change
    lines: list[str]
    pauses: list[str]
    waiting: list[str] = field(default_factory=list)
    holds: dict[str, list[str]] = field(default_factory=dict)
    down: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    refused: str = ""
    costs: list[dict[str, Any]] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    first: Topology | None = None
    under_way: int = 0

    @property
    def steps(self) -> int:
        return 1 if self.first is None else 2

    def as_dict(self) -> dict[str, Any]:
        change = self.change
        return {
            "revision": self.number, "kind": change.kind.value, "changes": self.lines, "pauses": self.pauses,
            "domains": list(change.frozen), "replaced_by": list(change.replacing),
            "attached": [each._asdict() for each in change.attached], "newcomers": list(change.newcomers),
            "leavers": list(change.leavers), "holds": self.holds, "waiting": self.waiting, "down": self.down,
            "no_access": self.hidden, "needed": self.needed, "refused": self.refused,
            "costs": self.costs, "moves": self.moves, "steps": self.steps, "under_way": self.under_way,
        }  # fmt: skip

    def words(self) -> Iterator[str]:
        """The plan in lines, without its costs."""
        change = self.change
        if self.under_way and not self.refused:
            yield f"revision {self.under_way}: {GOES_ON}"
        else:
            yield f"revision {self.number}: {KINDS[change.kind]}"
        yield from (f"  {line}" for line in [*self.lines, *self.moves])
        if self.first is not None:
            yield (
                f"{_do(change.newcomers, 'joins first, in', 'join first, each in')} a domain of its own, for which "
                f"nobody pauses (revision {self.number + 1}); when all run, the domains change "
                f"(revision {self.number + 2})"
            )
        for server, things in self.holds.items():
            does = "gives up" if change.drop else "holds"
            yield f"{server} leaves, and {does} {leaving.listed(things) if things else 'nothing'}"
        for each in change.attached:
            yield f"{_do(each.servers, 'hangs', 'hang')} at {each.sponsor}, by {listed(each.domains, 12)}"
        if self.pauses:
            frozen = listed(change.frozen, 12)
            yield f"{_do(self.pauses, 'pauses', 'pause')} for what enters {frozen} there; all others go on as they are"
        yield from self.waiting
        if self.needed:
            yield f"{listed(self.needed, 12)} must be up for this: start what is down, or it is refused"
        if rest := [name for name in self.down if name not in self.needed and not self.under_way]:
            yield f"{_do(rest, 'is', 'are')} down, and will learn of it later"
        if self.hidden:
            them, they = ("it", "it holds") if len(self.hidden) == 1 else ("them", "they hold")
            yield f"{listed(self.hidden, 12)}: this machine has no token of {them}, so what {they} is not known here"


def _do(names: Sequence[str], one: str, many: str) -> str:
    return f"{listed(names, 12)} {one if len(names) == 1 else many}"


def of_text(file: Path, text: str, drop: bool) -> dict[str, Any]:
    """What a bus would do with another topology file, given as text, without its costs; `file` is the one by which its
    servers run. Relative paths are relative to that. Raises MomError."""
    bare = text.removeprefix("\ufeff")  # some editors mark the beginning
    new = config.loads(bare, file.parent.absolute(), "topology")
    made = make(look(config.load(file)), new, drop, costly=False)
    return {**made.as_dict(), "words": list(made.words())}


def make(stand: Stand, new: Topology, drop: bool = False, costly: bool = True) -> Plan:
    """What it takes to go from where a bus stands to another topology; with `drop` servers leave with all that they
    hold. Raises MomError if that is no successor."""
    old = stand.topology
    change = replace(compare(old, new), drop=drop)
    pauses = [name for name in change.inside if name in old.servers and name in new.servers]
    made = Plan(stand.number, change, told(old, new), pauses)
    made.down, made.hidden = stand.of_state(DOWN), stand.of_state(HIDDEN)
    if change.kind in (Kind.NOTHING, Kind.FREEZE) and _under_way(stand, made, new):
        return made
    made.first = steps.first(old, new, change)
    if change.kind is Kind.FREEZE:
        made.needed = [name for name in made.down if name in change.inside]
        made.waiting = list(_waiting(stand, change))
    for name in change.leavers:
        made.holds[name], moves = _held(stand, name)
        made.moves += moves
    if costly and change.kind in (Kind.ATTACH, Kind.FREEZE):
        made.costs = compared(old, new, recent(stand))
    if change.kind is Kind.NOTHING:
        return made
    if new.revision not in (0, stand.number):
        made.refused = made_from.refusal(new, stand.number, past(stand))
    elif made.first is not None:
        made.refused = _judged(stand, made.first, difference(old, made.first))
    else:
        made.refused = _judged(stand, new, change)
    made.refused = made.refused or _stay(stand, made)
    return made


def _stay(stand: Stand, made: Plan) -> str:
    """What a leaver that holds something will say; empty if none does. One that does not answer is not waited for."""
    held = ((name, things) for name, things in made.holds.items() if things and stand.servers[name].state == UP)
    return "" if made.change.drop else next((cannot_leave(*each) for each in held), "")


def _under_way(stand: Stand, made: Plan, new: Topology) -> bool:
    """Is what is wanted what a change has begun to bring? It is in force somewhere already, or nobody has switched yet.
    Another change, which would take back what is in force, refuses the plan."""
    silent = {name: seen.why for name, seen in stand.servers.items() if seen.state != UP}
    rows = under_way.statuses(stand.topology, silent)
    if made.change.kind is Kind.FREEZE:
        made.under_way = under_way.begun(rows, revision.digest_of(revision.text_of(new)))
    else:
        number = made.under_way = under_way.change(rows)
        if number > stand.number:
            made.refused = f"a change to revision {number} of the topology is under way: see `mom topology status`"
    made.waiting = list(under_way.waits(rows)) if made.under_way else []
    return made.under_way > 0


def _judged(stand: Stand, new: Topology, change: Change) -> str:
    """What the registry says, or else another server that answers, and those that are to have new agents; empty if they
    take the change, or nobody answers."""
    up = list(answering(stand, stand.topology.registry))
    homes = {agent["server"] for what, _, _, agent in change.settings if what == "agent" and agent}
    more = {"drop": True} if change.drop else {}  # servers of an older version do not know it
    for asked in [*up[:1], *(name for name in up[1:] if name in homes)]:
        with adminclient.connect(stand.topology, asked) as client:
            try:
                client.request("judge_topology", text=revision.text_of(new), revision=stand.number, **more)
            except MomError as error:
                return str(error)
    return ""


def _waiting(stand: Stand, change: Change) -> Iterator[str]:
    """What is on its way in the domains that are to change, as their servers tell it."""
    for name, seen in stand.servers.items():
        if seen.state == UP:
            for link in seen.status["links"]:
                if link["domain"] in change.frozen and (link["waiting"] or link["held"]):
                    held = f", and {many(link['held'], 'from it is', 'from it are')} held" if link["held"] else ""
                    yield f"{many(link['waiting'], 'packet waits', 'packets wait')} in {name} for {link['peer']}{held}"


def _held(stand: Stand, name: str) -> tuple[list[str], list[str]]:
    """What lives on a leaver, a phrase each, and what of that is on its way elsewhere, as it says itself; if it does
    not answer, what its store has."""
    if stand.servers[name].state != UP:
        return _holdings(stand, name), []
    with adminclient.connect(stand.topology, name) as client:
        rows = client.request("holdings")["holdings"]
    moves = [
        f"> {row['kind']} {_local(row, name)}: {name} -> {row['moving'].removeprefix('to ')}"
        for row in rows if row.get("moving", "").startswith("to ")
    ]  # fmt: skip
    return [
        _phrase(row, name) for row in sorted(rows, key=lambda row: (not row["name"], row["kind"], row["name"]))
    ], moves


def _local(row: dict[str, Any], server: str) -> str:
    """The name of something that a server holds, without what it is, and where if that is there."""
    shown = str(row["name"])
    return shown.removeprefix("queue:" if row["kind"] == "queue" else f"{server}/")


def _phrase(row: dict[str, Any], server: str) -> str:
    if not row["name"]:
        return counted(row["kind"], row["messages"])
    messages = row.get("messages", 0)
    what = row["name"] if row["kind"] in ("queue", "topic", "group") else f"{row['kind']} {_local(row, server)}"
    return f"{what} with {many(messages, 'message')}" if messages else str(what)


def _holdings(stand: Stand, name: str) -> list[str]:
    if (store := reader_of(stand.topology, name)) is not None:
        with closing(store), suppress(StoreError):
            return leaving.holdings(name, store, {name: store.meta()})
    return ["what is not known here: its store cannot be read on this machine"]


def recent(stand: Stand) -> list[Send]:
    """The last messages between servers, by the logs of those whose stores are on this machine."""
    sends: list[Send] = []
    for name in stand.topology.servers:
        store = reader_of(stand.topology, name)
        if store is None:
            continue
        with closing(store):
            for _, record in store.log(max(0, store.log_end() - PLAYED), PLAYED):
                dests = {dest.partition("/")[0] for dest in record.dests} - {name}
                if record.kind == "send" and dests:
                    sends.append(Send(record.sent, name, tuple(sorted(dests)), record.payload))
    return sorted(sends)[-PLAYED:]


def compared(old: Topology, new: Topology, sends: list[Send]) -> list[dict[str, Any]]:
    """What these messages cost on both topologies, by message; nothing if there are none between servers of both."""
    load = Load(costs.traffic((each.origin, each.dests) for each in sends), sends)
    for topology in (old, new):
        load, _ = advise.known(topology, load)
    if not load.sends:
        return []
    rows = (("current", old), ("planned", new))
    return [{"topology": name, **costs.as_dict(costs.predict(each, load))} for name, each in rows]
