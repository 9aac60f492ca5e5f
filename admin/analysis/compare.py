"""Two periods of a bus side by side, from roll-ups: what has changed, and where that comes from."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mombroker.admin.analysis import rollup
from mombroker.core.errors import MomError
from mombroker.core.words import many as many_of

Figures = dict[str, Any]
MS = 1e6
GB = 1e9
LAST = datetime(9999, 12, 31, tzinfo=UTC)  # the last day that there is
METERED = ("wire_bytes", "wal_bytes", "disk_bytes")
SHARE = 0.05  # of a change that a place has at least to be named
TOP = 10  # places named of a figure


@dataclass(frozen=True)
class Period:
    """An export, or some hours of it: `PATH`, `PATH@DAY`, `PATH@HOUR`, `PATH@FROM..TO`."""

    path: Path
    since: datetime | None = None
    until: datetime | None = None

    @staticmethod
    def of(text: str) -> "Period":
        """Raises MomError for what is no such text."""
        path, at, times = text.rpartition("@")
        if not at:
            return Period(Path(text))
        first, dots, last = times.partition("..")
        since = _time(first) if first else None
        if dots:
            return Period(Path(path), since, _time(last) if last else None)
        if since is None:
            raise MomError(f"{text} names no time: write {path}@2026-03-01, or {path}@2026-03-01..2026-03-08")
        span = timedelta(hours=1) if "T" in first else timedelta(days=1)
        return Period(Path(path), since, since + span if since < LAST else None)

    def read(self) -> pa.Table:
        rollup.update(self.path)
        return rollup.read(self.path, self.since, self.until)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise MomError(f"{text!r} is no time like 2026-03-01 or 2026-03-01T12:00:00") from None


# -- the figures of a period -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    count: int = 0
    total: int = 0


@dataclass
class Sums:
    """What a roll-up adds up to: each figure in all, and by a column."""

    every: dict[str, Sum]
    by: dict[str, dict[str, dict[str, Sum]]]  # column, figure, its value
    histograms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # about and count, in order

    @staticmethod
    def of(table: pa.Table) -> "Sums":
        histograms: dict[str, list[tuple[int, int]]] = defaultdict(list)
        counted = table.group_by(["figure", "about"]).aggregate([("count", "sum")]).sort_by("about")
        for figure, about, count in zip(*(counted[name].to_pylist() for name in
                                          ("figure", "about", "count_sum")), strict=True):  # fmt: skip
            histograms[figure].append((about, count))
        by = {name: _grouped(table, name) for name in ("domain", "server")}
        every = {
            figure: Sum(sum(each.count for each in places.values()), sum(each.total for each in places.values()))
            for figure, places in by["server"].items()
        }
        return Sums(every, by, histograms)

    def __getitem__(self, figure: str) -> Sum:
        return self.every.get(figure, Sum())

    def quantile(self, figure: str, share: float) -> float | None:
        """ms; the least time that so large a share of all did not exceed."""
        rows = self.histograms.get(figure, [])
        left = share * sum(count for _, count in rows)
        for about, count in rows:
            left -= count
            if left <= 0:
                return _rounded(about / MS)
        return None


def _grouped(table: pa.Table, column: str) -> dict[str, dict[str, Sum]]:
    found: dict[str, dict[str, Sum]] = defaultdict(dict)
    made = table.group_by(["figure", column]).aggregate([("count", "sum"), ("total", "sum")])  # ns beyond 64 bits, too
    names = ("figure", column, "count_sum", "total_sum")
    for figure, place, count, total in zip(*(made[name].to_pylist() for name in names), strict=True):
        found[figure][place] = Sum(count, int(total))
    return found


def figures(sums: Sums, price: float | None = None) -> Figures:
    """Totals, and what they are a message, a packet or a copy; null where there is nothing to divide. Times are ms.

    `price` is that of a GB on a link; without it the figure is null. Bytes on the wire, and of disks, are null where
    servers did not log them.
    """
    wire, wal, disk = (sums[name].total if name in sums.every else None for name in METERED)
    messages, packets, hold, whole = (sums[name].count for name in ("sends", "packets", "hold", "whole"))
    commits = sums["commits"].count or None
    return {
        "records": sums["records"].count,
        "messages": messages,
        "payload_bytes": sums["sends"].total,
        "packets": packets,
        "control_bytes": sums["packets"].total,
        "control_ints": sums["ints"].total,
        "forwards": sums["forwards"].count,
        "reactions": sums["react"].count,
        "ended_otherwise": sum(sums[name].count for name in ("expire", "dead", "drop")),
        "commits": commits,
        "rows": sums["commits"].total if commits else None,
        "value_bytes": sums["values"].total if commits else None,
        "wire_bytes": wire,
        "wal_bytes": wal,
        "wal_syncs": sums["wal_syncs"].total if wal is not None else None,
        "disk_bytes": disk,
        "packets_per_message": _ratio(packets, messages),
        "control_per_message": _ratio(sums["packets"].total, messages),
        "control_per_packet": _ratio(sums["packets"].total, packets),
        "wire_per_packet": None if wire is None else _ratio(wire, packets),
        "control_pct_of_wire": None if wire is None else _ratio(100 * sums["packets"].total, wire),
        "disk_per_message": None if disk is None else _ratio(disk, messages),
        "price": None if wire is None or price is None else round(wire / GB * price, 6),
        "ints_per_packet": _ratio(sums["ints"].total, packets),
        "hops_per_copy": _ratio(sums["hops"].total, sums["hops"].count),
        "rows_per_message": _ratio(sums["commits"].total, messages) if commits else None,
        "commits_per_message": _ratio(commits or 0, messages) if commits else None,
        "hold_ms": _ratio(sums["hold"].total / MS, hold),
        "hold_p95_ms": sums.quantile("hold", 0.95),
        "queue_ms": _ratio(sums["queue"].total / MS, whole),
        "queue_p95_ms": sums.quantile("queue", 0.95),
        "delay_ms": _ratio(sums["whole"].total / MS, whole),
        "delay_p50_ms": sums.quantile("whole", 0.5),
        "delay_p95_ms": sums.quantile("whole", 0.95),
        "delay_p99_ms": sums.quantile("whole", 0.99),
        "commit_ms": _ratio(sums["commit"].total / MS, sums["commit"].count),
    }


# -- what has changed --------------------------------------------------------------------------------------------------


class Why(NamedTuple):
    """A quotient whose changes are told apart: `total` of all places over `of`, with `count` as what is between."""

    figure: str
    column: str
    total: str
    per: str  # whose count divides
    one: str  # what `count` counts
    unit: str
    scale: float = 1.0


WHYS = (
    Why("control_per_message", "domain", "packets", "sends", "packets a message", "bytes a packet"),
    Why("rows_per_message", "server", "commits", "sends", "commits a message", "rows a commit"),
    Why("hold_ms", "domain", "hold", "hold", "of what came over links", "ms held each", MS),
    Why("queue_ms", "server", "queue", "queue", "of reactions", "ms in the queue each", MS),
)


def compare(a: pa.Table, b: pa.Table, price: float | None = None) -> Figures:
    """Of two periods' roll-ups: `figures` side by side, `topology`, how domains differ, and `why`, which places a
    change comes from, the largest first."""
    one, other = Sums.of(a), Sums.of(b)
    before, after = figures(one, price), figures(other, price)
    domains = {name: (_domain(a, name), _domain(b, name)) for name in _names(a) | _names(b)}
    return {
        "figures": [
            {"figure": name, "a": before[name], "b": after[name], "change_pct": _change(before[name], after[name])}
            for name in before
        ],
        "topology": [
            {"domain": name, "text": text}
            for name, (old, new) in sorted(domains.items())
            if (text := _difference(old, new))
        ],
        "why": [row for why in WHYS for row in _explained(why, one, other, domains)],
    }


def _explained(why: Why, a: Sums, b: Sums, domains: Mapping[str, tuple[Any, Any]]) -> Iterator[Figures]:
    """The change of a quotient is the sum of its places' effects, and each of these that of how many and how much."""
    per = a[why.per].count, b[why.per].count
    if not all(per):
        return
    rows = []
    parts = [sums.by[why.column].get(why.total, {}) for sums in (a, b)]
    for place in {*parts[0], *parts[1]}:
        many: list[float] = []
        each: list[float | None] = []
        for part, divisor in zip(parts, per, strict=True):
            found = part.get(place, Sum())
            many.append(found.count / divisor)
            each.append(found.total / found.count / why.scale if found.count else None)
        # Where there was nothing, it is taken to have been as large each: then all of the effect is of how many.
        sizes = [size if size is not None else other for size, other in zip(each, each[::-1], strict=True)]
        old, new = sizes[0] or 0.0, sizes[1] or 0.0
        by_count, by_size = (many[1] - many[0]) * (old + new) / 2, (new - old) * (many[0] + many[1]) / 2
        rows.append((by_count + by_size, by_count, by_size, place, many, (old, new)))
    total = sum(abs(row[0]) for row in rows)
    rows = sorted((row for row in rows if row[0]), key=lambda row: (-abs(row[0]), row[3]))
    told = [row for row in rows[:TOP] if abs(row[0]) >= SHARE * total]
    for effect, by_count, by_size, place, many, sized in told:
        said = [
            f"{_shown(many[1])} {why.one} in place of {_shown(many[0])} ({_signed(by_count)})",
            f"{_shown(sized[1])} {why.unit} in place of {_shown(sized[0])} ({_signed(by_size)})",
        ]
        if why.column == "domain" and (text := _difference(*domains.get(place, (None, None)))):
            said.append(text)
        yield {
            "figure": why.figure, why.column: place, "effect": _rounded(effect), "by_count": _rounded(by_count),
            "by_size": _rounded(by_size), "text": "; ".join(said),
        }  # fmt: skip
    if rest := rows[len(told) :]:
        yield {
            "figure": why.figure, why.column: None, "effect": _rounded(sum(row[0] for row in rest)),
            "by_count": _rounded(sum(row[1] for row in rest)), "by_size": _rounded(sum(row[2] for row in rest)),
            "text": f"{many_of(len(rest), why.column)} that changed less",
        }  # fmt: skip


