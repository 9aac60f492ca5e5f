"""How a bus stands, seen from this machine: the topology that it goes by, and which of its servers answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mombroker import store as stores
from mombroker.core import revision
from mombroker.core.errors import MomError, StoreError
from mombroker.core.meta import HISTORY, REVISION, SERVER, TOPOLOGY
from mombroker.core.topology import Topology
from mombroker.net import adminclient
from mombroker.store.folder import STORE
from mombroker.store.reader import SqliteReader

UP, DOWN, HIDDEN = "up", "down", "no access"
PATIENCE_S = 4.0  # with a server that takes the connection and says nothing
AT_ONCE = 32  # servers
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Seen:
    """One server. `state` is UP, DOWN, or HIDDEN: it may run, but this machine has not its token. `number` and `text`
    are of the revision that it has, by itself or by its store; 0 if neither can be read here."""

    server: str
    state: str
    why: str = ""  # it does not answer
    number: int = 0
    text: str = ""
    status: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Stand:
    """`number` and `text` are of the highest revision that was seen, `topology` is of that text, with the folders and
    listeners of the file."""

    number: int
    text: str
    topology: Topology
    servers: dict[str, Seen]

    def of_state(self, *states: str) -> list[str]:
        return [name for name, seen in self.servers.items() if seen.state in states]


def look(file: Topology) -> Stand:
    """Ask all servers of a bus, by the file of one that is on this machine; those that the file does not have, too.
    Raises MomError if nobody tells which topology is in force."""
    seen = of_all(file.servers, partial(_look, file))
    for _ in range(2):  # servers that others tell of; who was not reached by the file's address is by the bus's own
        best = max(seen.values(), key=lambda each: each.number)
        if not best.number:
            break
        now = _at_home(revision.read(best.text, file), file)
        wanted = [name for name in now.servers if name not in seen or _elsewhere(seen[name], now, file)]
        seen |= of_all(wanted, partial(_look, now))
    else:
        left = {name: seen[name] for name in now.servers}
        return Stand(best.number, best.text, now, left)
    reasons = "; ".join(each.why for each in seen.values())
    raise MomError(f"no server of this bus tells its topology, and no store of one is here: start it ({reasons})")


def of_all(servers: Iterable[str], ask: Callable[[str], Answer]) -> dict[str, Answer]:
    """What is asked of each of these servers, all at once: one that is silent is waited for once, however many are."""
    names = list(servers)
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


def _elsewhere(seen: Seen, now: Topology, file: Topology) -> bool:
    by_file = file.servers.get(seen.server)
    return seen.state == DOWN and by_file is not None and now.servers[seen.server].listen != by_file.listen


def reader_of(topology: Topology, name: str) -> SqliteReader | None:
    """The store of a server, if it is on this machine; its server may run. To be closed. One of its entries is read
    for that: a bus may have 10,000 names."""
    data = Path(topology.servers[name].data or ".")
    if not (data / STORE).exists():
        return None
    with suppress(StoreError):
        found = stores.read(data)
        if found.meta(SERVER).get(SERVER) == name:
            return found
        found.close()
    return None


def _look(topology: Topology, name: str) -> Seen:
    try:
        with adminclient.connect(topology, name, PATIENCE_S) as client:
            found, status = client.request("topology"), client.request("status")
            return Seen(name, UP, "", found["revision"], found["text"], status)
    except (adminclient.NotRunning, adminclient.NoAnswer) as error:
        seen = Seen(name, DOWN, str(error))
    except MomError as error:
        seen = Seen(name, HIDDEN, str(error))
    if (found_here := reader_of(topology, name)) is not None:
        with closing(found_here), suppress(StoreError):
            seen.number, seen.text = revision.in_force(found_here.meta(REVISION) | found_here.meta(TOPOLOGY))
    return seen


def _at_home(now: Topology, file: Topology) -> Topology:
    """With a folder for each server that the file does not have: one of its name beside the others."""
    beside = list(dict.fromkeys(Path(server.data).parent for server in file.servers.values() if server.data))
    for name, server in now.servers.items():
        if not server.data:
            places = [parent / name for parent in beside if (parent / name / STORE).exists()]
            now.servers[name] = replace(server, data=str(places[0]) if places else "")
    return now


def past(stand: Stand) -> list[dict[str, Any]]:
    """The last revisions, the newest first: as a server says that answers, or else a store that has the one in force.
    Raises MomError."""
    for name in answering(stand, stand.topology.registry):
        with adminclient.connect(stand.topology, name) as client:
            told: list[dict[str, Any]] = client.request("topology_history")["revisions"]
            return told
    for name, seen in stand.servers.items():
        if seen.number == stand.number and (found := reader_of(stand.topology, name)) is not None:
            with closing(found), suppress(StoreError):
                return revision.listed(found.meta(HISTORY))
    return []


def answering(stand: Stand, first: str | None = None) -> Iterator[str]:
    """The servers that answer, `first` if it does before the others."""
    up: Iterable[str] = stand.of_state(UP)
    yield from sorted(up, key=lambda name: name != first)
