"""What live clients write down, one line for each thing that they do or are told, and what the model says of it.

The lines of all clients are in one file, in an order that agrees with what caused what: each line is written before
a client acts, and after it was told. The model is the one that judges simulated clients; it knows these lines alone.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mombroker.sim.model import Given, Model, Sent, Stream

EXPECTED = (  # what a client may be refused for when servers are killed
    "was taken over by another consumer", "does not answer: try again", "is stopping", "subscribe again",
)  # fmt: skip


class Ledger:
    """`streams`: what there is to take from, by name. A destination is `DESTINATION?COLOR` here: selectors see that."""

    def __init__(self, streams: Mapping[str, Stream]):
        self.streams = streams
        self.model = Model()
        self.model.streams.update(dict.fromkeys(streams.values()))
        self.sent: dict[str, Sent] = {}  # by key, which is the body
        self.never: set[str] = set()  # keys of aborted transactions
        self.past: dict[str, int] = {}  # by connection
        self.numbers: dict[str, int] = {}
        self.subs: dict[tuple[str, str], tuple[Stream, int]] = {}
        self.given: dict[tuple[str, str], Given] = {}  # by connection and message-id
        self.wrong: list[str] = []
        self.cut_off: list[tuple[str, int, float, float]] = []  # connection, port of its server, from when to when
        self.pauses: list[tuple[str, float, float]] = []  # server, from one receipt to the next, s since the epoch
        self.latencies: list[
            tuple[str, float, float, float]
        ] = []  # server, when, s since the epoch, two times of a probe
        self.time = self.seen = self.repeats = self.receipts = 0

    def read(self, journal: Path) -> None:
        with journal.open() as lines:
            for line in lines:
                self.take(json.loads(line))

    def take(self, record: list[Any]) -> None:
        self.time += 1
        getattr(self, f"_{record[0]}")(*record[1:])

    def faults(self) -> list[str]:
        """What is wrong, once all that waited has been taken."""
        return self.wrong[:5] + self.model.faults()

    # -- what a line may tell ----------------------------------------------------------------------------------------

    def _open(self, conn: str) -> None:
        self.past[conn] = 0
        self.numbers[conn] = len(self.numbers) + 1

    def _send(self, conn: str, key: str, destination: str) -> None:
        """Also again, by another connection: whatever had caused it there is no cause of what comes by this one."""
        sent = self.sent.get(key)
        if sent is None:
            sent = self.sent[key] = self.model.sent(destination, self.past[conn], self.time)
        else:
            sent.past = 0
        self.past[conn] |= sent.bit

    def _commit(self, conn: str, keys: list[str], settled: str) -> None:
        """A transaction of these sends and of one acknowledgement."""
        together, given = [self.sent[key] for key in keys], self.given[conn, settled]
        for sent in together:
            sent.together, sent.settles = together, [given]
        given.passed_on = together

    def _abort(self, conn: str, keys: list[str]) -> None:
        self.never.update(keys)

    def _subscribe(self, conn: str, sub: str, name: str) -> None:
        stream, begins = self.streams[name], self.model.event()
        self.subs[conn, sub] = stream, begins
        if stream.kind != "queue":
            self.model.subscribed(stream, self.past[conn])
            self.past[conn] |= begins

    def _receipt(self, conn: str, of: str, name: str, everywhere: bool) -> None:
        self.receipts += 1
        if of == "send":
            self.model.exists(self.sent[name])
        elif of == "ack":
            self.model.settled(self.given[conn, name])
        elif everywhere:
            stream, begins = self.subs[conn, name]
            stream.begun |= begins
            stream.known = stream.known or self.time

    def _saw(self, conn: str, sub: str, id: str, key: str, count: int, redelivered: bool) -> None:
        self.seen += 1
        self.repeats += count > 1
        stream, _ = self.subs[conn, sub]
        sent = self.sent.get(key)
        if sent is None or key in self.never:
            self.wrong.append(f"{stream} saw {key}, which was {'aborted' if sent else 'never sent'}")
            return
        if not stream.wants(sent.destination):
            self.wrong.append(f"{stream} saw {key} to {sent.destination}")
        if redelivered != (count > 1):
            self.wrong.append(f"{stream} saw {key} with the count {count} and redelivered:{redelivered}")
        given = self.given[conn, id] = Given(stream, sent, count, "individual", self.numbers[conn])
        self.model.saw(given)
        self.past[conn] |= sent.past | sent.bit

    def _lost(self, conn: str, port: int, since: float, end: float) -> None:
        self.cut_off.append((conn, port, since, end))

    def _pause(self, server: str, since: float, until: float) -> None:
        self.pauses.append((server, since, until))

    def _latency(self, server: str, at: float, receipt: float, message: float) -> None:
        self.latencies.append((server, at, receipt, message))

    def _refused(self, conn: str, text: str) -> None:
        if not any(words in text for words in EXPECTED):
            self.wrong.append(f"a client was refused: {text}")


def queue(name: str, colors: Iterable[str]) -> Stream:
    return Stream(tuple(f"/queue/{name}?{color}" for color in colors), "queue")
