"""Agents in groups: they join, leave and cast, and talk to each other past the groups. Each keeps what it has sent and
got, in its order; what must be true of that is judged at the end from what all have kept, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from mombroker.agents import Delivered, View, consumes, notification, reacts, subscribes
from mombroker.core.causality import Event, check
from mombroker.core.topology import AgentDecl
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.workloads import Witness

HERE = __name__
NAMES = ("ledger", "desk", "watch")


@notification(name="sim.visit")
class Visit:
    """Do something, and go on at random for `left` steps."""

    seed: int
    left: int
    uid: str = ""


@notification(name="sim.said")
class Said:
    uid: str
    group: str
    total: bool


class Partner(Witness):
    """log      what it has sent (`s`), got (`d`), and the views that it has seen (`v`), in order
    ledger   of each group that it is in: all that was cast there, which joiners are given
    """

    known: list[str]
    log: list[list[Any]] = []  # noqa: RUF012 - its state
    ledger: dict[str, list[str]] = {}  # noqa: RUF012
    count: int = 0

    def _uid(self) -> str:
        self.count += 1
        return f"{self.id}#{self.count}"

    @reacts
    def visit(self, note: Visit) -> None:
        self._saw()
        rng = Random(note.seed)
        if note.uid:
            self.log.append(["d", note.uid])
        for _ in range(rng.choice((1, 1, 2, 4))):
            self._act(rng)
        if note.left > 0:
            for _ in range(rng.choice((0, 1, 1, 2)) if note.left > 1 else 1):
                uid = self._uid()
                self.log.append(["s", uid, "direct"])
                self.send(rng.choice(self.known), Visit(rng.getrandbits(32), note.left - 1, uid))

    def _act(self, rng: Random) -> None:
        group, dice = rng.choice(NAMES), rng.random()
        if dice < 0.15:
            self.join(group)
        elif dice < 0.22:
            self.leave(group)
        elif dice < 0.85:
            total, uid = rng.random() < 0.4, self._uid()
            self.group(group).cast(Said(uid, group, total), order="total" if total else "causal")
            self.log.append(["s", uid, "total" if total else "cast", group])
        else:
            uid, topic = self._uid(), rng.random() < 0.5
            if topic:
                self.publish("/topic/news", uid)
            else:
                self.put("/queue/work", uid)
            self.log.append(["s", uid, "topic" if topic else "queue"])

    @reacts
    def said(self, note: Said) -> None:
        self._saw()
        self.log.append(["d", note.uid, note.group])
        self.ledger.setdefault(note.group, []).append(note.uid)

    @reacts
    def viewed(self, note: View) -> None:
        self._saw()
        self.log.append(["v", note.group, note.number, note.members])
        if self.id in note.members:
            self.ledger.setdefault(note.group, [])
        else:
            self.ledger.pop(note.group, None)

    def snapshot(self, group: str) -> Any:
        return self.ledger[group]

    def restore(self, group: str, state: Any) -> None:
        self.ledger[group] = state

    @consumes("/queue/work")
    def work(self, message: Delivered) -> None:
        self._saw()
        self.log.append(["d", message.body.decode()])

    @subscribes("/topic/news")
    def news(self, message: Delivered) -> None:
        self._saw()
        self.log.append(["d", message.body.decode()])


class Founder(Partner):
    """The first one of all groups, so that nobody waits for one in vain."""

    def on_create(self) -> None:
        super().on_create()
        for group in NAMES:
            self.join(group)


class Groups(Workload):
    def __init__(self, rng: Random, messages: int):
        self.rng, self.messages = Random(rng.getrandbits(32)), messages

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        homes = [*servers[:6], *rng.choices(servers, k=2)]
        self.ids = [f"{home}/p{n}" for n, home in enumerate(homes)]
        classes = [Founder, *[Partner] * (len(homes) - 1)]
        return [
            AgentDecl(f"p{n}", home, f"{HERE}:{cls.__name__}", {"known": self.ids})
            for n, (home, cls) in enumerate(zip(homes, classes, strict=True))
        ]

    def begin(self, cluster: Cluster, span: int) -> None:
        rng = self.rng
        for _ in range(max(2, self.messages // 10)):
            agent = rng.choice(self.ids)
            fields = {"seed": rng.getrandbits(32), "left": rng.randint(1, 5)}
            args = {"to": [agent], "type": "sim.visit", "fields": fields}
            cluster.world.after(int(rng.random() * span), cluster.ask, agent.partition("/")[0], "send", args)

    def logs(self, cluster: Cluster) -> dict[str, list[list[Any]]]:
        return {id: cluster.state(id)["log"] for id in self.ids}

    def counts(self, cluster: Cluster) -> dict[str, int]:
        entries = [entry for log in self.logs(cluster).values() for entry in log]
        views = {(entry[1], entry[2]) for entry in entries if entry[0] == "v"}
        casts = [entry for entry in entries if entry[0] == "s" and entry[2] in ("cast", "total")]
        heard = sum(entry[0] == "d" and len(entry) > 2 for entry in entries)
        return {"views": len(views), "casts": len(casts), "casts_delivered": heard}

    def faults(self, cluster: Cluster) -> list[str]:
        logs = self.logs(cluster)
        ledgers = {id: cluster.state(id)["ledger"] for id in self.ids}
        return [*synchrony(logs), *totals(logs), *causal(logs), *unheard(logs), *alike(logs, ledgers), *left(cluster)]


def _stays(log: list[list[Any]], group: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The views of a group that an agent was in, one after the other, with their members and what it got in each."""
    now: tuple[int, list[str], list[str]] | None = None
    for entry in log:
        if entry[0] == "v" and entry[1] == group:
            if now is not None:
                yield now
            now = entry[2], entry[3], []
        elif entry[0] == "d" and len(entry) > 2 and entry[2] == group:
            if now is None:
                now = 0, [], []
            now[2].append(entry[1])
    if now is not None:
        yield now


