"""The page about all papers holds every figure and every claim, and needs nothing else."""

import re
from dataclasses import replace
from html import escape

from mombroker.lab.papers import about, groups, sweep
from mombroker.lab.papers.base import HOLDS, UNKNOWN, Table, judge
from mombroker.lab.papers.report import NO_PICTURE, Chapter, page

PNG = b"\x89PNG\r\n\x1a\n"


def chapter():
    claims = [row for figure in groups.PAPER.figures for row in judge(groups.CLAIMS, figure, Table([]))]
    claims[0] |= {"claim": "a < b & c", "verdict": HOLDS, "measured": "7 %", "why": ""}
    return Chapter(groups.PAPER, claims, {groups.RPC: PNG}, "one run")


def test_every_claim_is_on_the_page_with_its_verdict():
    text = page([chapter()], "title", "note")
    assert text.count("cannot be judged") == len(groups.CLAIMS) - 1 + 2 and text.count(">holds<") == 1 + 1
    assert "a &lt; b &amp; c" in text and "7 %" in text
    assert all(figure.title in text for figure in groups.PAPER.figures.values())
    counted = re.search(r'<td class="number">(\d+)</td>' * 4, text)
    assert counted.groups() == ("1", "0", "0", str(len(groups.CLAIMS) - 1))
    assert {row["verdict"] for row in chapter().claims} == {HOLDS, UNKNOWN}


def test_a_picture_that_is_not_there_has_a_sentence_in_its_place():
    text = page([chapter()], "title", "note")
    assert text.count("data:image/png") == 1 and text.count(NO_PICTURE) == len(groups.PAPER.figures) - 1


def test_a_stranger_is_told_what_is_compared_and_what_the_curves_and_verdicts_are():
    for paper in map(sweep.load, sweep.PAPERS):
        text = page([Chapter(paper, [], {}, "one run")], "title", "note")
        assert escape(about.PAPERS[paper.name]) in text and all(meaning in text for meaning in about.VERDICTS.values())
        if paper.name == "ks":
            assert "S3: MTT 400, M/T 0.1, n 20;" in text and "S4: MTT 50, MIMT 1600, n 15<" in text


def test_the_page_needs_nothing_else():
    text = page([chapter()], "title", "note")
    assert re.findall(r'(?:src|href)="(\S{4})', text) == ["#gro", "data"]
    assert "<script" not in text and "@import" not in text and "url(" not in text


def test_what_a_live_bus_has_shown_stands_by_its_figure():
    text = page([replace(chapter(), live={groups.RPC: "n < 150 & more"})], "title", "note")
    assert re.search(r'id="groups-II-rpc">.*<p>n &lt; 150 &amp; more</p>\n<h3', text, re.DOTALL)


def test_all_papers_are_listed_and_say_what_they_run():
    numbers = [sweep.load(name).number for name in sweep.PAPERS]
    assert sorted(numbers) == ["000", "001", "002", "003", "004"]
    for paper in map(sweep.load, sweep.PAPERS):
        assert paper.backends and all(claim.figure in paper.figures for claim in paper.claims)
        for full in (False, True):
            points = sweep.points(paper, [*paper.figures], full, paper.seeds, {})
            assert all(paper.cost(point.params) > 0 for point in points)
        for reading in paper.readings.values():
            assert set(reading) <= set(points[0].params)
