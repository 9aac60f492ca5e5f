"""What paper 000 claims, and how each claim is judged. Both readings of its multicast are told."""

from collections.abc import Mapping, Sequence
from math import inf, log

from mombroker.lab.papers.base import Claim, Judge, Judgement, Missing, Table, Value, enough, joined, reasons, verdict
from mombroker.ordering.hypercube import flood, hypercube

OVERLAY, UNICASTS, MULTICAST = "Overlay", "Timestamp, unicasts", "Timestamp, multicast"
SUSTAINED = "sustained"  # the points at a lower rate
TIMESTAMP = {"as unicasts": UNICASTS, "as network multicast": MULTICAST}  # the readings
DATA = 0, 100, 1000  # bytes, of the three figures that belong together
MUCH = 2  # times as fast: more
EMPTY, LITTLE = 0.05, 1.5  # a mean queue shorter than this is empty; times that little makes a queue longer: less


def ratios(table: Table, figure: str, column: str, reading: str) -> dict[float, Value]:
    """By n: Timestamp over Overlay."""
    overlay, other = table.measured(figure, OVERLAY, column), table.measured(figure, TIMESTAMP[reading], column)
    return {n: other[n] / overlay[n] for n in overlay}


def load(table: Table, figure: str) -> tuple[float, float]:
    """Messages a ms of each sender, and for how many ms."""
    for row in table.rows:
        if row["figure"] == figure:
            return row["per_ms"], row["burst_ms"]
    raise Missing(f"it needs figure {figure}")


def span(values: Mapping[float, float] | Mapping[float, Value], form: str = ".2f") -> str:
    means = {n: value.mean if isinstance(value, Value) else value for n, value in values.items()}
    return ", ".join(f"{value:{form}} at n = {n:g}" for n, value in means.items())


def who_has_less(found: Mapping[float, Value], winner: str, what: str, times: float = 1) -> dict[str, bool | None]:
    """By n, named: whether it is `winner`, so many times at least, by a ratio of Timestamp over Overlay."""
    return {
        f"{what} at n = {n:g}": Value(times).below(ratio) if winner == OVERLAY else ratio.below(1 / times)
        for n, ratio in found.items()
    }  # fmt: skip


def less(
    figure: str, winner: str, columns: Sequence[str], readings: Sequence[str] = ("as unicasts",), times: float = 1
) -> Judge:
    """`winner` has less of it at every n, under each reading; much less, if `times` is above 1."""

    def judge(table: Table) -> Judgement:
        held: dict[str, bool | None] = {}
        shown = []
        for reading in readings:
            for column in columns:
                found = ratios(table, figure, column, reading)
                held |= who_has_less(found, winner, f"{column.replace('_', ' ')} {reading}", times)
                what = f" ({column.replace('_', ' ')})" if len(columns) > 1 else ""
                shown.append(f"Timestamp {reading} over Overlay{what}: {span(found)}")
        measure = f"much: more than {times:g} times" if times > 1 else ""
        return Judgement(verdict([*held.values()]), "; ".join(shown), joined(measure, reasons(held)))

    return judge


BOTH = tuple(TIMESTAMP)


def apart(ratio: Value) -> Value:
    """How far it is from 1, by logarithms: twice as slow is as far as twice as fast."""
    if not 0 < ratio.mean < inf:
        return Value(inf)
    return Value(abs(log(ratio.mean)), ratio.of / ratio.mean)


