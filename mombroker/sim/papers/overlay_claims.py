"""What paper 000 claims, and how each claim is judged. Both readings of its multicast are told."""

from collections.abc import Mapping, Sequence

from mombroker.ordering.hypercube import flood, hypercube
from mombroker.sim.papers.base import (
    Claim,
    Judge,
    Judgement,
    Missing,
    Table,
    Value,
    reasons,
    verdict,
)

OVERLAY, UNICASTS, MULTICAST = "Overlay", "Timestamp, unicasts", "Timestamp, multicast"
SUSTAINED = "sustained"  # the points at a lower rate
TIMESTAMP = {"as unicasts": UNICASTS, "as network multicast": MULTICAST}  # the readings
EMPTY, LITTLE = 0.05, 2  # a mean queue shorter than this is empty; messages by which little affects a queue


def ratios(table: Table, figure: str, column: str, reading: str) -> dict[float, Value]:
    """By n: Timestamp over Overlay."""
    overlay, other = table.measured(figure, OVERLAY, column), table.measured(figure, TIMESTAMP[reading], column)
    return {n: other[n] / overlay[n] for n in overlay if overlay[n].mean}


def load(table: Table, figure: str) -> tuple[float, float]:
    """Messages a ms of each sender, and for how many ms."""
    for row in table.rows:
        if row["figure"] == figure:
            return row["per_ms"], row["burst_ms"]
    raise Missing(f"it needs figure {figure}")


def span(values: Mapping[float, float] | Mapping[float, Value], form: str = ".2f") -> str:
    means = {n: value.mean if isinstance(value, Value) else value for n, value in values.items()}
    return ", ".join(f"{value:{form}} at n = {n:g}" for n, value in means.items())


def who_has_less(found: Mapping[float, Value], winner: str, what: str) -> dict[str, bool | None]:
    """By n, named: whether it is `winner`, by a ratio of Timestamp over Overlay."""
    return {
        f"{what} at n = {n:g}": Value(1).below(ratio) if winner == OVERLAY else ratio.below(1)
        for n, ratio in found.items()
    }  # fmt: skip


def less(figure: str, winner: str, columns: Sequence[str], readings: Sequence[str] = ("as unicasts",)) -> Judge:
    """`winner` has less of it at every n, under each reading."""

    def judge(table: Table) -> Judgement:
        held: dict[str, bool | None] = {}
        shown = []
        for reading in readings:
            for column in columns:
                found = ratios(table, figure, column, reading)
                held |= who_has_less(found, winner, f"{column.replace('_', ' ')} {reading}")
                what = f" ({column.replace('_', ' ')})" if len(columns) > 1 else ""
                shown.append(f"Timestamp {reading} over Overlay{what}: {span(found)}")
        return Judgement(verdict([*held.values()]), "; ".join(shown), reasons(held))

    return judge


BOTH = tuple(TIMESTAMP)


def gap_shrinks(table: Table) -> Judgement:
    held: dict[str, bool | None] = {}
    shown = []
    for reading in BOTH:
        small, large = (ratios(table, figure, "delay_ms", reading) for figure in ("3", "4"))
        held |= {
            f"{reading} at n = {n:g}": Value(abs(large[n].mean - 1), large[n].of).below(
                Value(abs(small[n].mean - 1), small[n].of)
            )
            for n in large
        }
        shown.append(f"{reading}: {span(small)} without data, {span(large)} with 100 bytes")
    return Judgement(verdict([*held.values()]), "Timestamp over Overlay " + "; ".join(shown), reasons(held))


def more_influenced(table: Table) -> Judgement:
    """How many times longer the delay is with 1000 bytes."""
    grown = {}
    for setting in (OVERLAY, UNICASTS, MULTICAST):
        small, large = (table.measured(figure, setting, "delay_ms") for figure in ("3", "5"))
        grown[setting] = {n: large[n] / small[n] for n in large}
    held = {
        f"{other} at n = {n:g}": grown[other][n].below(most)
        for other in (UNICASTS, MULTICAST)
        for n, most in grown[OVERLAY].items()
    }
    shown = "; ".join(f"{setting}: {span(values, '.1f')}" for setting, values in grown.items())
    return Judgement(verdict([*held.values()]), f"times the delay without data: {shown}", reasons(held))


