"""A revision of a topology: what all servers of a bus have alike, as text, and how it meets the file of a server.

The text is JSON: the bus, its registry, what may be deployed, servers with the addresses where peers reach them,
domains with members, back end and options, declared agents, policies, permissions. What else a file says is of a
server alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mombroker.core.errors import MomError
from mombroker.core.meta import HISTORY, REVISION, TOPOLOGY
from mombroker.core.places import Place
from mombroker.core.topology import AgentDecl, Domain, Server, Topology

EPOCH_BITS = 20  # of an epoch, below the number of the revision that has begun it: resets since then

Meta = Mapping[str, str | int]

MOST_BYTES = 4 << 20  # of a text
KEPT = 100  # revisions that are remembered
TOLD, LINE = 30, 200  # lines of a revision's difference that are remembered, and characters of each

SHAPE: dict[str, type | tuple[type, ...]] = {
    "bus": str, "registry": (str, type(None)), "allow": list, "servers": dict, "domains": dict, "agents": dict,
    "policies": list,
}  # fmt: skip


def resets(epoch: int) -> int:
    """How often a domain has begun anew since the revision that has begun it."""
    return epoch & (1 << EPOCH_BITS) - 1


def text_of(topology: Topology) -> str:
    """The text of a topology. Raises MomError if it is too long."""
    content = {
        "bus": topology.name,
        "registry": topology.registry,
        "allow": list(topology.allow),
        "servers": {name: server.listens for name, server in topology.servers.items()},
        "domains": {name: [list(each.members), each.backend, each.options] for name, each in topology.domains.items()},
        "agents": {each.name: [each.server, each.cls, each.fields] for each in topology.agents},
        "policies": topology.policies,
    }
    if topology.permissions:  # a text of before these were, and one without any, are the same
        content["permissions"] = topology.permissions
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    if (size := len(text.encode())) > MOST_BYTES:
        raise MomError(f"the topology takes {size} bytes, and servers keep {MOST_BYTES} at most: make it smaller")
    return text


@lru_cache(maxsize=4)  # it is asked over and over while domains change
def digest_of(text: str) -> str:
    """Equal for texts that say the same; the order of servers, domains and agents says nothing."""
    told = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()


def read(text: str, local: Topology | None = None, me: str = "") -> Topology:
    """The topology of a text. Raises MomError for one that is none, or has faults.

    With `local`, which is trusted like the text then, what is of a server alone is taken from it: limits, log, secret,
    all of `me`, and of other servers what is beside their address.
    """
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} characters")
        content = json.loads(text)
        for key, kind in SHAPE.items():
            if not isinstance(content[key], kind):
                raise ValueError(f"{key} is of another kind")
        if not isinstance(content.setdefault("permissions", []), list):
            raise ValueError("permissions are of another kind")
        made = _made(content, local, me)
        faults = [] if local else [fault for fault in made.faults() if fault.key != ("bus", "secret_file")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MomError(f"the text is not that of a topology: {error}") from None
    if faults:
        raise MomError("; ".join(map(str, faults[:3])))
    return made


def _made(content: dict[str, Any], local: Topology | None, me: str) -> Topology:
    known = local.servers if local else {}
    servers = {name: _server(name, listen, known.get(name), me) for name, listen in content["servers"].items()}
    domains = {}
    for name, (members, backend, options) in content["domains"].items():
        if not (isinstance(backend, str) and isinstance(options, dict)):
            raise ValueError(f"the order of domain {name} is of another kind")
        domains[name] = Domain(name, tuple(members), backend, options)
    agents = [AgentDecl(name, *declared) for name, declared in content["agents"].items()]
    tables = [*content["policies"], *content["permissions"], *(agent.fields for agent in agents)]
    if not all(isinstance(each, dict) for each in tables):
        raise ValueError("a policy or permission, or the fields of an agent, are of another kind")
    if not all(isinstance(each, str) for each in content["allow"]):
        raise ValueError("allow is of another kind")
    return Topology(
        content["bus"], servers, domains, agents, content["registry"], local.secret_file if local else None,
        tuple(content["allow"]), local.limits if local else {}, local.log if local else {}, content["policies"],
        content["permissions"], local.ca if local else None, checked=False,
    )  # fmt: skip


def _server(name: str, listens: str, known: Server | None, me: str) -> Server:
    found = [_address(listen) for listen in listens.split(",")]
    host, port = found[0]
    several = tuple(Place(str(at), *each) for at, each in enumerate(found, 1)) if len(found) > 1 else ()
    if known is None:
        return Server(name, host, port, replicas=several)
    if name == me or known.listens == listens or not port:  # port 0: the one that the system has chosen
        return known
    return replace(known, host=host, port=port, replicas=several)


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def rows(number: int, text: str, now: int, told: list[str]) -> dict[str, str | int | None]:
    """The rows of a revision that is in force from now on; `told` is how it differs from the one before."""
    shown = [line[:LINE] for line in told[:TOLD]]
    if len(told) > TOLD:
        shown.append(f"and {len(told) - TOLD} more")
    history = json.dumps([now, digest_of(text), shown], ensure_ascii=False)
    return {REVISION: number, TOPOLOGY: text, f"{HISTORY}{number}": history, f"{HISTORY}{number - KEPT}": None}


def in_force(meta: Meta) -> tuple[int, str]:
    """The revision that a store has, and its text; (0, "") if it has none yet."""
    return int(meta.get(REVISION, 0)), str(meta.get(TOPOLOGY, ""))


def history(meta: Meta) -> dict[int, tuple[int, str, list[str]]]:
    """By number, the newest first: since when (ns), digest of the text, and how it differs from the one before."""
    at = len(HISTORY)
    found = {int(key[at:]): json.loads(str(row)) for key, row in meta.items() if key.startswith(HISTORY)}
    return {number: (found[number][0], found[number][1], found[number][2]) for number in sorted(found, reverse=True)}


def listed(meta: Meta) -> list[dict[str, Any]]:
    """The same as rows."""
    return [
        {"revision": number, "since_ns": since, "digest": digest, "changes": lines}
        for number, (since, digest, lines) in history(meta).items()
    ]


def effective(file: Topology, meta: Meta, me: str) -> Topology:
    """The topology that server `me` goes by: its store's, if that has one, with the settings of its own that the file
    gives it. Raises MomError for a file of another bus, and for a server that has left its bus."""
    number, text = in_force(meta)
    if not number:
        text = text_of(file)
    made = read(text, file, me)
    if made.name != file.name:
        raise MomError(
            f"the store of {me} is of bus {made.name}, and the topology file of {file.name}: give {me} the file of its "
            "bus, or run `mom topology adopt` on all stores to rename that"
        )
    if me not in made.servers:
        raise MomError(f"{me} has left the bus with revision {number} of its topology: its store can be archived")
    return made
