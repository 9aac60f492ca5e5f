"""`/metrics`: what operators may ask, in the text format of Prometheus (version 0.0.4).

A scrape is built in slices: one question to the server after the other, each for at most PAGE destinations. What was
written of a destination is kept until the next scrape, in which most are as they were.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from mombroker import __version__
from mombroker.gateway.web.http import Answer

PREFIX = "mombroker_"
TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE = 100  # destinations of a slice
MOST = 1_000  # destinations with figures of their own, of queues and of subscriptions
NS = 1e-9

Row = Mapping[str, Any]
Steps = Generator[tuple[str, dict[str, Any]], dict[str, Any], Answer]
Written = dict[str, tuple[tuple[int, ...], tuple[bytes, ...]]]  # destination -> its figures, and their lines


class Metric(NamedTuple):
    """`key`: where its value stands in the row that it is read from; `scale`: what that is multiplied by."""

    name: str
    type: str
    key: str
    help: str
    scale: float = 1


SERVER = (
    Metric("messages_sent_total", "counter", "sent", "Messages that agents of the server sent"),
    Metric("messages_received_total", "counter", "received", "Messages that came for agents of the server"),
    Metric("messages_forwarded_total", "counter", "forwarded", "Messages passed on to other domains"),
    Metric("messages_held_total", "counter", "holds", "Messages that had to wait for their causes"),
    Metric("reactions_total", "counter", "reactions", "Reactions of agents"),
    Metric("failures_total", "counter", "failures", "Reactions that failed"),
    Metric("agents_in_memory", "gauge", "agents_in_memory", "Agents in memory"),
    Metric("inbox_messages", "gauge", "inbox_in_memory", "Messages of inboxes in memory"),
    Metric("agent_dead_letters", "gauge", "dead_letters", "Messages that no agent could take"),
    Metric("names", "gauge", "names", "Names of the bus that the server knows"),
    Metric("store_bytes", "gauge", "store_bytes", "Size of the store"),
    Metric("store_max_bytes", "gauge", "max_store", "Size of the store from which on no work is taken"),
    Metric("disk_free_bytes", "gauge", "free_bytes", "Free bytes of the file system of the store; 0: not known"),
    Metric("full", "gauge", "full", "1: no work is taken from outside"),
    Metric("problems", "gauge", "problems", "Things that an operator should act on; mom status has them in words"),
    Metric("stuck_agents", "gauge", "stuck", "Agents whose class cannot be loaded"),
    Metric("clock_ahead_seconds", "gauge", "ahead_ns", "How far the server's time is ahead of its machine's clock", NS),
    Metric(
        "certificate_expires_seconds", "gauge", "certificate_expires", "When the certificate ends, since 1970; 0: none"
    ),
    Metric("commits_total", "counter", "commits", "Batches made durable"),
)
PROCESS = (
    Metric("process_cpu_seconds_total", "counter", "cpu_seconds", "CPU time of the process"),
    Metric("process_resident_memory_bytes", "gauge", "memory_bytes", "Memory of the process"),
    Metric("process_open_fds", "gauge", "files", "Open files of the process"),
    Metric("process_max_fds", "gauge", "max_files", "Files that the process may open"),
    Metric("process_start_time_seconds", "gauge", "since", "When the server was started, since 1970", NS),
)
TURNS = (
    Metric("turn_longest_seconds", "gauge", "longest_ms", "The longest that others had to wait since the start", 1e-3),
    Metric("turns_long_total", "counter", "long", "Pieces of work that took over 20 ms"),
)
CLIENTS = (
    Metric("connections", "gauge", "clients", "Connections of clients"),
    Metric("connections_opened_total", "counter", "total", "Connections of clients since the start"),
    Metric("logins_refused_total", "counter", "refused", "Logins that were refused"),
    Metric("unfinished_bytes", "gauge", "unfinished_bytes", "Bytes of clients' frames that are not whole yet"),
    Metric("transaction_bytes", "gauge", "transaction_bytes", "Bytes in open transactions of clients"),
    Metric("client_dropped_total", "counter", "dropped", "Messages of topics that slow clients did not take"),
)
TOPICS = (
    Metric("topic_published_total", "counter", "published", "Messages that clients of the server sent to topics"),
    Metric("topic_copies_total", "counter", "copies", "Copies of them for subscribers of the server"),
    Metric("topic_unheard_total", "counter", "unheard", "Copies that no subscription of the server took"),
    Metric("topic_dropped_total", "counter", "dropped", "Copies that were dropped"),
)
DOMAIN = (
    Metric("domain_held", "gauge", "held", "Messages that wait for their causes"),
    Metric("domain_held_longest_seconds", "gauge", "held_longest_ns", "How long the longest of them has waited", NS),
    Metric("domain_parked", "gauge", "parked", "Messages that are passed on once others have stored them"),
    Metric("domain_relays_total", "counter", "relays", "Packets passed on for others"),
    Metric("domain_duplicates_total", "counter", "duplicates", "Packets that came a second time"),
    Metric("domain_waiting", "gauge", "waiting", "Packets sent that are not acknowledged"),
)
LINK = (
    Metric("link_up", "gauge", "up", "1: there is a connection to the neighbour"),
    Metric("link_sent_total", "counter", "sent", "Packets sent since the store was made"),
    Metric("link_received_total", "counter", "received", "Packets received since the store was made"),
    Metric("link_waiting", "gauge", "waiting", "Packets sent that are not acknowledged"),
    Metric("link_held", "gauge", "held", "Messages of the neighbour that wait for their causes"),
    Metric("link_last_seen_seconds", "gauge", "last_seen", "When the neighbour was last seen, since 1970", NS),
)
DESTINATION = (
    Metric("queue_messages", "gauge", "messages", "Messages in a queue or subscription"),
    Metric("queue_bytes", "gauge", "bytes", "Bytes of them"),
    Metric("queue_unacked", "gauge", "unacked", "Messages that consumers have and have not settled"),
    Metric("queue_consumers", "gauge", "consumers", "Consumers"),
    Metric("queue_dropped_total", "counter", "dropped", "Messages that a limit dropped"),
)
INFO = Metric("info", "gauge", "", "1, with what the server is")
CUT = Metric("queues_left_out", "gauge", "", f"1: there are more than {MOST} queues or subscriptions: those have none")
REPLICA = (  # of a server that has some
    Metric("replica_term", "gauge", "term", "The term of the replica, in which one leads at most"),
    Metric("replica_leads", "gauge", "leads", "1: this replica leads, and serves"),
    Metric("replica_heard_seconds", "gauge", "heard_ns", "How long nothing was heard of a leader", NS),
)
REPLICAS = (  # where it leads, of each one; else of itself
    Metric("replica_up", "gauge", "up", "1: the replica answers"),
    Metric("replica_behind", "gauge", "behind", "Entries of the log that the replica lacks, as far as it is known"),
)
METRICS = (
    INFO, *SERVER, *PROCESS, *TURNS, *CLIENTS, *TOPICS, *DOMAIN, *LINK, *DESTINATION, CUT,
)  # fmt: skip


class Scraper:
    """`written`: what the last scrape has written of destinations, at most MOST of each of two kinds."""

    def __init__(self) -> None:
        self.written: Written = {}

    def scrape(self) -> Steps:
        status = yield "status", {}
        page = Text(status["server"], self.written)
        page.sample(INFO, 1, version=__version__)
        page.row(SERVER, {**status, "problems": len(status["problems"]), "stuck": len(status["stuck"])})
        for metrics, part in ((PROCESS, "process"), (TURNS, "turns"), (CLIENTS, "stomp")):
            page.row(metrics, status[part])
        if "replicas" in status:
            page.replicas(status)
        page.row(TOPICS, (yield "topics", {"limit": 0}))
        for row in status["domains"]:
            page.row(DOMAIN, row, domain=row["domain"])
        for row in status["links"]:
            page.row(LINK, row, domain=row["domain"], peer=row["peer"])
        cut = False
        for verb, args in (("queues", {}), ("subscriptions", {"brief": True})):
            after = ""
            for _ in range(MOST // PAGE):
                reply = yield verb, {"after": after, "limit": PAGE, **args}
                page.destinations(reply[verb])
                if not (after := reply["after"]):
                    break
            cut = cut or bool(after)
        page.sample(CUT, cut)
        self.written = page.written
        return Answer(200, page.text(), TYPE)


def of_replica(server: str, figures: Row) -> Answer:
    """Of one that does not lead."""
    page = Text(server, {})
    page.sample(INFO, 1, version=__version__)
    page.replicas(figures)
    return Answer(200, page.text(), TYPE)


class Text:
    """The samples of a scrape: all of one metric stand together. `before`: of destinations, from the last one."""

    def __init__(self, server: str, before: Written):
        self.common = f'server="{_escaped(server)}"'
        self.written: Written = {}
        self._before = before
        self._lines: dict[str, list[bytes]] = {metric.name: [] for metric in (*METRICS, *REPLICA, *REPLICAS)}

    def replicas(self, found: Row) -> None:
        self.row(REPLICA, found)
        for each in found["replicas"]:
            self.row(REPLICAS, each, replica=each["replica"], role=each["role"])

    def row(self, metrics: Iterable[Metric], row: Row, **labels: str) -> None:
        where = self._where(labels)
        for metric in metrics:
            value = row[metric.key]
            self._line(metric, where, value if metric.scale == 1 else value * metric.scale)

    def sample(self, metric: Metric, value: float, **labels: str) -> None:
        self._line(metric, self._where(labels), value)

    def destinations(self, rows: list[Row]) -> None:
        columns = zip(*map(self._destination, rows), strict=True)
        for metric, lines in zip(DESTINATION, columns, strict=False):  # there are none of no rows
            self._lines[metric.name].append(b"".join(lines))

    def _destination(self, row: Row) -> tuple[bytes, ...]:
        name, values = row["destination"], FIGURES(row)
        known = self._before.get(name)
        if known is None or known[0] != values:
            where = self._where({"destination": name})
            known = values, tuple([_line(full, where, value) for full, value in zip(NAMES, values, strict=True)])
        self.written[name] = known
        return known[1]

    def _line(self, metric: Metric, where: str, value: float) -> None:
        self._lines[metric.name].append(_line(full(metric), where, value))

    def _where(self, labels: Mapping[str, str]) -> str:
        own = "".join([f',{name}="{_escaped(value)}"' for name, value in labels.items()])
        return f"{{{self.common}{own}}} "

    def text(self) -> bytes:
        parts = []
        for metric in (*METRICS, *REPLICA, *REPLICAS):
            if lines := self._lines[metric.name]:
                name = full(metric)
                parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.type}\n".encode())
                parts += lines
        return b"".join(parts)


def full(metric: Metric) -> str:
    """The name as Prometheus has it; what is of every process has the names that all programs give it."""
    return metric.name if metric.name.startswith("process_") else PREFIX + metric.name


FIGURES = itemgetter(*(metric.key for metric in DESTINATION))
NAMES = [full(metric) for metric in DESTINATION]


def _line(name: str, where: str, value: float) -> bytes:
    shown = int(value) if isinstance(value, int) else f"{value:.9g}"
    return f"{name}{where}{shown}\n".encode(errors="backslashreplace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