Domain = tuple[set[str], set[str]]  # back ends, servers


def _names(table: pa.Table) -> set[str]:
    return {name for name in pc.unique(table["domain"]).to_pylist() if name}


def _domain(table: pa.Table, name: str) -> Domain | None:
    rows = table.filter(pc.equal(table["domain"], name))
    if not rows.num_rows:
        return None
    orderings, servers, peers = (set(pc.unique(rows[column]).to_pylist()) for column in ("ordering", "server", "peer"))
    return orderings - {""}, servers | peers - {""}


def _difference(old: Domain | None, new: Domain | None) -> str:
    """In words; only servers that the traffic has shown are known."""
    if old is None and new is None:
        return ""
    if old is None:
        assert new is not None, "one of them is there"
        return f"new, ordered by {', '.join(sorted(new[0]))}: {', '.join(sorted(new[1]))}"
    if new is None:
        return "gone, or without traffic"
    found = []
    if old[0] != new[0]:
        found.append(f"ordered by {', '.join(sorted(new[0]))} in place of {', '.join(sorted(old[0]))}")
    if more := new[1] - old[1]:
        found.append(f"with {', '.join(sorted(more))}")
    if fewer := old[1] - new[1]:
        found.append(f"without {', '.join(sorted(fewer))}")
    return "; ".join(found)


