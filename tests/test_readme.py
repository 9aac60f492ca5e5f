"""What README.md and docs/agents.md show first is run here, word for word."""

import re
import sys
import tomllib
import types
from pathlib import Path

import pytest

from mombroker.admin.cli.main import commands
from mombroker.broker.policy import Policy, policy
from tests.core.bus import Bus, topology

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, kind: str = "python") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.S)


def greeter(page: Path) -> str:
    return next(block for block in blocks(page) if "class Greeter" in block)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "agents.md"], ids=lambda page: page.name)
def test_the_agent_shown_first_greets(page, monkeypatch):
    name = f"shown_in_{page.stem.lower()}"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(greeter(page), str(page), "exec"), module.__dict__)
    bus = Bus(topology({"x": "abc"}, {"b/greeter": f"{name}:Greeter"}))
    bus.pump()
    for who in ("Ada", "Bo"):
        bus.ask("a", "send", to=["greeter"], type=f"{name}.Hello", fields={"who": who})
    assert bus.fields("b/greeter") == {"greeted": 2}
    sent = [row["detail"] for row in bus.records("b", "send")]
    assert sent.count(f"{name}.Greeting") == 2


def test_the_agent_in_the_readme_takes_fifteen_lines():
    code = [line for line in greeter(ROOT / "README.md").splitlines() if line.strip()]
    assert len(code) <= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_shown_exists(page):
    known = {name for name, _ in commands()}
    shown = re.findall(r"`?\b(mom(?: [a-z]+)+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
    for words in shown:
        parts = words.split()
        assert any(" ".join(parts[:n]) in known for n in (2, 3)), f"{page.name} shows {words!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_docs_show_every_setting_of_a_policy_with_its_default():
    (block,) = [block for block in blocks(ROOT / "docs" / "stomp.md", "toml") if "[[policies]]" in block]
    (shown,) = tomllib.loads(block)["policies"]
    assert policy(shown).as_dict() == {**Policy().as_dict(), "match": shown["match"]}
    assert set(shown) == set(Policy().as_dict())
