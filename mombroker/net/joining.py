"""A server that begins on a bus which runs already: it asks for an invitation, and makes its store of that."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from mombroker import store as stores
from mombroker.core import newcomers
from mombroker.core.errors import MomError
from mombroker.core.topology import Topology, address
from mombroker.net.adminclient import AdminClient, NoAnswer, NotRunning, tls_of
from mombroker.store.folder import STORE
from mombroker.store.sqlite import SqliteStore, used

KNOCK_S = 1.0  # for a neighbour to answer at a first start
MOST_ASKED = 8  # of the others
PATIENCE_S = 20.0  # until the sponsor has what the registry has decided
POLL_S = 0.1

Invitation = dict[str, Any]


def has_store(data: str) -> bool:
    """Is there a store that a server has been at work with? Who was refused at its first start may be new still."""
    if not (Path(data) / STORE).exists():
        return False
    try:
        with closing(stores.read(data)) as found:
            return used(found.meta())
    except MomError:  # whoever opens it says why
        return True


def client(me: str, at: str, secret: bytes, timeout: float = 10.0, tls: tuple[str, str] | None = None) -> AdminClient:
    """To any server of the bus. Raises MomError."""
    try:
        host, port = address(at)
    except ValueError as error:
        raise MomError(str(error)) from None
    return AdminClient("", host, port, secret, timeout, me=me, tls=tls)


def ask(
    me: str, at: str, secret: bytes, verb: str, timeout: float = 10.0, tls: tuple[str, str] | None = None, **args: Any
) -> Invitation:
    """What a server of the bus answers; of one that has replicas that which leads, at any of its addresses, which have
    commas between, or wherever a standby says. Raises MomError."""
    left, tried = at.split(","), set[str]()
    why: MomError | None = None
    while left:
        listen = left.pop(0)
        tried.add(listen)
        try:
            with client(me, listen, secret, timeout, tls) as asked:
                said: Invitation = asked.request(verb, **args)
        except (NotRunning, NoAnswer) as error:
            why = why or error
            continue
        if "standby" not in said:
            return said
        why = NotRunning(str(said["standby"]))
        if said["leader"] and said["leader"] not in tried:
            left.insert(0, said["leader"])
    assert why is not None, "nobody was asked"
    raise why


def of_sponsor(
    me: str, said: Invitation, secret: bytes, patience: float = PATIENCE_S, tls: tuple[str, str] | None = None
) -> Invitation:
    """What server `me` begins with, when some server has said who its sponsor is. Raises MomError."""
    end = time.monotonic() + patience
    while "revision" not in said:
        sponsor, at = said["sponsor"], said["listen"]
        try:
            said = ask(me, at, secret, "invitation", tls=tls, server=me)
        except NotRunning:  # it may be on its way up again
            if time.monotonic() > end:
                raise MomError(
                    f"{me} is new on its bus, and {sponsor}, behind which it is, does not answer at {at}: start that "
                    "first"
                ) from None
            time.sleep(POLL_S)
        except MomError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_S)
    return said


def open_store(
    topology: Topology, me: str, secret: bytes, make: Callable[..., SqliteStore] = SqliteStore
) -> SqliteStore:
    """The store of a server. If it has none yet, others are asked whether it is new on a bus that runs, neighbours
    first: those who are there and do not answer, until they do. Raises MomError."""
    data = topology.servers[me].data
    if not has_store(data):
        near = [peer for domain in topology.domains_of(me) for peer in domain.members]
        peers = [peer for peer in dict.fromkeys([*near, *topology.servers]) if peer != me][:MOST_ASKED]
        said = _knock(topology, me, peers, secret)
        if "sponsor" in said:
            return new_store(topology, me, of_sponsor(me, said, secret, tls=tls_of(topology)), make)
    return make(data, topology, me)


def _knock(topology: Topology, me: str, peers: list[str], secret: bytes) -> Invitation:
    """What the first who answers says; nothing if nobody is there: the bus may begin just now. Who refuses our login
    says so in the log. Raises MomError if we cannot begin, and for those who are there and say nothing: whoever began
    without them would have clocks that no server of a running bus takes."""
    end = time.monotonic() + PATIENCE_S
    while True:
        slow: dict[str, NoAnswer] = {}
        for peer in peers:
            try:
                said = _asked(topology, me, peer, secret)
            except NoAnswer as error:
                slow[peer] = error
            else:
                if said is not None:
                    return said
        if not slow:
            return {}
        if time.monotonic() > end:
            why = "; ".join(map(str, slow.values()))
            raise MomError(f"{me} may be new on a bus that runs, and nobody says: start it again then ({why})")
        peers = list(slow)
        time.sleep(POLL_S)


def _asked(topology: Topology, me: str, peer: str, secret: bytes) -> Invitation | None:
    """What a server says, at whichever of its addresses it is; None if it is not there, refuses us, or is replicas of
    which none leads. Raises NoAnswer if it is there, and too slow; MomError if we cannot begin."""
    slow: NoAnswer | None = None
    for listen in topology.servers[peer].listens.split(","):
        try:
            asked = client(me, listen, secret, KNOCK_S, tls_of(topology))
        except NoAnswer as error:
            slow = error
            continue
        except MomError:
            continue
        with asked:
            try:
                said = asked.request("invitation", server=me, bus=topology.name)
            except NoAnswer as error:
                slow = error
                continue
        if "standby" not in said:
            return said
    if slow is not None and not topology.servers[peer].replicas:
        raise slow
    return None


def new_store(
    topology: Topology, me: str, invitation: Invitation, make: Callable[..., SqliteStore] = SqliteStore
) -> SqliteStore:
    """A newcomer's store, in the folder that the topology file names. Raises MomError."""
    data = topology.servers[me].data
    if has_store(data):
        raise MomError(f"{data} has a store already: give {me} a folder of its own, or remove what is there")
    made, rows = newcomers.rows(me, invitation)
    return make(data, made, me, first=rows)