# -- trend -------------------------------------------------------------------------------------------------------------


PLACES = {"all": (), "domain": ("domain",), "link": ("domain", "server", "peer"), "server": ("server",)}
OF_PLACES = ("packets", "ints", "relays", "forwards", "hold", "wire_bytes")  # what belongs to a domain or link
FROM_PEER = ("forwards", "hold")  # rows of the server that something came to


def trend(table: pa.Table, hours: int, of: str = "all", price: float | None = None) -> list[Figures]:
    """The figures of each period of so many hours, in order; with `of` those of each place then. `price`: of a GB."""
    if of in ("domain", "link"):
        table = table.filter(pc.is_in(table["figure"], pa.array(OF_PLACES)))
    if of == "link":  # all rows of a link name the server that sends first
        came = pc.is_in(table["figure"], pa.array(FROM_PEER))
        server, peer = (pc.if_else(came, table[a], table[b]) for a, b in (("peer", "server"), ("server", "peer")))
        for name, column in (("server", server), ("peer", peer)):
            table = table.set_column(table.schema.get_field_index(name), name, column)
    table = table.append_column("period", pc.multiply(pc.divide(table["hour"], hours), hours))
    keys = ["period", *PLACES[of]]
    found = []
    for row in table.group_by(keys).aggregate([]).sort_by([(key, "ascending") for key in keys]).to_pylist():
        mine = table
        for key, value in row.items():
            mine = mine.filter(pc.equal(mine[key], value))
        start = f"{datetime.fromtimestamp(row.pop('period') * 3600, UTC):%Y-%m-%dT%H:%MZ}"
        place = {"from" if key == "server" and of == "link" else "to" if key == "peer" else key: value
                 for key, value in row.items()}  # fmt: skip
        found.append({"start": start} | place | figures(Sums.of(mine), price))
    return found


