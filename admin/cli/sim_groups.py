"""`mom sim run --ordering isis`: the domains of a topology as process groups of paper 003."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from mombroker.core.topology import Topology
    from mombroker.lab.domain import Network
    from mombroker.sim.world import World

ISIS = "isis"
NETWORKS = ("exponential", "uniform")  # whose links take any number of processes


@dataclass(slots=True)
class Settings:
    """`gap` between two sends of a server, and `transit`, in ns."""

    sends: int
    gap: int
    network: str
    transit: int
    total: float
    batch: int
    flush: str
    changes: int
    rule: str


def known_ordering(ordering: str) -> None:
    """Refuse what is neither a back end nor a process group."""
    from mombroker.ordering import names

    if ordering not in (there := [*names(), ISIS]):
        raise click.UsageError(f"no ordering is named {ordering!r}; there are {', '.join(there)}")


def play(topology: "Topology", settings: Settings, seed: int) -> list[dict[str, Any]]:
    """A row for each domain."""
    from mombroker.sim.world import World

    if settings.network not in NETWORKS:
        raise click.UsageError(f"--ordering {ISIS} has --network {' or '.join(NETWORKS)}")
    if settings.changes and (len(topology.domains) > 1 or len(topology.servers) < 3):
        raise click.UsageError("joins, leaves and crashes are for a topology of one domain with three servers or more")
    world = World(seed)
    network = _network(world, settings)
    rows, faults = (_one if len(topology.domains) == 1 else _several)(world, network, topology, settings)
    if faults:
        raise options.Failure(ExitCode.WRONG, f"seed {seed}: {faults[0]}")
    return rows


def _network(world: "World", settings: Settings) -> "Network":
    from mombroker.lab import networks

    if settings.network == "exponential":
        return networks.Exponential(world, settings.transit)
    return networks.Uniform(world, 0, 2 * settings.transit)


def _one(
    world: "World", network: "Network", topology: "Topology", settings: Settings
) -> tuple[list[dict[str, Any]], list[str]]:
    from mombroker.lab.isis import group as lab
    from mombroker.lab.isis.messages import Multicast, Step

    ((name, domain),) = topology.domains.items()
    size = len(domain.members)
    group = lab.Group(world, network, size, settings.flush, settings.batch, linger=settings.transit)
    fields: list[int] = []

    def look(me: int, step: Step) -> None:
        fields.extend(len(packet.cast.vector) for _, packet in step.send if isinstance(packet, Multicast))

    group.observe = look
    lab.play(group, settings.sends, settings.changes, settings.total, settings.gap // size)
    views = group.membership.view.number - 1
    return [_row(name, size, views, group.packets, fields, group.delays)], group.faults()


def _several(
    world: "World", network: "Network", topology: "Topology", settings: Settings
) -> tuple[list[dict[str, Any]], list[str]]:
    from mombroker.lab.isis import overlap as lab
    from mombroker.lab.isis.messages import Multicast
    from mombroker.lab.isis.several import OWN, Out

    places = {name: at for at, name in enumerate(topology.servers)}
    groups = {name: [places[each] for each in domain.members] for name, domain in topology.domains.items()}
    epochs = settings.rule == "epochs"
    overlap = lab.Overlap(
        world, network, groups, OWN if epochs else settings.rule, [*groups] if epochs else (), settings.flush,
        settings.batch, settings.transit,
    )  # fmt: skip
    fields: dict[str, list[int]] = {name: [] for name in groups}

    def look(me: int, out: Out) -> None:
        for gid, step in out:
            for _, packet in step.send:
                if isinstance(packet, Multicast):
                    others = packet.cast.others.values()
                    fields[gid].append(len(packet.cast.vector) + sum(len(vector) for _, vector in others))

    overlap.observe = look
    lab.play(overlap, settings.sends, settings.total, settings.gap // len(places))
    rows = [
        _row(name, len(members), overlap.memberships[name].view.number - 1, overlap.packets[name], fields[name],
             [ns for gid, ns in overlap.delays if gid == name])
        for name, members in groups.items()
    ]  # fmt: skip
    return rows, overlap.faults()


def _row(
    name: str, members: int, views: int, packets: dict[str, int], fields: list[int], delays: list[int]
) -> dict[str, Any]:
    ordered = sorted(delays) or [0]
    last = len(ordered) - 1
    kinds = ("cbcast", "abcast", "sets-order", "flush", "copy", "ack", "stable")
    return {
        "domain": name, "ordering": ISIS, "members": members, "views": views,
        **{kind.replace("-", "_"): packets.get(kind, 0) for kind in kinds},
        "fields": round(sum(fields) / max(len(fields), 1), 2), "p50_ms": round(ordered[last // 2] / 1e6, 2),
        "p99_ms": round(ordered[last * 99 // 100] / 1e6, 2),
    }  # fmt: skip
