"""One HTML page about all papers: every figure, and for each claim its place, what was measured, and the verdict."""

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from mombroker.lab.papers import about
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Paper

STYLE = """
:root { --ink: #1d2733; --soft: #5b6875; --line: #dfe4ea; --page: #fff; --band: #f5f7f9; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
       max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.6rem 0 .2rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
a { color: #1558a6; }
img { max-width: 100%; height: auto; display: block; margin: .4rem 0; border: 1px solid var(--line);
      border-radius: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
th { background: var(--band); font-weight: 600; }
td.number { text-align: right; }
.verdict { white-space: nowrap; border-radius: 4px; padding: .1rem .45rem; font-weight: 600; font-size: .82rem; }
.holds { background: #d9f2df; color: #14532d; } .part { background: #fdf0cf; color: #6b4a00; }
.fails { background: #fbdcdc; color: #7f1d1d; } .unknown { background: #e6eaee; color: #3d4a57; }
"""
READINGS = (
    "Where a paper leaves open what it did, one reading is adopted; docs/papers.md says which, lists the errata, and "
    "has what other readings give. Pictures show means with their 95 % intervals, where chance has a part."
)
NO_PICTURE = "There is no picture, as matplotlib was not there to draw it. Its values are among the results, as CSV."
CLASSES = {HOLDS: "holds", PARTLY: "part", FAILS: "fails", UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class Chapter:
    """`claims` are rows of `base.judge`; `pictures` are PNG by figure; `note` says how much was run; `live`, by figure,
    what a bus that ran has shown."""

    paper: Paper
    claims: Sequence[Mapping[str, str]]
    pictures: Mapping[str, bytes]
    note: str
    live: Mapping[str, str] = field(default_factory=dict)


def page(chapters: Sequence[Chapter], title: str, note: str) -> str:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    head += f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    body = [f"<h1>{escape(title)}</h1>", *map(_soft, (note, READINGS)), _summary(chapters), _soft(about.verdicts())]
    return "\n".join([head, "<body>", *body, *map(_chapter, chapters), "</body></html>", ""])


def _soft(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'


def _summary(chapters: Sequence[Chapter]) -> str:
    rows = []
    for chapter in chapters:
        counts = Counter(claim["verdict"] for claim in chapter.claims)
        cells = "".join(f'<td class="number">{counts[verdict]}</td>' for verdict in CLASSES)
        link = f'<a href="#{chapter.paper.name}">{escape(chapter.paper.title)}</a>'
        rows.append(f"<tr><td>{chapter.paper.number}</td><td>{link}</td>{cells}</tr>")
    names = "".join(f"<th>{_chip(verdict)}</th>" for verdict in CLASSES)
    return _table(f"<tr><th>paper</th><th>claims about</th>{names}</tr>", rows)


def _chapter(chapter: Chapter) -> str:
    paper = chapter.paper
    parts = [f'<h2 id="{paper.name}">{paper.number}. {escape(paper.title)}</h2>']
    parts += [f"<p>{escape(about.PAPERS[paper.name])}</p>", _soft(chapter.note)]
    for name, figure in paper.figures.items():
        heading = name if not name.isdigit() else f"Figure {name}"
        parts.append(f'<h3 id="{paper.name}-{name}">{escape(heading)}. {escape(figure.title)}</h3>')
        if name in chapter.pictures:
            data = b64encode(chapter.pictures[name]).decode()
            parts.append(f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{data}">')
        else:
            parts.append(_soft(NO_PICTURE))
        if told := about.figure(paper.name, name):
            parts.append(_soft(told))
        rows = [_claim(claim) for claim in chapter.claims if claim["figure"] == name]
        if rows:
            parts.append(
                _table("<tr><th>claim</th><th>place</th><th>verdict</th><th>measured, and why</th></tr>", rows)
            )
        if name in chapter.live:
            parts.append(f"<p>{escape(chapter.live[name])}</p>")
    return "\n".join(parts)


def _claim(claim: Mapping[str, str]) -> str:
    measured = escape(claim["measured"])
    if claim["why"]:
        measured += f'{"<br>" if measured else ""}<span class="soft">{escape(claim["why"])}</span>'
    cells = escape(claim["claim"]), escape(claim["place"]), _chip(claim["verdict"]), measured
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _chip(verdict: str) -> str:
    return f'<span class="verdict {CLASSES[verdict]}">{escape(verdict)}</span>'


def _table(head: str, rows: Sequence[str]) -> str:
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
