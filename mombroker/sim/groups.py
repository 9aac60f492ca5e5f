"""Agents in groups (partners.py), and what must be true of them. That is judged at the end from what all have kept, and
from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

from mombroker.broker.groups.group import Group
from mombroker.broker.session.service import Sessions
from mombroker.core.causality import Event, check
from mombroker.core.topology import AgentDecl
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.lookouts import Lookouts
from mombroker.sim.mischief import Trial
from mombroker.sim.partners import NAMES, WATCH, Founder, Guard, Keen, Opener, Partner, Reader, ReadingGuard
from mombroker.sim.removals import Removals
from mombroker.sim.world import MS, SECOND

FEW, TRIES = 5, 60  # until all groups are there: a group that is removed may go late, where ways are long


class Groups(Workload):
    """destinations   some of the messages go to a queue, or a topic
    guarded        some agents are told who is down
    strands        members that have just cast are cut off, and put out
    removed        groups are removed meanwhile, and made anew
    """

    def __init__(
        self, rng: Random, messages: int, destinations: bool = True, guarded: bool = False, strands: bool = False,
        removed: bool = False,
    ):  # fmt: skip
        self.strands = strands
        self.rng, self.messages, self.destinations = Random(rng.getrandbits(32)), messages, destinations
        self.lookouts = Lookouts(Random(self.rng.getrandbits(32))) if guarded else None
        self.removals = Removals(Random(self.rng.getrandbits(32))) if removed else None

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        homes = [*servers[:5], *rng.choices(servers, k=2)]
        known = [f"{home}/p{n}" for n, home in enumerate(homes)]
        self.founder = f"{rng.choice(servers)}/founder"
        self.ids = [*known, self.founder]
        if self.removals is not None:
            self.removals.ids = self.ids
        self.opener = f"{self.founder.partition('/')[0]}/opener"
        cls = Keen if self.strands else Reader if self.destinations else Partner
        fields = {"known": known, "destinations": self.destinations}
        made = [
            *((id, Founder if id == self.founder and not self.strands else cls) for id in self.ids),
            (self.opener, Opener),
        ]
        return [self._declared(id, each, fields) for id, each in made]

    def _declared(self, id: str, cls: type[Partner], fields: dict[str, Any]) -> AgentDecl:
        """Every other one is a guard."""
        if self.lookouts is not None and cls in (Partner, Reader) and id[-1] in "0246":
            cls = Guard if cls is Partner else ReadingGuard
            fields = {**fields, "patience": self.lookouts.guard(id)}
        server, _, name = id.partition("/")
        return AgentDecl(name, server, f"{cls.__module__}:{cls.__name__}", fields)

    def settle(self, cluster: Cluster) -> None:
        args = {"to": [self.opener], "type": "sim.found", "fields": {}}
        cluster.make_room()  # a full server would refuse
        for _ in range(4 if self.strands else 0):
            self._strand(cluster)
        if self.lookouts is not None:
            self.lookouts.settle(cluster, lambda: self.logs(cluster), not _has_lost(cluster))
        if self.removals is not None:
            self.removals.settle(cluster)
        for number in range(TRIES):  # an operator tries again
            cluster.world.run(cluster.world.now + SECOND)
            if number >= FEW and _live(cluster) >= {*NAMES}:
                break
            if any(node.server.tx.full for node in cluster.nodes.values()):
                cluster.make_room()  # one that has started meanwhile refuses again
            cluster.ask(self.opener.partition("/")[0], "send", args)

    def begin(self, cluster: Cluster, span: int) -> None:
        rng = self.rng
        for _ in range(max(2, self.messages // 10)):
            agent = rng.choice(self.ids)
            fields = {"seed": rng.getrandbits(32), "left": rng.randint(1, 5)}
            args = {"to": [agent], "type": "sim.visit", "fields": fields}
            cluster.world.after(int(rng.random() * span), cluster.ask, agent.partition("/")[0], "send", args)

        for _ in range(rng.choice((0, 0, 2, 6))):
            cluster.world.after(int(rng.random() * span), self._exclude, cluster)

        if self.removals is not None:
            self.removals.begin(cluster, span)

    def _strand(self, cluster: Cluster) -> None:
        """Some neighbours get no more of a member. It casts, and is cut off from the others, too; while a view is made
        that waits for it, it is put out."""
        rng, world, step = self.rng, cluster.world, 2 * (cluster.faults.latency + cluster.faults.commit) + MS
        agent, other = rng.sample(self.ids, 2)
        server, after = agent.partition("/")[0], world.after
        peers = cluster.neighbours(server)
        for id in self.ids:
            cluster.ask(id.partition("/")[0], "send", {"to": [id], "type": "sim.found", "fields": {}})
        world.run(world.now + SECOND + 100 * step)
        for peer in rng.sample(peers, max(1, len(peers) // 2)):
            cluster.network.cut(server, peer)
            after(60 * step, cluster.network.heal, server, peer)
        cluster.ask(server, "send", {"to": [agent], "type": "sim.shout", "fields": {}})
        at = int((1 + 2 * rng.random()) * step)
        for peer in peers:
            after(at, cluster.network.cut, server, peer)
            after(at + 60 * step, cluster.network.heal, server, peer)
        self._put_out(cluster, other, at)
        self._put_out(cluster, agent, at + int((2 + 4 * rng.random()) * step))
        world.run(world.now + SECOND + 100 * step)

    def _put_out(self, cluster: Cluster, agent: str, at: int) -> None:
        """Of all groups."""
        for group in NAMES:
            for server in cluster.nodes:
                cluster.world.after(at, cluster.ask, server, "exclude_member", {"group": group, "agent": agent})

    def _exclude(self, cluster: Cluster) -> None:
        """An operator waits for somebody no longer, perhaps for another one as well."""
        group = self.rng.choice(NAMES)
        for agent in self.rng.sample(self.ids, self.rng.choice((1, 1, 3))):
            if self.lookouts is not None and group == WATCH:
                self.lookouts.excluded.add(agent)
            for server in cluster.nodes:
                cluster.ask(server, "exclude_member", {"group": group, "agent": agent})

    def logs(self, cluster: Cluster) -> dict[str, list[list[Any]]]:
        return {id: cluster.state(id)["log"] for id in (*self.ids, self.opener)}

    def counts(self, cluster: Cluster) -> dict[str, int]:
        entries = [entry for log in self.logs(cluster).values() for entry in log]
        views = {entry[4] for entry in entries if entry[0] == "v" and entry[3]}
        casts = [entry for entry in entries if entry[0] == "s" and entry[2] in ("cast", "total")]
        heard = sum(entry[0] == "d" and len(entry) > 2 for entry in entries)
        return {
            "views": len(views), "casts": len(casts), "casts_delivered": heard,
            "removed": len({entry[4] for entry in entries if entry[0] == "v" and not entry[3]}),
            "casts_returned": sum(entry[0] == "n" for entry in entries),
            **{f"told_{what}": len({entry[4] for entry in entries if entry[0] == "w" and entry[2] == what})
               for what in ("down", "up")},
        }  # fmt: skip

    def faults(self, cluster: Cluster) -> list[str]:
        logs = self.logs(cluster)
        ledgers = {id: cluster.state(id)["ledger"] for id in logs}
        lost = _has_lost(cluster)
        wrong = [*synchrony(logs, lost), *numbered(logs, lost), *totals(logs), *causal(logs, lost)]
        wrong += [*alike(logs, ledgers), *alike_in_books(logs, cluster), *left(cluster), *believed(cluster)]
        if self.lookouts is not None:
            wrong += self.lookouts.faults(logs, lost)
        return [*wrong, *unheard(logs, lost), *returned(logs)]


def _live(cluster: Cluster) -> set[str]:
    """The groups that are there, and do not come to an end."""
    natives = [native for node in cluster.nodes.values() if node.up for native in node.server.natives.agents.values()]
    return {native.name for native in natives if isinstance(native, Group) and not native.ends}


def _has_lost(cluster: Cluster) -> bool:
    return isinstance(cluster, Trial) and cluster.losses is not None


def _stays(log: list[list[Any]], group: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The views of a group that an agent was in, one after the other, with their members and what it got in each."""
    now: tuple[str, list[str], list[str]] | None = None
    for entry in log:
        if entry[0] == "v" and entry[1] == group:
            if now is not None:
                yield now
            now = entry[4], entry[3], []
        elif entry[0] == "d" and entry[2:] == [group]:
            if now is None:
                now = "none", [], []
            now[2].append(entry[1])
    if now is not None:
        yield now


