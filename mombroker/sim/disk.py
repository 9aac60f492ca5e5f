"""A server's disk under virtual time: a commit takes a while, and the process may die at each moment of it."""

from collections.abc import Callable

from mombroker.core.batch import Batch
from mombroker.sim.world import World
from mombroker.store.memory import MemoryStore


class Disk:
    """The driver's committer, with the store that outlives the process.

    1. `recorded` is called once for each batch, when it becomes durable, whether or not the process learns of it.
    2. A batch that was in COMMIT when the process died is durable as a whole, or not at all.

    die(point) lets the process die at a named point, and says whether it did.
    """

    def __init__(
        self,
        world: World,
        store: MemoryStore,
        mean: int,
        recorded: Callable[[Batch], None],
        die: Callable[[str], bool],
    ):
        self.world, self.store, self.mean, self.recorded, self.die = world, store, mean, recorded, die
        self.batch: Batch | None = None  # in COMMIT
        self.commits = 0

    def submit(self, batch: Batch, done: Callable[[], None]) -> None:
        self.store.begin(batch)
        self.batch = batch
        self.commits += 1
        self.world.after(self.world.about(self.mean), self._write, batch, done)

    def _write(self, batch: Batch, done: Callable[[], None]) -> None:
        if self.batch is not batch or self.die("in commit"):
            return
        self.store.finish()
        self.batch = None
        self.recorded(batch)
        if not self.die("durable, unseen"):
            self.world.after(self.world.about(self.mean // 4), done)

    def crash(self) -> None:
        batch, self.batch = self.batch, None
        durable = batch is not None and self.world.chance(0.5)
        self.store.crash(durable)
        if batch is not None and durable:
            self.recorded(batch)