def counts(figure: str) -> Judge:
    def judge(table: Table) -> Judgement:
        """Exact: a flood is the sum of the degrees less n - 1; Timestamp sends n - 1, each in so many fragments."""
        found = table.curve(figure, OVERLAY, "messages")
        sends = table.curve(figure, OVERLAY, "sends")
        floods = {n: sends[n] * flood(hypercube(int(n))) for n in found}
        per_log = {n: found[n] / sends[n] / (n * (int(n) - 1).bit_length()) for n in found}
        fragments = {n: value / sends[n] / (n - 1) for n, value in table.curve(figure, UNICASTS, "messages").items()}
        held = [found == floods, all(share <= 1 for share in per_log.values())]
        shown = f"Overlay: {span(per_log)} of n log n; Timestamp: {span(fragments, '.3g')} fragments to each"
        same = "exactly" if found == floods else "not exactly"
        return Judgement(verdict(held), shown, f"a flood has {same} the sum of all degrees less n - 1")

    return judge


def crossover(table: Table) -> Judgement:
    """Bytes: messages × (36 + d) against (n - 1)(4n + d + 32 a fragment)."""
    held: list[bool] = []
    shown: dict[float, float] = {}
    measured: dict[tuple[str, int], dict[float, Value]] = {}
    for n in table.curve("6", OVERLAY, "bytes"):
        size, copies = int(n), flood(hypercube(int(n)))
        least = next((d for d in range(2000) if copies * (36 + d) >= (size - 1) * sent(4 * size + d)), None)
        printed = size / ((size - 1).bit_length() - 1)
        shown[n] = least if least is not None else float("inf")
        for figure, d in (("6", 0), ("7", 100), ("8", 1000)):
            measured[figure, d] = found = ratios(table, figure, "bytes", "as unicasts")
            held.append((found[n].mean > 1) == (d < printed))
    why = f"by the sizes that are sent Overlay sends fewer below {span(shown, 'g')} bytes of data"
    if not all(held):
        why += ": the printed formula leaves out the size of an integer and the headers"
    text = "; ".join(f"{span(found)} with {d} bytes" for (_, d), found in measured.items())
    return Judgement(verdict(held), f"bytes, Timestamp over Overlay: {text}", why)