def gap_shrinks(table: Table) -> Judgement:
    held: dict[str, bool | None] = {}
    shown = []
    for reading in BOTH:
        small, large = (ratios(table, figure, "delay_ms", reading) for figure in ("3", "4"))
        held |= {f"{reading} at n = {n:g}": apart(large[n]).below(apart(small[n])) for n in large}
        shown.append(f"{reading}: {span(small)} without data, {span(large)} with 100 bytes")
    why = joined("the difference: how many times slower the slower is", reasons(held))
    return Judgement(verdict([*held.values()]), "Timestamp over Overlay " + "; ".join(shown), why)


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
        """Exact: a flood is the sum of the degrees less n - 1; Timestamp sends n - 1, each in so many fragments as it
        needs."""
        found = table.curve(figure, OVERLAY, "messages")
        sends = table.curve(figure, OVERLAY, "sends")
        floods = {n: sends[n] * flood(hypercube(int(n))) for n in found}
        if not all(sends.values()):
            raise Missing("nothing was sent")
        per_log = {n: found[n] / sends[n] / (n * (int(n) - 1).bit_length()) for n in found}
        copies = table.curve(figure, UNICASTS, "messages")
        each = {n: fragments(4 * int(n) + DATA[int(figure) % 3]) for n in copies}
        once = all(copies[n] == sends[n] * (n - 1) * each[n] for n in copies)
        held = [found == floods, all(share <= 1 for share in per_log.values()), once]
        per_copy = {n: value / sends[n] / (n - 1) for n, value in copies.items()}
        shown = f"Overlay: {span(per_log)} of n log n; Timestamp: {span(per_copy, '.3g')} fragments to each"
        same = "exactly" if found == floods else "not exactly"
        why = f"a flood has {same} the sum of all degrees less n - 1"
        return Judgement(
            verdict(held), shown, why if once else f"{why}; Timestamp sends more, or less, than once to each"
        )

    return judge


def crossover(table: Table) -> Judgement:
    """Bytes: messages × (36 + d) against (n - 1)(4n + d + 32 a fragment)."""
    held: dict[str, bool | None] = {}
    shown: dict[float, float] = {}
    measured: dict[tuple[str, int], dict[float, Value]] = {}
    for n in table.curve("6", OVERLAY, "bytes"):
        size, copies = int(n), flood(hypercube(int(n)))
        least = next((d for d in range(2000) if copies * (36 + d) >= (size - 1) * sent(4 * size + d)), None)
        printed = size / max((size - 1).bit_length() - 1, 1)
        shown[n] = least if least is not None else inf
        for figure, d in zip("678", DATA, strict=True):
            measured[figure, d] = found = ratios(table, figure, "bytes", "as unicasts")
            held[f"{d} bytes at n = {n:g}"] = Value(1).below(found[n]) if d < printed else found[n].below(1)
    why = f"by the sizes that are sent Overlay sends fewer below {span(shown, 'g')} bytes of data"
    if not all(held.values()):
        why += ": the printed formula leaves out the size of an integer and the headers"
    text = "; ".join(f"{span(found)} with {d} bytes" for (_, d), found in measured.items())
    return Judgement(verdict([*held.values()]), f"bytes, Timestamp over Overlay: {text}", joined(why, reasons(held)))


