"""Back ends by name: built in, plugged in, unknown, broken."""

from importlib.metadata import EntryPoint

import pytest

from mombroker.core.errors import MomError
from mombroker.ordering import backend, create, names, registry, restore
from mombroker.ordering.matrix import Matrix
from mombroker.ordering.rst import RST


@pytest.fixture
def plug_in(monkeypatch):
    """Registers `name = value` as an installed package would."""
    points = []

    def add(name: str, value: str) -> None:
        points.append(EntryPoint(name, value, registry.GROUP))
        registry._plugged.cache_clear()

    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])
    registry._plugged.cache_clear()
    yield add
    registry._plugged.cache_clear()


def test_built_in_back_ends_are_known_by_name():
    assert {"matrix", "rst", "fifo"} <= set(names())
    assert backend("matrix") is Matrix
    assert all(backend(name) for name in names())


def test_a_core_is_made_and_restored_by_name():
    core = create("matrix", me=0, size=5, own_column=False)
    core.send((1, 2), b"x")
    rows, _ = core.dirty()
    again = restore("matrix", 0, 5, rows, own_column=False)
    assert isinstance(again, Matrix) and again.value == core.value


def test_an_unknown_name_is_refused_with_the_known_ones(plug_in):
    plug_in("mine", "mombroker.ordering.rst:RST")
    with pytest.raises(MomError, match=r"^no ordering back end is named 'matrx': choose one of .*matrix, mine, .*rst"):
        backend("matrx")


def test_a_plug_in_is_loaded_when_it_is_asked_for(plug_in):
    plug_in("mine", "mombroker.ordering.rst:RST")
    plug_in("gone", "no_such_package.orderings:Core")
    assert {"mine", "gone"} <= set(names())
    assert backend("mine") is RST
    with pytest.raises(MomError, match="'gone' does not load: No module named 'no_such_package'"):
        backend("gone")


def test_a_plug_in_must_be_an_ordering(plug_in):
    plug_in("odd", "mombroker.core.errors:MomError")
    plug_in("empty", "mombroker.core.errors:Nothing")
    with pytest.raises(MomError, match="'odd' is no subclass of mombroker.ordering.Ordering"):
        backend("odd")
    with pytest.raises(MomError, match="'empty' does not load: .*Nothing"):
        backend("empty")


def test_a_plug_in_cannot_take_a_built_in_name(plug_in):
    plug_in("matrix", "mombroker.ordering.rst:RST")
    assert backend("matrix") is Matrix