def synchrony(logs: dict[str, list[list[Any]]], lost: bool) -> Iterator[str]:
    """All members of a view have the same casts in it, but for what its sender has got back, which those may have that
    were out with it; nobody else has any; and all know the same members, in the same order of views."""
    back = {entry[1] for log in logs.values() for entry in log if entry[0] == "n"}
    unknown = {entry[1] for log in logs.values() for entry in log if entry[0] == "n" and entry[3]}
    numbers = {entry[4]: entry[2] for log in logs.values() for entry in log if entry[0] == "v"}
    for group in NAMES:
        views: dict[str, dict[str, tuple[list[str], list[str]]]] = {}
        vain = {id: back & _before_out(id, log, group) for id, log in logs.items()}
        orders = dict[str, list[str]]()
        for id, log in logs.items():
            orders[id] = [view for view, members, _ in _stays(log, group) if members]
            for view, members, got in _stays(log, group):
                views.setdefault(view, {})[id] = members, got
        if _differ(list(orders.values())):
            yield f"two orders of the views of {group}"
        for view, those in views.items():
            everyone = {tuple(members) for members, _ in those.values()}
            if len(everyone) > 1:
                yield f"view {view} of {group} has several memberships: {everyone}"
                continue
            members = list(everyone.pop())
            sets = {
                id: frozenset(
                    uid for uid in got
                    if uid not in unknown | vain[id] and (uid not in back or uid.partition("#")[0] != id)
                )
                for id, (_, got) in those.items()
                if id in members and not (lost and _lost_home(logs[id], group, view))
            }  # fmt: skip
            if len({*sets.values()}) > 1:
                yield f"the members of view {view} of {group} have different casts: {_shown(sets)}"
            if missing := [
                id
                for id in members
                if id not in those and _was_in(logs[id], logs[members[0]], group, view, orders, numbers, id)
            ]:
                yield f"{missing} never came into view {view} of {group}"
            if any(got for id, (_, got) in those.items() if id not in members):
                yield f"somebody has casts of view {view} of {group} and is not in it"


