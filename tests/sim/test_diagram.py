"""Space-time diagrams: packets are arrows, what waits is a bar that links to its cause, and not too much at once."""

from xml.etree import ElementTree

import pytest

from mombroker.sim import diagram
from mombroker.sim.diagram import Arrow, Story

SVG = "{http://www.w3.org/2000/svg}"
RELAY = Story(
    ["a", "b", "c"],
    [
        Arrow("m1", "a", "c", 1, 100, 100),
        Arrow("m2", "a", "b", 10, 20, 20),
        Arrow("m3", "b", "c", 30, 50, 100, "m1"),
        Arrow("m4", "b", "a", 900, 950, 950),
    ],
)


def test_what_waits_is_a_bar_and_links_to_its_cause():
    root = ElementTree.fromstring(diagram.svg(RELAY, "a < b"))
    links = [each.get("href") for each in root.iter(f"{SVG}a")]
    assert links == ["#m1"] and {each.get("id") for each in root.iter(f"{SVG}text")} >= {"m1", "m2", "m3", "m4"}
    assert len(list(root.iter(f"{SVG}circle"))) == 4 and "a < b" in {each.text for each in root.iter(f"{SVG}text")}


def test_only_what_is_near_is_drawn():
    near = RELAY.around("m3", most=7)
    assert [arrow.message for arrow in near.arrows] == ["m1", "m2", "m3"] and near.processes == ["a", "b", "c"]
    assert [arrow.message for arrow in RELAY.around("m4", most=2).arrows] == ["m4"]
    assert RELAY.around("m4", most=2).processes == ["a", "b"]


def test_moments_are_in_order_and_neither_too_near_nor_too_far():
    xs = [*diagram.places([0, 1, 1_000, 10**9]).values()]
    gaps = [b - a for a, b in zip(xs, xs[1:], strict=False)]
    assert xs == sorted(xs) and diagram.STEP <= min(gaps) and max(gaps) == diagram.STEP + diagram.STRETCH


@pytest.mark.parametrize(("backend", "servers"), [("matrix", 4), ("ks", 4), ("overlay", 5), ("daisy", 5), ("fifo", 2)])
def test_a_domain_tells_its_story(backend, servers):
    """Every delivery is a dot; the same seed draws the same picture."""
    story = diagram.played(backend, servers, 100, 0.5, 1)
    assert all(
        arrow.came >= arrow.left and (not arrow.delivered or arrow.delivered >= arrow.came) for arrow in story.arrows
    )
    assert story == diagram.played(backend, servers, 100, 0.5, 1)
    waited = [arrow for arrow in story.arrows if arrow.held]
    assert all(arrow.waited_for for arrow in waited) and (waited or backend in ("overlay", "fifo"))
    events = sum(3 if arrow.held else 2 for arrow in story.around("m5").arrows)
    assert events <= diagram.MOST