def fragments(payload: int) -> int:
    return max(-(-payload // 1500), 1)


def sent(payload: int) -> int:
    """Bytes, with the headers of its fragments."""
    return payload + 32 * fragments(payload)


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
        why = reasons(held, "" if all(held.values()) else why)
        return Judgement(verdict([*held.values()]), text, joined(f"kept: more than {EMPTY:g} messages", why))

    return judge


def sizes_matter_little(table: Table) -> Judgement:
    """The greatest and the mean queue, under each reading, at each n where messages of any size are held."""
    held: dict[str, bool | None] = {}
    shown = []
    for reading, setting in TIMESTAMP.items():
        for what, column in (("greatest", "held_most_here"), ("mean", "held")):
            found = [table.measured(figure, setting, column) for figure in ("12", "13", "14")]
            for n in found[0]:
                values = sorted((curve[n] for curve in found), key=lambda value: value.mean)
                least, most = values[0], values[-1]
                if most.mean:
                    name = f"{what} {reading} at n = {n:g}"
                    held[name] = most.below(Value(LITTLE * least.mean, LITTLE * least.of))
                    shown.append(f"{name}: {' / '.join(f'{curve[n].mean:.2g}' for curve in found)}")
    if not held:
        raise Missing("no message is held, of any size")
    return Judgement(
        verdict([*held.values()]),
        f"messages held with 0 / 100 / 1000 bytes: {'; '.join(shown)}; none else",
        joined(f"little: less than {LITTLE:g} times as many, judged where any are held", reasons(held)),
    )


def queues_grow(table: Table) -> Judgement:
    burst = table.curve("12", MULTICAST, "held")
    values = table.measured(SUSTAINED, MULTICAST, "held")
    enough(values)
    steps = {f"n = {n:g} to {m:g}": values[n].below(values[m]) for n, m in zip(values, [*values][1:], strict=False)}
    shown = ", ".join(f"{value.mean:.2g} ± {value.of:.2g} at n = {n:g}" for n, value in values.items())
    (rate, ms), (slow_rate, slow_ms) = load(table, "12"), load(table, SUSTAINED)
    return Judgement(
        verdict([*steps.values()]),
        f"mean at a node, {slow_rate:g} messages a ms for {slow_ms:g} ms: {shown}; "
        f"{rate:g} messages a ms for {ms:g} ms: {span(burst, '.2g')}",
        joined(
            reasons(steps),
            "judged at a lower rate than the printed, at which almost all is sent before anything comes; a link "
            "carries it to n = 300, not beyond. They grow, or fall, from one size to the next where the intervals do "
            "not overlap",
        ),
    )


UNITS = {"packets": "", "bytes": "_bytes"}  # the ends of columns
QUEUES = {"mean": "queue", "greatest": "queue_most"}


def link_queues(figure: str, shorter: Mapping[str, str], why: str = "") -> Judge:
    """Who has the shorter ones, of the mean or the greatest, at every n, in packets and in bytes."""

    def judge(table: Table) -> Judgement:
        held: dict[str, bool | None] = {}
        shown = []
        for what, winner in shorter.items():
            for unit, end in UNITS.items():
                for reading in BOTH:
                    found = ratios(table, figure, QUEUES[what] + end, reading)
                    held |= who_has_less(found, winner, f"{what} in {unit} {reading}")
                    shown.append(f"{what} in {unit} {reading}: {span(found)}")
        text = f"Timestamp over Overlay: {'; '.join(shown)}"
        return Judgement(verdict([*held.values()]), text, joined(reasons(held), why))

    return judge


def overlay_grows(less: str, more: str) -> Judge:
    """From one figure to the other, of more data."""

    def judge(table: Table) -> Judgement:
        held: dict[str, bool | None] = {}
        shown = []
        for what, column in QUEUES.items():
            for unit, end in UNITS.items():
                for reading in BOTH:
                    small, large = (ratios(table, figure, column + end, reading) for figure in (less, more))
                    name = f"{what} in {unit} {reading}"
                    held |= {f"{name} at n = {n:g}": large[n].below(small[n]) for n in large}
                    shown.append(f"{name}: {span(small)}, then {span(large)}")
        before, after = (DATA[int(figure) % 3] for figure in (less, more))
        text = f"Timestamp over Overlay with {before} and with {after} bytes, {'; '.join(shown)}"
        return Judgement(verdict([*held.values()]), text, reasons(held))

    return judge


PEAKS = "judged beside Timestamp's; on whose links the greatest are, is not measured"
DELAYS = ["delay_ms", "delay_max_ms"]
CLAIMS = [
    Claim("3", "§5.2", "without data Overlay delivers much faster", less("3", OVERLAY, DELAYS, BOTH, MUCH)),
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
          link_queues("15", {"mean": OVERLAY})),
    *(Claim(at, "§5.2", "Overlay has a high maximum and a low mean queue on links",
            link_queues(at, {"greatest": MULTICAST, "mean": OVERLAY}, PEAKS)) for at in ("15", "16", "17")),
    *(Claim(more, "§5.2", "with more data Overlay's link queues increase in comparison to Timestamp's",
            overlay_grows(less, more)) for less, more in (("15", "16"), ("16", "17"))),
]  # fmt: skip
