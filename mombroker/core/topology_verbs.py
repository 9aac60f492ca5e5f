"""What operators may ask about the topology that the bus goes by, and how they change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mombroker.core import revision
from mombroker.core.coordinator import Coordinator
from mombroker.core.errors import MomError, short
from mombroker.core.losses import Losses
from mombroker.core.lost import Lost
from mombroker.core.meta import HISTORY, JOINING
from mombroker.core.newcomers import Newcomers
from mombroker.core.reconfiguration import Reconfiguration
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.topology import Domain, Server, address, suggestion
from mombroker.core.truth import Truth

MAY_JOIN = (  # verbs that may also be asked by whoever has the secret of the bus
    "join", "invitation", "lose", "losses", "topology_status", "topology_abort", "change_without", "change_counts",
    "change_end", "change_over",
)  # fmt: skip


class TopologyVerbs:
    def __init__(self, truth: Truth):
        self.truth = truth

    @reads
    def topology(self) -> Reply:
        """The topology that is in force on the server, as text, and its revision."""
        truth = self.truth
        return {"revision": truth.number, "digest": revision.digest_of(truth.text), "text": truth.text}

    @reads
    def topology_history(self) -> Reply:
        """The last revisions of the topology, the newest first: since when each is in force, and what it changed."""
        return {"revisions": revision.listed(self.truth.tx.reader.meta(HISTORY))}

    @reads
    def judge_topology(self, text: str, revision: int, drop: bool = False) -> Reply:
        """What kind of change another topology would be, given as text, in place of a revision; refused like that."""
        return {"kind": self.truth.judge(revision, text, drop).kind.value}

    @changes
    def apply_topology(
        self, ticket: int, text: str, revision: int, drop: bool = False, lost: list[str] | None = None
    ) -> None:
        """Have the bus go by another topology, given as text, in place of a revision. With `drop` servers leave with
        all that they hold: its names and topic entries are withdrawn everywhere; those that are lost do so anyway."""
        self.truth.apply(revision, text, ticket, drop or bool(lost), lost or ())


class ChangeVerbs:
    """What operators may ask about a change of the domains that is under way."""

    def __init__(self, change: Reconfiguration, coordinator: Coordinator, newcomers: Newcomers):
        self.change, self.coordinator, self.newcomers = change, coordinator, newcomers

    @reads
    def topology_status(self) -> Reply:
        """How far a change of the domains is on the server, and what it waits for; on the registry that of all. And
        which servers behind this one have joined the bus, and were not started yet."""
        joining = list(self.newcomers.expected())
        return {**self.change.status(), "bus": self.coordinator.status(), "joining": joining}

    @changes
    def topology_abort(self) -> Reply:
        """Give a change of the domains up that has not begun. Only the registry can."""
        return {"change": self.coordinator.abort()}

    @changes
    def change_without(self, change: int, servers: list[str]) -> Reply:
        """Go on with a change of the domains that has begun, by its id, without servers that are lost for good."""
        self.change.without(change, servers)
        return self.change.report(change)

    @reads
    def change_counts(self, change: int) -> Reply:
        """How much a server has sent and received in the domains that change, while it is frozen."""
        return self.change.report(change)

    @changes
    def change_end(self, change: int) -> Reply:
        """Switch: nothing more is under way between those that are left in a change without lost servers."""
        self.change.end(change)
        return self.change.report(change)

    @changes
    def change_over(self, change: int) -> Reply:
        """All but the servers that are lost have switched. Only the registry can be told so."""
        self.coordinator.over(change)
        return self.coordinator.status()


class LossVerbs:
    """What operators may ask about servers that are lost for good."""

    def __init__(self, losses: Losses, lost: Lost):
        self.of, self.lost = losses, lost

    @changes
    def lose(self, ticket: int, domain: str, servers: list[str], epoch: int) -> None:
        """Go on for ever without servers of a domain whose stores are gone. The domain begins anew under an epoch,
        which is the same in each domain of a lost server."""
        self.of.lose(ticket, domain, servers, epoch)

    @reads
    def losses(self) -> Reply:
        """The epochs of the domains of the server, how losses go on here, and which servers were lost."""
        epochs = self.of.channel.neighbours.epochs
        return {
            "epochs": {name: epochs[name] for name in self.of.channel.domains}, "under_way": self.of.status(),
            "lost": {name: self._of(name, epoch, sponsor) for name, (epoch, sponsor) in self.lost.known.items()},
        }  # fmt: skip

    def _of(self, server: str, epoch: int, sponsor: str) -> Reply:
        channel = self.of.channel
        free = self.lost.tx.written("meta", f"{JOINING}{server}") is not None  # its sponsor knows
        met = any(
            server in part.links and part.links[server].incarnation and channel.neighbours.epochs[name] >= epoch
            for name, part in channel.domains.items()
        )
        return {"epoch": epoch, "behind": sponsor, "free": free, "met": met}


class JoinVerbs:
    """What a server that is not on the bus yet may ask, with the secret of the bus."""

    def __init__(self, truth: Truth, newcomers: Newcomers):
        self.truth, self.newcomers = truth, newcomers

    @changes
    def join(self, ticket: int, server: str, listen: str, behind: str = "", domain: str = "") -> None:
        """Attach a new server to the bus, in a new domain with one that is there; its own if none is named."""
        truth, sponsor = self.truth, behind or self.truth.tx.name
        now = revision.read(truth.text)
        if server in now.servers:
            raise MomError(
                f"the bus {now.name} has a server {server}, at {now.servers[server].listen}: choose another name"
            )
        if sponsor not in now.servers:
            known = suggestion(sponsor, now.servers) or f"it has {', '.join(now.servers)}"
            raise MomError(f"the bus {now.name} has no server {short(sponsor)}: {known}")
        name = domain or f"{sponsor}-{server}"
        if name in now.domains:
            raise MomError(
                f"the bus has a domain {name}, whose clocks a new member would change: name another one, or none, and "
                "let `mom topology apply` put the server there when it is on the bus"
            )
        try:
            host, port = address(listen)
        except ValueError as error:
            raise MomError(f"{short(server)}: {error}") from None
        new = replace(
            now, servers={**now.servers, server: Server(server, host, port)},
            domains={**now.domains, name: Domain(name, (sponsor, server))}, checked=False,
        )  # fmt: skip
        truth.apply(truth.number, revision.text_of(new), ticket)

    @reads
    def invitation(self, server: str, bus: str = "") -> Reply:
        """What a server begins with that is attached and was not started yet; from another server than its sponsor,
        where that is."""
        servers = self.truth.tx.topology.servers
        if bus not in ("", self.truth.tx.topology.name):
            return {"bus": self.truth.tx.topology.name}
        if server not in servers:
            raise MomError(
                f"{short(server)} is not on the bus {self.truth.tx.topology.name}, which is at revision "
                f"{self.truth.number}: run `mom topology apply` with its file there, or `mom server join` here"
            )
        if server not in self.newcomers.attached:
            return {"founder": True}
        found: dict[str, Any] = self.newcomers.invitation(server)
        return found | {"listen": servers[found["sponsor"]].listens}
