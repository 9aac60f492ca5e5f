"""docs/papers.md says what the quick report has measured, and the code still measures it.

docs/papers/quick.json is the report-quick.json that `mom paper report` writes; it is copied when the document is
brought up to it.
"""

import json
import re
from pathlib import Path

import pytest

from mombroker.sim.papers import sweep

DOCS = Path(__file__).parents[3] / "docs"
KEPT = json.loads((DOCS / "papers" / "quick.json").read_text())
TEXT = (DOCS / "papers.md").read_text()
DAISY = {
    "delay, ms": ("6", "delay_ms"), "the same, kB": ("7", "buffered_kb"), "stability delay, ms": ("8", "stable_ms"),
    "unstable messages, kB": ("9", "unstable_kb"),
}  # fmt: skip


def value(paper, figure, column, setting, x):
    return KEPT[paper]["values"][figure][column][setting][f"{float(x):g}"][0]


def table(before):
    """The rows of the first table after this text, as lists of cells."""
    lines = TEXT[TEXT.index(before) :].splitlines()[1:]
    start = next(at for at, line in enumerate(lines) if line.startswith("|"))
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


@pytest.mark.parametrize("figure", "345")
def test_tables_of_ks(figure):
    head, _, *rows = table(f"Figure {figure}, over")
    for setting, *cells in rows:
        for x, cell in zip(head[1:], cells, strict=True):
            for column, printed in zip(("ks", "ks_bitmap"), filter(None, cell.split(" / ")), strict=False):
                agrees(printed, value("ks", figure, column, setting.split()[0], x))


def test_the_table_of_ks_over_three_ratios():
    _, _, *rows = table("Figures 6, 7 and 8")
    for setting, *cells in rows:
        for at, cell in enumerate(cells):
            for column, printed in zip(("ks", "ks_bitmap"), cell.split(" / "), strict=True):
                agrees(printed, value("ks", "678"[at // 3], column, setting.split()[0], (0.1, 0.5, 1)[at % 3]))


def test_the_table_of_the_overlays():
    _, _, *rows = table("![Figure 5](papers/overlay-5.png)")
    for d, n, delays, fragments, ratio in rows:
        at = ("0", "100", "1000").index(d)
        settings = "Overlay", "Timestamp, unicasts", "Timestamp, multicast"
        for setting, printed in zip(settings, delays.split(" / "), strict=True):
            agrees(printed.split(" ± ")[0], value("overlay", str(3 + at), "delay_ms", setting, n))
        for setting, printed in zip(settings, fragments.split(" / "), strict=False):
            agrees(printed, value("overlay", str(6 + at), "messages", setting, n) / 1000)
        sent = [value("overlay", str(6 + at), "bytes", setting, n) for setting in settings]
        agrees(ratio, sent[1] / sent[0])


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


def test_every_picture_is_there():
    pictures = re.findall(r"\]\((papers/[\w-]+\.png)\)", TEXT)
    assert len(pictures) > 5 and all((DOCS / picture).exists() for picture in pictures)