# -- alerts ------------------------------------------------------------------------------------------------------------

ALERT = re.compile(r"(\w+)\s*(?:([<>])\s*(-?\d+(?:\.\d+)?)|([+-]\d+(?:\.\d+)?)%)$")


class Alert(NamedTuple):
    """`hold_ms>5`: the figure is above 5. `control_per_message+20%`: it has risen by more than 20 %; `-20%`: fallen."""

    text: str
    figure: str
    sign: str  # < or >
    bound: float
    relative: bool

    @staticmethod
    def of(text: str) -> "Alert":
        """Raises MomError."""
        known = figures(Sums({}, {"domain": {}, "server": {}}))
        found = ALERT.match(text.strip())
        if not found:
            raise MomError(f"{text!r} is no alert: write hold_ms>5, messages<1, or control_per_message+20%")
        if found[1] not in known:
            raise MomError(f"there is no figure {found[1]!r}; there are {', '.join(known)}")
        if found[2]:
            return Alert(text, found[1], found[2], float(found[3]), False)
        return Alert(text, found[1], ">" if float(found[4]) >= 0 else "<", float(found[4]), True)

    def raised(self, value: float | None, change_pct: float | None) -> bool:
        judged = change_pct if self.relative else value
        return judged is not None and (judged > self.bound if self.sign == ">" else judged < self.bound)


def raised(alerts: Sequence[Alert], rows: Sequence[Figures]) -> list[Figures]:
    """Of the `figures` of a comparison those that an alert is about."""
    by_name = {row["figure"]: row for row in rows}
    return [
        {"alert": alert.text, **by_name[alert.figure]}
        for alert in alerts
        if alert.raised(by_name[alert.figure]["b"], by_name[alert.figure]["change_pct"])
    ]


def _change(a: float | None, b: float | None) -> float | None:
    return round(100 * (b - a) / a, 1) if a and b is not None else None


def _ratio(a: float, b: float) -> float | None:
    return _rounded(a / b) if b else None


def _rounded(value: float) -> float:
    return round(value, 3)


def _shown(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"
