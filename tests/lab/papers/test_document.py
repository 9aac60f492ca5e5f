"""docs/papers.md says what the full runs and the quick report have measured, and the code still measures it.

docs/papers/full.json is of what `mom paper run --full` writes beside its CSV, all papers in one; docs/papers/quick.json
is the report-quick.json that `mom paper report` writes; docs/papers/readings.json is of quick runs of other readings:
copied when the document is brought up to them.
"""

import json
import re
from collections import Counter, defaultdict
from html import unescape
from pathlib import Path

import pytest

from mombroker.lab.papers import base, sweep

DOCS = Path(__file__).parents[3] / "docs"
QUICK, FULL, READINGS = (
    json.loads((DOCS / "papers" / f"{name}.json").read_text()) for name in ("quick", "full", "readings")
)  # fmt: skip
TEXT = (DOCS / "papers.md").read_text()
SECTION = {paper: f"## Paper {sweep.load(paper).number}:" for paper in sweep.PAPERS}
SHORT = {"in part": base.PARTLY}
VERDICT = re.compile("|".join(sorted([base.HOLDS, base.PARTLY, base.FAILS, base.UNKNOWN, *SHORT], key=len)[::-1]))
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
OVERLAYS = "Overlay", "Timestamp, unicasts", "Timestamp, multicast"
DAISY = {
    "delay, ms": ("6", "delay_ms"), "over three hops in both": ("6", "delay_three_ms"),
    "kB that wait in a process": ("7", "buffered_kb"), "stability delay, ms": ("8", "stable_ms"),
    "unstable messages, kB": ("9", "unstable_kb"),
}  # fmt: skip
QUICK_RUN = "quick:"  # before a verdict that is another by the quick report


def value(paper, figure, column, setting, x):
    return FULL[paper]["values"][figure][column][setting][f"{float(x):g}"][0]