def synchrony(logs: dict[str, list[list[Any]]]) -> Iterator[str]:
    """All members of a view have the same casts in it, and nobody else has any; all know the same members."""
    for group in NAMES:
        views: dict[int, dict[str, tuple[list[str], list[str]]]] = {}
        for id, log in logs.items():
            last = 0
            for number, members, got in _stays(log, group):
                views.setdefault(number, {})[id] = members, got
                if number <= last:
                    yield f"{id} has view {number} of {group} behind {last}"
                last = number
        for number, those in views.items():
            everyone = {tuple(members) for members, _ in those.values()}
            if len(everyone) > 1:
                yield f"view {number} of {group} has several memberships: {everyone}"
                continue
            members = list(everyone.pop())
            sets = {id: frozenset(got) for id, (_, got) in those.items() if id in members}
            if len({*sets.values()}) > 1:
                yield f"the members of view {number} of {group} have different casts: {_shown(sets)}"
            if missing := [id for id in members if id not in those and _was_in(logs[id], group, number, id)]:
                yield f"{missing} never came into view {number} of {group}"
            if any(got for id, (_, got) in those.items() if id not in members):
                yield f"somebody has casts of view {number} of {group} and is not in it"


def _was_in(log: list[list[Any]], group: str, number: int, id: str) -> bool:
    """Was it in a view before this one? Else it had no state yet, has given up waiting for it, and joined again."""
    before = [members for last, members, _ in _stays(log, group) if last < number]
    return bool(before) and id in before[-1]


def _shown(sets: dict[str, frozenset[str]]) -> str:
    common = frozenset.intersection(*sets.values())
    return str({id: sorted(got - common)[:3] for id, got in sets.items()})


