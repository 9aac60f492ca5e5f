"""What goes wrong in a run: drawn from the seed, first which kinds there are at all, then how often each."""

from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from mombroker.sim.world import MS

POINTS = (
    "open batch", "open batch of a router", "in commit", "in commit, next open", "durable, unseen",
    "committed, unsent", "half sent", "sent, unacknowledged", "acknowledged, held",
)  # fmt: skip
RARE = ("open batch of a router", "in commit, next open", "acknowledged, held")
BACKUP, NEW_DISK = "backup", "new disk"


@dataclass(slots=True)
class Faults:
    """Probabilities are per occasion, means in ns; the default is a calm bus."""

    points: dict[str, float] = field(default_factory=dict)  # where a process may die
    crashes: int = 0  # at those points, at most
    kills: int = 0  # of a process at any moment
    stops: int = 0  # of a process in good order
    blackouts: int = 0  # all processes at once
    down: int = 60 * MS  # mean time to the restart
    notice: int = 20 * MS  # mean time until a peer learns of a death
    cuts: int = 0  # between two servers, or around one
    cut: int = 60 * MS
    breaks: int = 0  # of a connection
    skew: int = 0  # of a server's wall clock, set anew at each start
    failing: float = 0.0  # reactions
    lies: int = 0  # that a neighbour tells on a live connection, see lies.py
    damage: int = 0  # attempts to damage a message's row on a disk, see damage.py
    impostor: str = ""  # BACKUP, NEW_DISK: at the end a server comes back with the wrong store
    victim: str = ""  # that server; any, if empty
    latency: int = 2 * MS
    commit: int = MS


# Links that come and go while slow disks lose what is in COMMIT: what is durable and what is in memory differ most.
STORM = Faults(
    points={"in commit": 0.1, "in commit, next open": 0.2}, crashes=60, breaks=150, latency=MS // 10, commit=8 * MS,
    notice=MS, down=MS,
)  # fmt: skip


def draw(rng: Random) -> Faults:
    if rng.random() < 0.05:
        return STORM
    faults = Faults(
        down=rng.choice((1, 30, 200)) * MS,
        notice=rng.choice((1, 20, 300)) * MS,
        cut=rng.choice((5, 60, 300)) * MS,
        latency=rng.choice((MS // 10, 2 * MS, 20 * MS)),
        commit=rng.choice((MS // 10, MS, 8 * MS)),
    )
    if rng.random() < 0.7:
        chosen = {*rng.sample(POINTS, rng.randint(1, 4)), rng.choice(RARE)}
        faults.points = {p: rng.choice((0.02, 0.1, 0.4)) * (2.5 if p in RARE else 1) for p in POINTS if p in chosen}
        faults.crashes = rng.randint(1, 12)
    if rng.random() < 0.4:
        faults.kills = rng.randint(1, 6)
    if rng.random() < 0.2:
        faults.stops = rng.randint(1, 4)
    if rng.random() < 0.1:
        faults.blackouts = rng.randint(1, 2)
    if rng.random() < 0.5:
        faults.cuts = rng.randint(1, 6)
    if rng.random() < 0.5:
        faults.breaks = rng.randint(1, 15)
    if rng.random() < 0.3:
        faults.skew = rng.choice((MS, 500 * MS))
    if rng.random() < 0.3:
        faults.failing = rng.choice((0.02, 0.1))
    if rng.random() < 0.15:
        faults.impostor = rng.choice((BACKUP, NEW_DISK))
    return faults


class Mood:
    """Reactions fail at random. The chance belongs to the world: one that fails may go well the next time."""

    rng: ClassVar[Random] = Random(0)
    failing: ClassVar[float] = 0.0