def _before_out(id: str, log: list[list[Any]], group: str) -> set[str]:
    """What an agent has got in views that ended with it."""
    stays = [*_stays(log, group)]
    return {
        uid for (_, _, got), (_, members, _) in zip(stays, stays[1:], strict=False) if id not in members for uid in got
    }


def _lost_home(log: list[list[Any]], group: str, view: str) -> bool:
    """Did this view end with its home? Then it had no successor, and nobody knows who has what of it."""
    seen = [(entry[4], entry[3]) for entry in log if entry[0] == "v" and entry[1] == group]
    at = next(at for at, (each, _) in enumerate(seen) if each == view)
    if at + 1 == len(seen):
        return False
    following, members = seen[at + 1]
    return not members and following.partition("#")[0] != view.partition("#")[0]


def _was_in(
    log: list[list[Any]], eldest: list[list[Any]], group: str, view: str, orders: dict[str, list[str]],
    numbers: dict[str, int], id: str,
) -> bool:  # fmt: skip
    """Was it in the view before this one of this home, by what others have seen? Else it had no state yet, has given up
    waiting for it, and joined again. So may those that had one if the eldest of this view was not in that, and gives
    none."""
    seen = {each: members for each, members, _ in _stays(log, group)}
    last = {order[order.index(view) - 1] for order in orders.values() if view in order[1:]}
    home = view.partition("#")[0]
    before = {each for each in last if each.partition("#")[0] == home and numbers[each] + 1 == numbers[view]}
    gives = before & {each for each, _, _ in _stays(eldest, group)}
    return any(id in seen.get(each, ()) and not _lost_home(log, group, each) for each in gives)


