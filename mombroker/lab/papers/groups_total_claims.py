"""What paper 003 claims of ABCAST and of flushes, and how each claim is judged."""

from collections.abc import Callable

from mombroker.lab.papers.base import Claim, Judgement, Table, Value, joined, reasons, verdict
from mombroker.lab.papers.groups_claims import ABOUT, MODEL, PRINTED, RPC, L, M, S, beside, missing

TOTAL_RPC, TOTAL_STREAM, SEVEN, ORDER, FLUSH = "III-rpc", "III-stream", "7", "order", "flush"
STYLE, WAITING = "I", "conservative"
PEERS, COLLAPSED, SEPARATE, DIFFUSION, HIERARCHY = (
    "peers", "one group for all clients", "a group for each client", "diffusion", "a hierarchy",
)  # fmt: skip
SERVERS, PART = 3, 4
RULE_ALL, RULE_CONSERVATIVE = "all vectors", "the conservative rule"
LOCAL, QUICK = 0.99, 0.0  # chances to send in the same group again: locality, and several groups in quick succession
CHEAP, DEAR = 1.2, 1.5  # times the delay with all vectors: at most, at least
STAYS, FOLLOWS = "senders in turn, the token stays", "one sender, the token goes there"
EACH_OTHER, BY_ONE = "to each other", "through a coordinator"
CAUSAL_1K, ORDERED_1K = "CBCAST, 1k", "ABCAST, 1k"
HALF = (0.4, 0.67)  # of the speed: roughly half
PRINTED_TOTAL = {  # table III: ms, by destinations
    S: (12.7, 18.5, 24.6, 31.4, 38.1, 44.3, 55.2), M: (14.0, 19.7, 25.6, 32.5, 39.2, 42.1, 48.3),
    L: (25.5, 30.7, 42.6, 53.5, 70.3, 77.5, 97.0),
}  # fmt: skip
STREAMED_TOTAL = {
    "per_s": (S, (341, 273, 207, 197, 352, 133, 97)), "kb_per_s": (L, (560, 317, 175, 152, 115, 98.9, 79.7)),
}  # fmt: skip


def printed(table: Table) -> Judgement:
    return beside({size: (table.curve(TOTAL_RPC, size, "ms"), values) for size, values in PRINTED_TOTAL.items()})


def printed_rates(table: Table) -> Judgement:
    names = {"per_s": "messages a second", "kb_per_s": "kB a second"}
    found = beside({
        f"{size}, {names[column]}": (table.curve(TOTAL_STREAM, size, column), values)
        for column, (size, values) in STREAMED_TOTAL.items()
    })  # fmt: skip
    slip = "the 352 a second that are printed for five are what table II has there"
    return Judgement(found.verdict, found.measured, f"{found.why}; {slip}")


def ratios(table: Table, size: str) -> list[float]:
    """How many times as long as a CBCAST an ABCAST takes, by destinations."""
    ordered, causal = (table.curve(figure, size, "ms") for figure in (TOTAL_RPC, RPC))
    return [(Value(ordered[n]) / Value(causal[n])).mean for n in ordered]


def half_the_speed(table: Table) -> Judgement:
    speeds = [1 / ratio for ratio in ratios(table, S)]
    off = [causal / total for causal, total in zip(PRINTED[S], PRINTED_TOTAL[S], strict=True)]
    return Judgement(
        verdict([HALF[0] <= speed <= HALF[1] for speed in speeds]),
        f"null packets: {min(speeds):.2f} to {max(speeds):.2f} of the speed of CBCAST",
        f"{MODEL}; roughly half: {HALF[0]} to {HALF[1]}; printed are {min(off):.2f} to {max(off):.2f}, and the reasons "
        "given, scheduling and I/O of a more synchronous application, are not in the model",
    )


def figure_seven(table: Table) -> Judgement:
    """By the values of tables II and III that it draws."""
    causal, ordered = (table.curve(SEVEN, setting, "ms") for setting in (CAUSAL_1K, ORDERED_1K))
    found = [(Value(ordered[n]) / Value(causal[n])).mean for n in causal]
    printed = [total / one for one, total in zip(PRINTED[M], PRINTED_TOTAL[M], strict=True)]
    held = [abs(mine / theirs - 1) <= ABOUT / 100 for mine, theirs in zip(found, printed, strict=True)]
    return Judgement(
        verdict(held), "an ABCAST takes " + " / ".join(f"{each:.2f}" for each in found) + " times as long",
        f"{MODEL}; printed are {' / '.join(f'{each:.2f}' for each in printed)}; within {ABOUT} %",
    )  # fmt: skip


def size_matters_less(table: Table) -> Judgement:
    """The order costs a message more, whatever it carries."""
    small, large = ratios(table, S), ratios(table, L)
    held = [big < null for null, big in zip(small, large, strict=True)]
    shown = f"an ABCAST takes {min(small):.2f} to {max(small):.2f} times as long as a CBCAST with null packets, "
    return Judgement(verdict(held), shown + f"{min(large):.2f} to {max(large):.2f} times with 7k", MODEL)


def one_and_a_batch(table: Table) -> Judgement:
    curve = table.curve(ORDER, STAYS, "multicasts")
    held = [abs(value - 1 - 1 / k) < 0.005 for k, value in curve.items()]
    shown = ", ".join(f"{value:.2f} for k = {k:g}" for k, value in curve.items())
    return Judgement(verdict(held), f"CBCASTs of an ABCAST: {shown}")


