"""What paper 001 claims, and how each claim is judged."""

from collections.abc import Sequence

from mombroker.lab.papers.base import (
    Claim,
    Judge,
    Judgement,
    Missing,
    Table,
    constant,
    enough,
    every,
    joined,
    reasons,
    spread_of,
    verdict,
)
from mombroker.lab.papers.daisy_groups import DAISY, FLAT, groups
from mombroker.ordering.groups import Group, plant

CONSTANT = 1  # per cent between the least and the greatest
NARROW = 4  # per cent of the mean: the half of each confidence interval
BUFFERS = "buffered", "buffered_kb"
FLAT_INTEGERS, DAISY_INTEGERS = 60, 5  # that are printed


def pairs(table: Table, figure: str, column: str) -> dict[float, tuple[float, float]]:
    """load -> (flat, daisy)."""
    flat, daisy = table.curve(figure, FLAT, column), table.curve(figure, DAISY, column)
    return {load: (flat[load], daisy[load]) for load in flat}


def both(found: dict[float, tuple[float, float]], form: str = ".1f") -> str:
    return ", ".join(f"{load:g}: {a:{form}} / {b:{form}}" for load, (a, b) in found.items())


def lower(figure: str, column: str, who: str, unit: str, form: str) -> Judge:
    """`who` has less at every load, by more than the confidence intervals of both."""

    def judge(table: Table) -> Judgement:
        one, other = (table.measured(figure, setting, column) for setting in (who, FLAT if who == DAISY else DAISY))
        held = {f"a load of {load:g}": value.below(other[load]) for load, value in one.items()}
        shown = both(pairs(table, figure, column), form)
        return Judgement(verdict([*held.values()]), f"flat / daisy, {unit}, by load: {shown}", reasons(held))

    return judge


def mainly_control(table: Table) -> Judgement:
    """How much of the difference is messages, and how much is their size: flat needs more, and more times as much for
    each than it holds times as many. The size is no matter of chance: what is kept for a message is the same for all.
    """
    counts, sizes = ({who: table.measured("7", who, column) for who in (FLAT, DAISY)} for column in BUFFERS)
    held, by_count, by_size = dict[str, bool | None](), list[float](), list[float]()
    for load, many in counts[FLAT].items():
        few, more = counts[DAISY][load], sizes[DAISY][load].below(sizes[FLAT][load])
        if not many.mean and not few.mean:
            continue  # nothing waits
        by_count.append((many / few).mean)
        larger: bool | None = False  # where only one has messages that wait, it is all in the number
        if many.mean and few.mean:
            by_size.append(sizes[FLAT][load].mean / many.mean / (sizes[DAISY][load].mean / few.mean))
            larger = (many / few).below(by_size[-1])
        held[f"a load of {load:g}"] = every([more, larger])
    if not held:
        raise Missing("no message waits")
    shown = f"flat holds {min(by_count):.1f} to {max(by_count):.1f} times as many messages"
    if by_size:
        shown += f", each {max(by_size):.2f} times as large"
    why = "most of the difference is in the number: in a flat group a message may wait for any other"
    return Judgement(verdict([*held.values()]), shown, reasons(held, why if False in held.values() else ""))


def flat_constant(table: Table) -> Judgement:
    curve = table.measured("8", FLAT, "stable_ms")
    enough(curve)
    values = [value.mean for value in curve.values()]
    held = constant(curve.values(), CONSTANT)
    return Judgement(
        verdict([held]), f"{min(values):.1f} to {max(values):.1f} ms, {spread_of(values):.1f} % apart",
        joined(f"constant: {CONSTANT} % apart at most", reasons({"the least and the greatest": held})),
    )  # fmt: skip


