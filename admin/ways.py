"""The stations of one message, and what was around it, by the ends of the logs whose stores are on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from mombroker.admin.topology.stand import reader_of
from mombroker.broker import destinations
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import name_of
from mombroker.broker.protocol import Publish
from mombroker.core.errors import MomError
from mombroker.core.topology import Topology
from mombroker.core.trace import Record
from mombroker.lab import stories
from mombroker.net import config
from mombroker.store.reader import SqliteReader

_ID, _SENT = re.compile(r"[^#]+#[0-9]{1,19}"), re.compile(r"(.+)@([0-9]{1,19})")  # or where it was sent to, and when
MOST_NAMED = 10
TOPICS = "_topics"  # the agent that takes what is published
RECORDS = 5_000  # of all logs together: the last ones of each
PAGE, REST_S = 500, 0.001  # records at a time, and what others who need the interpreter have between two of these
MOST = 200  # stations that are told


def of_message(file: Path, message: str) -> dict[str, Any]:
    """Of `SERVER#NUMBER`, or of what was sent to a `DESTINATION@NS` then, which is how one is found whose client has
    given it an id of its own.

    `arrows` are packets between servers, as lab/stories.py has them, those of the message and some around it;
    `stations` its records, by time, which is each server's own; `left_out` servers whose stores are not here. Raises
    MomError."""
    if not (_ID.fullmatch(message) or _SENT.fullmatch(message)):
        raise MomError(f"{message[:80]!r} is no id of a message in the log: write SERVER#NUMBER, as paris#17")
    topology = config.load(file)
    with ExitStack() as stack:
        readers: dict[str, SqliteReader] = {}
        for name in topology.servers:
            if (reader := reader_of(topology, name)) is not None:
                readers[name] = stack.enter_context(closing(reader))
        return _told(topology, readers, message)


def _told(topology: Topology, readers: dict[str, SqliteReader], message: str) -> dict[str, Any]:
    most = RECORDS // max(1, len(readers))
    begins = {name: max(0, reader.log_end() - most) for name, reader in readers.items()}
    logs = {name: list(_last(reader, begins[name], most)) for name, reader in readers.items()}
    if said := _SENT.fullmatch(message):
        message = _named(logs, said[1], int(said[2])) or message
    origin, _, number = message.rpartition("#")
    stations = [
        _station(name, record) for name, log in logs.items() for record in log
        if record.origin == origin and str(record.number) == number
    ]  # fmt: skip
    if not stations:
        raise MomError(
            f"no record of {message[:80]} is among the last {most} of the logs on this machine: `mom log diagram` "
            "reads all of them"
        )
    cut = [name for name, begin in begins.items() if begin or not logs[name]]
    story = stories.logged(logs, topology, cut)
    around = story.around(message) if message in {arrow.message for arrow in story.arrows} else None
    return {
        "message": message,
        "servers": list(around.processes) if around else sorted({each["server"] for each in stations}),
        "arrows": [
            {
                "message": each.message, "from": each.frm, "to": each.to, "left": each.left, "came": each.came,
                "delivered": each.delivered, "waited_for": each.waited_for, "passed": each.passed, "bare": each.bare,
                "twins": len(each.twins),
            }
            for each in (around.arrows if around else [])
        ],
        "stations": sorted(stations, key=lambda each: each["time"])[:MOST],
        "left_out": [name for name in topology.servers if name not in readers],
    }  # fmt: skip


def _named(logs: Mapping[str, Sequence[Record]], destination: str, sent: int) -> str:
    """The id in the logs of what a client has given an id of its own; empty if there is none. Raises MomError."""
    to = name_of(destinations.one(destination))
    found = {
        f"{record.origin}#{record.number}": None for log in logs.values() for record in log
        if record.kind == "send" and record.sent == sent and record.detail in (ClientMessage.wire, Publish.wire)
        and any(dest.partition("/")[2] in (to, TOPICS) for dest in record.dests)
    }  # fmt: skip
    if len(found) > 1:
        some = ", ".join([*found][:MOST_NAMED])
        raise MomError(f"{len(found)} messages were sent to {destination} at that moment: choose one of {some}")
    return next(iter(found), "")


def _last(reader: SqliteReader, after: int, most: int) -> Iterator[Record]:
    end = after + most
    while after < end and (page := reader.log(after, min(PAGE, end - after))):
        yield from (record for _, record in page)
        after = page[-1][0]
        time.sleep(REST_S)


def _station(server: str, record: Record) -> dict[str, Any]:
    return {
        "server": server, "time": record.done or record.delivered or record.received or record.sent,
        "kind": record.kind, "agent": record.agent, "dests": list(record.dests), "domain": record.domain,
        "from": record.peer, "to": list(dict.fromkeys(peer for _, peer, _, _ in record.out)),
        "received": record.received, "detail": record.detail,
    }  # fmt: skip
