"""Servers that leave a bus: what each of them holds, and what the others know of it. Nobody runs meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from mombroker.core import revision
from mombroker.core.batch import Reader
from mombroker.core.dead_letters import DEAD, LETTERS
from mombroker.core.ids import home_of
from mombroker.core.meta import (
    ARRIVING,
    HISTORY,
    HOME,
    NAME,
    ORDER,
    PERMISSION,
    POLICY,
    REVISION,
    TOPIC,
    TOPOLOGY,
    USER,
)
from mombroker.core.words import many

Meta = Mapping[str, Any]
LANES = ("d", *(f"p{number}" for number in range(10)))  # the collections that a queue's messages wait in
PAGE = 1_000
SHOWN = 20  # things of one server in a refusal


def members(metas: Mapping[str, Meta]) -> set[str]:
    """The servers of the bus that the stores are of."""
    orders = [json.loads(str(meta[ORDER])) for meta in metas.values()]
    return {*metas, *(member for order in orders for domain in order.values() for member in domain["members"])}


def departed(servers: Mapping[str, object], metas: Mapping[str, Meta]) -> list[str]:
    """The servers that the stores have heard of, and that are not among `servers`."""
    found = members(metas)
    for meta in metas.values():
        found |= {lives(str(value), meta) for key, value in meta.items() if key.startswith(NAME)}
        found |= {home for key in meta if (home := _home_of_entry(key))}
    return sorted(found - set(servers))


def lives(id: str, meta: Meta) -> str:
    """The server where an agent lives, as one that has these rows knows."""
    return str(meta.get(f"{HOME}{id}", home_of(id)))


def holdings(server: str, store: Reader | None, metas: Mapping[str, Meta]) -> list[str]:
    """What is lost with a server, a phrase for each thing. Without its store that is what the others know of it: a name
    may be of somebody who was deleted there."""
    if store is None:
        ids = {
            str(value) for meta in metas.values() for key, value in meta.items()
            if key.startswith(NAME) and lives(str(value), meta) == server
        }  # fmt: skip
        return [*(_shown(id) for id in sorted(ids)), f"what else there was: the store of {server} is not here"]
    there = {id for id in _agents(store) if not id.startswith(f"{server}/conn:")}
    there |= {key.removeprefix(ARRIVING) for key in store.meta(ARRIVING)}
    counts = _messages(store, [*there])
    found = [_shown(id, counts.pop(id, 0)) for id in sorted(there)]
    if waiting := sum(counts.values()):
        found.append(f"{many(waiting, 'message')} without a receiver")
    if letters := store.item_count(f"{server}/{DEAD}", LETTERS):
        found.append(many(letters, "dead letter"))
    for link in store.links():
        if packets := store.queue_out_size(link.id)[0]:
            found.append(f"{many(packets, 'packet')} for {link.peer}")
    return found


def listed(found: list[str]) -> str:
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def names_of(servers: list[str], metas: Mapping[str, Meta]) -> list[str]:
    """The names that are withdrawn with these servers."""
    return sorted({
        key.removeprefix(NAME) for meta in metas.values() for key, value in meta.items()
        if key.startswith(NAME) and lives(str(value), meta) in servers
    })  # fmt: skip


def withdrawn(meta: Meta, servers: list[str]) -> dict[str, str | int | None]:
    """The rows of one store that go with these servers: names, and entries of the subscription table."""
    return {
        key: None for key, value in meta.items()
        if (key.startswith(NAME) and lives(str(value), meta) in servers) or _home_of_entry(key) in servers
        or (key.startswith(HOME) and value in servers)
    }  # fmt: skip


def tables(metas: Mapping[str, Meta]) -> dict[str, str | int | None]:
    """What every server of the bus has to know of these, and a new one has to learn: the topology with its history,
    names, where agents live, policies, users, permissions, and the entries of each in the subscription table."""
    found: dict[str, str | int | None] = {}
    newest: Meta = max(metas.values(), key=lambda meta: revision.in_force(meta)[0], default={})
    found |= {key: value for key, value in newest.items() if key in (REVISION, TOPOLOGY) or key.startswith(HISTORY)}
    for name, meta in metas.items():
        for key, value in meta.items():
            if key.startswith((NAME, HOME, POLICY, USER, PERMISSION)):
                found[key] = value
            elif _home_of_entry(key) == name:
                found[key] = str(value).partition("\n")[0]  # behind it is who does not know it
    return found


def _home_of_entry(key: str) -> str:
    return key[len(TOPIC) :].rpartition(":")[0] if key.startswith(TOPIC) else ""


def _agents(store: Reader) -> Iterator[str]:
    after = ""
    while rows := store.agents(after, PAGE):
        yield from (id for id, _ in rows)
        after = rows[-1][0]


def _messages(store: Reader, agents: list[str]) -> Counter[str]:
    """By agent: what waits in its inbox and, if it is a queue, in it, and what somebody has of that."""
    counts: Counter[str] = Counter()
    for agent, lowest, rows in store.inboxes():
        if rows and not agent.partition("/")[2].startswith(("_", "conn:")):
            counts[agent] += store.queue_in_count(agent, lowest - 1)
    after = 0
    while held := store.held(after, PAGE):
        counts.update(row.agent for row in held)
        after = held[-1].id
    for agent in agents:
        if agent.partition("/")[2].startswith(("queue:", "sub:", "share:")):
            counts[agent] += sum(store.item_count(agent, lane) for lane in LANES)
    return counts


def _shown(id: str, messages: int = 0) -> str:
    local = unquote(id.partition("/")[2])
    kind, _, name = local.partition(":")
    what = {"queue": local, "topic": local, "sub": f"durable subscription {name}", "share": f"subscription {name}"}
    return what.get(kind if name else "", f"agent {local}") + (f" with {many(messages, 'message')}" if messages else "")