def table(before, head="|"):
    """The rows of the first table after this text that has this in its head, as lists of cells."""
    lines = TEXT[TEXT.index(before) :].splitlines()[1:]
    start = next(at for at, line in enumerate(lines) if line.startswith("|") and head in line)
    end = next(at for at, line in enumerate(lines) if at > start and not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def agrees(printed, measured):
    """Rounded to as many digits as are printed; what is kept is rounded before."""
    decimals = len(printed.partition(".")[2])
    assert abs(float(printed) - measured) <= 0.51 * 10**-decimals, f"{printed} is printed, {measured} measured"


@pytest.mark.parametrize("paper", sweep.PAPERS)
def test_the_code_measures_what_it_did(paper):
    """The cheapest run of each paper, digit for digit."""
    sample = QUICK[paper]["sample"]
    found = sweep.load(paper).run(sample["params"])
    assert found == pytest.approx(sample["result"], rel=1e-9)


def agree(cell, measured):
    """Of values with strokes between."""
    printed = cell.split(" / ")
    assert len(printed) == len(measured)
    for pair in zip(printed, measured, strict=True):
        agrees(*pair)


def of_both(figure, setting, x):
    return [value("ks", figure, column, setting, x) for column in ("ks", "ks_bitmap")]


@pytest.mark.parametrize(
    ("before", "figure"), [("Figure 3, over", "3"), ("Figure 4, over", "4"), ("Figure 5, over", "5")]
)
def test_tables_of_ks(before, figure):
    head, _, *rows = table(before)
    for setting, *cells in rows:
        for x, cell in zip(head[1:], cells, strict=True):
            if cell:
                agree(cell, of_both(figure, setting.split()[0], x))


def test_the_table_of_ks_over_three_ratios():
    _, _, *rows = table("Figures 6, 7 and 8")
    for setting, *cells in rows:
        for at, cell in enumerate(cells):
            agree(cell, of_both("678"[at // 3], setting.split()[0], (0.1, 0.5, 1)[at % 3]))


def test_the_table_of_readings_of_ks():
    head, _, *rows = table("**Other readings** are")
    assert len(rows) == len(READINGS["ks"])
    for name, *cells in rows:
        for setting, cell in zip(head[1:], cells, strict=True):
            agree(cell, READINGS["ks"][name][setting])


def agree_with_errors(cell, figure, column, n):
    """Overlay, unicasts and multicast, each with its standard error."""
    for setting, printed in zip(OVERLAYS, cell.split(" / "), strict=True):
        for each, measured in zip(
            printed.replace(",", "").split(" ± "), FULL["overlay"]["values"][figure][column][setting][n], strict=False
        ):
            agrees(each, measured)


def test_the_table_of_the_overlays():
    _, _, *rows = table("Full runs (`mom paper run overlay")
    assert len(rows) == 3 * 6
    for d, n, delays, greatest, fragments, ratio in rows:
        at = ("0", "100", "1000").index(d)
        agree_with_errors(delays, str(3 + at), "delay_ms", n)
        agree_with_errors(greatest, str(3 + at), "delay_max_ms", n)
        for setting, printed in zip(OVERLAYS, fragments.split(" / "), strict=False):
            agrees(printed, value("overlay", str(6 + at), "messages", setting, n) / 1000)
        sent = [value("overlay", str(6 + at), "bytes", setting, n) for setting in OVERLAYS]
        agrees(ratio, sent[1] / sent[0])


def test_the_table_of_queues_on_links():
    _, _, *rows = table("The queues on links, without data")
    assert len(rows) == 6
    for n, mean, greatest in rows:
        agree_with_errors(mean, "15", "queue", n)
        agree_with_errors(greatest, "15", "queue_most", n)


def test_the_table_of_queues_beside_each_other():
    columns = {"greatest, in packets": "queue_most", "greatest, in bytes": "queue_most_bytes",
               "mean, in packets": "queue", "mean, in bytes": "queue_bytes"}  # fmt: skip
    _, _, *rows = table("The queues of Timestamp over those of Overlay")
    assert len(rows) == 2 * len(columns)
    for name, *cells in rows:
        what, _, who = name.partition(": ")
        for figure, cell in zip(("15", "16", "17"), cells, strict=True):
            queues = FULL["overlay"]["values"][figure][columns[what]]
            over = zip(queues[f"Timestamp, {who}"].values(), queues["Overlay"].values(), strict=True)
            agree(cell, [one[0] / other[0] for one, other in over])


def test_the_table_of_the_daisy():
    head, _, *rows = table("Full runs (`mom paper run daisy")
    assert [name for name, *_ in rows] == [*DAISY]
    for name, *cells in rows:
        figure, column = DAISY[name]
        for x, cell in zip(head[1:], cells, strict=True):
            agree(cell, [value("daisy", figure, column, setting, x) for setting in ("flat", "daisy")])


def claims(kept, paper):
    """Text -> what is kept of it, figure by figure."""
    found = defaultdict(list)
    for claim in kept.get(paper, {}).get("claims", []):
        found[claim["claim"]].append(claim)
    return found


def verdicts(told):
    """Those in a cell, or of claims; what follows its like is left out."""
    words = VERDICT.findall(told) if isinstance(told, str) else [claim["verdict"] for claim in told]
    words = [SHORT.get(word, word) for word in words]
    return [word for at, word in enumerate(words) if not at or word != words[at - 1]]


def figures(cell):
    """Of "12-14" or "6, 7"; None where the paper's own places are told."""
    if not re.fullmatch(r"[\d, -]+", cell):
        return None
    ends = [[*map(int, part.split("-"))] for part in cell.split(",")]
    return {str(figure) for part in ends for figure in range(part[0], part[-1] + 1)}


def counts(paper):
    """How many claims hold, hold in part, do not, and cannot be judged."""
    found = Counter(claim["verdict"] for claim in FULL[paper]["claims"])
    return " / ".join(str(found[each]) for each in (base.HOLDS, base.PARTLY, base.FAILS, base.UNKNOWN))


def test_the_summary_counts_the_claims():
    _, _, *rows = table("# The papers", "| paper |")
    assert {here.strip("`"): cell for _, here, cell, _ in rows} == {paper: counts(paper) for paper in sweep.PAPERS}


@pytest.mark.parametrize("paper", sweep.PAPERS)
def test_every_claim_has_its_verdict(paper):
    """By the full runs, and by the quick report where that has another."""
    quick, full = claims(QUICK, paper), claims(FULL, paper)
    assert set(quick) == set(full) == {claim.text for claim in sweep.load(paper).claims}
    _, _, *rows = table(SECTION[paper], "| claim | verdict |")
    assert sorted(unescape(row[1]) for row in rows) == sorted(full)
    for place, text, cell, _ in rows:
        kept = full[unescape(text)]
        assert figures(place) in (None, {claim["figure"] for claim in kept}), text
        by_full, _, by_quick = cell.partition(QUICK_RUN)
        assert verdicts(by_full) == verdicts(kept), text
        assert verdicts(by_quick or by_full) == verdicts(quick[unescape(text)]), text


@pytest.mark.parametrize("paper", sweep.PAPERS)
def test_what_a_claim_measured_is_what_was_measured(paper):
    """Every decimal number beside a claim, to its last digit, is one that a verdict tells."""
    _, _, *rows = table(SECTION[paper], "| claim | verdict |")
    checked = 0
    for _, text, _, cell in rows:
        told = " ".join(claim["measured"] + " " + claim["why"] for claim in claims(FULL, paper)[unescape(text)])
        measured = [float(each.replace(",", "")) for each in NUMBER.findall(told)]
        for printed in filter(lambda each: "." in each, NUMBER.findall(cell)):
            checked += 1
            near = 0.501 * 10.0 ** -len(printed.partition(".")[2])
            assert any(abs(float(printed.replace(",", "")) - value) <= near for value in measured), f"{printed}: {text}"
    assert checked > 5


def test_every_picture_is_there():
    pictures = re.findall(r"\]\((papers/[\w-]+\.png)\)", TEXT)
    assert len(pictures) > 5 and all((DOCS / picture).exists() for picture in pictures)
