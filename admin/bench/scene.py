"""What is seen of a bus that does not come to rest, in few lines: what waits where, for whom, what was last said."""

import json
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from mombroker.core.errors import MomError

Ask = Callable[..., dict[str, Any]]  # (server, verb, arguments); raises MomError

LINE = 400  # characters
CLIENT = ("number", "client_id", "state", "subscriptions", "unsettled", "transactions", "waiting_bytes", "paused")
LINK = ("peer", "up", "sent", "acked", "received", "trouble")


def of(ask: Ask, servers: Iterable[str], journal: Path) -> list[str]:
    """One line a fact."""
    found = [line for server in servers for line in _server(ask, server)]
    found += [f"{client} wrote last: {line}" for client, line in _last(journal).items()]
    return [line[:LINE] for line in found]


def _server(ask: Ask, server: str) -> Iterator[str]:
    try:
        status = ask(server, "status")
        led = [row["replica"] for row in status.get("replicas", ()) if row["role"] == "leader"]
        leads = [f"{replica} leads in term {status['term']}" for replica in led]
        yield f"{server}: {'; '.join([*leads, *status['problems']]) or 'well'}"
        for link in status["links"]:
            if link["waiting"] or not link["up"]:
                yield f"{server}: link {_some(link, LINK)}"
        for peer in status["peers"]:
            if peer["state"] != "up":
                yield f"{server}: {peer['peer']} is {peer['state']} {peer['reason']}".rstrip()
        for row in ask(server, "why")["waits"]:
            yield f"{server}: waits {json.dumps(row)}"
        for each in [*ask(server, "queues")["queues"], *ask(server, "subscriptions")["subscriptions"]]:
            if each["messages"]:
                about = ask(server, "destination", destination=each["destination"])
                yield f"{server}: keeps {_some(about, about.keys() - {'policy'})}"
        for row in ask(server, "connections")["connections"]:
            yield f"{server}: client {_some(row, CLIENT)}"
    except MomError as error:
        yield f"{server}: {error}"


def _some(row: dict[str, Any], names: Container[str]) -> str:
    return json.dumps({name: value for name, value in row.items() if name in names})


def _last(journal: Path) -> dict[str, str]:
    """The last line of each client: its connection, NAME.PID.NUMBER, stands behind what it is."""
    found: dict[str, str] = {}
    if journal.exists():
        with journal.open() as lines:
            for line in lines:
                record = json.loads(line)
                if isinstance(record[1], str) and record[1].count(".") == 2:
                    found[record[1].partition(".")[0]] = line.strip()
    return found
