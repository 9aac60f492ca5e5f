"""docs/papers.md says what the quick report and the full runs have measured, and the code still measures it.

docs/papers/quick.json is the report-quick.json that `mom paper report` writes, docs/papers/full.json what `mom paper
run --full` writes beside its CSV, of several papers: copied when the document is brought up to them.
"""

import json
import re
from collections import defaultdict
from html import unescape
from pathlib import Path

import pytest

from mombroker.sim.papers import base, sweep

DOCS = Path(__file__).parents[3] / "docs"
KEPT = json.loads((DOCS / "papers" / "quick.json").read_text())
FULL = json.loads((DOCS / "papers" / "full.json").read_text())
TEXT = (DOCS / "papers.md").read_text()
SECTION = {paper: f"## Paper {sweep.load(paper).number}:" for paper in sweep.PAPERS}
SHORT = {"in part": base.PARTLY}
VERDICT = re.compile("|".join(sorted([base.HOLDS, base.PARTLY, base.FAILS, base.UNKNOWN, *SHORT], key=len)[::-1]))
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
OVERLAYS = "Overlay", "Timestamp, unicasts", "Timestamp, multicast"
FULL_DAISY = {
    "delay, ms": ("6", "delay_ms"), "from any LAN": ("6", "delay_from_any_ms"),
    "kB that wait": ("7", "buffered_kb"), "stability delay, ms": ("8", "stable_ms"),
}  # fmt: skip
FULL_RUN = "full run:"  # before a verdict that needs one, or is another by it
DAISY = {
    "delay, ms": ("6", "delay_ms"), "the same from any LAN of another building": ("6", "delay_from_any_ms"),
    "the same, kB": ("7", "buffered_kb"), "stability delay, ms": ("8", "stable_ms"),
    "unstable messages, kB": ("9", "unstable_kb"),
}  # fmt: skip


def value(paper, figure, column, setting, x, kept=KEPT):
    return kept[paper]["values"][figure][column][setting][f"{float(x):g}"][0]


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
    sample = KEPT[paper]["sample"]
    found = sweep.load(paper).run(sample["params"])
    assert found == pytest.approx(sample["result"], rel=1e-9)


@pytest.mark.parametrize(
    ("before", "figure", "kept"),
    [
        ("Figure 3, over", "3", KEPT),
        ("The same in a full run", "3", FULL),
        ("Figure 4, over", "4", FULL),
        ("Figure 5, over", "5", KEPT),
    ],
)
def test_tables_of_ks(before, figure, kept):
    head, _, *rows = table(before)
    for setting, *cells in rows:
        for x, cell in zip(head[1:], cells, strict=True):
            for column, printed in zip(("ks", "ks_bitmap"), filter(None, cell.split(" / ")), strict=False):
                agrees(printed, value("ks", figure, column, setting.split()[0], x, kept))


