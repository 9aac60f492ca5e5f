"""Logs of servers as ShiViz reads them: an event a line, with a vector clock of the servers.

ShiViz (Beschastnikh, Wang, Brun, Ernst: Debugging distributed systems, CACM 2016) draws an interactive space-time
diagram of such a text: https://bestchai.bitbucket.io/shiviz/. The clocks are made here, from the records' own order on
each server and from who sent what to whom: those that order messages on the wire are of domains, and most are never
written down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from mombroker.core.errors import line
from mombroker.core.trace import Record
from mombroker.core.words import many

HEAD = "(?<date>\\S*) (?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})\n\n"  # how to read it; there is one execution
LEAVES = ("send", "forward", "relay")  # records of a server from which a packet has left
KINDS = (*LEAVES, "react", "hold", "expire", "dead", "drop", "redeliver")

Clock = dict[str, int]
Key = tuple[str, str, int]  # server, and message as origin and number


def text(logs: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """The parts of the file. What was sent by records that are not there is shown without its cause."""
    yield HEAD
    for server, record, clock in events(logs):
        own = ", ".join(f'"{name}":{count}' for name, count in clock.items())
        yield f"{_utc(record)} {line(said(record))}\n{server} {{{own}}}\n"


def events(logs: Mapping[str, Sequence[Record]]) -> Iterator[tuple[str, Record, Clock]]:
    """All that concerns messages, each after its causes, with its clock: how many events of each server are before it,
    or it itself."""
    waiting = {server: deque(each for each in log if each.kind in KINDS) for server, log in logs.items()}
    sends = {_key(server, each) for server, log in waiting.items() for each in log if each.kind in LEAVES}
    left: dict[Key, Clock] = {}  # of what has left a server
    clocks: dict[str, Clock] = {server: {} for server in logs}

    def cause(server: str) -> Key | None:
        """What the first record of a server has to wait for."""
        first = waiting[server][0]
        key = (first.peer, first.origin, first.number)
        return key if first.peer and key in sends else None

    while any(waiting.values()):
        ready = [name for name, log in waiting.items() if log and ((key := cause(name)) is None or key in left)]
        # None: a log tells what another one cannot have known yet. The one that is earliest by its own clock goes on.
        for server in ready or [min((name for name, log in waiting.items() if log), key=lambda n: _at(waiting[n][0]))]:
            key, record, clock = cause(server), waiting[server].popleft(), clocks[server]
            for name, count in left.get(key, {}).items() if key else ():
                clock[name] = max(count, clock.get(name, 0))
            clock[server] = clock.get(server, 0) + 1
            if record.kind in LEAVES:
                left.setdefault(_key(server, record), dict(clock))
            yield server, record, dict(clock)


def said(record: Record) -> str:
    """A record in words."""
    message = f"{record.origin}#{record.number}"
    match record.kind:
        case "send":
            return f"{record.agent} sends {message} to {', '.join(record.dests)}: {record.detail}"
        case "react":
            return f"{record.agent} has reacted to {message}"
        case "forward" | "relay":
            return f"{record.kind} {message} to {', '.join(dict.fromkeys(peer for _, peer, *_ in record.out))}"
        case "hold":
            return f"{message} waits for {many(len(record.missing), 'message')} in domain {record.domain}"
        case _:
            return f"{record.kind} {message} {record.agent} {record.detail}"


def _key(server: str, record: Record) -> Key:
    return server, record.origin, record.number


def _at(record: Record) -> int:
    return record.done or record.delivered or record.received or record.sent


def _utc(record: Record) -> str:
    ns = _at(record)
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns // 1000 % 10**6:06d}Z"
