"""Which code may be named from outside, and what is imported for it."""

import sys

import pytest

from mombroker.agents.program import Program
from mombroker.core.errors import MomError

MODULE = """
from mombroker.agents import notification

@notification
class Letter:
    text: str
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module that nobody has imported yet."""
    (tmp_path / "corner_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "corner_shop.Letter"
    sys.modules.pop("corner_shop", None)


def test_a_notification_of_an_allowed_module_can_be_sent_before_anybody_has_imported_it(shop):
    program = Program(("corner_shop",), frozenset())
    payload = program.compose(shop, {"text": "hello"})
    assert program.read(shop, payload) == {"text": "hello"}


def test_no_other_module_is_imported_for_somebody_outside(shop):
    (name := shop.rpartition(".")[0])
    with pytest.raises(MomError, match="within allow"):
        Program(("other",), frozenset()).compose("unheard_of.Letter", {})
    with pytest.raises(MomError, match="may not be deployed here"):
        Program(("other",), frozenset()).allowed(f"{name}:Agent", remote=True)
    assert name not in sys.modules