def numbered(logs: dict[str, list[list[Any]]], lost: bool) -> Iterator[str]:
    """Views of one server have greater numbers than those before them, if the group was made again, too. A server in
    the place of a lost one begins anew."""
    for group in NAMES if not lost else ():
        views: dict[str, dict[int, int]] = {}
        for log in logs.values():
            for entry in log:
                if entry[0] == "v" and entry[1] == group and entry[3]:
                    home, _, message = entry[4].partition("#")
                    views.setdefault(home, {})[int(message)] = entry[2]
        for home, those in views.items():
            numbers = [number for _, number in sorted(those.items())]
            if wrong := [later for number, later in pairwise(numbers) if later <= number]:
                yield f"{home} has a view {wrong[0]} of {group} twice, or behind a later one"


def _differ(orders: list[list[str]]) -> bool:
    """Are two things in one order here and in another one there?"""
    for at, one in enumerate(orders):
        for other in orders[:at]:
            common = {*one} & {*other}
            if [each for each in one if each in common] != [each for each in other if each in common]:
                return True
    return False


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
        if _differ(orders):
            yield f"two orders in {group}"


def causal(logs: dict[str, list[list[Any]]], lost: bool) -> Iterator[str]:
    """No cast, direct message or message of a queue or topic overtakes another one, across groups and all. A cast is
    sent when its author does so, whatever it waits for. A queue or topic passes on, each
    message by itself, and later if its consumer has failed."""
    got: dict[str, list[str]] = {}
    kinds = {entry[1]: entry[2] for log in logs.values() for entry in log if entry[0] == "s"}
    for id, log in logs.items():
        for entry in log:
            if entry[0] == "d":
                got.setdefault(entry[1], []).append(id)
    unknown = {entry[1] for log in logs.values() for entry in log if entry[0] == "n" and entry[3]}
    events: list[Event] = []
    for id, log in logs.items():
        for kind, uid, *_ in log:
            if uid in unknown:  # its sender has given it up, and gone on
                continue
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
    # What is lost has forgotten its sends.
    for what in ("violations", "duplicates") if lost else ("violations", "duplicates", "unsent"):
        if found := getattr(verdict, what):
            yield f"{len(found)} {what} among casts and what else is sent, as {found[0]}"


def unheard(logs: dict[str, list[list[Any]]], lost: bool) -> Iterator[str]:
    """Whatever was sent has come to somebody, or its sender knows better. What is sent to a lost server goes with it,
    and so does a cast in total order, or one of who was out by then."""
    known = {entry[1] for log in logs.values() for entry in log if entry[0] in "dn"}
    for id, log in logs.items():
        for at, (kind, what, *more) in enumerate(log):
            if kind != "s" or what in known:
                continue
            if more[0] == "direct" and not lost:
                yield f"{what} is lost"
            elif more[0] in ("cast", "total") and (not lost or (more[0] == "cast" and _is_in(log, at, more[1], id))):
                yield f"cast {what} is lost"