def totals(logs: dict[str, list[list[Any]]]) -> Iterator[str]:
    """What is in total order in a group is in one order at all."""
    total = {entry[1] for log in logs.values() for entry in log if entry[0] == "s" and entry[2] == "total"}
    for group in NAMES:
        orders = [
            [entry[1] for entry in log if entry[0] == "d" and entry[2:] == [group] and entry[1] in total]
            for log in logs.values()
        ]
        for at, one in enumerate(orders):
            for other in orders[:at]:
                common = {*one} & {*other}
                if [uid for uid in one if uid in common] != [uid for uid in other if uid in common]:
                    yield f"two orders in {group}"
                    return


def causal(logs: dict[str, list[list[Any]]]) -> Iterator[str]:
    """No cast, direct message or message of a queue or topic overtakes another one, across groups and all. A cast is
    sent when its author does so, whatever it waits for. A queue or topic passes on, each
    message by itself, and later if its consumer has failed."""
    got: dict[str, list[str]] = {}
    kinds = {entry[1]: entry[2] for log in logs.values() for entry in log if entry[0] == "s"}
    for id, log in logs.items():
        for entry in log:
            if entry[0] == "d":
                got.setdefault(entry[1], []).append(id)
    events: list[Event] = []
    for id, log in logs.items():
        for kind, uid, *_ in log:
            passed = kinds.get(uid) in ("queue", "topic")
            if kind == "s" and passed:
                ways = [f"of {uid} to {dest}" for dest in got.get(uid, [])]
                events.append(("send", id, uid, ways))
                for way, dest in zip(ways, got.get(uid, []), strict=True):
                    events += [("deliver", way, uid), ("send", way, way, [dest])]
            elif kind == "s":
                events.append(("send", id, uid, got.get(uid, [])))
            elif kind == "d":
                events.append(("deliver", id, f"of {uid} to {id}" if passed else uid))
    verdict = check(events)
    for what in ("violations", "duplicates", "unsent"):
        if found := getattr(verdict, what):
            yield f"{len(found)} {what} among casts and what else is sent, as {found[0]}"


def unheard(logs: dict[str, list[list[Any]]]) -> Iterator[str]:
    """A cast has come to somebody, unless a group was without members."""
    heard = {entry[1] for log in logs.values() for entry in log if entry[0] == "d"}
    empty = {entry[1] for log in logs.values() for entry in log if entry[0] == "v" and not entry[3]}
    known = {entry[1] for log in logs.values() for entry in log if entry[0] == "v"}
    for log in logs.values():
        for kind, uid, *what in log:
            if kind == "s" and uid not in heard and what[0] == "direct":
                yield f"{uid} is lost"
            if kind == "s" and uid not in heard and what[0] in ("cast", "total"):
                if what[1] in known and what[1] not in empty and not _before_all(log, uid, what[1]):
                    yield f"cast {uid} is lost"


def _before_all(log: list[list[Any]], uid: str, group: str) -> bool:
    """Was it cast by somebody who was no member, perhaps before there was any?"""
    for entry in log:
        if entry[:2] == ["s", uid]:
            return True
        if entry[0] == "v" and entry[1] == group:
            return False
    return True


def alike(logs: dict[str, list[list[Any]]], ledgers: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """What joiners are given is exactly what was cast before: the members of the last view have the same."""
    for group in NAMES:
        last = max((entry for log in logs.values() for entry in log if entry[:2] == ["v", group]), default=None)
        sets = {id: frozenset(ledgers[id].get(group, ["nothing"])) for id in (last[3] if last else [])}
        if len({*sets.values()}) > 1:
            yield f"the members of {group} have different states: {_shown(sets)}"


def left(cluster: Cluster) -> Iterator[str]:
    """At rest nobody waits."""
    for node in cluster.nodes.values():
        waiting = {
            entry.collection for entry in node.disk.store.disk.items.values() if entry.agent.endswith("/_groups")
        }
        if what := waiting - {"members", "void"}:
            yield f"{node.name} has left in its groups: {sorted(what)}"
