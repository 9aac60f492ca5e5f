"""What the verbs about destinations share: how a queue or subscription is found, and pages of lists.

A request is a reaction of its server like any other: what it changes is durable before it is answered.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from urllib.parse import unquote

from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of, spoken
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.service import Sessions
from mombroker.core.errors import MomError, short
from mombroker.core.message import BOUNCE, new_message
from mombroker.core.reaction import DELETE

MAX_PAGE = 1_000  # entries, or messages moved at once
KINDS = {"queue": "queue:", "temp-queue": TEMPORARY, "sub": "sub:", "share": "share:"}


class DestinationVerbs:
    def __init__(self, sessions: Sessions):
        self.sessions, self.natives, self.tx = sessions, sessions.natives, sessions.tx
        self.names = sessions.natives.names

    def page(self, *kinds: str, after: str, limit: int, match: str = "") -> tuple[list[Queue], str]:
        """Of these kinds, in order of their agents' ids, and where the next page begins; empty if there is none."""
        agents, most = self.natives.agents, min(limit, MAX_PAGE)
        ids = list(islice(self._ids(kinds, match, after), most + 1))
        found = [native for id in ids[:most] if isinstance(native := agents[id], Queue)]
        return found, ids[most - 1] if len(ids) > most > 0 else ""

    def fullest(self, *kinds: str, limit: int, match: str = "") -> list[Queue]:
        """Of these kinds those with most messages, the fullest first."""
        agents = self.natives.agents
        all = (native for id in self._ids(kinds, match) if isinstance(native := agents[id], Queue))
        return heapq.nlargest(min(limit, MAX_PAGE), all, key=lambda queue: queue.messages.count)

    def _ids(self, kinds: tuple[str, ...], match: str, after: str = "") -> Iterator[str]:
        """Of agents of these kinds with this text in their names, those behind `after`, in order."""
        ids = self.natives.ids
        for prefix in sorted(f"{self.tx.name}/{KINDS[kind]}" for kind in kinds):
            at = bisect_right(ids, after) if after > prefix else bisect_left(ids, prefix)
            while at < len(ids) and (id := ids[at]).startswith(prefix):
                at += 1
                if not match or match in unquote(id.partition(":")[2]):
                    yield id

    def find(self, shown: str) -> Queue:
        """The queue or subscription of this name, which lives here."""
        me = self.tx.name
        if shown.startswith("temp-queue:"):
            id = f"{me}/{TEMPORARY}{name_of(shown.partition(':')[2])}"
        else:
            name = shown if shown in self.names.known else name_of(shown)
            id = self.names.known.get(name) or f"{me}/{name}"
            if id not in self.natives.agents and f"{me}/{name}" in self.natives.agents:  # it has not quite left
                id = f"{me}/{name}"
        found = self.natives.agents.get(id)
        if isinstance(found, Queue):
            return found
        self.names.present(id, shown)
        home = id[: id.index("/")]
        if home != me:
            raise MomError(f"{spoken(shown)} does not live on {me}; ask its home server {home}")
        if shown.startswith(("sub:", "share:")):
            _, client, name = shown.split(":", 2) if shown.count(":") > 1 else ("", "", "")
            client, colon, name = ("", "", "") if client else unquote(name).partition(":")
            meant = f"did you mean {name} --client-id {client}? " if colon else ""
            raise MomError(f"there is no {short(spoken(shown))}: {meant}see `mom subscription list`")
        raise MomError(f"there is no {short(shown)}; see `mom queue list`")

    def home(self, where: str) -> str:
        """The agent of a queue or subscription; empty for a queue that is still to be made."""
        known = self.names.known
        id = known.get(name_of(where), "")
        if not id and not where.startswith("queue:"):  # a client id is written in other escapes than a name
            id = next((known[name] for name in known if self.sessions.shown(name) == where), "")
        if not id and not where.startswith("queue:"):
            raise MomError(
                f"{where} is gone: send what was for it to a queue, by `mom queue move`, or by "
                "`mom agent deadletters retry --to`"
            )
        if id:
            self.names.present(id, where)
        return id

    def put(self, put: ClientMessage, id: str, source: str) -> None:
        """Send a client's message to the agent of a queue or subscription, or make its queue."""
        if id:
            self.natives.post(source, id, put)
        else:
            self.sessions.send_by_name(put, source)

    def delete(self, id: str) -> None:
        self.natives.send(new_message(self.tx, f"{self.tx.name}/_admin", (id,), DELETE, b"", flags=BOUNCE))