def one_where_the_token_is(table: Table) -> Judgement:
    values = [*table.curve(ORDER, FOLLOWS, "multicasts").values()]
    shown = f"{min(values):.3f} to {max(values):.3f} CBCASTs of an ABCAST, that which moves the token included"
    return Judgement(verdict([value < 1.05 for value in values]), shown, "one: within 5 %")


def squared(table: Table) -> Judgement:
    curve = table.curve(FLUSH, EACH_OTHER, "flushes")
    shown = ", ".join(f"{value:.0f} for n = {n:g}" for n, value in curve.items())
    return Judgement(verdict([value == n * (n - 1) for n, value in curve.items()]), shown, "exactly n (n - 1)")


def linear(table: Table) -> Judgement:
    curve = table.curve(FLUSH, BY_ONE, "flushes")
    shown = ", ".join(f"{value:.0f} for n = {n:g}" for n, value in curve.items())
    return Judgement(verdict([value == 2 * (n - 1) for n, value in curve.items()]), shown, "exactly 2 (n - 1)")


def three_n(table: Table) -> Judgement:
    curve = table.curve(FLUSH, BY_ONE, "packets")
    found = {n: value / n for n, value in curve.items()}
    shown = ", ".join(f"{value:.2f} n for n = {n:g}" for n, value in found.items())
    why = "one to tell each member, and the flush; approximately: within 20 %"
    return Judgement(verdict([abs(value / 3 - 1) <= 0.2 for n, value in found.items() if n >= 4]), shown, why)


def styles(table: Table) -> Judgement:
    bounds: dict[str, Callable[[float], float]] = {
        PEERS: lambda c: SERVERS + c, COLLAPSED: lambda c: SERVERS + c, DIFFUSION: lambda c: SERVERS,
        HIERARCHY: lambda c: max(PART, c),
    }  # fmt: skip
    held, shown = [], []
    for style, most in bounds.items():
        curve = table.curve(STYLE, style, "fields")
        held += [value <= most(c) for c, value in curve.items()]
        shown.append(f"{style} " + ", ".join(f"{value:.0f} of {most(c):.0f}" for c, value in curve.items()))
    why = (
        f"the most on any multicast; {SERVERS} servers, by clients or parts of {PART}; a hierarchy is judged under the "
    )
    return Judgement(verdict(held), "; ".join(shown), why + "conservative rule, which is what the paper had")


def collapsing(table: Table) -> Judgement:
    one, many = (table.curve(STYLE, style, "fields") for style in (COLLAPSED, SEPARATE))
    held = [many[c] > one[c] and many[c] >= SERVERS * c / 2 for c in many]
    shown = ", ".join(f"{many[c]:.0f} in place of {one[c]:.0f} for c = {c:g}" for c in many)
    return Judgement(verdict(held), f"fields: {shown}", "more, and at least half of s c")


def locality(table: Table) -> Judgement:
    free, safe = (table.measured(WAITING, setting, "ms") for setting in (RULE_ALL, RULE_CONSERVATIVE))
    ratios = {stays: safe[stays] / free[stays] for stays in free}
    dear = ratios[QUICK].below(DEAR)
    held = {"locality": ratios[LOCAL].below(CHEAP), "quick succession": None if dear is None else not dear}
    shown = ", ".join(f"{ratio.mean:.2f} at {stays:g}" for stays, ratio in ratios.items())
    why = f"inexpensive: less than {CHEAP} times; substantial: more than {DEAR} times"
    return Judgement(
        verdict([*held.values()]), f"delay over that with all vectors, by the chance to stay in a group: {shown}",
        joined(why, reasons(held)),
    )  # fmt: skip


CLAIMS = [
    Claim(STYLE, "table I", "vectors have at most n fields with peers, s + c with clients, b with diffusion, and those "
          "of a subgroup in hierarchies", styles),
    Claim(STYLE, "§7.1", "with a group for each client vectors would have O(s c) fields", collapsing),
    Claim(STYLE, "table I", "28 bytes of fixed overhead: sender, uid, epoch, group, stable",
          missing("members hand over objects here, not bytes; those of the core of the bus are under note 14")),
    Claim(TOTAL_RPC, "table III", "the printed times of ABCAST", printed),
    Claim(TOTAL_RPC, "table III", "the row Self of ABCAST: to another thread 1.5 ms",
          missing("no member sends to itself here")),
    Claim(TOTAL_RPC, "§8, table III", "ABCAST runs at roughly half the speed of CBCAST with small packets",
          half_the_speed),
    Claim(TOTAL_RPC, "tables II, III", "the larger the packets, the less the order costs beside them",
          size_matters_less),
    Claim(TOTAL_STREAM, "table III", "the printed rates of ABCAST, asynchronously", printed_rates),
    Claim(SEVEN, "figure 7", "what a 1k ABCAST costs beside a 1k CBCAST as the number of sites grows", figure_seven),
    Claim(ORDER, "§5.2", "an ABCAST costs 1 + 1/k CBCASTs if the token stays and k are put in order at a time",
          one_and_a_batch),
    Claim(ORDER, "§5.2", "an ABCAST costs one CBCAST once the token is where they come from", one_where_the_token_is),
    Claim(FLUSH, "§5.5", "a flush to each other takes n² messages", squared),
    Claim(FLUSH, "§5.5", "through a coordinator it takes 2n", linear),
    Claim(WAITING, "§6.7", "the conservative rule is inexpensive with locality, and costs substantially when a process "
          "multicasts to several groups in quick succession", locality),
    Claim(FLUSH, "§7.4", "to add a member takes approximately 3n messages", three_n),
]  # fmt: skip
