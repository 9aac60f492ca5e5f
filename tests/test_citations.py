"""What the code and the documents cite is in the repository: sections, codes of errata, files, anchors."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_tree import files

ROOT = Path(__file__).resolve().parent.parent
PROTOCOLS = (ROOT / "docs" / "protocols.md").read_text()
SECTIONS = {found[1] for found in re.finditer(r"(?m)^#{2,3} (\d+(?:\.\d+)?)\.? ", PROTOCOLS)}
CODES = {found[1] for found in re.finditer(r"(?m)^\| ([A-Z]{2}\d) \|", PROTOCOLS)}
SECTION = re.compile(r"[Pp]rotocols §(\d+(?:\.\d+)?)(?:(?:, | and |, §)(\d+\.\d+))?")
CODE = re.compile(r"\b(?:KS|UP|DO|OV|DA|IS)\d\b")
LINK = re.compile(r"\]\(([^)\s:]+)\)")


def texts(*suffixes: str) -> list[Path]:
    return list(files(*suffixes))


def anchor(heading: str) -> str:
    """The anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_the_page_of_protocols_has_sections_and_errata():
    assert {"0.2", "2.1", "6.5", "8.1", "12.2"} <= SECTIONS and {"UP1", "KS7", "DA6", "DO3"} <= CODES


@pytest.mark.parametrize("path", texts(".py", ".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_section_and_code_that_is_cited_resolves(path):
    text = path.read_text()
    sections = {each for found in SECTION.finditer(text) for each in found.groups() if each}
    assert sections - SECTIONS == set()
    assert set(CODE.findall(text)) - CODES == set()


@pytest.mark.parametrize("path", texts(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_of_a_document_leads_somewhere(path):
    missing = []
    for target in LINK.findall(path.read_text()):
        name, _, part = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            missing.append(target)
        elif part and part not in map(anchor, re.findall(r"(?m)^#+ (.*)$", file.read_text())):
            missing.append(target)
    assert missing == []


def test_no_text_cites_a_document_that_is_not_here():
    cited = re.compile(
        r"(?<![\w/])((?:docs|etc|examples|tests|admin|agents|mombroker)/[\w./-]+\.(?:md|py|toml|json|svg|service))\b"
    )
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts(".py", ".md", ".cfg")
        for name in cited.findall(path.read_text())
        if not (ROOT / name).exists()
    ]
    assert wrong == []


NO_CODE = {
    f"mombroker.{name}"
    for name in ("json", "orderings", "passcode", "rules.yml", "schema_version", "service", "toml", "zip")
}  # files and settings


@pytest.mark.parametrize("path", texts(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_name_of_our_code_in_a_document_is_there(path):
    wrong = []
    for name in set(re.findall(r"\bmombroker(?:\.\w+)+", path.read_text())) - NO_CODE:
        module, _, attribute = name.rpartition(".")
        there = find_spec(module) and (hasattr(import_module(module), attribute) or find_spec(name))
        if not there:
            wrong.append(name)
    assert wrong == []