def test_the_table_of_ks_over_three_ratios():
    _, _, *rows = table("Figures 6, 7 and 8")
    for setting, *cells in rows:
        for at, cell in enumerate(cells):
            for column, printed in zip(("ks", "ks_bitmap"), cell.split(" / "), strict=True):
                agrees(printed, value("ks", "678"[at // 3], column, setting.split()[0], (0.1, 0.5, 1)[at % 3]))


def agree_with_errors(cell, figure, column, n):
    """Overlay, unicasts and multicast, each with its standard error."""
    for setting, printed in zip(OVERLAYS, cell.split(" / "), strict=True):
        for each, measured in zip(
            printed.replace(",", "").split(" ± "), FULL["overlay"]["values"][figure][column][setting][n], strict=False
        ):
            agrees(each, measured)


def test_the_table_of_the_overlays():
    _, _, *rows = table("![Figure 15](papers/overlay-15.png)")
    assert len(rows) == 3 * 6
    for d, n, delays, greatest, fragments, ratio in rows:
        at = ("0", "100", "1000").index(d)
        agree_with_errors(delays, str(3 + at), "delay_ms", n)
        agree_with_errors(greatest, str(3 + at), "delay_max_ms", n)
        for setting, printed in zip(OVERLAYS, fragments.split(" / "), strict=False):
            agrees(printed, value("overlay", str(6 + at), "messages", setting, n, FULL) / 1000)
        sent = [value("overlay", str(6 + at), "bytes", setting, n, FULL) for setting in OVERLAYS]
        agrees(ratio, sent[1] / sent[0])


def test_the_table_of_queues_on_links():
    _, _, *rows = table("The queues on links, without data")
    assert len(rows) == 6
    for n, mean, greatest in rows:
        agree_with_errors(mean, "15", "queue", n)
        agree_with_errors(greatest, "15", "queue_most", n)


def test_the_table_of_the_daisy():
    head, _, *rows = table("Flat / daisy, by messages a second")
    checked = 0
    for name, *cells in rows:
        if name in DAISY:
            checked += 1
            for x, cell in zip(head[1:], cells, strict=True):
                for setting, printed in zip(("flat", "daisy"), cell.split(" / "), strict=True):
                    agrees(printed, value("daisy", *DAISY[name], setting, x))
    assert checked == len(DAISY)


def test_the_full_runs_of_the_daisy():
    head, _, *rows = table("Full runs, five of 12,000 messages")
    assert len(rows) == 2 * len(FULL_DAISY)
    for name, *cells in rows:
        setting, _, what = name.partition(": ")
        figure, column = FULL_DAISY[what]
        curve = FULL["daisy"]["values"][figure][column][setting]
        assert {x for x, cell in zip(head[1:], cells, strict=True) if cell} == set(curve)
        for x, cell in zip(head[1:], cells, strict=True):
            for printed, measured in zip(cell.split(" ± "), curve.get(x, []), strict=False):
                agrees(printed, measured)


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


@pytest.mark.parametrize("paper", sweep.PAPERS)
def test_every_claim_has_its_verdict(paper):
    """By the quick runs, and where there are full ones with another one, by those, too."""
    quick, full = claims(KEPT, paper), claims(FULL, paper)
    assert set(quick) == {claim.text for claim in sweep.load(paper).claims}
    _, _, *rows = table(SECTION[paper], "| claim | verdict |")
    assert sorted(unescape(row[1]) for row in rows) == sorted(quick)
    for place, text, cell, _ in rows:
        kept = quick[unescape(text)]
        assert figures(place) in (None, {claim["figure"] for claim in kept}), text
        by_quick, _, by_full = cell.partition(FULL_RUN)
        assert verdicts(by_quick or base.UNKNOWN) == verdicts(kept), text
        known = [claim for claim in full[unescape(text)] if claim["verdict"] != base.UNKNOWN]
        if by_full or len(known) == len(kept) and verdicts(known) != verdicts(kept):
            assert verdicts(by_full) == verdicts(known), text


@pytest.mark.parametrize("paper", sweep.PAPERS)
def test_what_a_claim_measured_is_what_was_measured(paper):
    """Every decimal number beside a claim, to its last digit, is one that a verdict tells."""
    _, _, *rows = table(SECTION[paper], "| claim | verdict |")
    checked = 0
    for _, text, _, cell in rows:
        kept = claims(KEPT, paper)[unescape(text)] + claims(FULL, paper)[unescape(text)]
        told = " ".join(claim["measured"] + " " + claim["why"] for claim in kept)
        measured = [float(each.replace(",", "")) for each in NUMBER.findall(told)]
        for printed in filter(lambda each: "." in each, NUMBER.findall(cell)):
            checked += 1
            near = 0.501 * 10.0 ** -len(printed.partition(".")[2])
            assert any(abs(float(printed) - value) <= near for value in measured), f"{printed} in: {text}"
    assert checked > 5


def test_every_picture_is_there():
    pictures = re.findall(r"\]\((papers/[\w-]+\.png)\)", TEXT)
    assert len(pictures) > 5 and all((DOCS / picture).exists() for picture in pictures)