def _is_in(log: list[list[Any]], at: int, group: str, id: str) -> bool:
    """Was it a member when it cast this? So it was by the views that it had seen; and if one of those that it saw later
    is without it, that was not in its inbox yet: before it stands what it has sent itself behind this cast."""
    views = [(place, id in entry[3]) for place, entry in enumerate(log) if entry[:2] == ["v", group]]
    if not any(inside for _, inside in [view for view in views if view[0] < at][-1:]):
        return False
    out = next((place for place, inside in views if place > at and not inside), None)
    behind = {entry[1] for entry in log[at + 1 :] if entry[0] == "s"}
    return out is None or any(entry[0] == "d" and entry[1] in behind for entry in log[at:out])


def returned(logs: dict[str, list[list[Any]]]) -> Iterator[str]:
    """What has come back to its sender has come to nobody else, unless that is unknown, or to who was out with it."""
    back = {entry[1]: id for id, log in logs.items() for entry in log if entry[0] == "n" and not entry[3]}
    for id, log in logs.items():
        out = {uid for group in NAMES for uid in _before_out(id, log, group)}
        if wrong := [e[1] for e in log if e[0] == "d" and e[1] not in out and back.get(e[1], id) != id]:
            yield f"{wrong[0]} was not delivered, its sender was told, and {id} has it"


def alike(logs: dict[str, list[list[Any]]], ledgers: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """What joiners are given is exactly what was cast before: the members of the last view have the same."""
    back = {entry[1] for log in logs.values() for entry in log if entry[0] == "n"}
    for group in NAMES:
        sets: dict[str, dict[str, frozenset[str]]] = {}
        for id, log in logs.items():
            last = [entry for entry in log if entry[:2] == ["v", group]][-1:]
            if last and id in last[0][3]:
                got = frozenset(ledgers[id].get(group, ["nothing"])) - back
                sets.setdefault(last[0][4], {})[id] = got
        for those in sets.values():
            if len({*those.values()}) > 1:
                yield f"the members of {group} have different states: {_shown(those)}"


def alike_in_books(logs: dict[str, list[list[Any]]], cluster: Cluster) -> Iterator[str]:
    """So have their tables: what a joiner was given page by page is of one moment, and nothing that it had is left."""
    for group in NAMES:
        found: dict[str, dict[str, dict[str, bytes]]] = {}
        for id, log in logs.items():
            last = [entry for entry in log if entry[:2] == ["v", group]][-1:]
            if last and id in last[0][3]:
                rows = cluster.nodes[id.partition("/")[0]].disk.store.disk.items.values()
                mine = [row for row in rows if row.agent == id and row.collection.startswith(f"=book_{group}:")]
                found.setdefault(last[0][4], {})[id] = {row.collection: row.body for row in mine}
        for view, those in found.items():
            first, *others = those.values()
            for other in others:
                if other != first:
                    wrong = sorted({*first.items()} ^ {*other.items()})[:2]
                    yield f"the members of view {view} of {group} have different tables, as {wrong}"
                    break


def left(cluster: Cluster) -> Iterator[str]:
    """At rest nobody waits."""
    for node in cluster.nodes.values():
        waiting = {
            entry.collection for entry in node.disk.store.disk.items.values() if entry.agent.endswith("/_groups")
        }
        if what := waiting - {"members", "void", "copies"}:
            yield f"{node.name} has left in its groups: {sorted(what)}"


def believed(cluster: Cluster) -> Iterator[str]:
    """At rest the home of each group and the servers of its members know the same, and nobody else is to be one."""
    inside, known = set[str](), set[str]()
    for node in cluster.nodes.values():
        clients = node.server.clients
        assert isinstance(clients, Sessions)
        for mine in clients.members.all():
            if mine.inside:
                inside.add(f"{mine.agent} of view {mine.member.number} of {mine.home}")
            else:
                yield f"{mine.agent} is to be a member of {mine.home}, and nobody knows of it"
        for each in clients.natives.agents.values():
            if isinstance(each, Group):
                known |= {f"{agent} of view {each.home.number} of {each.id}" for agent in each.home.members}
    for what in sorted(inside ^ known):
        yield f"its home does not know {what}" if what in inside else f"its server does not know {what}"