def daisy_grows(table: Table) -> Judgement:
    curve = table.measured("8", DAISY, "stable_ms")
    enough(curve)
    values = [*curve.values()]
    steps = {
        f"{x:g} and {y:g}": curve[x].below(curve[y]) for x, y in zip(curve, [*curve][1:], strict=False)
    }  # fmt: skip
    held = every(steps.values())
    always = {True: ", always up", False: ", not always up", None: ""}[held]
    return Judgement(verdict([held]), f"{values[0].mean:.1f} to {values[-1].mean:.1f} ms{always}", reasons(steps))


def worst() -> int:
    """Members of the largest group of the daisy that is run: so many integers are in the longest vector."""
    tree: list[Group[int]] = plant(groups(DAISY))
    return max(len(group.members) for group in tree)


def sizes(table: Table) -> Judgement:
    """The cores' own vectors, at four bytes an integer: no mean tells how long the longest is, but their groups do."""
    flat, daisy = (max(table.curve("7", setting, "integers").values()) for setting in (FLAT, DAISY))
    wire = {setting: max(table.curve("7", setting, "bytes").values()) for setting in (FLAT, DAISY)}
    longest = worst()
    return Judgement(
        verdict([flat == FLAT_INTEGERS, longest == DAISY_INTEGERS and daisy <= longest]),
        f"vectors of {flat:g} integers, and of {longest} in the largest group of the daisy, {daisy:.2f} in the mean; "
        f"on this broker's wire {wire[FLAT]:.1f} and {wire[DAISY]:.1f} bytes, with all else but the data",
    )


def narrow(figure: str, column: str) -> Judge:
    def judge(table: Table) -> Judgement:
        found, wide = {}, list[str]()
        for setting in (FLAT, DAISY):
            runs = table.values(figure, setting, column)
            if min(map(len, runs.values())) < 3:
                raise Missing("it needs three seeds or more")
            halves = {
                x: 100 * each.of / each.mean if each.of else 0.0
                for x, each in table.measured(figure, setting, column).items()
            }
            found[setting] = max(halves.values())
            wide += [f"{setting} at a load of {x:g}" for x, half in halves.items() if half >= NARROW]
        return Judgement(
            verdict([value < NARROW for value in found.values()]),
            f"at most {found[FLAT]:.1f} (flat) and {found[DAISY]:.1f} % (daisy) of the mean",
            f"wider: {', '.join(wide)}; runs four times as long would halve them" if wide else "",
        )

    return judge


def more_processes(table: Table) -> Judgement:
    raise Missing("the paper measures 60 processes only, and so do we")


COLUMNS: Sequence[tuple[str, str]] = (
    ("6", "delay_ms"), ("7", "buffered_kb"), ("8", "stable_ms"), ("9", "unstable_kb")
)  # fmt: skip
CLAIMS = [
    Claim("6", "§5.2", "the end-to-end delay of flat is lower", lower("6", "delay_ms", FLAT, "ms", ".2f")),
    Claim("6", "§5.2", "the same of those messages alone that take three hops in the daisy, too",
          lower("6", "delay_three_ms", FLAT, "ms", ".2f")),
    Claim("7", "§5.2", "flat needs more memory to resequence", lower("7", "buffered_kb", DAISY, "kB", ".3f")),
    Claim("7", "§5.2", "mainly because its control information is bigger", mainly_control),
    Claim("7", "§5.1", "control information: vectors of 60 integers (flat), of 5 in the worst case (daisy)", sizes),
    Claim("8", "§5.2", "the stability delay of flat is constant", flat_constant),
    Claim("8", "§5.2", "that of the daisy rises with the load, as its servers reorder", daisy_grows),
    Claim("9", "§5.2", "the daisy needs less storage for unstable messages",
          lower("9", "unstable_kb", DAISY, "kB", ".2f")),
    Claim("9", "§5.2", "these properties only accentuate as the number of processes increases", more_processes),
    *(Claim(figure, "§5.2", f"95 % confidence intervals are below {NARROW} % of the mean", narrow(figure, column))
      for figure, column in COLUMNS),
]  # fmt: skip