def sent(payload: int) -> int:
    """Bytes, with the headers of its fragments."""
    return payload + 32 * max(-(-payload // 1500), 1)


def hops(figure: str) -> Judge:
    return less(figure, MULTICAST, ["hops"], BOTH)


def no_queue(figure: str) -> Judge:
    def judge(table: Table) -> Judgement:
        most = max(table.curve(figure, OVERLAY, "held_most_here").values())
        return Judgement(verdict([most == 0]), f"at most {most:g} messages, at any node")

    return judge


def timestamp_queues(figure: str) -> Judge:
    def judge(table: Table) -> Judgement:
        """At each n, in the mean over runs, and each in the node that keeps the most."""
        held: dict[str, bool | None] = {}
        shown = []
        for setting in (UNICASTS, MULTICAST):
            found = table.measured(figure, setting, "held_most_here")
            held |= {f"{setting} at n = {n:g}": Value(EMPTY).below(value) for n, value in found.items()}
            shown.append(f"{setting}: {span(found, '.2g')}")
        rate, ms = load(table, figure)
        why = f"{rate:g} messages a ms for {ms:g} ms: almost all may be sent before anything arrives"
        text = f"at most, at any node, in the mean over runs: {'; '.join(shown)}"
        return Judgement(verdict([*held.values()]), text, reasons(held, "" if all(held.values()) else why))

    return judge


def sizes_matter_little(table: Table) -> Judgement:
    found = {}
    for n in table.curve("12", MULTICAST, "held_most_here"):
        values = [table.at(figure, MULTICAST, n, "held_most_here") for figure in ("12", "13", "14")]
        found[n] = max(values) - min(values)
    return Judgement(
        verdict([difference <= LITTLE for difference in found.values()]),
        f"the greatest queues differ by {span(found, 'g')} messages between 0, 100 and 1000 bytes",
        f"little: {LITTLE} messages",
    )  # fmt: skip


def queues_grow(table: Table) -> Judgement:
    burst = table.curve("12", MULTICAST, "held")
    values = table.measured(SUSTAINED, MULTICAST, "held")
    steps = [a.below(b) for a, b in zip(values.values(), [*values.values()][1:], strict=False)]
    decided = [step for step in steps if step is not None]
    told = ", ".join(f"{value.mean:.2g} ± {value.of:.2g} at n = {n:g}" for n, value in values.items())
    if steps and not decided:
        raise Missing(f"at a lower rate the intervals overlap: {told}; run it with --full")
    (rate, ms), (slow_rate, slow_ms) = load(table, "12"), load(table, SUSTAINED)
    return Judgement(
        verdict(decided),
        f"mean at a node, {slow_rate:g} messages a ms for {slow_ms:g} ms: {told}; "
        f"{rate:g} messages a ms for {ms:g} ms: {span(burst, '.2g')}",
        "judged at a lower rate than the printed, at which almost all is sent before anything comes; a link carries it "
        "to n = 300, not beyond. They grow, or fall, from one size to the next where the intervals do not overlap",
    )


def link_queues(columns: Sequence[str], winner: str) -> Judge:
    """Figure 15: `winner` has the shorter ones at every n, in packets and in bytes."""

    def judge(table: Table) -> Judgement:
        held: dict[str, bool | None] = {}
        shown = []
        for column in columns:
            for reading in BOTH:
                found = ratios(table, "15", column, reading)
                unit = "bytes" if column.endswith("bytes") else "packets"
                held |= who_has_less(found, winner, f"{unit} {reading}")
                shown.append(f"{unit}, {reading}: {span(found)}")
        text = f"Timestamp over Overlay in {'; '.join(shown)}"
        return Judgement(verdict([*held.values()]), text, reasons(held))

    return judge


def overlay_grows(table: Table) -> Judgement:
    held: dict[str, bool | None] = {}
    shown = []
    for reading in BOTH:
        for column in ("queue_bytes", "queue_most_bytes"):
            small, large = (ratios(table, figure, column, reading) for figure in ("15", "17"))
            what = f"{column.replace('_', ' ')} {reading}"
            held |= {f"{what} at n = {n:g}": large[n].below(small[n]) for n in large}
            shown.append(f"{what}: {span(small)} without data, {span(large)} with 1000")
    return Judgement(verdict([*held.values()]), "Timestamp over Overlay, " + "; ".join(shown), reasons(held))


DELAYS = ["delay_ms", "delay_max_ms"]
CLAIMS = [
    Claim("3", "§5.2", "without data Overlay delivers much faster", less("3", OVERLAY, DELAYS, BOTH)),
    Claim("4", "§5.2", "with 100 bytes the difference decreases", gap_shrinks),
    Claim("4", "§1, §7", "Overlay is faster for small messages, 100 bytes", less("4", OVERLAY, ["delay_ms"], BOTH)),
    Claim("5", "§5.2", "with 1000 bytes Timestamp becomes faster", less("5", MULTICAST, DELAYS, BOTH)),
    Claim("5", "§5.2", "the delay of Overlay is more influenced by the size of data", more_influenced),
    *(Claim(at, "§4, §5.2", "Timestamp sends fewer messages", less(at, MULTICAST, ["messages"])) for at in "678"),
    *(Claim(at, "§4", "Overlay sends a message up to n log n times, Timestamp n times", counts(at)) for at in "678"),
    Claim("6", "§5.2", "without data Overlay sends fewer bytes", less("6", OVERLAY, ["bytes"])),
    Claim("7", "§5.2", "Overlay sends fewer bytes even with 100 bytes of data", less("7", OVERLAY, ["bytes"])),
    Claim("8", "§5.2", "with 1000 bytes Overlay sends more bytes", less("8", MULTICAST, ["bytes"])),
    Claim("8", "§4", "Overlay is better roughly when d < n / (log n - 1), in bytes", crossover),
    *(Claim(at, "§5.2", "Timestamp travels fewer hops", hops(at)) for at in ("9", "10", "11")),
    *(Claim(at, "§3.2, §5.2", "Overlay's delivery queues are always empty", no_queue(at)) for at in ("12", "13", "14")),
    *(Claim(at, "§5.2", "Timestamp keeps messages in them", timestamp_queues(at)) for at in ("12", "13", "14")),
    Claim("13", "§5.2", "the size of data has little effect on Timestamp's delivery queues", sizes_matter_little),
    Claim("12", "§5.2", "they become longer with more nodes", queues_grow),
    Claim("15", "§5.2", "without data Timestamp has the larger mean queues on links",
          link_queues(["queue", "queue_bytes"], OVERLAY)),
    Claim("15", "§5.2", "the greatest queues are those of Overlay, on the links of the senders",
          link_queues(["queue_most", "queue_most_bytes"], MULTICAST)),
    Claim("17", "§5.2", "with more data Overlay's link queues increase in comparison to Timestamp's", overlay_grows),
]  # fmt: skip
